/* Goal: connections are set up only between peers that agree, otherwise both sides report why;
 * unknown peers do no harm; messages arrive whole and in order. Method: transports of this process
 * connect to each other over 127.0.0.1; raw sockets play unknown peers and peers of another
 * version. */
#include "tests/transport/net.h"
#include "transport/transport_internal.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#define REGION ((uint64_t)1 << 20)

static uint64_t seed;
static char address[LIMIT_ADDRESS_BYTES];

static void pair_open(struct net_side *sides, struct transport_options first,
                      struct transport_options second)
{
    net_pair_open(sides, first, second, address);
}

static void pair_connect(struct net_side *sides)
{
    struct transport_peer *peer;
    struct error error;
    int ups[2] = {sides[0].up_count, sides[1].up_count};
    CHECK(transport_connect(sides[0].transport, address, NULL, &peer, &error) == ST_OK);
    NET_WAIT(sides, 2, sides[0].up_count == ups[0] + 1 && sides[1].up_count == ups[1] + 1);
}

static void expect_mismatch(struct transport_options first, struct transport_options second,
                            const char *field, const char *a, const char *b)
{
    struct net_side sides[2];
    struct transport_peer *peer;
    struct error error;
    char want[256], text[400];
    pair_open(sides, first, second);
    CHECK(transport_connect(sides[0].transport, address, NULL, &peer, &error) == ST_OK);
    NET_WAIT(sides, 2, sides[0].down_count == 1 && sides[1].down_count == 1);
    CHECK(sides[0].up_count == 0 && sides[1].up_count == 0);
    CHECK(sides[0].why == ST_MISMATCH && sides[1].why == ST_MISMATCH);
    snprintf(want, sizeof(want), "p0 and t0 do not match: %s is %s and %s", field, a, b);
    snprintf(text, sizeof(text), "%s: %s", address, want);
    CHECKF(strcmp(sides[0].text, text) == 0, "%s", sides[0].text);
    snprintf(text, sizeof(text), "p0: %s", want);
    CHECKF(strcmp(sides[1].text, text) == 0, "%s", sides[1].text);
    net_pair_close(sides);
}

static void test_mismatch(void)
{
    struct transport_options good = net_options("t0", REGION), other = net_options("p0", REGION);
    other.identity.model_hash = (struct digest){{0xab, 0xc0}};
    expect_mismatch(other, good, "model_hash", "abc0000000000000", "1234000000000000");
    other.identity.role = TRANSPORT_GATEWAY;
    other.identity.metadata_hash = 0xabc;
    other.region_bytes = 0;
    expect_mismatch(other, good, "metadata_hash", "0000000000000abc", "0000000000000012");
    other = net_options("p0", REGION);
    other.identity.layer_count = 12;
    expect_mismatch(other, good, "layer_count", "12", "30");
    other = net_options("p0", REGION);
    other.identity.block_tokens = 32;
    expect_mismatch(other, good, "block_tokens", "32", "16");
    other = net_options("p0", REGION);
    other.identity.block_bytes = 24576;
    expect_mismatch(other, good, "block_bytes", "24576", "12288");
    other = net_options("p0", REGION);
    /* Depends on another value, which the error names as the cause. */
    other.identity.block_bytes = 24576;
    memcpy(other.identity.kv_dtype, "f32", 4);
    expect_mismatch(other, good, "kv/dtype", "f32", "i16");
    other = net_options("p0", REGION);
    other.identity.rope_list = TRANSPORT_ROPE_LIST_SHORT;
    good.identity.rope_list = TRANSPORT_ROPE_LIST_LONG;
    expect_mismatch(other, good, "the list of LongRoPE's factors", "short",
                    "long: want one scheduler/context_tokens_max");
    good.identity.rope_list = TRANSPORT_ROPE_LIST_NONE;

    /* A gateway needs only the metadata's hash, and no UCX. */
    struct net_side sides[2];
    other = net_options("gateway", 0);
    other.identity = (struct transport_identity){
        .name = "gateway", .role = TRANSPORT_GATEWAY, .metadata_hash = 0x12};
    pair_open(sides, other, good);
    pair_connect(sides);
    CHECK(transport_region(sides[0].transport) == NULL &&
          transport_region(sides[1].transport) != NULL);
    CHECK(strcmp(transport_peer_path(sides[0].peer), "messages only") == 0);
    CHECK(strcmp(transport_peer_path(sides[1].peer), "messages only") == 0);
    CHECK(transport_peer_region(sides[1].peer)->bytes == 0);
    CHECK(transport_write(sides[1].transport, sides[1].peer, transport_region(sides[1].transport),
                          1, 0) == ST_INVALID);
    CHECK(strcmp(transport_peer_identity(sides[1].peer)->name, "gateway") == 0);
    net_pair_close(sides);
}

