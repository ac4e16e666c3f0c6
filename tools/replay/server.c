/* replay_server: see the header. The count of tokens comes from /tokenize, or else from the usage
 * of a request for a single token. */
#include "tools/replay/server.h"

#include "common/text.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORDS_FEW  200 /* Two counts of words; their difference shows the tokens of a word. */
#define WORDS_MANY 400

struct asking {
    struct replay_client *client;
    const struct replay_options *options;
    struct replay_server *server;
    struct replay_prompt *words;
};

/* Sends a POST of `body` and takes ownership of it; NULL = memory ran out when it was made.
 * *answer_out: the answer as JSON; NULL = not JSON. */
static enum status post(const struct asking *asking, const char *path, json_t *body,
                        json_t **answer_out, struct error *error)
{
    char *text = json_dumps(body, 0);
    json_decref(body);
    if (text == NULL)
        return error_set(error, ST_NO_MEMORY, "out of memory");
    enum status status = replay_client_ask(asking->client, path, text, answer_out, error);
    free(text);
    return status;
}

/* Gets the model's name and context from /v1/models, unless the options give them. */
static enum status model_ask(const struct asking *asking, struct error *error)
{
    const struct replay_options *options = asking->options;
    struct replay_server *server = asking->server;
    json_t *root;
    if (options->model != NULL &&
        text_utf8_check(options->model, strlen(options->model)) < strlen(options->model))
        return error_set(error, ST_INVALID, "--model: not UTF-8");
    enum status status = replay_client_ask(asking->client, "/v1/models", NULL, &root, error);
    if (status != ST_OK)
        return status;
    json_t *entry = json_array_get(json_object_get(root, "data"), 0);
    const char *id =
        options->model != NULL ? options->model : json_string_value(json_object_get(entry, "id"));
    const bool is_listed = id != NULL;
    if (is_listed)
        server->model = strdup(id);
    json_int_t context = json_integer_value(json_object_get(entry, "max_model_len"));
    json_decref(root);
    if (!is_listed)
        return error_set(error, ST_INVALID, "%s/v1/models lists no model: give --model",
                         options->url);
    if (server->model == NULL)
        return error_set(error, ST_NO_MEMORY, "out of memory");
    server->max_context = options->max_context > 0              ? (uint32_t)options->max_context
                          : context > 0 && context < UINT32_MAX ? (uint32_t)context
                                                                : 0;
    return ST_OK;
}

static const char *completions_path(const struct asking *asking)
{
    return asking->options->api == REPLAY_API_CHAT ? "/v1/chat/completions" : "/v1/completions";
}

/* Makes a request's body with `text` as prompt or message. */
static json_t *body_of(const struct asking *asking, const char *text)
{
    const char *model = asking->server->model;
    if (asking->options->api == REPLAY_API_CHAT)
        return json_pack("{s:s, s:[{s:s, s:s}]}", "model", model, "messages", "role", "user",
                         "content", text);
    return json_pack("{s:s, s:s}", "model", model, "prompt", text);
}

static json_t *one_token(json_t *body)
{
    if (body != NULL) {
        json_object_set_new(body, "max_tokens", json_integer(1));
        json_object_set_new(body, "temperature", json_integer(0));
    }
    return body;
}

/* Returns the prompt's tokens from the usage; -1 = not given. */
static json_int_t prompt_count(json_t *answer)
{
    json_t *count = json_object_get(json_object_get(answer, "usage"), "prompt_tokens");
    return json_is_integer(count) ? json_integer_value(count) : -1;
}

/* Tries a prompt of the smallest and the greatest id that will be drawn. */
static enum status ids_try(const struct asking *asking, bool *taken_out, struct error *error)
{
    json_t *answer = NULL;
    json_t *body =
        json_pack("{s:s, s:[I, I]}", "model", asking->server->model, "prompt",
                  (json_int_t)asking->options->id_low, (json_int_t)asking->options->id_high);
    enum status status = post(asking, completions_path(asking), one_token(body), &answer, error);
    const bool unanswered = status == ST_UNREACHABLE || status == ST_NO_RESOURCE;
    if (unanswered)
        error_prefix(error, "whether token ids are taken (--prompt ids does not ask)");
    if (unanswered || status == ST_NO_MEMORY)
        return status;
    json_int_t count = prompt_count(answer);
    json_decref(answer);
    *taken_out = status == ST_OK && (count == 2 || count == -1);
    if (!*taken_out)
        fprintf(stderr, "replay: prompts are text: two token ids, %llu and %llu: %s\n",
                (unsigned long long)asking->options->id_low,
                (unsigned long long)asking->options->id_high,
                status != ST_OK ? error->text : "not counted as two tokens");
    return ST_OK;
}

