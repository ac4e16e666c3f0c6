/* pipeline_state: the structs and functions that the files of the pipeline share. The pipeline is
 * the executor of a machine with stages (executor.h). It owns the stage processes that it starts,
 * and the connections to all stage processes. It sends batches to the stage processes, receives the
 * sampled tokens, and lets the processes write KV to other machines. The stage processes hold the
 * weights and the KV (stage.h); the pipeline holds only KV in the staging memory (staging.h).
 * Everything runs on the head's event loop thread.
 *
 * If a stage process is lost, the machine ends (pipeline_fail), because KV is lost.
 *
 * pipeline.c: stage processes from start to end. pipeline_group.c: groups of ranks. pipeline_job.c:
 * batches. pipeline_kv.c: KV on its way to other machines. pipeline_staging.c: KV on its way to and
 * from tiers. */
#ifndef MACHINE_EXECUTOR_PIPELINE_STATE_H
#define MACHINE_EXECUTOR_PIPELINE_STATE_H

#include "host/child.h"
#include "machine/executor/executor.h"
#include "machine/executor/staging.h"
#include "transport/peer_user.h"
#include "transport/stage_message.h"

enum stage_process_state {
    PROCESS_STARTING,     /* Child process whose address is not known yet. */
    PROCESS_DISCONNECTED, /* The address is known; not connected. */
    PROCESS_CONNECTING,   /* transport_connect was called. */
    /* Connected. OPEN is sent when the processes that get the process's activations are connected,
     * too. */
    PROCESS_CONNECTED,
    PROCESS_OPENING, /* OPEN was sent. */
    PROCESS_READY,   /* The process has reported that it is ready. */
};

/* A stage process, as the head sees it. */
struct stage_process {
    struct peer_user peer_user; /* The `user` of the connection. */
    enum stage_process_state state;
    uint32_t index;              /* Index in stage_plan.processes. */
    char name[LIMIT_NAME_BYTES]; /* stage_name. */
    /* Address on which the process listens; set from PROCESS_DISCONNECTED on. */
    char address[LIMIT_ADDRESS_BYTES];
    struct transport_peer *peer; /* The connection; NULL = none. */
    struct child_process child;  /* pid 0 = not started by this process. */
    struct child_line line;      /* The ready line of the child, as far as it was read. */
    int64_t retry_at_us;         /* PROCESS_DISCONNECTED: time of the next attempt to connect. */
    int64_t retry_pause_us;      /* Pause after the next failed attempt. */
    char retry_reason[256];      /* Latest logged reason why an attempt failed. */
    struct message_process load; /* The latest LOAD of the process. */
    bool group_made;             /* Rank 0: the id of its group of ranks has arrived. */
    bool group_sent;             /* Rank 0: the id was sent to all ranks of the stage. */
    struct stage_group group;    /* Rank 0: the id, and the kind of rank 0's device. */
};

/* A batch on its way through the stages. */
struct pipeline_batch {
    uint64_t serial;              /* Serial of the batch's JOB; 0 = the batch slot is free. */
    uint64_t done_awaited;        /* Bit i: stage process i must still report DONE. */
    uint32_t result_count;        /* Number of results that the sampling process must send. */
    const struct engine_job *job; /* Receives the results. */
};

/* What the stage processes know about the request in a slot of the request table. */
struct pipeline_table {
    kv_owner_id owner;    /* The request that has the slot. */
    uint32_t known_spans; /* Number of spans, from the first on, whose block ids were sent. */
    /* Number of the CONTEXT's uint32 words (token rules, then tokens) that were sent, without
     * drafted tokens. */
    uint32_t known_words;
};

/* A request whose KV is on its way; indexed by its cookie modulo LIMIT_MACHINE_REQUESTS. */
struct pipeline_flight {
    uint64_t cookie;  /* Number of the request (prompt_push.cookie). */
    uint32_t flushed; /* Number of stage processes that have reported FLUSHED. */
    /* Number of stage processes that will report; 0 = pipeline_target_flush was not called yet. */
    uint32_t reports_wanted;
    enum status status; /* ST_OK, or the latest error of a FLUSHED. */
};

/* An AWAIT that stage processes must answer; indexed by cookie modulo LIMIT_MACHINE_REQUESTS. */
struct pipeline_await {
    uint64_t cookie;     /* Number of the request (stage_await.cookie). */
    uint32_t unanswered; /* Number of stage processes that have not answered. */
};

/* A copy between a slot of the staging memory and the stage processes. */
struct pipeline_copy {
    bool unreported;     /* The copy has begun, and its end is not reported (kv_copied). */
    uint32_t unanswered; /* Number of stage processes that have not finished. */
    enum status status;  /* ST_OK, or the latest error. */
};

/* A machine that the stage processes write KV to, as the head sees it. */
struct pipeline_target {
    uint32_t serial; /* Count of the target's sets and drops. */
    /* Number of stage processes that are not connected to the target yet; UINT32_MAX = the target
     * was dropped, or has failed. */
    uint32_t unconnected;
};

struct pipeline {
    struct executor executor;
    struct executor_options options;
    struct transport *transport;
    char description[64]; /* Number of stages and processes, for the log. */
    const struct stage_plan *plan;
    struct secret_keys keys; /* The cluster keys; count 0 = none. */
    int epoll_fd;
    uint32_t ready_count; /* Stage processes in PROCESS_READY. */
    bool crashed;         /* A stage process crashed (child_crashed). */
    bool killed;          /* A stage process was killed (child_killed). */
    bool failed;          /* The machine cannot continue (pipeline_fail). */
    struct error failure; /* Why the machine cannot continue. */
    struct message_buffer send_buffer;

