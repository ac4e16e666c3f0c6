/* sched_checkpoint: when and how the KV of running answers is copied to second machines
 * (kv/checkpoint): what the gateway (server/gateway/checkpoints.c) and the simulator
 * (tools/simulate/sim_run_copies.c) share. Any thread; no state. It starts no copy. */
#ifndef SCHEDULER_CHECKPOINT_H
#define SCHEDULER_CHECKPOINT_H

#include <stdint.h>

/* Interval of the checks for answers that have grown. */
#define SCHED_CHECKPOINT_CHECK_US 20000
/* Pause after a copy that a machine refused, for example because its memory is short. */
#define SCHED_CHECKPOINT_PAUSE_US 500000
/* Most blocks that one copy sends, so that no machine writes for long at a time. In layers with a
 * window, the blocks of the window are not divided: they make sense together only. */
#define SCHED_CHECKPOINT_BLOCKS_MAX 16

/* Returns the number of tokens in full blocks whose KV the token machine of a running answer has.
 * The machine has the KV of all tokens of prompt and answer except the last one. Requires
 * answer_tokens ≥ 1. */
static inline uint32_t sched_checkpoint_tokens(uint32_t prompt_tokens, uint32_t answer_tokens,
                                               uint32_t block_tokens)
{
    return (prompt_tokens + answer_tokens - 1) / block_tokens * block_tokens;
}

#endif
