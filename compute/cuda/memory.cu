/* memory: what the event loop does with the device while the engine computes (struct
 * device_memory): memory for KV, and copies on separate streams, one per direction. A copy waits
 * only for the copies before it: the event loop copies data out after a mark has reported it
 * stored, and tells the engine about data that came in after it has arrived. So no copy depends on
 * a stream that records a graph.
 *
 * A mark is an event on the engine's stream. A third stream waits for the event and then runs the
 * host's function, so the engine's own stream never waits for the host. */
#include "compute/cuda/memory.cuh"

#include <cstdio>
#include <cstdlib>
#include <sys/eventfd.h>
#include <unistd.h>

#define PAGE_BYTES ((uint64_t)2 << 20)

static struct cuda_memory *memory_of(void *self)
{
    return (struct cuda_memory *)self;
}

static void wake_now(const struct cuda_memory *m)
{
    const uint64_t one = 1;
    if (m->fd >= 0 && write(m->fd, &one, sizeof(one)) < 0)
        return; /* The counter is at its maximum, so it is readable already. */
}

void cuda_memory_failed(struct compute *c)
{
    wake_now(c->memory);
}

/* ---- memory ---- */

static enum status allocation_refuse(struct compute *c, uint64_t bytes, struct error *error)
{
    size_t left = 0, all = 0;
    if (c->failed || cudaMemGetInfo(&left, &all) != cudaSuccess)
        return error_set(error, ST_IO, "%s", c->failed ? c->why.text : "the device has failed");
    return error_set(error, ST_NO_MEMORY,
                     "cuda:%d: %.1f MiB are needed; of its %.1f MiB, %.1f are free", c->device,
                     (double)bytes / 0x1p20, (double)all / 0x1p20, (double)left / 0x1p20);
}

