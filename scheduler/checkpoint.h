/* sched_checkpoint: decides when KV of a running answer is copied to a second machine (config key
 * kv/checkpoint), and how much KV, so that the death of the token machine costs few tokens. The
 * gateway and the simulator call the functions, which keep no state; any thread may call them. They
 * start no copy.
 *
 * The next copy of an answer is due one interval (kv/checkpoint_ms) after the previous copy began.
 * A copy sends full blocks of the answer's context that the second machine lacks, in layers without
 * a window at most SCHED_CHECKPOINT_BLOCKS_MAX spans. If blocks are left, the next copy is due at
 * once.
 */
#ifndef SCHEDULER_CHECKPOINT_H
#define SCHEDULER_CHECKPOINT_H

#include <stdbool.h>
#include <stdint.h>

/* Time until the next check of an answer whose copy is due but must wait. */
#define SCHED_CHECKPOINT_CHECK_US 20000
/* Least time until an answer's next copy if a copy has failed, or if no machine can keep a copy. */
#define SCHED_CHECKPOINT_PAUSE_US 500000
/* Most spans that one copy sends in layers without a window, so that no machine writes for long at
 * a time. In layers with a window, one copy sends all blocks, which are useful only together. */
#define SCHED_CHECKPOINT_BLOCKS_MAX 16

/* Returns the time at which the first copy of an answer that begins at now_us is due: half an
 * interval to a whole interval later. `number` = number of the request, which spreads the times. */
static inline int64_t sched_checkpoint_first_us(int64_t now_us, uint32_t interval_ms,
                                                uint64_t number)
{
    const uint64_t half_us = interval_ms * 500ull;
    const uint64_t fraction = (number * 0x9e3779b97f4a7c15u) >> 32; /* Of 2^32. */
    return now_us + (int64_t)(half_us + (half_us * fraction >> 32));
}

/* Returns the time at which the next copy is due. begun_us = time at which the previous copy began;
 * partial = the previous copy sent only some of the full blocks that the second machine lacked. */
static inline int64_t sched_checkpoint_next_us(int64_t begun_us, uint32_t interval_ms, bool partial)
{
    return begun_us + (partial ? 0 : interval_ms * 1000ll);
}

/* Returns the number of tokens in the full blocks of a running answer's context on the token
 * machine. answer_tokens = number of generated tokens, ≥ 1; the last of them has no KV yet. */
static inline uint32_t sched_checkpoint_tokens(uint32_t prompt_tokens, uint32_t answer_tokens,
                                               uint32_t block_tokens)
{
    return (prompt_tokens + answer_tokens - 1) / block_tokens * block_tokens;
}

/* Returns true if a copy of complete_tokens tokens (sched_checkpoint_tokens) is useful: the second
 * machine has KV of fewer tokens (resumable_tokens), and the answer has more than a block of tokens
 * left to generate. */
static inline bool sched_checkpoint_is_useful(uint32_t complete_tokens, uint32_t resumable_tokens,
                                              uint32_t tokens_left, uint32_t block_tokens)
{
    return complete_tokens > resumable_tokens && tokens_left > block_tokens;
}

#endif
