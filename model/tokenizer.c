/* tokenizer: opening and encoding. A text is cut at its special tokens, what is between them into
 * words by the pre-tokenizer, and each word is merged from its bytes. Most words are one token:
 * which tokens are their own encoding is worked out when the file is opened, so such a word costs
 * one look-up. */
#include "model/tokenizer_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Token types as the file numbers them. */
enum token_type {
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN,
    TOKEN_CONTROL,
    TOKEN_USER_DEFINED,
    TOKEN_UNUSED,
    TOKEN_BYTE
};

#define VOCAB_MAX (1u << 24) /* far above any vocabulary; keeps ids and counts in 32 bits */

/* Texts of tokens that end an answer, where the file marks them as special. */
static const char *const end_texts[] = {
    "<|im_end|>",      "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>",
    "<|end_of_turn|>", "<end_of_turn>", "<|end|>",    "<EOT>",      "</s>",
};

static enum status key_missing_is(enum status status, const char *key, struct error *error)
{
    return status == ST_NOT_FOUND ? error_set(error, ST_INVALID, "key '%s' is missing", key)
                                  : status;
}

/* ---- opening ---- */

static enum status open_vocab(struct tokenizer *t, const struct gguf_string *tokens, uint32_t count,
                              const int32_t *types, struct error *error)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < count; i++)
        bytes += tokens[i].bytes;
    t->flags = calloc(count, 1);
    if (t->flags == NULL || !texts_open(&t->spellings, count, bytes) ||
        !texts_open(&t->pieces, count, bytes))
        return error_set(error, ST_NO_MEMORY, "no memory for a vocabulary of %u tokens", count);
    for (uint32_t id = 0; id < count; id++) {
        int32_t type = types != NULL ? types[id] : TOKEN_NORMAL;
        bool special = type == TOKEN_CONTROL || type == TOKEN_UNKNOWN;
        bool verbatim = special || type == TOKEN_USER_DEFINED;
        char *spelling = texts_begin(&t->spellings);
        char *piece = texts_begin(&t->pieces);
        size_t piece_bytes = tokens[id].bytes;
        memcpy(spelling, tokens[id].text, tokens[id].bytes);
        texts_end(&t->spellings, tokens[id].bytes);
        texts_index(&t->spellings, id);
        if (verbatim)
            memcpy(piece, tokens[id].text, tokens[id].bytes);
        else
            piece_bytes = alphabet_decode(tokens[id].text, tokens[id].bytes, piece);
        texts_end(&t->pieces, piece_bytes);
        if (special)
            t->flags[id] |= FLAG_SPECIAL;
        if (verbatim && tokens[id].bytes > 0 &&
            !specials_add(&t->specials, tokens[id].text, tokens[id].bytes, id, !special))
            return error_set(error, ST_NO_MEMORY, "no memory for the special tokens");
        if (verbatim)
            continue;
        texts_index(&t->pieces, id);
        if (piece_bytes > t->word_bytes_max)
            t->word_bytes_max = piece_bytes;
    }
    return ST_OK;
}

/* "left right": the blank is searched from the second byte, for the first may be anything. */
static enum status open_merge(struct tokenizer *t, const struct gguf_string *merge, size_t index,
                              char *joined, struct error *error)
{
    const char *blank = merge->bytes > 2 ? memchr(merge->text + 1, ' ', merge->bytes - 1) : NULL;
    if (blank == NULL)
        return error_set(error, ST_INVALID, "merge %zu: want two parts with a blank between",
                         index);
    size_t left_bytes = (size_t)(blank - merge->text);
    size_t right_bytes = merge->bytes - left_bytes - 1;
    memcpy(joined, merge->text, left_bytes);
    memcpy(joined + left_bytes, blank + 1, right_bytes);
    uint32_t left = texts_find(&t->spellings, merge->text, left_bytes);
    uint32_t right = texts_find(&t->spellings, blank + 1, right_bytes);
    uint32_t id = texts_find(&t->spellings, joined, left_bytes + right_bytes);
    if (left == TOKENIZER_NO_TOKEN || right == TOKENIZER_NO_TOKEN || id == TOKENIZER_NO_TOKEN)
        return error_set(error, ST_INVALID,
                         "merge %zu: a part or the result is not in the vocabulary", index);
    merges_add(&t->bpe.merges, left, right, id);
    return ST_OK;
}

