/* machine_state: the structs and functions that the files of a machine share. machine.c: event loop
 * and stop. open.c: opening and closing. peers.c: connections and messages. gateways.c: the
 * connected gateways. prefixes.c: reports of the prefix cache. held.c: requests that wait for their
 * constraint or their stored KV. tiers.c, tier_*.c: stored KV. targets.c: KV to and from other
 * machines. batch.c: batches, from the scheduler through the executor to the request tables.
 * draft.c: the draft model. Everything runs on the machine's event loop thread, without locks. The
 * header is for the files of machine/ and for tests. */
#ifndef MACHINE_STATE_H
#define MACHINE_STATE_H

#include "host/energy.h"
#include "machine/executor/executor.h"
#include "machine/executor/refusals.h"
#include "machine/machine.h"
#include "model/grammar/answers.h"
#include "prompt_pool/prompt_pool.h"
#include "scheduler/drafts.h"
#include "scheduler/machine/machine.h"
#include "scheduler/options.h"
#include "scheduler/pace.h"
#include "token_pool/token_pool.h"
#include "transport/doomed.h"

#define MACHINE_GATEWAYS_MAX 8 /* Gateways that may be connected at the same time. */

/* Work that one gateway has asked for since it connected, or that all gateways have asked for since
 * the machine started. A held message (held.c) counts when it is handled. */
struct machine_demand {
    uint64_t prompt_tokens; /* Prompt tokens of all PREFILLs, except PREFILLs that copy KV. */
    uint64_t answers;       /* Number of all RESERVEs, except RESERVEs for a copy of KV. */
};

/* A gateway that is connected to the machine. */
struct machine_gateway {
    struct transport_peer *peer; /* NULL = this entry is free. */
    enum pool pool; /* The current pool that the gateway sent last; at first POOL_PROMPT. */
    struct machine_demand demand;
    struct message_others others_sent; /* The OTHERS message that was sent to the gateway last. */
    bool about_sent;                   /* ABOUT was sent. */
    /* The gateway has sent SHUTDOWN after LEAVING: no request of the gateway is left here. */
    bool has_left;
    bool prefixes_sent; /* The gateway knows the prefix cache as it was at the last report. */
};

struct machine_prefixes; /* See prefixes.c. */
struct machine_tiers;    /* See tiers.c. */
struct machine_draft;    /* See draft.c. */
struct machine_load;     /* See tier_loads.c. */

/* Where a token of an answer comes from, and what happens with it. */
enum machine_pick_use {
    MACHINE_PICK_SAMPLED, /* The token is sampled. */
    /* The constraint allows only this token, so its row needs no logits and no sample. */
    MACHINE_PICK_CERTAIN,
    /* The token is sampled and ends the answer, because the constraint's mask could not be made. */
    MACHINE_PICK_ENDS,
    /* The token is sampled, but not used: the constraint does not allow the drafted tokens before
     * the token, or its mask could not be made. */
    MACHINE_PICK_UNUSED,
};

/* A token that a batch may add to the answer of one of its items. */
struct machine_pick {
    uint32_t item; /* Index in machine_batch.items. */
    enum machine_pick_use use;
    uint32_t sample; /* Index in machine_batch.samples; not valid with MACHINE_PICK_CERTAIN. */
    uint32_t token;  /* With MACHINE_PICK_CERTAIN: the token's id. */
};

