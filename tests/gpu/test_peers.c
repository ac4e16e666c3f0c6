/* Goal: a process copies into the device memory of another one (struct device_memory_ops):
 * scattered runs arrive whole, on one device and between two; a handle that is garbage, the
 * process's own or of a wrong size is refused, and the device continues to work. It also continues
 * when the other process is killed during copies, and that process's memory is not reused until it
 * is closed.
 *
 * Method: a child has the memory and compares it; the device is the argument, "cuda:0", or two,
 * "cuda:0,cuda:1", the writer's first. On a device it also says what copies take. */
#include "compute/compute.h"
#include "tests/check.h"

#include "common/clock.h"
#include "common/random.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define BLOCK  ((uint64_t)64 << 10) /* of 16 tokens of an 8B model, one layer, f16 */
#define BLOCKS 320                  /* More blocks than one copy takes, and not a power of two. */
#define REGION (BLOCKS * BLOCK)

struct side {
    const struct compute_ops *ops;
    struct compute *compute;
    const struct device_memory *memory;
    uint8_t *region; /* Device memory. */
    uint8_t *host;   /* Pinned host memory. */
};

struct told {
    struct device_handle handle;
    uint64_t bytes;
};

static void side_open(struct side *side, const char *device)
{
    struct compute_options options = {.threads = 1};
    struct error error = {""};
    void *region, *host;
    CHECKF(compute_device_find(device, &side->ops, &options, &error) == ST_OK &&
               side->ops->open(&options, &side->compute, &error) == ST_OK,
           "%s", error.text);
    side->memory = side->ops->device_memory(side->compute);
    const struct device_memory_ops *ops = side->memory->ops;
    CHECKF(ops->allocate(side->memory->self, REGION, &region, &error) == ST_OK, "%s", error.text);
    CHECKF(ops->host_allocate(side->memory->self, REGION, &host, &error) == ST_OK, "%s",
           error.text);
    side->region = region;
    side->host = host;
}

static void side_close(struct side *side)
{
    side->memory->ops->free(side->memory->self, side->region);
    side->memory->ops->host_free(side->memory->self, side->host);
    side->ops->close(side->compute);
}

/* Polls as the event loop does. */
static void wait_copy(const struct device_memory *memory, enum device_direction direction,
                      uint64_t number)
{
    struct pollfd readable = {.fd = memory->ops->event_fd(memory->self), .events = POLLIN};
    struct error error = {""};
    uint64_t done = 0, news;
    CHECK(number > 0);
    memory->ops->signal_when_done(memory->self, direction);
    CHECK(poll(&readable, 1, 300000) == 1);
    CHECK(read(readable.fd, &news, sizeof(news)) == sizeof(news));
    CHECKF(memory->ops->poll(memory->self, direction, &done, &error) == ST_OK, "%s", error.text);
    CHECK(done >= number);
}

static void copy(struct side *side, enum device_direction direction)
{
    wait_copy(
        side->memory, direction,
        side->memory->ops->copy(side->memory->self, direction, side->region, side->host, REGION));
}

static uint64_t pattern(uint64_t round, uint64_t offset)
{
    return random_mix(round << 48 ^ offset);
}

/* Returns the target block of the writer's block. */
static uint64_t target_of(uint64_t block)
{
    return block * 77 % BLOCKS;
}

/* ---- who has the memory ---- */

static _Noreturn void reader(const char *device, int in, int out)
{
    struct side side;
    struct told told = {.bytes = REGION};
    struct error error = {""};
    char what;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    side_open(&side, device);
    const struct device_memory_ops *ops = side.memory->ops;
    CHECKF(ops->share(side.memory->self, side.region, REGION, &told.handle, &error) == ST_OK, "%s",
           error.text);
    CHECK(told.handle.bytes <= DEVICE_HANDLE_BYTES_MAX);
    CHECK(ops->share(side.memory->self, side.region + 1, 1, &told.handle, &error) == ST_INVALID);
    CHECK(write(out, &told, sizeof(told)) == sizeof(told));
    while (read(in, &what, 1) == 1 && what != 0) { /* The writer has written a round. */
        char answer = 'y';
        copy(&side, DEVICE_TO_HOST);
        for (uint64_t block = 0; block < BLOCKS; block++)
            for (uint64_t at = 0; at < BLOCK; at += 8) {
                uint64_t got;
                memcpy(&got, side.host + target_of(block) * BLOCK + at, 8);
                if (got != pattern((uint64_t)what, block * BLOCK + at))
                    answer = 'n';
            }
        CHECK(write(out, &answer, 1) == 1);
    }
    side_close(&side);
    exit(0);
}