/* ---- strangers ---- */

static int raw_connect(void)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    to.sin_port = htons((uint16_t)atoi(strrchr(address, ':') + 1));
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0);
    return fd;
}

/* Sends bytes as a stranger. The listener must drop the connection with this status and a text that
 * contains `want`. */
static void stranger(struct net_side *side, const void *data, size_t bytes, enum status why,
                     const char *want)
{
    int downs = side->down_count;
    int fd = raw_connect();
    CHECK(send(fd, data, bytes, MSG_NOSIGNAL) == (ssize_t)bytes);
    NET_WAIT(side, 1, side->down_count == downs + 1);
    CHECKF(side->why == why && strstr(side->text, want) != NULL, "%s: %s", status_name(side->why),
           side->text);
    CHECK(strncmp(side->text, "127.0.0.1:", 10) == 0 || strncmp(side->text, "p9: ", 4) == 0);
    char rest[1024];
    while (recv(fd, rest, sizeof(rest), 0) > 0)
        ; /* Ends when the listener has closed the connection. */
    close(fd);
}

struct raw_hello {
    uint32_t bytes, kind, magic, version;
    char name[32];
    uint32_t version_lowest, fixed_bytes;
    uint32_t role, memory;
    char kv_dtype[8];
    uint64_t metadata_hash;
    uint8_t model_hash[32];
    uint8_t rest[104];
};

static void test_strangers(void)
{
    struct net_side sides[2];
    struct transport_options options = net_options("t0", REGION);
    options.connect_ms = 300;
    pair_open(sides, net_options("p0", REGION), options);
    struct net_side *side = &sides[1];

    const char *http = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    stranger(side, http, strlen(http), ST_INVALID, "");
    uint32_t huge[2] = {UINT32_MAX, 1};
    stranger(side, huge, sizeof(huge), ST_INVALID, "want at most 65536");
    uint32_t early[4] = {8, 3, 0, 0};
    stranger(side, early, sizeof(early), ST_INVALID, "first frame: 3");
    uint32_t magic[4] = {8, 1, 7, 7};
    stranger(side, magic, sizeof(magic), ST_INVALID, "no hand-shake");
    for (int i = 0; i < 50; i++) {
        uint8_t noise[256];
        for (size_t k = 0; k < sizeof(noise); k++)
            noise[k] = (uint8_t)random_at(seed + (uint64_t)i, k);
        /* The length is over the limit, so the connection is dropped at once. */
        noise[3] = (uint8_t)(1 + noise[3] % 255);
        stranger(side, noise, sizeof(noise), ST_INVALID, "");
    }

    /* The greeting of two later protocol versions from "p9". This version does not know their
     * fields. Then that of a version from before there were ranges, whose role (a machine) is where
     * the lowest version is now. */
    struct raw_hello hello = {.bytes = sizeof(hello) - 8,
                              .kind = 1,
                              .magic = 0x76616c63,
                              .version = TRANSPORT_PROTOCOL_VERSION + 2,
                              .version_lowest = TRANSPORT_PROTOCOL_VERSION + 1,
                              .name = "p9"};
    char want[160];
    snprintf(want, sizeof(want),
             "p9 and t0 do not match: they speak protocol versions %d to %d and %d to %d",
             TRANSPORT_PROTOCOL_VERSION + 1, TRANSPORT_PROTOCOL_VERSION + 2,
             TRANSPORT_PROTOCOL_LOWEST, TRANSPORT_PROTOCOL_VERSION);
    stranger(side, &hello, sizeof(hello), ST_MISMATCH, want);
    hello.version = 23;
    hello.version_lowest = 2;
    snprintf(want, sizeof(want),
             "p9 and t0 do not match: they speak protocol versions 23 to 23 and %d to %d",
             TRANSPORT_PROTOCOL_LOWEST, TRANSPORT_PROTOCOL_VERSION);
    stranger(side, &hello, sizeof(hello), ST_MISMATCH, want);
    hello.version = TRANSPORT_PROTOCOL_VERSION;
    hello.version_lowest = TRANSPORT_PROTOCOL_VERSION + 1;
    stranger(side, &hello, sizeof(hello), ST_INVALID, "hand-shake: protocol versions");
    hello.version_lowest = TRANSPORT_PROTOCOL_LOWEST;
    stranger(side, &hello, sizeof(hello), ST_INVALID, "fixed_bytes = 0: want 208 to 208");
    hello.fixed_bytes = 209;
    stranger(side, &hello, sizeof(hello), ST_INVALID, "fixed_bytes = 209: want 208 to 208");
    hello.fixed_bytes = 208;
    stranger(side, &hello, sizeof(hello), ST_INVALID, "role = 0");
    hello.role = 2;
    memset(hello.rest, 0xff, sizeof(hello.rest));
    stranger(side, &hello, sizeof(hello), ST_INVALID, "want");
    memset(hello.name, 'x', sizeof(hello.name));
    stranger(side, &hello, sizeof(hello), ST_INVALID, "name has no end");

    /* A stranger that sends nothing, one that disconnects, and one that sends half a frame. */
    int64_t begin_ms = net_now_ms();
    stranger(side, "", 0, ST_TIMED_OUT, "no hand-shake within 300 ms");
    stranger(side, huge, 5, ST_TIMED_OUT, "no hand-shake within 300 ms");
    CHECK(net_now_ms() - begin_ms >= 600);
    int downs = side->down_count;
    close(raw_connect());
    NET_WAIT(side, 1, side->down_count == downs + 1);
    CHECK(side->why == ST_UNREACHABLE);

    pair_connect(sides); /* Peers can still connect. */
    net_pair_close(sides);
}

