/* ledger: the usage ledger (config key `log/ledger_file`), a file with one JSON line for each
 * answer: which API key asked, and for how many tokens. The part owns this file, and a second one
 * (the ledger's name and ".open") that is mapped into memory and holds the answers without a line:
 * those that have not ended, and those whose lines are not written yet. If the process is killed,
 * the next process that opens the ledger writes their lines, so no answer in these two files is
 * lost. A crash of the host can lose the end of both files.
 *
 *   {"number":7,"began":"2026-11-26T10:00:00.123Z","ended":"…","request":"my-id",
 *    "answer":"chatcmpl-my-id","key":"team-a","model":"…","status":200,"finish":"stop",
 *    "prompt_tokens":12,"cached_tokens":0,"answer_tokens":64}
 *
 * Numbers ascend by 1 for each answer that begins; numbers of dropped answers are missing. A line
 * with "finish":"killed" and no "ended" means that the process was killed during the answer.
 * {"torn":57} means that the line above it is the beginning (57 bytes) of a line that was never
 * completed; readers skip both lines.
 *
 * The gateway's event loop thread makes every call: server/serve*.c opens and closes the ledger,
 * server/http/ begins and ends answers. A thread of the ledger writes the lines. While the file
 * cannot be written (a full disk), lines wait, and the thread tries again each second. An answer
 * that begins while all LEDGER_SLOTS are in use has no line and counts as lost. ledger_begin,
 * ledger_end and ledger_drop never wait for the disk; ledger_reopen waits for the line that is
 * being written. The ledger rotates nothing, and does not force data to the disk (no fsync). */
#ifndef EVENTS_LEDGER_H
#define EVENTS_LEDGER_H

#include "common/limits.h"
#include "common/status.h"

#include <stdint.h>

#define LEDGER_SLOTS        LIMIT_CLUSTER_REQUESTS /* Most answers that have no line yet. */
#define LEDGER_ID_BYTES     160                    /* Ids of requests and answers with their NUL. */
#define LEDGER_FINISH_BYTES 16

struct ledger;

/* An answer in the mapped file. Until ledger_end or ledger_drop, the caller of ledger_begin may
 * change the three token counts at any time. */
struct ledger_entry {
    uint32_t state;  /* Used by ledger.c only. */
    uint32_t status; /* HTTP status. */
    uint64_t number;
    int64_t began_unix_ms;
    int64_t ended_unix_ms; /* 0 = not yet. */
    uint64_t prompt_tokens;
    uint64_t cached_tokens;
    uint64_t answer_tokens;
    char request_id[LEDGER_ID_BYTES];
    char answer_id[LEDGER_ID_BYTES];
    char key_name[LIMIT_KEY_NAME_BYTES];
    char model[64];
    char finish[LEDGER_FINISH_BYTES];
    char padding[8];
};

struct ledger_counts {
    uint64_t written; /* Lines written. */
    uint64_t lost;    /* Answers that began while no slot was free. */
    uint32_t waiting; /* Ended answers whose lines are not written. */
    /* Answers of an earlier process that had no line yet when ledger_open ran. */
    uint32_t left_by_earlier;
    uint64_t torn_bytes; /* Bytes of an incomplete last line that ledger_open found; 0 = none. */
    char failure[128];   /* Why the last line could not be written; empty = it was written. */
};

/* Opens or makes both files (mode 0600) and starts the thread, which first writes the lines of an
 * earlier process. Returns ST_NO_RESOURCE if another process has the ledger open, ST_INVALID if the
 * second file is not one that a ledger of this release has made, ST_IO, or ST_NO_MEMORY. Errors
 * name the path. */
enum status ledger_open(const char *path, struct ledger **out, struct error *error);
/* Waits at most a second until the lines are written. The next process writes lines that are left.
 * NULL is fine. */
void ledger_close(struct ledger *ledger);

/* Opens the ledger's file again, because it may have been moved. On an error, the old file stays
 * open. */
enum status ledger_reopen(struct ledger *ledger, struct error *error);

/* Begins an answer. Texts are copied. Returns NULL, and counts a lost answer, if no slot is
 * free. */
struct ledger_entry *ledger_begin(struct ledger *ledger, const char *request_id,
                                  const char *answer_id, const char *key_name, const char *model);
/* Ends an answer. The entry must not be used after the call. entry = NULL is fine. `status` is the
 * HTTP status. */
void ledger_end(struct ledger *ledger, struct ledger_entry *entry, unsigned status,
                const char *finish);
/* Ends an answer without a line, because no machine has computed anything for it. entry = NULL is
 * fine. */
void ledger_drop(struct ledger *ledger, struct ledger_entry *entry);

/* Reads the file from its end. Calls on_answer for each line that has an API key and whose answer
 * began at from_s (seconds since 1970) or later. Stops at the first line whose answer ended before
 * from_s. tokens = tokens of prompt and answer. Returns ST_NOT_FOUND, without an error text, if
 * there is no such file, or ST_IO. */
enum status ledger_read_since(const char *path, int64_t from_s,
                              void (*on_answer)(void *self, const char *key_name, int64_t began_s,
                                                uint64_t tokens),
                              void *self, struct error *error);

struct ledger_counts ledger_counts(struct ledger *ledger);

#endif
