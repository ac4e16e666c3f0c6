/* sampler: chooses one token from one row of logits in host memory. The random draw depends only on
 * seed and position, so a request gets the same tokens on any machine. The engine
 * (machine/executor/engine.c) calls it for rows that the device does not sample, on the engine
 * thread and on the device's worker threads; bench-engine calls it on its main thread. It has no
 * state, and any thread may call it. It does not decide when an answer ends (machine/answer.c
 * does). */
#ifndef MODEL_FORWARD_SAMPLER_H
#define MODEL_FORWARD_SAMPLER_H

#include "common/sampling.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Draws a token with the fields temperature, min_p, top_k, top_p and seed of *sampling. Computes
 * log-probabilities as sampler_score does, if sampling->logprobs is not negative. `position` is the
 * position that the token will have in the sequence. The ids masked[0..masked_count) are not drawn,
 * unless all ids are masked. `scratch` has room for 2 × vocab floats. */
void sampler_draw(const struct sampling *sampling, const float *logits, uint32_t vocab,
                  uint32_t position, const uint32_t *masked, uint32_t masked_count, float *scratch,
                  struct sampled *out);

/* Writes a copy of the logits, from which sampler_draw draws only allowed tokens, to
 * row_out[0..vocab). row_out may be `logits`. Token `id` is allowed if bit id % 32 of
 * allowed[id / 32] is 1. Requires at least one allowed token. */
void sampler_mask(const float *logits, uint32_t vocab, const uint32_t *allowed, float *row_out);

/* Computes the log-probability of token `id`, and finds `logprobs` alternatives (at most
 * LIMIT_LOGPROBS; 0 or below = none). The caller passes logits without edits. */
void sampler_score(const float *logits, uint32_t vocab, uint32_t id, int32_t logprobs,
                   struct sampled *out);

#endif
