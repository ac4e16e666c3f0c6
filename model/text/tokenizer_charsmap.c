/* tokenizer_charsmap: SentencePiece's compiled table of replacements (precompiled_charsmap): a
 * 32-bit size of a trie, the trie as a double array of 32-bit units (Aoe 1989, in darts-clone's
 * layout), and the replacements, each ended by a NUL. Of several entries that a text begins with,
 * the longest is used; a character without an entry stays. Every index is checked, because the file
 * may be malformed. */
#include "model/text/tokenizer_internal.h"

#include <string.h>

#define SIZE_BYTES 4

static uint32_t word_at(const char *bytes)
{
    const uint8_t *b = (const uint8_t *)bytes;
    return b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

bool charsmap_open(struct charsmap *map, struct mapped_text blob)
{
    uint32_t bytes = blob.bytes >= SIZE_BYTES ? word_at(blob.text) : 0;
    if (bytes < 4 || bytes % 4 != 0 || bytes > blob.bytes - SIZE_BYTES)
        return false;
    map->units = blob.text + SIZE_BYTES;
    map->unit_count = bytes / 4;
    map->texts = map->units + bytes;
    map->text_bytes = blob.bytes - SIZE_BYTES - bytes;
    return map->text_bytes > 0 && map->texts[map->text_bytes - 1] == 0;
}

static size_t character_bytes(const char *text, size_t left)
{
    size_t bytes = 1;
    while (bytes < left && ((uint8_t)text[bytes] & 0xc0) == 0x80)
        bytes++;
    return bytes;
}

static uint32_t offset_of(uint32_t unit)
{
    return unit >> 10 << ((unit >> 6) & 8);
}

size_t charsmap_find(const struct charsmap *map, const char *text, size_t bytes,
                     struct mapped_text *out)
{
    size_t longest = 0;
    uint32_t at = offset_of(word_at(map->units)), value = 0;
    for (size_t i = 0; i < bytes; i++) {
        at ^= (uint8_t)text[i];
        if (at >= map->unit_count)
            break;
        const uint32_t unit = word_at(map->units + 4 * (size_t)at);
        if ((unit & 0x800000ffu) != (uint8_t)text[i])
            break;
        at ^= offset_of(unit);
        if ((unit >> 8 & 1) == 0 || at >= map->unit_count)
            continue;
        const uint32_t found = word_at(map->units + 4 * (size_t)at) & 0x7fffffff;
        if (found >= map->text_bytes)
            continue;
        value = found;
        longest = i + 1;
    }
    if (longest == 0) {
        longest = character_bytes(text, bytes);
        *out = (struct mapped_text){text, longest};
    } else {
        *out = mapped_text_of(map->texts + value);
    }
    return longest;
}
