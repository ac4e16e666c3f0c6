/* vocabulary_json_tokens: reads the tokens and merges of tokenizer.json. Texts stay in the JSON
 * document; only merges that are written as pairs are copied. */
#include "model/file/json_read.h"
#include "model/file/vocabulary_read.h"

#include <stdlib.h>

#define FILE_NAME  "tokenizer.json"
#define MERGES_MAX ((size_t)1 << 24)

enum { OWNED_TOKENS, OWNED_TYPES, OWNED_FINDS, OWNED_SCORES, OWNED_MERGES, OWNED_JOINED };

struct table {
    struct mapped_text *tokens;
    int32_t *types;
    uint8_t *finds;
    double *scores; /* Only of a unigram model. */
    uint32_t count;
    bool characters;
};

/* ---- model.vocab ---- */

/* Whether the text is a byte token ("<0x0A>") of a vocabulary of characters. */
static bool is_byte(const struct table *t, struct mapped_text text)
{
    return t->characters && text.bytes == 6 && memcmp(text.text, "<0x", 3) == 0 &&
           text.text[5] == '>';
}

static enum status read_vocab(const json_t *vocab, const struct table *t, struct error *error)
{
    const char *text;
    json_t *id;
    json_object_foreach((json_t *)vocab, text, id)
    {
        json_int_t at = json_is_integer(id) ? json_integer_value(id) : -1;
        if (at < 0 || at >= t->count)
            return error_set(error, ST_INVALID,
                             FILE_NAME ": model/vocab: the id of '%.60s' is %" JSON_INTEGER_FORMAT
                                       ": want one below %u, the rows of the embedding",
                             text, at, t->count);
        if (t->tokens[at].text != NULL)
            return error_set(error, ST_INVALID,
                             FILE_NAME
                             ": model/vocab: '%.60s' and '%.60s' are both %" JSON_INTEGER_FORMAT,
                             t->tokens[at].text, text, at);
        t->tokens[at] = mapped_text_of(text);
        t->types[at] = is_byte(t, t->tokens[at]) ? TOKEN_BYTE : TOKEN_NORMAL;
    }
    return ST_OK;
}

/* Reads the list of pieces and scores of a unigram model. */
static enum status read_pieces(const json_t *vocab, const struct table *t, struct error *error)
{
    if (json_array_size(vocab) > t->count)
        return error_set(error, ST_INVALID,
                         FILE_NAME
                         ": model/vocab has %zu entries: want at most %u, the rows of the "
                         "embedding",
                         json_array_size(vocab), t->count);
    for (size_t i = 0; i < json_array_size(vocab); i++) {
        const json_t *entry = json_array_get(vocab, i);
        const json_t *text = json_array_get(entry, 0), *score = json_array_get(entry, 1);
        if (!json_is_string(text) || !json_is_number(score))
            return error_set(error, ST_INVALID, FILE_NAME ": model/vocab/%zu: want [text, score]",
                             i);
        t->tokens[i] = json_text_of(text);
        t->types[i] = is_byte(t, t->tokens[i]) ? TOKEN_BYTE : TOKEN_NORMAL;
        t->scores[i] = json_number_value(score);
    }
    return ST_OK;
}

/* ---- added_tokens ---- */

static bool says_true(const json_t *object, const char *name)
{
    return json_is_true(json_object_get(object, name));
}

uint8_t vocabulary_json_find_flags(const json_t *added)
{
    return (uint8_t)((says_true(added, "single_word") ? FIND_SINGLE_WORD : 0) |
                     (says_true(added, "lstrip") ? FIND_LSTRIP : 0) |
                     (says_true(added, "rstrip") ? FIND_RSTRIP : 0));
}

/* Returns true for a token with a blank that is looked for in the normalised text, where blanks are
 * spelled otherwise. */
static bool is_normalized(const json_t *added, struct mapped_text text, const struct table *t)
{
    return t->characters && !says_true(added, "special") && says_true(added, "normalized") &&
           memchr(text.text, ' ', text.bytes) != NULL;
}

