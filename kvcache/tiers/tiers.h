/* tiers: the stores for KV of one machine, each with a thread of its own, so that the machine's
 * event loop never waits for a disk or a network. The event loop submits jobs: find out how many
 * spans of a chain are stored (TIER_FIND), load spans into blocks (TIER_LOAD), store spans
 * (TIER_STORE). A thread does all other jobs before it stores the next span. TIER_PROBE counts the
 * first spans that are stored completely, for a caller that then stores the other spans; the job
 * waits as a TIER_STORE does.
 *
 * The threads read and write KV memory of the blocks that a job names. Until the job has ended, the
 * caller must neither write these blocks nor let other code write them; the blocks of a TIER_LOAD
 * must not be read either. The caller decides which spans are stored and loaded (machine/tier_*.c
 * do), and logs what `note` says. machine/ makes every call on the machine's event loop
 * thread. Only memory of the host can be used. */
#ifndef KVCACHE_TIERS_TIERS_H
#define KVCACHE_TIERS_TIERS_H

#include "kvcache/tiers/tier_backend.h"
#include "kvcache/tiers/tier_record.h"

#include <stdatomic.h>

#define TIER_JOBS_MAX 256     /* Jobs of a tier that have not ended. */
#define TIER_RETRY_US 2000000 /* Time after which the thread tries an unreachable tier again. */

enum tier_job_kind { TIER_FIND, TIER_LOAD, TIER_STORE, TIER_PROBE };

/* A job. The caller owns the memory, and does not touch it from tiers_submit until `ended`. */
struct tier_job {
    enum tier_job_kind kind;
    uint32_t tier;
    uint64_t salt;
    const uint32_t *tokens; /* The tokens of the spans [0, end). */
    /* The block of span i in layer group g is blocks[g * stride + i - blocks_first]; not used by
     * TIER_FIND and TIER_PROBE. */
    const kv_block_id *blocks;
    uint32_t blocks_first;
    uint32_t stride;
    uint32_t first; /* The job concerns the spans [first, end). */
    uint32_t end;
    /* In layer groups with a window, a job concerns the spans from window_first on only. Not used
     * by TIER_FIND, which counts the spans up to an end at which all records are stored that the
     * tokens after it read. */
    uint32_t window_first;
    /* Time of clock_system at which the job ends; not used by TIER_STORE and TIER_PROBE. */
    int64_t deadline_us;
    void (*ended)(void *self, struct tier_job *job);
    void *self;            /* First argument of `ended`. */
    atomic_bool cancelled; /* See tiers_job_cancel. */

    /* Results, valid in `ended`. */
    /* Spans from `first` on that are stored (TIER_FIND, TIER_PROBE) or were loaded. */
    uint32_t count;
    uint32_t written; /* TIER_STORE: records that were written. */
    uint32_t dropped; /* TIER_STORE: spans that are not stored. */
    uint32_t damaged; /* Records that were damaged. */
    int64_t us;       /* Time of the job, without waiting for its turn. */

    /* Used by tiers.c. */
    struct tier_job *next;
    struct digest *names; /* [groups][end] */
    bool begun;           /* TIER_STORE: the names are made, and `at` is the next span. */
    uint32_t at;
    /* TIER_STORE: in each layer group, the records up to this span were stored before. */
    uint32_t stored[LAYER_GROUPS_MAX];
};

struct tiers_options {
    struct digest identity; /* tier_identity_make */
    bool encrypted;         /* `key` is used. */
    uint8_t key[TIER_KEY_BYTES];
    struct kv_arena arena;                          /* All layers, with all KV heads. */
    uint8_t *region;                                /* KV memory with this layout. */
    uint32_t count;                                 /* Tiers. */
    struct tier_backend *backends[TIER_KIND_COUNT]; /* tiers_close closes them. */
    /* Something that an operator wants to know about a tier has happened. ST_OK = it works (again),
     * and `text` says which records were removed when it was opened, empty = none; ST_NO_RESOURCE =
     * it stores nothing now; ST_INVALID, ST_UNREACHABLE, ST_TIMED_OUT: it goes on; other errors:
     * the tier is off. */
    void (*note)(void *self, uint32_t tier, enum status status, const char *text);
    void *self; /* First argument of `note`. */
};

struct tiers;

/* Starts the threads; *options is copied. The backends are closed also after an error. Returns
 * ST_NO_MEMORY, or ST_NO_RESOURCE if there is no thread or no descriptor. */
enum status tiers_open(const struct tiers_options *options, struct tiers **out,
                       struct error *error);
/* Ends all jobs and the threads; `ended` is called for each job. Waits until the backends return.
 * NULL is fine. */
void tiers_close(struct tiers *tiers);

/* Returns a descriptor that is readable when tiers_progress has something to do. */
int tiers_fd(const struct tiers *tiers);
/* Calls `ended` for the jobs that have ended, and `note`. Returns true if jobs have ended. NULL is
 * fine. */
bool tiers_progress(struct tiers *tiers);

/* Begins a job. `ended` is called later, from tiers_progress or tiers_close. Returns false, and
 * `ended` is not called, if the tier does not work now, if it has TIER_JOBS_MAX jobs, or if there
 * is no memory. A tier that is still being opened for the first time takes TIER_FIND and TIER_LOAD,
 * and does them when it is open: so a machine that has just started finds what it had stored
 * before. Requires first < end. */
bool tiers_submit(struct tiers *tiers, struct tier_job *job);
/* Asks a job to end early, after the span that it is working on. */
void tiers_job_cancel(struct tier_job *job);

/* Returns true if the tier works: it is open, and its latest call has reached it. */
bool tiers_works(const struct tiers *tiers, uint32_t tier);
/* Returns the operations of the tier's backend. */
const struct tier_backend_ops *tiers_ops(const struct tiers *tiers, uint32_t tier);

#endif
