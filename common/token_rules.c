/* token_rules: see the header. */
#include "common/token_rules.h"

#include <stdlib.h>
#include <string.h>

#define HEAD_WORDS 3

static enum status forbidden_check(const uint32_t *words, uint32_t count, struct error *error)
{
    for (uint32_t at = 0; at < count; at += 1 + words[at])
        if (words[at] == 0 || words[at] > count - at - 1)
            return error_set(error, ST_INVALID, "a forbidden sequence of %u tokens in %u words",
                             words[at], count - at - 1);
    return ST_OK;
}

enum status token_rules_check(const uint32_t *words, uint32_t count, struct token_rules *out,
                              struct error *error)
{
    struct token_rules rules = {0};
    *out = rules;
    if (count == 0)
        return ST_OK;
    if (count < HEAD_WORDS || count > LIMIT_RULE_WORDS || words[0] > LIMIT_LOGIT_BIASES ||
        words[1] > LIMIT_ALLOWED_TOKENS || words[2] > LIMIT_FORBIDDEN_WORDS ||
        count != HEAD_WORDS + 2 * words[0] + words[1] + words[2])
        return error_set(error, ST_INVALID, "the rules have wrong counts of their %u words", count);
    rules.bias_count = words[0];
    rules.allowed_count = words[1];
    rules.forbidden_words = words[2];
    rules.biases = words + HEAD_WORDS;
    rules.allowed = rules.biases + 2 * (size_t)rules.bias_count;
    rules.forbidden = rules.allowed + rules.allowed_count;
    for (uint32_t i = 0; i < rules.bias_count; i++) {
        uint32_t id;
        float bias = token_rules_bias(&rules, i, &id);
        if (!(bias >= -LIMIT_LOGIT_BIAS && bias <= LIMIT_LOGIT_BIAS))
            return error_set(error, ST_INVALID, "bias %g of token %u: want %d to %d", (double)bias,
                             id, -LIMIT_LOGIT_BIAS, LIMIT_LOGIT_BIAS);
    }
    enum status status = forbidden_check(rules.forbidden, rules.forbidden_words, error);
    if (status == ST_OK)
        *out = rules;
    return status;
}

float token_rules_bias(const struct token_rules *rules, uint32_t index, uint32_t *id_out)
{
    float bias;
    *id_out = rules->biases[2 * (size_t)index];
    memcpy(&bias, &rules->biases[2 * (size_t)index + 1], sizeof(bias));
    return bias;
}

static int by_id(const void *a, const void *b)
{
    uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
    return left < right ? -1 : left > right;
}

static uint32_t sort_unique(uint32_t *ids, uint32_t count)
{
    uint32_t kept = 0;
    if (count > 0)
        qsort(ids, count, sizeof(*ids), by_id);
    for (uint32_t i = 0; i < count; i++)
        if (kept == 0 || ids[kept - 1] != ids[i])
            ids[kept++] = ids[i];
    return kept;
}

enum status token_rules_make(const uint32_t *biases, uint32_t bias_count, uint32_t *allowed,
                             uint32_t allowed_count, const uint32_t *forbidden,
                             uint32_t forbidden_words, struct token_rules_words *out)
{
    *out = (struct token_rules_words){0};
    allowed_count = sort_unique(allowed, allowed_count);
    if (bias_count + allowed_count + forbidden_words == 0)
        return ST_OK;
    if (bias_count > LIMIT_LOGIT_BIASES || allowed_count > LIMIT_ALLOWED_TOKENS ||
        forbidden_words > LIMIT_FORBIDDEN_WORDS)
        return ST_TOO_LARGE;
    uint32_t count = HEAD_WORDS + 2 * bias_count + allowed_count + forbidden_words;
    uint32_t *words = malloc(count * sizeof(*words));
    if (words == NULL)
        return ST_NO_MEMORY;
    words[0] = bias_count;
    words[1] = allowed_count;
    words[2] = forbidden_words;
    uint32_t *to = words + HEAD_WORDS;
    if (bias_count > 0)
        memcpy(to, biases, 2 * (size_t)bias_count * sizeof(*to));
    to += 2 * (size_t)bias_count;
    if (allowed_count > 0)
        memcpy(to, allowed, allowed_count * sizeof(*to));
    to += allowed_count;
    if (forbidden_words > 0)
        memcpy(to, forbidden, forbidden_words * sizeof(*to));
    *out = (struct token_rules_words){words, count};
    return ST_OK;
}

bool token_rules_depend_on_context(const struct sampling *sampling, const uint32_t *words,
                                   uint32_t count)
{
    struct token_rules rules;
    struct error error;
    if (sampling->presence_penalty != 0.0f || sampling->frequency_penalty != 0.0f ||
        sampling_has_repetition_penalty(sampling))
        return true;
    if (token_rules_check(words, count, &rules, &error) != ST_OK)
        return false;
    for (uint32_t at = 0; at < rules.forbidden_words; at += 1 + rules.forbidden[at])
        if (rules.forbidden[at] > 1)
            return true;
    return false;
}
