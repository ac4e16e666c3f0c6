/* fake_memory: see the header. */
#include "tests/device/fake_memory.h"

#include "common/random.h"
#include "tests/check.h"

#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_NAME  "fake-device"
#define RANGES_MAX 64
#define COPIES_MAX 65536 /* Copies of a direction that are queued and not done. */
#define BATCH_MAX  5

/* A file of twice the size, in whole pages: the memory that copies see, and the memory that is
 * computed on. */
struct range {
    uint8_t *device; /* PROT_NONE; NULL = unused. */
    uint8_t *see;    /* The same pages, accessible. */
    uint8_t *compute;
    uint64_t bytes, half_bytes;
    int file;  /* -1 = closed. */
    bool peer; /* Memory of another device. */
};

/* Contents of a handle. */
struct shared {
    char magic[8];
    int64_t process, file;
    uint64_t bytes;
};

static const char magic[8] = "fakedev";

struct copy {
    uint8_t *device;
    uint8_t *host;
    size_t bytes;
    struct device_run *runs; /* A copy to a peer has these runs instead. */
    uint32_t run_count;
};

struct queue {
    struct copy *copies; /* [COPIES_MAX]: copy n is at n % COPIES_MAX. */
    uint64_t queued, done;
    uint64_t wake; /* fd becomes readable when `done` reaches this number; 0 = no notification. */
};

struct fake_memory {
    struct device_memory device;
    struct fake_memory_options options;
    pthread_mutex_t lock;
    pthread_cond_t news;
    pthread_t thread;
    struct queue queues[DEVICE_DIRECTIONS];
    struct range ranges[RANGES_MAX];
    uint64_t host_pieces, taken_bytes, draws, carried_out;
    int fd;
    bool stop, failed, stuck;
};

static uint64_t draw(struct fake_memory *fake, uint64_t below)
{
    return random_at(fake->options.seed, fake->draws++) % below;
}

static struct range *range_of(struct fake_memory *fake, const void *device)
{
    const uint8_t *at = device;
    for (int i = 0; i < RANGES_MAX; i++) {
        struct range *range = &fake->ranges[i];
        if (range->device != NULL && at >= range->device && at < range->device + range->bytes)
            return range;
    }
    return NULL;
}

void *fake_memory_mapping(struct fake_memory *fake, const void *device)
{
    struct range *range = range_of(fake, device);
    CHECK(range != NULL);
    return range->see + ((const uint8_t *)device - range->device);
}

void *fake_memory_compute(struct fake_memory *fake, const void *device)
{
    struct range *range = range_of(fake, device);
    return range != NULL ? range->compute + ((const uint8_t *)device - range->device) : NULL;
}

void fake_memory_store(struct fake_memory *fake, const void *compute, const void *stored,
                       size_t bytes)
{
    const uint8_t *at = compute;
    for (int i = 0; i < RANGES_MAX; i++) {
        struct range *range = &fake->ranges[i];
        if (range->device != NULL && at >= range->compute && at < range->compute + range->bytes)
            memcpy(range->see + (at - range->compute), stored, bytes);
    }
}

/* ---- the thread that copies ---- */

static bool overlap(const struct copy *a, const struct copy *b)
{
    return a->runs != NULL ||
           (a->device < b->device + b->bytes && b->device < a->device + a->bytes) ||
           (a->host < b->host + b->bytes && b->host < a->host + a->bytes);
}

/* Carries out the runs in random order. */
static void carry_out_runs(struct fake_memory *fake, struct device_run *runs, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        uint64_t pick = i + draw(fake, count - i);
        struct device_run run = runs[pick];
        runs[pick] = runs[i];
        const uint8_t *from = fake_memory_mapping(fake, run.from);
        memcpy(fake_memory_mapping(fake, run.to), from, run.bytes);
        memcpy(fake_memory_compute(fake, run.to), from, run.bytes);
    }
}

static void carry_out(struct fake_memory *fake, enum device_direction direction,
                      const struct copy *copy)
{
    if (direction == DEVICE_TO_PEER) {
        carry_out_runs(fake, copy->runs, copy->run_count);
        free(copy->runs);
        return;
    }
    uint8_t *see = fake_memory_mapping(fake, copy->device);
    if (direction == DEVICE_TO_HOST) {
        memcpy(copy->host, see, copy->bytes);
        return;
    }
    memcpy(see, copy->host, copy->bytes);
    memcpy(fake_memory_compute(fake, copy->device), copy->host, copy->bytes);
}

