/* pipeline: the head's side of a machine's stages. It starts the stage processes of this host,
 * connects to all stage processes, sends batches to them, receives what they sampled, and lets them
 * write KV to other machines. The machine's request tables and scheduler stay in the head; weights,
 * KV cache and compute are in the stage processes (stage.h).
 *
 * If a stage process dies or becomes unreachable, the machine ends (pipeline_lost): its KV is gone,
 * and the gateways resume the requests on other machines. The machine's parent starts it again. The
 * head's event loop thread makes every call. */
#ifndef MACHINE_EXECUTOR_PIPELINE_H
#define MACHINE_EXECUTOR_PIPELINE_H

#include "common/clock.h"
#include "kvcache/kv_owner.h"
#include "machine/executor/engine.h"
#include "machine/executor/shape.h"
#include "prompt_pool/prompt_pool.h"
#include "transport/stage_message.h"

struct pipeline;

struct pipeline_calls { /* Called from pipeline_message and pipeline_turn. */
    /* The batch in that batch slot is finished. `done` is valid during the call. */
    void (*done)(void *self, uint32_t slot, const struct stage_done *done);
    void (*flushed)(void *self, uint64_t cookie, enum status status);
    /* up: all stage processes are connected to the target. !up: one of them is not, or no longer
     * is. */
    void (*target)(void *self, uint32_t target, bool up, const char *text);
    /* A machine (or a stage process of it) that writes KV has connected to one of our stage
     * processes, or is gone. */
    void (*writer)(void *self, const char *name, bool up, const char *text);
};

struct pipeline_options {
    const struct config *config;        /* Not owned. */
    const struct config_machine *entry; /* Not owned. */
    const struct machine_shape *shape;  /* Not owned. */
    struct transport *transport;        /* Not owned. */
    const struct clock *clock;          /* Not owned. */
    const uint8_t *cluster_key;         /* Read during the call; NULL = none. */
    int turns_fd;                       /* For the stage processes that it starts; -1 = none. */
    /* For the stage processes that it starts; not owned; NULL = the default. */
    const char *log_level;
    struct pipeline_calls calls;
    void *self;
};

/* Starts the stage processes of this host. *out is set also after an error, for pipeline_close
 * (unless there was no memory for it). */
enum status pipeline_open(const struct pipeline_options *options, struct pipeline **out,
                          struct error *error);
/* Kills the stage processes that it started. NULL is fine. Call before the transport is closed. */
void pipeline_close(struct pipeline *p);

int pipeline_fd(const struct pipeline *p); /* Descriptor; call pipeline_turn when it is readable. */
/* Returns the time of the next call; INT64_MAX = none. */
int64_t pipeline_turn(struct pipeline *p, int64_t now_us);
bool pipeline_ready(const struct pipeline *p); /* True when all stage processes are ready. */
/* ST_OK, or the reason why the machine cannot continue. */
enum status pipeline_lost(const struct pipeline *p, struct error *error);

/* Events of the transport, for peers whose user begins with KV_USER_STAGE (kv_targets.h). */
void pipeline_peer_up(struct pipeline *p, struct transport_peer *peer);
void pipeline_peer_down(struct pipeline *p, struct transport_peer *peer, const char *text,
                        int64_t now_us);
void pipeline_message(struct pipeline *p, struct transport_peer *peer, const uint8_t *data,
                      size_t bytes);

/* A batch: the engine's job, and the request of each of its sequences. */
struct pipeline_batch {
    uint32_t slot; /* Batch slot, < stage_plan_slots. */
    uint32_t path;
    const struct engine_job *job;
    const uint32_t *tables; /* [sequence_count]: slot of each sequence's request. */
    /* [sequence_count]: distinguishes successive requests in the same slot. */
    const kv_owner_id *owners;
    const struct prompt_push *pushes; /* [sequence_count]: KV to push; count 0 = none. */
};

void pipeline_start(struct pipeline *p, const struct pipeline_batch *batch);

/* The load of the stage processes, plan.place_count entries. */
void pipeline_loads(const struct pipeline *p, struct message_load out[LIMIT_STAGES]);

/* The addresses and layers of the stage processes, for machines that write KV. *out is valid until
 * the pipeline is closed. */
void pipeline_stages(const struct pipeline *p, struct message_stages *out);

/* As kv_targets_set and kv_targets_drop, for all stage processes. The callback `target` reports the
 * result of the former. */
void pipeline_target_set(struct pipeline *p, uint32_t target, const struct message_peer *machine,
                         const struct message_stages *stages);
void pipeline_target_drop(struct pipeline *p, uint32_t target);
/* Asks the stage processes of own_path to report when the KV written for `cookie` to the target has
 * arrived; then the callback `flushed` is called. asked: a push was marked as the request's last,
 * so the stage processes report by themselves. */
void pipeline_flush(struct pipeline *p, uint32_t own_path, uint32_t target, uint32_t path,
                    uint64_t cookie, bool asked);

#endif