/* A batch in flight: the executor's input, and the item that each result belongs to. */
struct machine_batch {
    struct sched_batch items;           /* The scheduler's batch: its prompt chunks and decodes. */
    struct engine_job job;              /* The job for the executor; uses the arrays below. */
    int64_t started_us;                 /* When the batch was started. */
    uint64_t fill_us;                   /* Time to make the job, with the masks of constraints. */
    bool has_prompts;                   /* The batch contains prompt chunks. */
    uint32_t *token_ids;                /* [rows_max]: id of each row's token. */
    struct compute_sequence *sequences; /* [sequences_max]: rows and block table of each item. */
    struct engine_sample *samples;      /* [sequences_max]: tokens that the executor samples. */
    struct machine_pick *picks;         /* [sequences_max], in the order of the items. */
    uint32_t pick_count;
    size_t mask_bytes; /* Bytes of the batch's masks of constraints, all together. */
    /* [sequences_max × machine_draft_final_floats]: final vectors of the rows of the picks; NULL =
     * no draft layer. */
    float *finals;
    struct engine_score *scores; /* [sequences_max]; score i belongs to item score_items[i]. */
    uint32_t *score_items;
    struct sampled *score_results;    /* [rows_max]: results of `scores`, by row. */
    struct engine_pooled *pooled;     /* [sequences_max]: rows of texts that get an embedding. */
    const struct sampling **sampling; /* [sequences_max]: sampling rules of each item. */
    uint32_t *output_limits;          /* [sequences_max]: most tokens of each item's answer. */
    uint32_t *indices; /* [sequences_max]: index in the answer of the first token of each item. */
    uint32_t *request_slots; /* [sequences_max]: slot of each item in the request tables. */
    /* [sequences_max]: owner of each item's blocks. Successive requests of a slot have different
     * owners. */
    kv_owner_id *owners;
    struct prompt_push *pushes; /* [sequences_max]: KV of each item that the stages push. */
};

struct machine {
    struct machine_options options;
    const struct config_machine *config_entry; /* The machine's entry in the config. */
    struct model_file *file; /* The model's file, while the machine opens; then NULL. */
    struct machine_shape shape;
    struct kv_arena arena;           /* Copy of shape.arena. */
    struct executor *executor;       /* Computes the batches and keeps the KV. */
    struct sched_paths prompt_paths; /* Gives the path of the next prompt. */
    struct sched_paths token_paths;  /* Gives the path of the next reservation. */
    struct transport *transport;
    struct energy energy;              /* Energy used by the host's CPUs, or the machine's GPU. */
    struct kv_pool *kv;                /* The block pool. */
    struct kv_prefix *prefix;          /* The prefix cache; NULL = off. */
    struct machine_prefixes *prefixes; /* Reports of the prefix cache; NULL = off. */
    struct machine_tiers *tiers;       /* Stored KV; NULL = off. */
    struct machine_draft *draft;       /* NULL = there is no draft model. */
    struct grammar_cache *grammars;    /* Compiled constraints of answers. */
    /* Messages RESERVE and PREFILL that wait for their constraint or their KV, in the order of
     * arrival. */
    struct machine_held *held_messages;
    size_t held_bytes; /* Bytes of the encoded messages in `held_messages`. */
    struct sched_machine *sched;
    struct sched_pace pace;               /* Compute times, from the batches so far. */
    struct sched_drafts drafts;           /* Times of steps, from the batches so far. */
    struct sched_pace_limits pace_limits; /* Limits of prompt tokens in a batch, in effect now. */
    uint32_t prompt_turn_us;              /* Length of the turn of the latest batch with prompts. */
    struct prompt_links *links;
    struct prompt_pool *prompt_pool; /* Requests whose prompts this machine computes. */
    struct token_pool *token_pool;   /* Requests whose answers this machine generates. */
    uint32_t batch_count;            /* Most batches in flight. */
    struct machine_batch *batches;   /* [batch_count], by the scheduler's batch slot. */
    /* The scheduler's next batch, before it is copied to `batches`. */
    struct sched_batch next_batch;
    /* epoll descriptor that watches the descriptors of the transport, the executor, the
     * constraints, the tiers and the draft model. */
    int epoll_fd;

    uint32_t gateway_count;
    struct machine_gateway gateways[MACHINE_GATEWAYS_MAX];
    struct machine_demand demand; /* Demand of all gateways. */
    /* The home pool of the ROLE with the highest serial; at first the home pool of the config. */
    enum pool home_pool;
    uint64_t home_serial; /* Serial of home_pool (message_role.serial); 0 = from the config. */
    struct doomed doomed; /* Peers to disconnect at the end of the round. */
    struct refusals refusals;
    struct message_buffer send_buffer; /* Encoding buffer for the message being sent. */

