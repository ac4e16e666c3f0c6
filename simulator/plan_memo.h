/* plan_memo: which mixes met the SLO at which rate, as far as it was tried: in memory, and in a
 * journal that is written as they come, so that a plan which was stopped goes on where it was. Any
 * thread. Answers do not depend on what is in it, only how long they take. */
#ifndef SIMULATOR_PLAN_MEMO_H
#define SIMULATOR_PLAN_MEMO_H

#include "simulator/plan_try.h"

#include <pthread.h>
#include <stdio.h>

struct plan_memo_entry {
    struct plan_mix mix;
    double rate_per_s; /* 0: nothing is here */
    bool met;
};

struct plan_memo {
    pthread_mutex_t mutex;
    struct plan_memo_entry *entries; /* [room], a power of 2 */
    uint64_t room;
    uint64_t count;
    uint64_t read; /* of these, from the journal */
    FILE *journal;
    bool write_failed;
};

/* path: of the journal, which is made or continued; NULL: none. inputs_hash: of all that decides an
 * answer. ST_MISMATCH: the journal is of other inputs. Errors name file and line. A last line that
 * was cut off is removed. */
enum status plan_memo_open(struct plan_memo *memo, const char *path, uint64_t inputs_hash,
                           struct error *error);
/* ST_IO: the journal could not be written. */
enum status plan_memo_close(struct plan_memo *memo, const char *path, struct error *error);

bool plan_memo_find(struct plan_memo *memo, const struct plan_mix *mix, double rate_per_s,
                    bool *met_out);
/* ST_NO_MEMORY. One that is there already stays. */
enum status plan_memo_add(struct plan_memo *memo, const struct plan_mix *mix, double rate_per_s,
                          bool met);

#endif
