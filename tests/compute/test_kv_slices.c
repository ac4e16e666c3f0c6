/* Goal: the KV heads of a slice are contiguous in a block, in the layout of a process that stores
 * only these heads. So KV moves between processes with different heads as plain bytes
 * (kv_transfer.h), in every format of the KV cache. Method: one device stores K and V of all heads,
 * others only those of each rank; the bytes that plans move in both directions are compared. */
#include "tests/compute/fixture.h"

#include "kvcache/kv_transfer.h"

#define HEADS  7 /* KV heads: 3, 2 and 2 of three ranks, or 4 and 3 of two. */
#define GROUP  2 /* Query heads per KV head. */
#define DIM    48
#define TOKENS 16 /* Tokens of a block. */
#define ROWS   41 /* The third block is not full. */
#define BLOCKS 5

static const kv_block_id tables[2][3] = {{3, 0, 1}, {1, 2, 4}};

struct cache {
    struct kv_arena arena;
    uint8_t *base;
};

static struct cache cache_open(enum compute_kv_dtype dtype, uint32_t first, uint32_t end)
{
    const uint64_t bytes = compute_kv_block_bytes(TOKENS, HEADS, DIM, dtype);
    const struct kv_arena whole = {.layer_count = 1,
                                   .head_count = HEADS,
                                   .head_total = HEADS,
                                   .block_count = BLOCKS,
                                   .block_tokens = TOKENS,
                                   .block_bytes = bytes,
                                   .layer_stride_bytes = BLOCKS * bytes};
    struct cache cache = {.arena = kv_arena_slice(&whole, 0, 1, first, end)};
    CHECK(kv_arena_head_bytes(&whole) == TOKENS * compute_kv_token_bytes(DIM, dtype));
    CHECK(cache.arena.block_bytes == compute_kv_block_bytes(TOKENS, end - first, DIM, dtype));
    cache.base = calloc(1, cache.arena.layer_stride_bytes);
    CHECK(cache.base != NULL);
    return cache;
}

/* Copies the columns of heads [first, end) of ROWS rows with `all` heads each. */
static float *columns(const float *from, uint32_t all, uint32_t first, uint32_t end)
{
    const size_t wide = (size_t)(end - first) * DIM;
    float *out = malloc(ROWS * wide * sizeof(float));
    CHECK(out != NULL);
    for (size_t r = 0; r < ROWS; r++)
        memcpy(out + r * wide, from + (r * all + first) * DIM, wide * sizeof(float));
    return out;
}

/* Stores K and V as a process does that has these KV heads and the query heads that read them. */
static void store(struct compute *c, struct compute_rope_table *rope, enum compute_kv_dtype dtype,
                  const float *q, const float *k, const float *v, const kv_block_id *table,
                  const struct cache *cache)
{
    const uint32_t first = cache->arena.head_first, count = cache->arena.head_count;
    const struct compute_kv kv = {.base = cache->base,
                                  .block_bytes = cache->arena.block_bytes,
                                  .block_tokens = TOKENS,
                                  .head_count = count,
                                  .head_dim = DIM,
                                  .dtype = dtype};
    const struct compute_sequence sequence = {.row_count = ROWS, .blocks = table};
    const struct compute_batch batch = {
        .row_count = ROWS, .sequence_count = 1, .sequences = &sequence};
    float *own_q = columns(q, HEADS * GROUP, first * GROUP, (first + count) * GROUP);
    float *own_k = columns(k, HEADS, first, first + count);
    float *own_v = columns(v, HEADS, first, first + count);
    OPS->rope_store(c, rope, &batch, &kv, count * GROUP, own_q, own_k, own_v);
    free(own_q);
    free(own_k);
    free(own_v);
}

static void move(const struct cache *from, const kv_block_id *source, const struct cache *to,
                 const kv_block_id *target)
{
    struct kv_run runs[3];
    uint32_t count = kv_transfer_plan(&from->arena, source, &to->arena, target, 0, 0, 3, runs);
    for (uint32_t i = 0; i < count; i++)
        memcpy(to->base + runs[i].target_offset, from->base + runs[i].source_offset, runs[i].bytes);
}

static void check_same(const struct cache *a, const struct cache *b, const char *what)
{
    CHECK(a->arena.layer_stride_bytes == b->arena.layer_stride_bytes);
    CHECKF(memcmp(a->base, b->base, a->arena.layer_stride_bytes) == 0, "%s", what);
}

static void test_ranks(struct compute *c, struct compute_rope_table *rope,
                       enum compute_kv_dtype dtype, uint32_t ranks)
{
    float *q = fixture_floats((size_t)ROWS * HEADS * GROUP * DIM);
    float *k = fixture_floats((size_t)ROWS * HEADS * DIM);
    float *v = fixture_floats((size_t)ROWS * HEADS * DIM);
    const struct cache source = cache_open(dtype, 0, HEADS);
    const struct cache want = cache_open(dtype, 0, HEADS);
    const struct cache joined = cache_open(dtype, 0, HEADS);
    store(c, rope, dtype, q, k, v, tables[0], &source);
    store(c, rope, dtype, q, k, v, tables[1], &want);
    for (uint32_t first = 0, left = ranks; left > 0; left--) {
        const uint32_t end = first + (HEADS - first + left - 1) / left;
        const struct cache rank = cache_open(dtype, first, end);
        const struct cache moved = cache_open(dtype, first, end);
        store(c, rope, dtype, q, k, v, tables[1], &rank);
        move(&source, tables[0], &moved, tables[1]);
        check_same(&moved, &rank, "a rank's heads of the whole blocks are not what it stores");
        move(&rank, tables[1], &joined, tables[1]);
        free(rank.base);
        free(moved.base);
        first = end;
    }
    check_same(&joined, &want, "the ranks' heads side by side are not the whole blocks");
    free(source.base);
    free(want.base);
    free(joined.base);
    free(q);
    free(k);
    free(v);
}

int main(void)
{
    static const enum compute_isa isas[] = {COMPUTE_ISA_PORTABLE, COMPUTE_ISA_AUTO};
    const struct compute_rope settings = {
        .dim = DIM, .neox = true, .freq_base = 10000, .freq_scale = 1, .positions_max = ROWS};
    fixture_seed = test_seed();
    for (size_t i = 0; i < sizeof(isas) / sizeof(isas[0]); i++) {
        struct compute *c = fixture_open(isas[i], 1, false);
        struct compute_rope_table *rope = NULL;
        CHECK(OPS->rope_open(c, &settings, &rope) == ST_OK);
        for (enum compute_kv_dtype dtype = 0; dtype < COMPUTE_KV_DTYPE_COUNT; dtype++)
            for (uint32_t ranks = 1; ranks <= HEADS; ranks++)
                test_ranks(c, rope, dtype, ranks);
        OPS->rope_close(c, rope);
        OPS->close(c);
    }
    return 0;
}
