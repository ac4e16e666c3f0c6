/* api_logit_rules: parses the fields logit_bias, allowed_token_ids and bad_words of a request, and
 * converts them to the uint32_t words of common/token_rules.h. request.c and
 * server/http/completion_input.c call it on the text threads. The functions keep no state, and any
 * thread may call them. The numbers of rules are limited by LIMIT_LOGIT_BIASES,
 * LIMIT_ALLOWED_TOKENS, LIMIT_BAD_WORDS (texts of at most LIMIT_STOP_BYTES bytes) and
 * LIMIT_FORBIDDEN_WORDS. This part applies no rules (model/forward/logit_edits.h does). */
#ifndef SERVER_API_LOGIT_RULES_H
#define SERVER_API_LOGIT_RULES_H

#include "common/token_rules.h"
#include "model/text/tokenizer.h"
#include "server/api/error.h"

#include <jansson.h>

/* The fields of one request. All zeros = no rules. All pointers are malloc'ed. */
struct api_logit_rules {
    uint32_t *biases; /* Pairs: token id, bits of the float bias. */
    uint32_t bias_count;
    uint32_t *allowed;
    uint32_t allowed_count;
    char **bad_words; /* Texts with a NUL. */
    uint32_t bad_word_count;
};

/* Parses the fields of a body. *out must be all zeros. Returns false, with *error filled, on
 * failure. The caller frees *out with api_logit_rules_done in both cases. */
bool api_logit_rules_parse(json_t *root, struct api_logit_rules *out, struct api_error *error);
/* Makes the words for a model. As in vLLM, leading spaces of a bad word are cut, and the word with
 * one space before it is forbidden too if it has as many tokens and another first token. Sorts
 * `allowed`. The caller frees out->words. Returns false, with *error filled, on failure. */
bool api_logit_rules_words(const struct api_logit_rules *rules, const struct tokenizer *tokenizer,
                           struct token_rules_words *out, struct api_error *error);
void api_logit_rules_done(struct api_logit_rules *rules);

#endif
