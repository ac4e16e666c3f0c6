/* loopback: transports within one process, for tests. See loopback.h.
 *
 * A connection is two peers that point at each other. Each action of one side becomes an event in
 * the queue of the side that must learn of it. An eventfd is readable while the queue is not empty.
 * A peer that is going down exists until its DOWN event is delivered, with `other` NULL; what it
 * sends until then is lost. */
#include "tests/transport/loopback.h"
#include "transport/transport_internal.h"

#include <assert.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

enum event_kind { EVENT_CONNECT, EVENT_UP, EVENT_DOWN, EVENT_MESSAGE, EVENT_FLUSH };

struct loop_event {
    struct loop_event *next;
    struct loop_peer *peer;
    enum event_kind kind;
    enum status status;
    uint64_t number; /* Ascending within a queue. */
    uint64_t cookie;
    size_t bytes;
    struct error text;
    _Alignas(8) uint8_t data[]; /* The message of EVENT_MESSAGE. */
};

struct loop_write {
    struct loop_write *next;
    struct transport_request request;
    const void *local;
    size_t bytes;
    uint64_t offset;
};

struct loop_flush {
    struct loop_flush *next;
    struct loop_write *writes; /* The writes issued before the flush, oldest first. */
    uint64_t cookie;
};

struct loop_peer {
    struct transport_peer base;
    struct loop *owner;
    struct loop_peer *other;
    struct loop_peer *next; /* Next peer of the owner. */
    bool up, cut, held;
    struct loop_write *writes, **writes_tail;
    struct loop_flush *flushes, **flushes_tail; /* Flushes not yet performed. */
};

struct loop {
    struct transport_options options;
    char address[LIMIT_ADDRESS_BYTES]; /* Empty = not listening. */
    struct loop *next;                 /* Next in the list of all transports of the process. */
    struct loop_peer *peers;
    uint64_t connections; /* Number of the latest connection. */
    struct loop_event *events, **events_tail;
    uint64_t event_count; /* Number of events ever added. */
    void *region;
    uint64_t landed_bytes;
    struct transport_copy_counts copied[DEVICE_DIRECTIONS];
    int fd;
};

static struct loop *all_loops;

static struct loop_event *event_add(struct loop_peer *peer, enum event_kind kind, size_t bytes)
{
    struct loop *loop = peer->owner;
    struct loop_event *event = calloc(1, sizeof(*event) + bytes);
    assert(event != NULL);
    event->peer = peer;
    event->kind = kind;
    event->number = ++loop->event_count;
    event->bytes = bytes;
    *loop->events_tail = event;
    loop->events_tail = &event->next;
    eventfd_write(loop->fd, 1);
    return event;
}

static void events_forget(struct loop *loop, const struct loop_peer *peer)
{
    struct loop_event **at = &loop->events;
    while (*at != NULL) {
        struct loop_event *event = *at;
        if (event->peer != peer) {
            at = &event->next;
            continue;
        }
        *at = event->next;
        free(event);
    }
    loop->events_tail = at;
}

static void writes_free(struct loop_write *write)
{
    while (write != NULL) {
        struct loop_write *next = write->next;
        free(write);
        write = next;
    }
}

static struct loop_peer *peer_add(struct loop *loop, const char *address, void *user)
{
    struct loop_peer *peer = calloc(1, sizeof(*peer));
    assert(peer != NULL);
    peer->owner = loop;
    peer->base.user = user;
    peer->base.number = ++loop->connections;
    memcpy(peer->base.address, address, strnlen(address, LIMIT_ADDRESS_BYTES - 1));
    memcpy(peer->base.path, "loopback", sizeof("loopback"));
    peer->writes_tail = &peer->writes;
    peer->flushes_tail = &peer->flushes;
    peer->next = loop->peers;
    loop->peers = peer;
    return peer;
}

static void peer_free(struct loop_peer *peer)
{
    struct loop_peer **at = &peer->owner->peers;
    while (*at != peer)
        at = &(*at)->next;
    *at = peer->next;
    events_forget(peer->owner, peer);
    writes_free(peer->writes);
    while (peer->flushes != NULL) {
        struct loop_flush *flush = peer->flushes;
        peer->flushes = flush->next;
        writes_free(flush->writes);
        free(flush);
    }
    free(peer);
}

/* Queues the end of the connection for this side, after its unreported flushes. */
static void peer_end(struct loop_peer *peer, enum status why, const char *text)
{
    peer->other = NULL;
    for (struct loop_flush *flush = peer->flushes; flush != NULL; flush = flush->next) {
        struct loop_event *event = event_add(peer, EVENT_FLUSH, 0);
        event->status = why;
        event->cookie = flush->cookie;
    }
    struct loop_event *event = event_add(peer, EVENT_DOWN, 0);
    event->status = why;
    error_set(&event->text, why, "%s: %s",
              peer->base.identity.name[0] != 0 ? peer->base.identity.name : peer->base.address,
              text);
}

