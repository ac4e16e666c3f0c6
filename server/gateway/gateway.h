/* gateway: carries out requests on the machines of the cluster. It owns the open requests and the
 * connections to the machines. It gives events to the cluster scheduler, sends requests to the
 * machines that the scheduler chooses, and delivers each token to the client once, in order.
 * server/http/ submits requests; server/serve*.c add and remove machines and run the event loop.
 * All calls are on the gateway's event loop thread, the main thread of `cleave serve`. The gateway
 * handles no text (server/api/ and server/http/ do), chooses no machines (scheduler/cluster/ does),
 * and starts no processes (server/fleet/launcher.h does). */
#ifndef SERVER_GATEWAY_GATEWAY_H
#define SERVER_GATEWAY_GATEWAY_H

#include "common/clock.h"
#include "common/layer_groups.h"
#include "common/status.h"
#include "common/text.h"
#include "config/config.h"
#include "events/event_log.h"
#include "server/fleet/fleet.h"
#include "server/gateway/submit.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gateway;
struct gateway_request; /* An open request. */
struct metrics;         /* See server/metrics/metrics.h. */
struct transport_ops;   /* See transport/transport.h. */

struct gateway_options {
    /* Not owned; must outlive the gateway. Its machines are not used. */
    const struct config *config;
    struct fleet *fleet;                    /* Not owned; must outlive the gateway. */
    const struct clock *clock;              /* Not owned; must outlive the gateway. */
    const struct transport_ops *transport;  /* Functions of the transport (transport_ucx). */
    uint64_t metadata_hash;                 /* model_file_metadata_hash of version 1. */
    uint32_t context_tokens;                /* Context of version 1's model; 0 = unknown. */
    struct layer_groups groups;             /* Layers of version 1's model. */
    struct metrics *metrics;                /* Not owned; must outlive the gateway. */
    const struct secret_keys *cluster_keys; /* Copied; NULL = none. */
};

/* Opens a gateway without requests; the machines of the fleet have no addresses yet. On failure
 * returns a negative status; *error says what failed. */
enum status gateway_open(const struct gateway_options *options, struct gateway **out,
                         struct error *error);
/* Ends open requests with GATEWAY_FAILED first, and calls their `ended`. NULL is fine. */
void gateway_close(struct gateway *g);

/* Replaces the cluster keys: see transport_keys_set. Requires that the gateway was opened with
 * keys. */
enum status gateway_cluster_keys_set(struct gateway *g, const struct secret_keys *keys,
                                     struct error *error);

/* Begins to use a machine that was added to the fleet. version: the machine's model version. 0 =
 * the version follows from the model that the machine reports when it connects (for machines that
 * this gateway does not start). */
void gateway_machine_add(struct gateway *g, struct fleet_machine *machine, uint32_t version);

/* Sets a machine's address and drops its connection. The gateway connects to the address, and
 * connects again after a pause when the connection is lost. */
void gateway_machine_address_set(struct gateway *g, struct fleet_machine *machine,
                                 const char *address);
/* Forgets a machine's address and drops its connection: the machine has no process. reason: for
 * the log and the state of the machine, such as "its process has ended: signal 9, Killed". */
void gateway_machine_ended(struct gateway *g, struct fleet_machine *machine, const char *reason);

/* Handles a crash of a local machine's process: drops the connection to the machine. The requests
 * `ids` that this gateway has sent to the machine become suspects (blame.h) or fail. ids: the
 * requests that the process computed; id_count 0 = none. crash_text: for logs and clients, such as
 * "signal 11, Segmentation fault". */
void gateway_machine_crashed(struct gateway *g, struct fleet_machine *machine,
                             const char *crash_text, const uint64_t *ids, uint32_t id_count);

/* Sends SHUTDOWN to a machine, which then ends. No effect if the machine is not connected. */
void gateway_machine_shutdown(struct gateway *g, struct fleet_machine *machine);

/* --- Changes by an operator while serving. --- */

/* Changes the machine's phase (fleet_phase_set), and begins or ends its drain. */
void gateway_machine_phase_set(struct gateway *g, struct fleet_machine *machine,
                               enum fleet_phase phase);
/* Returns true if this gateway's requests have no work on the machine. */
bool gateway_machine_idle(const struct gateway *g, const struct fleet_machine *machine);
/* Moves the machine to another home pool. */
void gateway_machine_home_set(struct gateway *g, struct fleet_machine *machine, enum pool home);
/* Removes the machine from the fleet: its connection ends, and the other machines forget it.
 * Requires that a local machine's process has ended. */
void gateway_machine_remove(struct gateway *g, struct fleet_machine *machine);
/* Applies a changed options.config, whose KV settings become those of the current version. */
void gateway_configure(struct gateway *g);

/* --- Versions: during a model update, a second model is served beside the first model. A request
 * keeps its version. A machine keeps its version while it is connected. The requests of a version
 * use only machines of this version. --- */

/* The model of a version. */
struct gateway_model {
    uint64_t metadata_hash;
    uint32_t context_tokens; /* The model's context or, if less, the config's limit; 0 = unknown. */
    struct layer_groups groups;
    struct config_kv kv; /* KV settings of the version's machines. */
};

/* Opens a version: machines with its model are accepted after this call. version: a number that no
 * open version has. Returns ST_NO_RESOURCE if GATEWAY_VERSIONS are open already, or the error with
 * which its scheduler could not be opened. *error has the reason. */
enum status gateway_version_open(struct gateway *g, uint32_t version,
                                 const struct gateway_model *model, struct error *error);
