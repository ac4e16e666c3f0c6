/* Goal: after the end of a connection, the receiver of KV is told when no write of the peer can
 * land any more, and not earlier. This holds even if the peer is stopped in a write for longer than
 * every timeout.
 *
 * Method: this process receives; a forked process writes. The writer stops itself (SIGSTOP) just
 * before a write, as if it were stopped in it, and this process waits until it has given the writer
 * up for silence. Over shared memory the write still lands when the writer runs again. The test
 * requires this, because otherwise it would not show the danger. Over data connections the write
 * must not land at all. `test_ucx_linger am` and `none` choose these paths. */
#include "tests/transport/net.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define REGION ((uint64_t)1 << 20)
#define LATE   77

static const char
    *way; /* "" = puts over shared memory; "am" = messages over it; "none" = no UCX. */

static struct transport_options options_of(const char *name)
{
    struct transport_options options = net_options(name, REGION);
    options.one_host = true;
    options.heartbeat_ms = 50;
    options.silence_ms = 400;
    options.ucx_tls = strcmp(way, "none") == 0 ? "none" : NULL;
    return options;
}

static bool by_put(void)
{
    return way[0] == 0;
}

/* ---- the writer ---- */

struct writer {
    pid_t pid;
    int commands; /* The test writes one letter per command. */
};

static void write_now(struct net_side *side, uint8_t value)
{
    uint8_t *region = transport_region(side->transport);
    memset(region, value, REGION);
    CHECK(transport_write(side->transport, side->peer, region, REGION, 0) == ST_OK);
    transport_flush(side->transport, side->peer, side->flushed_cookie + 1);
}

static void obey(struct net_side *side, char command)
{
    if (command == 'w') {
        write_now(side, 1);
    } else if (command == 's') { /* Stopped in a write. */
        raise(SIGSTOP);
        write_now(side, LATE);
    } else if (command == 'e') { /* Disconnect, and do not connect again. */
        transport_disconnect(side->transport, side->peer);
        side->peer = NULL;
        side->down_count = -1;
    }
}

/* Connects again whenever the connection has ended, as machines do. */
static void writer_run(const char *address, int commands)
{
    struct net_side side;
    struct transport_peer *peer;
    struct error error;
    int connects = 0; /* Is one more than the number of connections that have ended. */
    net_open(&side, options_of("p0"));
    for (;;) {
        struct pollfd polls[2] = {{.fd = transport_fd(side.transport), .events = POLLIN},
                                  {.fd = side.peer != NULL ? commands : -1, .events = POLLIN}};
        char command;
        if (side.down_count == connects) {
            connects++;
            side.flushed_cookie = 0;
            CHECK(transport_connect(side.transport, address, NULL, &peer, &error) == ST_OK);
        }
        poll(polls, 2, -1);
        transport_progress(side.transport);
        if (polls[1].revents == 0 || side.peer == NULL)
            continue;
        if (read(commands, &command, 1) != 1)
            _exit(0);
        obey(&side, command);
    }
}

/* Forks a writer, which waits for the receiver's address. Call it before this process opens its
 * transport, because a child would inherit UCX's descriptors. */
static struct writer writer_fork(void)
{
    char address[LIMIT_ADDRESS_BYTES];
    int pair[2];
    CHECK(pipe(pair) == 0);
    fflush(stdout);
    struct writer writer = {.pid = fork(), .commands = pair[1]};
    CHECK(writer.pid >= 0);
    if (writer.pid == 0) {
        close(pair[1]);
        if (read(pair[0], address, sizeof(address)) != sizeof(address))
            _exit(0);
        writer_run(address, pair[0]);
    }
    close(pair[0]);
    return writer;
}

static void writer_start(const struct writer *writer, const char address[LIMIT_ADDRESS_BYTES])
{
    CHECK(write(writer->commands, address, LIMIT_ADDRESS_BYTES) == LIMIT_ADDRESS_BYTES);
}

static void writer_end(const struct writer *writer)
{
    kill(writer->pid, SIGKILL);
    close(writer->commands);
    CHECK(waitpid(writer->pid, NULL, 0) == writer->pid);
}

static void command(const struct writer *writer, char letter)
{
    CHECK(write(writer->commands, &letter, 1) == 1);
}

/* ---- the receiver ---- */

static struct net_side receiver;
/* Numbers of the connections of the latest events. */
static uint64_t number_up, number_down, number_ended;
static int ends;
/* The result of transport_writes_await for the latest connection that ended. */
static bool awaited;

static void on_up(void *self, struct transport_peer *peer)
{
    net_up(self, peer);
    CHECK(transport_peer_number(peer) > number_up);
    number_up = transport_peer_number(peer);
}

static void on_down(void *self, struct transport_peer *peer, enum status why, const char *text)
{
    number_down = transport_peer_number(peer);
    awaited = transport_writes_await(receiver.transport, peer);
    net_down(self, peer, why, text);
}

