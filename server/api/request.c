/* api_request: one function per group of fields, in the order of the struct. The first error ends
 * the parse. */
#include "server/api/request.h"

#include "common/json.h"
#include "server/api/fields.h"
#include "server/api/forms.h"
#include "server/api/known_fields.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STOP_IDS_MAX 8

#define TEXT_BLOCK_BYTES 4096

struct api_text {
    struct api_text *next;
    size_t used;
    size_t capacity;
    char data[];
};

/* Adds a copy of text[0..bytes), with a NUL, to the first block of the list. Returns NULL if memory
 * runs out. */
static char *text_copy(struct api_text **list, const char *text, size_t bytes)
{
    if (*list == NULL || (*list)->capacity - (*list)->used <= bytes) {
        size_t capacity = bytes >= TEXT_BLOCK_BYTES ? bytes + 1 : TEXT_BLOCK_BYTES;
        struct api_text *block = malloc(sizeof(*block) + capacity);
        if (block == NULL)
            return NULL;
        *block = (struct api_text){.next = *list, .capacity = capacity};
        *list = block;
    }
    char *copy = (*list)->data + (*list)->used;
    (*list)->used += bytes + 1;
    memcpy(copy, text, bytes);
    copy[bytes] = 0;
    return copy;
}

static void texts_free(struct api_text **list)
{
    while (*list != NULL) {
        struct api_text *block = *list;
        *list = block->next;
        free(block);
    }
}

static bool out_of_memory(struct api_error *error)
{
    return api_error_set(error, 503, NULL, "out of memory");
}

/* Copies a JSON string. */
static bool string_copy(struct api_text **list, const json_t *string, const char **out,
                        struct api_error *error)
{
    *out = text_copy(list, json_string_value(string), json_string_length(string));
    return *out != NULL || out_of_memory(error);
}

/* Counts values and names before any of them is parsed. Text that is not JSON gives some count. */
static bool values_check(const char *body, size_t bytes, struct api_error *error)
{
    uint32_t values = 1, containers = 0;
    bool in_string = false;
    for (size_t i = 0; i < bytes; i++) {
        char c = body[i];
        if (in_string) {
            i += c == '\\';
            in_string = c != '"';
            continue;
        }
        in_string = c == '"';
        containers += c == '{' || c == '[';
        values += c == '{' || c == '[' || c == ',' || c == ':';
        if (values > LIMIT_JSON_VALUES || containers > LIMIT_JSON_CONTAINERS)
            return api_error_set(error, 400, NULL,
                                 "the body has too many JSON values: want at most %u values and "
                                 "names, of which at most %u are lists or objects",
                                 LIMIT_JSON_VALUES, LIMIT_JSON_CONTAINERS);
    }
    return true;
}

/* Refuses a number that ends at `end`: it needs more than 64 bits. The error names the field that
 * stands before it, if it is a plain name. */
static void number_refuse(const char *body, size_t end, struct api_error *error)
{
    char field[48] = "";
    size_t at = end, name_end;
    while (at > 0 && strchr("+-.0123456789eE", body[at - 1]) != NULL)
        at--;
    while (at > 0 && strchr(" \t\r\n:", body[at - 1]) != NULL)
        at--;
    name_end = at > 0 && body[at - 1] == '"' ? at - 1 : 0;
    for (at = name_end; at > 0 && body[at - 1] != '"';)
        at--;
    if (name_end > 0 && name_end - at < sizeof(field))
        snprintf(field, sizeof(field), "%.*s", (int)(name_end - at), body + at);
    api_error_set(error, 400, field[0] != 0 ? field : NULL,
                  "%s is too large: want a number of at most 64 bits",
                  field[0] != 0 ? field : "a number of the body");
    error->code = "invalid_value";
}

json_t *api_body_parse(const char *body, size_t bytes, struct api_error *error)
{
    json_error_t wrong;
    if (bytes == 0) {
        api_error_set(error, 400, NULL, "the body is empty: want a JSON object");
        return NULL;
    }
    size_t valid = text_utf8_check(body, bytes);
    if (valid < bytes) {
        api_error_set(error, 400, NULL, "the body is not valid UTF-8: byte 0x%02x at offset %zu",
                      (unsigned char)body[valid], valid);
        return NULL;
    }
    if (!values_check(body, bytes, error))
        return NULL;
    json_t *root;
    enum status status = json_text_load(body, bytes, JSON_ALLOW_NUL, &root, &wrong);
    if (status != ST_OK) {
        if (status == ST_NO_MEMORY)
            out_of_memory(error);
        else if (json_error_code(&wrong) == json_error_numeric_overflow)
            number_refuse(body, (size_t)wrong.position, error);
        else
            api_error_set(error, 400, NULL, "the body is not JSON: line %d, column %d: %s",
                          wrong.line, wrong.column, wrong.text);
        return NULL;
    }
    if (!json_is_object(root)) {
        api_error_set(error, 400, NULL, "the body must be a JSON object, not %s",
                      api_type_name(root));
        json_decref(root);
        return NULL;
    }
    return root;
}