static enum status open_merges(struct tokenizer *t, const struct gguf *g, struct error *error)
{
    static const char key[] = "tokenizer.ggml.merges";
    const struct gguf_string *merges;
    size_t count = 0;
    size_t longest = 0;
    enum status status = gguf_get_string_array(g, key, &merges, &count, error);
    if (status != ST_OK)
        return key_missing_is(status, key, error);
    if (count > VOCAB_MAX)
        return error_set(error, ST_TOO_LARGE, "%zu merges: want at most %u", count, VOCAB_MAX);
    for (size_t i = 0; i < count; i++)
        longest = merges[i].bytes > longest ? merges[i].bytes : longest;
    char *joined = malloc(longest + 1);
    if (joined == NULL || !merges_open(&t->bpe.merges, (uint32_t)count))
        status = error_set(error, ST_NO_MEMORY, "no memory for %zu merges", count);
    for (size_t i = 0; i < count && status == ST_OK; i++)
        status = open_merge(t, &merges[i], i, joined, error);
    free(joined);
    return status;
}

/* An optional key that holds a token's id. */
static enum status read_id(const struct tokenizer *t, const struct gguf *g, const char *key,
                           uint32_t *out, struct error *error)
{
    uint32_t id = 0;
    enum status status = gguf_get_u32(g, key, &id, error);
    if (status == ST_NOT_FOUND)
        return ST_OK;
    if (status != ST_OK)
        return status;
    if (id >= t->pieces.count)
        return error_set(error, ST_INVALID, "key '%s' is %u: the vocabulary has %u tokens", key, id,
                         t->pieces.count);
    *out = id;
    return ST_OK;
}

static void add_end(struct tokenizer *t, uint32_t id)
{
    if (id == TOKENIZER_NO_TOKEN || (t->flags[id] & FLAG_END) != 0 ||
        t->end_count == sizeof(t->ends) / sizeof(t->ends[0]))
        return;
    t->flags[id] |= FLAG_END;
    t->ends[t->end_count++] = id;
}

static enum status open_ids(struct tokenizer *t, const struct gguf *g, struct error *error)
{
    uint32_t eot = TOKENIZER_NO_TOKEN;
    uint32_t eom = TOKENIZER_NO_TOKEN;
    t->bos = TOKENIZER_NO_TOKEN;
    t->eos = TOKENIZER_NO_TOKEN;
    enum status status = read_id(t, g, "tokenizer.ggml.bos_token_id", &t->bos, error);
    if (status == ST_OK)
        status = read_id(t, g, "tokenizer.ggml.eos_token_id", &t->eos, error);
    if (status == ST_OK)
        status = read_id(t, g, "tokenizer.ggml.eot_token_id", &eot, error);
    if (status == ST_OK)
        status = read_id(t, g, "tokenizer.ggml.eom_token_id", &eom, error);
    if (status != ST_OK)
        return status;
    t->add_bos = splitter_adds_bos(t->splitter);
    status = gguf_get_bool(g, "tokenizer.ggml.add_bos_token", &t->add_bos, error);
    if (status != ST_OK && status != ST_NOT_FOUND)
        return status;
    add_end(t, t->eos);
    add_end(t, eot);
    add_end(t, eom);
    for (size_t i = 0; i < sizeof(end_texts) / sizeof(end_texts[0]); i++) {
        uint32_t id = tokenizer_find(t, end_texts[i]);
        if (id != TOKENIZER_NO_TOKEN && (t->flags[id] & FLAG_SPECIAL) != 0)
            add_end(t, id);
    }
    return ST_OK;
}

/* Marks the tokens that are the encoding of their own bytes. Special tokens are not in the pieces'
 * index, so they are never met as words. */
static enum status open_words(struct tokenizer *t, struct error *error)
{
    bool words_first = splitter_words_first(t->splitter);
    struct bpe_space space = {0};
    enum status status = ST_OK;
    uint32_t *ids = malloc((t->word_bytes_max + 1) * sizeof(*ids));
    if (ids == NULL)
        return error_set(error, ST_NO_MEMORY, "no memory for the vocabulary's longest token");
    for (unsigned byte = 0; byte < 256; byte++) {
        char text = (char)byte;
        t->bpe.byte_ids[byte] = texts_find(&t->pieces, &text, 1);
    }
    for (uint32_t id = 0; id < t->pieces.count && status == ST_OK; id++) {
        size_t bytes;
        size_t count = 0;
        const char *piece = texts_at(&t->pieces, id, &bytes);
        if (bytes == 0 || bytes > t->word_bytes_max || texts_find(&t->pieces, piece, bytes) != id)
            continue;
        if (!words_first)
            status = bpe_encode(&t->bpe, piece, bytes, &space, ids, &count);
        if (words_first || (count == 1 && ids[0] == id))
            t->flags[id] |= FLAG_WORD;
    }
    bpe_space_done(&space);
    free(ids);
    return status == ST_OK ? ST_OK : error_set(error, status, "no memory for the vocabulary");
}

