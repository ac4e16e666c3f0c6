/* sequences: operations that depend on positions: the rotary table, rotation with the write into
 * the KV-cache, and attention, divided into work items of (sequence, tile of its rows, KV head). */
#include "compute/cpu/cpu.h"

#include "common/fixed_math.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct compute_rope_table {
    uint32_t dim;
    bool neox;
    uint32_t positions;
    double amplitude;
    _Atomic uint32_t filled; /* Positions that are computed, as far as a batch has needed them. */
    pthread_mutex_t filling;
    float *values;        /* [positions][cos dim/2, sin dim/2] */
    double frequencies[]; /* [dim/2] */
};

/* Least number of positions computed at once: 0.3 ms of one core at dim 64. */
#define ROPE_FILL_POSITIONS 256
#define ROPE_ITEM_POSITIONS 32

/* Queries (rows × heads) and scores (floats) of a work item: they stay in the L2 cache. */
#define ITEM_QUERIES 48
#define ITEM_SCORES  98304
/* Heads of a work item over a latent cache, which all heads share. */
#define LATENT_HEADS 16

struct rope_fill {
    const struct compute_rope_table *table;
    uint32_t first; /* First position. */
};

static void rope_fill_item(void *context, uint32_t item, uint32_t thread)
{
    (void)thread;
    const struct rope_fill *job = context;
    const struct compute_rope_table *table = job->table;
    const uint32_t half = table->dim / 2;
    uint32_t p = job->first + item * ROPE_ITEM_POSITIONS, end = p + ROPE_ITEM_POSITIONS;
    for (; p < end && p < table->positions; p++) {
        float *row = table->values + (size_t)p * table->dim;
        for (uint32_t i = 0; i < half; i++) {
            double sine, cosine;
            fixed_sine_cosine(p * table->frequencies[i], &sine, &cosine);
            row[i] = (float)(table->amplitude * cosine);
            row[half + i] = (float)(table->amplitude * sine);
        }
    }
}

/* Computes the positions below `end`, and some more. Computing a model's whole context would cost
 * milliseconds and megabytes at start-up that most requests never need. */
static void rope_fill(struct compute *c, struct compute_rope_table *table, uint32_t end)
{
    if (end <= atomic_load_explicit(&table->filled, memory_order_acquire))
        return;
    pthread_mutex_lock(&table->filling); /* Several lanes may get here at once. */
    uint32_t filled = atomic_load_explicit(&table->filled, memory_order_relaxed);
    if (end > filled) {
        uint32_t items = (end - filled + ROPE_FILL_POSITIONS - 1) / ROPE_FILL_POSITIONS *
                         (ROPE_FILL_POSITIONS / ROPE_ITEM_POSITIONS);
        struct rope_fill job = {.table = table, .first = filled};
        workers_run(c->workers, rope_fill_item, &job, items);
        atomic_store_explicit(&table->filled, filled + items * ROPE_ITEM_POSITIONS,
                              memory_order_release);
    }
    pthread_mutex_unlock(&table->filling);
}

enum status cpu_rope_open(struct compute *c, const struct compute_rope *rope,
                          struct compute_rope_table **out)
{
    (void)c;
    assert(rope->dim > 0 && rope->dim % 2 == 0 && rope->positions_max > 0);
    const uint32_t half = rope->dim / 2;
    struct compute_rope_table *table = calloc(1, sizeof(*table) + half * sizeof(double));
    if (table == NULL)
        return ST_NO_MEMORY;
    table->dim = rope->dim;
    table->neox = rope->neox;
    table->positions = rope->positions_max;
    table->amplitude = rope->amplitude != 0 ? (double)rope->amplitude : 1;
    pthread_mutex_init(&table->filling, NULL);
    table->values = cpu_memory_allocate((size_t)rope->positions_max * rope->dim * sizeof(float));
    if (table->values == NULL) {
        free(table);
        return ST_NO_MEMORY;
    }
    for (uint32_t i = 0; i < half; i++) {
        double frequency =
            fixed_pow((double)rope->freq_base, -2.0 * i / rope->dim) * (double)rope->freq_scale;
        if (rope->factors != NULL)
            frequency /= (double)rope->factors[i];
        table->frequencies[i] = frequency;
    }
    *out = table;
    return ST_OK;
}

