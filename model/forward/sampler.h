/* sampler: chooses one token from one row of logits. It has no state and uses no clock: the random
 * draw depends only on (seed, position), so a request gets the same tokens on any machine.
 * machine/executor/engine.c calls it, where the device does not sample by itself, on the engine
 * thread and on the device's worker threads; any thread may call it. It does not decide when an
 * answer ends. */
#ifndef MODEL_FORWARD_SAMPLER_H
#define MODEL_FORWARD_SAMPLER_H

#include "common/sampling.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Draws a token. `position` is the position that the new token will have in the sequence.
 * masked[0..masked_count) are ids that must not be drawn (end tokens before min_tokens is reached).
 * The vocabulary is not sorted: candidates are selected by a threshold. Requires scratch of 2 ×
 * vocab floats. */
void sampler_draw(const struct sampling *sampling, const float *logits, uint32_t vocab,
                  uint32_t position, const uint32_t *masked, uint32_t masked_count, float *scratch,
                  struct sampled *out);

/* Computes the log-probability of a given token, and `logprobs` alternatives; used to score a
 * prompt. Draws nothing. */
void sampler_score(const float *logits, uint32_t vocab, uint32_t id, int32_t logprobs,
                   struct sampled *out);

#endif