static enum status open_parts(struct tokenizer *t, const struct gguf *g, struct error *error)
{
    static const char tokens_key[] = "tokenizer.ggml.tokens";
    static const char types_key[] = "tokenizer.ggml.token_type";
    struct gguf_string model;
    struct gguf_string pre = {"default", 7};
    const struct gguf_string *tokens;
    const int32_t *types = NULL;
    size_t count = 0;
    size_t type_count = 0;
    enum status status = gguf_get_string(g, "tokenizer.ggml.model", &model, error);
    if (status != ST_OK)
        return key_missing_is(status, "tokenizer.ggml.model", error);
    if (model.bytes != 4 || memcmp(model.text, "gpt2", 4) != 0)
        return error_set(error, ST_UNSUPPORTED,
                         "key 'tokenizer.ggml.model' is '%.*s': supported is gpt2",
                         model.bytes < 64 ? (int)model.bytes : 64, model.text);
    status = gguf_get_string(g, "tokenizer.ggml.pre", &pre, error);
    if (status != ST_OK && status != ST_NOT_FOUND)
        return status;
    status = splitter_open(pre.text, pre.bytes, &t->splitter, error);
    if (status != ST_OK)
        return status;
    status = gguf_get_string_array(g, tokens_key, &tokens, &count, error);
    if (status != ST_OK)
        return key_missing_is(status, tokens_key, error);
    if (count < 1 || count > VOCAB_MAX)
        return error_set(error, ST_INVALID, "key '%s' has %zu tokens: want 1 to %u", tokens_key,
                         count, VOCAB_MAX);
    status = gguf_get_i32_array(g, types_key, &types, &type_count, error);
    if (status != ST_OK && status != ST_NOT_FOUND)
        return status;
    if (status == ST_OK && type_count != count)
        return error_set(error, ST_INVALID, "key '%s' has %zu entries for %zu tokens", types_key,
                         type_count, count);
    status = open_vocab(t, tokens, (uint32_t)count, types, error);
    if (status == ST_OK)
        status = open_merges(t, g, error);
    if (status == ST_OK)
        status = open_ids(t, g, error);
    return status == ST_OK ? open_words(t, error) : status;
}

enum status tokenizer_open(const struct gguf *g, struct tokenizer **out, struct error *error)
{
    struct tokenizer *t = calloc(1, sizeof(*t));
    if (t == NULL)
        return error_set(error, ST_NO_MEMORY, "no memory for the tokenizer");
    enum status status = open_parts(t, g, error);
    if (status != ST_OK) {
        tokenizer_close(t);
        return status;
    }
    *out = t;
    return ST_OK;
}

void tokenizer_close(struct tokenizer *t)
{
    if (t == NULL)
        return;
    texts_close(&t->spellings);
    texts_close(&t->pieces);
    merges_close(&t->bpe.merges);
    specials_close(&t->specials);
    splitter_close(t->splitter);
    free(t->flags);
    free(t);
}

/* ---- look-ups ---- */

uint32_t tokenizer_vocab(const struct tokenizer *t)
{
    return t->pieces.count;
}

uint32_t tokenizer_bos(const struct tokenizer *t)
{
    return t->bos;
}

uint32_t tokenizer_eos(const struct tokenizer *t)
{
    return t->eos;
}

bool tokenizer_is_end(const struct tokenizer *t, uint32_t id)
{
    return id < t->pieces.count && (t->flags[id] & FLAG_END) != 0;
}

bool tokenizer_is_special(const struct tokenizer *t, uint32_t id)
{
    return id < t->pieces.count && (t->flags[id] & FLAG_SPECIAL) != 0;
}

uint32_t tokenizer_ends(const struct tokenizer *t, uint32_t ends_out[16])
{
    memcpy(ends_out, t->ends, t->end_count * sizeof(*ends_out));
    return t->end_count;
}

const char *tokenizer_piece(const struct tokenizer *t, uint32_t id, size_t *bytes_out)
{
    return id < t->pieces.count ? texts_at(&t->pieces, id, bytes_out) : NULL;
}

uint32_t tokenizer_find(const struct tokenizer *t, const char *text)
{
    return texts_find(&t->spellings, text, strlen(text));
}

/* ---- encoding ---- */

/* The ids that have been written; `ids` and `capacity` are the caller's. */
struct output {
    uint32_t **ids;
    size_t *capacity;
    size_t count;
};

static bool reserve(struct output *o, size_t more)
{
    if (o->count + more <= *o->capacity)
        return true;
    size_t capacity = (o->count + more) + (o->count + more) / 2 + 64;
    uint32_t *ids = realloc(*o->ids, capacity * sizeof(*ids));
    if (ids == NULL)
        return false;
    *o->ids = ids;
    *o->capacity = capacity;
    return true;
}

