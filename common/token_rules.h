/* token_rules: the rules of one request that name tokens: biases, allowed tokens, forbidden
 * sequences. They are one array of words (uint32_t), so that messages can carry them and requests
 * can copy them. The API's parser builds the words; the decoders of messages check them; the
 * samplers read them (model/forward/logit_edits.h). The functions keep no state, and any thread may
 * call them. They do not check the words against a vocabulary: a reader ignores ids that its model
 * lacks.
 *
 * The words: the three counts of struct token_rules, then the biases (two words each: an id, and
 * the bits of a float), the allowed ids in ascending order, and the forbidden sequences (each a
 * length of at least 1, then this number of ids). An empty array means no rules. */
#ifndef COMMON_TOKEN_RULES_H
#define COMMON_TOKEN_RULES_H

#include "common/sampling.h"
#include "common/status.h"

/* A view of words that have been checked. The pointers point into the words. */
struct token_rules {
    uint32_t bias_count;
    uint32_t allowed_count;   /* 0 = every token is allowed. */
    uint32_t forbidden_words; /* Words of all forbidden sequences, lengths included. */
    const uint32_t *biases;
    const uint32_t *allowed;
    const uint32_t *forbidden;
};

/* Checks words[0..count) and returns a view. Returns ST_INVALID if a count or a length is wrong, or
 * if a bias is not from -LIMIT_LOGIT_BIAS to LIMIT_LOGIT_BIAS; *out then has no rules. */
enum status token_rules_read(const uint32_t *words, uint32_t count, struct token_rules *out,
                             struct error *error);

/* Returns the id and the bias of biases[index]. */
float token_rules_bias(const struct token_rules *rules, uint32_t index, uint32_t *id_out);

/* The rules under construction. All zeros = no rules. */
struct token_rules_words {
    uint32_t *words; /* malloc'ed; the caller frees it. NULL = no rules. */
    uint32_t count;
};

/* Makes the words. `biases` and `forbidden` are as in struct token_rules; `allowed` may have any
 * order and repetitions, and is sorted in place. Returns ST_NO_MEMORY, or ST_TOO_LARGE if a count
 * is above its limit (common/limits.h); *out then has no rules. */
enum status token_rules_write(const uint32_t *biases, uint32_t bias_count, uint32_t *allowed,
                              uint32_t allowed_count, const uint32_t *forbidden,
                              uint32_t forbidden_words, struct token_rules_words *out);

/* Returns true if sampling with these rules depends on the tokens before the sampled one: a penalty
 * is on, or a forbidden sequence has more than one token. Requires words that have been checked. */
bool token_rules_read_context(const struct sampling *sampling, const uint32_t *words,
                              uint32_t count);

#endif
