/* gateway_internal: private to the gateway's files. gateway.c: the request table and the iteration.
 * gateway_versions.c: the served models. gateway_schedule.c: the schedulers. gateway_machines.c:
 * connections. gateway_operate.c: changes by an operator. gateway_others.c: the load of other
 * gateways on the same machines. gateway_handover.c: hand-overs of draining machines.
 * gateway_requests.c: a request after it has been routed. gateway_events.c: the event log.
 * gateway_state.c: the state as JSON.
 *
 * Nothing here recurses: work that must not happen inside a callback (asking the scheduler again,
 * dropping a connection, calling `ended`) is queued, and gateway_turn does it. Requests are queued
 * on one of two lists (arriving, ending); machines are marked (`broken`). */
#ifndef SERVER_GATEWAY_INTERNAL_H
#define SERVER_GATEWAY_INTERNAL_H

#include "common/log.h"
#include "common/machine_bits.h"
#include "scheduler/cluster.h"
#include "scheduler/rates.h"
#include "scheduler/request.h"
#include "server/event_text.h"
#include "server/gateway.h"
#include "server/metrics.h"
#include "transport/transport.h"

#include <assert.h>

/* Weight with which a loss counts against the request that was lost: the request may have killed a
 * machine that died, but hardly broke a link or silenced a machine. A request ends when the sum of
 * consecutive losses, without a token in between, reaches GATEWAY_SUSPECT_MAX. */
#define GATEWAY_SUSPECT_DEATH 8
#define GATEWAY_SUSPECT_LINK  1
#define GATEWAY_SUSPECT_MAX   64
/* Most tokens that may overtake the first one, because they arrive over another connection. */
#define GATEWAY_EARLY_MAX      512
#define GATEWAY_RETRY_FIRST_US 50000
#define GATEWAY_RETRY_MAX_US   2000000

enum gateway_list_id { LIST_NONE, LIST_ARRIVING, LIST_ENDING };

struct gateway_list {
    struct gateway_request *first;
    struct gateway_request *last;
};

/* A served model. Each version has its own scheduler, which knows only its machines and requests,
 * so no pair can mix versions. */
struct gateway_version {
    uint32_t number; /* From 1; 0 = this entry is free. */
    struct sched_cluster *scheduler;
    uint64_t metadata_hash;
    uint64_t model_hash;     /* As its machines report; 0 = none has connected yet. */
    uint32_t context_tokens; /* The model's context, or the config's limit if that is less. */
    struct config_kv kv;     /* KV settings of its machines. */
    uint32_t open_count;     /* Open requests. */
    uint64_t total;
};

struct gateway_request {
    uint64_t id; /* 0 = the slot is free. request_id_next describes its parts. */
    struct gateway_version *version;
    uint32_t generation;
    struct request_life life;
    struct gateway_client client;
    struct message_sampling sampling; /* As submitted. */
    bool score_prompt;
    uint8_t kv_path;
    uint32_t key; /* key, key_hash, weight and priority are for the schedulers. */
    uint64_t key_hash;
    uint32_t weight;
    int32_t priority;

    /* The prompt, then the delivered tokens: together the prompt of a resumed generation. */
    uint32_t *tokens;
    uint32_t prompt_count;
    uint32_t delivered;   /* Tokens of the answer that the client got. */
    uint32_t base;        /* `delivered` when this generation began: its index 0. */
    uint32_t scored_next; /* Next prompt position whose score is wanted. */
    uint32_t losses;      /* Consecutive losses since a token was delivered. */
    uint32_t suspicion;   /* Sum of GATEWAY_SUSPECT_* of these losses. */
    uint32_t preemptions; /* How often a machine preempted it. */
    /* Machine that had its KV before this generation; NULL = none. */
    struct fleet_machine *held_machine;

    bool scheduled;    /* The scheduler knows it. */
    bool reserve_sent; /* RESERVE of this generation was sent. */
    bool prefill_sent;
    bool prefilled;
    struct fleet_machine *prompt_machine; /* Routed to; NULL = none. */
    struct fleet_machine *token_machine;

    /* [GATEWAY_EARLY_MAX]: tokens that overtook the first one; allocated at need. */
    struct message_token *early;
    uint32_t early_count;

    int64_t reserve_us; /* When RESERVE was sent. */
    int64_t first_us;   /* When the first token was delivered; -1 = not yet. */
    int64_t last_us;    /* When the latest token was delivered. */
    uint8_t finish;     /* enum message_finish of the latest token. */