/* The bytes of the character at text[0..left), or 0 if it is not one (Unicode 15, table 3-7). */
static size_t character_bytes(const uint8_t *text, size_t left)
{
    uint8_t first = text[0];
    if (first < 0x80)
        return 1;
    size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    if (first < 0xc2 || first > 0xf4 || length > left)
        return 0;
    uint8_t low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    uint8_t high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    if (text[1] < low || text[1] > high)
        return 0;
    for (size_t i = 2; i < length; i++)
        if ((text[i] & 0xc0) != 0x80)
            return 0;
    return length;
}

/* The offset of the first byte that is not UTF-8, or `bytes`. */
static size_t valid_bytes(const char *text, size_t bytes)
{
    size_t at = 0;
    while (at < bytes) {
        uint64_t word;
        if (at + sizeof(word) <= bytes) {
            memcpy(&word, text + at, sizeof(word));
            if ((word & 0x8080808080808080u) == 0) {
                at += sizeof(word);
                continue;
            }
        }
        size_t length = character_bytes((const uint8_t *)text + at, bytes - at);
        if (length == 0)
            return at;
        at += length;
    }
    return bytes;
}

static enum status encode_word(const struct tokenizer *t, const char *word, size_t bytes,
                               struct bpe_space *space, struct output *o)
{
    size_t count = 0;
    if (!reserve(o, bytes))
        return ST_NO_MEMORY;
    uint32_t *ids = *o->ids + o->count;
    if (bytes <= t->word_bytes_max) {
        uint32_t id = texts_find(&t->pieces, word, bytes);
        if (id != TOKENIZER_NO_TOKEN && (t->flags[id] & FLAG_WORD) != 0) {
            ids[0] = id;
            o->count++;
            return ST_OK;
        }
    }
    enum status status = bpe_encode(&t->bpe, word, bytes, space, ids, &count);
    if (status == ST_OK)
        o->count += count;
    return status;
}

/* Text without special tokens. */
static enum status encode_plain(const struct tokenizer *t, const char *text, size_t bytes,
                                struct bpe_space *space, struct output *o)
{
    struct split split;
    size_t start = 0;
    size_t end = 0;
    if (bytes == 0)
        return ST_OK;
    enum status status = split_begin(&split, t->splitter, text, bytes);
    if (status != ST_OK)
        return status;
    while ((status = split_next(&split, &start, &end)) == ST_OK) {
        status = encode_word(t, text + start, end - start, space, o);
        if (status != ST_OK)
            break;
    }
    split_end(&split);
    return status == ST_NOT_FOUND ? ST_OK : status;
}

enum status tokenizer_encode(const struct tokenizer *t, const char *text, size_t bytes,
                             const struct tokenizer_encode_options *options, uint32_t **ids_out,
                             size_t *capacity, size_t *count_out, struct error *error)
{
    struct output o = {ids_out, capacity, 0};
    struct bpe_space space = {0};
    enum status status = ST_OK;
    size_t at = 0;
    if (bytes > UINT32_MAX / 2) /* positions within a word are 32 bits */
        return error_set(error, ST_TOO_LARGE, "a text of %zu bytes: want at most %u", bytes,
                         UINT32_MAX / 2);
    size_t valid = valid_bytes(text, bytes);
    if (valid < bytes)
        return error_set(error, ST_INVALID, "invalid UTF-8 at byte %zu (0x%02x)", valid,
                         (uint8_t)text[valid]);
    if (!reserve(&o, bytes / 4 + 2))
        return error_set(error, ST_NO_MEMORY, "no memory for the tokens of %zu bytes", bytes);
    if (options->add_bos && t->add_bos && t->bos != TOKENIZER_NO_TOKEN)
        (*ids_out)[o.count++] = t->bos;
    while (at < bytes && status == ST_OK) {
        size_t start = bytes;
        size_t end = bytes;
        uint32_t id = TOKENIZER_NO_TOKEN;
        bool found =
            specials_next(&t->specials, text, bytes, at, options->parse_special, &start, &end, &id);
        status = encode_plain(t, text + at, start - at, &space, &o);
        if (found && status == ST_OK && !reserve(&o, 1))
            status = ST_NO_MEMORY;
        if (found && status == ST_OK)
            (*ids_out)[o.count++] = id;
        at = end;
    }
    bpe_space_done(&space);
    if (status != ST_OK)
        return error_set(error, status, "%s while encoding %zu bytes", status_name(status), bytes);
    *count_out = o.count;
    return ST_OK;
}
