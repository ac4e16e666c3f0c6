/* Goal: plans between all processes of two machines, with any split into KV heads on each side,
 * move each byte of each head of the wanted blocks to its place, once, and nothing else, in as few
 * writes as possible. Method: random splits, layers, strides and block tables. The runs are carried
 * out on memories whose source bytes encode their destination; every byte of every target is
 * checked for layer, head, block, and the number of writes. */
#include "common/random.h"
#include "kvcache/kv_transfer.h"
#include "tests/check.h"

#include <stdlib.h>
#include <string.h>

#define BLOCKS     24
#define LAYERS     3 /* Layers of the model. */
#define RANKS_MAX  5
#define HEADS_MAX  9
#define HEAD_BYTES 24 /* Most bytes of a head. */
#define GAP        40 /* Largest gap between two layers. */
#define ROUNDS     1500

static uint64_t seed;
static uint64_t draws;

static uint32_t draw(uint32_t below)
{
    return (uint32_t)(random_at(seed, draws++) % below);
}

struct rank {
    struct kv_arena arena;
    uint8_t *data;
    uint8_t *written; /* How often each byte was written. */
};

struct side {
    uint32_t rank_count;
    struct rank ranks[RANKS_MAX];
    kv_block_id table[BLOCKS];
};

struct model {
    uint32_t heads;
    uint64_t head_bytes; /* Bytes of a head in one block. */
};

/* Returns the expected byte of a head, for any place. index: index of the block in the request. */
static uint8_t content(uint32_t layer, uint32_t head, uint32_t index, uint64_t byte)
{
    return (uint8_t)random_at(layer * 1000003ull + head * 1009ull + index * 7919ull, byte);
}

/* Makes a table of distinct blocks, some of them consecutive. */
static void table_fill(kv_block_id *table)
{
    for (uint32_t i = 0; i < BLOCKS; i++)
        table[i] = i;
    for (uint32_t swaps = draw(2 * BLOCKS); swaps > 0; swaps--) {
        uint32_t a = draw(BLOCKS);
        uint32_t b = draw(BLOCKS);
        kv_block_id kept = table[a];
        table[a] = table[b];
        table[b] = kept;
    }
}

static uint64_t arena_bytes(const struct kv_arena *arena)
{
    return arena->layer_count * arena->layer_stride_bytes;
}

/* Opens ranks with consecutive heads. even: as tensor parallelism distributes them. */
static void side_open(struct side *side, const struct model *model, uint32_t ranks, bool even)
{
    const struct kv_arena whole = {
        .layer_count = LAYERS,
        .head_count = model->heads,
        .head_total = model->heads,
        .block_count = BLOCKS,
        .block_tokens = 16,
        .block_bytes = model->heads * model->head_bytes,
        .layer_stride_bytes = BLOCKS * model->heads * model->head_bytes,
    };
    uint32_t first = 0;
    side->rank_count = ranks;
    table_fill(side->table);
    for (uint32_t i = 0; i < ranks; i++) {
        struct rank *rank = &side->ranks[i];
        uint32_t others = ranks - i - 1;
        uint32_t left = model->heads - first;
        uint32_t count = (left + others) / (others + 1);
        if (!even && others > 0)
            count = 1 + draw(left - others);
        uint32_t layer = draw(2), layer_end = 2 + draw(LAYERS - 1); /* Every side has layer 1. */
        rank->arena = kv_arena_slice(&whole, layer, layer_end, first, first + count);
        CHECK(rank->arena.layer_count == layer_end - layer && rank->arena.head_count == count);
        CHECK(rank->arena.block_bytes == count * model->head_bytes);
        CHECK(rank->arena.layer_stride_bytes == BLOCKS * count * model->head_bytes);
        rank->arena.layer_stride_bytes += draw(2) * draw(GAP);
        rank->data = calloc(arena_bytes(&rank->arena), 1);
        rank->written = calloc(arena_bytes(&rank->arena), 1);
        first += count;
    }
    CHECK(first == model->heads);
}

static void side_close(struct side *side)
{
    for (uint32_t i = 0; i < side->rank_count; i++) {
        free(side->ranks[i].data);
        free(side->ranks[i].written);
    }
}

/* Returns the place of a head's byte. This repeats the layout of struct compute_kv
 * independently. */
static uint64_t place(const struct kv_arena *arena, const struct model *model, uint32_t layer,
                      uint32_t head, kv_block_id block, uint64_t byte)
{
    return (layer - arena->first_layer) * arena->layer_stride_bytes +
           (uint64_t)block * arena->head_count * model->head_bytes +
           (head - arena->head_first) * model->head_bytes + byte;
}

