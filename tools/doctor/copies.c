/* doctor_copies: KV from one GPU to another, or to another process on the same GPU. Two processes
 * open the devices and a transport each, as machines do. One writes to the other, which compares
 * the bytes. */
#include "common/clock.h"
#include "common/parent.h"
#include "common/random.h"
#include "compute/compute.h"
#include "tools/doctor/probe.h"
#include "tools/doctor/report.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define REGION_BYTES ((uint64_t)32 << 20)
#define LAYER_BYTES  ((uint64_t)8 << 20) /* A layer's KV of 2048 tokens of an 8B model in f16. */
#define BLOCK_BYTES  ((uint64_t)64 << 10)
#define ROUNDS       20
#define SILENCE_MS   3600000 /* While a process fills or compares the region, it is silent. */
#define ROUNDS_US    1000000 /* No round starts after this time, except the first. */

struct pair {
    uint32_t from, to;
};

struct end {
    const struct compute_ops *ops;
    struct compute *compute;
    const struct device_memory *memory;
    struct transport *t;
    struct transport_peer *peer;
    uint64_t *host; /* Pinned memory of the region's size. */
    uint64_t flushed;
    enum status failed;
    char text[160];
    char answer; /* 'y' = the reader has received the right bytes, 'n' = other bytes. */
};

static void on_up(void *self, struct transport_peer *peer)
{
    ((struct end *)self)->peer = peer;
}

static void on_down(void *self, struct transport_peer *peer, enum status why, const char *text)
{
    struct end *end = self;
    (void)peer;
    end->peer = NULL;
    end->failed = why;
    snprintf(end->text, sizeof(end->text), "%.150s", text);
}

static void on_flushed(void *self, struct transport_peer *peer, uint64_t cookie, enum status status)
{
    struct end *end = self;
    (void)peer;
    end->flushed = cookie;
    if (status != ST_OK)
        end->failed = status;
}

/* Copies the region to or from the host's memory. False: the device failed. */
static bool copy(struct end *end, enum device_direction direction)
{
    const struct device_memory_ops *ops = end->memory->ops;
    struct error error;
    uint64_t done = 0;
    uint64_t number =
        ops->copy(end->memory->self, direction, transport_region(end->t), end->host, REGION_BYTES);
    while (number > 0 && done < number) {
        if (ops->poll(end->memory->self, direction, &done, &error) != ST_OK)
            return false;
        usleep(20);
    }
    return number > 0;
}

static uint64_t pattern(uint64_t i)
{
    return random_at(7, i);
}

/* Handles the question and the answer whether the bytes are right. */
static void on_message(void *self, struct transport_peer *peer, const uint8_t *data, size_t bytes)
{
    struct end *end = self;
    char answer = 'y';
    if (bytes == 1 && data[0] != '?') {
        end->answer = (char)data[0];
        return;
    }
    if (!copy(end, DEVICE_TO_HOST))
        answer = 'n';
    for (uint64_t i = 0; i < REGION_BYTES / 8 && answer == 'y'; i++)
        answer = end->host[i] == pattern(i) ? 'y' : 'n';
    (void)transport_send(end->t, peer, &answer, 1);
}

/* Opens a device and a transport. They are not closed, because the process ends. */
static enum status end_open(struct end *end, uint32_t number, const uint8_t *key, const char *name,
                            struct error *error)
{
    struct compute_options device_options = {.threads = 1};
    char device[16];
    void *host;
    *end = (struct end){0};
    snprintf(device, sizeof(device), "cuda:%u", number);
    enum status status = compute_device_find(device, &end->ops, &device_options, error);
    if (status == ST_OK)
        status = end->ops->open(&device_options, &end->compute, error);
    if (status != ST_OK)
        return status;
    end->memory = end->ops->device_memory(end->compute);
    if (end->memory == NULL)
        return error_set(error, ST_UNSUPPORTED, "%s has no memory of its own", device);
    status = end->memory->ops->host_allocate(end->memory->self, REGION_BYTES, &host, error);
    if (status != ST_OK)
        return status;
    struct secret_keys keys;
    secret_keys_set(&keys, key);
    end->host = host;
    struct transport_options options = {
        .identity = {.role = TRANSPORT_MACHINE, .kv_dtype = "f16"},
        .events = {on_up, on_down, on_message, on_flushed, NULL},
        .self = end,
        .region_bytes = REGION_BYTES,
        .block_count = 1,
        .layer_stride_bytes = REGION_BYTES,
        .silence_ms = SILENCE_MS,
        .device = end->memory,
        .one_host = true,
        .keys = &keys,
    };
    snprintf(options.identity.name, sizeof(options.identity.name), "%s", name);
    return transport_open(&transport_ucx, &options, &end->t, error);
}

static void end_progress(struct end *end)
{
    struct pollfd fd = {.fd = transport_fd(end->t), .events = POLLIN};
    if (poll(&fd, 1, 100) > 0)
        transport_progress(end->t);
}