/* Carries out a batch in any order that gives the same bytes as the order of the copies. */
static void carry_out_batch(struct fake_memory *fake, enum device_direction direction,
                            struct copy *batch, uint64_t count)
{
    bool free_order = true;
    for (uint64_t i = 0; i < count; i++)
        for (uint64_t k = 0; k < i; k++)
            free_order = free_order && !overlap(&batch[i], &batch[k]);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t pick = free_order ? i + draw(fake, count - i) : i;
        struct copy copy = batch[pick];
        batch[pick] = batch[i];
        carry_out(fake, direction, &copy);
    }
}

static void wake(struct fake_memory *fake, struct queue *queue)
{
    if (queue->wake == 0 || (queue->done < queue->wake && !fake->failed))
        return;
    queue->wake = 0;
    CHECK(eventfd_write(fake->fd, 1) == 0);
}

static void fail(struct fake_memory *fake)
{
    fake->failed = true;
    for (int i = 0; i < DEVICE_DIRECTIONS; i++)
        wake(fake, &fake->queues[i]);
}

static void *copy_thread(void *self)
{
    struct fake_memory *fake = self;
    struct copy batch[BATCH_MAX];
    pthread_mutex_lock(&fake->lock);
    while (!fake->stop) {
        uint64_t first = draw(fake, DEVICE_DIRECTIONS);
        struct queue *queue = NULL;
        for (uint64_t i = 0; i < DEVICE_DIRECTIONS && queue == NULL; i++) {
            queue = &fake->queues[(first + i) % DEVICE_DIRECTIONS];
            queue = queue->done < queue->queued ? queue : NULL;
        }
        if (queue == NULL || fake->failed || fake->stuck) {
            pthread_cond_wait(&fake->news, &fake->lock);
            continue;
        }
        uint64_t left = queue->queued - queue->done;
        uint64_t count = 1 + draw(fake, left < BATCH_MAX ? left : BATCH_MAX);
        for (uint64_t i = 0; i < count; i++)
            batch[i] = queue->copies[(queue->done + 1 + i) % COPIES_MAX];
        fake->carried_out += count;
        if (fake->options.fail_after > 0 && fake->carried_out >= fake->options.fail_after) {
            fail(fake);
            continue;
        }
        fake->stuck = fake->stuck || (fake->options.stick_after > 0 &&
                                      fake->carried_out >= fake->options.stick_after);
        if (fake->stuck)
            continue;
        useconds_t delay =
            fake->options.delay_us > 0 ? (useconds_t)draw(fake, fake->options.delay_us + 1) : 0;
        pthread_mutex_unlock(&fake->lock);
        if (delay > 0)
            usleep(delay);
        pthread_mutex_lock(&fake->lock);
        if (fake->failed || fake->stuck)
            continue;
        carry_out_batch(fake, (enum device_direction)(queue - fake->queues), batch, count);
        queue->done += count;
        wake(fake, queue);
    }
    pthread_mutex_unlock(&fake->lock);
    return NULL;
}

/* ---- the calls ---- */

