/* Goal: two machines that share only an Ethernet link work over it, and notice when it fails.
 * Method: two network namespaces joined by a veth pair, a process in each; KV is written over TCP
 * and compared. Then the link is taken down, which sends no packet at all: both sides must report
 * silence. This process and the writer share the first namespace. Needs iproute2, and root or a
 * kernel that lets users make user namespaces. */
#include "tests/transport/namespaces.h"
#include "tests/transport/net.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define REGION ((uint64_t)8 << 20)
#define WRITES 300

/* Runs a shell command, in which "%d" stands for `pid`. */
static int command(const char *format, pid_t pid)
{
    char text[256], line[300];
    snprintf(text, sizeof(text), format, (int)pid);
    snprintf(line, sizeof(line), "{ %s; } >/dev/null 2>&1", text);
    return system(line);
}

static uint64_t place(uint64_t i, uint64_t *bytes)
{
    *bytes = 1 + random_at(9, i) % 26000;
    return i * (REGION / WRITES);
}

static uint8_t content(uint64_t offset)
{
    return (uint8_t)(random_mix(offset) >> 50);
}

static void reader_message(struct net_side *side, struct transport_peer *peer, const uint8_t *data,
                           size_t bytes)
{
    const uint8_t *region = transport_region(side->transport);
    uint64_t length;
    (void)data;
    (void)bytes;
    for (uint64_t i = 0; i < WRITES; i++) {
        uint64_t at = place(i, &length);
        for (uint64_t k = at; k < at + length; k++)
            CHECKF(region[k] == content(k), "byte %d", (int)k);
    }
    CHECK(transport_send(side->transport, peer, "same", 4) == ST_OK);
}

/* Runs one side in its namespace. Writes a character to `out` after each step: r = ready, s = same
 * bytes, d = down. */
static int side_main(bool writer, int out)
{
    struct net_side side;
    struct transport_peer *peer;
    struct error error;
    char bound[LIMIT_ADDRESS_BYTES];
    uint64_t length;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    struct transport_options options = net_options(writer ? "p0" : "t0", REGION);
    options.ucx_tls = "none"; /* UCX would find shared memory. */
    options.heartbeat_ms = 100;
    options.silence_ms = 2000;
    net_open(&side, options);
    if (!writer) {
        side.on_message = reader_message;
        CHECK(transport_listen(side.transport, "10.231.77.2:7400", bound, &error) == ST_OK);
        CHECK(write(out, "r", 1) == 1);
        NET_WAIT(&side, 1, side.down_count == 1);
    } else {
        uint8_t *region = transport_region(side.transport);
        for (uint64_t k = 0; k < REGION; k++)
            region[k] = content(k);
        CHECK(transport_connect(side.transport, "10.231.77.2:7400", NULL, &peer, &error) == ST_OK);
        NET_WAIT(&side, 1, side.up_count == 1);
        CHECKF(strcmp(transport_peer_path(peer), "messages over tcp") == 0, "%s",
               transport_peer_path(peer));
        for (uint64_t i = 0; i < WRITES; i++) {
            uint64_t at = place(i, &length);
            CHECK(transport_write(side.transport, peer, region + at, length, at) == ST_OK);
        }
        transport_flush(side.transport, peer, 1);
        NET_WAIT(&side, 1, side.flush_count == 1);
        CHECK(transport_send(side.transport, peer, "compare", 7) == ST_OK);
        NET_WAIT(&side, 1, side.messages == 1);
        CHECK(write(out, "s", 1) == 1);
        for (uint64_t i = 0; i < WRITES; i++) { /* Writes that are lost because the link is down. */
            uint64_t at = place(i, &length);
            CHECK(transport_write(side.transport, peer, region + at, length, at) == ST_OK);
        }
        NET_WAIT(&side, 1, side.down_count == 1);
    }
    CHECKF(side.why == ST_TIMED_OUT && strstr(side.text, "silent for 2000 ms") != NULL, "%s",
           side.text);
    CHECK(write(out, "d", 1) == 1);
    transport_close(side.transport);
    return 0;
}

/* Waits for eth9, this namespace's end of the link, and sets its address. */
static bool link_wait(const char *address)
{
    char text[128];
    snprintf(text, sizeof(text),
             "ip link set lo up && ip addr add %s dev eth9 && ip link set eth9 up", address);
    for (int tries = 0; command("ip link show eth9", 0) != 0; tries++)
        if (tries == NET_LONG_MS / 50 || usleep(50000) != 0)
            return false;
    if (command(text, 0) != 0)
        return false;
    /* UCX uses only devices that run. A device does not run immediately after "up". */
    for (int tries = 0; command("ip -o link show eth9 | grep -q 'LOWER_UP.*UP'", 0) != 0; tries++)
        if (tries == NET_LONG_MS / 50 || usleep(50000) != 0)
            return false;
    return true;
}

/* Starts a side: the writer in this namespace, or the reader in a new one, where it waits for its
 * end of the link. The reader writes "n" to `out` when its namespace exists. */
static pid_t side_start(bool writer, int *out)
{
    int fds[2];
    CHECK(pipe2(fds, O_CLOEXEC) == 0);
    fflush(stdout);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (!writer &&
            (!namespaces_enter_net() || write(fds[1], "n", 1) != 1 || !link_wait("10.231.77.2/24")))
            _exit(1);
        dup2(fds[1], 3);
        execl("/proc/self/exe", "test_ucx_netns", writer ? "writer" : "reader", NULL);
        _exit(1);
    }
    close(fds[1]);
    *out = fds[0];
    return pid;
}

static void await(int fd, char want)
{
    struct pollfd poller = {.fd = fd, .events = POLLIN};
    char got = 0;
    CHECKF(poll(&poller, 1, 2 * NET_LONG_MS) == 1 && read(fd, &got, 1) == 1, "the side ended");
    CHECK(got == want);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return side_main(strcmp(argv[1], "writer") == 0, 3);
    int outs[2], code;
    if (command("ip link show lo", 0) != 0 || command("nsenter --version", 0) != 0)
        test_skip("needs ip (iproute2) and nsenter (util-linux)");
    if (!namespaces_enter_net())
        test_skip("cannot make a network namespace: needs root, or user namespaces of users");
    pid_t reader = side_start(false, &outs[1]);
    await(outs[1], 'n');
    CHECK(command("ip link add eth9 type veth peer name eth9 netns %d", reader) == 0);
    CHECK(link_wait("10.231.77.1/24"));
    await(outs[1], 'r');
    pid_t writer = side_start(true, &outs[0]);
    await(outs[0], 's');
    int64_t down_ms = net_now_ms();
    CHECK(command("nsenter --net=/proc/%d/ns/net ip link set eth9 down", reader) == 0);
    await(outs[0], 'd');
    await(outs[1], 'd');
    int took_ms = (int)(net_now_ms() - down_ms);
    printf("both sides reported the dark link after %d ms\n", took_ms);
    CHECK(took_ms < 60000);
    CHECK(waitpid(reader, &code, 0) == reader && code == 0);
    CHECK(waitpid(writer, &code, 0) == writer && code == 0);
    return 0;
}
