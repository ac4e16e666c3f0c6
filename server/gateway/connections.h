/* gateway_connections: the gateway's connections to the machines, and the messages on them. The
 * part connects to a machine whose address is known. When a connection is lost or an attempt fails,
 * the next attempt follows after a pause from 50 ms to 2 s. The part owns the field `connection` of
 * the fleet's records, except wants_end and end_granted. server/gateway/ calls the functions on the
 * gateway's event loop thread. The part knows no requests and no schedulers. */
#ifndef SERVER_GATEWAY_CONNECTIONS_H
#define SERVER_GATEWAY_CONNECTIONS_H

#include "common/clock.h"
#include "config/config.h"
#include "server/fleet/fleet.h"
#include "transport/transport.h"

struct connections;

/* Functions of the caller. connections_receive and connections_flush can call each of them;
 * connections_turn, connections_address_set and connections_drop can call `down`. */
struct connections_events {
    /* Checks a machine that has the expected name. Returns false to refuse the machine, with the
     * reason in m->connection.down_reason. */
    bool (*accept)(void *self, struct fleet_machine *m, const struct transport_identity *identity);
    /* The machine is connected and accepted. region: layout of its KV memory. */
    void (*up)(void *self, struct fleet_machine *m, const struct transport_identity *identity,
               const struct transport_region_info *region);
    /* A connection that was up has ended. silent: the machine sent nothing for too long, so its
     * process may still run. */
    void (*down)(void *self, struct fleet_machine *m, bool silent);
    /* Handles a message. Returns false if a gateway must not get this kind of message; the next
     * connections_turn then drops the connection. */
    bool (*message)(void *self, struct fleet_machine *m, struct message *message);
};

/* clock, transport and fleet must outlive the connections. */
struct connections_options {
    const struct config *config;
    const struct clock *clock;
    const struct transport_ops *transport;
    struct fleet *fleet;
    uint64_t metadata_hash;                 /* See connections_model_expect. */
    const char *name;                       /* Name of this gateway; copied. */
    const struct secret_keys *cluster_keys; /* Copied; NULL = none. */
    struct connections_events events;
    void *self; /* First argument of the events. */
};

/* Opens the gateway's transport; no machine is connected yet. On failure returns a negative status;
 * *error says what failed. */
enum status connections_open(const struct connections_options *options, struct connections **out,
                             struct error *error);
void connections_close(struct connections *c); /* NULL is fine. */

/* Sets the metadata_hash of the model that machines must have; 0 = any. */
void connections_model_expect(struct connections *c, uint64_t metadata_hash);

/* Replaces the cluster keys: see transport_keys_set. */
enum status connections_keys_set(struct connections *c, const struct secret_keys *keys,
                                 struct error *error);

/* Sets a machine's address, and drops its connection or attempt. The next connections_turn connects
 * to the new address. "" = no address: no attempt is made, and `reason` is the machine's
 * connection.down_reason. */
void connections_address_set(struct connections *c, struct fleet_machine *m, const char *address,
                             const char *reason);
/* Drops the machine's connection or attempt, if there is one. connections_turn connects again
 * later, unless the machine has no address or connections_stop was called. */
void connections_drop(struct connections *c, struct fleet_machine *m, const char *reason);
/* Encodes and queues a message. Does nothing if the connection is not up, or is `broken`. After a
 * failure the next connections_turn drops the connection. */
void connections_send(struct connections *c, struct fleet_machine *m,
                      const struct message *message);
/* After this call, a machine whose connection is lost or whose attempt fails is not connected
 * again, unless connections_address_set is called. Attempts that wait for their time are made. */
void connections_stop(struct connections *c);
bool connections_stopping(const struct connections *c); /* Returns true after connections_stop. */

/* Returns the descriptor that is readable when connections_receive has work. */
int connections_fd(const struct connections *c);
/* Receives the messages of the machines, and sends queued messages. */
void connections_receive(struct connections *c);
/* Drops broken connections and makes the attempts that are due. Returns the time of the next
 * attempt; INT64_MAX = none. */
int64_t connections_turn(struct connections *c, int64_t now_us);
/* Sends the messages and starts the attempts that were queued since connections_receive. May
 * receive messages. */
void connections_flush(struct connections *c);
/* Returns true if a broken connection waits for connections_turn, or a queued message or attempt
 * for connections_flush. */
bool connections_pending(const struct connections *c);

#endif
