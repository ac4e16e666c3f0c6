/* Goal: KV_READY is sent only when every block of every layer of the prompt is in the token
 * machine's blocks, written once; and a source block is not used again before its writes have
 * landed. A prompt that is given up sends KV_ABORTED exactly once, and nothing is left behind.
 * Method: random events in the bed of prompt_bed.h, which checks these properties. Enough events of
 * each kind must happen. */
#include "common/random.h"
#include "tests/check.h"
#include "tests/prompt_pool/prompt_bed.h"

#define STEPS 30000

static uint64_t seed;
static uint64_t draws;

static uint32_t draw(uint32_t below)
{
    return (uint32_t)(random_at(seed, ++draws) % below);
}

static void run(bool staged, bool measured)
{
    struct prompt_bed_counts counts;
    struct message_stats stats = {0};
    prompt_bed_open(staged, measured, draw);
    for (uint32_t step = 0; step < STEPS; step++) {
        prompt_bed_step();
        if (step % 500 == 0)
            prompt_bed_check();
    }
    prompt_bed_finish(&counts, &stats);
    for (uint32_t i = 0; i < PROMPT_STATE_COUNT; i++)
        CHECKF(counts.states_seen[i] > 0, "no request was in state %u", i);
    printf("%s%s: %u delivered (%u layer-wise), %u aborted, %u failed; %" PRIu64 " of %" PRIu64
           " tokens cached\n",
           staged ? "stages" : "whole", measured ? ", measured" : "", counts.ready_count,
           counts.layerwise_count, counts.aborted_count, counts.failed_count,
           stats.prefix_hit_tokens, stats.prefix_query_tokens);
    CHECK(counts.ready_count > 500 && counts.layerwise_count > 100 && counts.aborted_count > 100 &&
          counts.failed_count > 20 && counts.progress_count > 100);
    CHECK(counts.cached_tokens > 10000 && stats.prefix_hit_tokens >= counts.cached_tokens);
    CHECK(stats.prefix_hit_tokens < stats.prefix_query_tokens);
    CHECKF(!measured || (counts.decided_count[0] > 100 && counts.decided_count[1] > 100),
           "%u in one piece, %u layer by layer", counts.decided_count[0], counts.decided_count[1]);
    CHECK(counts.held_bytes > 128000 && stats.transfer_held_bytes >= counts.held_bytes);
}

int main(void)
{
    seed = test_seed();
    run(false, false);
    run(true, false);
    run(false, true);
    return 0;
}
