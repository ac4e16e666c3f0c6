/* api_logit_rules: see the header. */
#include "server/api/logit_rules.h"

#include "server/api/fields.h"
#include "server/api/request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool out_of_memory(struct api_error *error)
{
    return api_error_set(error, 503, NULL, "out of memory");
}

static bool too_many(struct api_error *error, const char *field, size_t count, size_t most)
{
    api_error_set(error, 400, field, "%s has %zu entries: at most %zu are taken", field, count,
                  most);
    error->code = "invalid_value";
    return false;
}

/* Reads a token id that is spelled as the name of a JSON value. */
static bool id_read(const char *name, uint32_t *out)
{
    uint64_t id = 0;
    size_t digits = strspn(name, "0123456789");
    if (digits == 0 || digits > 10 || name[digits] != 0)
        return false;
    for (size_t i = 0; i < digits; i++)
        id = id * 10 + (uint64_t)(name[i] - '0');
    *out = (uint32_t)id;
    return id <= INT32_MAX;
}

static bool parse_biases(json_t *root, struct api_logit_rules *out, struct api_error *error)
{
    json_t *given = api_field_get(root, "logit_bias"), *value;
    const char *name;
    if (given == NULL)
        return true;
    if (!json_is_object(given))
        return api_field_wrong(error, "logit_bias", given, "an object from token ids to numbers");
    size_t count = json_object_size(given);
    if (count > LIMIT_LOGIT_BIASES)
        return too_many(error, "logit_bias", count, LIMIT_LOGIT_BIASES);
    out->biases = malloc((2 * count + 1) * sizeof(*out->biases));
    if (out->biases == NULL)
        return out_of_memory(error);
    json_object_foreach(given, name, value)
    {
        char place[48];
        float bias = 0;
        uint32_t *to = out->biases + 2 * (size_t)out->bias_count;
        snprintf(place, sizeof(place), "logit_bias[\"%.24s\"]", name);
        if (!id_read(name, &to[0]))
            return api_error_set(error, 400, "logit_bias", "%s: want a token id as the name",
                                 place);
        double number = json_number_value(value);
        if (!json_is_number(value) || !(number >= -LIMIT_LOGIT_BIAS && number <= LIMIT_LOGIT_BIAS))
            return api_field_wrong(error, place, value, "a number from -100 to 100");
        bias = (float)number;
        memcpy(&to[1], &bias, sizeof(bias));
        out->bias_count++;
    }
    return true;
}

static bool parse_allowed(json_t *root, struct api_logit_rules *out, struct api_error *error)
{
    json_t *given = api_field_get(root, "allowed_token_ids");
    if (given == NULL)
        return true;
    if (!json_is_array(given))
        return api_field_wrong(error, "allowed_token_ids", given, "a list of token ids");
    if (json_array_size(given) > LIMIT_ALLOWED_TOKENS)
        return too_many(error, "allowed_token_ids", json_array_size(given), LIMIT_ALLOWED_TOKENS);
    return api_ids_parse(given, "allowed_token_ids", &out->allowed_ids, &out->allowed_count, error);
}

static bool parse_bad_words(json_t *root, struct api_logit_rules *out, struct api_error *error)
{
    json_t *given = api_field_get(root, "bad_words");
    if (given == NULL)
        return true;
    if (!json_is_array(given))
        return api_field_wrong(error, "bad_words", given, "a list of strings");
    size_t count = json_array_size(given);
    if (count > LIMIT_BAD_WORDS)
        return too_many(error, "bad_words", count, LIMIT_BAD_WORDS);
    out->bad_words = calloc(count + 1, sizeof(*out->bad_words));
    if (out->bad_words == NULL)
        return out_of_memory(error);
    for (size_t i = 0; i < count; i++) {
        const json_t *word = json_array_get(given, i);
        size_t bytes = json_string_length(word);
        char place[32];
        snprintf(place, sizeof(place), "bad_words[%zu]", i);
        if (!json_is_string(word) || bytes == 0 || bytes > LIMIT_STOP_BYTES ||
            strlen(json_string_value(word)) != bytes)
            return api_field_wrong(error, place, word, "a text of 1 to 256 bytes, none of them 0");
        out->bad_words[i] = strdup(json_string_value(word));
        if (out->bad_words[i] == NULL)
            return out_of_memory(error);
        out->bad_word_count++;
    }
    return true;
}

bool api_logit_rules_parse(json_t *root, struct api_logit_rules *out, struct api_error *error)
{
    return parse_biases(root, out, error) && parse_allowed(root, out, error) &&
           parse_bad_words(root, out, error);
}

void api_logit_rules_done(struct api_logit_rules *rules)
{
    for (uint32_t i = 0; i < rules->bad_word_count; i++)
        free(rules->bad_words[i]);
    free(rules->bad_words);
    free(rules->biases);
    free(rules->allowed_ids);
    *rules = (struct api_logit_rules){0};
}