/* Counts the tokens of a text of `words` words; -1 = the server does not say. */
static enum status words_count(const struct asking *asking, uint32_t words, json_int_t *count_out,
                               struct error *error)
{
    json_t *answer = NULL;
    char *text = replay_prompt_text(asking->words, 0, words);
    if (text == NULL)
        return error_set(error, ST_NO_MEMORY, "out of memory");
    enum status status = post(asking, "/tokenize", body_of(asking, text), &answer, error);
    json_t *count = json_object_get(answer, "count");
    *count_out = json_is_integer(count) ? json_integer_value(count) : -1;
    if (status == ST_OK && json_is_array(json_object_get(answer, "tokens")))
        *count_out = (json_int_t)json_array_size(json_object_get(answer, "tokens"));
    json_decref(answer);
    answer = NULL;
    if (status != ST_UNREACHABLE && status != ST_NO_MEMORY && *count_out < 0) {
        status = post(asking, completions_path(asking), one_token(body_of(asking, text)), &answer,
                      error);
        *count_out = prompt_count(answer);
        json_decref(answer);
    }
    free(text);
    return status;
}

/* For text prompts: checks that each word is one token, and finds out what is added to a text. */
static enum status words_ask(struct asking *asking, struct error *error)
{
    struct replay_server *server = asking->server;
    const struct replay_prompt_options options = {
        .model = server->model,
        .kind = REPLAY_PROMPT_TEXT,
        .chat = asking->options->api == REPLAY_API_CHAT,
        .seed = asking->options->seed,
    };
    json_int_t few = -1, many = -1;
    enum status status = replay_prompt_open(&options, &asking->words);
    if (status != ST_OK) /* The model's name is UTF-8. */
        return error_set(error, status, "out of memory");
    status = words_count(asking, WORDS_FEW, &few, error);
    if (status == ST_OK)
        status = words_count(asking, WORDS_MANY, &many, error);
    replay_prompt_close(asking->words);
    server->exactness = REPLAY_EXACT_UNKNOWN;
    if (status != ST_OK || few < 0 || many < 0)
        return status;
    if (many - few != WORDS_MANY - WORDS_FEW || few < WORDS_FEW)
        return error_set(error, ST_UNSUPPORTED,
                         "%d one-token words are %lld tokens for this server, %d are %lld: use "
                         "--prompt ids",
                         WORDS_FEW, (long long)few, WORDS_MANY, (long long)many);
    server->extra_tokens = (uint32_t)(few - WORDS_FEW);
    server->exactness = REPLAY_EXACT_COUNTED;
    return ST_OK;
}

enum status replay_server_ask(struct replay_client *client, const struct replay_options *options,
                              struct replay_server *server_out, struct error *error)
{
    struct replay_server server = {.prompt = options->prompt};
    struct asking asking = {.client = client, .options = options, .server = &server};
    enum status status = model_ask(&asking, error);
    if (options->api == REPLAY_API_CHAT)
        server.prompt = REPLAY_PROMPT_TEXT;
    if (status == ST_OK && server.prompt == REPLAY_PROMPT_AUTO) {
        bool taken = false;
        status = ids_try(&asking, &taken, error);
        server.prompt = taken ? REPLAY_PROMPT_IDS : REPLAY_PROMPT_TEXT;
    }
    if (status == ST_OK && server.prompt == REPLAY_PROMPT_TEXT)
        status = words_ask(&asking, error);
    if (status != ST_OK) {
        replay_server_done(&server);
        return status;
    }
    *server_out = server;
    return ST_OK;
}

void replay_server_done(struct replay_server *server)
{
    free(server->model);
    server->model = NULL;
}

void replay_server_describe(const struct replay_server *server, bool chat, char *out, size_t room)
{
    const char *kind = chat ? "messages" : "text";
    if (server->exactness == REPLAY_EXACT_IDS)
        snprintf(out, room, "token ids");
    else if (server->exactness == REPLAY_EXACT_COUNTED)
        snprintf(out, room,
                 "%s of one-token words, counted by the server (it adds %u tokens to each)", kind,
                 server->extra_tokens);
    else
        snprintf(out, room, "%s of one-token words, which the server does not count", kind);
}
