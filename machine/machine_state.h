/* machine_state: what machine.c (life and turns), machine_open.c (what a machine is made of),
 * machine_peers.c (connections and messages), machine_gateways.c (what is told to whom of several
 * gateways) and machine_batch.c (from the scheduler through the
 * engine to the pools) share. */
#ifndef MACHINE_MACHINE_STATE_H
#define MACHINE_MACHINE_STATE_H

#include "machine/device.h"
#include "machine/machine.h"
#include "machine/pipeline.h"
#include "prompt_pool/kv_targets.h"
#include "prompt_pool/prompt_pool.h"
#include "scheduler/machine.h"
#include "token_pool/token_pool.h"
#include "transport/doomed.h"

/* Gateways connected at a time: one is usual, two or three so that one may die. */
#define MACHINE_GATEWAYS_MAX 8

struct machine_taken { /* of gateways, as long as they are or were connected */
    uint64_t prompt_tokens;
    uint64_t answers;
};

struct machine_gateway {
    struct transport_peer *peer; /* NULL: the place is free */
    enum message_role_kind role; /* as it said last */
    struct machine_taken taken;
    struct message_others told; /* to it, last */
    bool prefixes_told;         /* it knows what the prefix cache had before the last changes */
};

struct machine_prefixes; /* machine_prefixes.c */

/* A batch in flight: what the engine reads, and which item each result belongs to. */
struct machine_batch {
    struct sched_batch items;
    struct engine_job job;
    int64_t at_us;                      /* when it was started */
    bool prompts;                       /* it has some */
    uint32_t *token_ids;                /* [rows_max] */
    struct compute_sequence *sequences; /* [sequences_max] */
    struct engine_sample *samples;      /* [sequences_max]; sample i is of item sample_items[i] */
    uint32_t *sample_items;
    struct engine_score *scores; /* [sequences_max]; likewise */
    uint32_t *score_items;
    struct sampled *score_results;         /* [rows_max] */
    const struct message_sampling **rules; /* of each item */
    uint32_t *output_limits;
    uint32_t *indices; /* in the answer, of the token that each item gives */
    /* For stages, which keep block tables. */
    uint32_t *tables;    /* the scheduler's slot of each item */
    kv_owner_id *owners; /* of this use of it */
    struct prompt_push *pushes;
};

struct machine {
    struct machine_options options;
    const struct config_machine *entry;
    struct model_file *file; /* closed once the weights are loaded */
    struct machine_shape shape;
    struct kv_arena arena; /* the shape's */
    /* What computes: a device of our own, or stages, which are processes of their own. */
    struct device device;
    struct pipeline *pipeline;       /* NULL: no stages */
    struct sched_paths prompt_paths; /* through these, of the next prompt that comes */
    struct sched_paths token_paths;  /* and of the next reservation */
    struct transport *transport;
    struct kv_pool *kv;
    struct kv_prefix *prefix;          /* NULL: off */
    struct machine_prefixes *prefixes; /* so is this */
    struct sched_machine *sched;
    struct prompt_links *links;
    struct kv_targets *targets;
    struct prompt_pool *prompts;
    struct token_pool *tokens;
    uint32_t batch_count;          /* that can be in flight */
    struct machine_batch *batches; /* by the scheduler's index */
    struct machine_batch *running; /* the engine's; NULL: it is idle */
    struct sched_batch next;       /* until it is known which of them it is */
    int fd;                        /* epoll over the transport's and the engine's */

    uint32_t gateway_count;
    struct machine_gateway gateways[MACHINE_GATEWAYS_MAX];
    struct machine_taken taken;
    enum message_role_kind home; /* as some gateway said last, with its number; 0: none did */
    uint64_t home_serial;
    struct doomed doomed;      /* dropped at the end of a turn */
    struct message_buffer out; /* the message that is being sent */

