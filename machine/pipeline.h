/* pipeline: a machine's side of its stages: it starts those of this computer, connects to all,
 * hands batches to them and takes what they sampled, and lets them push KV to other machines. The
 * machine's pools and scheduler stay in its own process (the head); weights, KV-cache and compute
 * are the stages' (stage.h).
 *
 * A stage that dies, or that cannot be reached any more, ends the machine (pipeline_lost): its KV
 * is gone, and its gateways let the requests go on elsewhere. Whoever started the machine starts it
 * again. One event loop thread makes every call. */
#ifndef MACHINE_PIPELINE_H
#define MACHINE_PIPELINE_H

#include "common/clock.h"
#include "kvcache/kv_owner.h"
#include "machine/engine.h"
#include "machine/machine_shape.h"
#include "prompt_pool/prompt_pool.h"
#include "transport/stage_message.h"

struct pipeline;

struct pipeline_calls { /* from pipeline_message and pipeline_turn */
    /* The batch in that slot has left the last stage. */
    void (*done)(void *self, uint32_t slot, const struct stage_done *done);
    void (*flushed)(void *self, uint64_t cookie, enum status status);
    /* All stages reach the target, or one does not any more. */
    void (*target)(void *self, uint32_t target, bool up, const char *text);
    /* A machine (or a stage of it) that writes KV has connected to a stage, or is gone. */
    void (*writer)(void *self, const char *name, bool up, const char *text);
};

struct pipeline_options {
    const struct config *config;        /* kept */
    const struct config_machine *entry; /* kept */
    const struct machine_shape *shape;  /* kept */
    struct transport *transport;        /* kept */
    const struct clock *clock;          /* kept */
    const uint8_t *cluster_key;         /* read during the call; NULL: none */
    int turns_fd;                       /* for the stages that it starts; -1: none */
    const char *log_level;              /* likewise; kept; NULL: theirs */
    struct pipeline_calls calls;
    void *self;
};

/* Starts the local stages. */
enum status pipeline_open(const struct pipeline_options *options, struct pipeline **out,
                          struct error *error);
/* Ends them. NULL is fine; before the transport is closed. */
void pipeline_close(struct pipeline *p);

int pipeline_fd(const struct pipeline *p); /* readable: call turn */
/* Returns when to call next, or INT64_MAX. */
int64_t pipeline_turn(struct pipeline *p, int64_t now_us);
bool pipeline_ready(const struct pipeline *p); /* all stages work */
/* ST_OK, or why the machine cannot go on. */
enum status pipeline_lost(const struct pipeline *p, struct error *error);

/* The transport's events, for peers whose user begins with KV_USER_STAGE (kv_targets.h). */
void pipeline_peer_up(struct pipeline *p, struct transport_peer *peer);
void pipeline_peer_down(struct pipeline *p, struct transport_peer *peer, const char *text,
                        int64_t now_us);
void pipeline_message(struct pipeline *p, struct transport_peer *peer, const uint8_t *data,
                      size_t bytes);

/* A batch: the engine's job, and what is known of each of its sequences. */
struct pipeline_batch {
    uint32_t slot; /* < stage_plan_slots */
    uint32_t path;
    const struct engine_job *job;
    const uint32_t *tables;           /* [sequence_count] the scheduler's slot of each … */
    const kv_owner_id *owners;        /* … and of which use of it */
    const struct prompt_push *pushes; /* [sequence_count] count 0: none */
};

void pipeline_start(struct pipeline *p, const struct pipeline_batch *batch);

/* How busy the stages are; as many as the plan has places. */
void pipeline_loads(const struct pipeline *p, struct message_load out[LIMIT_STAGES]);

/* Where writers find which layers: the stages' addresses. *out is good until the pipeline ends. */
void pipeline_stages(const struct pipeline *p, struct message_stages *out);

/* As kv_targets_set, for all stages; `target` is called later. */
void pipeline_target_set(struct pipeline *p, uint32_t target, const struct message_peer *machine,
                         const struct message_stages *stages);
void pipeline_target_drop(struct pipeline *p, uint32_t target);
/* `flushed` is called later. asked: a push was the request's last, so the stages do it by
 * themselves. */
void pipeline_flush(struct pipeline *p, uint32_t own_path, uint32_t target, uint32_t path,
                    uint64_t cookie, bool asked);

#endif
