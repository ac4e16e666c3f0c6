/* pace: decides how much computing time prompts get between the steps of running answers, on one
 * machine or on several machines that take turns on the same cores. A machine has one struct
 * sched_pace on its event loop thread; the simulator has one for each simulated machine. Any thread
 * may call sched_pace_share_us and sched_pace_share_tokens. Pure: no clock and no I/O. The functions
 * choose no requests (scheduler/machine/machine.h does) and measure nothing.
 *
 * A *step* is a batch without prompts, in which running answers get a token each. Between two
 * steps, prompts get a *share* of t microseconds. *Open* prompts are prompts whose last chunk is
 * not computed. If the open prompts need P microseconds of computing and a step takes s
 * microseconds, the last of these prompts is done after P (t + s) / t, and an answer gets a token
 * every t + s. These two times are equal parts of their targets TTFT and TBT if
 *
 *     t = P × TBT / TTFT.
 *
 * So a short queue delays the answers little, and a long queue does not wait for the answers. The
 * share is at least s / 2, and at most TBT - s or s, whichever is larger. A machine takes for P a
 * geometric mean over about the last second in which prompts were open, so that the share does not
 * follow each change. */
#ifndef SCHEDULER_PACE_H
#define SCHEDULER_PACE_H

#include <stdbool.h>
#include <stdint.h>

/* Batches with prompts only are put into classes by their size: class i has batches of 2^i to
 * 2^(i+1) - 1 tokens; the last class also has all larger batches. */
#define SCHED_PACE_SIZES 13

/* Compute times of a machine, from its latest batches. All zeros = nothing is known. */
struct sched_pace {
    double prompt_token_us; /* Mean time of a prompt token; 0 = not known. */
    double step_us;         /* Mean time of a batch without prompts; 0 = not known. */
    /* Geometric mean of the tokens of the open prompts while prompts were open; 0 = not known. */
    double open_tokens;
    int64_t open_at_us; /* Time of the latest sched_pace_open_add. */
    struct {
        double tokens;   /* Mean tokens of a batch; 0 = there was no batch of this class. */
        double batch_us; /* Mean time of a batch. */
    } sizes[SCHED_PACE_SIZES];
};

struct sched_pace_targets {
    int64_t ttft_us; /* > 0 */
    int64_t tbt_us;  /* > 0 */
};

/* Returns the share of prompts in microseconds, ≥ 1. prompts_us = compute time of all open prompts
 * (P); steps_us = time of the steps between two shares (s). */
int64_t sched_pace_share_us(const struct sched_pace_targets *targets, double prompts_us,
                            double steps_us);

/* Returns about as many prompt tokens as a machine computes in a share: whole chunks of
 * LIMIT_CHUNK_TOKENS_MIN, at least one chunk, at most tokens_max. prompt_token_us = time of a
 * prompt token; 0 = not known: returns the most. Requires tokens_max >= LIMIT_CHUNK_TOKENS_MIN. */
uint32_t sched_pace_share_tokens(int64_t share_us, double prompt_token_us, uint32_t tokens_max);

/* Records a batch with `decodes` rows of decodes and prompt_tokens prompt tokens that was computed
 * in batch_us. No effect if batch_us is 0. */
void sched_pace_batch_add(struct sched_pace *pace, uint32_t decodes, uint32_t prompt_tokens,
                          uint64_t batch_us);

/* Records the tokens of the open prompts; 0 = no prompt is open. Called each time the machine looks
 * for its next batch, even if no batch begins. */
void sched_pace_open_add(struct sched_pace *pace, uint64_t tokens, int64_t now_us);

/* Returns the most prompt tokens for a batch that also decodes: those of the share of the machine's
 * open prompts (sched_pace_share_tokens). Requires tokens_max >= LIMIT_CHUNK_TOKENS_MIN. */
uint32_t sched_pace_mixed_tokens(const struct sched_pace *pace,
                                 const struct sched_pace_targets *targets, uint32_t tokens_max);

/* Returns the least number of prompt tokens with which a batch is about as fast per token as a
 * batch of any size: in a larger batch, prompts would only wait for each other. Until batches of
 * two classes were measured, returns tokens_if_unknown. The result is at most tokens_max. */
uint32_t sched_pace_fill_tokens(const struct sched_pace *pace, uint32_t tokens_if_unknown,
                                uint32_t tokens_max);

/* Returns the microseconds of the turn that a batch gets on cores that machines share. A batch with
 * prompts (has_prompts) gets the share of this machine's open prompts, but at least the time of
 * LIMIT_CHUNK_TOKENS_MIN prompt tokens. Any other batch gets the TBT target. other_steps_us = sum
 * of the step times of the other machines on these cores (turns_other_steps_us). */
uint32_t sched_pace_turn_us(const struct sched_pace *pace, const struct sched_pace_targets *targets,
                            bool has_prompts, double other_steps_us);

#endif
