/* Goal: the loopback transport keeps every promise of transport.h, so that tests of the pools can
 * rely on it, and its hooks work. Method: three transports in this process write all their events
 * into one text log, which is compared with the expected one. */
#include "tests/check.h"
#include "tests/transport/loopback.h"
#include "transport/doomed.h"
#include "transport/transport.h"

#include <poll.h>
#include <stdarg.h>
#include <string.h>

static char events_log[4096];

static void note(const char *format, ...)
{
    size_t used = strlen(events_log);
    va_list args;
    va_start(args, format);
    vsnprintf(events_log + used, sizeof(events_log) - used, format, args);
    va_end(args);
}

struct side {
    const char *name;
    struct transport *t;
    struct transport_peer *peer; /* The last peer that came up. */
    int disconnect_on_message;
};

static void on_up(void *self, struct transport_peer *peer)
{
    struct side *side = self;
    side->peer = peer;
    note("%s up %s; ", side->name, transport_peer_identity(peer)->name);
}

static void on_down(void *self, struct transport_peer *peer, enum status why, const char *text)
{
    struct side *side = self;
    (void)peer;
    note("%s down %s (%s); ", side->name, status_name(why), text);
}

static void on_message(void *self, struct transport_peer *peer, const uint8_t *data, size_t bytes)
{
    struct side *side = self;
    CHECK((uintptr_t)data % 8 == 0);
    note("%s got %.*s; ", side->name, (int)bytes, (const char *)data);
    if (side->disconnect_on_message)
        transport_disconnect(side->t, peer);
}

static void on_flushed(void *self, struct transport_peer *peer, uint64_t cookie, enum status status)
{
    struct side *side = self;
    (void)peer;
    note("%s flushed %d %s; ", side->name, (int)cookie, status_name(status));
}

static void side_open(struct side *side, const char *name, uint8_t model_hash)
{
    struct transport_options options = {
        .identity = {.role = TRANSPORT_MACHINE, .model_hash = {{model_hash}}, .layer_count = 3},
        .events = {on_up, on_down, on_message, on_flushed, NULL},
        .self = side,
        .region_bytes = 65536,
        .block_count = 16,
    };
    strcpy(options.identity.name, name);
    *side = (struct side){.name = name};
    CHECK(transport_open(&transport_loopback, &options, &side->t, NULL) == ST_OK);
}

static bool readable(struct side *side)
{
    struct pollfd poller = {.fd = transport_fd(side->t), .events = POLLIN};
    return poll(&poller, 1, 0) == 1;
}

static void run(struct side *sides, int count)
{
    for (bool busy = true; busy;) {
        busy = false;
        for (int i = 0; i < count; i++) {
            busy = busy || readable(&sides[i]);
            transport_progress(sides[i].t);
        }
    }
}

static void expect(const char *want)
{
    CHECKF(strcmp(events_log, want) == 0, "\n got: %s\nwant: %s", events_log, want);
    events_log[0] = 0;
}

