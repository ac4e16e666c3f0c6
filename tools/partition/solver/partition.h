/* partition: the partitioner decides which layers of a model run on which devices, as the stages of
 * a pipeline. It finds the plan with the smallest bottleneck whose latency is within a limit. The
 * result is exact for the cost model below, which docs/partitioning.md explains. `cleave
 * partition`, `simulate` and `plan` call the functions. A `struct partition` owns its tables; one
 * thread at a time may use the struct. The functions read no profiles (cost.h does) and print
 * nothing (print.h does).
 *
 * The pipeline. A plan is a sequence of stages. Each stage runs consecutive layers on `replicas`
 * devices of one kind. Work moves through the stages in pieces: a micro-batch of a prompt, or one
 * decode step of a group of sequences. The replicas of a stage take requests in turn, and a request
 * stays with its replica, which has the request's KV. The number of paths through the replicas is
 * the least common multiple of all replica counts (scheduler/paths.h), and at most paths_max. A
 * plan need not use every device.
 *
 * Time. The `time` of a piece in a stage is the sum of the layers' times on the stage's kind of
 * device, and stage_ns; in the first stage also first_ns (embedding), in the last stage also
 * last_ns (vocabulary, sampling). Between two stages a piece takes delay_ns on a link; the link is
 * busy for busy_ns of this time. Computing and sending overlap. So
 *
 * bottleneck = max over stages and links of time / replicas, busy_ns   (time per piece)
 * pace       = max over stages and links of time, busy_ns   (a request uses one replica per stage)
 * latency    = sum of times + sum of delay_ns + return time + (micro_batches - 1) × pace
 *
 * For a prompt, the latency is the time to the first token (GPipe's fill and drain). For a group of
 * sequences, with micro_batches 1, the latency is one decode step. The return time is the time of
 * the sampled token's way back to the first stage: 0 with one stage, return_inside_host_ns if all
 * stages are on one host, else return_between_hosts_ns.
 *
 * Memory. Each device of a stage holds workspace_bytes, and the weights and all KV blocks of the
 * stage's layers: block ids count for the whole machine, so replicas do not divide the blocks. A
 * device with the first layer also holds first_bytes; a device with the last layer also holds
 * last_bytes. A device with both layers holds shared_bytes only once.
 *
 * Hosts. The stages on one host are neighbours: the pipeline enters a host once and leaves it once,
 * so a host's link to other hosts carries one boundary in each direction. Stages on one host are
 * joined by the link inside_host, others by the link between_hosts. A stage's replicas are on one
 * host, or on several hosts of one kind that hold no other stage.
 *
 * Ties. If several plans within the limit have the smallest bottleneck, a plan with the smallest
 * latency is taken; among equal latencies, a plan with the fewest devices. If several plans remain,
 * every run takes the same plan. */
#ifndef TOOLS_PARTITION_SOLVER_PARTITION_H
#define TOOLS_PARTITION_SOLVER_PARTITION_H

#include "common/limits.h"
#include "common/status.h"

#include <stdbool.h>
#include <stdint.h>

#define PARTITION_KINDS_MAX   8                     /* Kinds of devices. */
#define PARTITION_HOSTS_MAX   16                    /* Kinds of hosts. */
#define PARTITION_DEVICES_MAX LIMIT_STAGE_PROCESSES /* Devices of one machine. */
/* Most bytes that a partition allocates; a problem that needs more is refused. */
#define PARTITION_MEMORY_MAX (100ull << 20)
/* Largest value of each time in a problem, in ns: 18 minutes. */
#define PARTITION_TIME_MAX (1ull << 40)
#define PARTITION_NO_LIMIT UINT64_MAX /* No limit of the latency. */

struct partition_kind {       /* A kind of device. */
    const char *name;         /* Name for error texts. */
    const uint64_t *layer_ns; /* [layer_count]: time of a piece in each layer, ≥ 1. */
    uint64_t stage_ns;        /* Time of a piece per stage, in addition to its layers. */
    uint64_t first_ns;        /* Time of a piece before the first layer. */
    uint64_t last_ns;         /* Time of a piece after the last layer. */
    uint64_t memory_bytes;    /* Usable memory of one device. */
};

struct partition_host {                    /* A kind of host. */
    uint32_t count;                        /* Number of hosts of this kind. */
    uint32_t devices[PARTITION_KINDS_MAX]; /* Devices per host, of each kind. */
};

