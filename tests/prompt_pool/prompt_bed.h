/* prompt_bed: the prompt pool alone with a real scheduler, block pool and prefix cache, for the
 * random test and the fuzz target of the pool. The bed plays the engine (it writes a pattern of
 * layer, block and all tokens so far, and checks the pattern of the blocks that it reads), the
 * gateway and the token machine over the loopback transport, which copies as late as allowed.
 * Random prompts, many of which begin alike, chunks, cancels, held writes and dropped connections;
 * a token machine without stages, or one with three stages and two replicas of the last. After each
 * event, what each request holds fits its state.
 *
 * It checks that KV_READY is sent only when every block of every layer of the prompt is in the
 * token machine's blocks, written once, and PROGRESS only when its tokens are; that a source block
 * is not used again before its writes have landed; that a prompt that is given up sends KV_ABORTED
 * exactly once; and that nothing is left behind. One bed at a time, on the main thread. */
#ifndef TESTS_PROMPT_POOL_PROMPT_BED_H
#define TESTS_PROMPT_POOL_PROMPT_BED_H

#include "prompt_pool/prompt_state.h"

/* Makes every choice of the bed: returns a number below `below`, which is at least 1. */
typedef uint32_t (*prompt_bed_draw)(uint32_t below);

struct prompt_bed_counts {
    uint32_t ready_count, aborted_count, failed_count, layerwise_count;
    uint32_t progress_count; /* PROGRESS messages to the token machine. */
    uint64_t cached_tokens;
    uint64_t held_bytes; /* Bytes of blocks that were not pushed. */
    uint64_t states_seen[PROMPT_STATE_COUNT];
};

void prompt_bed_open(bool staged, prompt_bed_draw choose);
void prompt_bed_step(void);  /* One event. */
void prompt_bed_check(void); /* Checks the block pool and the prefix cache as a whole. */
/* Ends every request, checks that nothing is left, and closes the bed. */
void prompt_bed_finish(struct prompt_bed_counts *counts_out, struct message_stats *stats_out);

#endif
