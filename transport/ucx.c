/* ucx: transport_ops over TCP sockets and UCX: the life of a transport, its calls and its loop. See
 * peers.h.
 *
 * One iteration of progress handles UCX, then the sockets, then the consequences of both (flushes,
 * deadlines, ends). Iterations repeat until one finds nothing to do and UCX is armed. After
 * PROGRESS_US the rest waits for the next call, and the descriptor is made readable. One epoll
 * holds the sockets, UCX's descriptor, the device's eventfd, a timer for heartbeats and deadlines
 * (which runs only while there are peers), and an eventfd for work that no other descriptor
 * reports. */
#include "common/clock.h"
#include "transport/address.h"
#include "transport/peers.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define PROGRESS_US 5000
#define EVENTS      64
/* Steps of TLS hand-shakes in one iteration. A step costs some 0.2 ms. */
#define HANDSHAKES_PER_TURN 8
#define STRANGERS_MAX       256 /* Accepted connections that have not finished the hand-shake. */

static int64_t now_us(void)
{
    return clock_now_us(&clock_system);
}

void ucx_work_signal(struct ucx *ucx)
{
    if (!ucx->work_signalled)
        eventfd_write(ucx->more_fd, 1);
    ucx->work_signalled = true;
}

static enum status watch(struct ucx *ucx, int fd, void *what)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = what};
    return epoll_ctl(ucx->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0 ? ST_OK : ST_IO;
}

static enum status descriptors_open(struct ucx *ucx)
{
    ucx->listen_fd = ucx->device_fd = -1;
    ucx->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    ucx->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    ucx->more_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (ucx->epoll_fd < 0 || ucx->timer_fd < 0 || ucx->more_fd < 0 ||
        watch(ucx, ucx->timer_fd, &ucx->timer_fd) != ST_OK ||
        watch(ucx, ucx->more_fd, &ucx->more_fd) != ST_OK ||
        watch(ucx, resolver_fd(ucx->resolver), &ucx->resolver) != ST_OK)
        return ST_IO;
    if (ucx->fabric == NULL)
        return ST_OK;
    ucx->device_fd = fabric_device_fd(ucx->fabric);
    if (ucx->device_fd >= 0 && watch(ucx, ucx->device_fd, &ucx->device_fd) != ST_OK)
        return ST_IO;
    int fd = fabric_fd(ucx->fabric);
    return fd < 0 ? ST_OK : watch(ucx, fd, &ucx->fabric);
}

