/* fuzz_connection: peers may send any frames at any time over several control and data connections,
 * with a cluster key or without. The transport never writes outside the wanted memory, and nothing
 * is left behind. Method: the real transport over loopback without UCX. An input is a list of
 * events; the peers play machines that know the protocol (and the key), and send valid frames,
 * frames with other contents, and any bytes, whole and in pieces. */
#include "tests/fuzz.h"
#include "tests/fuzz_input.h"
#include "tests/transport/net.h"
#include "transport/peers.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gnutls/gnutls.h>
#include <sys/socket.h>
#include <unistd.h>

#define REGION      ((uint64_t)4 * 12288)
#define CONNECTIONS 4
#define PEERS_MAX   16
#define EVENTS_MAX  200

struct connection {
    struct stream stream; /* The other end; fd -1 = not connected. */
    struct auth_exchange auth;
    uint64_t token; /* From the transport's HELLO; 0 = none yet. */
};

struct side { /* A transport, opened once. */
    struct transport *t;
    char address[LIMIT_ADDRESS_BYTES];
    struct transport_peer *up[PEERS_MAX];
    struct transport_peer *connecting;
    uint64_t flushes;
};

static struct secret_keys keys;
static struct tls_keys *tls_keys;
static struct side sides[2]; /* Without a key, and with one. */
static struct side *side;
static struct connection connections[CONNECTIONS];
static int listener = -1;
static volatile uint64_t sink;

/* ---- the clock ---- */

static int64_t clock_ns;      /* Time of the transport while an input runs. */
static int64_t clock_step_ns; /* 0 = no input runs. */

int __real_clock_gettime(clockid_t id, struct timespec *now);
int __wrap_clock_gettime(clockid_t id, struct timespec *now);

/* While an input runs, time passes only with the calls of this function, so that the path of an
 * input does not depend on how busy the computer is. */
int __wrap_clock_gettime(clockid_t id, struct timespec *now)
{
    if (clock_step_ns == 0)
        return __real_clock_gettime(id, now);
    clock_ns += clock_step_ns;
    *now = (struct timespec){.tv_sec = clock_ns / 1000000000, .tv_nsec = clock_ns % 1000000000};
    return 0;
}

/* ---- TLS ---- */

int __real_gnutls_priority_init(gnutls_priority_t *out, const char *text, const char **bad);
int __wrap_gnutls_priority_init(gnutls_priority_t *out, const char *text, const char **bad);

/* TLS without a key exchange by elliptic curves, which would take most of an input's time. */
int __wrap_gnutls_priority_init(gnutls_priority_t *out, const char *text, const char **bad)
{
    (void)text;
    return __real_gnutls_priority_init(
        out, "NONE:+VERS-TLS1.3:+AES-128-GCM:+AEAD:+PSK:+SIGN-ALL:+COMP-NULL", bad);
}

/* ---- the transport ---- */

static void on_up(void *self, struct transport_peer *peer)
{
    struct side *s = self;
    int i = 0;
    CHECK(transport_peer_identity(peer)->name[0] != 0);
    while (i < PEERS_MAX && s->up[i] != NULL)
        CHECK(s->up[i++] != peer);
    CHECK(i < PEERS_MAX);
    s->up[i] = peer;
    if (s->connecting == peer)
        s->connecting = NULL;
}

static void on_down(void *self, struct transport_peer *peer, enum status why, const char *text)
{
    struct side *s = self;
    CHECK(why < 0 && text[0] != 0);
    if (s->connecting == peer)
        s->connecting = NULL;
    for (int i = 0; i < PEERS_MAX; i++)
        if (s->up[i] == peer)
            s->up[i] = NULL;
}

static void on_message(void *self, struct transport_peer *peer, const uint8_t *data, size_t bytes)
{
    struct side *s = self;
    int i = 0;
    while (i < PEERS_MAX && s->up[i] != peer)
        i++;
    CHECK(i < PEERS_MAX && (uintptr_t)data % 8 == 0);
    for (size_t k = 0; k < bytes; k++)
        sink += data[k];
}

