/* vocabulary_json: reads a folder's tokenizer into a struct vocabulary: tokenizer.json
 * (vocabulary_json_words.c, vocabulary_json_tokens.c), or tekken.json or tokenizer.model, and, from
 * the files beside it, the names of special tokens, the ids that end an answer, and the chat
 * template. */
#include "model/file/json_read.h"
#include "model/file/vocabulary_read.h"

#include <stdlib.h>

enum { DOCUMENT_TOKENIZER, DOCUMENT_CONFIG, DOCUMENT_GENERATION, DOCUMENT_ADDED };

/* Reads a file that may be missing: then *out stays NULL. */
static enum status read_file(const struct folder *f, enum folder_file file, json_t **out,
                             struct error *error)
{
    const struct mapped_text text = folder_text(f, file);
    return text.text != NULL ? json_read(folder_file_name(file), text, out, error) : ST_OK;
}

/* Returns the id of the token with this text; VOCABULARY_NO_TOKEN = none. */
static uint32_t find_token(const struct vocabulary *v, const char *text)
{
    const json_t *root = v->documents[DOCUMENT_TOKENIZER];
    if (root != NULL && !v->merges_by_id)
        return vocabulary_json_find(root, text);
    for (uint32_t id = 0; id < v->count; id++)
        if (mapped_text_equals(v->tokens[id], text))
            return id;
    return VOCABULARY_NO_TOKEN;
}

/* Reads a token that tokenizer_config.json names, as a text or as an object that has the text. *out
 * is unchanged if the token is not named. */
static enum status read_token(const struct vocabulary *v, const char *key, uint32_t *out,
                              struct error *error)
{
    const json_t *value = json_object_get(v->documents[DOCUMENT_CONFIG], key);
    const json_t *text = json_is_object(value) ? json_object_get(value, "content") : value;
    if (text == NULL || json_is_null(text))
        return ST_OK;
    uint32_t id =
        json_is_string(text) ? find_token(v, json_string_value(text)) : VOCABULARY_NO_TOKEN;
    if (id >= v->count)
        return error_set(error, ST_INVALID,
                         "tokenizer_config.json: %s is '%.60s', which is no token of the "
                         "tokenizer",
                         key, json_is_string(text) ? json_string_value(text) : json_kind(text));
    *out = id;
    return ST_OK;
}

static enum status add_end(struct vocabulary *v, const char *file, const json_t *id,
                           struct error *error)
{
    if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= v->count)
        return error_set(error, ST_INVALID, "%s: eos_token_id: want ids below %u", file, v->count);
    uint32_t end = (uint32_t)json_integer_value(id);
    for (uint32_t i = 0; i < v->end_count; i++)
        if (v->end_tokens[i] == end)
            return ST_OK;
    if (v->end_count == VOCABULARY_END_TOKENS_MAX)
        return error_set(error, ST_UNSUPPORTED, "%s: eos_token_id: more than %d tokens", file,
                         VOCABULARY_END_TOKENS_MAX);
    v->end_tokens[v->end_count++] = end;
    return ST_OK;
}

/* Reads one id or a list of ids. */
static enum status read_ends(struct vocabulary *v, const char *file, const json_t *root,
                             struct error *error)
{
    const json_t *ids = json_find(root, "eos_token_id");
    enum status status = ST_OK;
    if (ids == NULL)
        return ST_OK;
    if (!json_is_array(ids))
        return add_end(v, file, ids, error);
    for (size_t i = 0; i < json_array_size(ids) && status == ST_OK; i++)
        status = add_end(v, file, json_array_get(ids, i), error);
    return status;
}

static enum status read_ids(const struct folder *f, struct vocabulary *v, struct error *error)
{
    const json_t *config = v->documents[DOCUMENT_CONFIG];
    bool add = false, add_eos = false;
    enum status status = read_token(v, "bos_token", &v->bos, error);
    if (status == ST_OK)
        status = read_token(v, "eos_token", &v->eos, error);
    if (status == ST_OK)
        status = read_ends(v, "generation_config.json", v->documents[DOCUMENT_GENERATION], error);
    if (status == ST_OK)
        status = read_ends(v, "config.json", folder_config(f), error);
    if (status != ST_OK)
        return status;
    if (v->eos == VOCABULARY_NO_TOKEN && v->end_count > 0)
        v->eos = v->end_tokens[0];
    status = json_get_bool("tokenizer_config.json", config, "add_bos_token", &add, error);
    if (status == ST_OK)
        v->add_bos = add ? VOCABULARY_YES : VOCABULARY_NO;
    if (status == ST_OK || status == ST_NOT_FOUND)
        status = json_get_bool("tokenizer_config.json", config, "add_eos_token", &add_eos, error);
    if (add_eos)
        return error_set(error, ST_UNSUPPORTED,
                         "tokenizer_config.json: add_eos_token is true: supported is false");
    return status == ST_NOT_FOUND ? ST_OK : status;
}

