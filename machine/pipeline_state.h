/* pipeline_state: what pipeline.c (the stages' lives), pipeline_group.c (ranks), pipeline_job.c
 * (batches) and pipeline_kv.c (KV on its way to other machines) share. */
#ifndef MACHINE_PIPELINE_STATE_H
#define MACHINE_PIPELINE_STATE_H

#include "common/child.h"
#include "machine/pipeline.h"
#include "prompt_pool/kv_targets.h"

enum place_state {
    PLACE_STARTING,   /* a child that has not said its address yet */
    PLACE_APART,      /* its address is known, we are not connected */
    PLACE_CONNECTING, /* … */
    PLACE_CONNECTED,  /* OPEN waits until the stages after it are, too */
    PLACE_OPENING,    /* OPEN was sent */
    PLACE_READY,
};

struct place {         /* a stage's process */
    enum kv_user user; /* KV_USER_STAGE: transports hand us back by this */
    enum place_state state;
    uint32_t index;
    char name[LIMIT_NAME_BYTES];
    char address[LIMIT_ADDRESS_BYTES];
    struct transport_peer *peer; /* from CONNECTING on */
    struct child_process child;  /* pid 0: it is none of ours */
    struct child_line line;
    int64_t retry_at_us;
    int64_t retry_us;
    char said[256]; /* why it cannot be reached, as logged last */
    struct stage_load load;
    bool grouped;    /* of rank 0: it has made its group, … */
    bool group_told; /* … and all ranks have been told */
    struct stage_group group;
};

/* A batch that is on its way through the stages. */
struct batch {
    uint64_t serial; /* 0: there is none */
    uint64_t left;   /* bit i: place i has not said DONE, and will */
    uint32_t result_count;
    bool kept; /* its results have come before the last DONE, and lie here: */
    struct stage_result *results;
    uint32_t capacity;
};

/* What the stages know of a slot's block table. */
struct table {
    kv_owner_id owner;
    uint32_t known;
};

/* A request whose KV is on its way: by the low bits of its cookie. */
struct flight {
    uint64_t cookie;
    uint32_t flushed; /* processes that have */
    uint32_t wanted;  /* of so many; 0: pipeline_flush was not called yet */
    enum status status;
};

struct target {
    uint32_t serial; /* of the last wish */
    uint32_t left;   /* processes that are not there yet; UINT32_MAX: one has failed */
};

struct pipeline {
    struct pipeline_options options;
    const struct stage_plan *plan;
    uint8_t key[TRANSPORT_KEY_BYTES];
    bool has_key;
    int epoll;
    uint32_t ready_count;
    bool lost;
    struct error why;
    struct message_buffer out;

    struct place places[LIMIT_STAGES];
    struct message_stage stages[LIMIT_STAGES]; /* as told to writers */

    uint64_t path_places[LIMIT_STAGE_PATHS];       /* bit i: place i is on the path … */
    uint64_t path_enders[LIMIT_STAGE_PATHS];       /* … and says when it is done with a batch */
    uint64_t serial;                               /* of the last job */
    struct batch batches[LIMIT_BATCHES_IN_FLIGHT]; /* by slot */
    struct table *tables;                          /* [LIMIT_MACHINE_REQUESTS] */
    struct stage_sequence *sequences;              /* [sequences_max]; so the next three */
    struct stage_sample *samples;
    struct stage_score *scores;
    struct stage_push *pushes;
    uint32_t *blocks; /* [block_capacity] */
    uint32_t block_capacity;
    uint32_t *targets_blocks; /* [target_capacity] */
    uint32_t target_capacity;
    uint32_t *score_ids; /* [rows_max] */

    struct target targets[LIMIT_MACHINES];
    struct flight *flights; /* [LIMIT_MACHINE_REQUESTS] */
    uint32_t landed_count;  /* flights to be reported in the next turn */
    struct flight *landed;  /* [LIMIT_MACHINE_REQUESTS] */
};

/* pipeline.c */
void pipeline_fail(struct pipeline *p, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void pipeline_send(struct pipeline *p, struct place *place, const struct stage_message *message);

/* pipeline_group.c: a stage's ranks find each other by what rank 0 has made. */
void pipeline_group_made(struct pipeline *p, struct place *place, const struct stage_group *group);
/* Tells ranks of their group, once all of them are open. */
void pipeline_groups_look(struct pipeline *p);

/* pipeline_job.c */
enum status pipeline_jobs_open(struct pipeline *p);
void pipeline_jobs_close(struct pipeline *p);
void pipeline_done(struct pipeline *p, const struct place *place, const struct stage_done *done);

/* pipeline_kv.c */
enum status pipeline_kv_open(struct pipeline *p);
void pipeline_kv_close(struct pipeline *p);
void pipeline_target_link(struct pipeline *p, const struct place *place,
                          const struct stage_target_link *link);
void pipeline_flushed(struct pipeline *p, const struct stage_flushed *flushed);
void pipeline_kv_turn(struct pipeline *p);

#endif