static void on_flushed(void *self, struct transport_peer *peer, uint64_t cookie, enum status status)
{
    (void)peer, (void)cookie, (void)status;
    ((struct side *)self)->flushes++;
}

/* Only the first half of the region is wanted. */
static bool on_write(void *self, const struct transport_peer *peer,
                     const struct transport_request *request, uint64_t offset, uint64_t bytes)
{
    (void)self, (void)request;
    CHECK(peer != NULL && bytes > 0 && offset < REGION && bytes <= REGION - offset);
    return offset + bytes <= REGION / 2;
}

static void on_writes_ended(void *self, uint64_t number)
{
    (void)self, (void)number;
}

static void side_open(struct side *s, bool with_key)
{
    struct transport_options options = net_options("t0", REGION);
    struct error error;
    options.events = (struct transport_events){on_up,    on_down,         on_message, on_flushed,
                                               on_write, on_writes_ended, NULL};
    options.self = s;
    options.ucx_tls = "none";
    options.silence_ms = options.connect_ms = 600000; /* However slow the computer is. */
    options.heartbeat_ms = 300000;
    options.keys = with_key ? &keys : NULL;
    CHECKF(transport_open(&transport_ucx, &options, &s->t, &error) == ST_OK, "%s", error.text);
    CHECK(transport_listen(s->t, "127.0.0.1:0", s->address, &error) == ST_OK);
}

/* Even if each turn ends after its first event, the transport accepts all connections. */
static void progress(void)
{
    const struct ucx *ucx = side->t->impl;
    struct pollfd fd = {.fd = transport_fd(side->t), .events = POLLIN};
    struct pollfd accepts = {.fd = ucx->listen_fd, .events = POLLIN};
    for (int i = 0; i < 50 && poll(&fd, 1, 0) > 0; i++)
        transport_progress(side->t);
    CHECK(ucx->listen_paused || poll(&accepts, 1, 0) == 0);
}

/* ---- the other ends ---- */

static struct sockaddr_in loopback(uint16_t port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return to;
}

static void take_over(struct connection *c, int fd, bool accepting)
{
    const struct linger reset = {.l_onoff = 1}; /* No TIME_WAIT. */
    CHECK(fd >= 0 && fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset)) == 0);
    memset(c, 0, sizeof(*c));
    stream_init(&c->stream, fd);
    if (side == &sides[1])
        CHECK(stream_tls_begin(&c->stream, tls_keys, accepting) == ST_OK);
}

static void hang_up(struct connection *c)
{
    stream_done(&c->stream);
    progress();
}

static void frame_send(struct connection *c, uint32_t kind, const void *data, size_t bytes)
{
    struct error error;
    if (c->stream.fd >= 0)
        (void)stream_send(&c->stream, kind, data, bytes, &error);
}

/* Reads what the transport has sent. */
static void read_all(struct connection *c)
{
    struct error error;
    struct stream_frame frame;
    const uint8_t *payload;
    struct handshake hello;
    if (c->stream.fd < 0)
        return;
    while (stream_receive(&c->stream, 1 << 20, &error) == ST_OK)
        while (stream_frame_next(&c->stream, &frame, &payload)) {
            uint8_t *copy = fuzz_copy(payload, frame.bytes);
            if (frame.kind == FRAME_HELLO &&
                handshake_decode(copy, frame.bytes, &hello, &error) == ST_OK)
                c->token = hello.token;
            if (frame.kind == FRAME_AUTH && c->stream.tls != NULL)
                (void)auth_decode(copy, frame.bytes, &c->auth.connecting, &error);
            free(copy);
        }
}

