/* profile_stamps: the backend's ops with stamps around some of them. An ops table knows no "self"
 * but its own device, so what they note is in one place: one device is profiled at a time. A device
 * with memory of its own is queued work, and tells when it has come to a stamp.
 * Internal to profile_step. */
#ifndef BENCH_PROFILE_STAMPS_H
#define BENCH_PROFILE_STAMPS_H

#include "bench/profile_delay.h"
#include "common/limits.h"
#include "compute/compute.h"

#include <stdatomic.h>

#define PROFILE_ENDS_MAX 2 /* matrices with a row per token: embedding and vocabulary */

/* Between two parts of a batch: when the one before ended, how long threads had waited so far, and
 * when the one after began. Reading what they waited takes some microseconds, which are nobody's.
 */
struct profile_stamp {
    int64_t end_ns;
    double waited_us;
    int64_t begin_ns;
};

enum { PROFILE_STAMP_START, PROFILE_STAMP_EMBED, PROFILE_STAMP_LAYERS };

/* Written by the engine's thread while a batch runs, read when it is done. */
struct profile_timed {
    const struct compute_ops *base;
    struct compute_ops ops;
    uint32_t layer_count;
    const struct compute_matrix *ends[PROFILE_ENDS_MAX];
    uint64_t end_bytes[PROFILE_ENDS_MAX];
    uint32_t end_count;
    uint32_t ends_wanted; /* they are opened first */
    uint64_t bytes;       /* matrices opened since the layer before */
    uint64_t kind;
    const struct profile_delay *delay;
    struct profile_stamp stamps[PROFILE_STAMP_LAYERS + LIMIT_LAYERS + 2]; /* …, vocabulary, done */
    atomic_uint stamp_count;
    const struct compute_matrix *_Atomic layer; /* q of the one that was come to last */
    bool waits;                                 /* the device only does that */
    bool device;                                /* stamps within a batch are the device's marks */
    bool unwatched;                             /* no stamps: a step may be recorded */
    uint32_t embed_count;                       /* calls: what is replayed makes none */
};

extern struct profile_timed profile_timed;

/* Makes profile_timed.ops of .base, of which `c` is a device; the rest of it is zero. */
void profile_stamps_set(struct compute *c);
void profile_stamp_add(void); /* now */

#endif
