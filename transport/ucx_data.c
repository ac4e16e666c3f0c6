/* ucx_data: data connections, which carry KV to and from a peer that UCX does not reach. See
 * peers.h.
 *
 * The side that opened the connection to the peer (the control connection) also opens the data
 * connections, to the same address: when it writes, or when the other side asks for them with
 * DATA_WANTED. Both sides write over them. A data connection begins like every connection (with a
 * cluster key: with the proofs), and then names the control connection that it belongs to:
 *
 *   DATA    token of the control connection's inbox, which only its two ends know
 *   WRITE   offset, the request that the data belongs to, epoch, then the data
 *   TAKEN   bytes that the receiver has taken so far
 *
 * Writes of one epoch may arrive in any order; FLUSH and FLUSHED travel on the control connection,
 * as for UCX's messages. At most data_window_bytes are sent and not taken. When a data connection
 * ends, so does its control connection. */
#include "transport/peers.h"

#include <assert.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>

#define PIECES_PER_TURN 4
/* Writes of fewer bytes are queued and sent together. */
#define SMALL_BYTES      ((size_t)16 << 10)
#define QUEUED_BYTES_MAX ((size_t)64 << 10)

struct wire_data {
    uint64_t token;
};

struct wire_write { /* Precedes the data of WRITE. */
    uint64_t offset;
    uint64_t request_id; /* See struct transport_request. */
    uint32_t request_generation;
    uint32_t epoch;
};
static_assert(sizeof(struct wire_write) == 24, "wire size");

size_t data_connection_frame_bytes_max(void)
{
    return sizeof(struct wire_write) + FABRIC_PIECE_BYTES_MAX;
}

static void fail_text(struct peer *peer, const char *text)
{
    struct error error;
    error_set(&error, ST_INVALID, "%s", text);
    peer_fail(peer, ST_INVALID, &error);
}

/* Makes `peer` a data connection of `control`. */
static void data_attach(struct peer *peer, struct peer *control)
{
    peer->control = control;
    control->data_count++;
    memcpy(peer->base.identity.name, control->base.identity.name, LIMIT_NAME_BYTES);
    /* Sent bytes that the other side's kernel does not acknowledge mean a dead link. Without this
     * limit the kernel would try for a quarter of an hour. If the control connection is dead, too,
     * it reports silence first. */
    unsigned timeout_ms = 2 * peer->ucx->options.silence_ms;
    (void)setsockopt(peer->stream.fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms,
                     sizeof(timeout_ms));
}

/* ---- opening ---- */

static bool data_connect(struct peer *control)
{
    struct sockaddr_storage to;
    socklen_t bytes = sizeof(to);
    char address[LIMIT_ADDRESS_BYTES];
    struct error error;
    if (getpeername(control->stream.fd, (struct sockaddr *)&to, &bytes) != 0)
        return false;
    address_format((struct sockaddr *)&to, bytes, address);
    struct peer *peer = peer_connect(control->ucx, address, NULL, &error);
    if (peer == NULL)
        return false;
    data_attach(peer, control);
    return true;
}

void data_connections_open(struct peer *control)
{
    if (control->data_opened)
        return;
    control->data_opened = true;
    if (control->accepted) {
        (void)peer_send(control, FRAME_DATA_WANTED, NULL, 0);
        return;
    }
    for (uint32_t i = 0; i < control->ucx->options.data_connections; i++)
        if (!data_connect(control)) {
            fail_text(control, "no data connection can be opened");
            return;
        }
}

void data_connection_begin(struct peer *peer)
{
    const struct wire_data wire = {.token = peer->control->hello_fields.token};
    peer->state = PEER_UP;
    if (peer_send(peer, FRAME_DATA, &wire, sizeof(wire)) == ST_OK)
        peer_key_renew(peer);
}

/* Finds the control connection of a data connection: it has the inbox with this token, and its peer
 * has proved the same name. */
static struct peer *control_find(const struct peer *peer, uint64_t token)
{
    const struct auth_side *side = &peer->auth_exchange.connecting;
    for (struct peer *at = peer->ucx->peers; at != NULL; at = at->next) {
        /* LINK_READY may still be on its way. */
        if (at->state < PEER_PROVING || at->state > PEER_UP || at->failing != ST_OK ||
            !at->accepted || at->control != NULL || at->inbox == NULL ||
            fabric_inbox_token(at->inbox) != token)
            continue;
        if (!peer->ucx->has_key || (at->auth_exchange.connecting.role == side->role &&
                                    strcmp(at->auth_exchange.connecting.name, side->name) == 0))
            return at;
    }
    return NULL;
}

void data_connection_accept(struct peer *peer, const uint8_t *data, size_t bytes)
{
    struct wire_data wire;
    struct peer *control = NULL;
    struct error error;
    if (bytes == sizeof(wire)) {
        memcpy(&wire, data, sizeof(wire));
        control = control_find(peer, wire.token);
    }
    if (control == NULL || control->data_count >= TRANSPORT_DATA_CONNECTIONS_MAX) {
        error_set(&error, ST_INVALID, "a data connection that belongs to no connection");
        peer_refuse(peer, ST_INVALID, &error);
        return;
    }
    peer->state = PEER_UP;
    peer->ucx->accepted_greeting--;
    control->data_opened = true;
    data_attach(peer, control);
    peer_key_renew(peer);
}