int main(void)
{
    struct side s[3];
    char bound[LIMIT_ADDRESS_BYTES];
    struct error error;
    struct transport_peer *peer;
    side_open(&s[0], "p0", 5);
    side_open(&s[1], "t0", 5);
    side_open(&s[2], "t1", 6);
    CHECK(transport_listen(s[1].t, "t0:1", bound, &error) == ST_OK);
    CHECK(strcmp(bound, "t0:1") == 0);
    CHECK(transport_listen(s[2].t, "t0:1", bound, &error) == ST_IO);
    CHECK(strcmp(error.text, "listen on t0:1: address already in use") == 0);
    CHECK(transport_listen(s[2].t, "t1:1", bound, &error) == ST_OK);

    /* A refused connection, a mismatch, and a good connection. */
    CHECK(transport_connect(s[0].t, "nobody:1", NULL, &peer, &error) == ST_OK);
    run(s, 3);
    expect("p0 down unreachable (nobody:1: connection refused); ");
    CHECK(transport_connect(s[0].t, "t1:1", NULL, &peer, &error) == ST_OK);
    run(s, 3);
#define DIFFER "p0 and t1 do not match: model_hash is 0500000000000000 and 0600000000000000"
    expect("t1 down mismatch (p0: " DIFFER "); p0 down mismatch (t1: " DIFFER "); ");
    int user;
    CHECK(transport_connect(s[0].t, "t0:1", &user, &peer, &error) == ST_OK);
    CHECK(transport_send(s[0].t, peer, "early", 5) == ST_UNREACHABLE);
    expect("");
    run(s, 3);
    expect("t0 up p0; p0 up t0; ");
    CHECK(s[0].peer == peer && transport_peer_user(peer) == &user);
    CHECK(transport_peer_user(s[1].peer) == NULL);
    CHECK(transport_peer_region(peer)->bytes == 65536);

    /* Messages arrive in order, and only during the receiver's progress. */
    CHECK(transport_send(s[0].t, peer, "a", 1) == ST_OK);
    CHECK(transport_send(s[0].t, peer, "b", 1) == ST_OK);
    CHECK(transport_send(s[0].t, peer, "", 0) == ST_OK);
    CHECK(readable(&s[1]) && !readable(&s[0]));
    transport_progress(s[0].t);
    expect("");
    transport_progress(s[1].t);
    expect("t0 got a; t0 got b; t0 got ; ");
    CHECK(!readable(&s[1]));
    CHECK(transport_send(s[0].t, peer, "", LIMIT_MESSAGE_BYTES + 1) == ST_TOO_LARGE);

    /* Writes have landed when their flush is reported, not before; and the bounds of a write. */
    uint8_t *source = transport_region(s[0].t);
    uint8_t *target = transport_region(s[1].t);
    memcpy(source, "hello", 5);
    CHECK(transport_write(s[0].t, peer, source, 5, 65532) == ST_INVALID);
    CHECK(transport_write(s[0].t, peer, source, 5, UINT64_MAX) == ST_INVALID);
    CHECK(transport_write(s[0].t, peer, source, 5, 65531) == ST_OK);
    transport_flush(s[0].t, peer, 1);
    CHECK(target[65531] == 0 && readable(&s[0]));
    transport_loopback_hold(s[0].t, peer, true);
    CHECK(transport_send(s[0].t, peer, "c", 1) == ST_OK);
    run(s, 3);
    expect("t0 got c; ");
    CHECK(target[65531] == 0);
    transport_loopback_hold(s[0].t, peer, false);
    run(s, 3);
    expect("p0 flushed 1 ok; ");
    CHECK(memcmp(target + 65531, "hello", 5) == 0);
    CHECK(transport_loopback_landed_bytes(s[1].t) == 5);

    /* A dropped peer: data sent before arrives, unreported flushes fail, then both sides are
     * down. */
    transport_loopback_hold(s[0].t, peer, true);
    CHECK(transport_write(s[0].t, peer, source, 5, 0) == ST_OK);
    transport_flush(s[0].t, peer, 2);
    CHECK(transport_send(s[0].t, peer, "d", 1) == ST_OK);
    transport_loopback_drop(s[0].t, peer);
    CHECK(transport_send(s[0].t, peer, "e", 1) == ST_UNREACHABLE);
    run(s, 3);
    expect("p0 flushed 2 unreachable; p0 down unreachable (t0: connection reset); "
           "t0 got d; t0 down unreachable (p0: connection reset); ");
    CHECK(target[0] == 0);

    /* A cut link loses everything silently until its silence times out. */
    CHECK(transport_connect(s[0].t, "t0:1", NULL, &peer, &error) == ST_OK);
    run(s, 3);
    expect("t0 up p0; p0 up t0; ");
    transport_loopback_cut(s[1].t, s[1].peer);
    CHECK(transport_send(s[0].t, peer, "f", 1) == ST_OK);
    CHECK(transport_send(s[1].t, s[1].peer, "g", 1) == ST_OK);
    transport_flush(s[0].t, peer, 3);
    run(s, 3);
    expect("");
    transport_loopback_time_out(s[0].t, peer);
    run(s, 3);
    expect("p0 flushed 3 timed out; p0 down timed out (t0: silent for too long); "
           "t0 down timed out (p0: silent for too long); ");

    /* Disconnecting within a callback drops that peer's other events; the other side is
     * informed. */
    CHECK(transport_connect(s[0].t, "t0:1", NULL, &peer, &error) == ST_OK);
    run(s, 3);
    s[1].disconnect_on_message = 1;
    events_log[0] = 0;
    CHECK(transport_send(s[0].t, peer, "h", 1) == ST_OK);
    CHECK(transport_send(s[0].t, peer, "i", 1) == ST_OK);
    run(s, 3);
    expect("t0 got h; p0 down unreachable (t0: connection closed by the peer); ");

    /* A peer that is disconnected leaves the list of doomed peers. */
    struct doomed doomed = {NULL};
    CHECK(transport_connect(s[0].t, "t0:1", NULL, &peer, &error) == ST_OK);
    run(s, 3);
    doomed_add(&doomed, peer, "first");
    doomed_add(&doomed, s[1].peer, "second");
    doomed_remove(s[1].peer);
    doomed_add(&doomed, s[1].peer, "third"); /* It becomes the last peer again. */
    CHECK(doomed_take(&doomed) == peer && doomed_take(&doomed) == s[1].peer);
    CHECK(strcmp(doomed_reason(s[1].peer), "third") == 0 && doomed_take(&doomed) == NULL);
    doomed_add(&doomed, peer, "first");
    doomed_add(&doomed, s[1].peer, "second");
    doomed_add(&doomed, s[1].peer, "third");
    transport_disconnect(s[0].t, peer);
    CHECK(doomed_take(&doomed) == s[1].peer);
    CHECK(strcmp(doomed_reason(s[1].peer), "second") == 0 && doomed_take(&doomed) == NULL);
    run(s, 3);

    /* Closing while writes, flushes and messages are in flight. */
    CHECK(transport_connect(s[0].t, "t0:1", NULL, &peer, &error) == ST_OK);
    run(s, 3);
    transport_send(s[0].t, peer, "j", 1);
    transport_write(s[0].t, peer, source, 5, 0);
    transport_flush(s[0].t, peer, 4);
    transport_write(s[0].t, peer, source, 5, 0);
    for (int i = 0; i < 3; i++)
        transport_close(s[i].t);
    transport_close(NULL);
    return 0;
}
