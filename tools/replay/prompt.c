/* replay_prompt: see the header. Bodies are written directly into one buffer of known size, because
 * a prompt of 10,000 ids would need 10,000 JSON values. */
#include "tools/replay/prompt.h"

#include "common/random.h"
#include "common/text.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ID_BYTES   11 /* A 32-bit id and its comma. */
#define WORD_BYTES 8  /* The longest word below with its space. */
#define BODY_BYTES 256

struct replay_prompt {
    struct replay_prompt_options options;
    char *model_json; /* With its quotes. */
};

/* Frequent English words. With the space before it, each is one token in the byte-level
 * vocabularies of GPT-2, Llama 3, Qwen and SmolLM, and in that of Llama 2. */
static const char *const words[] = {
    "the",  "of",    "and",  "in",    "to",    "is",   "that", "for",  "was",   "on",    "with",
    "as",   "by",    "at",   "from",  "are",   "this", "have", "or",   "be",    "not",   "his",
    "but",  "they",  "all",  "one",   "which", "you",  "were", "her",  "she",   "there", "their",
    "can",  "more",  "if",   "will",  "would", "when", "who",  "so",   "no",    "out",   "up",
    "said", "about", "into", "than",  "them",  "only", "some", "time", "could", "these", "two",
    "may",  "then",  "do",   "first", "any",   "my",   "now",  "such", "like",
};
#define WORD_COUNT (sizeof(words) / sizeof(words[0]))

enum status replay_prompt_open(const struct replay_prompt_options *options,
                               struct replay_prompt **prompt_out)
{
    const size_t model_bytes = strlen(options->model);
    if (options->id_low > options->id_high ||
        text_utf8_check(options->model, model_bytes) < model_bytes)
        return ST_INVALID;
    struct replay_prompt *prompt = calloc(1, sizeof(*prompt));
    if (prompt == NULL)
        return ST_NO_MEMORY;
    prompt->options = *options;
    json_t *model = json_string(options->model);
    prompt->model_json = model != NULL ? json_dumps(model, JSON_ENCODE_ANY) : NULL;
    json_decref(model);
    if (prompt->model_json == NULL) {
        free(prompt);
        return ST_NO_MEMORY;
    }
    *prompt_out = prompt;
    return ST_OK;
}

void replay_prompt_close(struct replay_prompt *prompt)
{
    if (prompt == NULL)
        return;
    free(prompt->model_json);
    free(prompt);
}

/* Draws the number for one token: a function of the seed and of the position in the line or block.
 */
static uint64_t draw(const struct replay_prompt *prompt, const struct replay_request *request,
                     uint32_t position)
{
    uint64_t seed = prompt->options.seed;
    if (request->block_count > 0 && position / request->block_tokens < request->block_count) {
        uint64_t block = (uint64_t)request->blocks[position / request->block_tokens];
        return random_at(random_at(~seed, block), position % request->block_tokens);
    }
    return random_at(random_at(seed, request->line), position);
}

static char *text_append(char *at, const char *text)
{
    size_t size = strlen(text);
    memcpy(at, text, size);
    return at + size;
}

/* The first word of a message has no space before it, because some templates remove the space. */
static char *put_words(const struct replay_prompt *prompt, const struct replay_request *request,
                       uint32_t count, char *at)
{
    for (uint32_t i = 0; i < count; i++) {
        if (i > 0 || !prompt->options.chat)
            *at++ = ' ';
        at = text_append(at, words[draw(prompt, request, i) % WORD_COUNT]);
    }
    return at;
}

static char *put_ids(const struct replay_prompt *prompt, const struct replay_request *request,
                     char *at)
{
    uint64_t range = (uint64_t)prompt->options.id_high - prompt->options.id_low + 1;
    for (uint32_t i = 0; i < request->prompt_tokens; i++) {
        char digits[ID_BYTES];
        uint64_t id = prompt->options.id_low + draw(prompt, request, i) % range;
        size_t used = sizeof(digits);
        do {
            digits[--used] = (char)('0' + id % 10);
            id /= 10;
        } while (id > 0);
        if (i > 0)
            *at++ = ',';
        memcpy(at, digits + used, sizeof(digits) - used);
        at += sizeof(digits) - used;
    }
    return at;
}

char *replay_prompt_text(const struct replay_prompt *prompt, uint64_t line, uint32_t count)
{
    const struct replay_request request = {.line = line};
    char *text = malloc((size_t)count * WORD_BYTES + 1);
    if (text != NULL)
        *put_words(prompt, &request, count, text) = 0;
    return text;
}

enum status replay_prompt_body(const struct replay_prompt *prompt,
                               const struct replay_request *request, char **body_out,
                               size_t *size_out)
{
    const struct replay_prompt_options *options = &prompt->options;
    bool ids = options->kind != REPLAY_PROMPT_TEXT;
    if (!ids && request->prompt_tokens <= options->extra_tokens)
        return ST_INVALID;
    size_t room = BODY_BYTES + strlen(prompt->model_json) +
                  (size_t)request->prompt_tokens * (ids ? ID_BYTES : WORD_BYTES);
    char *body = malloc(room);
    if (body == NULL)
        return ST_NO_MEMORY;

    char *at = text_append(body, "{\"model\":");
    at = text_append(at, prompt->model_json);
    if (ids) {
        at = text_append(at, ",\"prompt\":[");
        at = put_ids(prompt, request, at);
        at = text_append(at, "]");
    } else {
        at = text_append(at, options->chat ? ",\"messages\":[{\"role\":\"user\",\"content\":\""
                                           : ",\"prompt\":\"");
        at = put_words(prompt, request, request->prompt_tokens - options->extra_tokens, at);
        at = text_append(at, options->chat ? "\"}]" : "\"");
    }
    int tail = snprintf(at, room - (size_t)(at - body),
                        ",\"max_tokens\":%" PRIu32 ",\"temperature\":0,\"ignore_eos\":true,"
                        "\"stream\":true,\"stream_options\":{\"include_usage\":true}}",
                        request->output_tokens);
    *size_out = (size_t)(at - body) + (size_t)tail;
    *body_out = body;
    return ST_OK;
}