/* Does the TLS hand-shake, and the first `steps` steps of the proof. */
static void prove(struct connection *c, uint8_t steps)
{
    struct transport_identity identity = {.role = TRANSPORT_MACHINE, .name = "p0"};
    uint8_t frame[AUTH_BYTES_MAX], proof[SECRET_HASH_BYTES];
    struct error error;
    struct stream_frame head;
    const uint8_t *payload;
    enum status status = ST_IN_PROGRESS;
    for (int i = 0; i < 50 && status == ST_IN_PROGRESS; i++) {
        progress();
        status = stream_handshake(&c->stream, &error);
    }
    progress();
    if (status != ST_OK || steps == 0)
        return;
    tls_channel_binding(c->stream.tls, c->auth.channel_binding);
    auth_side_init(&c->auth.connecting, &identity);
    frame_send(c, FRAME_AUTH, frame, auth_encode(&c->auth.connecting, frame));
    progress();
    if (stream_receive(&c->stream, 4096, &error) != ST_OK ||
        !stream_frame_next(&c->stream, &head, &payload) || head.kind != FRAME_AUTH_REPLY ||
        steps == 1)
        return;
    CHECK(auth_reply_decode(payload, head.bytes, &c->auth.accepting, proof, &error) == ST_OK);
    auth_proof(&keys.keys[0], &c->auth, AUTH_BY_CONNECTING, proof);
    frame_send(c, FRAME_AUTH_PROOF, proof, sizeof(proof));
}

static void dial(struct connection *c, uint8_t flags)
{
    struct sockaddr_in to = loopback((uint16_t)atoi(strrchr(side->address, ':') + 1));
    hang_up(c);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0);
    take_over(c, fd, false);
    if (side == &sides[1] && flags % 8 != 7)
        prove(c, flags % 8 < 5 ? 2 : flags % 8 - 5);
}

/* The transport connects to this end. */
static void be_dialed(struct connection *c)
{
    struct sockaddr_in at;
    socklen_t bytes = sizeof(at);
    char text[LIMIT_ADDRESS_BYTES];
    struct error error;
    struct transport_peer *peer;
    CHECK(getsockname(listener, (struct sockaddr *)&at, &bytes) == 0);
    snprintf(text, sizeof(text), "127.0.0.1:%u", ntohs(at.sin_port));
    hang_up(c);
    if (side->connecting != NULL)
        return;
    CHECK(transport_connect(side->t, text, NULL, &peer, &error) == ST_OK);
    side->connecting = peer;
    progress();
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0)
        take_over(c, fd, true);
    progress();
}

static void hello_send(struct connection *c, uint8_t flags, struct fuzz_input *in)
{
    static uint8_t frame[HANDSHAKE_BYTES_MAX];
    struct handshake hello;
    handshake_init(&hello, TRANSPORT_PROTOCOL_VERSION + (flags % 16 == 15));
    hello.identity = net_options(flags & 16 ? "p1" : "p0", REGION).identity;
    hello.token = flags;
    hello.formats.kv += flags % 16 == 14;
    if (flags & 32) {
        hello.region = (struct transport_region_info){REGION, 4, 4096};
        hello.address = (struct fabric_address){.worker = "worker address", .worker_bytes = 14};
    }
    if (flags & 64)
        hello.identity.role = TRANSPORT_GATEWAY;
    size_t bytes = handshake_encode(&hello, frame, sizeof(frame));
    if (flags >= 240 && bytes > 0)
        frame[fuzz_below(in, (uint32_t)bytes)] ^= (uint8_t)(1 + fuzz_below(in, 255));
    frame_send(c, FRAME_HELLO, frame, bytes);
}