/* Returns the text of the template with this name in a list of templates; NULL = none. */
static const json_t *named_template(const json_t *list, const char *name)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_text_equals(json_array_get(list, i), "name", name))
            return json_object_get(json_array_get(list, i), "template");
    return NULL;
}

/* Reads the chat template, and the template for tools: from separate files, or from
 * tokenizer_config.json, where they are a text or a list of named texts. Templates with other names
 * (RAG) are not used. */
static enum status read_template(const struct folder *f, struct vocabulary *v, struct error *error)
{
    const json_t *value = json_object_get(v->documents[DOCUMENT_CONFIG], "chat_template");
    const json_t *tools = named_template(value, "tool_use");
    v->template = folder_text(f, FOLDER_TEMPLATE);
    v->template_tools = folder_text(f, FOLDER_TEMPLATE_TOOLS);
    if (v->template.text != NULL || value == NULL || json_is_null(value))
        return ST_OK;
    if (json_is_array(value))
        value = named_template(value, "default");
    if (!json_is_string(value) || (tools != NULL && !json_is_string(tools)))
        return error_set(
            error, ST_INVALID,
            "tokenizer_config.json: chat_template: want a text, or a list of names and "
            "templates with one that is named default");
    v->template = json_text_of(value);
    if (tools != NULL)
        v->template_tools = json_text_of(tools);
    return ST_OK;
}

/* ---- tokens that are not in tokenizer.model ---- */

/* Adds a token that tokenizer_config.json or added_tokens.json lists beside tokenizer.model. The
 * arrays belong to vocabulary_read_sentencepiece. */
static enum status added_put(struct vocabulary *v, const char *file, json_int_t id,
                             const json_t *text, int32_t type, uint8_t finds, struct error *error)
{
    if (!json_is_string(text) || id < 0 || id >= v->count)
        return error_set(error, ST_INVALID,
                         "%s: added token %" JSON_INTEGER_FORMAT ": want a text, and an id below "
                         "%u, the rows of the embedding",
                         file, id, v->count);
    ((struct mapped_text *)v->tokens)[id] = json_text_of(text);
    if (((int32_t *)v->types)[id] != TOKEN_UNKNOWN)
        ((int32_t *)v->types)[id] = type;
    ((uint8_t *)v->find_flags)[id] = finds;
    return ST_OK;
}

static enum status read_added_list(struct vocabulary *v, const json_t *list, struct error *error)
{
    const char *key;
    json_t *added;
    enum status status = ST_OK;
    json_object_foreach((json_t *)list, key, added)
    {
        if (status == ST_OK)
            status = added_put(v, "tokenizer_config.json", (json_int_t)strtoll(key, NULL, 10),
                               json_object_get(added, "content"),
                               json_is_true(json_object_get(added, "special")) ? TOKEN_CONTROL
                                                                               : TOKEN_USER_DEFINED,
                               vocabulary_json_find_flags(added), error);
    }
    return status;
}

/* Older files have only texts and ids. */
static enum status read_added_map(struct vocabulary *v, const json_t *map, struct error *error)
{
    const char *text;
    json_t *id;
    enum status status = ST_OK;
    json_object_foreach((json_t *)map, text, id)
    {
        const json_int_t at = json_is_integer(id) ? json_integer_value(id) : -1;
        bool known = at >= 0 && at < v->count && v->types[at] != TOKEN_UNUSED;
        if (known || status != ST_OK)
            continue;
        if (at < 0 || at >= v->count)
            return error_set(error, ST_INVALID,
                             "added_tokens.json: '%.60s': want an id below %u, the rows of the "
                             "embedding",
                             text, v->count);
        ((struct mapped_text *)v->tokens)[at] = mapped_text_of(text);
        ((int32_t *)v->types)[at] = TOKEN_USER_DEFINED;
    }
    return status;
}

