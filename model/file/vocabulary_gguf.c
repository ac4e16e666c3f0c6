/* vocabulary_gguf: reads a GGUF file's tokenizer keys into a struct vocabulary. Texts stay in the
 * file's mapping. */
#include "model/file/vocabulary_read.h"

#include <stdlib.h>

static enum status key_missing_is(enum status status, const char *key, struct error *error)
{
    return status == ST_NOT_FOUND ? error_set(error, ST_INVALID, "key '%s' is missing", key)
                                  : status;
}

/* An optional key leaves *out unchanged. */
static enum status optional(enum status status)
{
    return status == ST_NOT_FOUND ? ST_OK : status;
}

static enum status read_said(const struct gguf *g, const char *key, enum vocabulary_setting *out,
                             struct error *error)
{
    bool said = false;
    enum status status = gguf_get_bool(g, key, &said, error);
    if (status == ST_OK)
        *out = said ? VOCABULARY_YES : VOCABULARY_NO;
    return optional(status);
}

static enum status read_scores(const struct gguf *g, struct vocabulary *v, struct error *error)
{
    static const char key[] = "tokenizer.ggml.scores";
    float *scores = malloc(v->count * sizeof(*scores));
    if (scores == NULL)
        return error_set(error, ST_NO_MEMORY, "no memory for the scores of %u tokens", v->count);
    v->owned[0] = scores;
    v->scores = scores;
    return key_missing_is(gguf_get_f32_array(g, key, v->count, scores, error), key, error);
}

/* Reads what words are merged by: scores, or merges and a pre-tokenizer. */
static enum status read_kind(const struct gguf *g, struct mapped_text model, struct vocabulary *v,
                             struct error *error)
{
    static const char merges_key[] = "tokenizer.ggml.merges";
    enum vocabulary_setting prefix = VOCABULARY_YES;
    if (mapped_text_equals(model, "llama")) {
        v->kind = VOCABULARY_SCORES;
        enum status status = read_said(g, "tokenizer.ggml.add_space_prefix", &prefix, error);
        v->prefix = prefix == VOCABULARY_YES ? VOCABULARY_PREFIX_ALWAYS : VOCABULARY_PREFIX_NONE;
        return status == ST_OK ? read_scores(g, v, error) : status;
    }
    enum status status = ST_OK;
    if (mapped_text_equals(model, "gemma4")) {
        v->kind = VOCABULARY_CHARACTERS;
        v->prefix = VOCABULARY_PREFIX_NONE;
    } else if (mapped_text_equals(model, "gpt2")) {
        v->kind = VOCABULARY_BYTES;
        v->splitter = mapped_text_of("default");
        status = optional(gguf_get_string(g, "tokenizer.ggml.pre", &v->splitter, error));
    } else {
        status =
            error_set(error, ST_UNSUPPORTED,
                      "key 'tokenizer.ggml.model' is '%.*s': supported are gpt2, llama and gemma4",
                      model.bytes < 64 ? (int)model.bytes : 64, model.text);
    }
    if (status != ST_OK)
        return status;
    return key_missing_is(gguf_get_string_array(g, merges_key, &v->merges, &v->merge_count, error),
                          merges_key, error);
}

/* Reads an optional key that holds a token's id. */
static enum status read_id(const struct gguf *g, const char *key, const struct vocabulary *v,
                           uint32_t *out, struct error *error)
{
    uint32_t id = 0;
    enum status status = gguf_get_u32(g, key, &id, error);
    if (status != ST_OK)
        return optional(status);
    if (id >= v->count)
        return error_set(error, ST_INVALID, "key '%s' is %u: the vocabulary has %u tokens", key, id,
                         v->count);
    *out = id;
    return ST_OK;
}

static enum status read_ids(const struct gguf *g, struct vocabulary *v, struct error *error)
{
    static const char *const end_keys[] = {"tokenizer.ggml.eot_token_id",
                                           "tokenizer.ggml.eom_token_id"};
    v->bos = v->eos = v->unknown = VOCABULARY_NO_TOKEN;
    enum status status = read_id(g, "tokenizer.ggml.bos_token_id", v, &v->bos, error);
    if (status == ST_OK)
        status = read_id(g, "tokenizer.ggml.eos_token_id", v, &v->eos, error);
    if (status == ST_OK)
        status = read_id(g, "tokenizer.ggml.unknown_token_id", v, &v->unknown, error);
    for (size_t i = 0; i < sizeof(end_keys) / sizeof(end_keys[0]) && status == ST_OK; i++) {
        uint32_t end = VOCABULARY_NO_TOKEN;
        status = read_id(g, end_keys[i], v, &end, error);
        if (end != VOCABULARY_NO_TOKEN)
            v->end_tokens[v->end_count++] = end;
    }
    return status;
}

static enum status read_types(const struct gguf *g, struct vocabulary *v, struct error *error)
{
    static const char key[] = "tokenizer.ggml.token_type";
    size_t count = 0;
    enum status status = gguf_get_i32_array(g, key, &v->types, &count, error);
    if (status != ST_OK)
        return optional(status);
    if (count != v->count)
        return error_set(error, ST_INVALID, "key '%s' has %zu entries for %u tokens", key, count,
                         v->count);
    return ST_OK;
}

static enum status read_all(const struct gguf *g, struct vocabulary *v, struct error *error)
{
    static const char tokens_key[] = "tokenizer.ggml.tokens";
    struct mapped_text model;
    size_t count = 0;
    enum status status = gguf_get_string(g, "tokenizer.ggml.model", &model, error);
    if (status != ST_OK)
        return key_missing_is(status, "tokenizer.ggml.model", error);
    status = gguf_get_string_array(g, tokens_key, &v->tokens, &count, error);
    if (status != ST_OK)
        return key_missing_is(status, tokens_key, error);
    if (count < 1 || count > VOCABULARY_TOKENS_MAX)
        return error_set(error, ST_INVALID, "key '%s' has %zu tokens: want 1 to %u", tokens_key,
                         count, VOCABULARY_TOKENS_MAX);
    v->count = (uint32_t)count;
    status = read_types(g, v, error);
    if (status == ST_OK)
        status = read_kind(g, model, v, error);
    if (status == ST_OK)
        status = read_ids(g, v, error);
    if (status == ST_OK)
        status = read_said(g, "tokenizer.ggml.add_bos_token", &v->add_bos, error);
    if (status == ST_OK)
        status = read_said(g, "tokenizer.ggml.add_eos_token", &v->add_eos, error);
    if (status == ST_OK)
        status = optional(gguf_get_string(g, "tokenizer.chat_template", &v->template, error));
    if (status == ST_OK)
        status = optional(
            gguf_get_string(g, "tokenizer.chat_template.tool_use", &v->template_tools, error));
    if (status == ST_OK)
        status = optional(gguf_get_string(g, "general.architecture", &v->architecture, error));
    return status;
}

enum status vocabulary_read_gguf(const struct gguf *g, struct vocabulary *out, struct error *error)
{
    struct vocabulary v = {.count = 0};
    enum status status = read_all(g, &v, error);
    if (status != ST_OK) {
        vocabulary_done(&v);
        return status;
    }
    *out = v;
    return ST_OK;
}