    int64_t weights_us;   /* When the weights were loaded. */
    int64_t now_us;       /* Current time, read at the start of each iteration and round. */
    uint32_t event_count; /* Events in this round; > 0 = the iteration needs one more round. */
    bool sends_queued;    /* Messages or writes were queued in this round. */
    bool stats_changed;   /* Statistics may have changed since they were sent last. */
    int64_t stats_due_us; /* Earliest time to send statistics. */
    /* When to send statistics although nothing else changed; INT64_MAX = never. */
    int64_t energy_due_us;
    /* When to call executor_ops.progress again at the latest; INT64_MAX = no limit. */
    int64_t executor_due_us;
    bool leaving;               /* machine_leave was called. */
    int64_t leave_by_us;        /* While leaving: when the machine stops at the latest. */
    bool stopping;              /* machine_stop was called. */
    int64_t stop_by_us;         /* While stopping: when the machine stops waiting for transfers. */
    struct message_stats stats; /* Counters of batches, their rows and their time. */
};

/* batch.c; open.c calls these functions. */
/* Allocates `batches` and sets batch_count. The caller calls machine_batch_close also after an
 * error. */
enum status machine_batch_open(struct machine *m);
/* Frees the memory of the batches. Requires that no batch is in flight. */
void machine_batch_close(struct machine *m);
/* Ends all batches in flight without results. Requires that the executor has stopped. */
void machine_batch_abandon(struct machine *m);

/* prefixes.c: reports of the prefix cache to gateways. */
/* Begins to record changes. Requires an empty prefix cache. Returns ST_NO_MEMORY on failure. */
enum status machine_prefixes_open(struct machine *m);
void machine_prefixes_close(struct machine *m);
/* Sends the changes since the previous call to each gateway, and all prefixes to a gateway that
 * does not know them. No effect if `prefixes` is NULL. */
void machine_prefixes_report(struct machine *m);

/* gateways.c */
/* Returns the connected gateway with this name; NULL = none. */
struct transport_peer *machine_gateway_named(struct machine *m, const char *name);
/* Adds a gateway that has connected; sends it LEAVING if the machine leaves. Returns false if there
 * are MACHINE_GATEWAYS_MAX already. */
bool machine_gateway_add(struct machine *m, struct transport_peer *peer);
/* Removes a gateway whose connection has ended. No effect if it was not added. */
void machine_gateway_remove(struct machine *m, struct transport_peer *peer);
/* Returns the gateway's index in `gateways`. Requires that the gateway was added. */
uint32_t machine_gateway_index(struct machine *m, const struct transport_peer *peer);
/* Handles the message ROLE of a gateway that was added. */
void machine_gateway_role(struct machine *m, const struct transport_peer *peer,
                          const struct message_role *role);
/* Handles SHUTDOWN of a gateway that was added: stops the machine; while the machine leaves, only
 * records that the gateway has no request left here (machine_leave_turn). */
void machine_gateway_shutdown(struct machine *m, const struct transport_peer *peer);
/* Stops a machine that leaves, if all connected gateways have sent SHUTDOWN and no prompt is left,
 * or if leave_by_us has passed. */
void machine_leave_turn(struct machine *m);
/* Adds prompt tokens and answers to the demand of the gateway and of the machine. Requires that the
 * gateway was added. */
void machine_gateway_demand_add(struct machine *m, const struct transport_peer *peer,
                                uint32_t prompt_tokens, uint32_t answers);
/* Sends STATS, and LOADS if there are stages, to all gateways. Sends ABOUT to each gateway once,
 * and OTHERS to each gateway whose OTHERS has changed. */
void machine_gateways_report(struct machine *m, const struct message_stats *stats);