/* The time that a piece takes on a link between two stages. */
struct partition_link {
    uint64_t busy_ns;  /* Time until the link can take the next piece: bytes / bandwidth. */
    uint64_t delay_ns; /* Time until the piece has arrived: busy_ns + latency. */
};

/* The model, the devices and the links. Arrays and names belong to the caller and are not used
 * after partition_open. */
struct partition_problem {
    uint32_t layer_count;        /* 1 … LIMIT_LAYERS */
    const uint64_t *layer_bytes; /* Weights and KV of each layer. */
    uint64_t first_bytes;        /* Weights before the first layer (embedding). */
    uint64_t last_bytes;         /* Weights after the last layer (vocabulary). */
    /* Bytes that the first and last weights share (a tied embedding); ≤ last_bytes. */
    uint64_t shared_bytes;
    uint64_t workspace_bytes;            /* Memory of each device besides the bytes above. */
    uint32_t kind_count;                 /* Kinds of devices. */
    const struct partition_kind *kinds;  /* [kind_count] */
    uint32_t host_count;                 /* Kinds of hosts. */
    const struct partition_host *hosts;  /* [host_count] */
    struct partition_link inside_host;   /* Between two stages on one host. */
    struct partition_link between_hosts; /* Between two stages on different hosts. */
    uint64_t return_inside_host_ns;      /* Return time inside a host. */
    uint64_t return_between_hosts_ns;    /* Return time between hosts; ≥ return_inside_host_ns. */
    uint32_t stage_count;                /* Exact number of stages; 0 = the best number. */
    bool replicas; /* True: stages may have replicas. False: one device per stage. */
    /* Most paths (the least common multiple of all replica counts); 0 = no limit. */
    uint32_t paths_max;
};

struct partition_goal {
    uint32_t micro_batches; /* Pieces of one prompt, ≥ 1; 1 for the token phase. */
    uint64_t limit_ns;      /* Largest latency, or PARTITION_NO_LIMIT. */
};

struct partition_interval { /* A time per piece: ns / divisor. */
    uint64_t ns;
    uint32_t divisor;
};

struct partition_stage {
    uint32_t first;          /* First layer. */
    uint32_t end;            /* Layer after the last layer. */
    uint32_t kind;           /* Index in partition_problem.kinds. */
    uint32_t replicas;       /* Devices that hold the stage. */
    uint32_t host_kind;      /* Index in partition_problem.hosts. */
    uint32_t host;           /* First of the stage's hosts, counted from 0 within their kind. */
    uint32_t host_count;     /* Hosts of the stage; if > 1, they hold no other stage. */
    uint64_t time_ns;        /* Time of a piece on one of the stage's devices. */
    uint64_t bytes;          /* Bytes on each of the stage's devices. */
    bool next_on_other_host; /* The next stage is on another host. */
};

struct partition_plan {
    uint32_t stage_count;
    struct partition_stage stages[PARTITION_DEVICES_MAX];
    struct partition_interval bottleneck; /* Time per piece; smaller is faster. */
    uint64_t pace_ns;
    uint64_t latency_ns;
    uint32_t devices; /* Number of devices of all stages together. */
};

struct partition;

/* Checks the problem and allocates the memory. ST_INVALID: layer_count or stage_count is not
 * possible, another value is wrong, or no plan fits into the devices' memory. ST_TOO_LARGE: another
 * value is outside its bounds, or PARTITION_MEMORY_MAX does not suffice. ST_NO_MEMORY. The error
 * text says which value. */
enum status partition_open(const struct partition_problem *problem, struct partition **out,
                           struct error *error);
void partition_close(struct partition *partition); /* NULL is fine. */

/* Finds the best plan. You may call this function several times. ST_NOT_FOUND: no plan keeps the
 * limit; the error text says which latency is possible. ST_INVALID: goal->micro_batches is 0.
 * ST_TOO_LARGE: times could overflow. */
enum status partition_solve(struct partition *partition, const struct partition_goal *goal,
                            struct partition_plan *plan_out, struct error *error);

/* Compares two intervals. Returns < 0: `a` is smaller (faster); 0: equal; > 0: `a` is larger. */
int partition_interval_compare(struct partition_interval a, struct partition_interval b);

#endif