static void *on_page(void *memory)
{
    return (void *)(((uintptr_t)memory + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES);
}

/* Rounds up to whole pages. Another process that opens an allocation can access all pages that it
 * is in, so nothing else may be in them. (On the emulator allocations end where overruns are
 * detected.) */
static uint64_t whole_pages(uint64_t bytes)
{
#ifdef CUDA_EMULATED
    return bytes;
#else
    return (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
#endif
}

/* cudaMalloc usually returns whole pages for large allocations. Otherwise one more page is
 * allocated. */
static enum status memory_allocate(void *self, uint64_t bytes, void **out, struct error *error)
{
    struct cuda_memory *m = memory_of(self);
    uint32_t slot = 0;
    while (slot < PIECES_MAX && m->pieces[slot].memory != NULL)
        slot++;
    if (slot == PIECES_MAX)
        return error_set(error, ST_NO_RESOURCE, "more than %d pieces of memory", PIECES_MAX);
    bytes = whole_pages(bytes);
    void *base = cuda_take(m->c, bytes, true);
    if (base != NULL && bytes >= PAGE_BYTES && on_page(base) != base) {
        cuda_give(m->c, base);
        base = cuda_take(m->c, bytes + PAGE_BYTES, true);
    }
    if (base == NULL)
        return allocation_refuse(m->c, bytes, error);
    m->pieces[slot].base = base;
    m->pieces[slot].bytes = bytes;
    m->pieces[slot].memory = bytes >= PAGE_BYTES ? on_page(base) : base;
    *out = m->pieces[slot].memory;
    return ST_OK;
}

static void copies_wait(struct cuda_memory *m)
{
    (void)cudaSetDevice(m->c->device);
    for (int i = 0; i < DEVICE_DIRECTIONS; i++)
        (void)cudaStreamSynchronize(m->copies[i].stream);
}

static void memory_free(void *self, void *memory)
{
    struct cuda_memory *m = memory_of(self);
    if (memory == NULL)
        return;
    copies_wait(m);
    for (uint32_t i = 0; i < PIECES_MAX; i++) {
        if (m->pieces[i].memory != memory)
            continue;
        cuda_give(m->c, m->pieces[i].base);
        m->pieces[i] = {};
    }
}

static enum status host_allocate(void *self, uint64_t bytes, void **out, struct error *error)
{
    struct cuda_memory *m = memory_of(self);
    void *memory = NULL;
    (void)cudaSetDevice(m->c->device);
    cudaError_t result = cudaMallocHost(&memory, bytes);
    if (result != cudaSuccess) {
        (void)cudaGetLastError();
        return error_set(error, ST_NO_MEMORY, "cuda:%d: %.1f MiB of pinned memory: %s",
                         m->c->device, (double)bytes / 0x1p20, cudaGetErrorString(result));
    }
    *out = memory;
    return ST_OK;
}

static void host_free(void *self, void *memory)
{
    struct cuda_memory *m = memory_of(self);
    if (memory == NULL)
        return;
    copies_wait(m);
    (void)cudaFreeHost(memory);
}

static void room(void *self, uint64_t *free_out, uint64_t *total_out)
{
    struct cuda_memory *m = memory_of(self);
    size_t left = 0, all = 0;
    (void)cudaSetDevice(m->c->device);
    (void)cudaMemGetInfo(&left, &all);
    *free_out = left;
    *total_out = all;
}

/* ---- copies ---- */

static bool copies_look(struct compute *c, struct copies *d)
{
    while (d->count > 0) {
        cudaError_t result = cudaEventQuery(d->events[d->first]);
        if (result == cudaErrorNotReady) {
            (void)cudaGetLastError();
            return true;
        }
        if (!cuda_good(c, result, "a copy"))
            return false;
        d->done = d->numbers[d->first];
        d->first = (d->first + 1) % COPIES;
        d->count--;
    }
    return true;
}

/* Records an event behind everything that has been queued, if one is free; otherwise a later event
 * covers it. */
static bool copies_record(struct compute *c, struct copies *d)
{
    if (d->recorded == d->queued || d->count == COPIES)
        return true;
    uint32_t at = (d->first + d->count) % COPIES;
    if (!cuda_good(c, cudaEventRecord(d->events[at], d->stream), "a copy"))
        return false;
    d->numbers[at] = d->recorded = d->queued;
    d->count++;
    return true;
}

uint64_t cuda_copy_queued(struct cuda_memory *m, enum device_direction direction)
{
    struct copies *d = &m->copies[direction];
    d->queued++;
    if (d->count == COPIES && !copies_look(m->c, d))
        return 0;
    return copies_record(m->c, d) ? d->queued : 0;
}

static uint64_t copy(void *self, enum device_direction direction, void *device, void *host,
                     size_t bytes)
{
    struct cuda_memory *m = memory_of(self);
    struct copies *d = &m->copies[direction];
    const bool out = direction == DEVICE_TO_HOST;
    if (!cuda_enter(m->c) ||
        !cuda_good(m->c,
                   cudaMemcpyAsync(out ? host : device, out ? device : host, bytes,
                                   out ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice,
                                   d->stream),
                   "a copy"))
        return 0;
    return cuda_copy_queued(m, direction);
}

static enum status poll(void *self, enum device_direction direction, uint64_t *done_out,
                        struct error *error)
{
    struct cuda_memory *m = memory_of(self);
    struct copies *d = &m->copies[direction];
    if (!cuda_enter(m->c) || !copies_look(m->c, d) || !copies_record(m->c, d)) {
        std::lock_guard<std::mutex> lock(m->c->failing);
        return error_set(error, ST_IO, "%s", m->c->why.text);
    }
    *done_out = d->done;
    return ST_OK;
}

static void wake_run(void *self)
{
    wake_now((const struct cuda_memory *)self);
}

static void signal_when_done(void *self, enum device_direction direction)
{
    struct cuda_memory *m = memory_of(self);
    if (!cuda_enter(m->c) ||
        !cuda_good(m->c, cudaLaunchHostFunc(m->copies[direction].stream, wake_run, m), "a copy"))
        wake_now(m);
}

static int fd(void *self)
{
    return memory_of(self)->fd;
}

static const struct device_memory_ops memory_ops = {
    memory_allocate,  memory_free, host_allocate, host_free,       copy,           poll,
    signal_when_done, fd,          room,          cuda_peer_share, cuda_peer_open, cuda_peer_close,
    cuda_peer_copy};

/* ---- marks ---- */

struct mark {
    void (*done)(void *self, uint32_t number);
    void *self;
    uint32_t number;
};

static void mark_run(void *self)
{
    struct mark *mark = (struct mark *)self;
    mark->done(mark->self, mark->number);
    free(mark);
}

/* After an error of the device, `done` is never called: no computed result is reported. */
void cuda_mark(struct compute *c, uint32_t number, void (*done)(void *self, uint32_t number),
               void *self)
{
    struct cuda_memory *m = c->memory;
    if (!cuda_enter(c))
        return;
    struct mark *mark = (struct mark *)malloc(sizeof(*mark));
    if (mark == NULL) {
        cuda_fail(c, "a mark: out of memory");
        return;
    }
    *mark = {done, self, number};
    if (!cuda_good(c, cudaEventRecord(m->mark, c->stream), "a mark") ||
        !cuda_good(c, cudaStreamWaitEvent(m->marks, m->mark, 0), "a mark") ||
        !cuda_good(c, cudaLaunchHostFunc(m->marks, mark_run, mark), "a mark"))
        free(mark);
}

void cuda_wait(struct compute *c)
{
    if (cuda_enter(c) && cuda_good(c, cudaStreamSynchronize(c->stream), "what was computed"))
        cuda_good(c, cudaStreamSynchronize(c->memory->marks), "marks");
}

/* ---- life ---- */

static bool copies_open(struct compute *c, struct copies *d)
{
    bool good =
        cuda_good(c, cudaStreamCreateWithFlags(&d->stream, cudaStreamNonBlocking), "a stream");
    for (int i = 0; i < COPIES && good; i++)
        good = cuda_good(c, cudaEventCreateWithFlags(&d->events[i], cudaEventDisableTiming),
                         "an event");
    return good;
}

enum status cuda_memory_open(struct compute *c, struct error *error)
{
    struct cuda_memory *m = (struct cuda_memory *)calloc(1, sizeof(*m));
    if (m == NULL)
        return error_set(error, ST_NO_MEMORY, "no memory for a device");
    m->c = c;
    m->as_given.ops = &memory_ops;
    m->as_given.self = m;
    m->as_given.is_cuda = true;
    snprintf(m->as_given.name, sizeof(m->as_given.name), "cuda:%d", c->device);
    m->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    c->memory = m;
    if (m->fd < 0)
        return error_set(error, ST_NO_RESOURCE, "no descriptor left");
    if (cuda_good(c, cudaStreamCreateWithFlags(&m->marks, cudaStreamNonBlocking), "a stream") &&
        cuda_good(c, cudaEventCreateWithFlags(&m->mark, cudaEventDisableTiming), "an event") &&
        copies_open(c, &m->copies[DEVICE_TO_HOST]) && copies_open(c, &m->copies[HOST_TO_DEVICE]) &&
        copies_open(c, &m->copies[DEVICE_TO_PEER]))
        return ST_OK;
    return error_set(error, ST_IO, "%s", c->why.text);
}

void cuda_memory_close(struct compute *c)
{
    struct cuda_memory *m = c->memory;
    if (m == NULL)
        return;
    c->memory = NULL;
    for (int i = 0; i < DEVICE_DIRECTIONS; i++) {
        struct copies *d = &m->copies[i];
        if (d->stream != NULL) {
            (void)cudaStreamSynchronize(d->stream);
            (void)cudaStreamDestroy(d->stream);
        }
        for (int k = 0; k < COPIES; k++)
            if (d->events[k] != NULL)
                (void)cudaEventDestroy(d->events[k]);
    }
    if (m->marks != NULL) {
        (void)cudaStreamSynchronize(m->marks);
        (void)cudaStreamDestroy(m->marks);
    }
    if (m->mark != NULL)
        (void)cudaEventDestroy(m->mark);
    if (m->fd >= 0)
        close(m->fd);
    free(m);
}

const struct device_memory *cuda_memory_of(struct compute *c)
{
    return &c->memory->as_given;
}