/* Returns true if the version has a mixed machine, or a prompt machine and a token machine with a
 * link between them, that are connected and do not drain. */
bool gateway_version_paired(const struct gateway *g, uint32_t version);
/* Makes this version the current version, which new requests get. */
void gateway_version_use(struct gateway *g, uint32_t version);
/* Returns the number of the version's open requests. */
uint32_t gateway_version_requests(const struct gateway *g, uint32_t version);
/* Returns the number of requests that the version has had so far. */
uint64_t gateway_version_requests_total(const struct gateway *g, uint32_t version);
/* Ends the version's open requests with GATEWAY_FAILED and this text; the next gateway_turn calls
 * their `ended`. */
void gateway_version_stop(struct gateway *g, uint32_t version, const char *text);
/* Closes a version, and drops the connections of its machines. A machine is accepted again when it
 * has the model of another version. Requires that no request has the version, and that another
 * version is current. */
void gateway_version_close(struct gateway *g, uint32_t version);
/* Writes the text of gateway_health_text for one version, without the notes. */
void gateway_version_health_text(const struct gateway *g, uint32_t version, char *out,
                                 size_t capacity);

/* Gateways that are connected to the same machines divide the limits of the API keys. This is one
 * gateway's share. */
struct gateway_share {
    uint32_t gateways; /* Number of gateways that divide the limits, ≥ 1. */
    uint32_t rank;     /* Number of these gateways with a lower name; less than `gateways`. */
};

/* Returns this gateway's share, by the OTHERS messages of the machines. The share becomes smaller
 * at once, and larger only after GATEWAY_SHARE_HOLD_US, because a gateway whose connections have
 * ended may connect again with its requests. */
#define GATEWAY_SHARE_HOLD_US 5000000
struct gateway_share gateway_share(struct gateway *g);

/* Sets the event log; not owned, NULL = none. from_start: the gateway was just opened, so the log
 * will have all events. */
void gateway_events_set(struct gateway *g, struct event_log *log, bool from_start);
struct history_query; /* See server/gateway/history.h. */
/* Appends members of a JSON object, without the braces: the gateway's name, the present time (by
 * the gateway's clock, and as Unix time), and the list `requests` of the latest requests. */
void gateway_requests_write(const struct gateway *g, const struct history_query *query,
                            struct text *out);
/* Appends two members of a JSON object: `machines` (index and name of each machine), and `events`
 * (the latest lines about requests and machines, as in the event log). */
void gateway_decisions_write(const struct gateway *g, struct text *out);
/* Appends the `events` of gateway_decisions_write as lines, without a line feed after the last. */
void gateway_decisions_lines(const struct gateway *g, struct text *out);
/* Appends the elements of the list `requests` of gateway_requests_write, without the brackets. */
void gateway_requests_list(const struct gateway *g, const struct history_query *query,
                           struct text *out);
/* Appends members of a JSON object, without the braces: what operators see of the gateway, its
 * machines, links and requests. */
void gateway_state_write(const struct gateway *g, struct text *out);

/* Returns a descriptor (level-triggered) that is readable when messages have arrived. */
int gateway_fd(struct gateway *g);
/* Does the gateway's work of one iteration of the event loop, and the work that functions such as
 * gateway_submit have queued. Returns the milliseconds until the next call; -1 = no limit. */
int gateway_turn(struct gateway *g);
/* Returns true if work waits: the event loop must call gateway_turn before it sleeps. */
bool gateway_pending(const struct gateway *g);

/* Ends the open requests, and all requests that are submitted later, with GATEWAY_FAILED; the next
 * gateway_turn calls their `ended`. Connections that are lost later are not made again. */
void gateway_stop(struct gateway *g);

/* Returns true if requests of the current version can be routed now. */
bool gateway_ready(const struct gateway *g);
/* Sets the note that gateway_health_text appends; "" = none. */
void gateway_note_set(struct gateway *g, const char *text);
/* Sets a second note for gateway_health_text, about a model update; "" = none. */
void gateway_update_note_set(struct gateway *g, const char *text);
/* Writes one line for administrators: whether requests can be served, which machines or links are
 * missing and why, and the notes. */
void gateway_health_text(const struct gateway *g, char *out, size_t capacity);
/* Writes "M of N machines serve", for clients that may not see names, addresses and reasons. N: the
 * machines of the current version. M: those of them that are connected and do not drain. */
void gateway_health_summary(const struct gateway *g, char *out, size_t capacity);
/* Returns the most tokens that prompt and answer of a request of this version may have together:
 * the least of the model's context, scheduler/context_tokens_max, LIMIT_CONTEXT_TOKENS, and the
 * largest KV memory of the version's machines that have connected and may decode. */
uint32_t gateway_context_tokens(const struct gateway *g, uint32_t version);

/* Returns true if the KV of an equal earlier prompt is likely to be found in a prefix cache. */
bool gateway_prompts_shared(const struct gateway *g, uint32_t version);

/* Submits a request. *out is valid until `ended` or gateway_release. Returns ST_TOO_LARGE if prompt
 * and longest answer together exceed LIMIT_CONTEXT_TOKENS, ST_NO_RESOURCE if LIMIT_CLUSTER_REQUESTS
 * requests are open, ST_NO_MEMORY if memory is short. */
enum status gateway_submit(struct gateway *g, const struct gateway_submit *submit,
                           struct gateway_request **out);

/* Releases and frees a request that the caller no longer needs, and cancels the request on its
 * machines. Calls `summarise` unless the request has ended already; does not call `ended`. */
void gateway_release(struct gateway *g, struct gateway_request *request,
                     enum gateway_release reason);

#endif
