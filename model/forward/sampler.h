/* sampler: chooses one token from one row of logits. The random draw depends only on seed and
 * position, so a request gets the same tokens on any machine. machine/executor/engine.c and
 * bench-engine call it, the engine for rows that the device does not sample by itself. Any thread;
 * no state. It does not decide when an answer ends (machine/answer.c does). */
#ifndef MODEL_FORWARD_SAMPLER_H
#define MODEL_FORWARD_SAMPLER_H

#include "common/sampling.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Draws a token, and computes its log-probability and alternatives if sampling->logprobs asks for
 * them. `position` is the position that the token will have in the sequence. The ids
 * masked[0..masked_count) are not drawn, unless all ids are masked. `scratch` has room for 2 ×
 * vocab floats. */
void sampler_draw(const struct sampling *sampling, const float *logits, uint32_t vocab,
                  uint32_t position, const uint32_t *masked, uint32_t masked_count, float *scratch,
                  struct sampled *out);

/* Writes a row of logits in which no token outside the mask can be drawn: bit id % 32 of word
 * id / 32 of `allowed` is 1 if token `id` may be drawn. Requires one such token. */
void sampler_mask(const float *logits, uint32_t vocab, const uint32_t *allowed, float *row_out);

/* Computes the log-probability of token `id` and `logprobs` (up to LIMIT_LOGPROBS) alternatives,
 * from logits without edits. */
void sampler_score(const float *logits, uint32_t vocab, uint32_t id, int32_t logprobs,
                   struct sampled *out);

#endif
