/* gateway_internal: what the gateway's files share. gateway.c owns the table of requests and the
 * turn; gateway_versions.c the models that are served; gateway_schedule.c drives the schedulers;
 * gateway_machines.c has the connections; gateway_others.c what other gateways have on the same
 * machines; gateway_requests.c a request's life after it has been routed.
 *
 * Nothing here recurses: what must not happen inside a callback (asking the scheduler again,
 * dropping a connection, calling `ended`) is queued, and the turn does it. Requests are queued on
 * one of two lists (arriving, ending); machines are marked (`broken`). */
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

/* How much a loss says against the request that was lost: a machine that dies may have died of it,
 * a link that breaks or a machine that falls silent hardly. Ended when it is too much in a row,
 * without a token in between. */
#define GATEWAY_SUSPECT_DEATH 8
#define GATEWAY_SUSPECT_LINK  1
#define GATEWAY_SUSPECT_MAX   64
#define GATEWAY_EARLY_MAX                                                                          \
    512 /* tokens that may overtake the first one (they come over another connection) */
#define GATEWAY_RETRY_FIRST_US 50000
#define GATEWAY_RETRY_MAX_US   2000000
/* A machine with so many pending tokens, or with so many times what its KV memory holds, gets no
 * more: they wait here, where they can still go to any, and where queue_requests_max counts them.
 * Enough to keep its memory full and the next requests at hand; few enough for its table of
 * requests. */
#define GATEWAY_MACHINE_KV_MULTIPLE 2
#define GATEWAY_MACHINE_TOKENS_MAX  LIMIT_CONTEXT_TOKENS

enum gateway_list_id { LIST_NONE, LIST_ARRIVING, LIST_ENDING };

struct gateway_list {
    struct gateway_request *first;
    struct gateway_request *last;
};

/* One model that is served. Each has a scheduler of its own, which knows its machines and requests
 * only: so no pair can mix versions, and nobody does another version's work. */
struct gateway_version {
    uint32_t number; /* from 1 on; 0: this place is free */
    struct sched_cluster *scheduler;
    uint64_t metadata_hash;
    uint64_t model_hash;     /* as its machines say; 0: none was here yet */
    uint32_t context_tokens; /* the model's, or what the config allows of them */
    struct config_kv kv;     /* of its machines */
    uint32_t open_count;     /* requests */
    uint64_t total;
};

struct gateway_request {
    uint64_t id; /* 0: the slot is free. See request_id_next for its parts */
    struct gateway_version *version;
    uint32_t generation;
    struct request_life life;
    struct gateway_client client;
    struct message_sampling sampling; /* as submitted */
    bool score_prompt;
    uint8_t kv_path;
    uint32_t key; /* these four are for the schedulers */
    uint64_t key_hash;
    uint32_t weight;
    int32_t priority;

    uint32_t *tokens; /* the prompt, then what was delivered: the prompt of a resumed generation */
    uint32_t prompt_count;
    uint32_t delivered;    /* tokens of the answer */
    uint32_t base;         /* delivered when this generation began: its index 0 */
    uint32_t scored_next;  /* the next prompt position whose score is wanted */
    uint32_t losses;       /* in a row: since a token was delivered */
    uint32_t suspicion;    /* of these (GATEWAY_SUSPECT_*) */
    uint32_t preemptions;  /* a machine was short of memory for it */
    uint32_t held_machine; /* a machine that had its KV before this generation, or
                              SCHED_NO_MACHINE */

    bool scheduled;    /* the scheduler knows it */
    bool reserve_sent; /* of this generation */
    bool prefill_sent;
    bool prefilled;
    uint32_t prompt_machine; /* routed to, or SCHED_NO_MACHINE */
    uint32_t token_machine;

    struct message_token *early; /* GATEWAY_EARLY_MAX of them, taken only when a token overtakes */
    uint32_t early_count;

    int64_t reserve_us; /* when RESERVE was sent */
    int64_t first_us;   /* when the first token was delivered; -1: not yet */
    int64_t last_us;    /* when the last one was */
    uint8_t finish;     /* enum message_finish of the last token */

    enum gateway_list_id list;
    struct gateway_request *before;
    struct gateway_request *after;
    enum gateway_end end;
    uint32_t retry_after_s;
    char end_text[256];
};

enum connection_state {
    CONNECTION_NONE,    /* no address */
    CONNECTION_WAITING, /* until retry_us */
    CONNECTION_TRYING,
    CONNECTION_UP,
};