static void connection_end(struct loop_peer *peer, enum status why, const char *text)
{
    struct loop_peer *other = peer->other;
    /* The connection is going down already. */
    if (other == NULL)
        return;
    peer_end(peer, why, text);
    peer_end(other, why, text);
}

static enum status loop_open(const struct transport_options *options, void **impl_out,
                             struct error *error)
{
    struct loop *loop = calloc(1, sizeof(*loop));
    if (loop == NULL)
        return error_set(error, ST_NO_MEMORY, "loopback: out of memory");
    loop->options = *options;
    loop->events_tail = &loop->events;
    loop->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (loop->fd < 0)
        goto undo_alloc;
    if (options->region_bytes > 0 && options->device != NULL) {
        if (options->device->ops->allocate(options->device->self, options->region_bytes,
                                           &loop->region, error) != ST_OK)
            goto undo_device;
    } else if (options->region_bytes > 0) {
        loop->region = mmap(NULL, options->region_bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (loop->region == MAP_FAILED)
            goto undo_fd;
    }
    loop->next = all_loops;
    all_loops = loop;
    *impl_out = loop;
    return ST_OK;

undo_device:
    close(loop->fd);
    free(loop);
    return ST_NO_MEMORY;
undo_fd:
    close(loop->fd);
undo_alloc:
    free(loop);
    return error_set(error, ST_NO_MEMORY, "loopback: no descriptor or memory");
}

static void loop_disconnect(void *impl, struct transport_peer *base)
{
    (void)impl;
    struct loop_peer *peer = (struct loop_peer *)base;
    if (peer->other != NULL)
        peer_end(peer->other, ST_UNREACHABLE, "connection closed by the peer");
    peer_free(peer);
}

static void loop_close(void *impl)
{
    struct loop *loop = impl;
    while (loop->peers != NULL)
        loop_disconnect(loop, &loop->peers->base);
    struct loop **at = &all_loops;
    while (*at != loop)
        at = &(*at)->next;
    *at = loop->next;
    const struct device_memory *device = loop->options.device;
    if (device != NULL)
        device->ops->free(device->self, loop->region);
    else if (loop->region != NULL)
        munmap(loop->region, loop->options.region_bytes);
    close(loop->fd);
    free(loop);
}

static struct loop *loop_find(const char *address)
{
    for (struct loop *loop = all_loops; loop != NULL; loop = loop->next)
        if (strcmp(loop->address, address) == 0)
            return loop;
    return NULL;
}

static enum status loop_listen(void *impl, const char *address, char bound_out[LIMIT_ADDRESS_BYTES],
                               struct error *error)
{
    struct loop *loop = impl;
    if (address[0] == 0 || strlen(address) >= LIMIT_ADDRESS_BYTES)
        return error_set(error, ST_INVALID, "listen on %s: not an address", address);
    if (loop_find(address) != NULL)
        return error_set(error, ST_IO, "listen on %s: address already in use", address);
    size_t length = strlen(address) + 1;
    memcpy(loop->address, address, length);
    memcpy(bound_out, address, length);
    return ST_OK;
}

static enum status loop_connect(void *impl, const char *address, void *user,
                                struct transport_peer **out, struct error *error)
{
    if (address[0] == 0 || strlen(address) >= LIMIT_ADDRESS_BYTES)
        return error_set(error, ST_INVALID, "connect to %s: not an address", address);
    struct loop_peer *peer = peer_add(impl, address, user);
    event_add(peer, EVENT_CONNECT, 0);
    *out = &peer->base;
    return ST_OK;
}

static struct transport_region_info region_info(const struct loop *loop)
{
    return (struct transport_region_info){
        .bytes = loop->options.region_bytes,
        .block_count = loop->options.block_count,
        .layer_stride_bytes = loop->options.layer_stride_bytes,
    };
}

/* Handles the first event of a connecting peer: finds the listener, compares the identities and
 * informs both sides. */
static void connect_now(struct loop_peer *peer)
{
    struct loop *loop = peer->owner;
    struct loop *there = loop_find(peer->base.address);
    if (there == NULL) {
        peer_end(peer, ST_UNREACHABLE, "connection refused");
        return;
    }
    struct loop_peer *other = peer_add(there, loop->options.identity.name, NULL);
    peer->other = other;
    other->other = peer;
    peer->base.identity = there->options.identity;
    other->base.identity = loop->options.identity;
    peer->base.version = other->base.version = TRANSPORT_PROTOCOL_VERSION;
    peer->base.versions_equal = other->base.versions_equal = true;
    peer->base.region = region_info(there);
    other->base.region = region_info(loop);
    struct error error;
    if (transport_identity_check(&loop->options.identity, &there->options.identity, &error) !=
        ST_OK) {
        connection_end(peer, ST_MISMATCH, error.text);
        return;
    }
    event_add(peer, EVENT_UP, 0);
    event_add(other, EVENT_UP, 0);
    peer->up = other->up = true;
}

static enum status loop_send(void *impl, struct transport_peer *base, const void *data,
                             size_t bytes)
{
    (void)impl;
    struct loop_peer *peer = (struct loop_peer *)base;
    if (peer->other == NULL || !peer->up)
        return ST_UNREACHABLE;
    if (peer->cut)
        return ST_OK;
    struct loop_event *event = event_add(peer->other, EVENT_MESSAGE, bytes);
    if (bytes > 0)
        memcpy(event->data, data, bytes);
    return ST_OK;
}

static enum status loop_write(void *impl, struct transport_peer *base, const void *local,
                              size_t bytes, uint64_t remote_offset,
                              const struct transport_request *request)
{
    struct loop *loop = impl;
    struct loop_peer *peer = (struct loop_peer *)base;
    const uint8_t *region = loop->region;
    assert((const uint8_t *)local >= region &&
           (const uint8_t *)local + bytes <= region + loop->options.region_bytes);
    if (peer->other == NULL || !peer->up)
        return ST_UNREACHABLE;
    struct loop_write *write = calloc(1, sizeof(*write));
    assert(write != NULL);
    *write = (struct loop_write){
        .request = *request, .local = local, .bytes = bytes, .offset = remote_offset};
    *peer->writes_tail = write;
    peer->writes_tail = &write->next;
    return ST_OK;
}

/* Copies and waits until the copy is done. Returns false if the device failed. */
static bool device_copy(struct loop *loop, enum device_direction direction, void *memory,
                        void *host, size_t bytes)
{
    const struct device_memory *device = loop->options.device;
    struct error ignored;
    uint64_t done = 0;
    uint64_t number = device->ops->copy(device->self, direction, memory, host, bytes);
    while (number != 0 && done < number)
        if (device->ops->poll(device->self, direction, &done, &ignored) != ST_OK)
            return false;
        else
            sched_yield();
    loop->copied[direction].copies++;
    loop->copied[direction].bytes += bytes;
    return number != 0;
}

/* Performs a write, through host memory if either side is a device. */
static bool write_land(struct loop *from, const struct loop_peer *to,
                       const struct loop_write *write)
{
    struct loop *there = to->owner;
    void *target = (uint8_t *)there->region + write->offset;
    const struct device_memory *source_device = from->options.device;
    const struct device_memory *target_device = there->options.device;
    const struct transport_events *events = &there->options.events;
    if (events->write_wanted != NULL &&
        !events->write_wanted(there->options.self, &to->base, &write->request, write->offset,
                              write->bytes))
        return true;
    there->landed_bytes += write->bytes;
    if (source_device == NULL && target_device == NULL) {
        memcpy(target, write->local, write->bytes);
        return true;
    }
    void *local = (void *)(uintptr_t)write->local;
    void *host = malloc(write->bytes);
    assert(host != NULL);
    bool good =
        source_device == NULL || device_copy(from, DEVICE_TO_HOST, local, host, write->bytes);
    if (source_device == NULL)
        memcpy(host, local, write->bytes);
    if (good && target_device == NULL)
        memcpy(target, host, write->bytes);
    else if (good)
        good = device_copy(there, HOST_TO_DEVICE, target, host, write->bytes);
    free(host);
    return good;
}

static void flushes_release(struct loop_peer *peer)
{
    while (peer->flushes != NULL && !peer->held && !peer->cut && peer->other != NULL) {
        struct loop_flush *flush = peer->flushes;
        peer->flushes = flush->next;
        if (peer->flushes == NULL)
            peer->flushes_tail = &peer->flushes;
        bool good = true;
        for (struct loop_write *write = flush->writes; write != NULL; write = write->next)
            good = good && write_land(peer->owner, peer->other, write);
        writes_free(flush->writes);
        if (!good) {
            free(flush);
            connection_end(peer, ST_IO, "the device's memory could not be copied");
            return;
        }
        struct loop_event *event = event_add(peer, EVENT_FLUSH, 0);
        event->status = ST_OK;
        event->cookie = flush->cookie;
        free(flush);
    }
}

static void loop_flush(void *impl, struct transport_peer *base, uint64_t cookie)
{
    (void)impl;
    struct loop_peer *peer = (struct loop_peer *)base;
    /* peer_down will follow. */
    if (peer->other == NULL)
        return;
    struct loop_flush *flush = calloc(1, sizeof(*flush));
    assert(flush != NULL);
    flush->cookie = cookie;
    flush->writes = peer->writes;
    peer->writes = NULL;
    peer->writes_tail = &peer->writes;
    *peer->flushes_tail = flush;
    peer->flushes_tail = &flush->next;
    eventfd_write(peer->owner->fd, 1); /* loop_progress performs the writes. */
}

/* A write lands before its flush is reported, and no write lands after the end of the
 * connection. */
static bool loop_writes_await(void *impl, struct transport_peer *peer)
{
    (void)impl, (void)peer;
    return false;
}

static void *loop_region(void *impl)
{
    return ((struct loop *)impl)->region;
}

static int loop_fd(void *impl)
{
    return ((struct loop *)impl)->fd;
}

static void event_deliver(struct loop *loop, struct loop_event *event)
{
    const struct transport_events *events = &loop->options.events;
    struct transport_peer *base = &event->peer->base;
    switch (event->kind) {
    case EVENT_CONNECT:
        connect_now(event->peer);
        return;
    case EVENT_UP:
        events->peer_up(loop->options.self, base);
        return;
    case EVENT_MESSAGE:
        events->message(loop->options.self, base, event->data, event->bytes);
        return;
    case EVENT_FLUSH:
        events->flushed(loop->options.self, base, event->cookie, event->status);
        return;
    case EVENT_DOWN:
        events->peer_down(loop->options.self, base, event->status, event->text.text);
        peer_free((struct loop_peer *)base);
        return;
    }
}

static void loop_progress(void *impl)
{
    struct loop *loop = impl;
    eventfd_t ignored;
    eventfd_read(loop->fd, &ignored);
    for (struct loop_peer *peer = loop->peers; peer != NULL; peer = peer->next)
        flushes_release(peer);
    /* Events that callbacks add to our own queue wait for the next call. */
    uint64_t last = loop->event_count;
    while (loop->events != NULL && loop->events->number <= last) {
        struct loop_event *event = loop->events;
        loop->events = event->next;
        if (loop->events == NULL)
            loop->events_tail = &loop->events;
        event_deliver(loop, event);
        free(event);
    }
    if (loop->events != NULL)
        eventfd_write(loop->fd, 1);
}

void transport_loopback_hold(struct transport *t, struct transport_peer *base, bool hold)
{
    assert(t->ops == &transport_loopback);
    struct loop_peer *peer = (struct loop_peer *)base;
    peer->held = hold;
    eventfd_write(peer->owner->fd, 1);
}

void transport_loopback_drop(struct transport *t, struct transport_peer *peer)
{
    assert(t->ops == &transport_loopback);
    connection_end((struct loop_peer *)peer, ST_UNREACHABLE, "connection reset");
}

void transport_loopback_cut(struct transport *t, struct transport_peer *base)
{
    assert(t->ops == &transport_loopback);
    struct loop_peer *peer = (struct loop_peer *)base;
    peer->cut = true;
    if (peer->other != NULL)
        peer->other->cut = true;
}

void transport_loopback_time_out(struct transport *t, struct transport_peer *peer)
{
    assert(t->ops == &transport_loopback);
    connection_end((struct loop_peer *)peer, ST_TIMED_OUT, "silent for too long");
}

uint64_t transport_loopback_landed_bytes(struct transport *t)
{
    assert(t->ops == &transport_loopback);
    return ((struct loop *)t->impl)->landed_bytes;
}

static void loop_metadata_hash_set(void *impl, uint64_t metadata_hash)
{
    struct loop *loop = impl;
    loop->options.identity.metadata_hash = metadata_hash;
}

static void loop_memory(void *impl, struct transport_memory *out)
{
    const struct loop *loop = impl;
    *out = (struct transport_memory){.way = TRANSPORT_WAY_HOST};
    if (loop->options.device == NULL)
        return;
    out->way = TRANSPORT_WAY_STAGED;
    memcpy(out->why, "loopback", sizeof("loopback"));
    memcpy(out->copy_counts, loop->copied, sizeof(out->copy_counts));
}

/* No keys: nothing is proved. */
static enum status loop_keys_set(void *impl, const struct secret_keys *keys, struct error *error)
{
    (void)impl, (void)keys, (void)error;
    return ST_OK;
}

const struct transport_ops transport_loopback = {
    .name = "loopback",
    .open = loop_open,
    .close = loop_close,
    .listen = loop_listen,
    .connect = loop_connect,
    .disconnect = loop_disconnect,
    .send = loop_send,
    .write = loop_write,
    .flush = loop_flush,
    .region = loop_region,
    .fd = loop_fd,
    .progress = loop_progress,
    .metadata_hash_set = loop_metadata_hash_set,
    .memory = loop_memory,
    .writes_await = loop_writes_await,
    .keys_set = loop_keys_set,
};
