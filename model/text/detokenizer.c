/* detokenizer: joins the bytes of tokens into whole UTF-8 characters. The decoder sees one byte at
 * a time, so the distribution of bytes over tokens does not matter. A sequence that can no longer
 * become a character is replaced as a whole ("maximal subpart", Unicode 15, section 3.9), and the
 * byte that broke it begins a new one. */
#include "model/text/tokenizer.h"

#include <string.h>

static size_t put_replacement(char *out)
{
    memcpy(out, "\xef\xbf\xbd", 3);
    return 3;
}

/* Returns the length of the character that begins with `first`; 0 = no character does. */
static unsigned length_of(uint8_t first)
{
    if (first < 0x80)
        return 1;
    if (first < 0xc2 || first > 0xf4)
        return 0;
    return first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
}

/* Whether `byte` may follow pending[0..count). After some first bytes the second byte has a
 * narrower range: no overlong forms, no surrogates, nothing above U+10FFFF. */
static bool continues(const uint8_t *pending, unsigned count, uint8_t byte)
{
    uint8_t low = 0x80;
    uint8_t high = 0xbf;
    if (count == 1) {
        low = pending[0] == 0xe0 ? 0xa0 : pending[0] == 0xf0 ? 0x90 : low;
        high = pending[0] == 0xed ? 0x9f : pending[0] == 0xf4 ? 0x8f : high;
    }
    return byte >= low && byte <= high;
}

static size_t feed_byte(struct detokenizer *d, uint8_t byte, char *out)
{
    size_t written = 0;
    if (d->pending_bytes > 0 && !continues(d->pending, d->pending_bytes, byte)) {
        written = put_replacement(out);
        d->pending_bytes = 0;
    }
    if (d->pending_bytes == 0 && length_of(byte) == 0)
        return written + put_replacement(out + written);
    d->pending[d->pending_bytes++] = byte;
    if (d->pending_bytes < length_of(d->pending[0]))
        return written;
    memcpy(out + written, d->pending, d->pending_bytes);
    written += d->pending_bytes;
    d->pending_bytes = 0;
    return written;
}

size_t detokenizer_feed(struct detokenizer *d, const struct tokenizer *t, uint32_t id,
                        bool skip_special, char *out)
{
    size_t bytes = 0;
    size_t written = 0;
    const char *piece = tokenizer_piece(t, id, &bytes);
    if (piece == NULL || (skip_special && tokenizer_is_special(t, id)))
        return 0;
    for (size_t i = 0; i < bytes; i++)
        written += feed_byte(d, (uint8_t)piece[i], out + written);
    return written;
}

size_t detokenizer_finish(struct detokenizer *d, char out[3])
{
    size_t written = d->pending_bytes > 0 ? put_replacement(out) : 0;
    d->pending_bytes = 0;
    return written;
}
