/* vocabulary_json: reads a folder's tokenizer into a struct vocabulary: tokenizer.json
 * (vocabulary_json_words.c, vocabulary_json_tokens.c) and, from the files beside it, the names of
 * special tokens, the ids that end an answer, and the chat template. */
#include "model/file/json_read.h"
#include "model/file/vocabulary_read.h"

enum { DOCUMENT_TOKENIZER, DOCUMENT_CONFIG, DOCUMENT_GENERATION };

/* Reads a file that may be missing: then *out stays NULL. */
static enum status read_file(const struct folder *f, enum folder_file file, json_t **out,
                             struct error *error)
{
    const struct mapped_text text = folder_text(f, file);
    return text.text != NULL ? json_read(folder_file_name(file), text, out, error) : ST_OK;
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
    uint32_t id = json_is_string(text) ? vocabulary_json_find(v->documents[DOCUMENT_TOKENIZER],
                                                              json_string_value(text))
                                       : VOCABULARY_NO_TOKEN;
    if (id >= v->count)
        return error_set(error, ST_INVALID,
                         "tokenizer_config.json: %s is '%.60s', which is no token of "
                         "tokenizer.json",
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
        if (v->ends[i] == end)
            return ST_OK;
    if (v->end_count == VOCABULARY_ENDS_MAX)
        return error_set(error, ST_UNSUPPORTED, "%s: eos_token_id: more than %d tokens", file,
                         VOCABULARY_ENDS_MAX);
    v->ends[v->end_count++] = end;
    return ST_OK;
}

/* Reads one id or a list of ids. */
static enum status read_ends(struct vocabulary *v, const char *file, const json_t *root,
                             struct error *error)
{
    const json_t *ids = json_at(root, "eos_token_id");
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
        v->eos = v->ends[0];
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

/* Returns the text of the template with this name in a list of them; NULL = none. */
static const json_t *named_template(const json_t *list, const char *name)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_says(json_array_get(list, i), "name", name))
            return json_object_get(json_array_get(list, i), "template");
    return NULL;
}

/* Reads the chat template, and that for tools: from files of their own, or from
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

static enum status read_all(const struct folder *f, struct vocabulary *v, struct error *error)
{
    json_t **documents = v->documents;
    if (folder_text(f, FOLDER_TOKENIZER).text == NULL)
        return error_set(error, ST_INVALID, "there is no tokenizer.json");
    enum status status = read_file(f, FOLDER_TOKENIZER, &documents[DOCUMENT_TOKENIZER], error);
    if (status == ST_OK)
        status = read_file(f, FOLDER_TOKENIZER_CONFIG, &documents[DOCUMENT_CONFIG], error);
    if (status == ST_OK)
        status = read_file(f, FOLDER_GENERATION_CONFIG, &documents[DOCUMENT_GENERATION], error);
    const json_t *root = documents[DOCUMENT_TOKENIZER];
    if (status == ST_OK)
        status = vocabulary_json_words(root, v, error);
    if (status == ST_OK)
        status = vocabulary_json_tokens(root, v, error);
    if (status == ST_OK)
        status = vocabulary_json_merges(root, v, error);
    if (status == ST_OK)
        status = read_ids(f, v, error);
    if (status == ST_OK)
        status = read_template(f, v, error);
    const json_t *type = json_object_get(folder_config(f), "model_type");
    v->architecture = json_is_string(type) ? json_text_of(type) : mapped_text_of("");
    return status;
}

enum status vocabulary_read_json(const struct folder *f, const struct mapped_tensor *embedding,
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
