/* Goal: writes of any runs arrive byte for byte before their flush is reported, over every path. A
 * peer that dies, stalls or returns at any moment causes a peer_down, not a crash, hang or wrong
 * byte.
 *
 * Method: this process writes; the written side is another process with its own model: both derive
 * the runs from the seed. With each reported flush a message asks the other side whether the runs
 * before it have arrived, and at the end of a round to compare its whole region. Then the other
 * side is killed (SIGKILL) or stopped (SIGSTOP) during a transfer, and the connection is made
 * again, many times.
 *
 * usage: test_ucx_write [TLS [reader]]
 *
 * In the environment: CLEAVE_KV_WRITE as transport reads it. EXPECT_PATH: the expected path.
 * RECONNECTS: number of reconnections, 12. WITHOUT_SHM: hide shared memory. DEVICES: "w", "r" or
 * "wr": the writer's region, the reader's or both belong to a device. KEY: both have a cluster key.
 */
#include "tests/device/fake_memory.h"
#include "tests/transport/namespaces.h"
#include "tests/transport/net.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define REGION   ((uint64_t)8 << 20)
#define RUNS_MAX 200

static uint64_t seed;
static const char *tls;
static struct fake_memory *device; /* Device memory of this process's region; NULL = host memory. */

static void device_open(char whose)
{
    const char *devices = getenv("DEVICES");
    const struct fake_memory_options options = {.delay_us = 300, .seed = seed + (uint64_t)whose};
    if (devices != NULL && strchr(devices, whose) != NULL)
        device = fake_memory_open(&options);
}

static struct transport_options options_of(const char *name)
{
    static const uint8_t key[SECRET_HASH_BYTES] = {1, 2, 3};
    struct transport_options options = net_options(name, REGION);
    options.ucx_tls = tls;
    static struct secret_keys keys;
    secret_keys_set(&keys, key);
    options.keys = getenv("KEY") != NULL ? &keys : NULL;
    options.device = device != NULL ? fake_memory_device(device) : NULL;
    return options;
}

/* Returns the bytes of this side's region. */
static uint8_t *region_of(struct net_side *side)
{
    void *region = transport_region(side->transport);
    return device != NULL ? fake_memory_mapping(device, region) : region;
}

struct run {
    uint64_t source, target, bytes;
};

/* Asks: have the first `runs` runs of this round arrived? */
struct question {
    uint64_t round;
    uint32_t runs;
    uint32_t last; /* An answer is wanted even if all bytes are right. */
};

/* Makes the runs of a round: sizes from 1 byte to 1 MiB, without overlapping targets. */
static uint32_t round_runs(uint64_t round, struct run *runs)
{
    uint64_t key = random_mix(seed + round), draws = 0, at = 0;
    uint32_t count = 0;
    uint64_t kind = random_at(key, draws++) % 3;
    while (count < RUNS_MAX) {
        uint64_t most = kind == 0 ? 12288 : kind == 1 ? 65536 : 1 << 20;
        uint64_t bytes = 1 + random_at(key, draws++) % most;
        at += random_at(key, draws++) % 5000;
        if (at + bytes > REGION)
            break;
        runs[count++] = (struct run){random_at(key, draws++) % (REGION - bytes), at, bytes};
        at += bytes;
    }
    return count;
}

static uint8_t source_byte(uint64_t offset)
{
    return (uint8_t)(random_mix(seed ^ offset) >> 56);
}

/* ---- the written side ---- */

static uint8_t *model, *source;

static void reader_message(struct net_side *side, struct transport_peer *peer, const uint8_t *data,
                           size_t bytes)
{
    const uint8_t *region = region_of(side);
    struct question question;
    CHECK(bytes == sizeof(question));
    memcpy(&question, data, sizeof(question));
    static struct run runs[RUNS_MAX];
    uint32_t count = round_runs(question.round, runs);
    uint64_t same = 1;
    for (uint32_t i = 0; i < question.runs; i++)
        if (memcmp(region + runs[i].target, source + runs[i].source, runs[i].bytes) != 0)
            same = 0;
    if (question.runs == count) {
        for (uint32_t i = 0; i < count; i++)
            memcpy(model + runs[i].target, source + runs[i].source, runs[i].bytes);
        if (memcmp(model, region, REGION) != 0)
            same = 0;
    }
    if (question.last || same == 0)
        CHECK(transport_send(side->transport, peer, &same, sizeof(same)) == ST_OK);
}

