/* sampler: chooses one token from one row of logits in host memory. Equal arguments give equal
 * results on any CPU. A machine's engine calls the functions for rows that the device does not
 * sample. Any thread; no state. This part does not decide when an answer ends. */
#ifndef MODEL_FORWARD_SAMPLER_H
#define MODEL_FORWARD_SAMPLER_H

#include "common/sampling.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Draws a token with the fields temperature, min_p, top_k, top_p and seed of *sampling. `position`
 * is the position that the token will have in the sequence. The ids masked[0..masked_count) are
 * not drawn; if all ids are masked, the token is 0. If sampling->logprobs is not negative, also
 * computes the results of sampler_score. `scratch` has room for 2 × vocab floats. */
void sampler_draw(const struct sampling *sampling, const float *logits, uint32_t vocab,
                  uint32_t position, const uint32_t *masked, uint32_t masked_count, float *scratch,
                  struct sampled *out);

/* Copies the logits to row_out[0..vocab), and makes the logits of tokens that are not allowed so
 * low that sampler_draw draws only allowed tokens. row_out may be equal to `logits`. Token `id` is
 * allowed if bit id % 32 of allowed[id / 32] is 1. Requires that a token is allowed. */
void sampler_mask(const float *logits, uint32_t vocab, const uint32_t *allowed, float *row_out);

/* Computes the log-probability of token `id`, and finds the `logprobs` most likely tokens (at most
 * LIMIT_LOGPROBS; 0 or below = none). */
void sampler_score(const float *logits, uint32_t vocab, uint32_t id, int32_t logprobs,
                   struct sampled *out);

#endif
