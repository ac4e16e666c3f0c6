/* api_logit_words: the part of logit_rules.h that needs a tokenizer. */
#include "server/api/logit_rules.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool out_of_memory(struct api_error *error)
{
    return api_error_set(error, 503, NULL, "out of memory");
}

static bool id_check(uint32_t id, uint32_t vocab, const char *field, struct api_error *error)
{
    if (id < vocab)
        return true;
    api_error_set(error, 400, field, "%s names token %u: the model's vocabulary has ids 0 to %u",
                  field, id, vocab - 1);
    error->code = "invalid_value";
    return false;
}

/* The token sequences of all bad words. */
struct sequences {
    uint32_t *words; /* [LIMIT_FORBIDDEN_WORDS] */
    uint32_t count;
};

/* Adds the tokens of `text`. As in vLLM, the tokens of a word with a space in front are added only
 * if they are as many as those of the word without the space (at `plain`) and begin with another
 * token. *at_out = where the sequence is; UINT32_MAX = not added. */
static bool sequence_add(struct sequences *to, const struct tokenizer *tokenizer, const char *text,
                         uint32_t plain, uint32_t *at_out, struct api_error *error)
{
    const struct tokenizer_encode_options options = {0};
    uint32_t *ids = NULL;
    size_t capacity = 0, count = 0;
    struct error why = {0};
    enum status status =
        tokenizer_encode(tokenizer, text, strlen(text), &options, &ids, &capacity, &count, &why);
    *at_out = UINT32_MAX;
    bool good = status == ST_OK;
    const bool adds =
        good && count > 0 &&
        (plain == UINT32_MAX || (to->words[plain] == count && to->words[plain + 1] != ids[0]));
    if (!good) {
        api_error_set(error, status == ST_INVALID ? 400 : 503, "bad_words", "bad_words: %s",
                      why.text);
    } else if (adds && count + 1 > LIMIT_FORBIDDEN_WORDS - to->count) {
        good = api_error_set(error, 400, "bad_words", "bad_words have too many tokens: want %d",
                             LIMIT_FORBIDDEN_WORDS);
    } else if (adds) {
        *at_out = to->count;
        to->words[to->count++] = (uint32_t)count;
        memcpy(to->words + to->count, ids, count * sizeof(*ids));
        to->count += (uint32_t)count;
    }
    free(ids);
    return good;
}

static bool sequences_make(const struct api_logit_rules *rules, const struct tokenizer *tokenizer,
                           struct sequences *to, struct api_error *error)
{
    for (uint32_t i = 0; i < rules->bad_word_count; i++) {
        const char *word = rules->bad_words[i] + strspn(rules->bad_words[i], " ");
        char spaced[LIMIT_STOP_BYTES + 2];
        uint32_t plain, other;
        snprintf(spaced, sizeof(spaced), " %s", word);
        if (!sequence_add(to, tokenizer, word, UINT32_MAX, &plain, error))
            return false;
        if (plain != UINT32_MAX && !sequence_add(to, tokenizer, spaced, plain, &other, error))
            return false;
    }
    return true;
}

bool api_logit_rules_words(const struct api_logit_rules *rules, const struct tokenizer *tokenizer,
                           struct token_rules_words *out, struct api_error *error)
{
    uint32_t vocab = tokenizer_token_count(tokenizer);
    *out = (struct token_rules_words){0};
    for (uint32_t i = 0; i < rules->bias_count; i++)
        if (!id_check(rules->biases[2 * (size_t)i], vocab, "logit_bias", error))
            return false;
    for (uint32_t i = 0; i < rules->allowed_count; i++)
        if (!id_check(rules->allowed_ids[i], vocab, "allowed_token_ids", error))
            return false;
    struct sequences forbidden = {0};
    if (rules->bad_word_count > 0)
        forbidden.words = malloc(LIMIT_FORBIDDEN_WORDS * sizeof(*forbidden.words));
    if (rules->bad_word_count > 0 && forbidden.words == NULL)
        return out_of_memory(error);
    bool good = sequences_make(rules, tokenizer, &forbidden, error);
    if (good)
        good = token_rules_make(rules->biases, rules->bias_count, rules->allowed_ids,
                                rules->allowed_count, forbidden.words, forbidden.count,
                                out) == ST_OK ||
               out_of_memory(error);
    free(forbidden.words);
    return good;
}