    enum gateway_list_id list;
    struct gateway_request *before;
    struct gateway_request *after;
    enum gateway_end end;
    uint32_t retry_after_s;
    char end_text[256];
};

struct gateway {
    struct gateway_options options;
    struct fleet *fleet;
    struct transport *transport;
    struct gateway_version versions[GATEWAY_VERSIONS];
    struct gateway_version *current; /* Version of new requests. */
    struct message_buffer buffer;
    struct event_log *events; /* NULL = none. */
    struct text event_line;
    bool events_warned;
    char note[256];              /* Set by gateway_note_set. */
    char update_note[400];       /* Set by gateway_update_note_set. */
    char name[LIMIT_NAME_BYTES]; /* Unique among gateways. */
    uint32_t led_elsewhere;      /* Machines on which another gateway leads. */
    uint64_t id_tag;             /* Upper 32 bits of every id; also part of the name. */
    uint64_t id_counter;         /* Requests ever opened. */
    /* A message was sent since this iteration's first transport_progress. */
    bool sent;
    bool broken; /* Some machine is `broken`. */
    bool stopping;
    int64_t machines_due_us;  /* When the connections must be checked next; 0 = now. */
    uint64_t prompts_waiting; /* On machines, by their latest STATS. */
    uint32_t open_count;
    int64_t handover_at_us; /* Earliest time of the next hand-over check. */
    uint64_t resumed_count;
    /* Requests that the scheduler reports as lost now were lost because a machine died. */
    bool dying;
    uint32_t begun_count; /* Open requests for which PREFILL was sent. */
    uint32_t free_count;
    struct gateway_list arriving;
    struct gateway_list ending;
    struct gateway_request requests[LIMIT_CLUSTER_REQUESTS];
    uint32_t free_slots[LIMIT_CLUSTER_REQUESTS];
};

static inline int64_t gateway_now(const struct gateway *g)
{
    return clock_now_us(g->options.clock);
}

static inline uint32_t request_slot(const struct gateway *g, const struct gateway_request *r)
{
    return (uint32_t)(r - g->requests);
}

/* ---- gateway.c ---- */

/* Returns the open request with that id; NULL = none. */
struct gateway_request *gateway_request_find(struct gateway *g, uint64_t id);
void gateway_list_add(struct gateway *g, struct gateway_request *r, enum gateway_list_id list);
void gateway_list_remove(struct gateway *g, struct gateway_request *r);
/* Queues the end of a request; the iteration calls `ended`. Requires that its machines have been
 * told. */
void gateway_request_end(struct gateway *g, struct gateway_request *r, enum gateway_end end,
                         uint32_t retry_after_s, const char *text);
/* Removes the request from the scheduler, if it is there. */
void gateway_request_unschedule(struct gateway *g, struct gateway_request *r);

/* ---- gateway_versions.c ---- */

/* Returns the version with that number (GATEWAY_CURRENT = the current one). Requires that it is
 * open. */
struct gateway_version *gateway_version_at(const struct gateway *g, uint32_t number);
/* Opens the first version; closes all versions. */
enum status gateway_versions_open(struct gateway *g, struct error *error);
void gateway_versions_close(struct gateway *g);
/* Returns the version of a machine that has just connected; NULL = no version matches, and m->why
 * says why. */
struct gateway_version *gateway_version_of(struct gateway *g, struct fleet_machine *m,
                                           const struct transport_identity *identity);
/* Changes the machine's version. Requires that it is not up. */
void gateway_machine_version_change(struct gateway *g, struct fleet_machine *m,
                                    struct gateway_version *version);

/* ---- gateway_schedule.c ---- */

/* Returns the scheduler's options (scheduler/options.h) for a version's machines. */
struct sched_cluster_options gateway_sched_options(const struct gateway *g,
                                                   const struct gateway_version *version);
/* Gives the event to the version's scheduler and carries out the actions. */
void gateway_schedule(struct gateway *g, const struct gateway_version *version,
                      const struct sched_event *event);
/* Carries out the actions, and asks the scheduler for further ones until there are none. */
void gateway_actions_do(struct gateway *g, const struct gateway_version *version,
                        struct sched_actions *actions, int64_t now_us);
/* Schedules the arrived requests. Returns when the scheduler needs SCHED_TICK; INT64_MAX = never.
 */