bool api_ids_parse(json_t *list, const char *field, uint32_t **ids_out, uint32_t *count_out,
                   struct api_error *error)
{
    size_t count = json_array_size(list);
    if (count > LIMIT_CONTEXT_TOKENS)
        return api_error_set(error, 400, field, "%s has %zu token ids: at most %d are taken", field,
                             count, LIMIT_CONTEXT_TOKENS);
    uint32_t *ids = malloc((count > 0 ? count : 1) * sizeof(*ids));
    if (ids == NULL)
        return api_error_set(error, 503, NULL, "out of memory");
    for (size_t i = 0; i < count; i++) {
        json_t *id = json_array_get(list, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 ||
            json_integer_value(id) > INT32_MAX) {
            char place[48];
            snprintf(place, sizeof(place), "%.24s[%zu]", field, i);
            free(ids);
            return api_field_wrong(error, place, id, "a token id");
        }
        ids[i] = (uint32_t)json_integer_value(id);
    }
    *ids_out = ids;
    *count_out = (uint32_t)count;
    return true;
}

static bool add_prompt(json_t *value, const char *place, struct api_request *out,
                       struct api_error *error)
{
    struct api_prompt *prompt = &out->prompts[out->prompt_count];
    if (json_is_string(value)) {
        prompt->bytes = json_string_length(value);
        if (!string_copy(&out->texts, value, &prompt->text, error))
            return false;
    } else if (!json_is_array(value)) {
        return api_field_wrong(error, place, value, "a string or a list of token ids");
    } else if (!api_ids_parse(value, place, &prompt->ids, &prompt->count, error)) {
        return false;
    }
    out->prompt_count++;
    return true;
}

/* prompt, or input of embeddings: a string, a list of token ids, or a list of either. */
static bool parse_prompts(json_t *root, struct api_request *out, struct api_error *error)
{
    const char *field = api_prompt_field(out->kind);
    json_t *prompt = api_field_get(root, field);
    if (prompt == NULL)
        return api_error_set(error, 400, field, "%s is missing", field);
    if (!json_is_array(prompt) || json_is_integer(json_array_get(prompt, 0)))
        return add_prompt(prompt, field, out, error);
    size_t count = json_array_size(prompt);
    if (count == 0 || count > LIMIT_PROMPTS)
        return api_error_set(error, 400, field, "%s has %zu entries: want 1 to %d", field, count,
                             LIMIT_PROMPTS);
    for (size_t i = 0; i < count; i++) {
        char place[32];
        snprintf(place, sizeof(place), "%s[%zu]", field, i);
        if (!add_prompt(json_array_get(prompt, i), place, out, error))
            return false;
    }
    return true;
}

static bool parse_penalties(json_t *root, struct sampling *out, struct api_error *error)
{
    return api_field_number(root, "presence_penalty", -2, 2, false, &out->presence_penalty,
                            error) &&
           api_field_number(root, "frequency_penalty", -2, 2, false, &out->frequency_penalty,
                            error) &&
           api_field_number(root, "repetition_penalty", 0, LIMIT_REPETITION_PENALTY, true,
                            &out->repetition_penalty, error);
}

