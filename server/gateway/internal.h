/* gateway_internal: the structs and functions that the files of the router share. The gateway has
 * three parts. Each part calls only the parts to its right in this drawing, and reports to the left
 * through function pointers given at open (except that requests.c calls request_checkpoint_end of
 * checkpoints.h):
 *
 *   router (struct gateway) ─► requests (requests.h) ─► connections (connections.h)
 *
 * The router gives events to the schedulers and carries out their actions. Its files; each file
 * calls only files in the rows below it:
 *
 *   gateway.c (opening, iteration), state.c (the state as JSON)
 *   handover.c (drains), headroom.c (how much more traffic the SLO allows)
 *   machines.c (machines that come up, go down and report)
 *   operate.c (changes by an operator)
 *   versions.c (models), others.c (other gateways), checkpoints.c (copies of running answers)
 *   schedule.c (the schedulers)
 *   health.c (what can be served)
 *   peers.c (the machines' pools and links), events.c (the event log)
 *
 * Only these files and tests include it. Everything runs on the gateway's event loop thread. It
 * chooses no machines (the schedulers do). */
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

/* A served model. Each version has its own scheduler, which knows only its machines and requests,
 * so no pair can mix versions. */
struct gateway_version {
    uint32_t number; /* From 1; 0 = this entry is free. */
    struct sched_cluster *scheduler;
    uint64_t metadata_hash;
    struct digest model_hash; /* From the machines; all zeros = no machine has connected yet. */
    uint32_t context_tokens;  /* The model's context, or the config's limit if that is less. */
    struct layer_groups groups;
    struct config_kv kv; /* KV settings of its machines. */
};

/* See headroom.c. */
struct gateway_headroom {
    bool searching;
    bool has_result; /* `result` is set, and there still is traffic. */
    struct headroom_result result;
    int64_t due_us; /* When the next replay or search is due. */
    struct headroom search;
};

struct gateway {
    struct gateway_options options;
    struct fleet *fleet;
    struct connections *connections;
    struct requests *requests;
    struct gateway_version versions[GATEWAY_VERSIONS];
    struct gateway_version *current; /* Version of new requests. */
    struct event_log *event_log;     /* NULL = none. */
    struct line_ring *event_ring;    /* The latest events that changed something. */
    struct history *history;         /* The latest requests. */
    struct text event_line;          /* The line of the event log that is being written. */
    bool events_warned;              /* The log was warned about lost lines. */
    struct gateway_headroom headroom;
    char note[256];               /* Set by gateway_note_set. */
    char update_note[400];        /* Set by gateway_update_note_set. */
    char name[LIMIT_NAME_BYTES];  /* Unique among gateways. */
    uint32_t led_elsewhere_count; /* Machines on which another gateway leads. */
    struct gateway_share share;   /* See gateway_share. */
    /* When the machines first reported fewer gateways than `share` has; -1 = they do not. */
    int64_t fewer_since_us;
    uint64_t prompts_waiting; /* Prompts that wait on machines, by their latest STATS. */
    /* Earliest time of the next check for copies of answers that are due; INT64_MAX = none is. */
    int64_t checkpoint_at_us;
    int64_t handover_at_us;  /* Earliest time of the next hand-over check. */
    int64_t reserving_at_us; /* Earliest time of the next check of RESERVING requests. */
    /* While the scheduler reports lost requests: the machine whose process has ended, which is the
     * reason; NULL = another reason. */
    const struct fleet_machine *dead_machine;
};

static inline int64_t gateway_now(const struct gateway *g)
{
    return clock_now_us(g->options.clock);
}

/* Returns the version of a request. */
static inline const struct gateway_version *gateway_request_version(const struct gateway *g,
                                                                    const struct gateway_request *r)
{
    return &g->versions[r->version_index];
}

/* Returns the version with this number (GATEWAY_CURRENT = the current one), which must be open. */
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

/* Returns true unless a machine has reported that another gateway leads. Of several gateways, only
 * the leader changes home pools when the demand changes. */
static inline bool gateway_leads(const struct gateway *g)
{
    return g->led_elsewhere_count == 0;
}

/* ---- versions.c ---- */

/* Opens the first version; closes all versions. */
enum status gateway_versions_open(struct gateway *g, struct error *error);
void gateway_versions_close(struct gateway *g);
/* Returns the version of a machine that has just connected; NULL = no version matches, and
 * m->connection.down_reason says why. */
struct gateway_version *gateway_version_of(struct gateway *g, struct fleet_machine *m,
                                           const struct transport_identity *identity);
/* Changes the machine's version. Requires that the machine is not up. */
void gateway_machine_version_change(struct gateway *g, struct fleet_machine *m,
                                    struct gateway_version *version);

/* ---- schedule.c ---- */

/* Returns the scheduler's options (scheduler/options.h) for a version's machines. */
struct sched_cluster_options gateway_sched_options(const struct gateway *g,
                                                   const struct gateway_version *version);
/* Gives the event to the version's scheduler and carries out the actions that it returns. */
void gateway_schedule(struct gateway *g, const struct gateway_version *version,
                      const struct sched_event *event);
