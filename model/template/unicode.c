/* unicode: UTF-8 and the few properties of characters that templates ask for. */
#include "model/template/value.h"

size_t character_read(const char *text, size_t bytes, uint32_t *code)
{
    const unsigned char *at = (const unsigned char *)text;
    size_t length = at[0] < 0x80    ? 1
                    : at[0] >= 0xf0 ? 4
                    : at[0] >= 0xe0 ? 3
                    : at[0] >= 0xc0 ? 2
                                    : 1;
    *code = at[0];
    if (length == 1 || length > bytes)
        return 1;
    uint32_t c = at[0] & (0x7fu >> length);
    for (size_t i = 1; i < length; i++) {
        if ((at[i] & 0xc0) != 0x80)
            return 1;
        c = c << 6 | (at[i] & 0x3f);
    }
    *code = c;
    return length;
}

size_t character_write(uint32_t code, char out[4])
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    size_t length = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = length - 1; i > 0; i--) {
        out[i] = (char)(0x80 | (code & 0x3f));
        code >>= 6;
    }
    out[0] = (char)((0xf00u >> length & 0xf0) | code);
    return length;
}

size_t characters_count(const char *text, size_t bytes)
{
    size_t count = 0;
    uint32_t code;
    for (size_t at = 0; at < bytes; count++)
        at += (unsigned char)text[at] < 0x80 ? 1 : character_read(text + at, bytes - at, &code);
    return count;
}

size_t character_offset(const char *text, size_t bytes, size_t character)
{
    size_t at = 0;
    uint32_t code;
    while (at < bytes && character-- > 0)
        at += (unsigned char)text[at] < 0x80 ? 1 : character_read(text + at, bytes - at, &code);
    return at;
}

bool unicode_is_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 ||
           c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
           c == 0x202f || c == 0x205f || c == 0x3000;
}

bool unicode_is_printable(uint32_t c)
{
    if (c == ' ')
        return true;
    if (c < 0x20 || (c >= 0x7f && c <= 0xa0) || c == 0xad || unicode_is_space(c))
        return false;
    return !(c >= 0x200b && c <= 0x200f) && !(c >= 0x202a && c <= 0x202e) &&
           !(c >= 0x2060 && c <= 0x206f) && c != 0xfeff && !(c >= 0xd800 && c <= 0xf8ff) &&
           !(c >= 0xfff0 && c <= 0xfffb) && !(c >= 0xe0000);
}

bool unicode_is_letter(uint32_t c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == 0xaa || c == 0xb5 ||
           c == 0xba || (c >= 0xc0 && c != 0xd7 && c != 0xf7 && c < 0x2000 && c != 0x37e) ||
           (c >= 0x2c00 && c < 0xd800 && !(c >= 0x3000 && c < 0x3005)) || c >= 0x20000;
}

/* The cases of Latin, Greek and Cyrillic letters, one character for one. */
uint32_t unicode_lower(uint32_t c)
{
    if (c < 0x80)
        return c >= 'A' && c <= 'Z' ? c + 32 : c;
    if ((c >= 0xc0 && c <= 0xde && c != 0xd7) || (c >= 0x391 && c <= 0x3a9) ||
        (c >= 0x410 && c <= 0x42f))
        return c + 32;
    if (c >= 0x400 && c <= 0x40f)
        return c + 80;
    bool odd_upper = (c >= 0x139 && c <= 0x148) || (c >= 0x179 && c <= 0x17e);
    if ((c >= 0x100 && c <= 0x17e && c != 0x130 && c != 0x131 && c != 0x138 && c != 0x149 &&
         c != 0x178) ||
        (c >= 0x460 && c <= 0x481) || (c >= 0x48a && c <= 0x4bf) || (c >= 0x1e00 && c <= 0x1e95))
        return c % 2 == (odd_upper ? 1u : 0u) ? c + 1 : c;
    return c;
}

uint32_t unicode_upper(uint32_t c)
{
    if (c < 0x80)
        return c >= 'a' && c <= 'z' ? c - 32 : c;
    if ((c >= 0xe0 && c <= 0xfe && c != 0xf7) || (c >= 0x3b1 && c <= 0x3c9 && c != 0x3c2) ||
        (c >= 0x430 && c <= 0x44f))
        return c - 32;
    if (c == 0x3c2)
        return 0x3a3;
    if (c >= 0x450 && c <= 0x45f)
        return c - 80;
    return c > 0x100 && unicode_lower(c - 1) == c ? c - 1 : c;
}