static enum status read_added(const json_t *list, size_t i, const json_t *vocab,
                              const struct table *t, struct error *error)
{
    const json_t *added = json_array_get(list, i);
    const json_t *content = json_object_get(added, "content"), *id = json_object_get(added, "id");
    json_int_t at = json_is_integer(id) ? json_integer_value(id) : -1;
    if (!json_is_string(content) || at < 0 || at >= t->count)
        return error_set(error, ST_INVALID,
                         FILE_NAME ": added_tokens/%zu: want content, and an id below %u, the rows "
                                   "of the embedding; it is %" JSON_INTEGER_FORMAT,
                         i, t->count, at);
    const struct mapped_text text = json_text_of(content);
    const json_t *known = json_object_get(vocab, text.text);
    if (t->tokens[at].text != NULL ? !mapped_text_equals(t->tokens[at], text.text)
                                   : known != NULL && json_integer_value(known) != at)
        return error_set(error, ST_INVALID,
                         FILE_NAME ": added_tokens/%zu: '%.60s' is %" JSON_INTEGER_FORMAT
                                   ", but model/vocab says otherwise",
                         i, text.text, at);
    if (is_normalized(added, text, t))
        return error_set(error, ST_UNSUPPORTED,
                         FILE_NAME ": added_tokens/%zu: '%.60s' has a blank and normalized, which "
                                   "is not supported",
                         i, text.text);
    t->tokens[at] = text;
    t->types[at] = says_true(added, "special") ? TOKEN_CONTROL : TOKEN_USER_DEFINED;
    t->finds[at] = vocabulary_json_find_flags(added);
    return ST_OK;
}

uint32_t vocabulary_json_find(const json_t *root, const char *text)
{
    const json_t *vocab = json_find(root, "model/vocab"), *id = json_object_get(vocab, text);
    const json_t *list = json_object_get(root, "added_tokens");
    for (size_t i = 0; i < json_array_size(vocab) && i < VOCABULARY_TOKENS_MAX; i++) {
        const char *piece = json_string_value(json_array_get(json_array_get(vocab, i), 0));
        if (piece != NULL && strcmp(piece, text) == 0)
            return (uint32_t)i;
    }
    for (size_t i = 0; id == NULL && i < json_array_size(list); i++)
        if (json_text_equals(json_array_get(list, i), "content", text))
            id = json_object_get(json_array_get(list, i), "id");
    return json_is_integer(id) && json_integer_value(id) >= 0 &&
                   json_integer_value(id) < VOCABULARY_TOKENS_MAX
               ? (uint32_t)json_integer_value(id)
               : VOCABULARY_NO_TOKEN;
}

/* ---- all tokens ---- */

/* Refuses parts of the model that change what is merged. */
static enum status check_model(const json_t *model, enum vocabulary_kind kind, struct error *error)
{
    const bool characters = kind == VOCABULARY_CHARACTERS;
    static const char *const wanted_null[] = {"dropout", "continuing_subword_prefix",
                                              "end_of_word_suffix"};
    const json_t *type = json_object_get(model, "type");
    if (kind == VOCABULARY_UNIGRAM)
        return ST_OK;
    if (type != NULL && !json_text_equals(model, "type", "BPE"))
        return error_set(error, ST_UNSUPPORTED,
                         FILE_NAME ": model/type is %.40s: supported are BPE, and Unigram without "
                                   "ByteLevel",
                         json_is_string(type) ? json_string_value(type) : json_kind(type));
    for (size_t i = 0; i < sizeof(wanted_null) / sizeof(wanted_null[0]); i++) {
        const json_t *value = json_object_get(model, wanted_null[i]);
        bool absent = value == NULL || json_is_null(value) || json_string_length(value) == 0;
        if (json_is_number(value) ? json_number_value(value) != 0
                                  : !absent || json_is_object(value))
            return error_set(error, ST_UNSUPPORTED,
                             FILE_NAME ": model/%s is given, which is not supported",
                             wanted_null[i]);
    }
    if (characters != says_true(model, "byte_fallback"))
        return error_set(error, ST_UNSUPPORTED,
                         FILE_NAME ": model/byte_fallback is %s: supported is %s with this "
                                   "pre_tokenizer",
                         characters ? "false" : "true", characters ? "true" : "false");
    return ST_OK;
}

static enum status table_open(struct vocabulary *v, struct table *out, struct error *error)
{
    *out = (struct table){.tokens = calloc(v->count, sizeof(*out->tokens)),
                          .types = calloc(v->count, sizeof(*out->types)),
                          .finds = calloc(v->count, sizeof(*out->finds)),
                          .scores = calloc(v->count, sizeof(*out->scores)),
                          .count = v->count,
                          .characters = v->kind != VOCABULARY_BYTES};
    v->owned[OWNED_TOKENS] = out->tokens;
    v->owned[OWNED_TYPES] = out->types;
    v->owned[OWNED_FINDS] = out->finds;
    v->owned[OWNED_SCORES] = out->scores;
    v->tokens = out->tokens;
    v->types = out->types;
    v->find_flags = out->finds;
    v->long_scores = out->scores;
    if (out->tokens == NULL || out->types == NULL || out->finds == NULL || out->scores == NULL)
        return error_set(error, ST_NO_MEMORY, "no memory for a vocabulary of %u tokens", v->count);
    return ST_OK;
}

