/* prompt_bed: a test bed for the prompt pool, with a real scheduler, block pool and prefix cache.
 * test_prompt_pool.c and fuzz_prompt_pool.c use it. The bed takes the part of the engine: it writes
 * a pattern that depends on layer, block and all tokens so far, and checks the pattern of the
 * blocks that it reads. It also takes the parts of the gateway and of the token machine, over the
 * loopback transport, which copies as late as allowed. The token machine has no stages, or three
 * stages with two replicas of the last one. Each event is random: a prompt (many prompts begin
 * alike), a chunk, a CANCEL, writes that are held back, or a dropped connection.
 *
 * After each event the bed checks these rules:
 * - Each request holds the resources of its state, and no others.
 * - KV_READY is sent only when every block of every layer of the prompt was written once into the
 *   token machine's blocks. PROGRESS is sent only when the KV of the tokens that it names was.
 * - A source block is not used again before its writes have landed.
 * - KV_ABORTED is sent exactly once for a prompt that is given up.
 * - At the end, no block and no request is left.
 * There is one bed at a time, on the main thread. It computes no model. */
#ifndef TESTS_PROMPT_POOL_PROMPT_BED_H
#define TESTS_PROMPT_POOL_PROMPT_BED_H

#include "prompt_pool/prompt_state.h"

/* Makes every choice of the bed: returns a number below `below`, which is at least 1. */
typedef uint32_t (*prompt_bed_draw)(uint32_t below);

struct prompt_bed_counts {
    uint32_t ready_count, aborted_count, failed_count, layerwise_count;
    uint32_t decided_count[2]; /* By a measured link: in one piece, layer by layer. */
    uint32_t progress_count;   /* PROGRESS messages to the token machine. */
    uint64_t cached_tokens;
    uint64_t held_bytes; /* KV bytes that were not pushed, because the token machine had them. */
    uint64_t states_seen[PROMPT_STATE_COUNT];
};

/* measured = true: measured speeds decide which prompts are sent layer by layer; false: their
 * length. */
void prompt_bed_open(bool staged, bool measured, prompt_bed_draw choose);
void prompt_bed_step(void);  /* One event. */
void prompt_bed_check(void); /* Checks the block pool and the prefix cache as a whole. */
/* Ends every request, checks that nothing is left, and closes the bed. */
void prompt_bed_finish(struct prompt_bed_counts *counts_out, struct message_stats *stats_out);

#endif
