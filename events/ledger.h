/* ledger: the usage ledger, a file with one JSON line for each answer: who asked, and for how many
 * tokens. Config key `log/ledger_file`. It loses no answer that a client has seen when the process
 * is killed: answers that are open, or whose lines are not written yet, are in a second file that
 * is mapped into memory (the ledger's name and ".open"), and the next process that opens the ledger
 * writes their lines. A crash of the host can lose both.
 *
 *   {"number":7,"began":"2026-11-26T10:00:00.123Z","ended":"…","request":"my-id",
 *    "answer":"chatcmpl-my-id","key":"team-a","model":"…","status":200,"finish":"stop",
 *    "prompt_tokens":12,"cached_tokens":0,"answer_tokens":64}
 *
 * Numbers ascend by 1 for each answer that begins. A line with "finish":"killed" and no "ended" is
 * that of an answer that a kill of the process cut. {"torn":57} says that the line above it is the
 * beginning (57 bytes) of a line that was never completed; readers skip both.
 *
 * server/http/ begins, counts and ends answers on the gateway's event loop thread; a thread of the
 * ledger writes the lines. While the file cannot be written (a full disk), lines wait and are tried
 * again each second; answers that find all LEDGER_SLOTS in use are counted as lost. It never
 * delays the loop, rotates nothing, and does not force data to the disk (no fsync). */
#ifndef EVENTS_LEDGER_H
#define EVENTS_LEDGER_H

#include "common/limits.h"
#include "common/status.h"

#include <stdint.h>

#define LEDGER_SLOTS      LIMIT_CLUSTER_REQUESTS
#define LEDGER_ID_BYTES   160 /* Ids of requests and answers with their NUL. */
#define LEDGER_WORD_BYTES 16

struct ledger;

/* An answer in the mapped file. The owner of an open entry changes the three counts at any time;
 * they are what the line says. */
struct ledger_entry {
    uint32_t state; /* See ledger.c. */
    uint32_t status;
    uint64_t number;
    int64_t began_unix_ms;
    int64_t ended_unix_ms; /* 0 = it has not. */
    uint64_t prompt_tokens;
    uint64_t cached_tokens;
    uint64_t answer_tokens;
    char request[LEDGER_ID_BYTES];
    char answer[LEDGER_ID_BYTES];
    char key[LIMIT_KEY_NAME_BYTES];
    char model[64];
    char finish[LEDGER_WORD_BYTES];
    char padding[8];
};

struct ledger_counts {
    uint64_t written; /* Lines written. */
    uint64_t lost;    /* Answers that will never have a line. */
    uint32_t waiting; /* Ended answers whose lines are not written. */
    uint32_t found;   /* Answers of an earlier process that ledger_open found. */
    uint64_t torn;    /* Bytes of a torn last line that ledger_open found; 0 = none. */
    /* Why the file takes no lines now; empty = it does. */
    char failure[128];
};

/* Opens or makes both files (mode 0600), writes the lines of an earlier process, and starts the
 * thread. ST_NO_RESOURCE: another process has the ledger open. ST_IO, ST_INVALID (the second file
 * is something else), ST_NO_MEMORY. Errors name the path. */
enum status ledger_open(const char *path, struct ledger **out, struct error *error);
/* Waits until the lines are written, at most a second. What is left then is written by the next
 * process. NULL is fine. */
void ledger_close(struct ledger *ledger);

/* Opens the ledger's file again, because it may have been moved. On an error the file stays. */
enum status ledger_reopen(struct ledger *ledger, struct error *error);

/* Begins an answer. Texts are copied. Returns NULL, and counts a lost answer, if no slot is free. */
struct ledger_entry *ledger_begin(struct ledger *ledger, const char *request, const char *answer,
                                  const char *key, const char *model);
/* Ends an answer, whose entry must not be used after this. entry NULL is fine. status: of HTTP. */
void ledger_end(struct ledger *ledger, struct ledger_entry *entry, unsigned status,
                const char *finish);
/* Forgets an answer that was not computed: it gets no line. */
void ledger_drop(struct ledger *ledger, struct ledger_entry *entry);

struct ledger_counts ledger_counts(struct ledger *ledger);

#endif
