/* token_rules: the rules of one request that name tokens: biases, allowed tokens and forbidden
 * sequences. The rules are one array of words (uint32_t), so that messages can carry them. The
 * gateway makes the words; the receiver of a message checks them; model/forward/logit_edits.h
 * applies the rules to logits. The functions keep no state, and any thread may call them. They do
 * not check the words against a vocabulary.
 *
 * The words are, in this order:
 *   bias_count, allowed_count and forbidden_words of struct token_rules,
 *   the biases: for each, an id and the bits of a float,
 *   the allowed ids, in ascending order,
 *   the forbidden sequences: for each, its length (at least 1) and its ids.
 * An empty array means no rules. */
#ifndef COMMON_TOKEN_RULES_H
#define COMMON_TOKEN_RULES_H

#include "common/sampling.h"
#include "common/status.h"

/* The parts of checked words. The pointers point into the words, which the caller owns. */
struct token_rules {
    uint32_t bias_count;      /* Number of biases. */
    uint32_t allowed_count;   /* Number of allowed ids; 0 = every token is allowed. */
    uint32_t forbidden_words; /* Words of all forbidden sequences, including their lengths. */
    const uint32_t *biases;
    const uint32_t *allowed;
    const uint32_t *forbidden;
};

/* Checks words[0..count), except the order of the allowed ids, and stores their parts. Returns
 * ST_INVALID if a count or a length is wrong or above its limit (common/limits.h), or if a bias is
 * not from -LIMIT_LOGIT_BIAS to LIMIT_LOGIT_BIAS; *out then has no rules. */
enum status token_rules_check(const uint32_t *words, uint32_t count, struct token_rules *out,
                              struct error *error);

/* Returns the bias with this index, and stores the id of its token. Requires index <
 * bias_count. */
float token_rules_bias(const struct token_rules *rules, uint32_t index, uint32_t *id_out);

/* The words of one request's rules. All zeros = no rules. */
struct token_rules_words {
    uint32_t *words; /* malloc'ed; NULL = no rules. */
    uint32_t count;
};

/* Makes the words of rules from their parts, in the form described above. `allowed` may have any
 * order and repeated ids; the function sorts it in place. Without rules, *out has no words. Returns
 * ST_NO_MEMORY, or ST_TOO_LARGE if a count is above its limit (common/limits.h); *out then has no
 * words. The caller frees out->words. */
enum status token_rules_make(const uint32_t *biases, uint32_t bias_count, uint32_t *allowed,
                             uint32_t allowed_count, const uint32_t *forbidden,
                             uint32_t forbidden_words, struct token_rules_words *out);

/* Returns true if sampling depends on earlier tokens of the request: a penalty of `sampling` is on,
 * or a forbidden sequence has more than one token. Requires words that token_rules_check has
 * accepted. */
bool token_rules_depend_on_context(const struct sampling *sampling, const uint32_t *words,
                                   uint32_t count);

#endif
