/* Goal: two machines that share only an Ethernet link work over it, and notice when it fails.
 * Method: two network namespaces joined by a veth pair, a process in each; KV is written over TCP
 * and compared. Then the link is taken down, which sends no packet at all: both sides must report
 * silence. Needs root and iproute2. */
#include "tests/transport/net.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define REGION ((uint64_t)8 << 20)
#define WRITES 300

static char names[2][32];
static int mounted_before; /* `ip netns add` mounts /run/netns and leaves it */

static int command(const char *format, const char *a, const char *b)
{
    char text[256], line[300];
    snprintf(text, sizeof(text), format, a, b);
    snprintf(line, sizeof(line), "%s 2>/dev/null", text);
    return system(line);
}

static void clean(void)
{
    (void)command("ip netns del %s; ip netns del %s", names[0], names[1]);
    if (!mounted_before)
        (void)command("umount -l /run/netns%s%s", "", "");
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
    const uint8_t *region = transport_region(side->t);
    uint64_t length;
    (void)data;
    (void)bytes;
    for (uint64_t i = 0; i < WRITES; i++) {
        uint64_t at = place(i, &length);
        for (uint64_t k = at; k < at + length; k++)
            CHECKF(region[k] == content(k), "byte %d", (int)k);
    }
    CHECK(transport_send(side->t, peer, "same", 4) == ST_OK);
}

/* One side, in its namespace. Writes a character to `out` after each stage: r ready or up, s same,
 * d down. */
static int side_main(bool writer, int out)
{
    struct net_side side;
    struct transport_peer *peer;
    struct error error;
    char bound[LIMIT_ADDRESS_BYTES];
    uint64_t length;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    struct transport_options options = net_options(writer ? "p0" : "t0", REGION);
    options.ucx_tls = "tcp";
    options.heartbeat_ms = 100;
    options.silence_ms = 500;
    net_open(&side, options);
    if (!writer) {
        side.on_message = reader_message;
        CHECK(transport_listen(side.t, "10.231.77.2:7400", bound, &error) == ST_OK);
        CHECK(write(out, "r", 1) == 1);
        NET_WAIT(&side, 1, side.downs == 1);
    } else {
        uint8_t *region = transport_region(side.t);
        for (uint64_t k = 0; k < REGION; k++)
            region[k] = content(k);
        CHECK(transport_connect(side.t, "10.231.77.2:7400", NULL, &peer, &error) == ST_OK);
        NET_WAIT(&side, 1, side.ups == 1);
        CHECKF(strcmp(transport_peer_path(peer), "ucx am over tcp") == 0, "%s",
               transport_peer_path(peer));
        for (uint64_t i = 0; i < WRITES; i++) {
            uint64_t at = place(i, &length);
            CHECK(transport_write(side.t, peer, region + at, length, at) == ST_OK);
        }
        transport_flush(side.t, peer, 1);
        NET_WAIT(&side, 1, side.flushes == 1);
        CHECK(transport_send(side.t, peer, "compare", 7) == ST_OK);
        NET_WAIT(&side, 1, side.messages == 1);
        CHECK(write(out, "s", 1) == 1);
        for (uint64_t i = 0; i < WRITES; i++) { /* a transfer that the dark link swallows */
            uint64_t at = place(i, &length);
            CHECK(transport_write(side.t, peer, region + at, length, at) == ST_OK);
        }
        NET_WAIT(&side, 1, side.downs == 1);
    }
    CHECKF(side.why == ST_TIMED_OUT && strstr(side.text, "silent for 500 ms") != NULL, "%s",
           side.text);
    CHECK(write(out, "d", 1) == 1);
    transport_close(side.t);
    return 0;
}

static pid_t side_start(int index, int *out)
{
    char self[1024] = {0};
    int fds[2];
    CHECK(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
    CHECK(pipe(fds) == 0);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(fds[1], 3);
        execlp("ip", "ip", "netns", "exec", names[index], self, index == 0 ? "writer" : "reader",
               NULL);
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
    for (int i = 0; i < 2; i++)
        snprintf(names[i], sizeof(names[i]), "cleave-%d-%d", (int)getpid(), i);
    const char *a = names[0], *b = names[1];
    mounted_before = command("mountpoint -q /run/netns%s%s", "", "") == 0;
    if (command("ip netns add %s && ip netns add %s", a, b) != 0 ||
        command("ip -n %s link add eth9 type veth peer name eth9 netns %s", a, b) != 0) {
        clean();
        test_skip("cannot make network namespaces (needs root and iproute2)");
    }
    atexit(clean);
    CHECK(command("ip -n %s addr add 10.231.77.1/24 dev eth9 && ip -n %s addr add 10.231.77.2/24 "
                  "dev eth9",
                  a, b) == 0);
    CHECK(command("ip -n %s link set eth9 up && ip -n %s link set eth9 up", a, b) == 0);
    CHECK(command("ip -n %s link set lo up && ip -n %s link set lo up", a, b) == 0);

    /* UCX takes only devices that run, and the kernel takes its time after "up". */
    for (int i = 0; i < 2; i++) {
        int tries = 0;
        while (command("ip -n %s -o link show eth9 | grep -q %s", names[i], "LOWER_UP.*UP") != 0)
            CHECK(++tries < 100 && usleep(50000) == 0);
    }
    int outs[2], code;
    pid_t reader = side_start(1, &outs[1]);
    await(outs[1], 'r');
    pid_t writer = side_start(0, &outs[0]);
    await(outs[0], 's');
    int64_t down_ms = net_now_ms();
    CHECK(command("ip -n %s link set eth9 down", b, "") == 0);
    await(outs[0], 'd');
    await(outs[1], 'd');
    int took_ms = (int)(net_now_ms() - down_ms);
    printf("both sides reported the dark link after %d ms\n", took_ms);
    CHECK(took_ms < 10000);
    CHECK(waitpid(reader, &code, 0) == reader && code == 0);
    CHECK(waitpid(writer, &code, 0) == writer && code == 0);
    return 0;
}