struct gateway_machine {
    struct gateway *gateway;
    uint32_t index;
    struct gateway_version *version; /* of its latest connection, or that it will have */
    bool version_set;                /* it is of this one, whatever it says */
    enum connection_state connection;
    bool broken; /* a send failed, or it broke the protocol: the turn drops the connection */
    char address[LIMIT_ADDRESS_BYTES];
    struct transport_peer *peer; /* while TRYING or UP */
    int64_t retry_us;
    int64_t backoff_us;
    uint64_t kv_tokens;   /* of its latest connection */
    bool named;           /* the config has it, and said its home */
    enum sched_pool home; /* as the config or the scheduler said last */
    enum sched_pool pool; /* where it is */
    struct sched_rates rates;
    char why[256];       /* why it is not up */
    char complaint[256]; /* of `why`, what the log has: a machine that stays away is told once */
    bool draining;
    struct machine_bits links; /* machines that it can push KV to */
    char link_why[320];        /* which of its links failed last and why, until one comes up */
    struct message_stats stats;
    struct message_others others; /* gateways 0: it has not said yet */
    bool led_elsewhere;           /* of the gateways that are connected there, another one leads */
    uint64_t home_serial;         /* of `home`; 0: it is the config's */
};

struct gateway {
    struct gateway_options options;
    struct transport *transport;
    struct gateway_version versions[GATEWAY_VERSIONS];
    struct gateway_version *current; /* of new requests */
    struct message_buffer buffer;
    struct event_log *events; /* NULL: none */
    struct text event_line;
    bool events_warned;
    char note[256];              /* gateway_note_set */
    char update_note[400];       /* gateway_update_note_set */
    char name[LIMIT_NAME_BYTES]; /* no other gateway has it */
    uint32_t led_elsewhere;      /* machines where another gateway leads */
    uint64_t id_tag;             /* in the upper 32 bits of every id, and in the name */
    uint64_t id_counter;         /* requests ever opened */
    bool sent;                   /* something was, since this turn's first transport_progress */
    bool broken;                 /* some machine is */
    bool stopping;
    int64_t machines_due_us;  /* when the connections want to be looked at; 0: now */
    uint64_t prompts_waiting; /* on machines, as STATS said last */
    uint32_t open_count;
    uint32_t draining_count; /* machines */
    int64_t handover_at_us;  /* not before */
    uint64_t resumed_count;
    bool dying;           /* what the scheduler says is lost, is lost because a machine died */
    uint32_t begun_count; /* of those, PREFILL was sent */
    uint32_t free_count;
    struct gateway_list arriving;
    struct gateway_list ending;
    struct gateway_machine machines[LIMIT_MACHINES];
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

/* The open request of that id, or NULL. */
struct gateway_request *gateway_request_find(struct gateway *g, uint64_t id);
void gateway_list_add(struct gateway *g, struct gateway_request *r, enum gateway_list_id list);
void gateway_list_remove(struct gateway *g, struct gateway_request *r);
/* Queues the end: `ended` is called by the turn. Its machines must have been told already. */
void gateway_request_end(struct gateway *g, struct gateway_request *r, enum gateway_end end,
                         uint32_t retry_after_s, const char *text);
/* Takes the request out of the scheduler, if it is there. */
void gateway_request_unschedule(struct gateway *g, struct gateway_request *r);

/* ---- gateway_versions.c ---- */

/* That number, which is there; GATEWAY_CURRENT: the current one. */
struct gateway_version *gateway_version_at(const struct gateway *g, uint32_t number);
/* The first version, at the start; all of them, at the end. */
enum status gateway_versions_open(struct gateway *g, struct error *error);
void gateway_versions_close(struct gateway *g);
/* The version of a machine that has just come up, or NULL: none that we have; m->why says it. */
struct gateway_version *gateway_version_of(struct gateway *g, struct gateway_machine *m,
                                           const struct transport_identity *identity);
/* The machine, which is not up, is of that version from now on. */
void gateway_machine_version_change(struct gateway *g, struct gateway_machine *m,
                                    struct gateway_version *version);

/* ---- gateway_schedule.c ---- */

/* What the config says to the scheduler. */
struct sched_cluster_options gateway_sched_options(const struct gateway *g,
                                                   const struct gateway_version *version);
/* Tells the version's scheduler and does what it says. */
void gateway_schedule(struct gateway *g, const struct gateway_version *version,
                      const struct sched_event *event);
/* Does what the scheduler has said, and asks for the rest of it. */
void gateway_actions_do(struct gateway *g, const struct gateway_version *version,
                        struct sched_actions *actions, int64_t now_us);
/* Schedules what has arrived. Returns when the scheduler wants to hear the time, or INT64_MAX. */
int64_t gateway_schedule_turn(struct gateway *g, int64_t now_us);
/* `stats` are the machine's next ones, after m->stats. */
void gateway_machine_rates(struct gateway *g, struct gateway_machine *m,
                           const struct message_stats *stats);

/* What the machine says of its prefix cache. */
void gateway_machine_prefixes(struct gateway *g, const struct gateway_machine *m,
                              const struct message_prefixes *prefixes);

/* The scheduler's options are those of the config, and of who leads. */
void gateway_scheduler_configure(struct gateway *g);

/* ---- gateway_others.c ---- */

/* True while no other gateway is known to change homes for the demand. */
bool gateway_leads(const struct gateway *g);
void gateway_machine_others(struct gateway *g, struct gateway_machine *m,
                            const struct message_others *others);
/* Its connection is gone. */
void gateway_machine_others_gone(struct gateway *g, struct gateway_machine *m);

/* ---- gateway_handover.c ---- */

/* Hands over what machines that drain are generating. Returns when to look again, or INT64_MAX. */
int64_t gateway_handover_turn(struct gateway *g, int64_t now_us);

/* ---- gateway_machines.c ---- */

extern const struct transport_events gateway_transport_events;
/* Drops broken connections, begins those that are due. Returns when the next is due, or INT64_MAX.
 */
int64_t gateway_machines_turn(struct gateway *g, int64_t now_us);
/* Sends what is in g->buffer. A failure marks the machine broken; the loss of its requests follows.
 */
void gateway_machine_send(struct gateway *g, uint32_t machine, const struct message *message);
static inline bool gateway_machine_is_up(const struct gateway *g, uint32_t machine)
{
    return machine < LIMIT_MACHINES && g->machines[machine].connection == CONNECTION_UP;
}
/* The machine's home is what the config says. */
void gateway_machine_home_read(struct gateway *g, uint32_t machine);
/* Tells the machine in which pool it is. */
void gateway_machine_role_tell(struct gateway *g, uint32_t machine);
/* Tells it, and others, who should be able to push KV to whom. */
void gateway_machine_peers_tell(struct gateway *g, uint32_t machine);
const char *gateway_machine_name(const struct gateway *g, uint32_t machine);
/* Drops the connection, if there is one, for this reason. */
void gateway_machine_drop(struct gateway *g, struct gateway_machine *m, const char *why);
/* The others can push no KV there, and need not try. */
void gateway_machine_links_forget(struct gateway *g, uint32_t machine);

/* ---- gateway_events.c ---- */

/* All of these do nothing where there is no event log. `event` NULL: more actions of the last one.
 */
void gateway_event(struct gateway *g, const struct gateway_version *version, int64_t now_us,
                   const struct sched_event *event, const struct sched_actions *actions);
void gateway_event_configure(struct gateway *g, const struct gateway_version *version,
                             int64_t now_us, const struct sched_cluster_options *options,
                             const struct sched_actions *actions);
void gateway_event_version(struct gateway *g, const struct gateway_version *version);
void gateway_event_version_gone(struct gateway *g, const struct gateway_version *version);
void gateway_event_machine(struct gateway *g, uint32_t machine);
/* Its counters for /metrics; warns once when it loses lines. */
void gateway_events_turn(struct gateway *g);

/* ---- gateway_requests.c ---- */

void gateway_request_route(struct gateway *g, struct gateway_request *r, uint32_t prompt_machine,
                           uint32_t token_machine);
void gateway_request_reserved(struct gateway *g, uint32_t machine,
                              const struct message_reserved *m);
void gateway_request_tokens(struct gateway *g, uint32_t machine, struct message_tokens *tokens);
void gateway_request_prefilled(struct gateway *g, uint32_t machine,
                               const struct message_prefilled *m);
void gateway_request_failed(struct gateway *g, uint32_t machine, const struct message_failed *m);
void gateway_request_preempted(struct gateway *g, uint32_t machine,
                               const struct message_preempted *m);
/* It goes on elsewhere, with the KV that its token machine keeps of it. */
void gateway_request_hand_over(struct gateway *g, struct gateway_request *r);
/* This generation is lost: cancels what is left of it and queues the next one, or ends the request.
 */
void gateway_request_resume(struct gateway *g, struct gateway_request *r, uint32_t suspicion,
                            const char *why);
/* Tells the machines of this generation that nobody wants it any more. */
void gateway_request_cancel(struct gateway *g, struct gateway_request *r);
/* What is left to generate; 0 when no token machine is needed. */
uint32_t gateway_request_decodes(const struct gateway_request *r);

#endif