/* A WRITE frame: see struct wire_write of ucx_data.c. */
static void write_send(struct connection *c, struct fuzz_input *in)
{
    uint8_t frame[24 + 600] = {0};
    uint64_t offset = fuzz_below(in, (uint32_t)REGION + 4096);
    uint64_t request = fuzz_byte(in);
    uint32_t epoch = fuzz_byte(in);
    size_t bytes = fuzz_byte(in) * 2u;
    if (epoch > 250)
        epoch = UINT32_MAX - (255 - epoch);
    if (request == 255)
        offset = UINT64_MAX - bytes + 1;
    memcpy(frame, &offset, 8);
    memcpy(frame + 8, &request, 8);
    memcpy(frame + 20, &epoch, 4);
    memset(frame + 24, 0x55, bytes);
    frame_send(c, FRAME_WRITE, frame, 24 + bytes);
}

static void numbers_send(struct connection *c, uint32_t kind, struct fuzz_input *in)
{
    uint8_t numbers[8] = {0};
    uint32_t first = fuzz_byte(in), second = fuzz_byte(in);
    memcpy(numbers, &first, 4);
    memcpy(numbers + 4, &second, 4);
    frame_send(c, kind, numbers, sizeof(numbers));
}

static void any_frame_send(struct connection *c, struct fuzz_input *in)
{
    size_t bytes;
    uint32_t kind = fuzz_below(in, 18);
    const uint8_t *data = fuzz_bytes(in, fuzz_byte(in), &bytes);
    frame_send(c, kind, data, bytes);
}

