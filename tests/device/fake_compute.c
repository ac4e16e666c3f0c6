/* fake_compute: see the header. The CPU's operations with translated pointers, and a thread that
 * stores their results late. */
#include "tests/device/fake_compute.h"

#include "common/random.h"
#include "compute/cpu/cpu.h"
#include "tests/check.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#define DEVICES_MAX 64

/* Work that the device has been given, in order: bytes to store, or a mark to report. */
struct item {
    struct item *next;
    void *at; /* NULL = a mark. */
    size_t bytes;
    uint32_t number;
    void (*done)(void *self, uint32_t number);
    void *self;
    uint8_t data[];
};

struct fake {
    struct compute *cpu; /* Also the pointer that callers have; NULL = unused. */
    struct fake_memory *memory;
    char text[160];
    pthread_mutex_t lock;
    pthread_cond_t news, idle;
    pthread_t thread;
    struct item *items, **items_tail;
    uint32_t delay_us;
    uint64_t draws, seed;
    bool stop, busy;
};

struct fake_memory_options fake_compute_options = {.delay_us = 200};

static struct fake fakes[DEVICES_MAX];
static pthread_mutex_t fakes_lock = PTHREAD_MUTEX_INITIALIZER;

static struct fake *fake_of(const struct compute *c)
{
    struct fake *found = NULL;
    pthread_mutex_lock(&fakes_lock);
    for (int i = 0; i < DEVICES_MAX; i++)
        if (fakes[i].cpu == c)
            found = &fakes[i];
    pthread_mutex_unlock(&fakes_lock);
    CHECK(found != NULL && c != NULL);
    return found;
}

int fake_compute_count(void)
{
    int count = 0;
    for (int i = 0; i < DEVICES_MAX; i++)
        count += fakes[i].cpu != NULL;
    return count;
}

struct fake_memory *fake_compute_memory(int index)
{
    for (int i = 0; i < DEVICES_MAX; i++)
        if (fakes[i].cpu != NULL && index-- == 0)
            return fakes[i].memory;
    return NULL;
}

/* ---- what is stored late ---- */

static void *store_thread(void *self)
{
    struct fake *fake = self;
    pthread_mutex_lock(&fake->lock);
    for (;;) {
        struct item *item = fake->items;
        if (item == NULL && fake->stop)
            break;
        if (item == NULL) {
            fake->busy = false;
            pthread_cond_broadcast(&fake->idle);
            pthread_cond_wait(&fake->news, &fake->lock);
            continue;
        }
        fake->busy = true;
        fake->items = item->next;
        if (fake->items == NULL)
            fake->items_tail = &fake->items;
        uint64_t delay_us = random_at(fake->seed, fake->draws++) % (fake->delay_us + 1);
        pthread_mutex_unlock(&fake->lock);
        if (item->at == NULL && delay_us > 0)
            usleep((useconds_t)delay_us);
        if (item->at != NULL)
            fake_memory_store(fake->memory, item->at, item->data, item->bytes);
        else
            item->done(item->self, item->number);
        free(item);
        pthread_mutex_lock(&fake->lock);
    }
    pthread_mutex_unlock(&fake->lock);
    return NULL;
}

static void item_add(struct fake *fake, struct item *item)
{
    pthread_mutex_lock(&fake->lock);
    fake->busy = true;
    *fake->items_tail = item;
    fake->items_tail = &item->next;
    pthread_cond_signal(&fake->news);
    pthread_mutex_unlock(&fake->lock);
}

/* Queues computed bytes for the device's memory. Bytes of the host's memory are already in
 * place. */
static void computed(struct fake *fake, const void *device, size_t bytes)
{
    void *at = fake_memory_compute(fake->memory, device);
    if (at == NULL)
        return;
    struct item *item = calloc(1, sizeof(*item) + bytes);
    CHECK(item != NULL);
    item->at = at;
    item->bytes = bytes;
    memcpy(item->data, at, bytes);
    item_add(fake, item);
}

static void *to_compute(struct fake *fake, const void *pointer)
{
    void *at = fake_memory_compute(fake->memory, pointer);
    return at != NULL ? at : (void *)(uintptr_t)pointer;
}

/* ---- the device's own ---- */

static void fake_memory_write(struct compute *c, void *to, const void *from, size_t bytes)
{
    struct fake *fake = fake_of(c);
    memcpy(to_compute(fake, to), from, bytes);
    computed(fake, to, bytes);
}

static void fake_memory_read(struct compute *c, void *to, const void *from, size_t bytes)
{
    memcpy(to, to_compute(fake_of(c), from), bytes);
}

