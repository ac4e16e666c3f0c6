/* vocabulary_tekken: reads tekken.json, the tokenizer of Mistral's models, of a folder without
 * tokenizer.json: special tokens, then tokens of bytes in the order in which they merge. Tokens are
 * spelled in GPT-2's alphabet, as in other byte-level vocabularies. */
#include "model/file/json_read.h"
#include "model/file/vocabulary_read.h"

#include <stdio.h>
#include <stdlib.h>

#define FILE_NAME "tekken.json"

enum { OWNED_TOKENS, OWNED_TYPES, OWNED_SPELLINGS, OWNED_NAMES };

#define NAME_BYTES 24 /* "<SPECIAL_999999>" with its NUL. */

/* The special tokens of files that do not list them. */
static const char *const special_names[] = {
    "<unk>",
    "<s>",
    "</s>",
    "[INST]",
    "[/INST]",
    "[AVAILABLE_TOOLS]",
    "[/AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]",
    "[TOOL_CALLS]",
    "[IMG]",
    "<pad>",
    "[IMG_BREAK]",
    "[IMG_END]",
    "[PREFIX]",
    "[MIDDLE]",
    "[SUFFIX]",
    "[SYSTEM_PROMPT]",
    "[/SYSTEM_PROMPT]",
    "[TOOL_CONTENT]",
};

struct reader {
    struct vocabulary *v;
    struct mapped_text *tokens;
    int32_t *types;
    uint32_t special_count;
    char *spelling; /* Where the next token is spelled. */
    struct error *error;
};

/* ---- base64 ---- */

