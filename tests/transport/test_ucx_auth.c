/* Goal: with a cluster key, a connection is set up only between peers that hold it, before any
 * other data of the peer is read; proofs cannot be replayed, reflected or used with another name;
 * on a connection that is up, another key needs a proof, too; unknown peers cost little and block
 * no peer. Method: transports of this process over 127.0.0.1; raw sockets that know the protocol
 * play the attackers. */
#include "tests/transport/net.h"
#include "transport/auth.h"
#include "transport/handshake.h"
#include "transport/stream.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#define REGION ((uint64_t)1 << 20)

enum {
    AUTH = 7,
    AUTH_REPLY,
    AUTH_PROOF,
    DATA = 11,
    KEY = 14,
    KEY_REPLY,
    LINK_READY = 17,
    HELLO = 1,
    REFUSE
};

static struct secret_keys key_a;
static struct secret_keys key_b;
static char address[LIMIT_ADDRESS_BYTES];

static struct transport_options options_of(const char *name, const struct secret_keys *key)
{
    struct transport_options options = net_options(name, REGION);
    options.keys = key;
    return options;
}

static struct handshake greeting_of(const char *name)
{
    struct handshake greeting;
    handshake_init(&greeting, TRANSPORT_PROTOCOL_VERSION);
    greeting.identity = net_options(name, 0).identity;
    return greeting;
}

static void pair_open(struct net_side *sides, const struct secret_keys *first,
                      const struct secret_keys *second)
{
    net_pair_open(sides, options_of("p0", first), options_of("t0", second), address);
}

static void pair_connect(struct net_side *sides)
{
    struct transport_peer *peer;
    struct error error;
    CHECK(transport_connect(sides[0].transport, address, NULL, &peer, &error) == ST_OK);
}

static void test_same_key(void)
{
    struct net_side sides[2];
    pair_open(sides, &key_a, &key_a);
    pair_connect(sides);
    NET_WAIT(sides, 2, sides[0].up_count == 1 && sides[1].up_count == 1);
    CHECK(strcmp(transport_peer_identity(sides[1].peer)->name, "p0") == 0);
    CHECK(transport_send(sides[0].transport, sides[0].peer, "12345678", 8) == ST_OK);
    CHECK(transport_send(sides[1].transport, sides[1].peer, "12345678", 8) == ST_OK);
    NET_WAIT(sides, 2, sides[0].messages == 1 && sides[1].messages == 1);
    uint8_t *own = transport_region(sides[0].transport);
    memset(own, 7, 4096);
    CHECK(transport_write(sides[0].transport, sides[0].peer, own, 4096, 8192) == ST_OK);
    transport_flush(sides[0].transport, sides[0].peer, 1);
    NET_WAIT(sides, 2, sides[0].flush_count == 1);
    CHECK(memcmp((uint8_t *)transport_region(sides[1].transport) + 8192, own, 4096) == 0);
    net_pair_close(sides);
}

/* More connections arrive at once than one iteration of the event loop computes hand-shakes for. */
static void test_many(void)
{
    enum { MANY = 40 };
    struct net_side sides[2];
    pair_open(sides, &key_a, &key_a);
    for (int i = 0; i < MANY; i++)
        pair_connect(sides);
    NET_WAIT(sides, 2, sides[0].up_count == MANY && sides[1].up_count == MANY);
    CHECK(sides[0].down_count == 0 && sides[1].down_count == 0);
    net_pair_close(sides);
}

static void expect_refusal(const struct secret_keys *first, const struct secret_keys *second,
                           const char *first_says, const char *second_says)
{
    struct net_side sides[2];
    pair_open(sides, first, second);
    pair_connect(sides);
    NET_WAIT(sides, 2, sides[0].down_count == 1 && sides[1].down_count == 1);
    CHECK(sides[0].up_count == 0 && sides[1].up_count == 0);
    CHECKF(strstr(sides[0].text, first_says) != NULL, "%s", sides[0].text);
    CHECKF(strstr(sides[1].text, second_says) != NULL, "%s", sides[1].text);
    net_pair_close(sides);
}