extern const struct requests_events gateway_requests_events;
/* Gives the arrived requests to the schedulers. Returns the time at which a scheduler needs
 * SCHED_TICK; INT64_MAX = never. */
int64_t gateway_schedule_turn(struct gateway *g, int64_t now_us);
/* Updates the machine's rates from the difference between m->stats and the later figures
 * `stats`. */
void gateway_machine_rates(struct gateway *g, struct fleet_machine *m,
                           const struct message_stats *stats);

/* Returns the number of tokens whose KV has this many bytes. Requires that the machine is up. */
uint64_t gateway_kv_tokens(const struct fleet_machine *m, uint64_t bytes);

/* Passes the machine's report on its prefix cache to the scheduler. */
void gateway_machine_prefixes(struct gateway *g, const struct fleet_machine *m,
                              const struct message_prefixes *prefixes);

/* Returns the number of requests in the queues of the schedulers. */
uint32_t gateway_waiting_count(const struct gateway *g);
/* Gives the schedulers the options that follow from the config and from gateway_leads. */
void gateway_scheduler_configure(struct gateway *g);

/* ---- others.c ---- */

/* Handles OTHERS: the load of other gateways on the machine. */
void gateway_machine_others(struct gateway *g, struct fleet_machine *m,
                            const struct message_others *others);
/* Forgets the load of other gateways on a machine whose connection has ended. */
void gateway_machine_others_gone(struct gateway *g, struct fleet_machine *m);

/* ---- handover.c ---- */

/* Hands over answers of draining machines, if a check is due. Returns the time of the next check;
 * INT64_MAX = none. */
int64_t gateway_handover_turn(struct gateway *g, int64_t now_us);

/* ---- operate.c ---- */

/* Records that a machine wants to end, which drains the machine, or that its connection has
 * ended. */
void gateway_machine_wants_end_set(struct gateway *g, struct fleet_machine *m, bool wants_end);
/* Sends SHUTDOWN to machines that want to end and have no work or KV for requests of this
 * gateway. */
void gateway_ends_grant(struct gateway *g);

/* ---- headroom.c ---- */

/* Continues the search, if a part of the search is due. Returns the time of the next part. */
int64_t gateway_headroom_turn(struct gateway *g, int64_t now_us);
/* Writes the factors as a JSON object; null = unknown. */
void gateway_headroom_write(const struct gateway *g, struct text *out);

/* ---- machines.c ---- */

/* Returns the number of threads with which a machine of this host computes. */
uint32_t gateway_machine_threads(const struct fleet_machine *m);
/* Returns 1 if the machine shares this host's cores with other machines: together they have more
 * threads than the host has cores, and take turns. Returns 0 if the machine has cores of its own,
 * or its cores are not known. */
uint32_t gateway_machine_cores(const struct gateway *g, const struct fleet_machine *m);

extern const struct connections_events gateway_connections_events;

/* ---- peers.c ---- */

/* Returns true if the machine may get work of the token phase. */
bool gateway_machine_may_decode(const struct gateway *g, const struct fleet_machine *m);
/* Sends the machine its current and home pool. */
void gateway_machine_role_send(struct gateway *g, struct fleet_machine *m);
/* Sends PEER: the prompt machine connects to the token machine, or reports the link that it has. No
 * effect if the two machines cannot serve a request together. */
void gateway_machine_peer_send(struct gateway *g, struct fleet_machine *prompt,
                               const struct fleet_machine *token);
/* Sends PEER messages to the machine and to others, so that prompt machines connect to the token
 * machines that they may have to write KV to. */
void gateway_machine_peers_send(struct gateway *g, struct fleet_machine *m);
/* Sends PEER without address to the other machines of its version, which then drop their links to
 * this machine, and forgets these links. */
void gateway_machine_links_forget(struct gateway *g, const struct fleet_machine *m);

/* ---- events.c ---- */

/* These functions add lines to the event log (events/event_text.h), if there is one. Lines that say
 * what happened to requests and machines go to the ring of the latest events, too. event NULL = the
 * actions are further actions of the previous event. */
void gateway_event(struct gateway *g, const struct gateway_version *version, int64_t now_us,
                   const struct sched_event *event, const struct sched_actions *actions);
void gateway_event_configure(struct gateway *g, const struct gateway_version *version,
                             int64_t now_us, const struct sched_cluster_options *options,
                             const struct sched_actions *actions);
void gateway_event_begin(struct gateway *g, bool whole,
                         const struct sched_cluster_options *options);
void gateway_event_version(struct gateway *g, const struct gateway_version *version,
                           const struct sched_cluster_options *options);
void gateway_event_version_gone(struct gateway *g, const struct gateway_version *version);
void gateway_event_machine(struct gateway *g, const struct fleet_machine *m);
void gateway_event_request(struct gateway *g, const struct gateway_version *version,
                           const struct gateway_request *r);
/* Adds the outcome of the decision by which the request was routed, and forgets the decision. Does
 * nothing if there is none. computed: see event_text_outcome. */
void gateway_event_outcome(struct gateway *g, struct gateway_request *r, bool computed);
/* Updates the event log's counters in /metrics, and logs one warning when lines of the event log
 * are lost. */
void gateway_events_turn(struct gateway *g);

#endif
