/* tiers: the tiers of one machine: stores for KV (tier_backend.h), each with a thread of its own,
 * so that the machine's event loop does not wait for a disk or a network. This part owns the
 * backends and the threads. machine/ calls the functions, on the machine's event loop thread: it
 * submits jobs, and learns the results of jobs in tiers_progress.
 *
 * The threads read and write KV memory of the blocks that a job names. Until the job has ended, no
 * other code may write these blocks; the blocks of a TIER_LOAD must not be read either. The KV
 * memory must be memory of the host. This part does not decide which spans are stored and loaded
 * (machine/tier_*.c do), and does not log. */
#ifndef KVCACHE_TIERS_TIERS_H
#define KVCACHE_TIERS_TIERS_H

#include "kvcache/tiers/tier_backend.h"
#include "kvcache/tiers/tier_record.h"

#include <stdatomic.h>

#define TIER_JOBS_MAX 256     /* Jobs of a tier that have not ended. */
#define TIER_RETRY_US 2000000 /* Time after which an unreachable tier is tried again. */

/* The thread of a tier begins a TIER_PROBE, or a span of a TIER_STORE, only while no TIER_FIND and
 * no TIER_LOAD waits. */
enum tier_job_kind {
    TIER_FIND,  /* Counts the first spans that can be loaded. */
    TIER_LOAD,  /* Loads spans into blocks. */
    TIER_STORE, /* Stores spans. */
    TIER_PROBE, /* Counts the first spans whose records are all stored. */
};

/* A job. The caller owns the memory, but between tiers_submit and `ended` may only pass the job to
 * tiers_job_cancel. */
struct tier_job {
    enum tier_job_kind kind;
    uint32_t tier;          /* Index in tiers_options.backends. */
    uint64_t salt;          /* Salt of the chain (kv_prefix.h). */
    const uint32_t *tokens; /* The tokens of the spans [0, end). */
    /* The block of span i in layer group g is blocks[g * stride + i - blocks_first]; not used by
     * TIER_FIND and TIER_PROBE. */
    const kv_block_id *blocks;
    uint32_t blocks_first;
    uint32_t stride;
    uint32_t first; /* The job concerns the spans [first, end). */
    uint32_t end;
    /* In layer groups with a window, a job concerns only the spans from window_first on. Not used
     * by TIER_FIND. */
    uint32_t window_first;
    /* Time of clock_system at which the job gives up; not used by TIER_STORE and TIER_PROBE. */
    int64_t deadline_us;
    void (*ended)(void *self, struct tier_job *job); /* Called when the job has ended. */
    void *self;                                      /* First argument of `ended`. */
    atomic_bool cancelled;                           /* See tiers_job_cancel. */

    /* Results, valid in `ended`. */
    /* Number of spans from `first` on that were found (TIER_FIND, TIER_PROBE) or loaded
     * (TIER_LOAD). */
    uint32_t count;
    uint32_t written; /* TIER_STORE: records for which `put` returned ST_OK. */
    uint32_t dropped; /* TIER_STORE: spans of which a record was not stored. */
    uint32_t damaged; /* TIER_LOAD: records that were damaged. */

    /* Used by tiers.c. */
    struct tier_job *next;
    struct digest *record_names; /* [groups][end]: names of the records (tier_record.h). */
    bool begun;                  /* TIER_STORE: the names are made, and `at` is the next span. */
    uint32_t at;
    /* TIER_STORE: in each layer group, the records before this span were stored earlier. */
    uint32_t stored[LAYER_GROUPS_MAX];
};

struct tiers_options {
    struct digest identity; /* tier_identity_make */
    bool encrypted;         /* Records are encrypted with `key`. */
    uint8_t key[TIER_KEY_BYTES];
    struct kv_arena arena;                          /* All layers, with all KV heads. */
    uint8_t *region;                                /* KV memory with this layout. */
    uint32_t count;                                 /* Number of tiers. */
    struct tier_backend *backends[TIER_KIND_COUNT]; /* tiers_close closes them. */
    /* Called from tiers_progress to report on a tier to an operator. ST_OK = the tier works, and
     * `text` is the remark of tier_backend_ops.open, empty = none; after other statuses, `text`
     * says why. ST_NO_RESOURCE = the tier stores nothing now; ST_INVALID = a record was damaged;
     * ST_UNREACHABLE or ST_TIMED_OUT = the tier is tried again later; other statuses = the tier is
     * off. */
    void (*state_changed)(void *self, uint32_t tier, enum status status, const char *text);
    void *self; /* First argument of `state_changed`. */
};

struct tiers;

/* Starts the threads, which open the backends; *options is copied. After an error, the backends are
 * closed. Returns ST_NO_MEMORY, or ST_NO_RESOURCE if a thread or a descriptor cannot be made. */
enum status tiers_open(const struct tiers_options *options, struct tiers **out,
                       struct error *error);
/* Ends the threads, calls `ended` for all jobs, and closes the backends. In these calls of `ended`,
 * tiers_works is false. Waits until running calls of the backends return. NULL is fine. */
void tiers_close(struct tiers *tiers);

/* Returns a descriptor that is readable when tiers_progress has something to do. */
int tiers_fd(const struct tiers *tiers);
/* Calls `state_changed` if there is something to report, and `ended` for the jobs that have ended.
 * Returns true if jobs have ended. NULL is fine. */
bool tiers_progress(struct tiers *tiers);

/* Begins a job. `ended` is called later, from tiers_progress or tiers_close. Returns false, and
 * `ended` is not called, if the tier does not work now, if it has TIER_JOBS_MAX jobs, or if there
 * is no memory. While a tier is being opened for the first time, TIER_FIND and TIER_LOAD are
 * accepted, and wait until the opening has ended. Requires that first is less than end. */
bool tiers_submit(struct tiers *tiers, struct tier_job *job);
/* Asks a job to end early. A TIER_LOAD or TIER_STORE that is running ends after its current
 * span. */
void tiers_job_cancel(struct tier_job *job);

/* Returns true if the tier works: it is open, and can be reached. */
bool tiers_works(const struct tiers *tiers, uint32_t tier);
/* Returns the operations of the tier's backend. */
const struct tier_backend_ops *tiers_ops(const struct tiers *tiers, uint32_t tier);

#endif