/* held.c: requests whose constraint is not compiled yet, or whose KV is on its way. */
/* Holds back a RESERVE or PREFILL of a gateway until the request's constraint is compiled, its
 * stored KV is loaded, and a copy of its KV that another machine sends has arrived. The wait for
 * stored KV ends after kv/tiers/wait_ms at the latest, the wait for a copy when its link ends.
 * `data` is the encoded message. Returns false if the caller must handle the message now. All held
 * messages together have at most 64 MiB. If a message does not fit or memory is short, a request
 * whose constraint is not compiled is refused (returns true), and any other message is not held. */
bool machine_held_take(struct machine *m, struct transport_peer *gateway,
                       const struct message *message, const uint8_t *data, size_t bytes);
/* Calls machine_tiers_turn, and handles the held messages that can be handled now. */
void machine_held_turn(struct machine *m);
/* Forgets the held messages of a request. request NULL = forgets the held messages of all requests
 * of the gateway. */
void machine_held_cancel(struct machine *m, const struct message_request *request,
                         const struct transport_peer *gateway);
void machine_held_close(struct machine *m); /* Forgets all held messages. */

/* tiers.c, tier_loads.c, tier_staging.c: KV in tiers. machine_tiers_open opens nothing if the
 * config has no tiers, or if this machine cannot use tiers (the log says why). */
enum status machine_tiers_open(struct machine *m, struct error *error);
/* Ends all loading and storing. Requires that machine_held_close was called, and that the prefix
 * cache is still open. */
void machine_tiers_close(struct machine *m);
int machine_tiers_fd(const struct machine *m); /* -1 = none. */
/* Begins to load KV of the tokens into the prefix cache, if a tier may have KV that the cache does
 * not have. salt: salt of the tokens' chain in the prefix cache. The caller calls
 * machine_load_leave once for the result. Returns NULL if nothing is loaded. */
struct machine_load *machine_load_begin(struct machine *m, uint64_t salt, const uint32_t *tokens,
                                        uint32_t token_count);
/* Returns true if the request no longer waits for the load. NULL is fine. */
bool machine_load_ended(const struct machine_load *load);
/* The request no longer needs the load, which then ends early. NULL is fine. */
void machine_load_leave(struct machine_load *load);
/* Takes the tiers' results. Returns true if machine_load_ended may now return true for loads for
 * which it returned false before. */
bool machine_tiers_turn(struct machine *m);
/* Implements executor_calls.kv_copied. */
void machine_tiers_copied(void *self, uint32_t slot, enum status status);
/* Returns when machine_tiers_turn must be called at the latest; INT64_MAX = no limit. */
int64_t machine_tiers_due_us(const struct machine *m);
/* Returns 1 if loads hold blocks, which become available when the loads have ended; else 0. */
uint32_t machine_tiers_holder_count(const struct machine *m);
/* Sets the state and the figures of each tier in `stats`. */
void machine_tiers_stats_add(const struct machine *m, struct message_stats *stats);

/* draft.c */
/* Loads the draft model, if the machine has one. Requires that the executor is open. The caller
 * calls machine_draft_close also after an error. */
enum status machine_draft_open(struct machine *m, struct error *error);
/* Waits for the job that runs, and ends the draft model's engine. */
void machine_draft_stop(struct machine *m);
/* Frees the draft model, if there is one. Requires that the token pool is closed. */
void machine_draft_close(struct machine *m);
/* Returns the sizes for the token pool; all zeros = there is no draft model. */
struct token_draft_model machine_draft_sizes(const struct machine *m);
/* Returns how many floats a final vector for the draft layer has; 0 = there is no draft layer. */
uint32_t machine_draft_final_floats(const struct machine *m);
int machine_draft_fd(const struct machine *m); /* -1 = none. */
/* Starts the draft model's next job, if it has one. Returns true while a job runs: the caller then
 * starts no batch. Requires that no batch is in flight. */
bool machine_draft_turn(struct machine *m);
/* Allows the draft model's next job to catch up (token_drafts.h): to compute tokens of contexts
 * that the draft model has not computed yet. Call this function after the machine has started its
 * batches, or had none to start. */