/* ---- addresses and deadlines ---- */

static void expect_down(struct net_side *side, const char *to, enum status why, const char *want)
{
    struct transport_peer *peer;
    struct error error;
    int downs = side->down_count, user;
    CHECK(transport_connect(side->transport, to, &user, &peer, &error) == ST_OK);
    CHECK(side->down_count == downs); /* peer_down is called only from progress. */
    CHECK(transport_peer_user(peer) == &user);
    NET_WAIT(side, 1, side->down_count == downs + 1);
    CHECKF(side->why == why && strstr(side->text, want) != NULL, "%s: %s", status_name(side->why),
           side->text);
    CHECK(strncmp(side->text, to, strlen(to)) == 0);
}

static void test_addresses(void)
{
    static const char *const wrong[] = {
        "",       "host",    "host:", ":80",     "host:x", "host:65536",        "host:-1",
        "::1:80", "[::1:80", "[::1]", "[::1]80", "h:1:2",  "host:8000000000000"};
    struct net_side sides[2];
    struct error error;
    char bound[LIMIT_ADDRESS_BYTES], want[200];
    struct transport_peer *peer;
    struct transport_options options = net_options("p0", 0);
    options.connect_ms = 300;
    pair_open(sides, options, net_options("t0", 0));
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        CHECKF(transport_connect(sides[0].transport, wrong[i], NULL, &peer, &error) == ST_INVALID,
               "%s", wrong[i]);
        CHECK(transport_listen(sides[0].transport, wrong[i], bound, &error) == ST_INVALID);
        CHECKF(strncmp(error.text, "listen on ", 10) == 0, "%s", error.text);
    }
    CHECK(transport_listen(sides[0].transport, address, bound, &error) == ST_IO);
    snprintf(want, sizeof(want), "listen on %s: address already in use", address);
    CHECKF(strcmp(error.text, want) == 0, "%s", error.text);

    expect_down(&sides[0], "127.0.0.1:1", ST_UNREACHABLE, "cannot connect: Connection refused");
    expect_down(&sides[0], "no.such.host.invalid:80", ST_UNREACHABLE, "no.such.host.invalid: ");

    /* A port that accepts connections but never answers. */
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(at);
    CHECK(bind(fd, (struct sockaddr *)&at, sizeof(at)) == 0 && listen(fd, 5) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)&at, &bytes) == 0);
    snprintf(bound, sizeof(bound), "127.0.0.1:%d", ntohs(at.sin_port));
    expect_down(&sides[0], bound, ST_TIMED_OUT,
                "no hand-shake within 300 ms (is its process stopped, or its host busy?)");
    close(fd);

    /* A name, perhaps with several addresses. */
    snprintf(bound, sizeof(bound), "localhost%s", strrchr(address, ':'));
    CHECK(transport_connect(sides[0].transport, bound, NULL, &peer, &error) == ST_OK);
    NET_WAIT(sides, 2, sides[0].up_count == 1 && sides[1].up_count == 1);
    CHECK(strcmp(sides[0].peer->address, bound) == 0);
    net_pair_close(sides);

    net_open(&sides[0], net_options("p0", 0));
    net_open(&sides[1], net_options("t0", 0));
    if (transport_listen(sides[1].transport, "[::1]:0", address, &error) == ST_OK) {
        CHECKF(strncmp(address, "[::1]:", 6) == 0, "%s", address);
        pair_connect(sides);
    } else {
        printf("no IPv6 here: %s\n", error.text);
    }
    net_pair_close(sides);
}

