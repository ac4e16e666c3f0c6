/* gateway_connections: the gateway's connections to the machines, and the messages on them. It
 * connects when an address is known, and again with back-off when a connection is lost, and owns
 * the field `connection` of the fleet's records. It knows no requests and no schedulers: it reports
 * by the calls given at open (connections_events). The router's files (internal.h) and requests.c
 * make every call, on the gateway's loop thread. */
#ifndef SERVER_GATEWAY_CONNECTIONS_H
#define SERVER_GATEWAY_CONNECTIONS_H

#include "common/clock.h"
#include "config/config.h"
#include "server/fleet/fleet.h"
#include "transport/transport.h"

struct connections;

/* connections_receive and connections_flush make these calls. connections_turn,
 * connections_address_set and connections_drop can call `down`. */
struct connections_events {
    /* Checks a machine that has answered with the right name. Returns false to refuse it, and then
     * writes the reason to m->connection.why. */
    bool (*accept)(void *self, struct fleet_machine *m, const struct transport_identity *identity);
    void (*up)(void *self, struct fleet_machine *m, const struct transport_identity *identity,
               const struct transport_region_info *region);
    /* A connection that was up is gone. silent: the machine sent nothing for too long, so it may
     * still run. */
    void (*down)(void *self, struct fleet_machine *m, bool silent);
    /* Returns false if a gateway does not expect this kind of message. */
    bool (*message)(void *self, struct fleet_machine *m, struct message *message);
};

struct connections_options {
    const struct config *config; /* Not owned; also clock, transport and fleet. */
    const struct clock *clock;
    const struct transport_ops *transport;
    struct fleet *fleet;
    uint64_t metadata_hash;
    const char *name; /* This gateway's name, unique among gateways; copied. */
    const struct secret_keys *cluster_keys; /* Copied; NULL = none. */
    struct connections_events events;
    void *self;
};

enum status connections_open(const struct connections_options *options, struct connections **out,
                             struct error *error);
void connections_close(struct connections *c); /* NULL is fine. */

/* Sets the model that machines must have; 0 = any, `accept` decides. */
void connections_model_expect(struct connections *c, uint64_t metadata_hash);

/* See transport_keys_set. */
enum status connections_keys_set(struct connections *c, const struct secret_keys *keys,
                                 struct error *error);

/* Sets a machine's address and connects to it. "" = no address: the connection is dropped, and no
 * further attempt is made until the next call. */
void connections_address_set(struct connections *c, struct fleet_machine *m, const char *address);
/* Drops the connection, if there is one, with this reason. It is tried again. */
void connections_drop(struct connections *c, struct fleet_machine *m, const char *why);
/* Encodes and sends the message, if the machine is up. After a failure the next connections_turn
 * drops the connection. */
void connections_send(struct connections *c, struct fleet_machine *m,
                      const struct message *message);
/* Stops connecting again after a connection is lost. */
void connections_stop(struct connections *c);
bool connections_stopping(const struct connections *c);

int connections_fd(const struct connections *c);
void connections_receive(struct connections *c); /* Receives what the machines sent. */
/* Drops broken connections and starts those that are due. Returns when the next one is due;
 * INT64_MAX = none. */
int64_t connections_turn(struct connections *c, int64_t now_us);
/* Sends what connections_send queued since connections_receive. */
void connections_flush(struct connections *c);
/* True when work waits for the next iteration. */
bool connections_pending(const struct connections *c);

#endif
