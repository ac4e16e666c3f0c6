/* sched_checkpoint: when and how much KV of running answers is copied to second machines
 * (kv/checkpoint). The gateway and the simulator call the functions. They keep no state, any thread
 * may call them, and they start no copy.
 *
 * An answer is copied at most once per interval (kv/checkpoint_ms), and each copy brings all full
 * blocks that the second machine lacks. So the death of a token machine costs an answer the tokens
 * of one interval, of the block that is not full, and of a copy under way. The first copy can wait
 * up to an interval, because the machine that computed the prompt still keeps the prompt's KV. If a
 * link is in use when a copy is due, the copy is made when the link is free. */
#ifndef SCHEDULER_CHECKPOINT_H
#define SCHEDULER_CHECKPOINT_H

#include <stdbool.h>
#include <stdint.h>

/* Least time between two checks for answers that wait for a full block or for a link. */
#define SCHED_CHECKPOINT_CHECK_US 20000
/* Pause after a copy that a machine refused, for example because its memory is short. */
#define SCHED_CHECKPOINT_PAUSE_US 500000
/* Most blocks that one copy sends, so that no machine writes for long at a time; the next part
 * follows at once. In layers with a window, the blocks of the window are not divided, because they
 * are useful only together. */
#define SCHED_CHECKPOINT_BLOCKS_MAX 16

/* Returns the time at which the first copy of an answer that begins at now_us is due: half an
 * interval to a whole interval later. `number` is the request's number. Answers that begin together
 * get different times, because multiples of the golden ratio spread consecutive numbers evenly. */
static inline int64_t sched_checkpoint_first_us(int64_t now_us, uint32_t interval_ms,
                                                uint64_t number)
{
    const uint64_t half_us = interval_ms * 500ull;
    const uint64_t fraction = (number * 0x9e3779b97f4a7c15u) >> 32; /* Of 2^32. */
    return now_us + (int64_t)(half_us + (half_us * fraction >> 32));
}

/* Returns the time at which the next copy is due. begun_us = time at which the previous copy began;
 * partial = the previous copy brought only a part of the full blocks. */
static inline int64_t sched_checkpoint_next_us(int64_t begun_us, uint32_t interval_ms, bool partial)
{
    return begun_us + (partial ? 0 : interval_ms * 1000ll);
}

/* Returns the number of tokens in full blocks whose KV the token machine of a running answer has.
 * The machine has the KV of all tokens of prompt and answer except the last one. Requires
 * answer_tokens ≥ 1. */
static inline uint32_t sched_checkpoint_tokens(uint32_t prompt_tokens, uint32_t answer_tokens,
                                               uint32_t block_tokens)
{
    return (prompt_tokens + answer_tokens - 1) / block_tokens * block_tokens;
}

/* Returns true if a copy of `complete` tokens is useful: the second machine has fewer
 * (`resumed_tokens`), and the answer still has more than a block of tokens to generate. Without the
 * second condition, copies would be made for answers that end meanwhile. */
static inline bool sched_checkpoint_is_useful(uint32_t complete, uint32_t resumed_tokens,
                                              uint32_t tokens_left, uint32_t block_tokens)
{
    return complete > resumed_tokens && tokens_left > block_tokens;
}

#endif
