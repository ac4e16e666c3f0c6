/* gateway_internal: the structs and functions that the files of the router share. The router is one
 * of the gateway's three parts. It owns the schedulers, gives events to them, and carries out their
 * actions. It does not choose machines: the schedulers do. Everything runs on the gateway's event
 * loop thread.
 *
 * A part calls the parts to its right in this drawing. It reports to the left through function
 * pointers given at open. Exception: requests.c calls request_checkpoint_end (checkpoints.h).
 *
 *   router (struct gateway) ─► requests (requests.h) ─► connections (connections.h)
 *
 * The files of the router; a file calls files in the rows below it:
 *
 *   gateway.c (opening, iteration), state.c (the state as JSON)
 *   handover.c (drains), headroom.c (how much more traffic the SLO allows)
 *   machines.c (machines that come up, go down and report)
 *   operate.c (changes by an operator)
 *   versions.c (models), others.c (other gateways), checkpoints.c (copies of running answers)
 *   schedule.c (the schedulers)
 *   health.c (what can be served)
 *   peers.c (the machines' pools and links), events.c (the event log) */
#ifndef SERVER_GATEWAY_INTERNAL_H
#define SERVER_GATEWAY_INTERNAL_H

#include "common/line_ring.h"
#include "common/log.h"
#include "events/event_text.h"
#include "scheduler/cluster/cluster.h"
#include "scheduler/headroom.h"
#include "server/gateway/gateway.h"
#include "server/gateway/requests.h"

#include <assert.h>

/* A served model, with its own scheduler, which knows only the version's machines and requests. */
struct gateway_version {
    uint32_t number; /* From 1; 0 = this record is free. */
    struct sched_cluster *scheduler;
    uint64_t metadata_hash;   /* model_file_metadata_hash of the model. */
    struct digest model_hash; /* Hash of the weights, reported by a machine; all zeros = unknown. */
    uint32_t context_tokens; /* The model's context or, if less, the config's limit; 0 = unknown. */
    struct layer_groups groups;
    struct config_kv kv; /* KV settings of the version's machines. */
};

/* How much more traffic the SLO allows (scheduler/headroom.h). When a search has ended, the next
 * search begins later. */
struct gateway_headroom {
    bool searching;                /* A search has begun and has not ended. */
    bool has_result;               /* `result` is set, and the latest search found traffic. */
    struct headroom_result result; /* Result of the latest search that has ended. */
    int64_t due_us;                /* Earliest time of the next step, or of the next search. */
    struct headroom search;        /* The search's input and progress. */
};

struct gateway {
    struct gateway_options options;
    struct fleet *fleet;
    struct connections *connections;
    struct requests *requests;
    struct gateway_version versions[GATEWAY_VERSIONS];
    struct gateway_version *current; /* Version of new requests. */
    struct event_log *event_log;     /* NULL = none. */
    struct line_ring *event_ring;    /* Latest lines about requests and machines (events.c). */
    struct history *history;         /* The latest requests. */
    struct text event_line;          /* Line that events.c is writing. */
    bool events_warned;              /* A warning about lost lines of event_log was logged. */
    struct gateway_headroom headroom;
    char health_note[256];                 /* Set by gateway_note_set. */
    char health_update_note[400];          /* Set by gateway_update_note_set. */
    char name[LIMIT_NAME_BYTES];           /* Unique among gateways. */
    uint32_t led_elsewhere_count;          /* Machines that report another gateway as the leader. */
    struct gateway_share key_limits_share; /* Latest result of gateway_share. */
    /* Time since which the machines report fewer gateways than key_limits_share.gateways; -1 = they
     * do not. */
    int64_t fewer_since_us;
    uint64_t prompts_waiting; /* Sum of prompts_waiting in the machines' latest STATS. */
    int64_t checkpoint_at_us; /* Time of the next check for due copies; INT64_MAX = none. */
    int64_t handover_at_us;   /* Earliest time of the next hand-over check. */
    /* Earliest time of the next check whether requests in GATEWAY_REQUEST_RESERVING have waited for
     * scheduler/queue_ms. */
    int64_t reserving_at_us;
    /* While a scheduler handles the end of a machine's connection: this machine, unless it fell
     * silent (the argument `dead` of requests_lose). NULL at all other times. */
    const struct fleet_machine *dead_machine;
};