/* ---- messages ---- */

static uint8_t big[LIMIT_MESSAGE_BYTES];

static size_t message_bytes(uint64_t number)
{
    uint64_t r = random_at(seed ^ 77, number);
    switch (r % 1000) {
    case 0:
        return LIMIT_MESSAGE_BYTES - (r >> 32) % 20;
    case 1:
        return 0;
    case 2:
    case 3:
    case 4:
        return (r >> 32) % 300000;
    default:
        return (r >> 32) % 2000;
    }
}

/* Checks the place and content of a message, and answers every seventh one. */
static void check_message(struct net_side *side, struct transport_peer *peer, const uint8_t *data,
                          size_t bytes)
{
    uint64_t number = side->messages - 1;
    CHECKF(bytes == message_bytes(number), "message %d: %zu bytes", (int)number, bytes);
    uint64_t offset = LIMIT_MESSAGE_BYTES - bytes;
    CHECK(memcmp(data, big + offset, bytes) == 0);
    if (number % 7 == 0)
        CHECK(transport_send(side->transport, peer, &number, sizeof(number)) == ST_OK);
}

static void check_answer(struct net_side *side, struct transport_peer *peer, const uint8_t *data,
                         size_t bytes)
{
    uint64_t number;
    (void)peer;
    CHECK(bytes == sizeof(number));
    memcpy(&number, data, sizeof(number));
    CHECK(number == (side->messages - 1) * 7);
}

static void test_messages(void)
{
    struct net_side sides[2];
    for (size_t i = 0; i < sizeof(big); i++)
        big[i] = (uint8_t)(random_mix(i) >> 40);
    pair_open(sides, net_options("p0", 0), net_options("t0", 0));
    sides[0].on_message = check_answer;
    sides[1].on_message = check_message;
    pair_connect(sides);
    for (uint64_t number = 0; number < 10000; number++) {
        size_t bytes = message_bytes(number);
        enum status status;
        while ((status = transport_send(sides[0].transport, sides[0].peer,
                                        big + (LIMIT_MESSAGE_BYTES - bytes), bytes)) != ST_OK) {
            /* The queue is full, and no part of this message was sent. */
            CHECK(status == ST_NO_RESOURCE);
            net_turn(sides, 2, 10);
        }
        if (random_at(seed, number) % 100 == 0)
            net_turn(sides, 2, 0);
    }
    CHECK(transport_send(sides[0].transport, sides[0].peer, big, LIMIT_MESSAGE_BYTES + 1) ==
          ST_TOO_LARGE);
    NET_WAIT(sides, 2, sides[1].messages == 10000 && sides[0].messages == 10000 / 7 + 1);

    /* A peer does not read: the queue is limited, and all queued messages arrive later. */
    uint64_t queued = 0;
    sides[1].on_message = NULL;
    while (transport_send(sides[0].transport, sides[0].peer, big, 1 << 20) == ST_OK)
        queued++;
    CHECKF(queued >= 63 && queued < 80, "%d MiB", (int)queued);
    NET_WAIT(sides, 2, sides[1].messages == 10000 + queued);
    CHECK(sides[0].down_count == 0 && sides[1].down_count == 0);
    net_pair_close(sides);
}

/* ---- life ---- */