static const struct device_memory *fake_memory(struct compute *c)
{
    return fake_memory_device(fake_of(c)->memory);
}

static void fake_mark(struct compute *c, uint32_t number, void (*done)(void *self, uint32_t number),
                      void *self)
{
    struct item *item = calloc(1, sizeof(*item));
    CHECK(item != NULL);
    item->number = number;
    item->done = done;
    item->self = self;
    item_add(fake_of(c), item);
}

static void fake_wait(struct compute *c)
{
    struct fake *fake = fake_of(c);
    pthread_mutex_lock(&fake->lock);
    while (fake->items != NULL || fake->busy)
        pthread_cond_wait(&fake->idle, &fake->lock);
    pthread_mutex_unlock(&fake->lock);
}

static enum status fake_check(struct compute *c, struct error *error)
{
    if (!fake_memory_failed(fake_of(c)->memory))
        return ST_OK;
    return error_set(error, ST_IO, "fake: an illegal memory access was encountered");
}

static enum status fake_open(const struct compute_options *options, struct compute **out,
                             struct error *error)
{
    if (fake_compute_options.crash)
        raise(SIGSEGV);
    while (fake_compute_options.hang)
        pause();
    if (fake_compute_options.count > 0 && options->device >= fake_compute_options.count)
        return error_set(error, ST_NOT_FOUND, "no such device: there are %d",
                         (int)fake_compute_options.count);
    enum status status = compute_cpu.open(options, out, error);
    if (status != ST_OK)
        return status;
    pthread_mutex_lock(&fakes_lock);
    struct fake *fake = fakes;
    while (fake->cpu != NULL)
        CHECK(++fake < fakes + DEVICES_MAX);
    struct fake_memory_options memory = fake_compute_options;
    memory.seed += (uint64_t)(fake - fakes);
    *fake = (struct fake){.cpu = *out, .delay_us = memory.delay_us, .seed = memory.seed};
    fake->memory = fake_memory_open(&memory);
    fake->items_tail = &fake->items;
    pthread_mutex_init(&fake->lock, NULL);
    pthread_cond_init(&fake->news, NULL);
    pthread_cond_init(&fake->idle, NULL);
    snprintf(fake->text, sizeof(fake->text), "fake device over %s", compute_cpu.describe(*out));
    CHECK(pthread_create(&fake->thread, NULL, store_thread, fake) == 0);
    pthread_mutex_unlock(&fakes_lock);
    return ST_OK;
}

static void fake_close(struct compute *c)
{
    if (c == NULL)
        return;
    struct fake *fake = fake_of(c);
    pthread_mutex_lock(&fake->lock);
    fake->stop = true;
    pthread_cond_signal(&fake->news);
    pthread_mutex_unlock(&fake->lock);
    pthread_join(fake->thread, NULL);
    fake_memory_close(fake->memory);
    compute_cpu.close(c);
    pthread_mutex_lock(&fakes_lock);
    fake->cpu = NULL;
    pthread_mutex_unlock(&fakes_lock);
}

static const char *fake_describe(const struct compute *c)
{
    return fake_of(c)->text;
}

/* ---- operations on what lies in the device's memory ---- */

static void fake_embed(struct compute *c, const struct compute_matrix *m, const uint32_t *ids,
                       uint32_t count, float *y)
{
    struct fake *fake = fake_of(c);
    compute_cpu.embed(c, m, ids, count, to_compute(fake, y));
    computed(fake, y, (size_t)count * m->cols * sizeof(float));
}

static void fake_gather(struct compute *c, const float *x, const uint32_t *rows, uint32_t count,
                        uint32_t cols, float *y)
{
    struct fake *fake = fake_of(c);
    compute_cpu.gather(c, to_compute(fake, x), rows, count, cols, to_compute(fake, y));
    computed(fake, y, (size_t)count * cols * sizeof(float));
}

static void fake_layer_norm(struct compute *c, const float *x, const uint32_t *rows_in,
                            uint32_t row_count, uint32_t cols, const float *weight,
                            const float *bias, float epsilon, struct compute_activations *a)
{
    compute_cpu.layer_norm(c, to_compute(fake_of(c), x), rows_in, row_count, cols, weight, bias,
                           epsilon, a);
}

static void fake_norm(struct compute *c, const float *x, const uint32_t *rows_in,
                      uint32_t row_count, uint32_t cols, const float *weight, float epsilon,
                      struct compute_activations *a)
{
    compute_cpu.norm(c, to_compute(fake_of(c), x), rows_in, row_count, cols, weight, epsilon, a);
}

