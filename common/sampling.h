/* sampling: struct sampling has a request's rules for choosing tokens and for ending the answer;
 * struct sampled is one chosen token. The gateway fills in the rules (server/api/request.c,
 * server/http/completion.c), and messages carry them to machines. The samplers of the host
 * (model/forward/sampler.h) and of GPUs (compute/sampling.h) choose tokens according to these
 * rules, and machine/answer.c decides when an answer ends. The structs are data only, for any
 * thread. Rules that name tokens are in common/token_rules.h. Stop strings are not here: the
 * gateway looks for them (server/api/stop_strings.h). */
#ifndef COMMON_SAMPLING_H
#define COMMON_SAMPLING_H

#include "common/limits.h"

#include <stdbool.h>
#include <stdint.h>

#define SAMPLING_ENDS_MAX 16 /* Most different tokens that end an answer. */

/* The rules of one request. The struct has no hidden padding, because messages contain its
 * bytes. */
struct sampling {
    float temperature; /* 0 = always the most likely token; among equals, the lowest id. */
    float top_p;       /* In (0, 1]; 1 = off. */
    float min_p;       /* In [0, 1]; 0 = off. */
    uint32_t top_k;    /* 0 = off. */
    uint64_t seed;     /* Key of the random draws; a draw depends only on seed and position. */
    /* Alternatives whose log-probabilities are reported with each sampled token, at most
     * LIMIT_LOGPROBS; 0 = only the sampled token's log-probability is reported; -1 = none is. */
    int32_t logprobs;
    /* Most tokens of the answer; 0 = no answer: the prompt is only scored or embedded (message
     * PREFILL with score_prompt or pooling). */
    uint32_t output_tokens_max;
    /* Tokens in `end_tokens` are not sampled before the answer has this number of tokens. */
    uint32_t output_tokens_min;
    /* As in vLLM: from the logit of each token that the answer so far contains, presence_penalty is
     * subtracted once, and frequency_penalty once for each occurrence. In [-2, 2]; 0 = off. */
    float presence_penalty;
    float frequency_penalty;
    /* The logit of each token that prompt or answer contains is divided by this number if it is
     * above 0, else multiplied by it. At most LIMIT_REPETITION_PENALTY; 0 and 1 = off. */
    float repetition_penalty;
    /* Number of tokens at the prompt's end that are tokens of the answer, because the request was
     * resumed; 0 = none. The penalties count them as answer. */
    uint32_t answer_tokens;
    /* 1 + the index of the low-rank adapter with which the request is computed; 0 = none. The
     * sampler does not read it. */
    uint32_t adapter;
    uint32_t padding;
    uint32_t end_count;                     /* Number of ids in `end_tokens`. */
    uint32_t end_tokens[SAMPLING_ENDS_MAX]; /* Ids of the tokens that end the answer. */
};

/* Returns true if repetition_penalty is on. */
static inline bool sampling_has_repetition_penalty(const struct sampling *sampling)
{
    return sampling->repetition_penalty != 0.0f && sampling->repetition_penalty != 1.0f;
}

/* What the sampler of one token reads besides struct sampling. All zeros = nothing. The part that
 * fills in the struct owns both arrays; they must be valid until the token is sampled. */
struct sample_context {
    const uint32_t *rules;  /* [rule_count] 32-bit words, as common/token_rules.h defines them. */
    const uint32_t *tokens; /* [token_count] ids: the prompt, then the answer so far. */
    uint32_t rule_count;
    uint32_t token_count; /* 0 = earlier tokens are not needed (token_rules_read_context). */
    /* tokens[0..prompt_count) are the prompt, without the answer_tokens of a resumed request. */
    uint32_t prompt_count;
};

/* A sampled or scored token. */
struct sampled {
    uint32_t id; /* Id of the token in the vocabulary. */
    /* Natural logarithm of the token's softmax probability at temperature 1, without top_k, top_p
     * and min_p. 0 if log-probabilities are not wanted. */
    float logprob;
    uint32_t top_count;                 /* Number of alternatives. */
    uint32_t top_ids[LIMIT_LOGPROBS];   /* The alternatives; the most likely token is first. */
    float top_logprobs[LIMIT_LOGPROBS]; /* Log-probability of each alternative. */
};

#endif
