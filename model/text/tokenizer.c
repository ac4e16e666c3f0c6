/* tokenizer: look-ups and encoding. A text is divided at its special tokens; the parts between are
 * divided into words by the pre-tokenizer; each word is merged from its bytes. Most words are one
 * token. Whether a token is its own encoding is computed once, when the token first occurs as a
 * word; after that such a word costs one look-up. */
#include "model/text/tokenizer_internal.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* ---- look-ups ---- */

uint32_t tokenizer_token_count(const struct tokenizer *t)
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

bool tokenizer_is_special(const struct tokenizer *t, uint32_t id)
{
    return id < t->pieces.count && (t->flags[id] & FLAG_SPECIAL) != 0;
}

uint32_t tokenizer_end_tokens(const struct tokenizer *t, uint32_t ends_out[16])
{
    memcpy(ends_out, t->end_tokens, t->end_count * sizeof(*ends_out));
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

size_t tokenizer_tokens_min(const struct tokenizer *t, const char *text, size_t bytes)
{
    size_t in_tokens = 0, most = t->token_bytes_max;
    for (size_t i = 0; i < bytes; i++)
        in_tokens += t->in_token[(uint8_t)text[i]];
    most *= t->normalizer.shrink;
    return most == 0 ? 0 : in_tokens / most + (in_tokens % most != 0);
}

/* ---- encoding ---- */

/* The ids written so far; `ids` and `capacity` belong to the caller. */
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

/* Returns the bytes of the character at text[0..left); 0 = not a valid character (Unicode 15, table
 * 3-7). */
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

/* Returns the offset of the first byte that is not UTF-8; `bytes` = none. */
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

/* Returns the token with the word's bytes, if any. *known_out is a WORD_ value: whether the token
 * is the word's encoding. */
static uint32_t whole_word(const struct tokenizer *t, const char *word, size_t bytes,
                           uint8_t *known_out)
{
    *known_out = WORD_MERGED;
    if (bytes > t->word_bytes_max || (t->kind == VOCABULARY_UNIGRAM && !t->blank_begins_word))
        return TOKENIZER_NO_TOKEN;
    uint32_t id = texts_find(&t->pieces, word, bytes);
    if (id != TOKENIZER_NO_TOKEN)
        *known_out = t->whole_words_first
                         ? WORD_WHOLE
                         : atomic_load_explicit(&t->words[id], memory_order_relaxed);
    return id;
}

static enum status encode_word(const struct tokenizer *t, const char *word, size_t bytes,
                               struct bpe_workspace *space, struct output *o)
{
    size_t count = 0;
    uint8_t known;
    if (!reserve(o, bytes))
        return ST_NO_MEMORY;
    uint32_t *ids = *o->ids + o->count;
    uint32_t whole = whole_word(t, word, bytes, &known);
    if (known == WORD_WHOLE) {
        ids[0] = whole;
        o->count++;
        return ST_OK;
    }
    enum status status =
        t->kind == VOCABULARY_BYTES     ? bpe_encode(&t->bpe, word, bytes, space, ids, &count)
        : t->kind == VOCABULARY_SCORES  ? spm_encode(t, word, bytes, space, ids, &count)
        : t->kind == VOCABULARY_UNIGRAM ? unigram_encode(t, word, bytes, space, ids, &count)
                                        : characters_encode(t, word, bytes, space, ids, &count);
    if (status != ST_OK)
        return status;
    o->count += count;
    if (known == WORD_UNKNOWN)
        atomic_store_explicit(&t->words[whole],
                              count == 1 && ids[0] == whole ? WORD_WHOLE : WORD_MERGED,
                              memory_order_relaxed);
    return ST_OK;
}

/* Whether a blank must be put before a part of a text. */
static bool wants_prefix(const struct tokenizer *t, const char *text, bool first)
{
    switch (t->prefix) {
    case VOCABULARY_PREFIX_NONE:
        return false;
    case VOCABULARY_PREFIX_ALWAYS:
        return true;
    case VOCABULARY_PREFIX_UNLESS_BLANK:
        return *text != ' ';
    case VOCABULARY_PREFIX_FIRST:
        return first && *text != ' ';
    case VOCABULARY_PREFIX_BEGIN:
        return first;
    }
    return false;
}

/* Encodes text without special tokens and without U+2581 with a SentencePiece vocabulary.
 * `first_part` is true for the part at the beginning of the whole text. */
static enum status encode_blanks(const struct tokenizer *t, const char *text, size_t bytes,
                                 bool first_part, struct bpe_workspace *space, struct output *o)
{
    enum status status = ST_OK;
    size_t at = 0;
    if (wants_prefix(t, text, first_part)) { /* The first word gets a blank. */
        size_t end = spm_word_end(t, text, bytes, 0);
        char *first = malloc(end + 1);
        if (first == NULL)
            return ST_NO_MEMORY;
        first[0] = ' ';
        memcpy(first + 1, text, end);
        status = encode_word(t, first, end + 1, space, o);
        free(first);
        at = end;
    }
    while (at < bytes && status == ST_OK) {
        size_t end = spm_word_end(t, text, bytes, at);
        status = encode_word(t, text + at, end - at, space, o);
        at = end;
    }
    return status;
}

/* Encodes text without special tokens with a SentencePiece vocabulary, which spells a space as
 * U+2581: a U+2581 of the text is the same as a space. */
static enum status encode_pieces(const struct tokenizer *t, const char *text, size_t bytes,
                                 bool first_part, struct bpe_workspace *space, struct output *o)
{
    static const char blank[] = "\xe2\x96\x81";
    const size_t blank_bytes = sizeof(blank) - 1;
    const char *found = memmem(text, bytes, blank, blank_bytes);
    if (found == NULL)
        return encode_blanks(t, text, bytes, first_part, space, o);
    char *copy = malloc(bytes);
    if (copy == NULL)
        return ST_NO_MEMORY;
    size_t copied = 0;
    const char *at = text, *end = text + bytes;
    for (; found != NULL; found = memmem(at, (size_t)(end - at), blank, blank_bytes)) {
        memcpy(copy + copied, at, (size_t)(found - at));
        copied += (size_t)(found - at);
        copy[copied++] = ' ';
        at = found + blank_bytes;
    }
    memcpy(copy + copied, at, (size_t)(end - at));
    copied += (size_t)(end - at);
    enum status status = encode_blanks(t, copy, copied, first_part, space, o);
    free(copy);
    return status;
}

/* Encodes text that is normalised. */
static enum status encode_normal(const struct tokenizer *t, const char *text, size_t bytes,
                                 bool first_part, struct bpe_workspace *space, struct output *o)
{
    struct split split;
    size_t start = 0;
    size_t end = 0;
    if (bytes == 0)
        return ST_OK;
    if (t->kind != VOCABULARY_BYTES)
        return encode_pieces(t, text, bytes, first_part, space, o);
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

/* Encodes text without special tokens. */
static enum status encode_plain(const struct tokenizer *t, const char *text, size_t bytes,
                                bool first_part, struct bpe_workspace *space, struct output *o)
{
    struct mapped_text normal = {text, bytes};
    char *owned = NULL;
    enum status status = ST_OK;
    space->sum = 0;
    if (bytes > 0 && t->normalizer.step_count > 0)
        status = normalizer_apply(&t->normalizer, &normal, &owned);
    if (status == ST_OK)
        status = encode_normal(t, normal.text, normal.bytes, first_part, space, o);
    free(owned);
    return status;
}

enum status tokenizer_encode(const struct tokenizer *t, const char *text, size_t bytes,
                             const struct tokenizer_encode_options *options, uint32_t **ids_out,
                             size_t *capacity, size_t *count_out, struct error *error)
{
    struct output o = {ids_out, capacity, 0};
    struct bpe_workspace space = {0};
    static const struct tokenizer_range whole = {0, SIZE_MAX};
    struct plain_ranges plain = {options->plain_ranges, options->plain_count};
    enum status status = ST_OK;
    size_t at = 0;
    if (!options->parse_special)
        plain = (struct plain_ranges){&whole, 1};
    if (bytes > UINT32_MAX / 2) /* Positions within a word have 32 bits. */
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
        bool found = specials_next(&t->specials, text, bytes, at, &plain, &start, &end, &id);
        status = encode_plain(t, text + at, start - at, at == 0, &space, &o);
        if (found && status == ST_OK && !reserve(&o, 1))
            status = ST_NO_MEMORY;
        if (found && status == ST_OK)
            (*ids_out)[o.count++] = id;
        at = end;
    }
    if (status == ST_OK && options->add_eos && t->add_eos && t->eos != TOKENIZER_NO_TOKEN) {
        status = reserve(&o, 1) ? ST_OK : ST_NO_MEMORY;
        if (status == ST_OK)
            (*ids_out)[o.count++] = t->eos;
    }
    bpe_workspace_done(&space);
    if (status != ST_OK)
        return error_set(error, status, "%s while encoding %zu bytes", status_name(status), bytes);
    *count_out = o.count;
    return ST_OK;
}
