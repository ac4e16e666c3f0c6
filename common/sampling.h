/* sampling: how the tokens of an answer are sampled and when the answer ends, and the result of
 * sampling one token. API, messages, machines, engine and devices share these structs. */
#ifndef COMMON_SAMPLING_H
#define COMMON_SAMPLING_H

#include "common/limits.h"

#include <stdbool.h>
#include <stdint.h>

#define SAMPLING_ENDS_MAX 16

/* The parameters of a request. The sampler reads the fields up to `logprobs`; the others decide when
 * the answer ends. The struct has no hidden padding. */
struct sampling {
    float temperature; /* 0 = always the most likely token; among equals, the lowest id. */
    float top_p;       /* In (0, 1]; 1 = off. */
    float min_p;       /* In [0, 1]; 0 = off. */
    uint32_t top_k;    /* 0 = off. */
    uint64_t seed;
    /* Alternatives to report, at most LIMIT_LOGPROBS; 0 = only the sampled token; -1 = none. */
    int32_t logprobs;
    /* At least 1; 0 = score the prompt only (PREFILL with score_prompt). */
    uint32_t output_tokens_max;
    /* End tokens are not sampled before the answer has this many tokens. */
    uint32_t output_tokens_min;
    uint32_t end_count; /* Number of tokens in `ends`, each of which ends the answer. */
    bool ignore_end;
    uint8_t padding[7];
    uint32_t ends[SAMPLING_ENDS_MAX];
};

/* A sampled or scored token. */
struct sampled {
    uint32_t id;
    /* Natural logarithm of the token's softmax probability, from the raw logits at temperature 1.
     * 0 if log-probabilities are not wanted. */
    float logprob;
    uint32_t top_count;
    uint32_t top_ids[LIMIT_LOGPROBS]; /* The most likely token is first. */
    float top_logprobs[LIMIT_LOGPROBS];
};

#endif
