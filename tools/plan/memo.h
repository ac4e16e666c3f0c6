/* plan_memo: remembers whether a mix of machines met the SLO at a rate. The memo owns these results
 * in memory. If there is a journal file, the memo also appends each result to the journal at once,
 * so that a `cleave plan` that was stopped can be continued. plan_main opens and closes the memo on
 * the main thread. The threads of a search call plan_memo_find and plan_memo_add at the same time.
 * The memo does not simulate, and has no influence on the plan: it only saves time. */
#ifndef TOOLS_PLAN_MEMO_H
#define TOOLS_PLAN_MEMO_H

#include "tools/plan/try.h"

#include <pthread.h>
#include <stdio.h>

struct plan_memo_entry {
    struct plan_mix mix;
    double rate_per_s; /* 0 = the entry is empty. */
    bool met;
};

struct plan_memo {
    pthread_mutex_t mutex;           /* Protects the fields below. */
    struct plan_memo_entry *entries; /* [capacity]: hash table; capacity is a power of 2. */
    uint64_t capacity;
    uint64_t count;        /* Entries in use. */
    uint64_t entries_read; /* Entries that came from the journal. */
    FILE *journal;         /* NULL = none. */
    bool write_failed;     /* A result could not be appended; plan_memo_close reports it. */
};

/* Opens the memo. path: the journal file, which is created or continued; NULL = none. inputs_hash:
 * hash of all inputs that influence a result. Removes an incomplete last line of the journal.
 * ST_MISMATCH: the journal belongs to other inputs. ST_INVALID: the file is no journal, or a line
 * is wrong. ST_IO: the file cannot be opened or written. ST_NO_MEMORY. After an error the memo must
 * not be closed. */
enum status plan_memo_open(struct plan_memo *memo, const char *path, uint64_t inputs_hash,
                           struct error *error);
/* Closes the memo. path: the journal's name in errors. error: NULL = not wanted. Returns ST_IO if
 * results could not be written to the journal. */
enum status plan_memo_close(struct plan_memo *memo, const char *path, struct error *error);

/* Stores the result of a mix at a rate. Returns false if the memo does not have this result. */
bool plan_memo_find(struct plan_memo *memo, const struct plan_mix *mix, double rate_per_s,
                    bool *met_out);
/* Adds a result, unless the memo has one of this mix at this rate. May return ST_NO_MEMORY. */
enum status plan_memo_add(struct plan_memo *memo, const struct plan_mix *mix, double rate_per_s,
                          bool met);

#endif
