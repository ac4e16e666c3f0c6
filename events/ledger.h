/* ledger: the usage ledger (config key `log/ledger_file`), a file with a JSON line for each answer:
 * its API key, and its numbers of tokens. The part owns this file, a thread that writes the lines,
 * and a second file (the ledger's name and ".open"). The second file holds the answers that have no
 * line yet. If the process is killed, the next process that opens the ledger writes their lines. A
 * crash of the host can lose the latest data of both files.
 *
 *   {"number":7,"began":"2026-11-26T10:00:00.123Z","ended":"…","request":"my-id",
 *    "answer":"chatcmpl-my-id","key":"team-a","model":"…","status":200,"finish":"stop",
 *    "prompt_tokens":12,"cached_tokens":0,"answer_tokens":64}
 *
 * Answers are numbered in the order of their beginnings; numbers of dropped answers are missing. A
 * line with "finish":"killed" and no "ended" means that the process was killed during the answer.
 * {"torn":57} means that the line above is incomplete and has 57 bytes.
 *
 * server/ uses the ledger, on the gateway's event loop thread. While the file cannot be written (a
 * full disk, for example), lines wait in the second file, and the thread tries again each second.
 * If LEDGER_SLOTS answers have no line yet, a new answer is not recorded. ledger_begin, ledger_end
 * and ledger_drop do not wait for the disk; ledger_file_use waits for the line that is being
 * written. The ledger does not rotate its file, and does not force data to the disk (no fsync). */
#ifndef EVENTS_LEDGER_H
#define EVENTS_LEDGER_H

#include "common/limits.h"
#include "common/status.h"

#include <stdint.h>

/* Most answers that have no line yet: running answers, and ended answers whose lines wait. */
#define LEDGER_SLOTS        LIMIT_CLUSTER_REQUESTS
#define LEDGER_ID_BYTES     160 /* Size of a request's or answer's id with its NUL. */
#define LEDGER_FINISH_BYTES 16  /* Size of a finish reason with its NUL. */

struct ledger;

/* An answer in the second file. The caller of ledger_begin may change the three token counts until
 * it calls ledger_end or ledger_drop; the other fields belong to ledger.c. */
struct ledger_entry {
    uint32_t state; /* Used by ledger.c. */
    /* HTTP status; 0 = the answer has not ended, or the client left before a response began. */
    uint32_t status;
    uint64_t number; /* The answer's number. */
    int64_t began_unix_ms;
    int64_t ended_unix_ms; /* 0 = the answer has not ended. */
    uint64_t prompt_tokens;
    uint64_t cached_tokens; /* Prompt tokens whose KV was cached. */
    uint64_t answer_tokens;
    char request_id[LEDGER_ID_BYTES];
    char answer_id[LEDGER_ID_BYTES];
    char key_name[LIMIT_KEY_NAME_BYTES];
    char model[64];
    char finish[LEDGER_FINISH_BYTES]; /* Why the answer ended, such as "stop" or "length". */
    char padding[8];
};

struct ledger_counts {
    uint64_t written;         /* Lines written by this process. */
    uint64_t without_entry;   /* Answers that got no entry (see ledger_begin). */
    uint32_t waiting;         /* Ended answers whose lines are not written yet. */
    uint32_t left_by_earlier; /* Answers of earlier processes without a line at ledger_open. */
    uint64_t torn_bytes;      /* Bytes of an incomplete last line at ledger_open; 0 = none. */
    char failure[128]; /* Why the latest attempt to write a line failed; empty = no failure. */
};

/* Opens or makes both files (mode 0600) and starts the thread, which first writes lines that an
 * earlier process left. Returns ST_NO_RESOURCE if another process has the ledger open, ST_INVALID
 * if the second file is not of this release, ST_IO, or ST_NO_MEMORY (also if the path is too long).
 * Errors name the path. */
enum status ledger_open(const char *path, struct ledger **out, struct error *error);
/* Waits at most a second until the lines are written, and frees the ledger. If a write takes
 * longer, the thread goes on, and nothing is freed. The next process that opens the ledger writes
 * the lines that are left. NULL is fine. */
void ledger_close(struct ledger *ledger);

/* Opens or makes a file at the ledger's path, for example after a log rotation has moved the old
 * file. Lines are still written to the old file. Returns ST_IO on failure. The caller closes
 * *fd_out, or passes it to ledger_file_use. */
enum status ledger_file_open(const struct ledger *ledger, int *fd_out, struct error *error);
/* Closes the old file. Later lines are written to `fd`, which the ledger owns after the call. */
void ledger_file_use(struct ledger *ledger, int fd);

/* Begins an answer. Texts are copied, and cut if they are too long. If the answer has no API key,
 * key_name is empty. Returns NULL, and counts the answer in ledger_counts.without_entry, if
 * LEDGER_SLOTS answers have no line yet. */
struct ledger_entry *ledger_begin(struct ledger *ledger, const char *request_id,
                                  const char *answer_id, const char *key_name, const char *model);
/* Ends an answer. The entry must not be used after the call; NULL is fine. `finish` is copied, and
 * cut if it is too long. */
void ledger_end(struct ledger *ledger, struct ledger_entry *entry, unsigned http_status,
                const char *finish);
/* Ends an answer that gets no line. The entry must not be used after the call; NULL is fine. */
void ledger_drop(struct ledger *ledger, struct ledger_entry *entry);

/* Reads the latest lines of a ledger's file, the last line first. Calls on_answer for each answer
 * that has an API key and began at from_s (seconds since 1970) or later. Stops at an answer that
 * ended before from_s. `tokens` is the sum of prompt and answer tokens. Returns ST_NOT_FOUND,
 * without an error text, if the file does not exist; ST_IO if it cannot be read. Does not read a
 * file that is not regular, and returns ST_OK. */
enum status ledger_read_since(const char *path, int64_t from_s,
                              void (*on_answer)(void *self, const char *key_name, int64_t began_s,
                                                uint64_t tokens),
                              void *self, struct error *error);

struct ledger_counts ledger_counts(struct ledger *ledger);

#endif