static void test_other_keys(void)
{
    expect_refusal(&key_a, &key_b, "the cluster keys differ (cluster/key_file)",
                   "it has not proved the cluster key");
    expect_refusal(NULL, &key_a, "it has no cluster key, and here is one",
                   "it has no cluster key, and here is one");
    expect_refusal(&key_a, NULL, "it has a cluster key, and here is none",
                   "it has a cluster key, and here is none");
}

/* ---- raw sockets ---- */

static struct tls_keys *raw_keys;
static struct stream raw; /* The attacker's end of the connection. */

static int dial(void)
{
    struct sockaddr_in to = {.sin_family = AF_INET};
    to.sin_port = htons((uint16_t)atoi(strrchr(address, ':') + 1));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0);
    return fd;
}

/* Connects with TLS under this key while `side` runs. Returns the status of the hand-shake. */
static enum status raw_open(struct net_side *side, const struct secret_keys *key)
{
    struct error error = {{0}};
    int64_t end_ms = net_now_ms() + NET_LONG_MS;
    tls_keys_close(raw_keys);
    CHECK(tls_keys_open(key, &raw_keys, &error) == ST_OK);
    stream_init(&raw, dial());
    CHECK(fcntl(raw.fd, F_SETFL, O_NONBLOCK) == 0);
    CHECK(stream_tls_begin(&raw, raw_keys, false) == ST_OK);
    for (;;) {
        CHECK(net_now_ms() < end_ms);
        enum status status = stream_handshake(&raw, &error);
        if (status != ST_IN_PROGRESS)
            return status;
        net_turn(side, 1, 5);
    }
}

static void put_frame(uint32_t kind, const void *data, size_t bytes)
{
    struct error error;
    CHECK(stream_send(&raw, kind, data, bytes, &error) == ST_OK);
}

/* Reads the next frame from `side`, which runs meanwhile. 0 = `side` has closed the connection. */
static uint32_t get_frame(struct net_side *side, uint8_t *data, size_t capacity)
{
    struct stream_frame frame;
    struct error error;
    const uint8_t *payload;
    int64_t end_ms = net_now_ms() + NET_LONG_MS;
    while (!stream_frame_next(&raw, &frame, &payload)) {
        CHECK(net_now_ms() < end_ms);
        net_turn(side, 1, 5);
        enum status status = stream_receive(&raw, 8192, &error);
        if (status != ST_OK && status != ST_IN_PROGRESS)
            return 0;
    }
    memcpy(data, payload, frame.bytes < capacity ? frame.bytes : capacity);
    return frame.kind;
}

/* Sends AUTH as `name`, and reads the reply. */
static void begin_as(struct net_side *side, const char *name, struct auth_exchange *exchange)
{
    uint8_t frame[AUTH_BYTES_MAX], reply[AUTH_BYTES_MAX], proof[SECRET_HASH_BYTES];
    uint8_t want[SECRET_HASH_BYTES];
    struct error error;
    struct transport_identity identity = {.role = TRANSPORT_MACHINE};
    snprintf(identity.name, sizeof(identity.name), "%s", name);
    auth_side_init(&exchange->connecting, &identity);
    CHECK(raw_open(side, &key_a) == ST_OK);
    tls_channel_binding(raw.tls, exchange->channel_binding);
    put_frame(AUTH, frame, auth_encode(&exchange->connecting, frame));
    CHECK(get_frame(side, reply, sizeof(reply)) == AUTH_REPLY);
    CHECK(auth_reply_decode(reply, 112, &exchange->accepting, proof, &error) == ST_OK);
    auth_proof(&key_a.keys[0], exchange, AUTH_BY_ACCEPTING, want);
    CHECK(memcmp(proof, want, sizeof(want)) == 0);
}

static void expect_end(struct net_side *side, int downs, const char *says)
{
    NET_WAIT(side, 1, side->down_count == downs);
    CHECKF(strstr(side->text, says) != NULL, "%s", side->text);
    CHECK(side->up_count == 0);
    stream_done(&raw);
}

