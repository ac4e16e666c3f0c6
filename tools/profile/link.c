/* profile_link: see the header. This process writes; the other end is a child, or a process on
 * another host, that only makes progress. Both sleep while nothing happens, as machines do. With a
 * GPU, both regions are in its memory, so the path of KV out of and into a GPU is measured. */
#include "tools/profile/link.h"

#include "common/clock.h"
#include "common/parent.h"
#include "compute/compute.h"
#include "config/config.h"
#include "transport/transport.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define REGION_BYTES       ((uint64_t)64 << 20)
#define REGION_BYTES_QUICK ((uint64_t)8 << 20)
#define IN_FLIGHT_BYTES    ((uint64_t)32 << 20)
#define STREAM_BYTES       ((uint64_t)1 << 20) /* Size of one write of the bandwidth measurement. */
#define LOCAL              "127.0.0.1:0"
#define WAIT_US            10000000ll /* Only a broken link takes this long. */
#define SAMPLES_MAX        1000

/* From one token's activations to many blocks of KV. The first size gives the latency. */
static const uint32_t sizes[] = {64, 4096, 16384, 65536, 262144, 1048576, 4194304};
#define SIZE_COUNT (sizeof(sizes) / sizeof(sizes[0]))

/* UCX_TLS inside a host: shared memory, and data connections over TCP. */
static const char *const kinds[] = {NULL, "none"};
#define KIND_COUNT (sizeof(kinds) / sizeof(kinds[0]))

struct side {
    struct transport *t;
    const struct compute_ops *ops;
    struct compute *compute; /* A GPU; NULL = the region is in the host's memory. */
    struct transport_peer *peer;
    uint64_t flushed; /* Last cookie that was flushed. */
    enum status failed;
    char text[256];
};

/* First message of a child. */
struct greeting {
    bool good;
    char text[256]; /* The address it listens on, or the error. */
};

struct child {
    pid_t pid;
    int out;
};

static void on_up(void *self, struct transport_peer *peer)
{
    ((struct side *)self)->peer = peer;
}

static void on_down(void *self, struct transport_peer *peer, enum status why, const char *text)
{
    struct side *side = self;
    (void)peer;
    side->peer = NULL;
    side->failed = why;
    snprintf(side->text, sizeof(side->text), "%s", text);
}

static void on_message(void *self, struct transport_peer *peer, const uint8_t *data, size_t bytes)
{
    (void)self, (void)peer, (void)data, (void)bytes;
}

static void on_flushed(void *self, struct transport_peer *peer, uint64_t cookie, enum status status)
{
    struct side *side = self;
    (void)peer;
    side->flushed = cookie;
    if (status != ST_OK)
        side->failed = status;
}

static void side_close(struct side *side)
{
    transport_close(side->t);
    if (side->compute != NULL)
        side->ops->close(side->compute);
    side->t = NULL;
    side->compute = NULL;
}

static enum status side_device(struct side *side, const char *device,
                               const struct device_memory **out, struct error *error)
{
    struct compute_options options = {.threads = 1};
    *out = NULL;
    if (device == NULL)
        return ST_OK;
    enum status status = compute_device_find(device, &side->ops, &options, error);
    if (status == ST_OK)
        status = side->ops->open(&options, &side->compute, error);
    if (status != ST_OK)
        error_prefix(error, "device %s", device);
    if (status == ST_OK)
        *out = side->ops->device_memory(side->compute);
    return status;
}

/* Opens one end. `address` is where it will listen or connect; a loopback address keeps UCX off the
 * network. The values that the handshake compares are equal on both sides. */
