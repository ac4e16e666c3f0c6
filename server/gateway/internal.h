/* gateway_internal: private to the files of the router, the upper part of the gateway. The parts of
 * the gateway, each of which calls only those below it and reports upwards through calls given at
 * open:
 *
 *   router (struct gateway) ─► requests (requests.h) ─► connections (connections.h)
 *
 * The router asks the schedulers and carries out their actions. Its files, each of which calls only
 * those in the rows below it:
 *
 *   gateway.c (opening, iteration), state.c (the state as JSON)
 *   operate.c (changes by an operator)
 *   machines.c (machines that come up, go down and report)
 *   versions.c (models), others.c (other gateways), handover.c (drains)
 *   schedule.c (the schedulers)
 *   health.c (what can be served)
 *   peers.c (the machines' pools and links), events.c (the event log)
 *
 * Only these files and a test include it. Everything runs on the gateway's loop thread. */
#ifndef SERVER_GATEWAY_INTERNAL_H
#define SERVER_GATEWAY_INTERNAL_H

#include "common/log.h"
#include "events/event_text.h"
#include "scheduler/cluster/cluster.h"
#include "server/gateway/gateway.h"
#include "server/gateway/requests.h"

#include <assert.h>

/* A served model. Each version has its own scheduler, which knows only its machines and requests,
 * so no pair can mix versions. */
struct gateway_version {
    uint32_t number; /* From 1; 0 = this entry is free. */
    struct sched_cluster *scheduler;
    uint64_t metadata_hash;
    struct digest model_hash; /* As its machines report; none = none has connected yet. */
    uint32_t context_tokens;  /* The model's context, or the config's limit if that is less. */
    struct layer_groups groups;
    struct config_kv kv; /* KV settings of its machines. */
};

struct gateway {
    struct gateway_options options;
    struct fleet *fleet;
    struct connections *connections;
    struct requests *requests;
    struct gateway_version versions[GATEWAY_VERSIONS];
    struct gateway_version *current; /* Version of new requests. */
    struct event_log *events;        /* NULL = none. */
    struct text event_line;
    bool events_warned;
    char note[256];              /* Set by gateway_note_set. */
    char update_note[400];       /* Set by gateway_update_note_set. */
    char name[LIMIT_NAME_BYTES]; /* Unique among gateways. */
    uint32_t led_elsewhere;      /* Machines on which another gateway leads. */
    struct gateway_share share;  /* See gateway_share. */
    int64_t fewer_us;            /* Since when there are fewer gateways than in `share`; -1 = no. */
    uint64_t prompts_waiting;    /* On machines, by their latest STATS. */
    int64_t handover_at_us;      /* Earliest time of the next hand-over check. */
    /* Requests that the scheduler reports as lost now were lost because the process of this machine
     * has ended; NULL = for another reason. */
    const struct fleet_machine *dying;
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

/* Returns the version with that number (GATEWAY_CURRENT = the current one). Requires that it is
 * open. */
static inline struct gateway_version *gateway_version_at(const struct gateway *g, uint32_t number)
{
    if (number == GATEWAY_CURRENT)
        return g->current;
    for (uint32_t i = 0; i < GATEWAY_VERSIONS; i++)
        if (g->versions[i].number == number)
            return (struct gateway_version *)&g->versions[i];
    assert(!"a version that is open");
    return NULL;
}

/* True unless another gateway is known to lead, that is, to change home pools for the demand. */
static inline bool gateway_leads(const struct gateway *g)
{
    return g->led_elsewhere == 0;
}

/* ---- versions.c ---- */

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

/* ---- schedule.c ---- */

/* Returns the scheduler's options (scheduler/options.h) for a version's machines. */
struct sched_cluster_options gateway_sched_options(const struct gateway *g,
                                                   const struct gateway_version *version);
/* Gives the event to the version's scheduler and carries out the actions. */
void gateway_schedule(struct gateway *g, const struct gateway_version *version,
                      const struct sched_event *event);
extern const struct requests_events gateway_requests_events;
/* Schedules the arrived requests. Returns when the scheduler needs SCHED_TICK; INT64_MAX = never.
 */
int64_t gateway_schedule_turn(struct gateway *g, int64_t now_us);
/* Updates the machine's rates. `stats` are the statistics that follow m->stats. */
void gateway_machine_rates(struct gateway *g, struct fleet_machine *m,
                           const struct message_stats *stats);

/* Passes the machine's report on its prefix cache to the scheduler. */
void gateway_machine_prefixes(struct gateway *g, const struct fleet_machine *m,
                              const struct message_prefixes *prefixes);

/* Requests in the queues of the schedulers. */
uint32_t gateway_unrouted(const struct gateway *g);
/* Gives the schedulers the options that follow from the config and from which gateway leads. */
void gateway_scheduler_configure(struct gateway *g);

/* ---- others.c ---- */

void gateway_machine_others(struct gateway *g, struct fleet_machine *m,
                            const struct message_others *others);
/* Forgets the other gateways on a machine whose connection is gone. */
void gateway_machine_others_gone(struct gateway *g, struct fleet_machine *m);

/* ---- handover.c ---- */

/* Hands over answers of draining machines. Returns the time of the next check; INT64_MAX = none. */
int64_t gateway_handover_turn(struct gateway *g, int64_t now_us);

/* ---- machines.c ---- */

extern const struct connections_events gateway_connections_events;

/* ---- peers.c ---- */

/* True if the machine may get work of the token phase. */
bool gateway_machine_generates(const struct gateway *g, const struct fleet_machine *m);
/* Sends the machine its current and home pool. */
void gateway_machine_role_send(struct gateway *g, struct fleet_machine *m);
/* Sends PEER messages to the machine and to others: which machines should be able to write KV to
 * which. */
void gateway_machine_peers_send(struct gateway *g, struct fleet_machine *m);
/* Tells the other machines to drop their links to this machine. */
void gateway_machine_links_forget(struct gateway *g, const struct fleet_machine *m);

/* ---- events.c ---- */

/* These functions do nothing without an event log. `event` NULL = more actions of the previous
 * event. */
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
/* Updates the counters for /metrics, and warns once when lines are lost. */
void gateway_events_turn(struct gateway *g);

#endif