static struct range range_map(int file, uint64_t bytes, uint64_t half_bytes)
{
    struct range range = {.bytes = bytes, .half_bytes = half_bytes, .file = -1};
    range.device = mmap(NULL, half_bytes, PROT_NONE, MAP_SHARED, file, 0);
    range.see = mmap(NULL, half_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    range.compute =
        mmap(NULL, half_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, (off_t)half_bytes);
    CHECK(range.device != MAP_FAILED && range.see != MAP_FAILED && range.compute != MAP_FAILED);
    return range;
}

static struct range *range_free(struct fake_memory *fake)
{
    struct range *range = fake->ranges;
    while (range->device != NULL)
        CHECK(++range < fake->ranges + RANGES_MAX);
    return range;
}

static void range_unmap(struct range *range)
{
    munmap(range->device, range->half_bytes);
    munmap(range->see, range->half_bytes);
    munmap(range->compute, range->half_bytes);
    if (range->file >= 0)
        close(range->file);
    *range = (struct range){.device = NULL};
}

static enum status fake_allocate(void *self, uint64_t bytes, void **out, struct error *error)
{
    struct fake_memory *fake = self;
    struct range *range = range_free(fake);
    if (bytes > fake->options.room_bytes - fake->taken_bytes)
        return error_set(error, ST_NO_MEMORY, "%llu of its %llu bytes are free",
                         (unsigned long long)(fake->options.room_bytes - fake->taken_bytes),
                         (unsigned long long)fake->options.room_bytes);
    uint64_t half_bytes = (bytes + 4095) / 4096 * 4096;
    int file = memfd_create(FILE_NAME, MFD_CLOEXEC);
    CHECK(file >= 0 && ftruncate(file, (off_t)(2 * half_bytes)) == 0);
    struct range taken = range_map(file, bytes, half_bytes);
    taken.file = file;
    pthread_mutex_lock(&fake->lock);
    *range = taken;
    fake->taken_bytes += bytes;
    pthread_mutex_unlock(&fake->lock);
    *out = taken.device;
    return ST_OK;
}

static void queue_drop(struct queue *queue)
{
    while (queue->done < queue->queued)
        free(queue->copies[++queue->done % COPIES_MAX].runs);
}

/* Drops the work of a stuck device, which would never end. */
static void quiet(struct fake_memory *fake)
{
    for (int i = 0; i < DEVICE_DIRECTIONS; i++)
        while (fake->queues[i].done < fake->queues[i].queued && !fake->failed && !fake->stuck) {
            pthread_mutex_unlock(&fake->lock);
            usleep(50);
            pthread_mutex_lock(&fake->lock);
        }
    for (int i = 0; i < DEVICE_DIRECTIONS && fake->stuck; i++)
        queue_drop(&fake->queues[i]);
}

/* Frees own memory, or (`peer`) closes another device's. NULL is allowed. */
static void range_end(struct fake_memory *fake, void *memory, bool peer)
{
    if (memory == NULL)
        return;
    pthread_mutex_lock(&fake->lock);
    quiet(fake);
    struct range *range = range_of(fake, memory);
    CHECK(range != NULL && range->device == memory && range->peer == peer);
    if (!peer)
        fake->taken_bytes -= range->bytes;
    range_unmap(range);
    pthread_mutex_unlock(&fake->lock);
}

static void fake_free(void *self, void *memory)
{
    range_end(self, memory, false);
}

static enum status fake_host_allocate(void *self, uint64_t bytes, void **out, struct error *error)
{
    struct fake_memory *fake = self;
    (void)error;
    uint64_t *memory = malloc(bytes + 64);
    CHECK(memory != NULL);
    fake->host_pieces++;
    *out = memory;
    return ST_OK;
}

static void fake_host_free(void *self, void *memory)
{
    struct fake_memory *fake = self;
    if (memory == NULL)
        return;
    pthread_mutex_lock(&fake->lock);
    quiet(fake);
    pthread_mutex_unlock(&fake->lock);
    fake->host_pieces--;
    free(memory);
}

static uint64_t fake_copy(void *self, enum device_direction direction, void *device, void *host,
                          size_t bytes)
{
    struct fake_memory *fake = self;
    struct queue *queue = &fake->queues[direction];
    uint64_t number = 0;
    pthread_mutex_lock(&fake->lock);
    struct range *range = range_of(fake, device);
    CHECK(range != NULL && bytes > 0 &&
          bytes <= range->bytes - (uint64_t)((uint8_t *)device - range->device));
    CHECK(range_of(fake, host) == NULL);
    if (!fake->failed) {
        number = ++queue->queued;
        CHECK(queue->queued - queue->done < COPIES_MAX);
        queue->copies[number % COPIES_MAX] =
            (struct copy){.device = device, .host = host, .bytes = bytes};
        if (direction == DEVICE_TO_HOST)
            memset(host, 0xa5, bytes);
        pthread_cond_signal(&fake->news);
    }
    pthread_mutex_unlock(&fake->lock);
    return number;
}

/* ---- other processes' memory ---- */

static enum status fake_share(void *self, void *memory, uint64_t bytes, struct device_handle *out,
                              struct error *error)
{
    struct fake_memory *fake = self;
    const struct range *range = range_of(fake, memory);
    (void)error;
    CHECK(range != NULL && range->device == memory && range->bytes == bytes);
    struct shared shared = {.process = getpid(), .file = range->file, .bytes = bytes};
    memcpy(shared.magic, magic, sizeof(magic));
    *out = (struct device_handle){.bytes = sizeof(shared)};
    memcpy(out->data, &shared, sizeof(shared));
    for (uint32_t i = 0; fake->options.garbage && i < out->bytes; i++)
        out->data[i] = (uint8_t)draw(fake, 256);
    return ST_OK;
}

/* Opens the file that a handle names, if it belongs to a fake device and has twice the bytes; else
 * returns -1. */
static int shared_open(const struct shared *shared, uint64_t half_bytes)
{
    char path[64], target[64];
    struct stat stat;
    snprintf(path, sizeof(path), "/proc/%lld/fd/%lld", (long long)shared->process,
             (long long)shared->file);
    ssize_t length = readlink(path, target, sizeof(target) - 1);
    if (length < 0)
        return -1;
    target[length] = 0;
    int file = strstr(target, FILE_NAME) != NULL ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file >= 0 && (fstat(file, &stat) != 0 || (uint64_t)stat.st_size != 2 * half_bytes)) {
        close(file);
        return -1;
    }
    return file;
}