static enum status side_open(struct side *side, const struct profile_link_options *options,
                             const char *tls, const char *address, struct error *error)
{
    const uint64_t region_bytes = options->quick ? REGION_BYTES_QUICK : REGION_BYTES;
    const uint64_t block_bytes = 4096;
    const struct device_memory *device;
    *side = (struct side){0};
    enum status status = side_device(side, options->device, &device, error);
    if (status != ST_OK)
        return status;
    struct transport_options transport = {
        .identity = {.role = TRANSPORT_MACHINE,
                     .metadata_hash = 1,
                     .model_hash = {{1}},
                     .layer_count = 1,
                     .block_tokens = 1,
                     .block_bytes = block_bytes},
        .events = {on_up, on_down, on_message, on_flushed, NULL},
        .self = side,
        .region_bytes = region_bytes,
        .device = device,
        .block_count = (uint32_t)(region_bytes / block_bytes),
        .layer_stride_bytes = region_bytes,
        .ucx_tls = tls,
        .one_host = config_address_is_loopback(address),
        .keys = options->keys,
    };
    snprintf(transport.identity.name, sizeof(transport.identity.name), "%.*s", LIMIT_NAME_BYTES - 1,
             options->host);
    status = transport_open(&transport_ucx, &transport, &side->t, error);
    if (status != ST_OK)
        side_close(side);
    return status;
}

static void side_progress(struct side *side, int wait_ms)
{
    struct pollfd fd = {.fd = transport_fd(side->t), .events = POLLIN};
    if (poll(&fd, 1, wait_ms) > 0)
        transport_progress(side->t);
}

static _Noreturn void child_run(const struct profile_link_options *options, const char *tls,
                                int out)
{
    struct side side;
    struct error error = {""};
    struct greeting greeting = {0};
    enum status status = side_open(&side, options, tls, LOCAL, &error);
    if (status == ST_OK)
        status = transport_listen(side.t, LOCAL, greeting.text, &error);
    greeting.good = status == ST_OK;
    if (!greeting.good)
        snprintf(greeting.text, sizeof(greeting.text), "%.255s", error.text);
    if (write(out, &greeting, sizeof(greeting)) != sizeof(greeting) || !greeting.good)
        _exit(1);
    while (side.failed == ST_OK)
        side_progress(&side, 1000);
    _exit(0);
}

static bool child_start(const struct profile_link_options *options, const char *tls,
                        struct child *out)
{
    int ends[2];
    if (pipe(ends) != 0)
        return false;
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid == 0) {
        parent_end_signal_set(SIGKILL, parent);
        close(ends[0]);
        child_run(options, tls, ends[1]);
    }
    close(ends[1]);
    *out = (struct child){.pid = pid, .out = ends[0]};
    if (pid > 0)
        return true;
    close(ends[0]);
    return false;
}