static _Noreturn void reader(int out)
{
    struct net_side side;
    struct error error;
    char bound[LIMIT_ADDRESS_BYTES];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    device_open('r');
    net_open(&side, options_of("t0"));
    side.on_message = reader_message;
    model = calloc(1, REGION);
    source = malloc(REGION);
    for (uint64_t i = 0; i < REGION; i++)
        source[i] = source_byte(i);
    CHECK(transport_listen(side.transport, "127.0.0.1:0", bound, &error) == ST_OK);
    CHECK(write(out, bound, sizeof(bound)) == sizeof(bound));
    int ups = 0;
    for (;;) {
        net_turn(&side, 1, 1000);
        if (side.up_count != ups) { /* A new writer needs an empty region. */
            ups = side.up_count;
            memset(model, 0, REGION);
            memset(region_of(&side), 0, REGION);
            uint64_t ready = 2;
            CHECK(transport_send(side.transport, side.peer, &ready, sizeof(ready)) == ST_OK);
        }
    }
}

static pid_t reader_start(char address[LIMIT_ADDRESS_BYTES])
{
    int fds[2];
    CHECK(pipe2(fds, O_CLOEXEC) == 0);
    fflush(stdout);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) { /* A new process, without UCX state of this one. */
        char seed_text[32];
        snprintf(seed_text, sizeof(seed_text), "%" PRIu64, seed);
        setenv("CLEAVE_SEED", seed_text, 1);
        if (dup2(fds[1], 3) < 0 || close_range(4, ~0U, 0) != 0)
            _exit(1);
        execl("/proc/self/exe", "test_ucx_write", tls != NULL ? tls : "", "reader", NULL);
        _exit(1);
    }
    close(fds[1]);
    CHECK(read(fds[0], address, LIMIT_ADDRESS_BYTES) == LIMIT_ADDRESS_BYTES);
    close(fds[0]);
    return pid;
}

static void reader_kill(pid_t pid)
{
    kill(pid, SIGKILL);
    CHECK(waitpid(pid, NULL, 0) == pid);
}

/* ---- the writing side ---- */

static uint64_t answer;
static uint64_t cookie; /* Cookie of the last flush on this connection. */

static void writer_message(struct net_side *side, struct transport_peer *peer, const uint8_t *data,
                           size_t bytes)
{
    (void)side;
    (void)peer;
    CHECK(bytes == sizeof(answer));
    memcpy(&answer, data, sizeof(answer));
}

/* The runs that each flush of the round covers. The question is sent when the flush is reported. */
static struct question questions[RUNS_MAX + 1];
static uint64_t first_cookie; /* Cookie of questions[0]. */
static bool asking;

static void flush_now(struct net_side *side, uint64_t round, uint32_t runs, bool last)
{
    transport_flush(side->transport, side->peer, ++cookie);
    questions[cookie - first_cookie] = (struct question){round, runs, last};
}

static void writer_flushed(struct net_side *side, uint64_t flushed)
{
    if (asking)
        CHECK(transport_send(side->transport, side->peer, &questions[flushed - first_cookie],
                             sizeof(struct question)) == ST_OK);
}

static void writer_connect(struct net_side *side, const char *address)
{
    struct transport_peer *peer;
    struct error error;
    answer = 0;
    cookie = side->flushed_cookie = 0;
    CHECK(transport_connect(side->transport, address, NULL, &peer, &error) == ST_OK);
    NET_WAIT(side, 1, side->peer == peer && answer == 2);
    const char *expect = getenv("EXPECT_PATH");
    CHECKF(expect == NULL || strcmp(transport_peer_path(peer), expect) == 0, "path is %s",
           transport_peer_path(peer));
}

static void write_round(struct net_side *side, uint64_t round)
{
    static struct run runs[RUNS_MAX];
    uint32_t count = round_runs(round, runs);
    uint8_t *region = transport_region(side->transport);
    first_cookie = cookie + 1;
    for (uint32_t i = 0; i < count && side->peer != NULL; i++) {
        enum status status = transport_write(side->transport, side->peer, region + runs[i].source,
                                             runs[i].bytes, runs[i].target);
        CHECK(status == ST_OK || status == ST_UNREACHABLE);
        if (random_at(round, i) % 8 == 0 && i + 1 < count)
            flush_now(side, round, i + 1, false);
        if (random_at(round, i) % 32 == 0)
            transport_progress(side->transport);
    }
    if (side->peer != NULL)
        flush_now(side, round, count, true);
}

static void verify(struct net_side *side, uint64_t rounds)
{
    for (uint64_t round = 0; round < rounds; round++) {
        answer = 3;
        asking = true;
        write_round(side, round);
        NET_WAIT(side, 1, side->flushed_cookie == cookie && answer != 3);
        CHECKF(answer == 1, "round %d: the other side has other bytes", (int)round);
        asking = false;
    }
}