struct child {
    pid_t pid;
    int to, from;
};

static struct child child_start(const char *device)
{
    int to[2], from[2];
    CHECK(pipe(to) == 0 && pipe(from) == 0);
    fflush(stdout);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        close(to[1]);
        close(from[0]);
        reader(device, to[0], from[1]);
    }
    close(to[0]);
    close(from[1]);
    return (struct child){pid, to[1], from[0]};
}

static void child_end(struct child *child, bool by_force)
{
    int status;
    if (by_force)
        kill(child->pid, SIGKILL);
    else
        CHECK(write(child->to, "", 1) == 1);
    CHECK(waitpid(child->pid, &status, 0) == child->pid);
    CHECK(by_force || (WIFEXITED(status) && WEXITSTATUS(status) == 0));
    close(child->to);
    close(child->from);
}

/* ---- who writes ---- */

static uint64_t write_blocks(struct side *side, uint8_t *peer)
{
    struct device_run runs[DEVICE_RUNS_MAX];
    uint64_t number = 0;
    for (uint64_t first = 0; first < BLOCKS; first += DEVICE_RUNS_MAX) {
        uint32_t count =
            BLOCKS - first < DEVICE_RUNS_MAX ? (uint32_t)(BLOCKS - first) : DEVICE_RUNS_MAX;
        for (uint32_t i = 0; i < count; i++)
            runs[i] = (struct device_run){side->region + (first + i) * BLOCK,
                                          peer + target_of(first + i) * BLOCK, BLOCK};
        number = side->memory->ops->copy_to_peer(side->memory->self, runs, count);
        CHECK(number > 0);
    }
    return number;
}

static void fill(struct side *side, uint64_t round)
{
    for (uint64_t at = 0; at < REGION; at += 8)
        memcpy(side->host + at, &(uint64_t){pattern(round, at)}, 8);
    copy(side, HOST_TO_DEVICE);
}

static void test_refused(struct side *side, const struct told *told)
{
    const struct device_memory *memory = side->memory;
    struct device_handle own, tampered;
    struct error error = {""};
    void *peer = NULL;
    CHECK(memory->ops->share(memory->self, side->region, REGION, &own, &error) == ST_OK);
    CHECK(memory->ops->open_peer(memory->self, &own, REGION, &peer, &error) == ST_UNSUPPORTED);
    printf("one's own: %s\n", error.text);
    CHECK(memory->ops->open_peer(memory->self, &told->handle, REGION + 1, &peer, &error) ==
          ST_INVALID);
    CHECK(memory->ops->open_peer(memory->self, &told->handle, 0, &peer, &error) == ST_INVALID);
    tampered = told->handle;
    tampered.bytes--;
    CHECK(memory->ops->open_peer(memory->self, &tampered, REGION, &peer, &error) == ST_INVALID);
    tampered = told->handle;
    tampered.data[0] ^= 1;
    CHECK(memory->ops->open_peer(memory->self, &tampered, REGION, &peer, &error) == ST_INVALID);
    /* The handle's size and the expected size agree, but the memory has another size (bytes 72 to
     * 87 of the handle). */
    const uint64_t lies[][2] = {{0, REGION << 8}, {REGION << 8, REGION}, {UINT64_MAX - 5, REGION}};
    for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
        tampered = told->handle;
        memcpy(tampered.data + 72, lies[i], sizeof(lies[i]));
        CHECK(memory->ops->open_peer(memory->self, &tampered, lies[i][1], &peer, &error) ==
              ST_INVALID);
        printf("a lie: %s\n", error.text);
    }
    uint64_t seed = test_seed();
    tampered = told->handle;
    for (uint32_t i = 8; i < 72; i++)
        tampered.data[i] = (uint8_t)random_at(seed, i);
    CHECK(memory->ops->open_peer(memory->self, &tampered, REGION, &peer, &error) < 0);
    printf("garbage: %s\n", error.text);
}

