/* bench_write: measures KV writes between two processes: GB/s of a stream of writes of one size,
 * with a flush after each MiB or write and up to 32 MiB in flight; the processor time of both
 * processes for a GB of this stream; and the time from the start of one write until its flush is
 * reported.
 *
 * usage: bench_write [WAY [BYTES...]]
 *
 * WAY is a value of transport/ucx_transports ("" = as machines choose, "none" = data connections),
 * or "raw": one plain TCP connection without the transport, as a limit for the others; the time
 * until a flush is then not measured. In the environment:
 *
 *   CLEAVE_KV_WRITE=put|am  chooses the path.
 *   DEVICES=w, r or wr      The regions belong to fake devices, whose copies are a thread's memcpy,
 *                           to measure the cost of staging.
 *   KEY                     With a cluster key, so data connections are encrypted, and two devices
 *                           copy into each other's memory.
 *   LISTEN=ADDRESS          The reader's IPv4 address; 127.0.0.1 unless set.
 *   NETNS=PID               The reader is in the network namespace of that process. */
#include "tests/device/fake_memory.h"
#include "tests/transport/namespaces.h"
#include "tests/transport/net.h"

#include <arpa/inet.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define REGION    ((uint64_t)64 << 20)
#define RAW_BYTES ((size_t)1 << 20) /* Read at once from a plain TCP connection. */

static const struct device_memory *device_of(char whose)
{
    static const struct fake_memory_options options = {.delay_us = 0};
    const char *devices = getenv("DEVICES");
    if (devices == NULL || strchr(devices, whose) == NULL)
        return NULL;
    return fake_memory_device(fake_memory_open(&options));
}

static const struct secret_keys *keys_of(void)
{
    static const uint8_t key[SECRET_HASH_BYTES] = {1, 2, 3};
    static struct secret_keys keys;
    secret_keys_set(&keys, key);
    return getenv("KEY") != NULL ? &keys : NULL;
}

static const char *reader_address(void)
{
    const char *address = getenv("LISTEN");
    return address != NULL ? address : "127.0.0.1";
}

/* UCX reads the devices of its network namespace in /sys, so /sys is mounted again. */
static void reader_namespace_enter(void)
{
    const char *pid = getenv("NETNS");
    char path[64];
    if (pid == NULL)
        return;
    snprintf(path, sizeof(path), "/proc/%s/ns/net", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0 && setns(fd, CLONE_NEWNET) == 0 && unshare(CLONE_NEWNS) == 0);
    close(fd);
    CHECK(namespaces_mount("sysfs", "/sys", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL));
}

/* Reads one connection after the other, and closes each at its end. */
static void raw_child(int out)
{
    static uint8_t region[REGION];
    size_t offset = 0;
    struct sockaddr_in to = {.sin_family = AF_INET};
    socklen_t bytes = sizeof(to);
    CHECK(inet_pton(AF_INET, reader_address(), &to.sin_addr) == 1);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(bind(listener, (struct sockaddr *)&to, sizeof(to)) == 0 && listen(listener, 1) == 0);
    CHECK(getsockname(listener, (struct sockaddr *)&to, &bytes) == 0);
    CHECK(write(out, &to, sizeof(to)) == sizeof(to));
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        CHECK(fd >= 0);
        for (ssize_t got = 1; got > 0; offset += (size_t)got) {
            offset = offset < REGION ? offset : 0;
            size_t left = REGION - offset;
            got = recv(fd, region + offset, left < RAW_BYTES ? left : RAW_BYTES, 0);
            CHECK(got >= 0);
        }
        close(fd);
    }
}

static void child(const char *tls, int out)
{
    struct net_side side;
    struct error error;
    char bound[LIMIT_ADDRESS_BYTES];
    char listen_at[LIMIT_ADDRESS_BYTES];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    reader_namespace_enter();
    if (tls != NULL && strcmp(tls, "raw") == 0)
        raw_child(out);
    snprintf(listen_at, sizeof(listen_at), "%s:0", reader_address());
    struct transport_options options = net_options("t0", REGION);
    options.ucx_tls = tls;
    options.keys = keys_of();
    options.device = device_of('r');
    net_open(&side, options);
    CHECK(transport_listen(side.transport, listen_at, bound, &error) == ST_OK);
    CHECK(write(out, bound, sizeof(bound)) == sizeof(bound));
    for (;;)
        net_turn(&side, 1, 1000);
}

/* Returns the processor time of this process and of the other one. */
static double processor_s(pid_t other)
{
    struct timespec own;
    struct timespec theirs;
    clockid_t clock;
    CHECK(clock_getcpuclockid(other, &clock) == 0 && clock_gettime(clock, &theirs) == 0);
    CHECK(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &own) == 0);
    return (double)(own.tv_sec + theirs.tv_sec) + (double)(own.tv_nsec + theirs.tv_nsec) * 1e-9;
}

struct stream_figures {
    double gbs;
    double cpu_s_per_gb;
};