static void disconnect_now(struct net_side *side, struct transport_peer *peer, const uint8_t *data,
                           size_t bytes)
{
    (void)data;
    (void)bytes;
    transport_disconnect(side->transport, peer);
}

static void test_life(void)
{
    struct net_side sides[2];
    struct transport_peer *peer, *second;
    struct error error;
    char first_address[LIMIT_ADDRESS_BYTES];
    pair_open(sides, net_options("p0", REGION), net_options("t0", REGION));
    CHECK(transport_listen(sides[0].transport, "127.0.0.1:0", first_address, &error) == ST_OK);

    /* Both sides connect at once, one of them twice: three connections, each with a peer on both
     * sides. */
    CHECK(transport_connect(sides[0].transport, address, NULL, &peer, &error) == ST_OK);
    CHECK(transport_connect(sides[1].transport, first_address, NULL, &second, &error) == ST_OK);
    CHECK(transport_connect(sides[1].transport, first_address, NULL, &second, &error) == ST_OK);
    NET_WAIT(sides, 2, sides[0].up_count == 3 && sides[1].up_count == 3);

    /* Writes in both directions over one connection. */
    struct transport_peer *back = sides[1].peer;
    memset(transport_region(sides[0].transport), 5, 1000);
    memset((uint8_t *)transport_region(sides[1].transport) + 5000, 6, 1000);
    CHECK(transport_write(sides[1].transport, back,
                          (uint8_t *)transport_region(sides[1].transport) + 5000, 1000,
                          7000) == ST_OK);
    transport_flush(sides[1].transport, back, 1);
    CHECK(transport_write(sides[0].transport, peer, transport_region(sides[0].transport), 1000,
                          9000) == ST_OK);
    transport_flush(sides[0].transport, peer, 1);
    CHECK(transport_write(sides[0].transport, peer, transport_region(sides[0].transport), 2,
                          REGION - 1) == ST_INVALID);
    NET_WAIT(sides, 2, sides[0].flush_count == 1 && sides[1].flush_count == 1);
    CHECK(((uint8_t *)transport_region(sides[0].transport))[7999] == 6);
    CHECK(((uint8_t *)transport_region(sides[0].transport))[8000] == 0);
    CHECK(((uint8_t *)transport_region(sides[1].transport))[9999] == 5);

    /* One side disconnects within its callback. The other side is informed, and the other
     * connections stay. */
    sides[1].on_message = disconnect_now;
    CHECK(transport_send(sides[0].transport, peer, "x", 1) == ST_OK);
    CHECK(transport_send(sides[0].transport, peer, "y", 1) == ST_OK);
    NET_WAIT(sides, 2, sides[0].down_count == 1);
    CHECK(sides[1].messages == 1 && sides[1].down_count == 0 && sides[0].why == ST_UNREACHABLE);
    CHECKF(strncmp(sides[0].text, "t0: connection ", 15) == 0, "%s", sides[0].text);

    /* A connection ends before it is up; a transport is closed while it connects. */
    CHECK(transport_connect(sides[0].transport, address, NULL, &peer, &error) == ST_OK);
    transport_disconnect(sides[0].transport, peer);
    CHECK(transport_connect(sides[0].transport, address, NULL, &peer, &error) == ST_OK);
    net_pair_close(sides);
    transport_close(NULL);
}

/* This side writes to a peer for the first time. The peer's memory is gone, which this side does
 * not know yet. */
static void test_gone_before_written(void)
{
    struct net_side sides[2];
    pair_open(sides, net_options("p0", REGION), net_options("t0", REGION));
    pair_connect(sides);
    transport_close(sides[0].transport);
    const void *region = transport_region(sides[1].transport);
    CHECK(transport_write(sides[1].transport, sides[1].peer, region, 64, 0) == ST_UNREACHABLE);
    transport_flush(sides[1].transport, sides[1].peer, 1);
    NET_WAIT(&sides[1], 1, sides[1].down_count == 1);
    CHECKF(sides[1].why == ST_UNREACHABLE, "%s", sides[1].text);
    CHECKF(strncmp(sides[1].text, "p0: connection ", 15) == 0, "%s", sides[1].text);
    transport_close(sides[1].transport);
}

int main(void)
{
    seed = test_seed();
    test_mismatch();
    test_strangers();
    test_addresses();
    test_messages();
    test_life();
    test_gone_before_written();
    return 0;
}
