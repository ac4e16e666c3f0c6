/* tokenizer_characters: encoding with SentencePiece vocabularies of tokenizer.json: byte-pair
 * encoding (tokenizer_bpe.c) that begins with a word's characters. A character that is no token
 * becomes the tokens of its bytes, which no merge joins; without such tokens it becomes the unknown
 * token. */
#include "model/text/tokenizer_internal.h"

static size_t character_bytes(const char *text, size_t left)
{
    size_t bytes = 1;
    while (bytes < left && ((uint8_t)text[bytes] & 0xc0) == 0x80)
        bytes++;
    return bytes;
}

/* Whether the text spells a blank as vocabularies do (U+2581). */
static bool is_blank(const char *text, size_t bytes)
{
    return bytes == 3 && memcmp(text, "\xe2\x96\x81", 3) == 0;
}

/* Writes the tokens of one character, at most one per byte. */
static size_t character_put(const struct tokenizer *t, const char *text, size_t bytes,
                            uint32_t *ids_out)
{
    uint32_t id = is_blank(text, bytes) ? texts_find(&t->pieces, " ", 1)
                                        : texts_find(&t->pieces, text, bytes);
    if (id != TOKENIZER_NO_TOKEN) {
        ids_out[0] = id;
        return 1;
    }
    for (size_t i = 0; i < bytes; i++) {
        ids_out[i] = t->bpe.byte_ids[(uint8_t)text[i]];
        if (ids_out[i] != TOKENIZER_NO_TOKEN)
            continue;
        ids_out[0] = t->unknown;
        return t->unknown != TOKENIZER_NO_TOKEN ? 1 : 0;
    }
    return bytes;
}

enum status characters_encode(const struct tokenizer *t, const char *word, size_t bytes,
                              struct bpe_workspace *space, uint32_t *ids_out, size_t *count_out)
{
    size_t count = 0;
    for (size_t at = 0; at < bytes;) {
        size_t character = character_bytes(word + at, bytes - at);
        count += character_put(t, word + at, character, ids_out + count);
        at += character;
    }
    return bpe_merge(&t->bpe, ids_out, count, space, count_out);
}