static enum status read_sentencepiece(const struct folder *f, struct vocabulary *v,
                                      struct error *error)
{
    const json_t *config = v->documents[DOCUMENT_CONFIG];
    enum status status =
        vocabulary_read_sentencepiece(folder_text(f, FOLDER_SENTENCEPIECE), v, error);
    if (status == ST_OK)
        status = read_added_list(v, json_object_get(config, "added_tokens_decoder"), error);
    if (status == ST_OK)
        status = read_file(f, FOLDER_ADDED_TOKENS, &v->documents[DOCUMENT_ADDED], error);
    if (status == ST_OK)
        status = read_added_map(v, v->documents[DOCUMENT_ADDED], error);
    /* transformers since 4.31, unless `legacy`: parts behind special tokens get no blank. */
    if (v->prefix == VOCABULARY_PREFIX_ALWAYS && json_is_false(json_object_get(config, "legacy")))
        v->prefix = VOCABULARY_PREFIX_BEGIN;
    return status;
}

/* ---- all ---- */

static enum status read_tokenizer_json(const struct folder *f, struct vocabulary *v,
                                       struct error *error)
{
    json_t **root = &v->documents[DOCUMENT_TOKENIZER];
    enum status status = read_file(f, FOLDER_TOKENIZER, root, error);
    if (status == ST_OK)
        status = vocabulary_json_words(*root, v, error);
    if (status == ST_OK)
        status = vocabulary_json_tokens(*root, v, error);
    return status == ST_OK ? vocabulary_json_merges(*root, v, error) : status;
}

static enum status read_tekken(const struct folder *f, struct vocabulary *v, struct error *error)
{
    json_t **root = &v->documents[DOCUMENT_TOKENIZER];
    enum status status = read_file(f, FOLDER_TEKKEN, root, error);
    return status == ST_OK ? vocabulary_read_tekken(*root, v, error) : status;
}

static enum status read_tokenizer(const struct folder *f, struct vocabulary *v, struct error *error)
{
    if (folder_text(f, FOLDER_TOKENIZER).text != NULL)
        return read_tokenizer_json(f, v, error);
    if (folder_text(f, FOLDER_TEKKEN).text != NULL)
        return read_tekken(f, v, error);
    if (folder_text(f, FOLDER_SENTENCEPIECE).text != NULL)
        return read_sentencepiece(f, v, error);
    return error_set(error, ST_INVALID,
                     "there is no tokenizer.json, tekken.json or tokenizer.model");
}

static enum status read_all(const struct folder *f, struct vocabulary *v, struct error *error)
{
    json_t **documents = v->documents;
    enum status status = read_file(f, FOLDER_TOKENIZER_CONFIG, &documents[DOCUMENT_CONFIG], error);
    if (status == ST_OK)
        status = read_file(f, FOLDER_GENERATION_CONFIG, &documents[DOCUMENT_GENERATION], error);
    if (status == ST_OK)
        status = read_tokenizer(f, v, error);
    if (status == ST_OK)
        status = read_ids(f, v, error);
    if (status == ST_OK)
        status = read_template(f, v, error);
    const json_t *type = json_object_get(folder_config(f), "model_type");
    v->architecture = json_is_string(type) ? json_text_of(type) : mapped_text_of("");
    return status;
}

enum status vocabulary_read_folder(const struct folder *f, const struct mapped_tensor *embedding,
                                   struct vocabulary *out, struct error *error)
{
    struct vocabulary v = {
        .bos = VOCABULARY_NO_TOKEN, .eos = VOCABULARY_NO_TOKEN, .unknown = VOCABULARY_NO_TOKEN};
    if (embedding == NULL || embedding->dims[1] > VOCABULARY_TOKENS_MAX)
        return error_set(error, ST_INVALID,
                         "no embedding of up to %u rows, one for each token of the vocabulary",
                         VOCABULARY_TOKENS_MAX);
    v.count = (uint32_t)embedding->dims[1];
    enum status status = read_all(f, &v, error);
    if (status != ST_OK) {
        vocabulary_done(&v);
        return status;
    }
    *out = v;
    return ST_OK;
}