static void test_cheats(void)
{
    struct net_side side;
    struct error error;
    struct auth_exchange first, second;
    uint8_t proof[SECRET_HASH_BYTES], frame[AUTH_BYTES_MAX];
    static uint8_t hello[HANDSHAKE_BYTES_MAX];
    int downs = 0;
    net_open(&side, options_of("t0", &key_a));
    CHECK(transport_listen(side.transport, "127.0.0.1:0", address, &error) == ST_OK);
    /* The proof that `side` made itself, sent back. */
    begin_as(&side, "p0", &first);
    auth_proof(&key_a.keys[0], &first, AUTH_BY_ACCEPTING, proof);
    put_frame(AUTH_PROOF, proof, sizeof(proof));
    CHECK(get_frame(&side, hello, 264) == REFUSE);
    CHECK(strstr((char *)hello + 8, "the cluster keys differ") != NULL);
    expect_end(&side, ++downs, "the cluster keys differ");
    /* A proof that was right for an earlier connection. */
    auth_proof(&key_a.keys[0], &first, AUTH_BY_CONNECTING, proof);
    begin_as(&side, "p0", &second);
    CHECK(memcmp(second.accepting.nonce, first.accepting.nonce, AUTH_NONCE_BYTES) != 0);
    put_frame(AUTH_PROOF, proof, sizeof(proof));
    expect_end(&side, ++downs, "the cluster keys differ");
    /* A proof that is right for another channel with the same nonces, as from a relay between two
     * sessions. */
    begin_as(&side, "p0", &second);
    CHECK(memcmp(second.channel_binding, first.channel_binding, TLS_CHANNEL_BINDING_BYTES) != 0);
    memcpy(second.channel_binding, first.channel_binding, TLS_CHANNEL_BINDING_BYTES);
    auth_proof(&key_a.keys[0], &second, AUTH_BY_CONNECTING, proof);
    put_frame(AUTH_PROOF, proof, sizeof(proof));
    expect_end(&side, ++downs, "the cluster keys differ");
    /* The key is proved as p0, but the hello names p1. */
    struct handshake greeting = greeting_of("p1");
    begin_as(&side, "p0", &first);
    auth_proof(&key_a.keys[0], &first, AUTH_BY_CONNECTING, proof);
    put_frame(AUTH_PROOF, proof, sizeof(proof));
    put_frame(HELLO, hello, handshake_encode(&greeting, hello, sizeof(hello)));
    expect_end(&side, ++downs, "it proved the cluster key with another name");
    /* The key is proved as p0, but the data connection belongs to no connection. */
    begin_as(&side, "p0", &first);
    auth_proof(&key_a.keys[0], &first, AUTH_BY_CONNECTING, proof);
    put_frame(AUTH_PROOF, proof, sizeof(proof));
    put_frame(DATA, "01234567", 8);
    CHECK(get_frame(&side, hello, 264) == REFUSE);
    expect_end(&side, ++downs, "a data connection that belongs to no connection");
    /* A hello and a message instead of the proof; a frame that is too large. */
    begin_as(&side, "p0", &first);
    put_frame(HELLO, hello, 120);
    expect_end(&side, ++downs, "it has no cluster key, and here is one");
    begin_as(&side, "p0", &first);
    put_frame(3, hello, 120);
    expect_end(&side, ++downs, "not a peer of this kind (first frame: 3)");
    CHECK(raw_open(&side, &key_a) == ST_OK);
    put_frame(AUTH, hello, 8192);
    expect_end(&side, ++downs,
               "it has not proved the cluster key (cluster/key_file): a frame of 8192");
    /* The peer uses the name of `side`, and sends its own words back. */
    struct transport_identity own = options_of("t0", NULL).identity;
    auth_side_init(&first.connecting, &own);
    CHECK(raw_open(&side, &key_a) == ST_OK);
    put_frame(AUTH, frame, auth_encode(&first.connecting, frame));
    expect_end(&side, ++downs, "it has the same name as this process");
    /* Another key. */
    CHECK(raw_open(&side, &key_b) == ST_MISMATCH);
    expect_end(&side, ++downs, "the cluster keys differ (cluster/key_file): TLS");
    /* No TLS: frames that would be right inside TLS, and noise. */
    stream_init(&raw, dial());
    put_frame(AUTH, frame, auth_encode(&first.connecting, frame));
    expect_end(&side, ++downs, "not a peer of this kind (first frame: 7)");
    stream_init(&raw, dial());
    put_frame(HELLO, hello, handshake_encode(&greeting, hello, sizeof(hello)));
    expect_end(&side, ++downs, "it has no cluster key, and here is one");
    stream_init(&raw, dial());
    put_frame(DATA, "01234567", 8);
    expect_end(&side, ++downs, "not a peer of this kind (first frame: 11)");
    stream_init(&raw, dial());
    CHECK(send(raw.fd, "\x16\x03\x01\x00\x05\x02\x00\x00\x01\x00", 10, MSG_NOSIGNAL) == 10);
    expect_end(&side, ++downs, "it has not proved the cluster key (cluster/key_file): TLS");
    stream_init(&raw, dial()); /* One byte, then the end. */
    CHECK(send(raw.fd, "\x16", 1, MSG_NOSIGNAL) == 1);
    CHECK(shutdown(raw.fd, SHUT_WR) == 0);
    expect_end(&side, ++downs, "connection closed by the peer");
    transport_close(side.transport);
    tls_keys_close(raw_keys);
}

