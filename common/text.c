/* text: see the header. Escaping copies runs of plain characters at once. */
#include "common/text.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void text_done(struct text *text)
{
    free(text->data);
    memset(text, 0, sizeof(*text));
}

static bool text_reserve(struct text *text, size_t more)
{
    if (text->broken)
        return false;
    if (more <= text->capacity - text->bytes)
        return true;
    size_t capacity = text->capacity < 256 ? 256 : text->capacity;
    while (capacity - text->bytes < more)
        capacity *= 2;
    char *data = realloc(text->data, capacity);
    if (data == NULL) {
        text->broken = true;
        return false;
    }
    text->data = data;
    text->capacity = capacity;
    return true;
}

void text_add(struct text *text, const char *data, size_t bytes)
{
    if (bytes == 0 || !text_reserve(text, bytes))
        return;
    memcpy(text->data + text->bytes, data, bytes);
    text->bytes += bytes;
}

void text_string_add(struct text *text, const char *string)
{
    text_add(text, string, strlen(string));
}

void text_number_add(struct text *text, uint64_t number)
{
    char digits[20];
    size_t at = sizeof(digits);
    do {
        digits[--at] = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    text_add(text, digits + at, sizeof(digits) - at);
}

void text_format_add(struct text *text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    va_list again;
    va_copy(again, args);
    char small[256];
    int need = vsnprintf(small, sizeof(small), format, args);
    va_end(args);
    if (need >= 0 && (size_t)need < sizeof(small))
        text_add(text, small, (size_t)need);
    else if (need >= 0 && text_reserve(text, (size_t)need + 1)) {
        vsnprintf(text->data + text->bytes, (size_t)need + 1, format, again);
        text->bytes += (size_t)need;
    }
    va_end(again);
}

void text_add_logprob(struct text *text, float logprob)
{
    if (!isfinite(logprob))
        text_string_add(text, "-9999.0");
    else
        text_format_add(text, "%.7g", (double)logprob);
}

static size_t character_length(const char *data, size_t bytes)
{
    const uint8_t *p = (const uint8_t *)data;
    if (bytes == 0)
        return 0;
    if (p[0] < 0x80)
        return 1;
    size_t length = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
    if (p[0] < 0xc2 || p[0] > 0xf4 || bytes < length)
        return 0;
    for (size_t i = 1; i < length; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) ||
        (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f))
        return 0; /* overlong, a surrogate, or above U+10FFFF */
    return length;
}

size_t text_utf8_check(const char *data, size_t bytes)
{
    size_t at = 0;
    while (at < bytes) {
        size_t length = character_length(data + at, bytes - at);
        if (length == 0)
            break;
        at += length;
    }
    return at;
}

/* Returns how many bytes at the start of data, which begins with no whole character, one U+FFFD
 * stands for: the begin of a character that is cut off, or one byte. Unicode recommends it (3.9,
 * "maximal subpart"); Python does the same. */
static size_t cut_length(const char *data, size_t bytes)
{
    static const char ends[] = "\x80\x80\x80";
    for (size_t length = bytes < 3 ? bytes : 3; length > 1; length--) {
        char whole[6];
        memcpy(whole, data, length);
        for (size_t missing = 1; missing + length <= 4; missing++) {
            memcpy(whole + length, ends, missing);
            if (character_length(whole, length + missing) == length + missing)
                return length;
        }
    }
    return 1;
}

static void json_escaped_add(struct text *text, const char *data, size_t bytes)
{
    size_t plain = 0; /* data[plain..at) needs no escape */
    size_t at = 0;
    while (at < bytes) {
        unsigned char c = (unsigned char)data[at];
        size_t length = character_length(data + at, bytes - at);
        if (length > 0 && c >= 0x20 && c != '"' && c != '\\' && c != 0x7f) {
            at += length;
            continue;
        }
        text_add(text, data + plain, at - plain);
        if (length == 0) {
            text_string_add(text, "\xef\xbf\xbd");
            length = cut_length(data + at, bytes - at);
        } else if (c == '"' || c == '\\')
            text_format_add(text, "\\%c", c);
        else if (c == '\n')
            text_string_add(text, "\\n");
        else if (c == '\t')
            text_string_add(text, "\\t");
        else if (c == '\r')
            text_string_add(text, "\\r");
        else
            text_format_add(text, "\\u%04x", c);
        at += length;
        plain = at;
    }
    if (at > plain)
        text_add(text, data + plain, at - plain);
}

void text_add_json_string(struct text *text, const char *data, size_t bytes)
{
    text_add(text, "\"", 1);
    json_escaped_add(text, data, bytes);
    text_add(text, "\"", 1);
}