static _Noreturn void reader_run(uint32_t number, const uint8_t *key, int out)
{
    struct end end;
    struct error error;
    char bound[LIMIT_ADDRESS_BYTES] = "";
    if (end_open(&end, number, key, "reader", &error) != ST_OK ||
        transport_listen(end.t, "127.0.0.1:0", bound, &error) != ST_OK ||
        write(out, bound, sizeof(bound)) != sizeof(bound))
        _exit(1);
    while (end.failed == ST_OK)
        end_progress(&end);
    _exit(0);
}

/* Writes a layer in scattered blocks, or the whole region at once. Returns the microseconds until
 * it is known to have arrived. */
static double write_once(struct end *end, bool blocks)
{
    const uint8_t *region = transport_region(end->t);
    const uint64_t count = LAYER_BYTES / BLOCK_BYTES;
    uint64_t cookie = end->flushed + 1;
    int64_t begin_us = clock_now_us(&clock_system);
    for (uint64_t i = 0; i < (blocks ? count : 1) && end->peer != NULL; i++) {
        uint64_t at = blocks ? 2 * (i * 77 % count) * BLOCK_BYTES : 0;
        (void)transport_write(end->t, end->peer, region + at, blocks ? BLOCK_BYTES : REGION_BYTES,
                              at);
    }
    if (end->peer != NULL)
        transport_flush(end->t, end->peer, cookie);
    transport_progress(end->t);
    while (end->flushed < cookie && end->failed == ST_OK)
        end_progress(end);
    return (double)(clock_now_us(&clock_system) - begin_us);
}

static enum status write_all(struct end *end, struct doctor_copy *out, struct error *error)
{
    double region_us = 1e12;
    for (uint64_t i = 0; i < REGION_BYTES / 8; i++)
        end->host[i] = pattern(i);
    if (!copy(end, HOST_TO_DEVICE))
        return error_set(error, ST_IO, "the device cannot copy");
    out->layer_write_us = 1e12;
    int64_t end_us = clock_now_us(&clock_system) + ROUNDS_US;
    for (int i = 0; i < ROUNDS && end->failed == ST_OK; i++) {
        if (i > 0 && clock_now_us(&clock_system) >= end_us)
            /* This computer is busy. The time limit of the check is for devices that hang. */
            break;
        double us = write_once(end, false);
        region_us = us < region_us ? us : region_us;
        us = write_once(end, true);
        out->layer_write_us = us < out->layer_write_us ? us : out->layer_write_us;
    }
    if (end->peer != NULL)
        (void)transport_send(end->t, end->peer, "?", 1);
    while (end->answer == 0 && end->failed == ST_OK)
        end_progress(end);
    if (end->failed != ST_OK)
        return error_set(error, end->failed, "%s", end->text);
    if (end->answer != 'y')
        return error_set(error, ST_IO, "wrong bytes arrived by %s", out->path);
    out->bandwidth_bytes_per_s = (double)REGION_BYTES / region_us * 1e6;
    out->layer_bytes = LAYER_BYTES;
    return ST_OK;
}

static enum status pair_check(const void *context, void *result, struct error *error)
{
    const struct pair *pair = context;
    struct doctor_copy *out = result;
    struct end end;
    struct transport_peer *peer;
    uint8_t key[SECRET_HASH_BYTES];
    char address[LIMIT_ADDRESS_BYTES];
    int ends[2];
    if (getrandom(key, sizeof(key), 0) != sizeof(key) || pipe(ends) != 0)
        return error_set(error, ST_IO, "no pipe");
    pid_t parent = getpid();
    pid_t pid = fork(); /* Fork before a device is open. */
    if (pid == 0) {
        parent_end_signal_set(SIGKILL, parent);
        reader_run(pair->to, key, ends[1]);
    }
    close(ends[1]);
    enum status status = end_open(&end, pair->from, key, "writer", error);
    if (status != ST_OK)
        return status;
    if (read(ends[0], address, sizeof(address)) != sizeof(address))
        return error_set(error, ST_IO, "the other process did not connect");
    status = transport_connect(end.t, address, NULL, &peer, error);
    while (status == ST_OK && end.peer == NULL && end.failed == ST_OK)
        end_progress(&end);
    if (status == ST_OK && end.peer == NULL)
        status = error_set(error, end.failed, "%s", end.text);
    if (status != ST_OK)
        return status;
    snprintf(out->path, sizeof(out->path), "%.63s", transport_peer_path(end.peer));
    snprintf(out->note, sizeof(out->note), "%.159s", transport_peer_note(end.peer));
    return write_all(&end, out, error);
}

/* Measures from the first GPU to another process on it, and to each other GPU. */
void doctor_copies_check(struct doctor_report *report, int timeout_ms)
{
    for (uint32_t i = 0; i < report->gpus.count && i < DOCTOR_COPIES_MAX; i++) {
        const struct pair pair = {.from = 0, .to = i};
        struct doctor_copy copied = {.path = ""};
        struct error error = {""};
        if (probe_run(pair_check, &pair, timeout_ms, &copied, sizeof(copied), &error) != ST_OK)
            snprintf(copied.failure, sizeof(copied.failure), "%.159s", error.text);
        snprintf(copied.from, sizeof(copied.from), "%s", report->gpus.gpus[0].device);
        snprintf(copied.to, sizeof(copied.to), "%s", report->gpus.gpus[i].device);
        report->copies[report->copy_count++] = copied;
    }
}