/* A peer that sends no proof of a key is disconnected after connect_ms. More of such peers than
 * there are places do not keep out a peer with a key. */
static void test_strangers(void)
{
    struct net_side sides[2];
    struct error error;
    struct transport_options options = options_of("t0", &key_a);
    options.connect_ms = 200;
    net_open(&sides[1], options);
    CHECK(transport_listen(sides[1].transport, "127.0.0.1:0", address, &error) == ST_OK);
    stream_init(&raw, dial());
    expect_end(&sides[1], 1, "it has not proved the cluster key (cluster/key_file): no hand-shake");
    transport_close(sides[1].transport);
    pair_open(sides, &key_a, &key_a);
    enum { STRANGERS = 300 };
    static int fds[STRANGERS];
    for (int i = 0; i < STRANGERS; i++) {
        fds[i] = dial();
        net_turn(&sides[1], 1, 0);
    }
    NET_WAIT(&sides[1], 1, sides[1].down_count == STRANGERS - 256);
    pair_connect(sides);
    NET_WAIT(sides, 2, sides[0].up_count == 1 && sides[1].up_count == 1);
    for (int i = 0; i < STRANGERS; i++)
        close(fds[i]);
    NET_WAIT(sides, 2, sides[1].down_count == STRANGERS);
    CHECK(sides[0].down_count == 0);
    net_pair_close(sides);
}

/* Connects as the machine p0 under key_a. `side` accepts the keys a and b on this connection. */
static void up_as_p0(struct net_side *side, struct auth_exchange *exchange)
{
    static uint8_t hello[HANDSHAKE_BYTES_MAX];
    struct handshake greeting = greeting_of("p0");
    uint8_t proof[SECRET_HASH_BYTES];
    int ups = side->up_count;
    begin_as(side, "p0", exchange);
    auth_proof(&key_a.keys[0], exchange, AUTH_BY_CONNECTING, proof);
    put_frame(AUTH_PROOF, proof, sizeof(proof));
    put_frame(HELLO, hello, handshake_encode(&greeting, hello, sizeof(hello)));
    put_frame(LINK_READY, NULL, 0);
    NET_WAIT(side, 1, side->up_count == ups + 1);
    CHECK(get_frame(side, hello, sizeof(hello)) == HELLO);
}

/* On a connection that is up, another key is taken only with a proof of it that was made for this
 * connection and by this side. */