static int digit_of(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Writes a byte as a character of GPT-2's alphabet. Returns its bytes. */
static size_t byte_spell(uint8_t byte, char *out)
{
    uint32_t character = byte;
    if (byte <= 0x20)
        character = 0x100u + byte;
    else if (byte >= 0x7f && byte <= 0xa0)
        character = 0x100u + byte - 0x7f + 33;
    else if (byte == 0xad)
        character = 0x100 + 67;
    if (character < 0x80) {
        out[0] = (char)character;
        return 1;
    }
    out[0] = (char)(0xc0 | character >> 6);
    out[1] = (char)(0x80 | (character & 0x3f));
    return 2;
}

/* Decodes base64 and spells the bytes. Returns the bytes of the spelling; 0 = it is not base64 of
 * at least one byte. `out` has room for two bytes for each digit. */
static size_t base64_spell(struct mapped_text text, char *out)
{
    size_t written = 0;
    uint32_t bits = 0, held = 0;
    while (text.bytes > 0 && text.text[text.bytes - 1] == '=')
        text.bytes--;
    for (size_t i = 0; i < text.bytes; i++) {
        int digit = digit_of(text.text[i]);
        if (digit < 0)
            return 0;
        bits = (bits << 6 | (uint32_t)digit) & 0xffff;
        held += 6;
        if (held >= 8) {
            held -= 8;
            written += byte_spell((uint8_t)(bits >> held), out + written);
        }
    }
    return written;
}

/* ---- tokens ---- */

static enum status put(struct reader *r, uint32_t id, struct mapped_text text, int32_t type)
{
    if (r->tokens[id].text != NULL)
        return error_set(r->error, ST_INVALID, FILE_NAME ": two tokens have the id %u", id);
    r->tokens[id] = text;
    r->types[id] = type;
    return ST_OK;
}

static enum status read_vocab(struct reader *r, const json_t *list, uint32_t limit)
{
    enum status status = ST_OK;
    for (size_t i = 0; i < json_array_size(list) && status == ST_OK; i++) {
        const json_t *entry = json_array_get(list, i);
        const json_t *rank = json_object_get(entry, "rank");
        const json_t *bytes = json_object_get(entry, "token_bytes");
        const json_int_t at = json_is_integer(rank) ? json_integer_value(rank) : -1;
        const size_t spelled =
            json_is_string(bytes) ? base64_spell(json_text_of(bytes), r->spelling) : 0;
        if (at < 0 || at >= VOCABULARY_TOKENS_MAX || spelled == 0)
            return error_set(r->error, ST_INVALID,
                             FILE_NAME ": vocab/%zu: want a rank, and token_bytes in base64", i);
        if (at + r->special_count >= limit) /* The file has more than the model uses. */
            continue;
        status = put(r, (uint32_t)at + r->special_count, (struct mapped_text){r->spelling, spelled},
                     TOKEN_NORMAL);
        r->spelling += spelled;
    }
    return status;
}

static enum status read_specials(struct reader *r, const json_t *list, char *names)
{
    enum status status = ST_OK;
    for (size_t i = 0; i < json_array_size(list) && status == ST_OK; i++) {
        const json_t *entry = json_array_get(list, i);
        const json_t *rank = json_object_get(entry, "rank");
        const json_t *text = json_object_get(entry, "token_str");
        const json_int_t at = json_is_integer(rank) ? json_integer_value(rank) : -1;
        if (at < 0 || at >= r->special_count || !json_is_string(text))
            return error_set(r->error, ST_INVALID,
                             FILE_NAME ": special_tokens/%zu: want token_str, and a rank below %u",
                             i, r->special_count);
        status = put(r, (uint32_t)at, json_text_of(text), TOKEN_CONTROL);
    }
    for (uint32_t id = 0; id < r->special_count && status == ST_OK; id++, names += NAME_BYTES) {
        if (r->tokens[id].text != NULL)
            continue;
        bool known = list == NULL && id < sizeof(special_names) / sizeof(special_names[0]);
        snprintf(names, NAME_BYTES, known ? "%s" : "<SPECIAL_%s%u>", known ? special_names[id] : "",
                 id);
        status = put(r, id, mapped_text_of(names), TOKEN_CONTROL);
    }
    return status;
}

static size_t spelling_bytes(const json_t *vocab)
{
    size_t bytes = 0;
    for (size_t i = 0; i < json_array_size(vocab); i++)
        bytes += 2 * json_string_length(json_object_get(json_array_get(vocab, i), "token_bytes"));
    return bytes;
}

static enum status open_reader(struct reader *r, const json_t *vocab, struct error *error)
{
    struct vocabulary *v = r->v;
    r->error = error;
    r->tokens = calloc(v->count, sizeof(*r->tokens));
    r->types = calloc(v->count, sizeof(*r->types));
    r->spelling = malloc(spelling_bytes(vocab) + 1);
    v->owned[OWNED_TOKENS] = r->tokens;
    v->owned[OWNED_TYPES] = r->types;
    v->owned[OWNED_SPELLINGS] = r->spelling;
    v->owned[OWNED_NAMES] = calloc((size_t)r->special_count + 1, NAME_BYTES);
    v->tokens = r->tokens;
    v->types = r->types;
    if (r->tokens == NULL || r->types == NULL || r->spelling == NULL ||
        v->owned[OWNED_NAMES] == NULL)
        return error_set(error, ST_NO_MEMORY, "no memory for a vocabulary of %u tokens", v->count);
    return ST_OK;
}

enum status vocabulary_read_tekken(const json_t *root, struct vocabulary *v, struct error *error)
{
    struct reader r = {.v = v};
    const json_t *vocab = json_object_get(root, "vocab");
    const json_t *pattern = json_find(root, "config/pattern");
    uint32_t size = 0;
    enum status status = json_get_u32(FILE_NAME, root, "config/default_vocab_size", &size, error);
    if (status == ST_OK)
        status = json_get_u32(FILE_NAME, root, "config/default_num_special_tokens",
                              &r.special_count, error);
    if (status == ST_NOT_FOUND || !json_is_string(pattern) || !json_is_array(vocab))
        return error_set(error, ST_INVALID,
                         FILE_NAME ": want vocab, and config with pattern, default_vocab_size and "
                                   "default_num_special_tokens");
    if (status == ST_OK && (size > v->count || r.special_count > size))
        status = error_set(error, ST_INVALID,
                           FILE_NAME ": config: %u tokens, of which %u are special: want at most "
                                     "%u, the rows of the embedding",
                           size, r.special_count, v->count);
    if (status == ST_OK)
        status = open_reader(&r, vocab, error);
    if (status == ST_OK)
        status = read_specials(&r, json_find(root, "special_tokens"), v->owned[OWNED_NAMES]);
    if (status == ST_OK)
        status = read_vocab(&r, vocab, size);
    if (status != ST_OK)
        return status;
    for (uint32_t id = 0; id < v->count; id++)
        if (r.tokens[id].text == NULL)
            (void)put(&r, id, mapped_text_of(""), TOKEN_UNUSED);
    v->kind = VOCABULARY_BYTES;
    v->merges_by_id = true;
    v->whole_words_first = VOCABULARY_YES;
    v->add_bos = VOCABULARY_YES;
    v->splitter = vocabulary_splitter_find(json_string_value(pattern));
    if (v->splitter.text == NULL)
        v->expressions[v->expression_count++] = json_text_of(pattern);
    v->unknown = 0;
    v->bos = r.special_count > 1 ? 1 : VOCABULARY_NO_TOKEN;
    v->eos = r.special_count > 2 ? 2 : VOCABULARY_NO_TOKEN;
    return ST_OK;
}
