/* bench_write: measures KV writes between two processes: GB/s of a stream of writes of one size,
 * with a flush after each MiB or write and up to 32 MiB in flight; the processor time of both
 * processes for a GB of this stream; and the time from the begin of one write until its flush is
 * reported.
 *
 * usage: bench_write [TLS [BYTES...]]
 *
 * TLS "" = as machines choose, "none" = data connections. In the environment: CLEAVE_KV_WRITE=put|am chooses the path. DEVICES=w, r
 * or wr: the regions belong to fake devices, whose copies are a thread's memcpy, to measure the
 * cost of staging. KEY: with a cluster key, so data connections are encrypted, and two devices copy
 * into each other's memory. */
#include "tests/device/fake_memory.h"
#include "tests/transport/net.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define REGION ((uint64_t)64 << 20)

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

static void child(const char *tls, int out)
{
    struct net_side side;
    struct error error;
    char bound[LIMIT_ADDRESS_BYTES];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    struct transport_options options = net_options("t0", REGION);
    options.ucx_tls = tls;
    options.keys = keys_of();
    options.device = device_of('r');
    net_open(&side, options);
    CHECK(transport_listen(side.t, "127.0.0.1:0", bound, &error) == ST_OK);
    CHECK(write(out, bound, sizeof(bound)) == sizeof(bound));
    for (;;)
        net_turn(&side, 1, 1000);
}

/* Processor time of this process and of the other one. */
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
    uint8_t *region = transport_region(side->t);
    uint64_t done_bytes = 0, offset = 0, since_flush = 0;
    uint64_t cookie = side->flushed_cookie;
    size_t per_flush = bytes < (1u << 20) ? (1u << 20) / bytes * bytes : bytes;
    int64_t begin = clock_now_us(&clock_system);
    int64_t end = begin + run_ms * 1000;
    while (clock_now_us(&clock_system) < end) {
        while ((cookie - side->flushed_cookie) * per_flush < (32u << 20)) {
            if (offset + bytes > REGION)
                offset = 0;
            CHECK(transport_write(side->t, side->peer, region + offset, bytes, offset) == ST_OK);
            offset += bytes;
            since_flush += bytes;
            done_bytes += bytes;
            if (since_flush >= per_flush) {
                transport_flush(side->t, side->peer, ++cookie);
                since_flush = 0;
            }
        }
        net_turn(side, 1, 100);
    }
    transport_flush(side->t, side->peer, ++cookie);
    NET_WAIT(side, 1, side->flushed_cookie == cookie);
    return (struct stream_figures){
        .gbs = (double)done_bytes / 1e3 / (double)(clock_now_us(&clock_system) - begin),
        .cpu_s_per_gb = (processor_s(other) - cpu_s) / ((double)done_bytes / 1e9)};
}

static double one_us(struct net_side *side, size_t bytes)
{
    double best = 1e12, sum = 0;
    for (int i = 0; i < 300; i++) {
        uint64_t cookie = side->flushed_cookie + 1;
        int64_t begin = clock_now_us(&clock_system);
        transport_write(side->t, side->peer, transport_region(side->t), bytes, 0);
        transport_flush(side->t, side->peer, cookie);
        transport_progress(side->t);
        NET_WAIT(side, 1, side->flushed_cookie == cookie);
        double took = (double)(clock_now_us(&clock_system) - begin);
        best = took < best ? took : best;
        sum += took;
    }
    return sum / 300;
}

int main(int argc, char **argv)
{
    static const size_t sizes[] = {12288, 65536, 384 << 10, 1 << 20};
    const char *tls = argc > 1 && argv[1][0] != 0 ? argv[1] : NULL;
    const size_t count = argc > 2 ? (size_t)argc - 2 : sizeof(sizes) / sizeof(sizes[0]);
    int pipe_fds[2];
    char address[LIMIT_ADDRESS_BYTES];
    struct error error;
    CHECK(pipe(pipe_fds) == 0);
    pid_t pid = fork();
    if (pid == 0)
        child(tls, pipe_fds[1]);
    CHECK(read(pipe_fds[0], address, sizeof(address)) == sizeof(address));
    struct net_side side;
    struct transport_options options = net_options("p0", REGION);
    options.ucx_tls = tls;
    options.keys = keys_of();
    options.device = device_of('w');
    net_open(&side, options);
    struct transport_peer *peer;
    CHECK(transport_connect(side.t, address, NULL, &peer, &error) == ST_OK);
    NET_WAIT(&side, 1, side.peer != NULL);
    printf("%s\n", transport_peer_path(side.peer));
    if (options.device == NULL)
        memset(transport_region(side.t), 1, REGION);
    (void)stream_measure(&side, pid, 1 << 20, 200); /* touches the other side's pages */
    for (size_t i = 0; i < count; i++) {
        size_t bytes = argc > 2 ? strtoul(argv[2 + i], NULL, 10) : sizes[i];
        CHECK(bytes > 0 && bytes <= REGION);
        struct stream_figures stream = stream_measure(&side, pid, bytes, 700);
        double us = one_us(&side, bytes);
        printf("%8zu B  %6.2f GB/s  %6.3f CPU s/GB  %7.1f us to flushed\n", bytes, stream.gbs,
               stream.cpu_s_per_gb, us);
    }
    transport_close(side.t);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    return 0;
}