    struct stage_process processes[LIMIT_STAGE_PROCESSES];
    /* The stage processes, as reported to machines that write KV; set when all are ready. */
    struct message_stage layout[LIMIT_STAGE_PROCESSES];

    struct pipeline_copy copies[STAGING_SLOTS]; /* By slot. */

    uint64_t path_processes[LIMIT_STAGE_PATHS]; /* Bit i: stage process i is on the path. */
    /* Bit i: stage process i reports DONE for the path. */
    uint64_t path_done_senders[LIMIT_STAGE_PATHS];
    uint64_t serial;                                        /* Serial of the latest job. */
    struct pipeline_batch batches[LIMIT_BATCHES_IN_FLIGHT]; /* By batch slot. */
    struct pipeline_table *tables;                          /* [LIMIT_MACHINE_REQUESTS] */
    /* The arrays from `sequences` to `masks` are for the JOB or CONTEXT that is being encoded. */
    struct stage_sequence *sequences; /* [sequences_max] */
    struct stage_sample *samples;     /* [sequences_max] */
    struct stage_score *scores;       /* [sequences_max] */
    struct stage_rows *pooled;        /* [sequences_max] */
    struct stage_push *pushes;        /* [sequences_max] */
    uint32_t *blocks;                 /* [block_capacity] */
    uint32_t block_capacity;
    uint32_t *target_blocks; /* [target_capacity]: blocks to which the pushes write. */
    uint32_t target_capacity;
    uint32_t *score_ids; /* [rows_max] */
    uint32_t *words;     /* [word_capacity]: words of a CONTEXT: token rules, then tokens. */
    uint32_t word_capacity;
    uint32_t *masks; /* [mask_capacity]: the words of the samples' masks. */
    uint32_t mask_capacity;

    struct pipeline_await *awaiting; /* [LIMIT_MACHINE_REQUESTS] */
    struct pipeline_target targets[LIMIT_MACHINES];
    struct pipeline_flight *flights;        /* [LIMIT_MACHINE_REQUESTS] */
    uint32_t landed_count;                  /* Flights that `progress` must still report. */
    struct pipeline_flight *landed_flights; /* [LIMIT_MACHINE_REQUESTS] */
};

static inline struct pipeline *pipeline_of(struct executor *e)
{
    return (struct pipeline *)(void *)e;
}

/* pipeline.c: records that the machine cannot continue, and why. Only the first call has an effect.
 * Waits up to 300 ms at a time for stage processes to end, to learn whether one has crashed or was
 * killed. */
void pipeline_fail(struct pipeline *p, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Encodes and queues a message for a stage process, if the process is connected. After
 * ST_NO_RESOURCE, ST_TOO_LARGE and ST_NO_MEMORY the machine ends (pipeline_fail). Other errors
 * arrive through peer_down. */
void pipeline_send(struct pipeline *p, struct stage_process *process,
                   const struct stage_message *message);

/* A function pipeline_NAME_take handles the message NAME of a stage process. A function with a
 * struct executor is an operation of struct executor_ops. */

/* pipeline_group.c: stores the id of the group that rank 0 of a stage has made, and calls
 * pipeline_groups_send. */
void pipeline_group_take(struct pipeline *p, struct stage_process *process,
                         const struct stage_group *group);
/* Sends the id of each group once to the group's ranks, when OPEN has been sent to all of them. A
 * group whose id has not arrived is skipped. */
void pipeline_groups_send(struct pipeline *p);

/* pipeline_job.c */
enum status pipeline_jobs_open(struct pipeline *p);
void pipeline_jobs_close(struct pipeline *p);
void pipeline_batch_start(struct executor *e, const struct executor_batch *batch);
void pipeline_pooled_take(struct pipeline *p, const struct stage_process *process,
                          const struct stage_pooled *pooled);
void pipeline_done_take(struct pipeline *p, const struct stage_process *process,
                        const struct stage_done *done);

/* pipeline_kv.c */
enum status pipeline_kv_open(struct pipeline *p);
void pipeline_kv_close(struct pipeline *p);
void pipeline_target_set(struct executor *e, uint32_t target, const struct message_peer *machine,
                         struct transport_peer *peer, const struct message_stages *stages);
void pipeline_target_drop(struct executor *e, uint32_t target);
enum status pipeline_target_copy(struct executor *e, uint32_t own_path, const struct kv_push *push,
                                 uint64_t cookie);
void pipeline_target_flush(struct executor *e, uint32_t own_path, uint32_t target, uint32_t path,
                           uint64_t cookie, bool requested);
void pipeline_target_link_take(struct pipeline *p, const struct stage_process *process,
                               const struct stage_target_link *link);
void pipeline_flushed_take(struct pipeline *p, const struct stage_flushed *flushed);
void pipeline_await(struct executor *e, uint32_t path, const struct stage_await *await);
void pipeline_awaited_take(struct pipeline *p, const struct stage_awaited *awaited);
/* Reports flights that have landed (executor_calls.target_flushed). */
void pipeline_kv_report(struct pipeline *p);

/* pipeline_staging.c */
void pipeline_kv_fetch(struct executor *e, const struct executor_copy *copy);
void pipeline_kv_deliver(struct executor *e, const struct executor_copy *copy);
void pipeline_fetched_take(struct pipeline *p, const struct stage_process *process,
                           const struct stage_fetched *fetched);
void pipeline_peer_flushed(struct executor *e, struct transport_peer *peer, uint64_t cookie,
                           enum status status);
/* Reports copies that have ended (executor_calls.kv_copied). */
void pipeline_copies_report(struct pipeline *p);

#endif