enum status vocabulary_json_tokens(const json_t *root, struct vocabulary *v, struct error *error)
{
    const json_t *model = json_object_get(root, "model");
    const json_t *vocab = json_object_get(model, "vocab");
    const json_t *list = json_object_get(root, "added_tokens");
    const json_t *unknown = json_object_get(model, "unk_token");
    const bool unigram = v->kind == VOCABULARY_UNIGRAM;
    struct table t;
    enum status status = table_open(v, &t, error);
    if (status != ST_OK)
        return status;
    if (!json_is_object(model) || !(unigram ? json_is_array(vocab) : json_is_object(vocab)))
        return error_set(error, ST_INVALID, FILE_NAME ": model/vocab: want %s",
                         unigram ? "an array" : "an object");
    status = check_model(model, v->kind, error);
    if (status == ST_OK)
        status = unigram ? read_pieces(vocab, &t, error) : read_vocab(vocab, &t, error);
    for (size_t i = 0; i < json_array_size(list) && status == ST_OK; i++)
        status = read_added(list, i, vocab, &t, error);
    if (status != ST_OK)
        return status;
    for (uint32_t id = 0; id < t.count; id++)
        if (t.tokens[id].text == NULL) {
            t.tokens[id] = mapped_text_of("");
            t.types[id] = TOKEN_UNUSED;
        }
    if (json_is_string(unknown))
        v->unknown = vocabulary_json_find(root, json_string_value(unknown));
    if (unigram && json_is_integer(json_object_get(model, "unk_id")))
        v->unknown = (uint32_t)json_integer_value(json_object_get(model, "unk_id"));
    if (unigram && v->unknown >= v->count && v->unknown != VOCABULARY_NO_TOKEN)
        return error_set(error, ST_INVALID, FILE_NAME ": model/unk_id: want an id below %u",
                         v->count);
    v->whole_words_first = says_true(model, "ignore_merges") ? VOCABULARY_YES : VOCABULARY_NO;
    return ST_OK;
}

/* ---- model.merges ---- */

static bool is_pair(const json_t *merge)
{
    return json_is_array(merge) && json_array_size(merge) == 2 &&
           json_is_string(json_array_get(merge, 0)) && json_is_string(json_array_get(merge, 1));
}

static enum status merges_bytes(const json_t *list, size_t *bytes_out, struct error *error)
{
    size_t bytes = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *merge = json_array_get(list, i);
        if (!json_is_string(merge) && !is_pair(merge))
            return error_set(error, ST_INVALID,
                             FILE_NAME ": model/merges/%zu: want \"left right\" or two texts", i);
        if (json_is_array(merge))
            bytes += json_string_length(json_array_get(merge, 0)) +
                     json_string_length(json_array_get(merge, 1)) + 1;
    }
    *bytes_out = bytes;
    return ST_OK;
}

/* Writes "left right" for a pair to `to`. */
static struct mapped_text join(const json_t *pair, char *to)
{
    const struct mapped_text left = json_text_of(json_array_get(pair, 0));
    const struct mapped_text right = json_text_of(json_array_get(pair, 1));
    memcpy(to, left.text, left.bytes);
    to[left.bytes] = ' ';
    memcpy(to + left.bytes + 1, right.text, right.bytes);
    return (struct mapped_text){to, left.bytes + 1 + right.bytes};
}

enum status vocabulary_json_merges(const json_t *root, struct vocabulary *v, struct error *error)
{
    const json_t *list = json_find(root, "model/merges");
    size_t count = json_array_size(list), bytes = 0;
    if (v->kind == VOCABULARY_UNIGRAM)
        return ST_OK;
    if (!json_is_array(list) || count >= MERGES_MAX)
        return error_set(error, ST_INVALID, FILE_NAME ": model/merges: want an array");
    enum status status = merges_bytes(list, &bytes, error);
    if (status != ST_OK)
        return status;
    struct mapped_text *merges = malloc((count + 1) * sizeof(*merges));
    char *joined = malloc(bytes + 1);
    v->owned[OWNED_MERGES] = merges;
    v->owned[OWNED_JOINED] = joined;
    if (merges == NULL || joined == NULL)
        return error_set(error, ST_NO_MEMORY, "no memory for %zu merges", count);
    for (size_t i = 0; i < count; i++) {
        const json_t *merge = json_array_get(list, i);
        merges[i] = json_is_string(merge) ? json_text_of(merge) : join(merge, joined);
        if (json_is_array(merge))
            joined += merges[i].bytes;
        const char *blank = memchr(merges[i].text, ' ', merges[i].bytes);
        const size_t rest = blank != NULL ? (size_t)(merges[i].text + merges[i].bytes - blank) : 0;
        if (blank == NULL || memchr(blank + 1, ' ', rest - 1) != NULL)
            return error_set(error, ST_UNSUPPORTED,
                             FILE_NAME ": model/merges/%zu: '%.60s': want two parts without blanks",
                             i, merges[i].text);
    }
    v->merges = merges;
    v->merge_count = count;
    return ST_OK;
}
