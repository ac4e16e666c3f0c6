/* ucx_peer: the life of one connection: socket, frames, heartbeats, end. See peers.h; ucx_greet.c
 * contains its start. A callback may end any peer, so the state is checked again after each
 * callback. */
#include "transport/peers.h"

#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define RECEIVES_PER_TURN 8

void peer_fail(struct peer *peer, enum status why, const struct error *error)
{
    if (peer->failing != ST_OK || peer->state >= PEER_LINGERING)
        return;
    peer->failing = why;
    error_set(&peer->failure, why, "%s", error->text);
    if (peer->control == NULL) /* Else the control connection, which then fails, adds the name. */
        error_prefix(&peer->failure, "%s",
                     peer->base.identity.name[0] != 0 ? peer->base.identity.name
                                                      : peer->base.address);
    ucx_work_signal(peer->ucx);
}

static struct peer *peer_add(struct ucx *ucx, void *user)
{
    struct peer *peer = calloc(1, sizeof(*peer));
    if (peer == NULL)
        return NULL;
    peer->ucx = ucx;
    peer->base.user = user;
    peer->base.number = ++ucx->connections;
    stream_init(&peer->stream, -1);
    peer->begun_us = ucx->now_us;
    peer->next = ucx->peers;
    ucx->peers = peer;
    return peer;
}

void peer_end(struct peer *peer)
{
    struct ucx *ucx = peer->ucx;
    assert(peer->state < PEER_LINGERING);
    if (peer->accepted && peer->state == PEER_GREETING)
        ucx->accepted_greeting--;
    struct error ignored;
    /* Sends as much as the socket still takes. */
    if (!peer->stream.failed && peer->stream.fd >= 0 && peer->state == PEER_UP)
        (void)stream_flush(&peer->stream, &ignored);
    peer->state = PEER_DEAD;
    data_connections_release(peer);
    fabric_link_copies_await(peer->link); /* Before the other side learns of the end. */
    fabric_inbox_close(peer->inbox);
    peer->inbox = NULL;
    free(peer->hello_frame);
    peer->hello_frame = NULL;
    struct peer **at = &ucx->peers;
    while (*at != peer)
        at = &(*at)->next;
    *at = peer->next;
    linger_begin(peer);
}

/* EPOLLOUT if the peer is connecting or has queued frames. */
void peer_epoll_update(struct peer *peer)
{
    bool write = peer->state == PEER_CONNECTING || stream_wants_write(&peer->stream);
    uint32_t want = (peer->read_paused ? 0 : EPOLLIN) | (write ? EPOLLOUT : 0);
    if (want == peer->epoll_events || peer->stream.fd < 0)
        return;
    struct epoll_event event = {.events = want, .data.ptr = peer};
    if (epoll_ctl(peer->ucx->epoll_fd, EPOLL_CTL_MOD, peer->stream.fd, &event) == 0)
        peer->epoll_events = want;
}

enum status peer_send(struct peer *peer, enum frame_kind kind, const void *data, size_t bytes)
{
    struct error error = {{0}};
    enum status status = stream_send(&peer->stream, kind, data, bytes, &error);
    if (status == ST_OK) {
        peer->sent_us = peer->ucx->now_us;
        peer_epoll_update(peer);
    } else if (status != ST_NO_RESOURCE || kind != FRAME_MESSAGE) {
        peer_fail(peer, status, &error); /* A lost PING or FLUSH cannot be repaired. */
    }
    return status;
}

/* ---- coming up ---- */

static enum status socket_watch(struct peer *peer, int fd)
{
    int on = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT, .data.ptr = peer};
    peer->epoll_events = event.events;
    stream_init(&peer->stream, fd);
    return epoll_ctl(peer->ucx->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0 ? ST_OK : ST_IO;
}