/* Returns the bits of the fields that the body does not have. */
static uint32_t defaults_of(json_t *root)
{
    static const char *const names[] = {"temperature", "top_p", "top_k", "min_p",
                                        "repetition_penalty"};
    uint32_t bits = 0;
    for (uint32_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        bits |= api_field_get(root, names[i]) == NULL ? 1u << i : 0;
    return bits;
}

static bool parse_sampling(json_t *root, struct api_request *out, struct api_error *error)
{
    int64_t top_k = 0, min_tokens = 0, n = 1, best_of = 0, seed = 0, priority = 0;
    const char *limit =
        api_field_get(root, "max_completion_tokens") ? "max_completion_tokens" : "max_tokens";
    out->max_tokens = -1;
    if (!api_field_integer(root, limit, 0, LIMIT_CONTEXT_TOKENS, &out->max_tokens, error) ||
        !api_field_number(root, "temperature", 0, 2, false, &out->sampling.temperature, error) ||
        !api_field_number(root, "top_p", 0, 1, true, &out->sampling.top_p, error) ||
        !api_field_number(root, "min_p", 0, 1, false, &out->sampling.min_p, error) ||
        !parse_penalties(root, &out->sampling, error) ||
        !api_field_integer(root, "top_k", -1, INT32_MAX, &top_k, error) ||
        !api_field_integer(root, "min_tokens", 0, LIMIT_CONTEXT_TOKENS, &min_tokens, error) ||
        !api_field_integer(root, "n", 1, LIMIT_CHOICES, &n, error) ||
        !api_field_integer(root, "best_of", n, LIMIT_CHOICES, &best_of, error) ||
        !api_field_integer(root, "seed", INT64_MIN, INT64_MAX, &seed, error) ||
        !api_field_integer(root, "priority", -LIMIT_PRIORITY, LIMIT_PRIORITY, &priority, error) ||
        !api_field_bool(root, "ignore_eos", &out->ignore_eos, error))
        return false;
    out->priority = (int32_t)priority;
    out->sampling.top_k = top_k > 0 ? (uint32_t)top_k : 0; /* -1 and 0: off, as in vLLM */
    out->sampling.output_tokens_min = (uint32_t)min_tokens;
    out->n = (uint32_t)n;
    out->best_of = best_of > n ? (uint32_t)best_of : out->n;
    out->absent_fields = defaults_of(root);
    out->has_seed = api_field_get(root, "seed") != NULL;
    out->sampling.seed = (uint64_t)seed;
    if (out->max_tokens >= 0 && min_tokens > out->max_tokens)
        return api_error_set(error, 400, "min_tokens",
                             "min_tokens is %lld, above %s, which is %lld", (long long)min_tokens,
                             limit, (long long)out->max_tokens);
    return true;
}

static bool parse_prompt_logprobs(json_t *root, struct api_request *out, struct api_error *error)
{
    int64_t count = -1;
    if (!api_field_integer(root, "prompt_logprobs", 0, LIMIT_LOGPROBS, &count, error))
        return false;
    out->prompt_logprobs = (int32_t)count;
    json_t *stream = api_field_get(root, "stream");
    if (count < 0 || !json_is_true(stream))
        return true;
    return api_error_set(error, 400, "prompt_logprobs",
                         "prompt_logprobs is not available with stream: true");
}

static bool parse_logprobs(json_t *root, struct api_request *out, struct api_error *error)
{
    int64_t count = -1;
    if (!parse_prompt_logprobs(root, out, error))
        return false;
    if (out->kind == API_COMPLETION) {
        if (!api_field_integer(root, "logprobs", 0, LIMIT_LOGPROBS, &count, error) ||
            !api_field_bool(root, "echo", &out->echo, error))
            return false;
        out->sampling.logprobs = (int32_t)count;
        return true;
    }
    bool wanted = false;
    count = 0;
    if (!api_field_bool(root, "logprobs", &wanted, error) ||
        !api_field_integer(root, "top_logprobs", 0, LIMIT_LOGPROBS, &count, error))
        return false;
    if (!wanted && count > 0)
        return api_error_set(error, 400, "top_logprobs", "top_logprobs needs logprobs: true");
    out->sampling.logprobs = wanted ? (int32_t)count : -1;
    return true;
}

static bool add_stop(json_t *stop, const char *place, struct api_request *out,
                     struct api_error *error)
{
    if (!json_is_string(stop))
        return api_field_wrong(error, place, stop, "a string");
    size_t bytes = json_string_length(stop);
    if (bytes == 0 || bytes > LIMIT_STOP_BYTES)
        return api_error_set(error, 400, "stop", "%s has %zu bytes: want 1 to %d", place, bytes,
                             LIMIT_STOP_BYTES);
    if (!string_copy(&out->stop_texts, stop, &out->stops.strings[out->stops.count], error))
        return false;
    out->stops.lengths[out->stops.count++] = bytes;
    return true;
}

static bool parse_stops(json_t *root, struct api_request *out, struct api_error *error)
{
    json_t *stop = api_field_get(root, "stop");
    json_t *ids = api_field_get(root, "stop_token_ids");
    if (stop != NULL && !json_is_array(stop) && !add_stop(stop, "stop", out, error))
        return false;
    if (json_array_size(stop) > LIMIT_STOP_STRINGS)
        return api_error_set(error, 400, "stop", "stop has %zu entries: at most %d are taken",
                             json_array_size(stop), LIMIT_STOP_STRINGS);
    for (size_t i = 0; i < json_array_size(stop); i++) {
        char place[32];
        snprintf(place, sizeof(place), "stop[%zu]", i);
        if (!add_stop(json_array_get(stop, i), place, out, error))
            return false;
    }
    if (ids == NULL)
        return true;
    if (!json_is_array(ids))
        return api_field_wrong(error, "stop_token_ids", ids, "a list of token ids");
    if (json_array_size(ids) > STOP_IDS_MAX)
        return api_error_set(error, 400, "stop_token_ids",
                             "stop_token_ids has %zu entries: at most %d are taken",
                             json_array_size(ids), STOP_IDS_MAX);
    uint32_t *list = NULL;
    if (!api_ids_parse(ids, "stop_token_ids", &list, &out->sampling.end_count, error))
        return false;
    memcpy(out->sampling.end_tokens, list, out->sampling.end_count * sizeof(*list));
    free(list);
    return true;
}

static bool parse_output(json_t *root, struct api_request *out, struct api_error *error)
{
    json_t *options = api_field_get(root, "stream_options");
    if (!api_field_bool(root, "stream", &out->stream, error) ||
        !api_field_bool(root, "add_special_tokens", &out->add_special_tokens, error) ||
        !api_field_bool(root, "include_stop_str_in_output", &out->include_stop, error) ||
        !api_field_bool(root, "skip_special_tokens", &out->skip_special_tokens, error) ||
        !api_field_bool(root, "return_token_ids", &out->return_token_ids, error) ||
        !api_field_bool(root, "return_tokens_as_token_ids", &out->tokens_as_ids, error))
        return false;
    if (out->stream && out->best_of > out->n)
        return api_error_set(error, 400, "best_of",
                             "best_of is %u, above n, which is %u: not with stream: true",
                             out->best_of, out->n);
    if (options == NULL)
        return true;
    if (!json_is_object(options))
        return api_field_wrong(error, "stream_options", options, "an object");
    return api_field_bool(options, "include_usage", &out->include_usage, error) &&
           api_field_bool(options, "continuous_usage_stats", &out->continuous_usage, error);
}

/* "cleave": {"transfer": …, "events": …} is cleave's own extension. */
static bool parse_extension(json_t *root, struct api_request *out, struct api_error *error)
{
    static const char *const names[] = {"auto", "layerwise", "one-piece"};
    json_t *extension = api_field_get(root, "cleave");
    json_t *transfer = extension != NULL ? api_field_get(extension, "transfer") : NULL;
    if (extension != NULL && !api_field_bool(extension, "events", &out->life_events, error))
        return false;
    if (out->life_events && !out->stream)
        return api_error_set(error, 400, "cleave", "cleave.events needs stream: true");
    if (transfer == NULL)
        return true;
    for (int i = 0; i < 3 && json_is_string(transfer); i++)
        if (strcmp(json_string_value(transfer), names[i]) == 0) {
            out->transfer = (enum api_transfer)i;
            return true;
        }
    return api_field_wrong(error, "cleave.transfer", transfer,
                           "\"auto\", \"layerwise\" or \"one-piece\"");
}

static bool parse_model(json_t *root, struct api_request *out, struct api_error *error)
{
    const char *model = NULL;
    if (!api_field_string(root, "model", &model, error))
        return false;
    if (model == NULL)
        return true;
    out->model = text_copy(&out->texts, model, strlen(model));
    return out->model != NULL || out_of_memory(error);
}

static bool parse_cache_salt(json_t *root, struct api_request *out, struct api_error *error)
{
    json_t *salt = api_field_get(root, "cache_salt");
    size_t bytes = json_string_length(salt);
    if (salt == NULL)
        return true;
    if (!json_is_string(salt))
        return api_field_wrong(error, "cache_salt", salt, "a string");
    if (bytes == 0 || bytes > LIMIT_CACHE_SALT_BYTES)
        return api_error_set(error, 400, "cache_salt", "cache_salt has %zu bytes: want 1 to %d",
                             bytes, LIMIT_CACHE_SALT_BYTES);
    out->has_cache_salt = true;
    secret_hash(json_string_value(salt), bytes, out->cache_salt_hash);
    return true;
}

/* A constrained answer ends where its constraint ends, and only there. */
bool api_request_constraint_check(const struct api_request *request, struct api_error *error)
{
    if (request->constraint.text == NULL)
        return true;
    if (request->ignore_eos)
        return api_error_set(error, 400, "ignore_eos", "ignore_eos and %s exclude each other",
                             request->constraint.field);
    if (request->sampling.output_tokens_min > 0)
        return api_error_set(error, 400, "min_tokens", "min_tokens and %s exclude each other",
                             request->constraint.field);
    return true;
}

static bool parse_fields(json_t *root, struct api_request *out, struct api_error *error)
{
    bool good = api_is_chat(out->kind) ? api_chat_parse(root, &out->chat, &out->tools, error)
                                       : parse_prompts(root, out, error);
    return good && parse_model(root, out, error) && parse_sampling(root, out, error) &&
           parse_logprobs(root, out, error) && parse_stops(root, out, error) &&
           parse_output(root, out, error) && parse_extension(root, out, error) &&
           parse_cache_salt(root, out, error) &&
           api_logit_rules_parse(root, &out->logit_rules, error) &&
           api_constraint_parse(root, &out->constraint, error) &&
           api_request_constraint_check(out, error);
}

/* The fields of embeddings. */
static bool parse_embeddings(json_t *root, struct api_request *out, struct api_error *error)
{
    int64_t dimensions = 0, priority = 0;
    const char *format = "float";
    if (!parse_prompts(root, out, error) || !parse_model(root, out, error) ||
        !api_field_integer(root, "dimensions", 1, LIMIT_EMBEDDING_ELEMENTS, &dimensions, error) ||
        !api_field_integer(root, "priority", -LIMIT_PRIORITY, LIMIT_PRIORITY, &priority, error) ||
        !api_field_bool(root, "add_special_tokens", &out->add_special_tokens, error) ||
        !api_field_string(root, "encoding_format", &format, error))
        return false;
    out->dimensions = (uint32_t)dimensions;
    out->priority = (int32_t)priority;
    out->base64 = strcmp(format, "base64") == 0;
    out->max_tokens = 0;
    out->n = out->best_of = 1;
    out->prompt_logprobs = -1;
    if (out->base64 || strcmp(format, "float") == 0)
        return true;
    return api_field_wrong(error, "encoding_format", api_field_get(root, "encoding_format"),
                           "float or base64");
}

/* Replaces the body of a form by the body of a chat. */
static bool convert_form(json_t **root, struct api_request *out, struct api_error *error)
{
    json_t *chat;
    if (out->kind == API_MESSAGES && api_field_get(*root, "max_tokens") == NULL)
        return api_error_set(error, 400, "max_tokens", "max_tokens is missing");
    if (!api_form_convert(out->kind, *root, &chat, &out->repeated_members, error))
        return false;
    json_decref(*root);
    *root = chat;
    return true;
}

bool api_request_parse(enum api_kind kind, const char *body, size_t bytes, struct api_request *out,
                       struct api_error *error)
{
    memset(out, 0, sizeof(*out));
    json_t *root = api_body_parse(body, bytes, error);
    if (root == NULL)
        return false;
    out->kind = kind;
    out->sampling.temperature = 1;
    out->sampling.top_p = 1;
    out->sampling.logprobs = -1;
    out->add_special_tokens = !api_is_chat(kind);
    out->skip_special_tokens = true;
    bool good = api_known_fields_check(root, kind, &out->unknown_fields, error) &&
                (!api_has_form(kind) || convert_form(&root, out, error)) &&
                (kind == API_EMBEDDINGS ? parse_embeddings(root, out, error)
                                        : parse_fields(root, out, error));
    json_decref(root);
    if (good && out->prompt_count * out->best_of > LIMIT_PROMPTS * 2)
        good = api_error_set(error, 400, out->best_of > out->n ? "best_of" : "n",
                             "%u prompts with %u answers each: at most %d answers in all",
                             out->prompt_count, out->best_of, LIMIT_PROMPTS * 2);
    if (!good)
        api_request_done(out);
    return good;
}

void api_request_input_free(struct api_request *request)
{
    for (uint32_t i = 0; i < LIMIT_PROMPTS; i++) {
        free(request->prompts[i].ids);
        request->prompts[i] = (struct api_prompt){0};
    }
    api_chat_done(&request->chat);
    api_logit_rules_done(&request->logit_rules);
    request->model = NULL;
    texts_free(&request->texts);
}

void api_request_done(struct api_request *request)
{
    api_request_input_free(request);
    texts_free(&request->stop_texts);
    free(request->constraint.text);
    free(request->tools.packed_names);
    free(request->repeated_members);
    memset(request, 0, sizeof(*request));
}
