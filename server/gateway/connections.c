/* gateway_connections: see the header. Nothing here recurses: a connection that breaks inside a
 * call is only marked (`broken`), and connections_turn drops it. */
#include "server/gateway/connections.h"

#include "common/limits.h"
#include "common/log.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RETRY_FIRST_US 50000
#define RETRY_MAX_US   2000000

struct connections {
    const struct clock *clock;
    struct fleet *fleet;
    struct connections_events events;
    void *self; /* For the events. */
    struct transport *transport;
    struct message_buffer buffer;
    int64_t due_us; /* When the connections must be checked next; 0 = now. */
    bool sent;      /* A message was queued since connections_receive. */
    bool broken;    /* Some connection is `broken`. */
    bool stopping;
};

/* ---- up and down ---- */

static void connection_break(struct connections *c, struct fleet_machine *m)
{
    m->connection.broken = c->broken = true;
}

/* The gateway divides by these values and multiplies them. */
static bool layout_good(const struct transport_identity *identity)
{
    return identity->block_tokens >= 1 && identity->block_tokens <= LIMIT_BLOCK_TOKENS &&
           identity->layer_count <= LIMIT_LAYERS && identity->block_bytes <= UINT32_MAX;
}

static void on_peer_up(void *self, struct transport_peer *peer)
{
    struct connections *c = self;
    struct fleet_machine *m = transport_peer_user(peer);
    assert(m != NULL && m->connection.peer == peer); /* a gateway does not listen */
    const struct transport_identity *identity = transport_peer_identity(peer);
    if (identity->role != TRANSPORT_MACHINE || strcmp(identity->name, m->config.name) != 0) {
        snprintf(m->connection.down_reason, sizeof(m->connection.down_reason),
                 "%s answers as \"%s\", want \"%s\"", m->connection.address, identity->name,
                 m->config.name);
        connection_break(c, m);
        return;
    }
    m->connection.mismatch = true; /* Until it is accepted. */
    if (!layout_good(identity)) {
        snprintf(m->connection.down_reason, sizeof(m->connection.down_reason),
                 "its KV layout is not possible: %u layers, blocks of %u tokens and %llu bytes",
                 identity->layer_count, identity->block_tokens,
                 (unsigned long long)identity->block_bytes);
        connection_break(c, m);
        return;
    }
    if (!c->events.accept(c->self, m, identity)) {
        connection_break(c, m);
        return;
    }
    m->connection.mismatch = false;
    m->connection.state = CONNECTION_UP;
    m->connection.backoff_us = RETRY_FIRST_US;
    m->connection.down_reason[0] = 0;
    c->events.up(c->self, m, identity, transport_peer_region(peer));
}

/* Handles a connection that is gone or did not come up. */
static void connection_lost(struct connections *c, struct fleet_machine *m, bool silent)
{
    struct fleet_connection *connection = &m->connection;
    bool was_up = connection->state == CONNECTION_UP;
    connection->peer = NULL;
    connection->broken = false;
    c->due_us = 0;
    bool again = connection->address[0] != 0 && !c->stopping;
    connection->state = again ? CONNECTION_WAITING : CONNECTION_NONE;
    connection->retry_us = clock_now_us(c->clock) + connection->backoff_us;
    connection->backoff_us =
        connection->backoff_us * 2 < RETRY_MAX_US ? connection->backoff_us * 2 : RETRY_MAX_US;
    if (was_up) {
        connection->logged_reason[0] = 0;
        c->events.down(c->self, m, silent);
        return;
    }
    if (strcmp(connection->logged_reason, connection->down_reason) != 0 && !c->stopping)
        log_warn("machine %s cannot be reached: %s", m->config.name, connection->down_reason);
    memcpy(connection->logged_reason, connection->down_reason, sizeof(connection->logged_reason));
}

static void on_peer_down(void *self, struct transport_peer *peer, enum status why, const char *text)
{
    struct fleet_machine *m = transport_peer_user(peer);
    assert(m != NULL && m->connection.peer == peer);
    m->connection.mismatch = why == ST_MISMATCH;
    snprintf(m->connection.down_reason, sizeof(m->connection.down_reason), "%s",
             text != NULL && text[0] != 0 ? text : status_name(why));
    connection_lost(self, m, why == ST_TIMED_OUT);
}

static void on_message(void *self, struct transport_peer *peer, const uint8_t *data, size_t bytes)
{
    struct connections *c = self;
    struct fleet_machine *m = transport_peer_user(peer);
    struct message message;
    struct error error;
    if (!fleet_machine_up(m) || m->connection.broken)
        return;
    if (message_decode(data, bytes, &message, &error) != ST_OK) {
        snprintf(m->connection.down_reason, sizeof(m->connection.down_reason),
                 "it sent a message that is not valid: %.200s", error.text);
        connection_break(c, m);
        return;
    }
    if (c->events.message(c->self, m, &message))
        return;
    snprintf(m->connection.down_reason, sizeof(m->connection.down_reason),
             "it sent %s, which is not for a gateway", message_kind_name(message.kind));
    connection_break(c, m);
}

/* ---- opening and closing ---- */