static void test_written(struct side *side, struct child *child, uint8_t *peer, uint64_t round)
{
    char what = (char)round, answer = 0;
    fill(side, round);
    wait_copy(side->memory, DEVICE_TO_PEER, write_blocks(side, peer));
    CHECK(write(child->to, &what, 1) == 1 && read(child->from, &answer, 1) == 1);
    CHECKF(answer == 'y', "round %d: other bytes arrived", (int)round);
}

/* Measures a layer of 2048 tokens (128 scattered blocks of 64 KiB), and the whole region. */
static void measure(struct side *side, uint8_t *peer)
{
    struct device_run runs[128];
    double best_us = 1e12, best_all_us = 1e12;
    for (uint32_t i = 0; i < 128; i++)
        runs[i] =
            (struct device_run){side->region + i * 2 * BLOCK, peer + target_of(i) * BLOCK, BLOCK};
    for (int n = 0; n < 50; n++) {
        int64_t begin_us = clock_now_us(&clock_system);
        wait_copy(side->memory, DEVICE_TO_PEER,
                  side->memory->ops->copy_to_peer(side->memory->self, runs, 128));
        double us = (double)(clock_now_us(&clock_system) - begin_us);
        best_us = us < best_us ? us : best_us;
        const struct device_run all = {side->region, peer, REGION};
        begin_us = clock_now_us(&clock_system);
        wait_copy(side->memory, DEVICE_TO_PEER,
                  side->memory->ops->copy_to_peer(side->memory->self, &all, 1));
        us = (double)(clock_now_us(&clock_system) - begin_us);
        best_all_us = us < best_all_us ? us : best_all_us;
    }
    printf("ipc_layer_us %.0f\nipc_layer_bytes %.0f\nipc_bytes_per_s %.0f\n", best_us,
           128.0 * (double)BLOCK, (double)REGION / best_all_us * 1e6);
}

int main(int argc, char **argv)
{
    char devices[64];
    CHECK(argc > 1);
    snprintf(devices, sizeof(devices), "%s", argv[1]);
    char *second = strchr(devices, ',');
    if (second != NULL)
        *second++ = 0;
    else
        second = devices;
    struct child child = child_start(second);
    struct child victim = child_start(second);
    struct side side;
    struct told told, told_victim;
    struct error error = {""};
    void *peer, *dead;
    CHECK(read(child.from, &told, sizeof(told)) == sizeof(told));
    CHECK(read(victim.from, &told_victim, sizeof(told_victim)) == sizeof(told_victim));
    side_open(&side, devices);
    const struct device_memory *memory = side.memory;
    test_refused(&side, &told);
    CHECKF(memory->ops->open_peer(memory->self, &told.handle, told.bytes, &peer, &error) == ST_OK,
           "%s", error.text);
    CHECKF(memory->ops->open_peer(memory->self, &told_victim.handle, told.bytes, &dead, &error) ==
               ST_OK,
           "%s", error.text);
    test_written(&side, &child, peer, 1);
    test_written(&side, &child, peer, 2);
    test_written(&side, &victim, dead, 3);
    for (int i = 0; i < 20; i++)
        (void)write_blocks(&side, dead);
    child_end(&victim, true);
    wait_copy(memory, DEVICE_TO_PEER, write_blocks(&side, dead)); /* The memory's owner is dead. */
    test_written(&side, &child, peer, 4);
    memory->ops->close_peer(memory->self, dead);
    CHECK(memory->ops->open_peer(memory->self, &told_victim.handle, told.bytes, &dead, &error) < 0);
    test_written(&side, &child, peer, 5);
    if (getenv("CUDA_EMULATED_ORDER") == NULL)
        measure(&side, peer);
    memory->ops->close_peer(memory->self, NULL);
    memory->ops->close_peer(memory->self, peer);
    child_end(&child, false);
    side_close(&side);
    return 0;
}