static void test_false_renewals(void)
{
    struct net_side side;
    struct error error;
    struct auth_exchange first, second;
    struct {
        uint8_t id[SECRET_KEY_ID_BYTES];
        uint8_t proof[SECRET_HASH_BYTES];
    } wire, got;
    struct secret_keys both = key_a;
    both.count = 2;
    both.keys[1] = key_b.keys[0];
    struct transport_options options = options_of("t0", &both);
    options.connect_ms = 300;
    net_open(&side, options);
    CHECK(transport_listen(side.transport, "127.0.0.1:0", address, &error) == ST_OK);
    memcpy(wire.id, key_b.keys[0].id, sizeof(wire.id));
    /* Proofs of the greeting, of the other key, of the other side, and of another connection. */
    for (int i = 0; i < 4; i++) {
        up_as_p0(&side, &first);
        auth_proof(&(i == 1 ? &key_a : &key_b)->keys[0], i == 3 ? &second : &first,
                   i == 0   ? AUTH_BY_CONNECTING
                   : i == 2 ? AUTH_RENEWED_BY_ACCEPTING
                            : AUTH_RENEWED_BY_CONNECTING,
                   wire.proof);
        put_frame(KEY, &wire, sizeof(wire));
        NET_WAIT(&side, 1, side.down_count == i + 1);
        CHECKF(strstr(side.text, "the cluster keys differ") != NULL, "%s", side.text);
        stream_done(&raw);
        second = first;
    }
    up_as_p0(&side, &first);
    put_frame(KEY, &wire, 12);
    NET_WAIT(&side, 1, side.down_count == 5);
    CHECKF(strstr(side.text, "a KEY frame of 12 bytes") != NULL, "%s", side.text);
    stream_done(&raw);
    /* An unknown id is not an error. The right proof is answered with the other side's proof. */
    up_as_p0(&side, &first);
    wire.id[0] ^= 1;
    put_frame(KEY, &wire, sizeof(wire));
    wire.id[0] ^= 1;
    auth_proof(&key_b.keys[0], &first, AUTH_RENEWED_BY_CONNECTING, wire.proof);
    put_frame(KEY, &wire, sizeof(wire));
    CHECK(get_frame(&side, (uint8_t *)&got, sizeof(got)) == KEY_REPLY);
    auth_proof(&key_b.keys[0], &first, AUTH_RENEWED_BY_ACCEPTING, wire.proof);
    CHECK(memcmp(&got, &wire, sizeof(wire)) == 0);
    /* Only key b is left. This connection has proved key b and stays; the next connection has
     * proved only key a and ends. */
    CHECK(transport_keys_set(side.transport, &key_b, &error) == ST_OK);
    struct stream renewed = raw;
    CHECK(raw_open(&side, &key_a) == ST_MISMATCH);
    NET_WAIT(&side, 1, side.down_count == 6);
    CHECK(side.up_count == 6);
    stream_done(&raw);
    /* b is not the first key: `side` sends KEY(a). */
    CHECK(transport_keys_set(side.transport, &both, &error) == ST_OK);
    raw = renewed;
    CHECK(get_frame(&side, (uint8_t *)&got, sizeof(got)) == KEY);
    CHECK(memcmp(got.id, key_a.keys[0].id, sizeof(got.id)) == 0);
    CHECK(transport_keys_set(side.transport, &key_a, &error) == ST_OK);
    /* `side` asked the peer for key a, and the peer proves nothing. */
    NET_WAIT(&side, 1, side.down_count == 7);
    CHECKF(strstr(side.text, "it does not prove a key that is still in use") != NULL, "%s",
           side.text);
    stream_done(&raw);
    /* Key a is removed between its proof and the hello. */
    struct handshake greeting = greeting_of("p0");
    static uint8_t hello[HANDSHAKE_BYTES_MAX];
    begin_as(&side, "p0", &first);
    auth_proof(&key_a.keys[0], &first, AUTH_BY_CONNECTING, wire.proof);
    put_frame(AUTH_PROOF, wire.proof, sizeof(wire.proof));
    for (int i = 0; i < 5; i++)
        net_turn(&side, 1, 5);
    CHECK(transport_keys_set(side.transport, &both, &error) == ST_OK);
    CHECK(transport_keys_set(side.transport, &key_b, &error) == ST_OK);
    put_frame(HELLO, hello, handshake_encode(&greeting, hello, sizeof(hello)));
    put_frame(LINK_READY, NULL, 0);
    NET_WAIT(&side, 1, side.down_count == 8);
    CHECKF(strstr(side.text, "the cluster keys differ") != NULL, "%s", side.text);
    stream_done(&raw);
    transport_close(side.transport);
    tls_keys_close(raw_keys);
    raw_keys = NULL;
}

int main(void)
{
    secret_keys_set(&key_a, (const uint8_t *)"the key of this cluster, 32 byte");
    secret_keys_set(&key_b, (const uint8_t *)"the key of another one, 32 bytes");
    test_false_renewals();
    test_same_key();
    test_many();
    test_other_keys();
    test_cheats();
    test_strangers();
    printf("only those with the key came up\n");
    return 0;
}
