/* api_logit_rules: parses the fields logit_bias, allowed_token_ids and bad_words of a request, and
 * converts them to the uint32_t words of common/token_rules.h. request.c and
 * server/http/completion_input.c call the functions on the text threads; request.c also calls
 * api_logit_rules_done on the gateway's event loop thread. The functions keep no state. They apply
 * no rules (model/forward/logit_edits.h does). */
#ifndef SERVER_API_LOGIT_RULES_H
#define SERVER_API_LOGIT_RULES_H

#include "common/token_rules.h"
#include "model/text/tokenizer.h"
#include "server/api/error.h"

#include <jansson.h>

/* The fields of one request. All zeros = no rules. All pointers are malloc'ed. */
struct api_logit_rules {
    uint32_t *biases; /* bias_count pairs: token id, bits of the float bias. */
    uint32_t bias_count;
    uint32_t *allowed_ids;  /* Tokens that the answer may have. */
    uint32_t allowed_count; /* 0 = any token. */
    char **bad_words;       /* Texts that the answer must not have; each ends with a NUL. */
    uint32_t bad_word_count;
};

/* Parses the fields of a body. *out must be all zeros. The caller frees *out with
 * api_logit_rules_done, also after a failure. Returns false, with *error filled, for a wrong value,
 * for a list or text above its limit (common/limits.h), or if there is no memory. */
bool api_logit_rules_parse(json_t *root, struct api_logit_rules *out, struct api_error *error);
/* Converts the rules to uint32_t words for a model. As in vLLM, leading spaces of a bad word are
 * cut. The bad word with one space before it is also forbidden, if this form has the same number of
 * tokens and begins with a different token. Sorts rules->allowed_ids. The caller frees out->words.
 *
 * Returns false, with *error filled, for a token id that the model does not have, for a bad word
 * that the tokenizer refuses, for bad words that need more than LIMIT_FORBIDDEN_WORDS uint32_t
 * words in all, or if there is no memory. */
bool api_logit_rules_words(const struct api_logit_rules *rules, const struct tokenizer *tokenizer,
                           struct token_rules_words *out, struct api_error *error);
/* Frees the arrays and sets *rules to all zeros. */
void api_logit_rules_done(struct api_logit_rules *rules);

#endif