void cpu_rope_close(struct compute *c, struct compute_rope_table *table)
{
    (void)c;
    if (table == NULL)
        return;
    pthread_mutex_destroy(&table->filling);
    free(table->values);
    free(table);
}

static void kv_check(const struct compute_kv *kv, uint32_t head_count)
{
    assert(kv->block_tokens % 8 == 0 && kv->block_tokens > 0 && kv->head_dim > 0);
    assert(kv->head_count > 0 && head_count % kv->head_count == 0);
    assert(kv->head_dim % 2 == 0 || !compute_kv_fixed(kv->dtype)); /* Pairs. */
    assert(kv->latent == 0 || (kv->head_count == 1 && kv->latent < 2 * kv->head_dim));
    assert(kv->latent % 2 == 0);
    assert(kv->block_bytes >=
           compute_kv_block_bytes(kv->block_tokens, kv->head_count, kv->head_dim, kv->dtype));
}

struct store_job {
    const struct kernels *kernels;
    const struct compute_rope_table *rope;
    const struct compute_batch *batch;
    const struct compute_kv *kv;
    uint32_t head_count;
    float *q;
    float *k;
    const float *v;
    uint32_t item_rows;
};

static void store_row(const struct store_job *job, const struct compute_sequence *sequence,
                      uint32_t row)
{
    const struct compute_kv *kv = job->kv;
    const struct kernels *kernels = job->kernels;
    uint32_t position = sequence->first_position + row - sequence->first_row;
    struct kernels_rope rope = {0}; /* No dimension is rotated. */
    if (job->rope != NULL) {
        assert(position < job->rope->positions);
        rope.dim = job->rope->dim;
        rope.neox = job->rope->neox;
        rope.table = job->rope->values + (size_t)position * rope.dim;
    }
    const uint32_t dim = compute_kv_key_dim(kv);
    float *q = job->q + (size_t)row * job->head_count * dim;
    float *k = job->k + (size_t)row * kv->head_count * dim;
    const float *v = kv->latent == 0 ? job->v + (size_t)row * kv->head_count * dim : k;
    uint8_t *block =
        (uint8_t *)kv->base + sequence->blocks[position / kv->block_tokens] * kv->block_bytes;
    size_t head_bytes = compute_kv_block_bytes(kv->block_tokens, 1, kv->head_dim, kv->dtype);
    for (uint32_t h = 0; h < job->head_count; h++)
        kernels->rope(&rope, q + (size_t)h * dim);
    /* All heads are rotated before the first one is stored. `store` reads k in vectors, and the CPU
     * cannot take them from several shorter writes that still wait: these would wait for the writes
     * of the head before, whose lines may come from memory. */
    for (uint32_t h = 0; h < kv->head_count; h++)
        kernels->rope(&rope, k + (size_t)h * dim);
    for (uint32_t h = 0; h < kv->head_count; h++) {
        size_t at = (size_t)h * dim;
        kernels->store(kv, block + h * head_bytes, position % kv->block_tokens, k + at, v + at);
    }
}