void machine_draft_catch_up_allow(struct machine *m);
/* If the draft model's job is done, hands the generated tokens to the token pool. */
void machine_draft_progress(struct machine *m);

/* peers.c */
/* Handles a decoded message of a gateway that reached the machine at arrived_us. */
void machine_gateway_message(struct machine *m, struct transport_peer *peer,
                             const struct message *message, int64_t arrived_us);
/* Refuses a request: sends FAILED with the status and the text "machine NAME `text`". */
void machine_request_refuse(struct machine *m, struct transport_peer *gateway,
                            const struct message_request *request, enum status status,
                            const char *text);
/* Returns the functions that the transport calls. */
struct transport_events machine_transport_events(void);
/* Returns the functions that prompt_pool calls. */
struct prompt_pool_calls machine_prompt_calls(void);
/* Returns the functions that token_pool calls. */
struct token_pool_calls machine_token_calls(const struct machine *m);
/* Encodes and queues a message. If the peer's queue is full, the peer is put into `doomed`. If the
 * message cannot be encoded or is too large, the function only logs this. */
void machine_send(void *self, struct transport_peer *peer, const struct message *message);
/* Disconnects the peers in `doomed`. Must not be called from a callback of the transport. */
void machine_peers_drop(struct machine *m);

/* targets.c: passes calls on between prompt_links, the request tables and the executor. Each
 * function implements a function pointer of these parts, whose header describes the call. */
/* prompt_links_options.link_asked, link_changed, link_measured, peer_lost, target_prepare and
 * target_drop. */
void machine_link_send(void *self, const struct message_link *link);
void machine_link_report(void *self, const struct message_link *link);
void machine_link_measured(void *self, const struct message_link *link);
void machine_link_lost(void *self, struct transport_peer *peer, const char *text);
void machine_target_prepare(void *self, uint32_t target, const struct message_peer *machine,
                            struct transport_peer *peer, const struct message_stages *stages);
void machine_target_drop(void *self, uint32_t target);
/* executor_calls.target_changed. */
void machine_target_link(void *self, uint32_t target, bool up, const char *text);
/* executor_calls.target_flushed. */
void machine_target_flushed(void *self, uint64_t cookie, enum status status);
/* executor_calls.writer_changed. */
void machine_target_writer(void *self, uint32_t stage, const struct stage_writer *writer);
/* executor_calls.kv_await_known. */
void machine_target_awaited(void *self, uint64_t cookie);
/* token_pool_calls.await_changed of a machine with stages. */
void machine_target_await(void *self, const struct token_await *await, bool has_ended);
/* prompt_pool_calls.push, copy and flush. */
enum status machine_target_push(void *self, struct kv_push *push, uint32_t layer_end);
enum status machine_target_copy(void *self, uint32_t own_path, const struct kv_push *push,
                                uint64_t cookie);
void machine_target_flush(void *self, uint32_t own_path, uint32_t target, uint32_t path,
                          uint64_t cookie, bool requested);
/* Sends STAGES to a machine that writes KV: which processes of this machine have which layers. */
void machine_layout_send(struct machine *m, struct transport_peer *writer);

/* batch.c. Gives KV memory to waiting requests. Then starts the next job of the draft model, or the
 * batches that the executor can take. If machines may be waiting for each other in a circle, gives
 * up one request (token_pool_deadlock_break). */
void machine_batch_start(struct machine *m);
/* If a prompt in a batch was stopped since the previous call: ends the oldest batch of each path
 * early, if all its items are stopped prompts and the executor can do so. */
void machine_batch_abandon_unwanted(struct machine *m);
bool machine_batch_in_flight(const struct machine *m);
/* Returns the length of the turn of a batch on cores that machines share, in microseconds. prompts:
 * the batch contains prompt chunks. */
uint32_t machine_turn_us(const struct machine *m, bool prompts);
/* Implements executor_calls.batch_done. */
void machine_batch_done(void *self, uint32_t slot);
/* Implements executor_calls.layers_computed. */
void machine_batch_layers(void *self, uint32_t layers);

#endif