static struct stream_figures stream_measure(struct net_side *side, pid_t other, size_t bytes,
                                            int64_t run_ms)
{
    double cpu_s = processor_s(other);
    uint8_t *region = transport_region(side->transport);
    uint64_t done_bytes = 0, offset = 0, since_flush = 0;
    uint64_t cookie = side->flushed_cookie;
    size_t per_flush = bytes < (1u << 20) ? (1u << 20) / bytes * bytes : bytes;
    int64_t begin = clock_now_us(&clock_system);
    int64_t end = begin + run_ms * 1000;
    while (clock_now_us(&clock_system) < end) {
        while ((cookie - side->flushed_cookie) * per_flush < (32u << 20)) {
            if (offset + bytes > REGION)
                offset = 0;
            CHECK(transport_write(side->transport, side->peer, region + offset, bytes, offset) ==
                  ST_OK);
            offset += bytes;
            since_flush += bytes;
            done_bytes += bytes;
            if (since_flush >= per_flush) {
                transport_flush(side->transport, side->peer, ++cookie);
                since_flush = 0;
            }
        }
        net_turn(side, 1, 100);
    }
    transport_flush(side->transport, side->peer, ++cookie);
    NET_WAIT(side, 1, side->flushed_cookie == cookie);
    return (struct stream_figures){
        .gbs = (double)done_bytes / 1e3 / (double)(clock_now_us(&clock_system) - begin),
        .cpu_s_per_gb = (processor_s(other) - cpu_s) / ((double)done_bytes / 1e9)};
}

/* One connection for `run_ms`; ends when the reader has read everything. */
static struct stream_figures raw_measure(const struct sockaddr_in *to, pid_t other, size_t bytes,
                                         int64_t run_ms)
{
    static uint8_t region[REGION];
    double cpu_s = processor_s(other);
    uint64_t done_bytes = 0;
    size_t offset = 0;
    if (region[0] == 0)
        memset(region, 1, sizeof(region));
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(connect(fd, (const struct sockaddr *)to, sizeof(*to)) == 0);
    int64_t begin = clock_now_us(&clock_system);
    while (clock_now_us(&clock_system) < begin + run_ms * 1000) {
        offset = offset + bytes <= REGION ? offset : 0;
        ssize_t sent = send(fd, region + offset, bytes, 0);
        CHECK(sent > 0);
        offset += (size_t)sent;
        done_bytes += (uint64_t)sent;
    }
    CHECK(shutdown(fd, SHUT_WR) == 0 && recv(fd, region, 1, 0) == 0);
    close(fd);
    return (struct stream_figures){
        .gbs = (double)done_bytes / 1e3 / (double)(clock_now_us(&clock_system) - begin),
        .cpu_s_per_gb = (processor_s(other) - cpu_s) / ((double)done_bytes / 1e9)};
}

static void raw_run(int in, pid_t other, const size_t *sizes, size_t count)
{
    struct sockaddr_in to;
    CHECK(read(in, &to, sizeof(to)) == sizeof(to));
    (void)raw_measure(&to, other, 1 << 20, 200);
    for (size_t i = 0; i < count; i++) {
        struct stream_figures stream = raw_measure(&to, other, sizes[i], 700);
        printf("%8zu B  %6.3f GB/s  %6.3f CPU s/GB\n", sizes[i], stream.gbs, stream.cpu_s_per_gb);
    }
}

static double one_us(struct net_side *side, size_t bytes)
{
    double best = 1e12, sum = 0;
    for (int i = 0; i < 300; i++) {
        uint64_t cookie = side->flushed_cookie + 1;
        int64_t begin = clock_now_us(&clock_system);
        transport_write(side->transport, side->peer, transport_region(side->transport), bytes, 0);
        transport_flush(side->transport, side->peer, cookie);
        transport_progress(side->transport);
        NET_WAIT(side, 1, side->flushed_cookie == cookie);
        double took = (double)(clock_now_us(&clock_system) - begin);
        best = took < best ? took : best;
        sum += took;
    }
    return sum / 300;
}

static void transport_run(const char *tls, int in, pid_t other, const size_t *sizes, size_t count)
{
    char address[LIMIT_ADDRESS_BYTES];
    struct error error;
    CHECK(read(in, address, sizeof(address)) == sizeof(address));
    struct net_side side;
    struct transport_options options = net_options("p0", REGION);
    options.ucx_tls = tls;
    options.keys = keys_of();
    options.device = device_of('w');
    net_open(&side, options);
    struct transport_peer *peer;
    CHECK(transport_connect(side.transport, address, NULL, &peer, &error) == ST_OK);
    NET_WAIT(&side, 1, side.peer != NULL);
    printf("%s\n", transport_peer_path(side.peer));
    if (options.device == NULL)
        memset(transport_region(side.transport), 1, REGION);
    /* Touches the pages of the other side's region. */
    (void)stream_measure(&side, other, 1 << 20, 200);
    for (size_t i = 0; i < count; i++) {
        struct stream_figures stream = stream_measure(&side, other, sizes[i], 700);
        double us = one_us(&side, sizes[i]);
        printf("%8zu B  %6.3f GB/s  %6.3f CPU s/GB  %7.1f us to flushed\n", sizes[i], stream.gbs,
               stream.cpu_s_per_gb, us);
    }
    transport_close(side.transport);
}

int main(int argc, char **argv)
{
    size_t sizes[8] = {12288, 65536, 384 << 10, 1 << 20}, count = 4;
    const char *way = argc > 1 && argv[1][0] != 0 ? argv[1] : NULL;
    int pipe_fds[2];
    for (int i = 2; i < argc && i < 10; i++) {
        sizes[i - 2] = strtoul(argv[i], NULL, 10);
        count = (size_t)i - 1;
        CHECK(sizes[i - 2] > 0 && sizes[i - 2] <= REGION);
    }
    CHECK(pipe(pipe_fds) == 0);
    pid_t pid = fork();
    if (pid == 0)
        child(way, pipe_fds[1]);
    if (way != NULL && strcmp(way, "raw") == 0)
        raw_run(pipe_fds[0], pid, sizes, count);
    else
        transport_run(way, pipe_fds[0], pid, sizes, count);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    return 0;
}