static inline int64_t gateway_now(const struct gateway *g)
{
    return clock_now_us(g->options.clock);
}

static inline const struct gateway_version *gateway_request_version(const struct gateway *g,
                                                                    const struct gateway_request *r)
{
    return &g->versions[r->version_index];
}

/* Returns the version with this number, which must be open, or be GATEWAY_CURRENT. */
static inline struct gateway_version *gateway_version_at(const struct gateway *g, uint32_t number)
{
    if (number == GATEWAY_CURRENT)
        return g->current;
    for (uint32_t i = 0; i < GATEWAY_VERSIONS; i++)
        if (g->versions[i].number == number)
            return (struct gateway_version *)&g->versions[i];
    assert(false && "a version that is open");
    return NULL;
}

/* Returns true unless a machine reports that another gateway leads. Of several gateways, only the
 * leader changes home pools when the demand changes. */
static inline bool gateway_leads(const struct gateway *g)
{
    return g->led_elsewhere_count == 0;
}

/* ---- versions.c ---- */

/* Opens the first version, which becomes the current one. Returns ST_NO_MEMORY or ST_INVALID. */
enum status gateway_versions_open(struct gateway *g, struct error *error);
void gateway_versions_close(struct gateway *g); /* Closes all versions. */
/* Returns the version whose model the connecting machine has, and stores the machine's model hash
 * in the version. NULL = no version matches; m->connection.down_reason says why. */
struct gateway_version *gateway_version_match(struct gateway *g, struct fleet_machine *m,
                                              const struct transport_identity *identity);
/* Changes the machine's version. Requires that the machine is not up. */
void gateway_machine_version_change(struct gateway *g, struct fleet_machine *m,
                                    struct gateway_version *version);

/* ---- schedule.c ---- */

/* Returns the options of the version's scheduler (scheduler/options.h). */
struct sched_cluster_options gateway_sched_options(const struct gateway *g,
                                                   const struct gateway_version *version);
/* Gives the event to the version's scheduler and carries out the scheduler's actions. */
void gateway_schedule(struct gateway *g, const struct gateway_version *version,
                      const struct sched_event *event);
extern const struct requests_events gateway_requests_events; /* For requests_open. */
/* Gives the schedulers the events that are due: arrived requests, SCHED_OVERDUE and SCHED_TICK.
 * Returns the time of the next call; INT64_MAX = none. */
int64_t gateway_schedule_turn(struct gateway *g, int64_t now_us);
/* Reports to the scheduler the machine's speed and changes of its tiers. stats: the new STATS;
 * m->stats must still be the previous STATS. */
void gateway_machine_rates(struct gateway *g, struct fleet_machine *m,
                           const struct message_stats *stats);

/* Returns the number of tokens whose KV has this many bytes. Requires that the machine is up. */
uint64_t gateway_kv_tokens(const struct fleet_machine *m, uint64_t bytes);

/* Passes the machine's report on its prefix cache to the scheduler, if the policy uses prefixes. */
void gateway_machine_prefixes(struct gateway *g, const struct fleet_machine *m,
                              const struct message_prefixes *prefixes);

/* Returns the number of requests in the queues of the schedulers. */
uint32_t gateway_waiting_count(const struct gateway *g);
/* Gives the schedulers the options that follow from the config and from gateway_leads. */
void gateway_scheduler_configure(struct gateway *g);

/* ---- others.c ---- */

/* Handles OTHERS: the machine's load by other gateways, its home pool, and which gateway leads. */
void gateway_machine_others(struct gateway *g, struct fleet_machine *m,
                            const struct message_others *others);
/* Forgets the latest OTHERS of a machine whose connection has ended. */
void gateway_machine_others_gone(struct gateway *g, struct fleet_machine *m);

/* ---- handover.c ---- */

/* Hands over answers of draining machines and lets machines end (gateway_ends_grant), if a check is
 * due. Returns the time of the next check; INT64_MAX = none. */