static enum status fake_open_peer(void *self, const struct device_handle *handle, uint64_t bytes,
                                  void **out, struct error *error)
{
    struct fake_memory *fake = self;
    struct shared shared;
    CHECK(handle->bytes <= sizeof(handle->data));
    if (fake->options.refuse)
        return error_set(error, ST_UNSUPPORTED, "peer access is not supported");
    if (handle->bytes != sizeof(shared) || memcmp(handle->data, magic, sizeof(magic)) != 0)
        return error_set(error, ST_INVALID, "no handle of a fake device");
    memcpy(&shared, handle->data, sizeof(shared));
    uint64_t half_bytes = (bytes + 4095) / 4096 * 4096;
    int file = bytes == shared.bytes ? shared_open(&shared, half_bytes) : -1;
    if (file < 0)
        return error_set(error, ST_INVALID, "not a handle of this memory");
    struct range range = range_map(file, bytes, half_bytes);
    close(file);
    range.peer = true;
    pthread_mutex_lock(&fake->lock);
    *range_free(fake) = range;
    pthread_mutex_unlock(&fake->lock);
    *out = range.device;
    return ST_OK;
}

static void fake_close_peer(void *self, void *peer)
{
    range_end(self, peer, true);
}

static bool inside(struct fake_memory *fake, const void *at, size_t bytes, bool peer)
{
    const struct range *range = range_of(fake, at);
    return range != NULL && range->peer == peer && bytes > 0 &&
           bytes <= range->bytes - (uint64_t)((const uint8_t *)at - range->device);
}

static uint64_t fake_copy_to_peer(void *self, const struct device_run *runs, uint32_t count)
{
    struct fake_memory *fake = self;
    struct queue *queue = &fake->queues[DEVICE_TO_PEER];
    uint64_t number = 0;
    CHECK(count > 0 && count <= DEVICE_RUNS_MAX);
    pthread_mutex_lock(&fake->lock);
    for (uint32_t i = 0; i < count; i++)
        CHECK(inside(fake, runs[i].from, runs[i].bytes, false) &&
              inside(fake, runs[i].to, runs[i].bytes, true));
    if (!fake->failed) {
        struct copy copy = {.runs = malloc(count * sizeof(*runs)), .run_count = count};
        CHECK(copy.runs != NULL && queue->queued + 1 - queue->done < COPIES_MAX);
        memcpy(copy.runs, runs, count * sizeof(*runs));
        number = ++queue->queued;
        queue->copies[number % COPIES_MAX] = copy;
        pthread_cond_signal(&fake->news);
    }
    pthread_mutex_unlock(&fake->lock);
    return number;
}

static enum status fake_poll(void *self, enum device_direction direction, uint64_t *done_out,
                             struct error *error)
{
    struct fake_memory *fake = self;
    enum status status = ST_OK;
    pthread_mutex_lock(&fake->lock);
    if (fake->failed)
        status = error_set(error, ST_IO, "an illegal memory access was encountered");
    else
        *done_out = fake->queues[direction].done;
    pthread_mutex_unlock(&fake->lock);
    return status;
}

static void fake_signal_when_done(void *self, enum device_direction direction)
{
    struct fake_memory *fake = self;
    struct queue *queue = &fake->queues[direction];
    pthread_mutex_lock(&fake->lock);
    queue->wake = queue->queued;
    wake(fake, queue);
    pthread_mutex_unlock(&fake->lock);
}