static void on_ended(void *self, uint64_t number)
{
    (void)self;
    number_ended = number;
    ends++;
}

static uint8_t *received(void)
{
    return transport_region(receiver.transport);
}

/* True if every byte is `value`. */
static bool all_are(uint8_t value)
{
    const uint8_t *region = received();
    return region[0] == value && memcmp(region, region + 1, REGION - 1) == 0;
}

static void pass_ms(int ms)
{
    for (int64_t end_ms = net_now_ms() + ms; net_now_ms() < end_ms;)
        net_turn(&receiver, 1, 20);
}

/* Waits until the writer has stopped itself, then until it counts as silent. */
static void stopped_in_write(const struct writer *writer)
{
    int status;
    int downs = receiver.down_count;
    command(writer, 's');
    CHECK(waitpid(writer->pid, &status, WUNTRACED) == writer->pid && WIFSTOPPED(status));
    NET_WAIT(&receiver, 1, receiver.down_count > downs);
    CHECKF(receiver.why == ST_TIMED_OUT, "%s", receiver.text);
    CHECK(number_down == number_up && awaited == (strcmp(way, "none") != 0));
}

static void writer_begins(const struct writer *writer)
{
    int ups = receiver.up_count;
    if (receiver.peer == NULL)
        NET_WAIT(&receiver, 1, receiver.up_count > ups);
    memset(received(), 0, REGION);
    command(writer, 'w');
    NET_WAIT(&receiver, 1, all_are(1));
}

/* The memory belongs to another request from now on. */
static void given_away(void)
{
    memset(received(), 5, REGION);
}

static void test_continued(const struct writer *writer)
{
    writer_begins(writer);
    int before = ends;
    int ups = receiver.up_count;
    stopped_in_write(writer);
    pass_ms(2000); /* Five times the silence. */
    CHECK(ends == before && all_are(1));
    if (strcmp(way, "none") == 0)
        given_away();
    kill(writer->pid, SIGCONT);
    if (strcmp(way, "none") != 0) {
        NET_WAIT(&receiver, 1, ends > before);
        CHECK(number_ended == number_down);
        /* Either the whole write has landed, or nothing of it. */
        CHECK(all_are(by_put() ? LATE : 1));
        given_away();
    }
    NET_WAIT(&receiver, 1, receiver.up_count > ups); /* The writer has connected again. */
    CHECK(all_are(5) && ends == before + (strcmp(way, "none") != 0));
}

static void test_killed(const struct writer *writer)
{
    writer_begins(writer);
    int before = ends;
    stopped_in_write(writer);
    pass_ms(1000);
    CHECK(ends == before);
    kill(writer->pid, SIGKILL);
    if (strcmp(way, "none") != 0)
        NET_WAIT(&receiver, 1, ends > before);
    CHECK(all_are(1));
}

/* The receiver ends the connection of a running writer. */
static void test_disconnected(const struct writer *writer)
{
    writer_begins(writer);
    int before = ends;
    uint64_t number = transport_peer_number(receiver.peer);
    bool lingers = transport_writes_await(receiver.transport, receiver.peer);
    CHECK(lingers == (strcmp(way, "none") != 0));
    transport_disconnect(receiver.transport, receiver.peer);
    receiver.peer = NULL;
    if (lingers)
        NET_WAIT(&receiver, 1, ends > before && number_ended == number);
}

/* The writer ends the connection. Its kernel reports the end, so there is nothing to wait for. */
static void test_closed(const struct writer *writer)
{
    writer_begins(writer);
    int before = ends;
    int downs = receiver.down_count;
    command(writer, 'e');
    NET_WAIT(&receiver, 1, receiver.down_count > downs);
    CHECK(receiver.why == ST_UNREACHABLE && !awaited && ends == before);
}

int main(int argc, char **argv)
{
    char address[LIMIT_ADDRESS_BYTES];
    struct error error;
    way = argc > 1 ? argv[1] : "";
    if (strcmp(way, "am") == 0)
        setenv("CLEAVE_KV_WRITE", "am", 1);
    signal(SIGPIPE, SIG_IGN);
    struct writer writers[2];
    for (int i = 0; i < 2; i++)
        writers[i] = writer_fork();
    struct transport_options options = options_of("t0");
    options.events.peer_up = on_up;
    options.events.peer_down = on_down;
    options.events.writes_ended = on_ended;
    net_open(&receiver, options);
    CHECK(transport_listen(receiver.transport, "127.0.0.1:0", address, &error) == ST_OK);
    writer_start(&writers[0], address);
    test_continued(&writers[0]);
    test_disconnected(&writers[0]);
    test_closed(&writers[0]);
    writer_end(&writers[0]);
    writer_start(&writers[1], address);
    test_killed(&writers[1]);
    writer_end(&writers[1]);
    transport_close(receiver.transport);
    return 0;
}