void data_connections_release(struct peer *peer)
{
    struct ucx *ucx = peer->ucx;
    if (peer->control != NULL)
        peer->control->data_count--;
    for (struct peer *at = ucx->peers; at != NULL;) {
        struct peer *next = at->next;
        if (at->control == peer) {
            at->control = NULL;
            peer_end(at);
        }
        at = next;
    }
}

/* ---- frames ---- */

static void on_data_write(struct peer *peer, const uint8_t *data, size_t bytes)
{
    struct wire_write wire;
    struct peer *control = peer->control;
    if (control->inbox == NULL || bytes < sizeof(wire)) {
        fail_text(peer, "a WRITE frame that is too short, or to a process without a region");
        return;
    }
    memcpy(&wire, data, sizeof(wire));
    const struct fabric_piece piece = {
        .request = {.id = wire.request_id, .generation = wire.request_generation},
        .offset = wire.offset,
        .epoch = wire.epoch,
        .memory = data + sizeof(wire),
        .bytes = bytes - sizeof(wire),
    };
    fabric_inbox_write(control->inbox, &piece);
    peer->received_bytes += bytes;
}

static void on_data_taken(struct peer *peer, const uint8_t *data, size_t bytes)
{
    uint64_t taken;
    if (bytes == sizeof(taken)) {
        memcpy(&taken, data, sizeof(taken));
        if (taken >= peer->taken_bytes && taken <= peer->sent_bytes) {
            peer->taken_bytes = taken;
            return;
        }
    }
    fail_text(peer, "a TAKEN frame with more bytes than were sent");
}

void data_connection_frame(struct peer *peer, uint32_t kind, const uint8_t *data, size_t bytes)
{
    if (kind == FRAME_WRITE)
        on_data_write(peer, data, bytes);
    else if (kind == FRAME_TAKEN)
        on_data_taken(peer, data, bytes);
    else if (kind == FRAME_REFUSE)
        peer_refused(peer, data, bytes);
    else
        fail_text(peer, "a frame that does not belong on a data connection");
}

bool data_connection_may_receive(const struct peer *peer)
{
    return peer->control->state == PEER_UP && peer->control->failing == ST_OK &&
           !fabric_inboxes_full(peer->ucx->fabric);
}

void data_connection_received(struct peer *peer)
{
    if (peer->received_bytes == peer->reported_bytes)
        return;
    peer->reported_bytes = peer->received_bytes;
    (void)peer_send(peer, FRAME_TAKEN, &peer->reported_bytes, sizeof(peer->reported_bytes));
}

/* ---- sending ---- */

static bool window_open(const struct peer *peer)
{
    uint64_t share = peer->ucx->options.data_window_bytes / peer->control->data_count;
    uint64_t under_way = peer->sent_bytes - peer->taken_bytes;
    return under_way == 0 || under_way + FABRIC_PIECE_BYTES_MAX <= share;
}

static bool piece_send(struct peer *peer, const struct fabric_piece *piece)
{
    const struct wire_write wire = {.offset = piece->offset,
                                    .request_id = piece->request.id,
                                    .request_generation = piece->request.generation,
                                    .epoch = piece->epoch};
    const struct stream_parts parts = {.kind = FRAME_WRITE,
                                       .head = &wire,
                                       .head_bytes = sizeof(wire),
                                       .data = piece->memory,
                                       .data_bytes = piece->bytes};
    struct error error;
    bool later = piece->bytes < SMALL_BYTES;
    enum status status = stream_send_parts(&peer->stream, &parts, later, &error);
    if (status != ST_OK) {
        peer_fail(peer, status, &error);
        return false;
    }
    peer->sent_bytes += sizeof(wire) + piece->bytes;
    return true;
}

/* Sends pieces until the socket is full, the window is used up, or none is left. */
static bool pieces_send(struct peer *peer, struct fabric_link *link)
{
    struct fabric_piece piece;
    bool did = false;
    size_t small = 0;
    for (int i = 0; i < PIECES_PER_TURN && window_open(peer);) {
        bool busy = stream_queued_bytes(&peer->stream) > small;
        if (busy || !fabric_link_piece_next(link, &piece) || !piece_send(peer, &piece))
            break;
        fabric_link_piece_sent(link, piece.bytes);
        did = true;
        if (piece.bytes < SMALL_BYTES)
            small = stream_queued_bytes(&peer->stream);
        if (piece.bytes >= SMALL_BYTES || small >= QUEUED_BYTES_MAX)
            i = small >= QUEUED_BYTES_MAX ? PIECES_PER_TURN : i + 1;
    }
    return did;
}

bool data_connection_send(struct peer *peer)
{
    struct error error;
    if (peer->state != PEER_UP || peer->failing != ST_OK || peer->control->failing != ST_OK)
        return false;
    bool did = peer->read_paused && data_connection_may_receive(peer);
    if (did) {
        peer->read_paused = false;
        peer->input_left = true; /* The stream may have more than the socket. */
        peer_epoll_update(peer);
    }
    struct fabric_link *link = peer->control->link;
    if (link == NULL || !fabric_link_by_data(link) || stream_wants_write(&peer->stream))
        return did;
    did = pieces_send(peer, link) || did;
    if (peer->failing == ST_OK && stream_flush(&peer->stream, &error) != ST_OK)
        peer_fail(peer, ST_UNREACHABLE, &error);
    peer_epoll_update(peer);
    return did;
}