static void descriptors_close(struct ucx *ucx)
{
    const int fds[] = {ucx->listen_fd, ucx->timer_fd, ucx->more_fd, ucx->epoll_fd};
    for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

/* Sets the highest version of the protocol to speak. */
static enum status protocol_version_set(struct transport_options *options, struct error *error)
{
    const char *text = getenv("CLEAVE_PROTOCOL");
    unsigned long version = options->protocol_version;
    if (version == 0)
        version = text != NULL ? strtoul(text, NULL, 10) : TRANSPORT_PROTOCOL_VERSION;
    options->protocol_version = (uint32_t)version;
    if (version >= TRANSPORT_PROTOCOL_LOWEST && version <= TRANSPORT_PROTOCOL_VERSION)
        return ST_OK;
    return error_set(error, ST_INVALID, "CLEAVE_PROTOCOL=%lu: want %d to %d", version,
                     TRANSPORT_PROTOCOL_LOWEST, TRANSPORT_PROTOCOL_VERSION);
}

static enum status ucx_open(const struct transport_options *options, void **impl_out,
                            struct error *error)
{
    struct ucx *ucx = calloc(1, sizeof(*ucx));
    if (ucx == NULL)
        return error_set(error, ST_NO_MEMORY, "transport: out of memory");
    ucx->options = *options;
    if (options->heartbeat_ms == 0)
        ucx->options.heartbeat_ms = 1000;
    if (options->silence_ms == 0)
        ucx->options.silence_ms = 5000;
    if (options->connect_ms == 0)
        ucx->options.connect_ms = 5000;
    if (options->link_ms == 0)
        ucx->options.link_ms = 2000;
    if (options->link_retry_ms == 0)
        ucx->options.link_retry_ms = 60000;
    if (options->data_connections == 0)
        ucx->options.data_connections = 2;
    if (options->data_window_bytes == 0)
        ucx->options.data_window_bytes = (uint64_t)8 << 20;
    ucx->has_key = options->keys != NULL;
    if (ucx->has_key)
        ucx->keys = *options->keys;
    ucx->options.keys = NULL; /* The caller may free its keys after this call. */
    ucx->now_us = now_us();
    enum status status = protocol_version_set(&ucx->options, error);
    if (status == ST_OK && ucx->has_key)
        status = tls_keys_open(&ucx->keys, &ucx->tls_keys, error);
    if (status != ST_OK)
        goto undo_alloc;
    const struct fabric_options fabric = {
        .region_bytes = options->region_bytes,
        .device = options->device,
        .copy_ms = ucx->options.silence_ms,
        .share = ucx->has_key,
        .encrypted = ucx->has_key,
        .window_bytes = ucx->options.data_window_bytes,
        .write_wanted = options->events.write_wanted,
        .self = options->self,
        .ucx_tls = options->ucx_tls,
        .ucx_devices = options->ucx_devices,
        .one_host = options->one_host,
    };
    if (options->region_bytes > 0)
        status = fabric_open(&fabric, &ucx->fabric, error);
    if (status != ST_OK)
        goto undo_alloc;
    status = resolver_open(address_resolve, &ucx->resolver, error);
    if (status != ST_OK)
        goto undo_fabric;
    status = descriptors_open(ucx);
    if (status != ST_OK) {
        error_set(error, status, "transport: descriptors: %s", strerror(errno));
        goto undo_descriptors;
    }
    ucx_work_signal(ucx); /* The first progress arms UCX. */
    *impl_out = ucx;
    return ST_OK;

undo_descriptors:
    descriptors_close(ucx);
    resolver_close(ucx->resolver);
undo_fabric:
    fabric_close(ucx->fabric);
undo_alloc:
    tls_keys_close(ucx->tls_keys);
    secret_wipe(&ucx->keys, sizeof(ucx->keys));
    free(ucx);
    return status;
}

static void graveyard_clear(struct ucx *ucx)
{
    while (ucx->ended_peers != NULL) {
        struct peer *peer = ucx->ended_peers;
        ucx->ended_peers = peer->next;
        free(peer);
    }
}

static void ucx_close(void *impl)
{
    struct ucx *ucx = impl;
    assert(!ucx->in_progress);
    while (ucx->peers != NULL)
        peer_end(ucx->peers);
    linger_close(ucx);
    graveyard_clear(ucx);
    descriptors_close(ucx);
    resolver_close(ucx->resolver);
    fabric_close(ucx->fabric);
    tls_keys_close(ucx->tls_keys);
    secret_wipe(&ucx->keys, sizeof(ucx->keys));
    free(ucx);
}

/* Starts or stops the timer for heartbeats and deadlines. */
static void timer_set(struct ucx *ucx, bool on)
{
    const struct transport_options *options = &ucx->options;
    if (ucx->timer_runs == on)
        return;
    ucx->timer_runs = on;
    uint32_t tick_ms = options->heartbeat_ms / 2;
    if (options->silence_ms / 8 < tick_ms)
        tick_ms = options->silence_ms / 8;
    if (options->connect_ms / 8 < tick_ms)
        tick_ms = options->connect_ms / 8;
    if (tick_ms < 5)
        tick_ms = 5;
    struct timespec every = {.tv_sec = tick_ms / 1000, .tv_nsec = (tick_ms % 1000) * 1000000L};
    struct itimerspec timer = {{0, 0}, {0, 0}};
    if (on)
        timer = (struct itimerspec){.it_interval = every, .it_value = every};
    (void)timerfd_settime(ucx->timer_fd, 0, &timer, NULL);
}

/* ---- the calls ---- */

static enum status ucx_listen(void *impl, const char *text, char bound_out[LIMIT_ADDRESS_BYTES],
                              struct error *error)
{
    struct ucx *ucx = impl;
    char bound[LIMIT_ADDRESS_BYTES];
    int fd;
    assert(ucx->listen_fd < 0);
    enum status status = address_listen(text, &fd, bound, error);
    if (status != ST_OK)
        return status;
    if (watch(ucx, fd, &ucx->listen_fd) != ST_OK) {
        close(fd);
        return error_set(error, ST_IO, "listen on %s: %s", text, strerror(errno));
    }
    memcpy(bound_out, bound, sizeof(bound));
    ucx->listen_fd = fd;
    return ST_OK;
}

static enum status ucx_connect(void *impl, const char *address, void *user,
                               struct transport_peer **out, struct error *error)
{
    struct ucx *ucx = impl;
    ucx->now_us = now_us();
    struct peer *peer = peer_connect(ucx, address, user, error);
    if (peer == NULL)
        return ST_INVALID;
    timer_set(ucx, true);
    *out = &peer->base;
    return ST_OK;
}

static void ucx_disconnect(void *impl, struct transport_peer *base)
{
    struct ucx *ucx = impl;
    peer_end((struct peer *)base);
    ucx_work_signal(ucx); /* UCX releases its endpoint during progress. */
}

static enum status ucx_send(void *impl, struct transport_peer *base, const void *data, size_t bytes)
{
    struct peer *peer = (struct peer *)base;
    (void)impl;
    if (peer->state != PEER_UP || peer->failing != ST_OK)
        return ST_UNREACHABLE;
    return peer_send(peer, FRAME_MESSAGE, data, bytes);
}

static enum status ucx_write(void *impl, struct transport_peer *base, const void *local,
                             size_t bytes, uint64_t remote_offset,
                             const struct transport_request *request)
{
    struct ucx *ucx = impl;
    struct peer *peer = (struct peer *)base;
    const uint8_t *region = fabric_region(ucx->fabric);
    assert((const uint8_t *)local >= region &&
           (const uint8_t *)local + bytes <= region + ucx->options.region_bytes);
    struct fabric_link *link = peer->state == PEER_UP ? peer_link(peer) : NULL;
    if (link == NULL)
        return ST_UNREACHABLE;
    fabric_link_write(link, local, bytes, remote_offset, request);
    ucx_work_signal(ucx);
    return ST_OK;
}

static void ucx_flush(void *impl, struct transport_peer *base, uint64_t cookie)
{
    struct ucx *ucx = impl;
    struct peer *peer = (struct peer *)base;
    struct fabric_mark mark;
    assert(peer->base.region.bytes > 0); /* A peer without a region has nothing to flush. */
    struct fabric_link *link = peer->state == PEER_UP ? peer_link(peer) : NULL;
    /* peer_down will follow. */
    if (link == NULL)
        return;
    if (fabric_link_flush(link, cookie, &mark))
        (void)peer_send(peer, FRAME_FLUSH, &mark, sizeof(mark));
    ucx_work_signal(ucx);
}

static void *ucx_region(void *impl)
{
    struct ucx *ucx = impl;
    return ucx->fabric != NULL ? fabric_region(ucx->fabric) : NULL;
}

static void ucx_memory(void *impl, struct transport_memory *out)
{
    struct ucx *ucx = impl;
    *out = (struct transport_memory){.way = TRANSPORT_WAY_HOST};
    if (ucx->fabric != NULL)
        fabric_memory_state(ucx->fabric, out);
}

static bool ucx_writes_await(void *impl, struct transport_peer *base)
{
    (void)impl;
    return linger_await((struct peer *)base);
}

static int ucx_fd(void *impl)
{
    return ((struct ucx *)impl)->epoll_fd;
}

/* ---- the loop ---- */

static void listen_pause(struct ucx *ucx, bool pause)
{
    struct epoll_event event = {.events = pause ? 0 : EPOLLIN, .data.ptr = &ucx->listen_fd};
    if (epoll_ctl(ucx->epoll_fd, EPOLL_CTL_MOD, ucx->listen_fd, &event) == 0)
        ucx->listen_paused = pause;
}

/* Makes room for a new stranger by failing the one that has been greeting for longest. So strangers
 * that only occupy connections cannot keep out a peer that shakes hands at once. */
static void stranger_drop(struct ucx *ucx)
{
    struct peer *oldest = NULL;
    /* The list begins with the newest peer. */
    for (struct peer *peer = ucx->peers; peer != NULL; peer = peer->next)
        if (peer->accepted && peer->state == PEER_GREETING && peer->failing == ST_OK)
            oldest = peer;
    struct error error;
    error_set(&error, ST_NO_RESOURCE, "%d newer connections had not proved the cluster key either",
              STRANGERS_MAX);
    if (oldest != NULL)
        peer_fail(oldest, ST_NO_RESOURCE, &error);
}

static void accept_some(struct ucx *ucx)
{
    for (int i = 0; i < 16; i++) {
        int fd = accept4(ucx->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        /* The socket would stay readable. Accepting is tried again at the next tick. */
        if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM))
            listen_pause(ucx, true);
        if (fd < 0)
            break;
        if (ucx->accepted_greeting >= STRANGERS_MAX)
            stranger_drop(ucx);
        peer_accept(ucx, fd);
    }
    timer_set(ucx, true);
}