/* Starts a transfer that takes long enough to be hit (killed or stopped) in its middle. */
static int64_t hit_in_transfer(struct net_side *side, pid_t pid, int hit)
{
    for (uint64_t round = 0; round < 12; round++) {
        write_round(side, round);
        if (round == 2)
            NET_WAIT(side, 1, side->flushed_cookie > 0);
        if (round == 3)
            kill(pid, hit);
        if (round >= 3)
            net_turn(side, 1, 0);
        if (side->peer == NULL)
            break;
    }
    return net_now_ms();
}

static void writer_open(struct net_side *side)
{
    struct transport_options options = options_of("p0");
    options.heartbeat_ms = 100;
    options.silence_ms = 1200;
    net_open(side, options);
    side->on_message = writer_message;
    side->on_flushed = writer_flushed;
    uint8_t *region = region_of(side);
    for (uint64_t i = 0; i < REGION; i++)
        region[i] = source_byte(i);
}

/* Like a container without System V segments and with a /dev/shm that is too small. */
static void without_shared_memory(void)
{
    if (!namespaces_enter(CLONE_NEWIPC | CLONE_NEWNS) ||
        !namespaces_mount("tmpfs", "/dev/shm", 0, "size=256k"))
        test_skip("cannot make an IPC namespace with a /dev/shm of its own");
    if (!namespaces_proc_write("/proc/sys/kernel/shmmni", "0"))
        test_skip("cannot set shmmni of an IPC namespace");
}

/* LeakSanitizer calls this. Where a segment cannot be made, UCX 1.13's worker leaks an interface
 * that it then does not use. UCX's libraries have no frame pointers, so the suppression can only
 * name the allocator. */
const char *__lsan_default_suppressions(void);

const char *__lsan_default_suppressions(void)
{
    return getenv("WITHOUT_SHM") != NULL ? "leak:ucs_calloc" : "";
}

int main(int argc, char **argv)
{
    seed = test_seed();
    if (argc == 2 && getenv("WITHOUT_SHM") != NULL)
        without_shared_memory();
    tls = argc > 1 && argv[1][0] != 0 ? argv[1] : NULL;
    if (argc > 2)
        reader(3);
    char address[LIMIT_ADDRESS_BYTES];
    pid_t pid = reader_start(address);
    struct net_side side;
    device_open('w');
    writer_open(&side);
    writer_connect(&side, address);
    printf("path: %s\n", transport_peer_path(side.peer));
    verify(&side, 25);

    /* Connects to the same peer many times, and each time disconnects during a transfer. */
    const char *reconnects = getenv("RECONNECTS");
    for (int i = 0; i < (reconnects != NULL ? atoi(reconnects) : 12); i++) {
        transport_disconnect(side.transport, side.peer);
        side.peer = NULL;
        writer_connect(&side, address);
        if (i % 3 == 0)
            verify(&side, 2);
        else
            write_round(&side, (uint64_t)i);
        if (i % 3 == 1)
            transport_progress(side.transport);
    }

    /* The peer is killed during a transfer, repeatedly. */
    CHECK(side.down_count == 0);
    for (int i = 1; i <= 3; i++) {
        int64_t killed_ms = hit_in_transfer(&side, pid, SIGKILL);
        NET_WAIT(&side, 1, side.down_count == i);
        CHECKF(side.why == ST_UNREACHABLE, "%s", side.text);
        int took_ms = (int)(net_now_ms() - killed_ms);
        printf("killed: down after %d ms: %s\n", took_ms, side.text);
        CHECK(took_ms < 10000);
        waitpid(pid, NULL, 0);
        pid = reader_start(address);
        writer_connect(&side, address);
        verify(&side, 2);
    }

    /* The peer is stopped during a transfer: it becomes silent. */
    side.failed_flush_count = 0;
    int64_t stopped_ms = hit_in_transfer(&side, pid, SIGSTOP);
    NET_WAIT(&side, 1, side.down_count == 4);
    CHECKF(side.why == ST_TIMED_OUT, "%s", side.text);
    int took_ms = (int)(net_now_ms() - stopped_ms);
    printf("stopped: down after %d ms: %s, %d flushes failed\n", took_ms, side.text,
           side.failed_flush_count);
    CHECK(took_ms < 10000);
    kill(pid, SIGCONT);
    writer_connect(&side, address);
    verify(&side, 3);

    /* The transport is closed during transfers. The other side survives. */
    write_round(&side, 1);
    transport_close(side.transport);
    writer_open(&side);
    writer_connect(&side, address);
    verify(&side, 1);
    transport_close(side.transport);
    if (device != NULL)
        fake_memory_close(device); /* All its memory has been freed. */
    CHECK(waitpid(pid, NULL, WNOHANG) == 0);
    reader_kill(pid);
    return 0;
}
