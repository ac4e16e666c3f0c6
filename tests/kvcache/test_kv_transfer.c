/* Goal: a transfer plan moves exactly the bytes of the asked blocks, in as few writes as possible.
 * Method: random block tables; the plan is expanded to (source byte, target byte) pairs per block
 * and compared with the arenas' addresses, block by block; and no two runs could have been one. */
#include "common/random.h"
#include "kvcache/kv_transfer.h"
#include "tests/check.h"

#define BLOCKS 64
#define ROUNDS 5000

static uint64_t seed;
static uint64_t draws;

static uint32_t draw(uint32_t below)
{
    return (uint32_t)(random_at(seed, draws++) % below);
}

/* A table of distinct blocks, consecutive ones in places. */
static void table_fill(kv_block_id *table, uint32_t block_count)
{
    for (uint32_t i = 0; i < block_count; i++)
        table[i] = i;
    for (uint32_t swaps = draw(2 * block_count); swaps > 0; swaps--) {
        uint32_t a = draw(block_count);
        uint32_t b = draw(block_count);
        kv_block_id kept = table[a];
        table[a] = table[b];
        table[b] = kept;
    }
}

static void test_round(void)
{
    kv_block_id source_blocks[BLOCKS];
    kv_block_id target_blocks[BLOCKS];
    struct kv_run runs[BLOCKS];
    const uint64_t block_bytes = 64 * (1 + draw(64));
    const struct kv_arena source = {.first_layer = draw(4),
                                    .layer_count = 30,
                                    .block_count = BLOCKS,
                                    .block_tokens = 16,
                                    .block_bytes = block_bytes,
                                    .layer_stride_bytes = BLOCKS * block_bytes + 4096 * draw(2)};
    const struct kv_arena target = {.first_layer = draw(4),
                                    .layer_count = 30,
                                    .block_count = BLOCKS,
                                    .block_tokens = 16,
                                    .block_bytes = block_bytes,
                                    .layer_stride_bytes = BLOCKS * block_bytes + 4096 * draw(2)};
    uint32_t layer = 4 + draw(20);
    table_fill(source_blocks, BLOCKS);
    table_fill(target_blocks, BLOCKS);
    uint32_t first = draw(BLOCKS);
    uint32_t count = draw(BLOCKS - first + 1);
    uint32_t run_count =
        kv_transfer_plan(&source, source_blocks, &target, target_blocks, layer, first, count, runs);

    uint32_t block = first;
    for (uint32_t i = 0; i < run_count; i++) {
        CHECK(runs[i].bytes > 0 && runs[i].bytes % block_bytes == 0);
        for (uint64_t at = 0; at < runs[i].bytes; at += block_bytes, block++) {
            CHECK(block < first + count);
            CHECK(runs[i].source_offset + at ==
                  (layer - source.first_layer) * source.layer_stride_bytes +
                      source_blocks[block] * block_bytes);
            CHECK(runs[i].target_offset + at ==
                  (layer - target.first_layer) * target.layer_stride_bytes +
                      target_blocks[block] * block_bytes);
        }
        if (i > 0)
            CHECK(runs[i - 1].source_offset + runs[i - 1].bytes != runs[i].source_offset ||
                  runs[i - 1].target_offset + runs[i - 1].bytes != runs[i].target_offset);
    }
    CHECK(block == first + count);
}

int main(void)
{
    seed = test_seed();
    for (int i = 0; i < ROUNDS; i++)
        test_round();
    return 0;
}
