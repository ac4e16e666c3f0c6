/* net: helpers for the tests of transport_ucx: a struct for one side of a connection, which records
 * its events, and functions that wait for a condition. Both sides of a pair run in the test's one
 * thread. A wait ends as soon as its condition is true, and fails the test after 60 s. There are no
 * machines and no messages of the protocol: a test sends any bytes. */
#ifndef TESTS_TRANSPORT_NET_H
#define TESTS_TRANSPORT_NET_H

#include "common/clock.h"
#include "common/random.h"
#include "tests/check.h"
#include "transport/transport.h"

#include <poll.h>
#include <string.h>

struct net_side {
    struct transport *transport;
    struct transport_peer *peer; /* The peer that came up last, if it is still up; NULL = none. */
    int up_count, down_count, flush_count, failed_flush_count; /* Numbers of events so far. */
    uint64_t flushed_cookie;                                   /* Cookie of the last flush. */
    enum status why; /* Why the last peer went down; `text` is its text. */
    char text[512];
    void (*on_message)(struct net_side *side, struct transport_peer *peer, const uint8_t *data,
                       size_t bytes);
    void (*on_flushed)(struct net_side *side, uint64_t cookie);
    uint64_t messages; /* Messages received so far. */
};

static inline void net_up(void *self, struct transport_peer *peer)
{
    struct net_side *side = self;
    side->up_count++;
    side->peer = peer;
}

static inline void net_down(void *self, struct transport_peer *peer, enum status why,
                            const char *text)
{
    struct net_side *side = self;
    side->down_count++;
    side->why = why;
    snprintf(side->text, sizeof(side->text), "%s", text);
    if (side->peer == peer)
        side->peer = NULL;
}

static inline void net_message(void *self, struct transport_peer *peer, const uint8_t *data,
                               size_t bytes)
{
    struct net_side *side = self;
    CHECK((uintptr_t)data % 8 == 0);
    side->messages++;
    if (side->on_message != NULL)
        side->on_message(side, peer, data, bytes);
}

static inline void net_flushed(void *self, struct transport_peer *peer, uint64_t cookie,
                               enum status status)
{
    struct net_side *side = self;
    (void)peer;
    if (status != ST_OK) {
        side->failed_flush_count++;
        return;
    }
    side->flush_count++;
    /* Flushes arrive in order and none is lost; tests count cookies from 1. */
    CHECK(cookie == side->flushed_cookie + 1);
    side->flushed_cookie = cookie;
    if (side->on_flushed != NULL)
        side->on_flushed(side, cookie);
}

/* Returns the options of a machine. All sides with these options accept each other. */
static inline struct transport_options net_options(const char *name, uint64_t region_bytes)
{
    struct transport_options options = {
        .identity = {.role = TRANSPORT_MACHINE,
                     .metadata_hash = 0x12,
                     .model_hash = {{0x12, 0x34}},
                     .layer_count = 30,
                     .block_tokens = 16,
                     .block_bytes = 12288,
                     .kv_dtype = "i16"},
        .events = {net_up, net_down, net_message, net_flushed, NULL, NULL},
        .region_bytes = region_bytes,
        .block_count = (uint32_t)(region_bytes / 12288),
        .layer_stride_bytes = 4096,
        /* Long enough for any computer, so that the path is the one that the test wants. */
        .link_ms = 60000,
    };
    snprintf(options.identity.name, sizeof(options.identity.name), "%s", name);
    return options;
}

/* Opens a transport over UCX with these options; fails the test on an error. */
static inline void net_open(struct net_side *side, struct transport_options options)
{
    struct error error = {{0}};
    memset(side, 0, sizeof(*side));
    options.self = side;
    enum status status = transport_open(&transport_ucx, &options, &side->transport, &error);
    CHECKF(status == ST_OK, "%s", error.text);
}

/* Opens two sides; the second one listens. address_out: [LIMIT_ADDRESS_BYTES], its address. */
static inline void net_pair_open(struct net_side *sides, struct transport_options first,
                                 struct transport_options second, char *address_out)
{
    struct error error;
    net_open(&sides[0], first);
    net_open(&sides[1], second);
    CHECK(transport_listen(sides[1].transport, "127.0.0.1:0", address_out, &error) == ST_OK);
}

static inline void net_pair_close(struct net_side *sides)
{
    transport_close(sides[0].transport);
    transport_close(sides[1].transport);
}

static inline int64_t net_now_ms(void)
{
    return clock_now_us(&clock_system) / 1000;
}

/* Waits up to wait_ms for an event on any side, and handles it. */
static inline void net_turn(struct net_side *sides, int count, int wait_ms)
{
    struct pollfd polls[4];
    for (int i = 0; i < count; i++)
        polls[i] = (struct pollfd){.fd = transport_fd(sides[i].transport), .events = POLLIN};
    poll(polls, (nfds_t)count, wait_ms);
    for (int i = 0; i < count; i++)
        if (polls[i].revents != 0)
            transport_progress(sides[i].transport);
}

/* Time after which a wait fails. Only a hang takes this long. */
#define NET_LONG_MS 60000

/* Waits until the condition is true, however slow the computer is. Only descriptors wake it, so a
 * lost wake-up shows as a timeout. */
#define NET_WAIT(sides, count, condition)                                                          \
    do {                                                                                           \
        int64_t end_ms_ = net_now_ms() + NET_LONG_MS;                                              \
        while (!(condition)) {                                                                     \
            int64_t left_ = end_ms_ - net_now_ms();                                                \
            CHECKF(left_ > 0, "timed out after %d ms", NET_LONG_MS);                               \
            net_turn(sides, count, (int)left_);                                                    \
        }                                                                                          \
    } while (0)

/* Connects the first side to the second one's address, and counts its flushes from 1 again. */
static inline void net_pair_connect(struct net_side *sides, const char *address)
{
    struct transport_peer *peer;
    struct error error;
    int ups = sides[1].up_count;
    sides[0].flushed_cookie = 0;
    CHECK(transport_connect(sides[0].transport, address, NULL, &peer, &error) == ST_OK);
    NET_WAIT(sides, 2, sides[0].peer == peer && sides[1].up_count > ups);
}

#endif
