/* partition: which layers of a model which devices run, as the stages of a pipe: the split with the
 * least bottleneck whose latency is within a limit. Exact for the cost model below, which
 * docs/partitioning.md explains. Pure: no clock, no I/O, no log; memory is taken once, at opening.
 * Not thread-safe. It knows times and bytes, not where they come from (common/profile.h), and
 * prints nothing (simulator/partition_print.h). partition_even.h is the simple case.
 *
 * The pipe. A plan is a sequence of stages; each runs a run of layers on `replicas` devices of one
 * kind. Work goes through in pieces: a micro-batch of a prompt, or one step of a group of
 * sequences. The replicas of a stage take requests in turn, and a request stays with its replica,
 * for its KV is there. So a machine has as many paths through its replicas as the least number that
 * all their counts divide (paths.h), and no more than paths_max. Not every device need be used.
 *
 * Time. A piece takes a stage `time` = the sum of its layers' times on that kind of device, plus
 * stage_ns, plus first_ns in the first stage (embedding) and last_ns in the last one (norm,
 * vocabulary, sampling).
 * Between two stages it takes a link delay_ns, of which the link is busy for busy_ns. Computing and
 * sending overlap. So
 *   bottleneck = max over stages and links of time / replicas, busy_ns  (a piece each so often)
 *   pace       = max over stages and links of time, busy_ns  (one request's: it has one replica)
 *   latency    = sum of times + sum of delay_ns + the way back + (micro_batches - 1) × pace
 * which for a prompt is the time to its first token (GPipe's fill and its drain), and for a group
 * of sequences with micro_batches = 1 one step. The way back is of the sampled token to the first
 * stage: none if there is one stage only, else back_inside_ns if all are on one host, else
 * back_between_ns.
 *
 * Memory. Each device of a stage holds all its layers' weights and all their KV blocks (ids of
 * blocks count for the whole machine, so replicas do not share them), workspace_bytes, and
 * first_bytes and last_bytes where it has the model's ends (less shared_bytes if it has both).
 *
 * Hosts. The stages on one host are neighbours in the pipe: it enters a host once and leaves it
 * once, so a host's link to the others has one boundary each way. Stages on one host are joined by
 * the link `inside`, others by `between`. A stage's replicas are on one host; or on several hosts
 * of equal content, which then have no other stage.
 *
 * Ties: of the plans with the least bottleneck that keep the limit, the one with the least latency,
 * of these one with the fewest devices, of these always the same one. Times are whole nanoseconds
 * and rates are fractions, so nothing is rounded. */
#ifndef SCHEDULER_PARTITION_H
#define SCHEDULER_PARTITION_H

#include "common/limits.h"
#include "common/status.h"

#include <stdbool.h>
#include <stdint.h>

#define PARTITION_KINDS_MAX   8
#define PARTITION_HOSTS_MAX   16           /* kinds of hosts */
#define PARTITION_DEVICES_MAX LIMIT_STAGES /* of one machine */
/* Bytes that a partition may take; a problem that would need more is refused. */
#define PARTITION_MEMORY_MAX (100ull << 20)
#define PARTITION_TIME_MAX   (1ull << 40) /* of a layer, an end or a link: 18 minutes in ns */
#define PARTITION_NO_LIMIT   UINT64_MAX

struct partition_kind {       /* of devices */
    const char *name;         /* for errors */
    const uint64_t *layer_ns; /* a piece through each layer, ≥ 1 */
    uint64_t stage_ns;        /* and each piece through each stage besides */
    uint64_t first_ns;        /* before the first layer */
    uint64_t last_ns;         /* after the last one */
    uint64_t memory_bytes;
};

struct partition_host {                    /* a kind of hosts */
    uint32_t count;                        /* of hosts */
    uint32_t devices[PARTITION_KINDS_MAX]; /* on each, of each kind */
};

struct partition_link {
    uint64_t busy_ns;  /* bytes / bandwidth: then it takes the next piece */
    uint64_t delay_ns; /* until the piece is there: latency and that */
};

/* All arrays are the caller's; opening copies what it needs. */
struct partition_problem {
    uint32_t layer_count;        /* 1 … LIMIT_LAYERS */
    const uint64_t *layer_bytes; /* weights and KV of each layer */
    uint64_t first_bytes;
    uint64_t last_bytes;
    uint64_t shared_bytes; /* ≤ last_bytes */
    uint64_t workspace_bytes;
    uint32_t kind_count;
    const struct partition_kind *kinds;
    uint32_t host_count; /* kinds of hosts */
    const struct partition_host *hosts;
    struct partition_link inside;
    struct partition_link between;
    uint64_t back_inside_ns;
    uint64_t back_between_ns; /* ≥ back_inside_ns */
    uint32_t stage_count;     /* so many exactly; 0: as many as are best */
    bool replicas;            /* false: one device a stage */
    uint32_t
        paths_max; /* the least number that all stages' replicas divide is at most this; 0: any */
};

struct partition_goal {
    uint32_t micro_batches; /* ≥ 1 */
    uint64_t limit_ns;      /* of the latency, or PARTITION_NO_LIMIT */
};

struct partition_rate { /* ns / over */
    uint64_t ns;
    uint32_t over;
};

struct partition_stage {
    uint32_t first; /* layers first … end - 1 */
    uint32_t end;
    uint32_t kind;
    uint32_t replicas;
    uint32_t host_kind;
    uint32_t host;       /* the first of its hosts, of that kind, from 0 */
    uint32_t host_count; /* > 1: it has them to itself */
    uint64_t time_ns;
    uint64_t bytes; /* on each of its devices */
    bool between;   /* the link to the next stage is one between hosts */
};

struct partition_plan {
    uint32_t stage_count;
    struct partition_stage stages[PARTITION_DEVICES_MAX];
    struct partition_rate bottleneck;
    uint64_t pace_ns;
    uint64_t latency_ns;
    uint32_t devices;
};

struct partition;

/* Checks the problem and takes the memory. ST_INVALID: a value is wrong, or no plan fits into the
 * devices' memory; ST_TOO_LARGE: a bound above, or too many ways to use the devices (the product
 * over kinds of hosts of their number, times the ways to use one host in part). */
enum status partition_open(const struct partition_problem *problem, struct partition **out,
                           struct error *error);
void partition_close(struct partition *partition); /* NULL is fine */

/* As often as wanted. ST_NOT_FOUND: no plan keeps the limit; the error says what is needed. */
enum status partition_solve(struct partition *partition, const struct partition_goal *goal,
                            struct partition_plan *plan_out, struct error *error);

uint64_t partition_memory(const struct partition *partition); /* bytes that it has taken */

/* < 0: a is faster. */
int partition_rate_compare(struct partition_rate a, struct partition_rate b);

#endif