static void fake_rope_store(struct compute *c, struct compute_rope_table *rope,
                            const struct compute_batch *batch, const struct compute_kv *kv,
                            uint32_t head_count, float *q, float *k, const float *v)
{
    struct fake *fake = fake_of(c);
    struct compute_kv here = *kv;
    here.base = to_compute(fake, kv->base);
    CHECK(here.base != kv->base);
    compute_cpu.rope_store(c, rope, batch, &here, head_count, q, k, v);
    for (uint32_t i = 0; i < batch->sequence_count; i++) {
        const struct compute_sequence *s = &batch->sequences[i];
        uint32_t end = s->first_position + s->row_count;
        for (uint32_t b = s->first_position / kv->block_tokens; b * kv->block_tokens < end; b++)
            computed(fake, (uint8_t *)kv->base + s->blocks[b] * kv->block_bytes, kv->block_bytes);
    }
}

static void fake_attention(struct compute *c, const struct compute_batch *batch,
                           const struct compute_kv *kv, uint32_t head_count,
                           const struct compute_attention *parameters, const float *q,
                           struct compute_activations *a)
{
    struct compute_kv here = *kv;
    here.base = to_compute(fake_of(c), kv->base);
    compute_cpu.attention(c, batch, &here, head_count, parameters, q, a);
}

/* Each operation that changes x stores x, so the last values are sent. */
static void fake_matmul_add(struct compute *c, const struct compute_matrix *m,
                            const struct compute_activations *a, uint32_t row_count, float *x)
{
    struct fake *fake = fake_of(c);
    compute_cpu.matmul_add(c, m, a, row_count, to_compute(fake, x));
    computed(fake, x, (size_t)row_count * m->rows * sizeof(float));
}

static void fake_norm_add(struct compute *c, const float *y, uint32_t row_count, uint32_t cols,
                          const float *weight, float epsilon, float *x)
{
    struct fake *fake = fake_of(c);
    compute_cpu.norm_add(c, to_compute(fake, y), row_count, cols, weight, epsilon,
                         to_compute(fake, x));
    computed(fake, x, (size_t)row_count * cols * sizeof(float));
}

static void fake_scale_add(struct compute *c, float factor, size_t count, const float *y, float *x)
{
    struct fake *fake = fake_of(c);
    compute_cpu.scale_add(c, factor, count, to_compute(fake, y), to_compute(fake, x));
    computed(fake, x, count * sizeof(float));
}

static void fake_scale(struct compute *c, float factor, size_t count, float *x)
{
    struct fake *fake = fake_of(c);
    compute_cpu.scale(c, factor, count, to_compute(fake, x));
    computed(fake, x, count * sizeof(float));
}

/* Leaves the sampling of every row to the host, as a GPU does with nearly flat logits. */
static void fake_sample(struct compute *c, float *logits, uint32_t vocab,
                        const struct compute_sample *samples, uint32_t count,
                        const struct compute_edit *edits, uint32_t edit_count,
                        struct compute_sampled *sampled_out)
{
    (void)c, (void)logits, (void)vocab, (void)samples, (void)edits, (void)edit_count;
    memset(sampled_out, 0, count * sizeof(*sampled_out));
    for (uint32_t i = 0; i < count; i++)
        sampled_out[i].undecided = true;
}

static const struct compute_sampling_ops fake_sampling = {.sample = fake_sample};

struct compute_ops fake_compute_ops;

__attribute__((constructor)) static void ops_make(void)
{
    struct compute_ops *ops = &fake_compute_ops;
    *ops = compute_cpu;
    ops->name = "fake";
    ops->open = fake_open;
    ops->close = fake_close;
    ops->describe = fake_describe;
    ops->embed = fake_embed;
    ops->gather = fake_gather;
    ops->norm = fake_norm;
    ops->layer_norm = fake_layer_norm;
    ops->matmul_add = fake_matmul_add;
    ops->rope_store = fake_rope_store;
    ops->attention = fake_attention;
    ops->scale = fake_scale;
    ops->scale_add = fake_scale_add;
    ops->norm_add = fake_norm_add;
    ops->device_memory = fake_memory;
    ops->memory_write = fake_memory_write;
    ops->memory_read = fake_memory_read;
    ops->mark = fake_mark;
    ops->wait = fake_wait;
    ops->check = fake_check;
    /* The CPU's lanes would be separate devices. */
    ops->lanes = NULL;
    ops->sampling = &fake_sampling;
}