static void child_end(struct child *child)
{
    if (child->pid <= 0)
        return;
    kill(child->pid, SIGKILL);
    while (waitpid(child->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    close(child->out);
}

/* Waits until everything up to `cookie` has arrived. */
static enum status wait_flushed(struct side *side, uint64_t cookie)
{
    int64_t end_us = clock_now_us(&clock_system) + WAIT_US;
    transport_progress(side->t);
    while (side->flushed < cookie && side->failed == ST_OK) {
        if (clock_now_us(&clock_system) > end_us)
            return ST_TIMED_OUT;
        side_progress(side, 100);
    }
    return side->failed;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Measures the median time of one write, from the call until it is known to have arrived. */
static enum status measure_one(struct side *side, uint32_t bytes, double seconds, double *us_out)
{
    double samples[SAMPLES_MAX];
    uint32_t count = 0;
    int64_t end_us = clock_now_us(&clock_system) + (int64_t)(seconds * 1e6);
    do {
        uint64_t cookie = side->flushed + 1;
        int64_t begin_us = clock_now_us(&clock_system);
        enum status status =
            transport_write(side->t, side->peer, transport_region(side->t), bytes, 0);
        transport_flush(side->t, side->peer, cookie);
        if (status == ST_OK)
            status = wait_flushed(side, cookie);
        if (status != ST_OK)
            return status;
        samples[count++] = (double)(clock_now_us(&clock_system) - begin_us);
    } while (count < SAMPLES_MAX && (count < 5 || clock_now_us(&clock_system) < end_us));
    qsort(samples, count, sizeof(*samples), compare);
    *us_out = samples[count / 2];
    return ST_OK;
}

/* Measures the bandwidth with a stream of large writes. */
static enum status measure_stream(struct side *side, uint64_t region_bytes, double seconds,
                                  double *bytes_per_s_out)
{
    uint8_t *region = transport_region(side->t);
    uint64_t cookie = side->flushed, first = cookie, offset = 0;
    int64_t begin_us = clock_now_us(&clock_system);
    int64_t end_us = begin_us + (int64_t)(seconds * 1e6);
    while (clock_now_us(&clock_system) < end_us && side->failed == ST_OK) {
        while ((cookie - side->flushed) * STREAM_BYTES < IN_FLIGHT_BYTES) {
            offset = offset + STREAM_BYTES > region_bytes ? 0 : offset;
            enum status status =
                transport_write(side->t, side->peer, region + offset, STREAM_BYTES, offset);
            if (status != ST_OK)
                return status;
            transport_flush(side->t, side->peer, ++cookie);
            offset += STREAM_BYTES;
        }
        side_progress(side, 100);
    }
    enum status status = wait_flushed(side, cookie);
    double took_s = (double)(clock_now_us(&clock_system) - begin_us) * 1e-6;
    *bytes_per_s_out = (double)((cookie - first) * STREAM_BYTES) / took_s;
    return status;
}

static enum status connect_to(struct side *side, const char *address, struct error *error)
{
    struct transport_peer *peer;
    int64_t end_us = clock_now_us(&clock_system) + WAIT_US;
    enum status status = transport_connect(side->t, address, NULL, &peer, error);
    if (status < 0)
        return status;
    while (side->peer == NULL && side->failed == ST_OK && clock_now_us(&clock_system) < end_us)
        side_progress(side, 100);
    if (side->peer != NULL)
        return ST_OK;
    return error_set(error, side->failed != ST_OK ? side->failed : ST_TIMED_OUT, "%s",
                     side->failed != ST_OK ? side->text : "no connection");
}

/* Measures one quantity after the other. The first stream only touches the pages. */
static enum status measure_all(struct side *side, uint64_t region_bytes, double seconds,
                               struct profile_link *out)
{
    const double each = seconds / (SIZE_COUNT + 3);
    enum status status = measure_stream(side, region_bytes, each, &out->bandwidth_bytes_per_s);
    if (status == ST_OK)
        status = measure_stream(side, region_bytes, 2 * each, &out->bandwidth_bytes_per_s);
    for (size_t i = 0; i < SIZE_COUNT && status == ST_OK; i++) {
        out->sizes_bytes[i] = sizes[i];
        status = measure_one(side, sizes[i], each, &out->sizes_us[i]);
    }
    out->size_count = SIZE_COUNT;
    out->latency_us = out->sizes_us[0];
    return status;
}

/* Returns the smaller size of both regions. */
static uint64_t region_of(const struct side *side, const struct profile_link_options *options)
{
    uint64_t ours = options->quick ? REGION_BYTES_QUICK : REGION_BYTES;
    uint64_t theirs = transport_peer_region(side->peer)->bytes;
    return ours < theirs ? ours : theirs;
}

static enum status measure_to(const char *address, const struct profile_link_options *options,
                              const char *tls, double seconds, struct profile_link *out,
                              struct error *error)
{
    struct side side;
    enum status status = side_open(&side, options, tls, address, error);
    if (status != ST_OK)
        return status;
    status = connect_to(&side, address, error);
    if (status == ST_OK) {
        const uint64_t region_bytes = region_of(&side, options);
        struct transport_memory memory;
        transport_memory(side.t, &memory);
        if (side.compute == NULL)
            memset(transport_region(side.t), 1, region_bytes);
        snprintf(out->path, sizeof(out->path), "%s%s", transport_peer_path(side.peer),
                 memory.way == TRANSPORT_WAY_STAGED ? ", staged" : "");
        snprintf(out->transport, sizeof(out->transport), "%s",
                 strstr(out->path, "over t") != NULL ? "tcp"
                                                     : "other"); /* "over tls", "over tcp" */
        snprintf(out->from, sizeof(out->from), "%s", options->host);
        snprintf(out->to, sizeof(out->to), "%s", transport_peer_identity(side.peer)->name);
        status = region_bytes < REGION_BYTES_QUICK
                     ? error_set(error, ST_MISMATCH, "%s is not a `cleave profile`", address)
                     : measure_all(&side, region_bytes, seconds, out);
        if (status != ST_OK && error->text[0] == 0)
            error_set(error, status, "writes over %s: %s %s", out->path, status_name(status),
                      side.text);
    }
    side_close(&side);
    return status;
}

static enum status measure_child(const struct child *child, const char *tls,
                                 const struct profile_link_options *options,
                                 struct profile_link *out, struct error *error)
{
    struct greeting greeting;
    if (read(child->out, &greeting, sizeof(greeting)) != sizeof(greeting))
        return error_set(error, ST_UNREACHABLE, "the other process has ended");
    if (!greeting.good)
        return error_set(error, ST_IO, "%s", greeting.text);
    enum status status =
        measure_to(greeting.text, options, tls, options->seconds / KIND_COUNT, out, error);
    if (status == ST_OK && strcmp(out->transport, "tcp") != 0)
        snprintf(out->transport, sizeof(out->transport), "shm");
    /* The full name, not the one that the handshake cuts. */
    snprintf(out->to, sizeof(out->to), "%s", options->host);
    return status;
}

enum status profile_links_measure(struct profile *p, const struct profile_link_options *options,
                                  struct error *error)
{
    struct child children[KIND_COUNT] = {{0}};
    enum status status = ST_OK;
    /* Fork all children before this process opens UCX, which does not support forking. */
    for (size_t i = 0; i < KIND_COUNT; i++)
        if (!child_start(options, kinds[i], &children[i]))
            status = error_set(error, ST_NO_RESOURCE, "no process: %s", strerror(errno));
    for (size_t i = 0; i < KIND_COUNT && status == ST_OK; i++) {
        struct profile_link *link = &p->links[p->link_count];
        options->progress(options->self, i == 0 ? "writes as machines choose" : "writes over TCP",
                          (double)i / KIND_COUNT, options->seconds);
        if (p->link_count == PROFILE_LINKS_MAX)
            status = error_set(error, ST_TOO_LARGE, "more than %d", PROFILE_LINKS_MAX);
        else
            status = measure_child(&children[i], kinds[i], options, link, error);
        if (status != ST_OK)
            break;
        bool twice = i > 0 && strcmp(link->transport, link[-1].transport) == 0;
        if (!twice)
            p->link_count++;
    }
    for (size_t i = 0; i < KIND_COUNT; i++)
        child_end(&children[i]);
    if (status != ST_OK)
        error_prefix(error, "links");
    return status;
}

enum status profile_link_measure(struct profile *p, const struct profile_link_options *options,
                                 const char *address, struct error *error)
{
    options->progress(options->self, address, 0, options->seconds);
    if (p->link_count == PROFILE_LINKS_MAX)
        return error_set(error, ST_TOO_LARGE, "more than %d links", PROFILE_LINKS_MAX);
    enum status status = measure_to(address, options, options->ucx_tls, options->seconds,
                                    &p->links[p->link_count], error);
    if (status != ST_OK) {
        error_prefix(error, "link to %s", address);
        return status;
    }
    p->link_count++;
    return ST_OK;
}

enum status profile_link_serve(const struct profile_link_options *options, const char *address,
                               FILE *out, struct error *error)
{
    char bound[LIMIT_ADDRESS_BYTES];
    struct side side;
    enum status status = side_open(&side, options, options->ucx_tls, address, error);
    if (status != ST_OK)
        return status;
    status = transport_listen(side.t, address, bound, error);
    if (status == ST_OK)
        fprintf(out, "links of %s end at %s\n", options->host, bound);
    fflush(out);
    while (status == ST_OK) /* Until the process is killed. */
        side_progress(&side, 1000);
    side_close(&side);
    return status;
}
