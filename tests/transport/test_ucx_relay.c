/* Goal: with a cluster key, a host between two machines learns nothing of what they send and can
 * change nothing: neither KV nor messages appear in the bytes that it sees, a changed byte ends the
 * connection without reaching the region, and after a cut the machines connect again.
 *
 * Method: two transports of this process, joined by a relay that records all bytes. KV goes over
 * data connections, through the same relay. As a control, the same run without a key: there the
 * relay does find KV and messages. */
#include "tests/transport/net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define REGION    ((uint64_t)8 << 20)
#define WRITTEN   ((uint64_t)4 << 20)
#define PAIRS_MAX 16
#define NAME      "a-prompt-machine-0"
#define MARK      "token ids 11 4223 907 and their neighbours"

struct way { /* One direction of a relayed connection. */
    uint8_t *bytes;
    size_t count, sent, capacity;
};

struct pair {
    int fds[2];
    struct way ways[2]; /* Towards fds[1], towards fds[0]. */
    bool closed;
};

static struct relay {
    int listener;
    uint16_t target;
    int count;
    struct pair pairs[PAIRS_MAX];
    bool damage; /* Change a byte of the next data that pass. */
} relay;

static const struct secret_keys *keys(void)
{
    static const uint8_t key[SECRET_HASH_BYTES] = "the key of this cluster, 32 byte";
    static struct secret_keys keys;
    secret_keys_set(&keys, key);
    return &keys;
}

static int socket_to(uint16_t port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0);
    CHECK(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
    return fd;
}

static void relay_open(const char *target, char address_out[LIMIT_ADDRESS_BYTES])
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t bytes = sizeof(at);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    relay = (struct relay){.target = (uint16_t)atoi(strrchr(target, ':') + 1)};
    relay.listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    CHECK(bind(relay.listener, (struct sockaddr *)&at, sizeof(at)) == 0);
    CHECK(listen(relay.listener, 16) == 0);
    CHECK(getsockname(relay.listener, (struct sockaddr *)&at, &bytes) == 0);
    snprintf(address_out, LIMIT_ADDRESS_BYTES, "127.0.0.1:%d", ntohs(at.sin_port));
}

static void pair_cut(struct pair *pair)
{
    if (!pair->closed) {
        close(pair->fds[0]);
        close(pair->fds[1]);
    }
    pair->closed = true;
}

static void relay_close(void)
{
    for (int i = 0; i < relay.count; i++) {
        pair_cut(&relay.pairs[i]);
        free(relay.pairs[i].ways[0].bytes);
        free(relay.pairs[i].ways[1].bytes);
    }
    close(relay.listener);
}

/* Forwards the bytes that wait in one direction. All bytes are recorded. */
static void way_turn(struct pair *pair, int which)
{
    struct way *way = &pair->ways[which];
    if (way->capacity - way->count < 65536) {
        way->capacity = way->capacity * 2 + 65536;
        way->bytes = realloc(way->bytes, way->capacity);
        CHECK(way->bytes != NULL);
    }
    ssize_t got = recv(pair->fds[which], way->bytes + way->count, 65536, 0);
    if (got == 0 || (got < 0 && errno != EAGAIN)) {
        pair_cut(pair);
        return;
    }
    if (got > 40 && relay.damage) {
        way->bytes[way->count + 40] ^= 1;
        relay.damage = false;
    }
    way->count += got > 0 ? (size_t)got : 0;
    ssize_t sent =
        send(pair->fds[1 - which], way->bytes + way->sent, way->count - way->sent, MSG_NOSIGNAL);
    way->sent += sent > 0 ? (size_t)sent : 0;
}

static void relay_turn(void)
{
    int fd = accept4(relay.listener, NULL, NULL, SOCK_NONBLOCK);
    if (fd >= 0) {
        CHECK(relay.count < PAIRS_MAX);
        relay.pairs[relay.count++] = (struct pair){.fds = {fd, socket_to(relay.target)}};
    }
    for (int i = 0; i < relay.count; i++)
        for (int which = 0; which < 2 && !relay.pairs[i].closed; which++)
            way_turn(&relay.pairs[i], which);
}

