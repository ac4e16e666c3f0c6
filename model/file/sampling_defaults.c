/* sampling_defaults: see the header. */
#include "model/file/sampling_defaults.h"

#include "common/limits.h"
#include "model/file/gguf.h"
#include "model/file/json_read.h"
#include "model/file/model_file_internal.h"

#include <jansson.h>
#include <math.h>

/* The same order as struct sampling_defaults. */
static const struct rule {
    const char *json;
    const char *gguf;
    float low, high;
    bool low_open;
    bool whole;
} rules[] = {
    {"temperature", "general.sampling.temp", 0, 2, false, false},
    {"top_p", "general.sampling.top_p", 0, 1, true, false},
    {"top_k", "general.sampling.top_k", -1, 16777216, false, true},
    {"min_p", "general.sampling.min_p", 0, 1, false, false},
    {"repetition_penalty", "general.sampling.penalty_repeat", 0, LIMIT_REPETITION_PENALTY, true,
     false},
};
#define RULES (sizeof(rules) / sizeof(rules[0]))

static enum status value_check(const struct rule *rule, const char *file, const char *key,
                               float value, float *out, struct error *error)
{
    if (!(value <= rule->high) || !(rule->low_open ? value > rule->low : value >= rule->low) ||
        (rule->whole && value != rintf(value)))
        return error_set(error, ST_INVALID, "%s: %s = %g: want a %snumber %s %g and at most %g",
                         file, key, (double)value, rule->whole ? "whole " : "",
                         rule->low_open ? "above" : "of at least", (double)rule->low,
                         (double)rule->high);
    *out = rule->whole && value < 0 ? 0 : value; /* top_k: -1 and 0 are off. */
    return ST_OK;
}

static enum status read_folder(const struct folder *folder, float values[RULES],
                               struct error *error)
{
    const char *name = folder_file_name(FOLDER_GENERATION_CONFIG);
    const struct mapped_text text = folder_text(folder, FOLDER_GENERATION_CONFIG);
    json_t *root = NULL;
    if (text.text == NULL)
        return ST_OK;
    enum status status = json_read(name, text, &root, error);
    for (size_t i = 0; i < RULES && status == ST_OK; i++) {
        const json_t *value = json_object_get(root, rules[i].json);
        if (value == NULL || json_is_null(value))
            continue;
        float number = json_is_number(value) ? (float)json_number_value(value) : NAN;
        status = value_check(&rules[i], name, rules[i].json, number, &values[i], error);
    }
    json_decref(root);
    return status;
}

/* top_k is an integer in GGUF files, and may be negative; the others are floats. */
static enum status gguf_number(const struct gguf *gguf, const struct rule *rule, float *out,
                               struct error *error)
{
    int64_t whole = 0;
    if (!rule->whole)
        return gguf_get_f32(gguf, rule->gguf, out, error);
    enum status status = gguf_get_i64(gguf, rule->gguf, &whole, error);
    if (status == ST_OK)
        *out = (float)whole;
    return status;
}

static enum status read_gguf(const struct gguf *gguf, float values[RULES], struct error *error)
{
    for (size_t i = 0; i < RULES; i++) {
        float number = 0;
        enum status status = gguf_number(gguf, &rules[i], &number, error);
        if (status == ST_NOT_FOUND)
            continue;
        if (status == ST_OK)
            status = value_check(&rules[i], "GGUF", rules[i].gguf, number, &values[i], error);
        if (status != ST_OK)
            return status;
    }
    return ST_OK;
}

enum status sampling_defaults_read(const struct model_file *file, struct sampling_defaults *out,
                                   struct error *error)
{
    float values[RULES] = {-1, -1, -1, -1, -1};
    enum status status = file->gguf != NULL ? read_gguf(file->gguf, values, error)
                                            : read_folder(file->folder, values, error);
    if (status == ST_OK)
        *out = (struct sampling_defaults){.temperature = values[0],
                                          .top_p = values[1],
                                          .top_k = values[2],
                                          .min_p = values[3],
                                          .repetition_penalty = values[4]};
    return status;
}
