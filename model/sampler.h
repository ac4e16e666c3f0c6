/* sampler: from one row of logits to one token. Pure: the draw is keyed by (seed, position), so a
 * request gives the same tokens whichever machine samples them. Used by both pools. */
#ifndef MODEL_SAMPLER_H
#define MODEL_SAMPLER_H

#include "common/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sampling {
    float temperature; /* 0: the most likely token (lowest id wins a tie) */
    float top_p;       /* in (0, 1]; 1: off */
    float min_p;       /* in [0, 1]; 0: off */
    uint32_t top_k;    /* 0: off */
    uint64_t seed;
    int32_t logprobs; /* -1: none; 0: the sampled token's only; up to LIMIT_LOGPROBS alternatives */
};

struct sampled {
    uint32_t id;
    float logprob; /* natural log of softmax of the raw logits (temperature 1), if asked */
    uint32_t top_count;
    uint32_t top_ids[LIMIT_LOGPROBS]; /* most likely first */
    float top_logprobs[LIMIT_LOGPROBS];
};

/* `position` is the position in the sequence that the new token will have. masked[0..masked_count)
 * are ids that must not be drawn (end tokens before min_tokens). No sort of the vocabulary:
 * selection by threshold. scratch: 2 × vocab floats. */
void sampler_draw(const struct sampling *sampling, const float *logits, uint32_t vocab,
                  uint32_t position, const uint32_t *masked, uint32_t masked_count, float *scratch,
                  struct sampled *out);

/* Only the log-probability of a given token and the alternatives (a scored prompt). */
void sampler_score(const float *logits, uint32_t vocab, uint32_t id, int32_t logprobs,
                   struct sampled *out);

#endif