/* A look-up has ended. */
static void resolver_turn(struct ucx *ucx)
{
    eventfd_t ignored;
    (void)eventfd_read(resolver_fd(ucx->resolver), &ignored);
    for (struct peer *peer = ucx->peers; peer != NULL; peer = peer->next)
        peer_resolve(peer);
}

static bool sockets_turn(struct ucx *ucx)
{
    struct epoll_event events[EVENTS];
    int count = epoll_wait(ucx->epoll_fd, events, EVENTS, 0);
    bool did = false;
    /* Sockets are handled in the order in which they became readable: a machine's token may follow
     * from another machine's. The events that are left when the time is over are reported again,
     * and the next turn begins with them. */
    const uint32_t first = ucx->event_first;
    int handled = 0;
    for (; handled < count && (handled == 0 || now_us() < ucx->turn_end_us); handled++) {
        const struct epoll_event *event = &events[(first + (uint32_t)handled) % (uint32_t)count];
        void *what = event->data.ptr;
        uint64_t ignored;
        /* Readable until UCX is armed. */
        if (what == &ucx->fabric)
            continue;
        /* more_fd only says that work is left (ucx_work_signal). If reading it counted as work, a
         * turn that runs out of time would signal again, although nothing else is left. */
        did = did || what != &ucx->more_fd;
        if (what == &ucx->listen_fd)
            accept_some(ucx);
        else if (what == &ucx->timer_fd)
            ucx->timer_expired =
                read(ucx->timer_fd, &ignored, sizeof(ignored)) > 0 || ucx->timer_expired;
        else if (what == &ucx->more_fd)
            ucx->work_signalled =
                read(ucx->more_fd, &ignored, sizeof(ignored)) <= 0 && ucx->work_signalled;
        else if (what == &ucx->resolver)
            resolver_turn(ucx);
        else if (what == &ucx->device_fd)
            did = read(ucx->device_fd, &ignored, sizeof(ignored)) > 0 || did;
        else
            peer_socket_ready(what, event->events);
    }
    ucx->event_first = handled < count ? (first + (uint32_t)handled) % (uint32_t)count : 0;
    return did;
}