/* Returns the sequence that row `row` belongs to. */
static uint32_t sequence_find(const struct compute_batch *batch, uint32_t row)
{
    uint32_t low = 0, high = batch->sequence_count;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (batch->sequences[middle].first_row <= row)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static void store_item(void *context, uint32_t item, uint32_t thread)
{
    (void)thread;
    const struct store_job *job = context;
    uint32_t row = item * job->item_rows, end = row + job->item_rows;
    uint32_t s = sequence_find(job->batch, row);
    for (; row < end && row < job->batch->row_count; row++) {
        while (row >= job->batch->sequences[s].first_row + job->batch->sequences[s].row_count)
            s++;
        store_row(job, &job->batch->sequences[s], row);
    }
}

/* Returns one past the last position of the batch. */
static uint32_t positions_end(const struct compute_batch *batch)
{
    uint32_t end = 0;
    for (uint32_t i = 0; i < batch->sequence_count; i++) {
        const struct compute_sequence *s = &batch->sequences[i];
        uint32_t own = s->first_position + s->row_count;
        end = own > end ? own : end;
    }
    return end;
}

void cpu_rope_store(struct compute *c, struct compute_rope_table *rope,
                    const struct compute_batch *batch, const struct compute_kv *kv,
                    uint32_t head_count, float *q, float *k, const float *v)
{
    kv_check(kv, head_count);
    if (rope != NULL) {
        assert(rope->dim <= compute_kv_key_dim(kv) - kv->latent);
        rope_fill(c, rope, positions_end(batch));
    }
    struct store_job job = {.kernels = c->kernels,
                            .rope = rope,
                            .batch = batch,
                            .kv = kv,
                            .head_count = head_count,
                            .q = q,
                            .k = k,
                            .v = v};
    job.item_rows = cpu_item_rows(c, batch->row_count, cpu_tile_rows(batch->row_count));
    workers_run(c->workers, store_item, &job,
                (batch->row_count + job.item_rows - 1) / job.item_rows);
}

struct attention_job {
    struct compute *c;
    const struct compute_batch *batch;
    const struct compute_kv *kv;
    uint32_t head_count;
    uint32_t heads;    /* Heads of a work item. They share a KV head. */
    uint32_t kv_heads; /* Work items of a tile of rows. */
    uint32_t tiles;    /* Least work items of a sequence of several rows, for each KV head. */
    const struct compute_attention *parameters;
    const float *q;
    struct compute_activations *a;
    bool direct; /* An item's columns are whole blocks, so the item quantises them itself. */
    /* If not NULL, every sequence has one row, a work item is one segment of a KV head, and its
     * result is written here. */
    float *parts;
    _Atomic uint32_t *left; /* [sequence][KV head]: segments that are not done. */
};

/* With this many whole KV heads per thread, threads end at the same time without splitting. */
#define SPLIT_ITEMS_A_THREAD 6

/* A sequence with fewer rows is not divided: each work item reads the KV of all rows. */
#define SHARED_ROWS_MIN 4
/* With this many work items per thread, threads end at about the same time. */
#define TILE_ITEMS_A_THREAD 2

/* The first segment with a token that the sequence's first row sees. */
static uint32_t segment_first(const struct attention_job *job,
                              const struct compute_sequence *sequence)
{
    const uint32_t position = sequence->first_position, window = job->parameters->window;
    return window != 0 && position >= window ? (position + 1 - window) / KERNELS_SEGMENT : 0;
}

static uint32_t segments_of(const struct attention_job *job,
                            const struct compute_sequence *sequence)
{
    return sequence->first_position / KERNELS_SEGMENT + 1 - segment_first(job, sequence);
}

/* The most tokens that the rows of a work item of the sequence see, and those before them in their
 * vector. */
static uint32_t tokens_of(const struct attention_job *job, const struct compute_sequence *sequence)
{
    const uint32_t tokens = sequence->first_position + sequence->row_count;
    const uint32_t window = job->parameters->window, around = ITEM_QUERIES + VECTOR_LANES;
    return window != 0 && window < tokens && tokens - window > around ? window + around : tokens;
}

/* Rows of a sequence in one work item. */
static uint32_t tile_rows(const struct attention_job *job, const struct compute_sequence *sequence)
{
    size_t stride = kernels_score_stride(job->kv->dtype, tokens_of(job, sequence));
    size_t rows = ITEM_SCORES / (stride * job->heads);
    if (rows > ITEM_QUERIES / job->heads)
        rows = ITEM_QUERIES / job->heads;
    const uint32_t count = sequence->row_count;
    if (rows > count)
        rows = count;
    if (count >= SHARED_ROWS_MIN && rows > (count + job->tiles - 1) / job->tiles)
        rows = (count + job->tiles - 1) / job->tiles;
    return rows == 0 ? 1 : (uint32_t)rows;
}

static size_t item_scratch(const struct attention_job *job, const struct compute_sequence *sequence)
{
    uint32_t queries = tile_rows(job, sequence) * job->heads;
    return kernels_scratch_floats(job->kv, queries, tokens_of(job, sequence));
}

static void result_write(const struct attention_job *job, uint32_t first_row, uint32_t rows,
                         uint32_t kv_head, float *out)
{
    struct compute_activations *a = job->a;
    uint32_t width = job->heads * compute_kv_value_dim(job->kv), col = kv_head * width;
    for (uint32_t r = 0; r < rows; r++, out += width) {
        uint32_t row = first_row + r;
        if (!job->direct || (a->needs & COMPUTE_NEEDS_F32) != 0)
            memcpy(a->floats + (size_t)row * a->cols + col, out, width * sizeof(float));
        if (job->direct && (a->needs & (COMPUTE_NEEDS_Q8 | COMPUTE_NEEDS_BF16)) != 0)
            cpu_activations_quantise(job->c, a, row, col, width, out);
    }
}

/* Returns the sequence that item `item` belongs to. */
static uint32_t item_sequence(const struct attention_job *job, uint32_t item)
{
    uint32_t low = 0, high = job->batch->sequence_count;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (job->c->first_items[middle] <= item)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static const float *item_query(const struct attention_job *job, uint32_t row, uint32_t kv_head)
{
    return job->q + ((size_t)row * job->head_count + (size_t)kv_head * job->heads) *
                        compute_kv_key_dim(job->kv);
}

static struct kernels_cache cache_of(const struct attention_job *job, uint32_t s, uint32_t kv_head)
{
    const struct compute_sequence *sequence = &job->batch->sequences[s];
    struct kernels_cache cache = {.kv = job->kv, .blocks = sequence->blocks};
    cache.kv_head = job->kv->latent != 0 ? 0 : kv_head;
    if (s + 1 < job->batch->sequence_count) {
        cache.next_blocks = sequence[1].blocks;
        cache.next_tokens = sequence[1].first_position + 1;
    }
    return cache;
}

static void attention_item(void *context, uint32_t item, uint32_t thread)
{
    const struct attention_job *job = context;
    uint32_t s = item_sequence(job, item), within = item - job->c->first_items[s];
    const struct compute_sequence *sequence = &job->batch->sequences[s];
    uint32_t tile = within / job->kv_heads, kv_head = within % job->kv_heads;
    uint32_t step = tile_rows(job, sequence), done = tile * step;
    uint32_t rows = sequence->row_count - done < step ? sequence->row_count - done : step;
    uint32_t first_row = sequence->first_row + done;
    struct kernels_cache cache = cache_of(job, s, kv_head);
    size_t q_stride = (size_t)job->head_count * compute_kv_key_dim(job->kv);
    float *scratch = job->c->scratch[thread].data, *out = scratch + item_scratch(job, sequence);
    job->c->kernels->attention(&cache, sequence->first_position + done, rows, job->heads,
                               job->parameters, item_query(job, first_row, kv_head), q_stride,
                               scratch, out);
    result_write(job, first_row, rows, kv_head, out);
}

/* Computes one segment. The thread that computes the last segment of a KV head joins them. */
static void attention_split_item(void *context, uint32_t item, uint32_t thread)
{
    const struct attention_job *job = context;
    const struct kernels *kernels = job->c->kernels;
    uint32_t s = item_sequence(job, item), within = item - job->c->first_items[s];
    const struct compute_sequence *sequence = &job->batch->sequences[s];
    const float *sinks = job->parameters->sinks;
    uint32_t segments = segments_of(job, sequence);
    uint32_t kv_head = within / segments, segment = within % segments;
    struct kernels_cache cache = cache_of(job, s, kv_head);
    const uint32_t dim = compute_kv_value_dim(job->kv);
    size_t floats = kernels_part_floats(job->heads, dim);
    float *parts = job->parts + (item - segment) * floats;
    kernels->attention_part(&cache, sequence->first_position, job->heads, job->parameters,
                            item_query(job, sequence->first_row, kv_head),
                            segment_first(job, sequence) + segment, job->c->scratch[thread].data,
                            parts + segment * floats);
    _Atomic uint32_t *left = &job->left[s * job->kv_heads + kv_head];
    if (atomic_fetch_sub_explicit(left, 1, memory_order_acq_rel) != 1)
        return;
    kernels->attention_join(job->heads, dim, segments, floats,
                            sinks != NULL ? sinks + (size_t)kv_head * job->heads : NULL, parts);
    result_write(job, sequence->first_row, 1, kv_head, parts);
}

static void quantise_item(void *context, uint32_t row, uint32_t thread)
{
    (void)thread;
    const struct attention_job *job = context;
    const struct compute_activations *a = job->a;
    cpu_activations_finish(job->c, a, row, a->floats + (size_t)row * a->cols);
}

/* Makes room for the batch's items and for the largest item's scratch memory, which grows with the
 * longest context unless the cache has an integer form. */
static enum status attention_prepare(struct compute *c, const struct attention_job *job,
                                     uint32_t *items_out)
{
    uint32_t count = job->batch->sequence_count, items = 0;
    size_t scratch = 0;
    if (count > c->first_items_max) {
        uint32_t *larger = realloc(c->first_items, count * sizeof(*larger));
        if (larger == NULL)
            return ST_NO_MEMORY;
        c->first_items = larger;
        c->first_items_max = count;
    }
    for (uint32_t s = 0; s < count; s++) {
        const struct compute_sequence *sequence = &job->batch->sequences[s];
        uint32_t rows = tile_rows(job, sequence);
        size_t need =
            item_scratch(job, sequence) + (size_t)rows * job->heads * compute_kv_value_dim(job->kv);
        c->first_items[s] = items;
        items += (sequence->row_count + rows - 1) / rows * job->kv_heads;
        scratch = need > scratch ? need : scratch;
    }
    *items_out = items;
    return cpu_scratch_grow(c, scratch);
}

/* Splits few long contexts into segments, so that no thread waits for another thread's last KV
 * head. `items` is what attention_prepare found. The result has the same bits. */
static enum status attention_split(struct compute *c, struct attention_job *job, uint32_t *items)
{
    const struct compute_batch *batch = job->batch;
    const uint32_t threads = workers_threads(c->workers), heads = job->kv_heads;
    uint32_t segments = 0;
    if (!compute_kv_fixed(job->kv->dtype) || threads == 1 || batch->row_count == 0 ||
        batch->row_count != batch->sequence_count || *items >= threads * SPLIT_ITEMS_A_THREAD)
        return ST_OK;
    for (uint32_t s = 0; s < batch->sequence_count; s++)
        segments += segments_of(job, &batch->sequences[s]);
    if (segments == batch->sequence_count)
        return ST_OK;
    size_t floats =
        segments * heads * kernels_part_floats(job->heads, compute_kv_value_dim(job->kv));
    if (!cpu_segments_grow(c, floats, batch->sequence_count * heads))
        return ST_NO_MEMORY;
    job->parts = c->segments.parts;
    job->left = c->segments.unfinished;
    *items = 0;
    for (uint32_t s = 0; s < batch->sequence_count; s++) {
        segments = segments_of(job, &batch->sequences[s]);
        c->first_items[s] = *items;
        *items += segments * heads;
        for (uint32_t h = 0; h < heads; h++)
            atomic_store_explicit(&job->left[s * heads + h], segments, memory_order_relaxed);
    }
    return ST_OK;
}

void cpu_attention(struct compute *c, const struct compute_batch *batch,
                   const struct compute_kv *kv, uint32_t head_count,
                   const struct compute_attention *parameters, const float *q,
                   struct compute_activations *a)
{
    kv_check(kv, head_count);
    assert(a->cols == head_count * compute_kv_value_dim(kv));
    assert(kv->latent == 0 || parameters->sinks == NULL);
    cpu_activations_begin(a, batch->row_count);
    struct attention_job job = {.c = c,
                                .batch = batch,
                                .kv = kv,
                                .head_count = head_count,
                                .heads = head_count / kv->head_count,
                                .parameters = parameters,
                                .q = q,
                                .a = a};
    if (kv->latent != 0 && head_count % LATENT_HEADS == 0)
        job.heads = LATENT_HEADS;
    job.kv_heads = head_count / job.heads;
    job.direct = job.heads * compute_kv_value_dim(kv) % 32 == 0;
    const uint32_t tiled = batch->sequence_count * job.kv_heads;
    const uint32_t wanted = workers_threads(c->workers) * TILE_ITEMS_A_THREAD;
    job.tiles = wanted > tiled && tiled > 0 ? (wanted + tiled - 1) / tiled : 1;
    uint32_t items;
    enum status status = attention_prepare(c, &job, &items);
    if (status == ST_OK)
        status = attention_split(c, &job, &items);
    assert(status == ST_OK); /* A few megabytes per thread at the longest context. */
    workers_run(c->workers, job.parts != NULL ? attention_split_item : attention_item, &job, items);
    if (!job.direct && (a->needs & (COMPUTE_NEEDS_Q8 | COMPUTE_NEEDS_BF16)) != 0)
        workers_run(c->workers, quantise_item, &job, batch->row_count);
}