enum status connections_open(const struct connections_options *options, struct connections **out,
                             struct error *error)
{
    const struct config *config = options->config;
    struct transport_options transport = {
        .identity = {.role = TRANSPORT_GATEWAY, .metadata_hash = options->metadata_hash},
        .events = {.peer_up = on_peer_up, .peer_down = on_peer_down, .message = on_message},
        .heartbeat_ms = config->transport.heartbeat_ms,
        .silence_ms = config->transport.silence_ms,
        .connect_ms = config->transport.connect_ms,
        .keys = options->cluster_keys,
    };
    struct connections *c = calloc(1, sizeof(*c));
    if (c == NULL)
        return error_set(error, ST_NO_MEMORY, "gateway: out of memory");
    c->clock = options->clock;
    c->fleet = options->fleet;
    c->events = options->events;
    c->self = options->self;
    transport.self = c;
    snprintf(transport.identity.name, sizeof(transport.identity.name), "%s", options->name);
    enum status status = transport_open(options->transport, &transport, &c->transport, error);
    if (status != ST_OK) {
        free(c);
        return status;
    }
    *out = c;
    return ST_OK;
}

void connections_close(struct connections *c)
{
    if (c == NULL)
        return;
    transport_close(c->transport);
    message_buffer_done(&c->buffer);
    free(c);
}

void connections_model_expect(struct connections *c, uint64_t metadata_hash)
{
    transport_metadata_hash_set(c->transport, metadata_hash);
}

enum status connections_keys_set(struct connections *c, const struct secret_keys *keys,
                                 struct error *error)
{
    return transport_keys_set(c->transport, keys, error);
}

/* ---- one machine ---- */

void connections_send(struct connections *c, struct fleet_machine *m, const struct message *message)
{
    if (!fleet_machine_up(m) || m->connection.broken)
        return; /* its requests are lost, or will be in this iteration */
    const uint32_t version = transport_peer_version(m->connection.peer);
    enum status status = message_encode(message, version, &c->buffer);
    assert(status == ST_OK || status == ST_NO_MEMORY);
    if (status == ST_OK)
        status = transport_send(c->transport, m->connection.peer, c->buffer.data, c->buffer.bytes);
    c->sent = true;
    if (status == ST_OK)
        return;
    snprintf(m->connection.down_reason, sizeof(m->connection.down_reason), "sending %s: %s",
             message_kind_name(message->kind), status_name(status));
    connection_break(c, m);
}

void connections_drop(struct connections *c, struct fleet_machine *m, const char *why)
{
    if (m->connection.peer == NULL)
        return;
    transport_disconnect(c->transport, m->connection.peer);
    snprintf(m->connection.down_reason, sizeof(m->connection.down_reason), "%.250s", why);
    connection_lost(c, m, false);
}

void connections_address_set(struct connections *c, struct fleet_machine *m, const char *address,
                             const char *reason)
{
    struct fleet_connection *connection = &m->connection;
    connections_drop(c, m, reason);
    if (address[0] == 0)
        snprintf(connection->down_reason, sizeof(connection->down_reason), "%.250s", reason);
    snprintf(connection->address, sizeof(connection->address), "%s", address);
    connection->logged_reason[0] = 0;
    connection->mismatch = false;
    connection->backoff_us = RETRY_FIRST_US;
    connection->retry_us = clock_now_us(c->clock);
    c->due_us = 0;
    connection->state = address[0] != 0 ? CONNECTION_WAITING : CONNECTION_NONE;
}

static void connection_try(struct connections *c, struct fleet_machine *m)
{
    struct error error = {""};
    m->connection.state = CONNECTION_TRYING;
    enum status status =
        transport_connect(c->transport, m->connection.address, m, &m->connection.peer, &error);
    c->sent = true;
    if (status == ST_OK || status == ST_IN_PROGRESS)
        return;
    snprintf(m->connection.down_reason, sizeof(m->connection.down_reason), "%.200s", error.text);
    connection_lost(c, m, false);
}

/* ---- the iteration ---- */

void connections_stop(struct connections *c)
{
    c->stopping = true;
}

bool connections_stopping(const struct connections *c)
{
    return c->stopping;
}

int connections_fd(const struct connections *c)
{
    return transport_fd(c->transport);
}

void connections_receive(struct connections *c)
{
    transport_progress(c->transport);
    c->sent = false;
}

int64_t connections_turn(struct connections *c, int64_t now_us)
{
    struct fleet *fleet = c->fleet;
    int64_t due = INT64_MAX;
    if (!c->broken && c->due_us > now_us)
        return c->due_us; /* the usual case: nothing is broken or due */
    c->broken = false;
    for (struct fleet_machine *m = fleet_next(fleet, NULL); m != NULL; m = fleet_next(fleet, m)) {
        struct fleet_connection *connection = &m->connection;
        if (connection->broken) {
            transport_disconnect(c->transport, connection->peer);
            connection_lost(c, m, false);
        }
        if (connection->state == CONNECTION_WAITING && connection->retry_us <= now_us)
            connection_try(c, m);
        if (connection->state == CONNECTION_WAITING && connection->retry_us < due)
            due = connection->retry_us;
    }
    c->due_us = due;
    return due;
}

void connections_flush(struct connections *c)
{
    if (!c->sent)
        return;
    c->sent = false;
    transport_progress(c->transport);
}

bool connections_pending(const struct connections *c)
{
    return c->broken || c->sent;
}