/* Sends bytes that may be a part of a frame; with a key, not encrypted. */
static void bytes_send(struct connection *c, struct fuzz_input *in)
{
    size_t bytes;
    const uint8_t *data = fuzz_bytes(in, fuzz_byte(in) % 64, &bytes);
    if (c->stream.fd >= 0)
        (void)!send(c->stream.fd, data, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* Does what the transport's caller does with a peer that is up. */
static void use_peer(struct fuzz_input *in)
{
    uint8_t what = fuzz_byte(in);
    struct transport_peer *peer = side->up[what / 8 % PEERS_MAX];
    const struct transport_request request = {.id = what};
    if (peer == NULL)
        return;
    if (what % 8 < 2) {
        (void)transport_send(side->t, peer, "12345678", 8);
    } else if (what % 8 < 7 && transport_peer_region(peer)->bytes > 0) {
        (void)transport_write_for(side->t, peer, transport_region(side->t), 1 + what * 16u,
                                  what % 4 * 4096u, &request);
        transport_flush(side->t, peer, what);
    } else if (what % 8 == 7) {
        for (int i = 0; i < PEERS_MAX; i++)
            if (side->up[i] == peer)
                side->up[i] = NULL;
        transport_disconnect(side->t, peer);
    }
}

static void event(struct fuzz_input *in)
{
    uint8_t what = fuzz_byte(in);
    struct connection *c = &connections[what / 16 % CONNECTIONS];
    uint64_t token = connections[what / 64].token;
    switch (what % 16) {
    case 0:
    case 1:
        dial(c, fuzz_byte(in));
        break;
    case 2:
        be_dialed(c);
        break;
    case 3:
    case 4:
        hello_send(c, fuzz_byte(in), in);
        break;
    case 5:
    case 6:
        write_send(c, in);
        break;
    case 7:
        frame_send(c, FRAME_DATA, &token, sizeof(token));
        break;
    case 8:
        numbers_send(c, FRAME_FLUSH, in);
        break;
    case 9:
        numbers_send(c, fuzz_byte(in) % 2 != 0 ? FRAME_TAKEN : FRAME_FLUSHED, in);
        break;
    case 10:
        any_frame_send(c, in);
        break;
    case 11:
        bytes_send(c, in);
        break;
    case 12:
        use_peer(in);
        break;
    case 13:
        if (what >= 128)
            hang_up(c);
        break;
    case 14:
        frame_send(c, FRAME_MESSAGE, in->data, in->size < 40 ? in->size : 40);
        return; /* The next frame is sent with this one. */
    default: /* From 1 us to 8 ms, in which a turn of the transport ends after its first round. */
        clock_step_ns = 1000 << fuzz_below(in, 14);
        break;
    }
    progress();
    read_all(c);
}

static void open_all(void)
{
    static const uint8_t key[SECRET_HASH_BYTES] = "a cluster key";
    struct sockaddr_in at = loopback(0);
    clock_ns = clock_system_ns();
    struct error error;
    secret_keys_set(&keys, key);
    CHECK(tls_keys_open(&keys, &tls_keys, &error) == ST_OK);
    side_open(&sides[0], false);
    side_open(&sides[1], true);
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    CHECK(listener >= 0 && bind(listener, (struct sockaddr *)&at, sizeof(at)) == 0 &&
          listen(listener, 64) == 0);
}

/* Closes the connections that the transport has opened, and that no event has accepted. */
static void listener_clear(void)
{
    int fd;
    while ((fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) >= 0)
        close(fd);
}

/* All connections end, and the transport has no peer left. */
static void end_all(void)
{
    const struct ucx *ucx = side->t->impl;
    clock_step_ns = 1000000; /* Pauses end. */
    for (int i = 0; i < CONNECTIONS; i++)
        hang_up(&connections[i]);
    for (int i = 0; i < 2000 && (ucx->peers != NULL || ucx->lingering != NULL); i++) {
        listener_clear();
        struct pollfd poll_fd = {.fd = transport_fd(side->t), .events = POLLIN};
        poll(&poll_fd, 1, 1);
        transport_progress(side->t);
    }
    listener_clear();
    for (int i = 0; i < 2; i++) /* Stops the timer and frees the last peers. */
        transport_progress(side->t);
    CHECK(ucx->peers == NULL && ucx->lingering == NULL && ucx->lingering_count == 0);
    CHECK(ucx->accepted_greeting == 0 && side->connecting == NULL);
    for (int i = 0; i < PEERS_MAX; i++)
        CHECK(side->up[i] == NULL);
    const uint8_t *region = transport_region(side->t);
    for (uint64_t i = REGION / 2; i < REGION; i++)
        CHECKF(region[i] == 0, "byte %" PRIu64 " was written, which was not wanted", i);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    if (listener < 0)
        open_all();
    side = &sides[fuzz_byte(&in) & 1];
    clock_step_ns = 1000;
    for (int i = 0; i < CONNECTIONS; i++)
        stream_init(&connections[i].stream, -1);
    for (int i = 0; i < EVENTS_MAX && in.size > 0; i++)
        event(&in);
    end_all();
    clock_step_ns = 0;
    return 0;
}

/* With and without a key: a machine that writes over a data connection; one that is written to;
 * frames in the wrong order. */
size_t fuzz_seed(unsigned index, uint8_t *buffer, size_t capacity)
{
    static const uint8_t writer[] = {0,    0x00, 0,    0x03, 32, 0x0f, 0x10, 0,  0x17,
                                     0x15, 0,    0,    64,   0,  1,    0,    20, 0x08,
                                     0,    1,    0x0f, 0x08, 1,  2,    0x8d};
    static const uint8_t target[] = {0,    0x02, 0x03, 32, 0x0c, 4, 0x12, 0x1f,
                                     0x09, 0,    0,    0,  0x0c, 9, 0x0f};
    static const uint8_t wrong[] = {0,    0x00, 7, 0x05, 0,  0,    0,  0,    0, 0,    9,
                                    0x0b, 5,    1, 2,    3,  4,    5,  0x10, 0, 0x1a, 2,
                                    0,    0x00, 0, 0x04, 15, 0x0a, 16, 3,    1, 2,    3};
    static const struct {
        const uint8_t *bytes;
        size_t count;
    } seeds[] = {{writer, sizeof(writer)}, {target, sizeof(target)}, {wrong, sizeof(wrong)}};
    if (index >= 6 || capacity < 64)
        return 0;
    memcpy(buffer, seeds[index / 2].bytes, seeds[index / 2].count);
    buffer[0] = (uint8_t)(index % 2);
    return seeds[index / 2].count;
}
