/* sampling: struct sampling has a request's rules for choosing tokens and for ending the answer;
 * struct sampled is one chosen token. The gateway fills in the rules, and messages carry them to
 * machines. The samplers of the host (model/forward/sampler.h) and of GPUs (compute/sampling.h)
 * choose tokens by these rules; model/forward/logit_edits.h has the order of the rules. The structs
 * are data only, for any thread. Biases, allowed tokens and forbidden sequences are in
 * common/token_rules.h; stop strings are in server/api/stop_strings.h. */
#ifndef COMMON_SAMPLING_H
#define COMMON_SAMPLING_H

#include "common/limits.h"

#include <stdbool.h>
#include <stdint.h>

#define SAMPLING_ENDS_MAX 16 /* Most ids in `end_tokens`. */

/* The rules of one request. Messages contain the struct's bytes, so it has no hidden padding. */
struct sampling {
    float temperature; /* 0 = always the most likely token; of equal tokens the lowest id. */
    float top_p;       /* In (0, 1]; 1 = off. */
    float min_p;       /* In [0, 1]; 0 = off. */
    uint32_t top_k;    /* 0 = off. */
    uint64_t seed;     /* Key of the random draws; a draw depends only on seed and position. */
    /* Number of alternative tokens whose log-probabilities are reported with each sampled token; at
     * most LIMIT_LOGPROBS. 0 = only the log-probability of the sampled token; -1 = none. */
    int32_t logprobs;
    /* Most tokens of the answer; 0 = no answer: the prompt is only scored or embedded. In messages
     * of a resumed request, only tokens after the resume count. */
    uint32_t output_tokens_max;
    /* Tokens in `end_tokens` are not sampled before the answer has this number of tokens. In
     * messages of a resumed request, only tokens after the resume count. */
    uint32_t output_tokens_min;
    /* Subtracted from the logits of tokens that the answer so far contains. In [-2, 2]; 0 = off. */
    float presence_penalty;
    /* Subtracted once for each occurrence of a token in the answer so far. In [-2, 2]; 0 = off. */
    float frequency_penalty;
    /* For each token that prompt or answer contains: a logit above 0 is divided by this number,
     * any other logit is multiplied by this number. At most LIMIT_REPETITION_PENALTY; 0 and 1 =
     * off. */
    float repetition_penalty;
    /* Number of tokens at the end of the prompt that belong to the answer, because the request was
     * resumed; 0 = none. The penalties count these tokens as the answer's. */
    uint32_t answer_tokens;
    /* 1 + the index of the low-rank adapter with which the request is computed; 0 = none. */
    uint32_t adapter;
    uint32_t padding;                       /* 0. */
    uint32_t end_count;                     /* Number of ids in `end_tokens`. */
    uint32_t end_tokens[SAMPLING_ENDS_MAX]; /* Ids of the tokens that end the answer. */
};

/* Returns true if repetition_penalty is on. */
static inline bool sampling_has_repetition_penalty(const struct sampling *sampling)
{
    return sampling->repetition_penalty != 0.0f && sampling->repetition_penalty != 1.0f;
}

/* Input for sampling one token, besides struct sampling. All zeros = none. The part that fills in
 * the struct owns the arrays, and keeps them until the token is sampled. */
struct sample_context {
    const uint32_t *rules;  /* [rule_count] words, as common/token_rules.h defines them. */
    const uint32_t *tokens; /* [token_count] ids: the prompt, then the answer so far. */
    uint32_t rule_count;
    uint32_t token_count; /* 0 = earlier tokens are not needed (token_rules_depend_on_context). */
    /* Number of `tokens` that belong to the prompt, without the answer_tokens of struct
     * sampling. */
    uint32_t prompt_count;
};

/* A sampled or scored token. */
struct sampled {
    uint32_t id; /* Id of the token in the vocabulary. */
    /* Natural logarithm of the token's softmax probability at temperature 1, from the model's
     * logits before any rule is applied. 0 if log-probabilities are not wanted. */
    float logprob;
    uint32_t top_count;                 /* Number of alternative tokens. */
    uint32_t top_ids[LIMIT_LOGPROBS];   /* The alternative tokens, the most likely token first. */
    float top_logprobs[LIMIT_LOGPROBS]; /* Log-probability of each alternative. */
};

#endif