#define RELAY_WAIT(sides, condition)                                                               \
    for (int64_t end_ms_ = net_now_ms() + NET_LONG_MS; !(condition);) {                            \
        CHECKF(net_now_ms() < end_ms_, "no " #condition);                                          \
        relay_turn();                                                                              \
        net_turn(sides, 2, 1);                                                                     \
    }

/* Returns whether the relay saw these bytes, in any connection and direction. */
static bool seen(const void *bytes, size_t count)
{
    for (int i = 0; i < relay.count; i++)
        for (int which = 0; which < 2; which++) {
            const struct way *way = &relay.pairs[i].ways[which];
            if (way->count > 0 && memmem(way->bytes, way->count, bytes, count) != NULL)
                return true;
        }
    return false;
}

static size_t seen_bytes(void)
{
    size_t count = 0;
    for (int i = 0; i < relay.count; i++)
        count += relay.pairs[i].ways[0].count + relay.pairs[i].ways[1].count;
    return count;
}

static void connect_through(struct net_side *sides, const char *address)
{
    struct transport_peer *peer;
    struct error error;
    int ups = sides[0].up_count;
    CHECK(transport_connect(sides[0].transport, address, NULL, &peer, &error) == ST_OK);
    RELAY_WAIT(sides,
               sides[0].up_count == ups + 1 && sides[0].peer != NULL && sides[1].peer != NULL);
}

static void pair_open(struct net_side *sides, bool with_key, char address[LIMIT_ADDRESS_BYTES])
{
    char direct[LIMIT_ADDRESS_BYTES];
    struct transport_options options[2] = {net_options(NAME, REGION), net_options("t0", REGION)};
    for (int i = 0; i < 2; i++) {
        options[i].ucx_tls = "none";
        options[i].keys = with_key ? keys() : NULL;
    }
    net_pair_open(sides, options[0], options[1], direct);
    relay_open(direct, address);
    for (int i = 0; i < 2; i++) {
        uint64_t *region = transport_region(sides[i].transport);
        for (uint64_t k = 0; k < REGION / 8; k++)
            region[k] = i == 0 ? random_mix(k) : 0;
    }
    connect_through(sides, address);
}

static void write_and_flush(struct net_side *sides)
{
    uint8_t *region = transport_region(sides[0].transport);
    int flushes = sides[0].flush_count;
    CHECK(transport_write(sides[0].transport, sides[0].peer, region, WRITTEN, REGION - WRITTEN) ==
          ST_OK);
    transport_flush(sides[0].transport, sides[0].peer, sides[0].flushed_cookie + 1);
    RELAY_WAIT(sides, sides[0].flush_count == flushes + 1);
    CHECK(memcmp(region, (uint8_t *)transport_region(sides[1].transport) + REGION - WRITTEN,
                 WRITTEN) == 0);
}

static void test_secrecy(bool with_key)
{
    struct net_side sides[2];
    char address[LIMIT_ADDRESS_BYTES];
    pair_open(sides, with_key, address);
    const char *path = with_key ? "messages over tls" : "messages over tcp";
    CHECKF(strcmp(transport_peer_path(sides[0].peer), path) == 0, "%s",
           transport_peer_path(sides[0].peer));
    write_and_flush(sides);
    CHECK(transport_send(sides[0].transport, sides[0].peer, MARK, sizeof(MARK)) == ST_OK);
    CHECK(transport_send(sides[1].transport, sides[1].peer, MARK, sizeof(MARK)) == ST_OK);
    RELAY_WAIT(sides, sides[0].messages == 1 && sides[1].messages == 1);
    const uint8_t *region = transport_region(sides[0].transport);
    bool kv = false;
    for (uint64_t at = 0; at < WRITTEN; at += 4096)
        kv = kv || seen(region + at, 16);
    CHECK(kv == !with_key && seen(MARK, 16) == !with_key);
    CHECK(seen(NAME, strlen(NAME)) == !with_key); /* Not even the names are visible. */
    CHECK(relay.count >= 3 && seen_bytes() > WRITTEN);
    printf("with%s a key the relay saw %zu bytes on %d connections%s\n", with_key ? "" : "out",
           seen_bytes(), relay.count, with_key ? " and could read none" : ", KV among them");
    net_pair_close(sides);
    relay_close();
}

/* Changes a byte on a data connection, then on the control connection, then cuts the connections:
 * both sides notice, nothing changed lands, and the next connection works. */
static void test_damage(void)
{
    struct net_side sides[2];
    char address[LIMIT_ADDRESS_BYTES];
    pair_open(sides, true, address);
    write_and_flush(sides);
    uint8_t *region = transport_region(sides[0].transport);
    uint8_t *theirs = transport_region(sides[1].transport);
    for (int how = 0; how < 3; how++) {
        memset(theirs, 0, REGION);
        CHECK(transport_write(sides[0].transport, sides[0].peer, region, WRITTEN,
                              REGION - WRITTEN) == ST_OK);
        relay.damage = how < 2;
        if (how == 1)
            CHECK(transport_send(sides[0].transport, sides[0].peer, MARK, sizeof(MARK)) == ST_OK);
        for (int i = 0; how == 2 && i < relay.count; i++)
            pair_cut(&relay.pairs[i]);
        RELAY_WAIT(sides, sides[0].down_count == how + 1 && sides[1].down_count == how + 1);
        CHECK(sides[0].why == ST_UNREACHABLE && sides[1].why == ST_UNREACHABLE);
        for (uint64_t at = 0; at < WRITTEN; at++) {
            uint8_t byte = theirs[REGION - WRITTEN + at];
            CHECK(byte == 0 || byte == region[at]);
        }
        connect_through(sides, address);
        sides[0].flushed_cookie = 0;
        write_and_flush(sides);
    }
    net_pair_close(sides);
    relay_close();
}

static const struct transport_peer *wanted_of; /* The peer whose writes are judged. */

static bool odd_only(void *self, const struct transport_peer *peer,
                     const struct transport_request *request, uint64_t offset, uint64_t bytes)
{
    struct net_side *side = self;
    CHECK(peer == side->peer && transport_peer_number(peer) > 0);
    wanted_of = peer;
    CHECK(bytes > 0 && offset + bytes <= REGION && request->generation == 3);
    return request->id % 2 == 1;
}

/* Writes that the receiver does not want are dropped, also those without a name; their flush
 * succeeds. */
static void test_wanted(const char *tls)
{
    struct net_side sides[2];
    struct transport_peer *peer;
    struct error error;
    char address[LIMIT_ADDRESS_BYTES];
    struct transport_options options[2] = {net_options("p0", REGION), net_options("t0", REGION)};
    for (int i = 0; i < 2; i++) {
        options[i].ucx_tls = tls;
        options[i].one_host = true;
        options[i].keys = keys();
        options[i].events.write_wanted = odd_only;
    }
    net_pair_open(sides, options[0], options[1], address);
    CHECK(transport_connect(sides[0].transport, address, NULL, &peer, &error) == ST_OK);
    NET_WAIT(sides, 2, sides[0].up_count == 1 && sides[1].up_count == 1);
    uint8_t *region = transport_region(sides[0].transport);
    uint8_t *theirs = transport_region(sides[1].transport);
    memset(region, 7, REGION);
    memset(theirs, 0, REGION);
    for (uint64_t id = 0; id < 20; id++) {
        const struct transport_request request = {.id = id, .generation = 3};
        CHECK(transport_write_for(sides[0].transport, peer, region, 300000, id * 300000,
                                  &request) == ST_OK);
    }
    transport_flush(sides[0].transport, peer, 1);
    NET_WAIT(sides, 2, sides[0].flush_count == 1);
    for (uint64_t id = 0; id < 20; id++)
        for (uint64_t at = 0; at < 300000; at += 1000)
            CHECK(theirs[id * 300000 + at] == (id % 2 == 1 ? 7 : 0));
    CHECK(wanted_of == sides[1].peer);
    net_pair_close(sides);
}

int main(void)
{
    test_wanted("none");
    test_wanted("tcp");
    test_secrecy(false);
    test_secrecy(true);
    test_damage();
    return 0;
}
