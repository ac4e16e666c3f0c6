/* pipeline_state: private to the files of the pipeline, the executor of a machine with stages
 * (executor.h). The pipeline starts the stage processes of this host, connects to all stage
 * processes, sends batches to them, receives what they sampled, and lets them write KV to other
 * machines. The machine's request tables and scheduler stay in the head; weights, KV cache and
 * compute are in the stage processes (stage.h).
 *
 * If a stage process dies or becomes unreachable, the machine ends (pipeline_fail): its KV is gone,
 * and the gateways resume the requests on other machines. The machine's parent starts it again.
 *
 * pipeline.c: stage processes from start to end. pipeline_group.c: groups of ranks. pipeline_job.c:
 * batches. pipeline_kv.c: KV on its way to other machines. Everything runs on the head's event loop
 * thread. No other file includes this header. */
#ifndef MACHINE_EXECUTOR_PIPELINE_STATE_H
#define MACHINE_EXECUTOR_PIPELINE_STATE_H

#include "host/child.h"
#include "machine/executor/executor.h"
#include "transport/peer_user.h"
#include "transport/stage_message.h"

enum stage_process_state {
    PROCESS_STARTING,   /* Child process whose address is not known yet. */
    PROCESS_APART,      /* Its address is known; not connected. */
    PROCESS_CONNECTING, /* Connecting. */
    PROCESS_CONNECTED,  /* Connected; OPEN is sent when the stages after it are connected, too. */
    PROCESS_OPENING,    /* OPEN was sent. */
    PROCESS_READY,
};

struct stage_process {     /* A stage process, as the head sees it. */
    struct peer_user user; /* The `user` of its connection. */
    enum stage_process_state state;
    uint32_t index;
    char name[LIMIT_NAME_BYTES];
    char address[LIMIT_ADDRESS_BYTES];
    struct transport_peer *peer; /* Set from PROCESS_CONNECTING on. */
    struct child_process child;  /* pid 0 = not started by this process. */
    struct child_line line;
    int64_t retry_at_us;
    int64_t retry_us;
    char retry_reason[256]; /* Latest logged reason why it cannot be reached. */
    struct message_process load;
    bool group_made; /* Rank 0: it has made its group. */
    bool group_sent; /* Rank 0: the group was sent to all ranks. */
    struct stage_group group;
};

/* A batch on its way through the stages. */
struct batch {
    uint64_t serial;     /* 0 = the batch slot is free. */
    uint64_t unfinished; /* Bit i: stage process i has not reported DONE yet. */
    uint32_t result_count;
    const struct engine_job *job; /* Receives the results. */
};

/* The part of a request slot's block table that the stages know. */
struct table {
    kv_owner_id owner;
    uint32_t known_blocks;
};

/* A request whose KV is on its way; indexed by its cookie modulo LIMIT_MACHINE_REQUESTS. */
struct flight {
    uint64_t cookie;
    uint32_t flushed; /* Stage processes that have reported FLUSHED. */
    /* Stage processes that will report; 0 = pipeline_target_flush was not called yet. */
    uint32_t reports_wanted;
    enum status status;
};

/* A request whose stage processes have been sent AWAIT; indexed by its cookie modulo
 * LIMIT_MACHINE_REQUESTS. */
struct awaiting {
    uint64_t cookie;
    uint32_t unanswered; /* Stage processes that have not answered. */
};

/* A token machine that the stage processes connect to, as the head sees it. */
struct target {
    uint32_t serial; /* Number of the latest set or drop. */
    /* Stage processes that are not connected yet; UINT32_MAX = dropped, or one has failed. */
    uint32_t unconnected;
};

struct pipeline {
    struct executor executor;
    struct executor_options options;
    struct transport *transport;
    char text[64]; /* Number of stages and processes, for the log. */
    const struct stage_plan *plan;
    uint8_t key[TRANSPORT_KEY_BYTES];
    bool has_key;
    int epoll;
    uint32_t ready_count;
    bool lost;
    struct error why;
    struct message_buffer out;

    struct stage_process processes[LIMIT_STAGES];
    struct message_stage stages[LIMIT_STAGES]; /* As sent to machines that write KV. */

    uint64_t path_processes[LIMIT_STAGE_PATHS]; /* Bit i: stage process i is on the path. */
    /* Bit i: stage process i reports DONE for the path. */
    uint64_t path_enders[LIMIT_STAGE_PATHS];
    uint64_t serial;                               /* Serial of the latest job. */
    struct batch batches[LIMIT_BATCHES_IN_FLIGHT]; /* By batch slot. */
    struct table *tables;                          /* [LIMIT_MACHINE_REQUESTS] */
    struct stage_sequence *sequences;              /* [sequences_max], as the next three. */
    struct stage_sample *samples;
    struct stage_score *scores;
    struct stage_push *pushes;
    uint32_t *blocks; /* [block_capacity] */
    uint32_t block_capacity;
    uint32_t *targets_blocks; /* [target_capacity] */
    uint32_t target_capacity;
    uint32_t *score_ids; /* [rows_max] */

    struct awaiting *awaiting; /* [LIMIT_MACHINE_REQUESTS] */
    struct target targets[LIMIT_MACHINES];
    struct flight *flights; /* [LIMIT_MACHINE_REQUESTS] */
    uint32_t landed_count;  /* Flights to report in the next call of `progress`. */
    struct flight *landed;  /* [LIMIT_MACHINE_REQUESTS] */
};

static inline struct pipeline *pipeline_of(struct executor *e)
{
    return (struct pipeline *)(void *)e;
}

/* pipeline.c: the machine cannot continue, for this reason. */
void pipeline_fail(struct pipeline *p, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void pipeline_send(struct pipeline *p, struct stage_process *process,
                   const struct stage_message *message);

/* pipeline_group.c: rank 0 of a stage makes a group; the head sends it to all ranks of the stage.
 */
void pipeline_group_made(struct pipeline *p, struct stage_process *process,
                         const struct stage_group *group);
/* Sends groups whose ranks have all been opened to their ranks. */
void pipeline_groups_send(struct pipeline *p);

/* pipeline_job.c */
enum status pipeline_jobs_open(struct pipeline *p);
void pipeline_jobs_close(struct pipeline *p);
void pipeline_start(struct executor *e, const struct executor_batch *batch);
void pipeline_done(struct pipeline *p, const struct stage_process *process,
                   const struct stage_done *done);

/* pipeline_kv.c */
enum status pipeline_kv_open(struct pipeline *p);
void pipeline_kv_close(struct pipeline *p);
void pipeline_target_set(struct executor *e, uint32_t target, const struct message_peer *machine,
                         struct transport_peer *peer, const struct message_stages *stages);
void pipeline_target_drop(struct executor *e, uint32_t target);
void pipeline_target_flush(struct executor *e, uint32_t own_path, uint32_t target, uint32_t path,
                           uint64_t cookie, bool requested);
void pipeline_target_link(struct pipeline *p, const struct stage_process *process,
                          const struct stage_target_link *link);
void pipeline_flushed(struct pipeline *p, const struct stage_flushed *flushed);
void pipeline_await(struct executor *e, uint32_t path, const struct stage_await *await);
void pipeline_awaited(struct pipeline *p, const struct stage_awaited *awaited);
void pipeline_kv_report(struct pipeline *p); /* Reports the flights that have landed. */

#endif