int64_t gateway_handover_turn(struct gateway *g, int64_t now_us);

/* ---- operate.c ---- */

/* wants_end true = the machine wants to end: drains the machine. false = the machine's connection
 * has ended: ends this drain. */
void gateway_machine_wants_end_set(struct gateway *g, struct fleet_machine *m, bool wants_end);
/* Sends SHUTDOWN, once, to machines that want to end, that have no work for this gateway's
 * requests, and that have no KV that a waiting request can use. */
void gateway_ends_grant(struct gateway *g);

/* ---- headroom.c ---- */

/* Makes the next step of the search, if the step is due. Returns the time of the next step;
 * INT64_MAX = none, because there is no traffic. */
int64_t gateway_headroom_turn(struct gateway *g, int64_t now_us);
/* Appends a JSON object with the factors by which the traffic can grow; null = no result. */
void gateway_headroom_write(const struct gateway *g, struct text *out);

/* ---- machines.c ---- */

/* Returns the number of threads with which a local machine computes on the CPU. */
uint32_t gateway_machine_threads(const struct fleet_machine *m);
/* Returns `cores` of SCHED_MACHINE_UP: 1 = the machine takes turns with other local machines,
 * because they have more threads than this host has cores; 0 = no turns. */
uint32_t gateway_machine_cores(const struct gateway *g, const struct fleet_machine *m);

extern const struct connections_events gateway_connections_events; /* For connections_open. */

/* ---- peers.c ---- */

/* Returns true if the machine may get work of the token phase. */
bool gateway_machine_may_decode(const struct gateway *g, const struct fleet_machine *m);
/* Sends the machine its current and home pool. */
void gateway_machine_role_send(struct gateway *g, struct fleet_machine *m);
/* Sends PEER to the machine `prompt`. This machine then connects to the machine `token`, or reports
 * the link if it has one. Does nothing if a machine is not up, if the versions differ, if `prompt`
 * will send no KV, or if `token` may not decode. */
void gateway_machine_peer_send(struct gateway *g, struct fleet_machine *prompt,
                               const struct fleet_machine *token);
/* Calls gateway_machine_peer_send for each pair of `m` and another machine, in both directions. */
void gateway_machine_peers_send(struct gateway *g, struct fleet_machine *m);
/* Forgets the links of other machines to this machine. Also sends other machines of its version a
 * PEER without an address: they drop their links to this machine. */
void gateway_machine_links_forget(struct gateway *g, const struct fleet_machine *m);

/* ---- events.c ---- */

/* The functions gateway_event… add lines (events/event_text.h) to the event log, if there is one,
 * and to g->event_ring. The ring does not get the lines of gateway_event_begin and
 * gateway_event_version, nor the lines of events that caused no action and whose kind is after
 * SCHED_MACHINE_HOME in enum sched_event_kind. */

/* Adds an event of the version's scheduler with its actions. event: NULL = the actions belong to
 * the previous event, too. */
void gateway_event(struct gateway *g, const struct gateway_version *version, int64_t now_us,
                   const struct sched_event *event, const struct sched_actions *actions);
void gateway_event_configure(struct gateway *g, const struct gateway_version *version,
                             int64_t now_us, const struct sched_cluster_options *options,
                             const struct sched_actions *actions);
/* from_start: see gateway_events_set. */
void gateway_event_begin(struct gateway *g, bool from_start,
                         const struct sched_cluster_options *options);
void gateway_event_version(struct gateway *g, const struct gateway_version *version,
                           const struct sched_cluster_options *options);
void gateway_event_version_gone(struct gateway *g, const struct gateway_version *version);
void gateway_event_machine(struct gateway *g, const struct fleet_machine *m);
void gateway_event_request(struct gateway *g, const struct gateway_version *version,
                           const struct gateway_request *r);
/* Adds the outcome of r->decision and forgets the decision. Does nothing without a decision.
 * prompt_computed: see `computed` of event_text_outcome. */
void gateway_event_outcome(struct gateway *g, struct gateway_request *r, bool prompt_computed);
/* Updates the event log's counters in /metrics, and logs a warning when the log loses lines. */
void gateway_events_turn(struct gateway *g);

#endif