static void fill(struct side *side, const struct model *model, uint32_t layer)
{
    for (uint32_t i = 0; i < side->rank_count; i++) {
        struct rank *rank = &side->ranks[i];
        const struct kv_arena *arena = &rank->arena;
        for (uint32_t h = arena->head_first; h < arena->head_first + arena->head_count; h++)
            for (uint32_t index = 0; index < BLOCKS; index++)
                for (uint64_t byte = 0; byte < model->head_bytes; byte++)
                    rank->data[place(arena, model, layer, h, side->table[index], byte)] =
                        content(layer, h, index, byte);
    }
}

/* Returns the fewest possible writes: a new write begins where the next block is not adjacent on
 * both sides. */
static uint32_t fewest(const struct side *from, const struct side *to, uint32_t first,
                       uint32_t count)
{
    uint32_t runs = 0;
    for (uint32_t i = first; i < first + count; i++)
        runs += i == first || from->table[i] != from->table[i - 1] + 1 ||
                to->table[i] != to->table[i - 1] + 1;
    return runs;
}

static uint32_t carry_out(const struct side *from, const struct rank *source, const struct side *to,
                          const struct rank *target, uint32_t layer, uint32_t first, uint32_t count)
{
    struct kv_run runs[BLOCKS + 1];
    memset(runs, 0xee, sizeof(runs));
    const struct kv_run untouched = runs[BLOCKS];
    uint32_t run_count = kv_transfer_plan(&source->arena, from->table, &target->arena, to->table,
                                          layer, first, count, runs);
    CHECK(run_count <= count);
    for (uint32_t i = run_count; i <= BLOCKS; i++)
        CHECK(memcmp(&runs[i], &untouched, sizeof(untouched)) == 0);
    for (uint32_t i = 0; i < run_count; i++) {
        const struct kv_run *run = &runs[i];
        CHECK(run->bytes > 0 && run->source_offset + run->bytes <= arena_bytes(&source->arena));
        CHECK(run->target_offset + run->bytes <= arena_bytes(&target->arena));
        memcpy(target->data + run->target_offset, source->data + run->source_offset, run->bytes);
        for (uint64_t byte = 0; byte < run->bytes; byte++)
            target->written[run->target_offset + byte]++;
    }
    return run_count;
}

static void check_target(const struct side *to, const struct rank *target,
                         const struct model *model, uint32_t layer, uint32_t first, uint32_t count)
{
    const struct kv_arena *arena = &target->arena;
    uint64_t written = 0;
    for (uint32_t h = arena->head_first; h < arena->head_first + arena->head_count; h++)
        for (uint32_t index = first; index < first + count; index++)
            for (uint64_t byte = 0; byte < model->head_bytes; byte++) {
                uint64_t at = place(arena, model, layer, h, to->table[index], byte);
                CHECKF(target->written[at] == 1, "head %u, block %u, byte %u: written %u times", h,
                       index, (unsigned)byte, target->written[at]);
                CHECK(target->data[at] == content(layer, h, index, byte));
            }
    for (uint64_t at = 0; at < arena_bytes(arena); at++)
        written += target->written[at];
    CHECK(written == arena->head_count * count * model->head_bytes);
}

static void test_round(uint32_t heads, uint32_t source_ranks, uint32_t target_ranks, bool even)
{
    const struct model model = {.heads = heads, .head_bytes = 1 + draw(HEAD_BYTES)};
    struct side from, to;
    const uint32_t layer = 1;
    uint32_t first = draw(BLOCKS);
    uint32_t count = draw(BLOCKS - first + 1);
    side_open(&from, &model, source_ranks, even);
    side_open(&to, &model, target_ranks, even);
    fill(&from, &model, layer);
    for (uint32_t i = 0; i < source_ranks; i++)
        for (uint32_t k = 0; k < target_ranks; k++) {
            const struct rank *source = &from.ranks[i], *target = &to.ranks[k];
            uint32_t runs = carry_out(&from, source, &to, target, layer, first, count);
            const struct kv_arena *a = &source->arena, *b = &target->arena;
            bool meet = a->head_first < b->head_first + b->head_count &&
                        b->head_first < a->head_first + a->head_count;
            bool same = a->head_first == b->head_first && a->head_count == b->head_count;
            CHECK(runs == (same ? fewest(&from, &to, first, count) : meet ? count : 0));
        }
    for (uint32_t k = 0; k < target_ranks; k++)
        check_target(&to, &to.ranks[k], &model, layer, first, count);
    side_close(&from);
    side_close(&to);
}

int main(void)
{
    seed = test_seed();
    for (uint32_t heads = 1; heads <= HEADS_MAX; heads++) /* Includes 3 heads over 2 ranks. */
        for (uint32_t s = 1; s <= heads && s <= RANKS_MAX; s++)
            for (uint32_t t = 1; t <= heads && t <= RANKS_MAX; t++)
                test_round(heads, s, t, true);
    for (int i = 0; i < ROUNDS; i++) {
        uint32_t heads = 1 + draw(HEADS_MAX), most = heads < RANKS_MAX ? heads : RANKS_MAX;
        test_round(heads, 1 + draw(most), 1 + draw(most), draw(2) == 0);
    }
    return 0;
}