/* Tries the peer's next address. error_number says why the previous one failed. */
static void connect_next(struct peer *peer, int error_number)
{
    for (; peer->address_index < peer->addresses.count; peer->address_index++) {
        const struct sockaddr *to =
            (const struct sockaddr *)&peer->addresses.list[peer->address_index].address;
        stream_done(&peer->stream);
        int fd = socket(to->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (fd < 0) {
            error_number = errno;
            continue;
        }
        if (socket_watch(peer, fd) != ST_OK ||
            (connect(fd, to, peer->addresses.list[peer->address_index].bytes) != 0 &&
             errno != EINPROGRESS)) {
            error_number = errno;
            continue;
        }
        return; /* epoll reports the result. */
    }
    struct error error;
    error_set(&error, ST_UNREACHABLE, "cannot connect: %s", strerror(error_number));
    peer_fail(peer, ST_UNREACHABLE, &error);
}

/* After a quarter of the time to connect, the last good answer is used. */
void peer_resolve(struct peer *peer)
{
    const struct ucx *ucx = peer->ucx;
    struct error error = {{0}};
    if (!peer->resolving || peer->failing != ST_OK)
        return;
    bool late = ucx->now_us - peer->begun_us > (int64_t)ucx->options.connect_ms * 250;
    enum status status = resolver_find(ucx->resolver, &peer->host, late, &peer->addresses, &error);
    if (status == ST_IN_PROGRESS)
        return;
    peer->resolving = false;
    if (status == ST_OK)
        connect_next(peer, EADDRNOTAVAIL);
    else
        peer_fail(peer, ST_UNREACHABLE, &error);
}

struct peer *peer_connect(struct ucx *ucx, const char *text, void *user, struct error *error)
{
    struct address address;
    if (address_parse(text, &address, error) != ST_OK)
        return NULL;
    struct peer *peer = peer_add(ucx, user);
    if (peer == NULL) {
        error_set(error, ST_NO_MEMORY, "out of memory");
        return NULL;
    }
    memcpy(peer->base.address, text, strnlen(text, LIMIT_ADDRESS_BYTES - 1));
    peer->host = address;
    peer->resolving = true;
    peer_resolve(peer);
    return peer;
}

static void connected(struct peer *peer)
{
    int error_number = 0;
    socklen_t bytes = sizeof(error_number);
    if (getsockopt(peer->stream.fd, SOL_SOCKET, SO_ERROR, &error_number, &bytes) != 0)
        error_number = errno;
    if (error_number != 0) {
        peer->address_index++;
        connect_next(peer, error_number);
        return;
    }
    peer->state = PEER_GREETING;
    peer_greet(peer);
    peer_epoll_update(peer);
}

void peer_accept(struct ucx *ucx, int fd)
{
    struct peer *peer = peer_add(ucx, NULL);
    if (peer == NULL) {
        close(fd);
        return;
    }
    struct sockaddr_storage from;
    socklen_t bytes = sizeof(from);
    if (getpeername(fd, (struct sockaddr *)&from, &bytes) == 0)
        address_format((struct sockaddr *)&from, bytes, peer->base.address);
    peer->accepted = true;
    peer->state = PEER_GREETING;
    ucx->accepted_greeting++;
    struct error error;
    if (socket_watch(peer, fd) != ST_OK) {
        error_set(&error, ST_IO, "epoll: %s", strerror(errno));
        peer_fail(peer, ST_IO, &error);
    } else {
        peer_greet(peer);
    }
    peer_epoll_update(peer);
}

/* ---- frames ---- */

static void flushed(struct peer *peer, const uint8_t *data, size_t bytes)
{
    uint32_t words[2];
    struct error error;
    if (bytes == sizeof(words) && peer->link != NULL) {
        memcpy(words, data, sizeof(words));
        if (fabric_link_confirm(peer->link, words[0]) == ST_OK)
            return;
    }
    error_set(&error, ST_INVALID, "a FLUSHED frame that does not belong to a flush");
    peer_fail(peer, ST_INVALID, &error);
}

static void flush_asked(struct peer *peer, const uint8_t *data, size_t bytes)
{
    struct fabric_mark mark;
    struct error error;
    enum status status =
        error_set(&error, ST_INVALID, "a FLUSH frame to a process without a region");
    if (bytes == sizeof(mark) && peer->inbox != NULL) {
        memcpy(&mark, data, sizeof(mark));
        status = fabric_inbox_epoch_mark(peer->inbox, mark, &error);
    }
    if (status != ST_OK)
        peer_fail(peer, status, &error);
}

static void frame(struct peer *peer, uint32_t kind, const uint8_t *data, size_t bytes)
{
    const struct transport_options *options = &peer->ucx->options;
    struct error error;
    if (peer->state == PEER_PROVING)
        prove_frame(peer, kind, data, bytes);
    else if (peer->state != PEER_UP)
        peer_greet_frame(peer, kind, data, bytes);
    else if ((kind == FRAME_KEY || kind == FRAME_KEY_REPLY) && peer->ucx->has_key)
        peer_key_frame(peer, kind, data, bytes);
    else if (peer->control != NULL)
        data_connection_frame(peer, kind, data, bytes);
    else if (kind == FRAME_REFUSE)
        peer_refused(peer, data, bytes);
    else if (kind == FRAME_DATA_WANTED && !peer->accepted)
        data_connections_open(peer);
    else if (kind == FRAME_MESSAGE)
        options->events.message(options->self, &peer->base, data, bytes);
    else if (kind == FRAME_FLUSH)
        flush_asked(peer, data, bytes);
    else if (kind == FRAME_FLUSHED)
        flushed(peer, data, bytes);
    else if (kind == FRAME_LINK_SEEN)
        peer->link_seen = true; /* It may mean the probe of a link that was given up. */
    else if (kind != FRAME_PING) {
        error_set(&error, ST_INVALID, "a frame of unknown kind %u", kind);
        peer_fail(peer, ST_INVALID, &error);
    }
}

/* The largest frame that the peer may send now. */
static size_t frame_bytes_max(const struct peer *peer)
{
    if (peer->state != PEER_UP)
        return peer_greet_bytes_max(peer);
    return peer->control != NULL ? data_connection_frame_bytes_max() : LIMIT_MESSAGE_BYTES;
}

/* A data connection must not read on while the device has too much to copy. */
static bool receive_pause(struct peer *peer)
{
    if (peer->state != PEER_UP || peer->control == NULL || data_connection_may_receive(peer))
        return false;
    peer->read_paused = true;
    peer_epoll_update(peer);
    return true;
}

static void peer_receive(struct peer *peer)
{
    struct error error;
    peer->input_left = false;
    if (peer->state == PEER_GREETING && peer->step == GREETING_TLS && !peer_greet_tls(peer))
        return;
    for (int i = 0; !receive_pause(peer); i++) {
        if (i == RECEIVES_PER_TURN) {
            peer->input_left = true;
            return;
        }
        size_t most = frame_bytes_max(peer);
        enum status status = stream_receive(&peer->stream, most, &error);
        if (status == ST_IN_PROGRESS)
            return;
        if (status != ST_OK) {
            peer_greet_explain(peer, &error);
            peer_fail(peer, status, &error);
            return;
        }
        peer->heard_us = peer->ucx->now_us;
        if (peer->state == PEER_GREETING && !peer->ucx->has_key && stream_sees_tls(&peer->stream)) {
            peer_greet_foreign(peer);
            return;
        }
        struct stream_frame head;
        const uint8_t *payload;
        while (peer->failing == ST_OK && stream_frame_next(&peer->stream, &head, &payload)) {
            frame(peer, head.kind, payload, head.bytes);
            if (peer->state >= PEER_LINGERING)
                return;
        }
        if (peer->failing != ST_OK)
            return;
    }
}

void peer_socket_ready(struct peer *peer, uint32_t epoll_events)
{
    struct error error;
    if (peer->state == PEER_LINGERING) {
        linger_socket_ready(peer);
        return;
    }
    if (peer->state == PEER_DEAD || peer->failing != ST_OK)
        return;
    if (peer->state == PEER_CONNECTING) {
        connected(peer);
        return;
    }
    if ((epoll_events & EPOLLOUT) != 0) {
        enum status status = stream_flush(&peer->stream, &error);
        if (status != ST_OK)
            peer_fail(peer, status, &error);
        peer_epoll_update(peer);
    }
    /* Nothing is read that would end this, and epoll reports it again and again. */
    if (peer->read_paused && (epoll_events & (EPOLLHUP | EPOLLERR)) != 0) {
        error_set(&error, ST_UNREACHABLE, "a data connection was lost");
        peer_fail(peer, ST_UNREACHABLE, &error);
    }
    if ((epoll_events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0 && peer->failing == ST_OK)
        peer_receive(peer);
    if (peer->state == PEER_UP && peer->control != NULL && peer->failing == ST_OK)
        data_connection_received(peer);
}

/* ---- what UCX did, time, and the end ---- */

struct fabric_link *peer_link_open(struct peer *peer, bool by_data)
{
    struct error error;
    /* A peer that has closed this connection may have freed its memory. UCX 1.13 crashes when it
     * unpacks the key of memory that is gone (in ucp_rkey_destroy, for a part that it has not
     * unpacked). */
    if (stream_ended(&peer->stream)) {
        error_set(&error, ST_UNREACHABLE, "connection closed by the peer");
        peer_fail(peer, ST_UNREACHABLE, &error);
        return NULL;
    }
    enum status status = fabric_link_open(peer->ucx->fabric, &peer->hello_fields.address,
                                          peer->hello_fields.token, by_data, &peer->link, &error);
    if (status != ST_OK) {
        /* The other side may believe that the connection is up. */
        peer_refuse(peer, status, &error);
        return NULL;
    }
    const char *path = fabric_link_path(peer->link);
    memcpy(peer->base.path, path, strlen(path) + 1);
    const char *note = fabric_link_indirect_reason(peer->link);
    memcpy(peer->base.note, note, strlen(note) + 1);
    return peer->link;
}

struct fabric_link *peer_link(struct peer *peer)
{
    if (peer->link == NULL && peer->failing == ST_OK && peer_link_open(peer, false) != NULL &&
        fabric_link_by_data(peer->link))
        data_connections_open(peer);
    return peer->failing == ST_OK ? peer->link : NULL;
}

bool peer_progress(struct peer *peer)
{
    const struct transport_options *options = &peer->ucx->options;
    struct error error;
    uint64_t cookie;
    bool did = false;
    if (peer->failing != ST_OK)
        return false;
    if (peer->input_left) {
        peer_socket_ready(peer, EPOLLIN);
        return true;
    }
    if (peer->state == PEER_PROVING)
        return prove_progress(peer);
    if (peer->state != PEER_UP)
        return false;
    if (peer->control != NULL)
        return data_connection_send(peer);
    while (peer->link != NULL && fabric_link_flushed(peer->link, false, &cookie)) {
        did = true;
        options->events.flushed(options->self, &peer->base, cookie, ST_OK);
        if (peer->state >= PEER_LINGERING)
            return true;
    }
    did |= prove_again_progress(peer);
    uint32_t words[2] = {0};
    while (peer->inbox != NULL && fabric_inbox_landed(peer->inbox, &words[0])) {
        did = true;
        if (peer_send(peer, FRAME_FLUSHED, words, sizeof(words)) != ST_OK)
            return true;
    }
    enum status status = ST_OK;
    if (peer->link != NULL)
        status = fabric_link_failed(peer->link, &error);
    if (status == ST_OK && peer->inbox != NULL)
        status = fabric_inbox_failed(peer->inbox, &error);
    if (status != ST_OK)
        peer_fail(peer, status, &error);
    return did || status != ST_OK;
}

void peer_failure_report(struct peer *peer)
{
    const struct transport_options *options = &peer->ucx->options;
    uint64_t cookie;
    if (peer->control != NULL) {
        peer_fail(peer->control, peer->failing, &peer->failure);
        peer_end(peer);
        return;
    }
    while (peer->link != NULL && peer->state == PEER_UP &&
           fabric_link_flushed(peer->link, true, &cookie))
        options->events.flushed(options->self, &peer->base, cookie, peer->failing);
    /* The callback has disconnected the peer. */
    if (peer->state >= PEER_LINGERING)
        return;
    fabric_inbox_copies_await(peer->inbox); /* After peer_down, no write of the peer may land. */
    enum status why = peer->failing;
    struct error text = peer->failure;
    if (peer->state != PEER_UP)
        peer->base.region = (struct transport_region_info){0};
    options->events.peer_down(options->self, &peer->base, why, text.text);
    if (peer->state < PEER_LINGERING)
        peer_end(peer);
}

void peer_deadlines_check(struct peer *peer)
{
    const struct transport_options *options = &peer->ucx->options;
    int64_t now = peer->ucx->now_us;
    struct error error;
    if (peer->failing != ST_OK)
        return;
    peer_resolve(peer);
    if (peer->state == PEER_PROVING)
        prove_deadline_check(peer);
    else if (peer->state != PEER_UP && now - peer->begun_us > (int64_t)options->connect_ms * 1000) {
        error_set(&error, ST_TIMED_OUT, "no %s within %u ms%s",
                  peer->resolving                  ? "address of the host"
                  : peer->state == PEER_CONNECTING ? "connection"
                                                   : "hand-shake",
                  options->connect_ms,
                  peer->state == PEER_GREETING ? " (is its process stopped, or its host busy?)"
                                               : "");
        peer_greet_explain(peer, &error);
        peer_fail(peer, ST_TIMED_OUT, &error);
    }
    peer_key_tick(peer);
    /* The control connection notices the peer's silence. */
    if (peer->state != PEER_UP || peer->failing != ST_OK || peer->control != NULL)
        return;
    if (now - peer->heard_us > (int64_t)options->silence_ms * 1000) {
        error_set(&error, ST_TIMED_OUT, "silent for %u ms", options->silence_ms);
        peer_fail(peer, ST_TIMED_OUT, &error);
        return;
    }
    prove_again_tick(peer);
    if (now - peer->sent_us >= (int64_t)options->heartbeat_ms * 1000 &&
        !stream_wants_write(&peer->stream))
        (void)peer_send(peer, FRAME_PING, NULL, 0);
}
