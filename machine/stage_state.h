/* stage_state: what stage.c (life and turns), stage_peers.c (who is connected, and what they say),
 * stage_group.c (the ranks of one stage) and stage_jobs.c (batches) share. */
#ifndef MACHINE_STAGE_STATE_H
#define MACHINE_STAGE_STATE_H

#include "machine/device.h"
#include "machine/stage.h"
#include "prompt_pool/kv_targets.h"
#include "transport/doomed.h"
#include "transport/stage_message.h"

enum slot_state { SLOT_EMPTY, SLOT_WAITING, SLOT_RUNNING };

/* A batch in flight. Its activations have their place in our region, by the slot's number. */
struct stage_slot {
    enum slot_state state;
    uint64_t order;   /* in which the jobs came */
    uint64_t arrived; /* serial of the job whose activations are here */
    uint8_t *data;    /* the JOB's bytes, which `job` points into */
    size_t capacity;
    struct stage_job job;
    struct engine_job engine_job;
    struct compute_sequence *sequences;
    struct engine_sample *samples;
    struct engine_score *scores;
    struct sampled *score_results;
};

/* Of a rank: the group that it computes in. */
enum stage_group_state {
    GROUP_NONE,    /* it knows of none yet, or is alone */
    GROUP_MADE,    /* rank 0 has made it, and told the head */
    GROUP_JOINING, /* its engine waits for the others */
    GROUP_JOINED,
    GROUP_FAILED,
};

struct stage_next {    /* a process of the stage after us */
    enum kv_user user; /* KV_USER_STAGE: transports hand us back by this */
    uint64_t paths;
    struct transport_peer *peer;
    bool up;
};

/* A request whose KV we push: by the low bits of its cookie. */
struct stage_request {
    uint64_t cookie;
    enum status status; /* of its writes */
    bool flushing;
};

struct stage {
    struct stage_options options;
    const struct config_machine *entry;
    const struct stage_place *place;
    char name[LIMIT_NAME_BYTES];
    struct machine_shape shape;
    struct kv_arena arena; /* of our layers */
    uint32_t slot_count;
    uint64_t slot_bytes;
    struct transport *transport;
    struct device device;
    struct kv_targets *targets;
    int fd;

    struct transport_peer *head; /* NULL: none */
    bool opened;                 /* it has sent OPEN, and we agree */
    bool told_ready;
    enum stage_group_state group;
    uint32_t next_count;
    struct stage_next next[LIMIT_STAGES];
    uint32_t target_serials[LIMIT_MACHINES];
    struct doomed doomed; /* dropped at the end of a turn */

    uint64_t jobs;                                 /* that came */
    struct stage_slot *slots;                      /* [slot_count] */
    struct stage_slot *running;                    /* the engine's; NULL: it is idle */
    bool abandoned;                                /* it runs a job of a head that is gone */
    uint32_t *tables[LIMIT_MACHINE_REQUESTS];      /* each [context_blocks]; NULL: not used yet */
    uint32_t table_counts[LIMIT_MACHINE_REQUESTS]; /* ids that are known */
    uint32_t pushed_layers;                        /* of the job that runs */
    struct stage_request *requests;                /* [LIMIT_MACHINE_REQUESTS] */
    struct stage_result *results;                  /* [sequences_max + rows_max] */
    struct message_buffer out;

    int64_t now_us;
    uint32_t events;
    bool unsent;
    bool changed; /* the load, since it was told */
    int64_t load_at_us;
    struct stage_load load;
    int64_t job_at_us;
    bool stopping;
};

/* stage_peers.c */
struct transport_events stage_transport_events(void);
void stage_send(struct stage *s, struct transport_peer *peer, const struct stage_message *message);
void stage_peers_drop(struct stage *s);
void stage_target_link(void *self, uint32_t target, bool up, const char *text);
/* Tells the head that all works, once it does. */
void stage_ready_look(struct stage *s);

void stage_tell_state(struct stage *s, bool ready, const char *text);

/* stage_group.c */
bool stage_is_rank(const struct stage *s); /* one of several */
/* The head has opened us: rank 0 makes the group. */
void stage_group_make(struct stage *s);
void stage_group_take(struct stage *s, const struct stage_group *group);
void stage_group_progress(struct stage *s); /* the engine has something to say */
/* A group is made once in a process's life: without the head that it was made for, it ends. */
void stage_group_gone(struct stage *s);

/* stage_jobs.c */
enum status stage_jobs_open(struct stage *s);
void stage_jobs_close(struct stage *s);
/* Takes the job (`data` is the message's bytes); an error is of the head. */
enum status stage_job_take(struct stage *s, const uint8_t *data, size_t bytes, struct error *error);
enum status stage_activations_take(struct stage *s, const struct stage_activations *activations,
                                   struct error *error);
void stage_flush_take(struct stage *s, const struct stage_flush *flush);
void stage_jobs_progress(struct stage *s, struct engine_progress progress);
void stage_jobs_start(struct stage *s);  /* the next one, if it is idle */
void stage_jobs_forget(struct stage *s); /* the head is gone */
/* Our write to the next stage is there (its slot), or a request's KV is. */
void stage_sent(struct stage *s, struct transport_peer *peer, uint64_t cookie, enum status status);
void stage_flushed(void *self, uint64_t cookie, enum status status);

#endif