/* Handles the results of all peers. A callback may change the list of peers: when a peer has ended,
 * begin again at the head of the list. */
static bool settle_turn(struct ucx *ucx)
{
    bool did = false;
    struct peer *peer = ucx->peers;
    while (peer != NULL) {
        struct peer *next = peer->next;
        if (peer_progress(peer)) {
            did = true;
            next = peer->state >= PEER_LINGERING ? ucx->peers : peer->next;
        }
        if (peer->failing != ST_OK && peer->state < PEER_LINGERING) {
            peer_failure_report(peer);
            did = true;
            next = ucx->peers;
        }
        peer = next;
    }
    return did;
}

static void ticks_turn(struct ucx *ucx)
{
    ucx->timer_expired = false;
    if (ucx->fabric != NULL)
        fabric_deadlines_check(ucx->fabric);
    for (struct peer *peer = ucx->peers; peer != NULL; peer = peer->next)
        peer_deadlines_check(peer);
    if (ucx->listen_paused)
        listen_pause(ucx, false);
    else if (ucx->peers == NULL)
        timer_set(ucx, false);
}

static bool fabric_turn(struct ucx *ucx)
{
    bool did = false;
    for (int i = 0; i < 64 && fabric_progress(ucx->fabric); i++)
        did = true;
    return did;
}

static void ucx_progress(void *impl)
{
    struct ucx *ucx = impl;
    assert(!ucx->in_progress); /* A callback must not call progress. */
    ucx->in_progress = true;
    graveyard_clear(ucx);
    ucx->now_us = now_us();
    ucx->turn_end_us = ucx->now_us + PROGRESS_US;
    bool did = true;
    while (did && ucx->now_us < ucx->turn_end_us) {
        ucx->handshakes_left = HANDSHAKES_PER_TURN;
        did = ucx->fabric != NULL && fabric_turn(ucx);
        did = sockets_turn(ucx) || did;
        /* After the sockets, because a peer counts as silent only if its socket had no data. */
        if (ucx->timer_expired)
            ticks_turn(ucx);
        did = settle_turn(ucx) || did;
        if (!did && ucx->fabric != NULL && !fabric_wait_prepare(ucx->fabric))
            did = true;
        ucx->now_us = now_us();
    }
    if (did)
        ucx_work_signal(ucx);
    ucx->in_progress = false;
}

static void ucx_metadata_hash_set(void *impl, uint64_t metadata_hash)
{
    struct ucx *ucx = impl;
    ucx->options.identity.metadata_hash = metadata_hash;
}

static enum status ucx_keys_change(void *impl, const struct secret_keys *keys, struct error *error)
{
    struct ucx *ucx = impl;
    ucx->now_us = now_us();
    return ucx_keys_set(ucx, keys, error);
}

const struct transport_ops transport_ucx = {
    .name = "ucx",
    .open = ucx_open,
    .close = ucx_close,
    .listen = ucx_listen,
    .connect = ucx_connect,
    .disconnect = ucx_disconnect,
    .send = ucx_send,
    .write = ucx_write,
    .flush = ucx_flush,
    .region = ucx_region,
    .fd = ucx_fd,
    .progress = ucx_progress,
    .metadata_hash_set = ucx_metadata_hash_set,
    .memory = ucx_memory,
    .writes_await = ucx_writes_await,
    .keys_set = ucx_keys_change,
};