    int64_t now_us;         /* read once at the start of a turn, and when the engine is done */
    uint32_t events;        /* of the transport, in this turn */
    bool unsent;            /* messages or writes were queued since the transport's last progress */
    bool changed;           /* stats may have changed since they were sent last */
    int64_t stats_at_us;    /* not before */
    int64_t pipeline_at_us; /* its next turn */
    bool stopping;
    int64_t stop_by_us;
    uint64_t prompt_batches;
    uint64_t token_batches;
    uint64_t batch_rows[2]; /* of all batches without and with prompts, and their time */
    uint64_t batch_us[2];
};

/* machine_open.c */
/* Keeps memory for the work that will come; see there. Pools must be open. */
void machine_role_set(struct machine *m, enum message_role_kind role);
enum message_role_kind machine_role_configured(const struct machine *m);
enum status machine_batch_open(struct machine *m);
void machine_batch_close(struct machine *m); /* none is in flight; before the scheduler is closed */
/* The engine runs no more: all that is in flight is over, and nothing comes of it. */
void machine_batch_abandon(struct machine *m);

/* machine_prefixes.c: what gateways hear of the prefix cache, which is open and empty. */
enum status machine_prefixes_open(struct machine *m);
void machine_prefixes_close(struct machine *m);
void machine_prefixes_tell(struct machine *m);

/* machine_gateways.c */
struct transport_peer *machine_gateway_named(struct machine *m, const char *name); /* or NULL */
bool machine_gateway_add(struct machine *m, struct transport_peer *peer); /* false: no place */
void machine_gateway_remove(struct machine *m, struct transport_peer *peer);
uint32_t machine_gateway_index(struct machine *m, const struct transport_peer *peer);
void machine_gateway_role(struct machine *m, const struct transport_peer *peer,
                          const struct message_role *role);
/* A prompt, or an answer to generate, has come from it. */
void machine_gateway_took(struct machine *m, const struct transport_peer *peer,
                          uint32_t prompt_tokens, uint32_t answers);
/* Sends STATS to all, and to each what has changed of the others. */
void machine_gateways_tell(struct machine *m, const struct message_stats *stats);

/* machine_peers.c */
struct transport_events machine_transport_events(void);
struct prompt_pool_calls machine_prompt_calls(const struct machine *m);
/* Of a writer, which may be one of its stages: "p0/1" is of p0. */
void machine_of_writer(const char *name, char out[LIMIT_NAME_BYTES]);
struct token_pool_calls machine_token_calls(void);
void machine_send(void *self, struct transport_peer *peer, const struct message *message);
/* Disconnects those that broke the rules in this turn: never from inside a callback of the
 * transport. */
void machine_peers_drop(struct machine *m);

/* machine_targets.c */
void machine_link_report(void *self, const struct message_link *link);
void machine_link_lost(void *self, struct transport_peer *peer, const char *text);
void machine_target_prepare(void *self, uint32_t target, const struct message_peer *machine,
                            struct transport_peer *peer, const struct message_stages *stages);
void machine_target_drop(void *self, uint32_t target);
void machine_target_link(void *self, uint32_t target, bool up, const char *text);
void machine_target_flushed(void *self, uint64_t cookie, enum status status);
enum status machine_target_write(void *self, uint32_t target, uint32_t path, uint32_t layer,
                                 const kv_block_id *source, const kv_block_id *blocks,
                                 uint32_t first, uint32_t count);
void machine_target_flush(void *self, uint32_t own_path, uint32_t target, uint32_t path,
                          uint64_t cookie, bool asked);
void machine_stages_tell(struct machine *m, struct transport_peer *writer);

/* machine_stages.c */
struct pipeline_calls machine_pipeline_calls(void);

/* machine_batch.c: takes what the engine has done, and starts the next batch if it is idle. */
void machine_batch_progress(struct machine *m);
void machine_batch_start(struct machine *m);
bool machine_batch_in_flight(const struct machine *m);
/* What the last stage has sampled of the batch in that slot. */
void machine_batch_results(struct machine *m, uint32_t slot, const struct stage_done *done);

#endif