int64_t gateway_schedule_turn(struct gateway *g, int64_t now_us);
/* Updates the machine's rates. `stats` are the statistics that follow m->stats. */
void gateway_machine_rates(struct gateway *g, struct fleet_machine *m,
                           const struct message_stats *stats);

/* Passes the machine's report on its prefix cache to the scheduler. */
void gateway_machine_prefixes(struct gateway *g, const struct fleet_machine *m,
                              const struct message_prefixes *prefixes);

/* Gives the schedulers the options that follow from the config and from which gateway leads. */
void gateway_scheduler_configure(struct gateway *g);

/* ---- gateway_others.c ---- */

/* True unless another gateway is known to lead, that is, to change home pools for the demand. */
bool gateway_leads(const struct gateway *g);
void gateway_machine_others(struct gateway *g, struct fleet_machine *m,
                            const struct message_others *others);
/* Forgets the other gateways on a machine whose connection is gone. */
void gateway_machine_others_gone(struct gateway *g, struct fleet_machine *m);

/* ---- gateway_handover.c ---- */

/* Hands over answers of draining machines. Returns the time of the next check; INT64_MAX = none. */
int64_t gateway_handover_turn(struct gateway *g, int64_t now_us);

/* ---- gateway_machines.c ---- */

extern const struct transport_events gateway_transport_events;
/* Drops broken connections and starts those that are due. Returns when the next one is due;
 * INT64_MAX = none. */
int64_t gateway_machines_turn(struct gateway *g, int64_t now_us);
/* Encodes and sends the message. A failure marks the machine broken; its requests are then lost. */
void gateway_machine_send(struct gateway *g, struct fleet_machine *m,
                          const struct message *message);
/* Sends the machine its current and home pool. */
void gateway_machine_role_send(struct gateway *g, struct fleet_machine *m);
/* Sends PEER messages to the machine and to others: which machines should be able to write KV to
 * which. */
void gateway_machine_peers_send(struct gateway *g, struct fleet_machine *m);
/* Drops the connection, if there is one, with this reason. */
void gateway_machine_drop(struct gateway *g, struct fleet_machine *m, const char *why);
/* Tells the other machines to drop their links to this machine. */
void gateway_machine_links_forget(struct gateway *g, const struct fleet_machine *m);

/* ---- gateway_events.c ---- */

/* These functions do nothing without an event log. `event` NULL = more actions of the previous
 * event. */
void gateway_event(struct gateway *g, const struct gateway_version *version, int64_t now_us,
                   const struct sched_event *event, const struct sched_actions *actions);
void gateway_event_configure(struct gateway *g, const struct gateway_version *version,
                             int64_t now_us, const struct sched_cluster_options *options,
                             const struct sched_actions *actions);
void gateway_event_version(struct gateway *g, const struct gateway_version *version);
void gateway_event_version_gone(struct gateway *g, const struct gateway_version *version);
void gateway_event_machine(struct gateway *g, const struct fleet_machine *m);
/* Updates the counters for /metrics, and warns once when lines are lost. */
void gateway_events_turn(struct gateway *g);

/* ---- gateway_requests.c ---- */

void gateway_request_route(struct gateway *g, struct gateway_request *r,
                           struct fleet_machine *prompt_machine,
                           struct fleet_machine *token_machine);
void gateway_request_reserved(struct gateway *g, const struct fleet_machine *machine,
                              const struct message_reserved *m);
void gateway_request_tokens(struct gateway *g, const struct fleet_machine *machine,
                            struct message_tokens *tokens);
void gateway_request_prefilled(struct gateway *g, const struct fleet_machine *machine,
                               const struct message_prefilled *m);
void gateway_request_failed(struct gateway *g, const struct fleet_machine *machine,
                            const struct message_failed *m);
void gateway_request_preempted(struct gateway *g, struct fleet_machine *machine,
                               const struct message_preempted *m);
/* Moves the request to another token machine; its present token machine computes the rest of the
 * prompt from the KV that it has. */
void gateway_request_hand_over(struct gateway *g, struct gateway_request *r);
/* Handles the loss of this generation: cancels what is left of it, then queues the next generation
 * or ends the request. */
void gateway_request_resume(struct gateway *g, struct gateway_request *r, uint32_t suspicion,
                            const char *why);
/* Cancels this generation on its machines. */
void gateway_request_cancel(struct gateway *g, struct gateway_request *r);
/* Tokens that a token machine has to generate; 0 = no token machine is needed. */
uint32_t gateway_request_decodes(const struct gateway_request *r);

#endif