static int fake_fd(void *self)
{
    return ((struct fake_memory *)self)->fd;
}

static void fake_room(void *self, uint64_t *free_out, uint64_t *total_out)
{
    struct fake_memory *fake = self;
    *total_out = fake->options.room_bytes;
    *free_out = fake->options.room_bytes - fake->taken_bytes;
}

static const struct device_memory_ops fake_ops = {
    .allocate = fake_allocate,
    .free = fake_free,
    .host_allocate = fake_host_allocate,
    .host_free = fake_host_free,
    .copy = fake_copy,
    .poll = fake_poll,
    .signal_when_done = fake_signal_when_done,
    .event_fd = fake_fd,
    .memory_sizes = fake_room,
};

static const struct device_memory_ops fake_sharing_ops = {
    .allocate = fake_allocate,
    .free = fake_free,
    .host_allocate = fake_host_allocate,
    .host_free = fake_host_free,
    .copy = fake_copy,
    .poll = fake_poll,
    .signal_when_done = fake_signal_when_done,
    .event_fd = fake_fd,
    .memory_sizes = fake_room,
    .share = fake_share,
    .open_peer = fake_open_peer,
    .close_peer = fake_close_peer,
    .copy_to_peer = fake_copy_to_peer,
};

struct fake_memory *fake_memory_open(const struct fake_memory_options *options)
{
    struct fake_memory *fake = calloc(1, sizeof(*fake));
    CHECK(fake != NULL);
    fake->options = *options;
    if (options->room_bytes == 0)
        fake->options.room_bytes = (uint64_t)1 << 30;
    fake->device = (struct device_memory){.ops = options->alone ? &fake_ops : &fake_sharing_ops,
                                          .self = fake,
                                          .name = "fake",
                                          .is_cuda = options->is_cuda};
    for (int i = 0; i < DEVICE_DIRECTIONS; i++) {
        fake->queues[i].copies = calloc(COPIES_MAX, sizeof(struct copy));
        CHECK(fake->queues[i].copies != NULL);
    }
    fake->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    CHECK(fake->fd >= 0);
    pthread_mutex_init(&fake->lock, NULL);
    pthread_cond_init(&fake->news, NULL);
    CHECK(pthread_create(&fake->thread, NULL, copy_thread, fake) == 0);
    return fake;
}

void fake_memory_close(struct fake_memory *fake)
{
    pthread_mutex_lock(&fake->lock);
    fake->stop = true;
    pthread_cond_signal(&fake->news);
    pthread_mutex_unlock(&fake->lock);
    pthread_join(fake->thread, NULL);
    CHECKF(fake->host_pieces == 0, "%d pieces of pinned memory are not back",
           (int)fake->host_pieces);
    CHECKF(fake->taken_bytes == 0, "%d bytes of device memory are not back",
           (int)fake->taken_bytes);
    for (const struct range *range = fake->ranges; range < fake->ranges + RANGES_MAX; range++)
        CHECKF(range->device == NULL, "%d bytes of another device are still open",
               (int)range->bytes);
    for (int i = 0; i < DEVICE_DIRECTIONS; i++) {
        queue_drop(&fake->queues[i]);
        free(fake->queues[i].copies);
    }
    pthread_mutex_destroy(&fake->lock);
    pthread_cond_destroy(&fake->news);
    close(fake->fd);
    free(fake);
}

const struct device_memory *fake_memory_device(struct fake_memory *fake)
{
    return &fake->device;
}

void fake_memory_fail(struct fake_memory *fake)
{
    pthread_mutex_lock(&fake->lock);
    fail(fake);
    pthread_mutex_unlock(&fake->lock);
}

void fake_memory_stick(struct fake_memory *fake, bool stick)
{
    pthread_mutex_lock(&fake->lock);
    fake->stuck = stick;
    pthread_cond_signal(&fake->news);
    pthread_mutex_unlock(&fake->lock);
}

uint64_t fake_memory_copies(struct fake_memory *fake, enum device_direction direction)
{
    pthread_mutex_lock(&fake->lock);
    uint64_t done = fake->queues[direction].done;
    pthread_mutex_unlock(&fake->lock);
    return done;
}

bool fake_memory_failed(struct fake_memory *fake)
{
    pthread_mutex_lock(&fake->lock);
    bool failed = fake->failed;
    pthread_mutex_unlock(&fake->lock);
    return failed;
}
