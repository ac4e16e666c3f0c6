/* text: a growing buffer for response bodies and SSE events, with JSON escaping. It is reused
 * between events: no allocation once it is large enough. A failed allocation marks the text broken,
 * and later calls do nothing, so callers check once, at the end. Not thread-safe: the
 * owner calls it on one thread. */
#ifndef COMMON_TEXT_H
#define COMMON_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct text {
    char *data;
    size_t bytes;
    size_t capacity;
    bool broken;
};

void text_done(struct text *text);
static inline void text_clear(struct text *text)
{
    text->bytes = 0;
}

void text_add(struct text *text, const char *data, size_t bytes);
void text_adds(struct text *text, const char *string);
void text_addf(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Appends a natural logarithm as a JSON number; infinities and NaN, which JSON lacks, become -9999.
 */
void text_add_logprob(struct text *text, float logprob);
/* Appends "…" with everything escaped that JSON demands. Bytes that are not UTF-8 become U+FFFD. */
void text_add_json_string(struct text *text, const char *data, size_t bytes);
/* Appends escaped text without quotation marks, to build a string from pieces. */
void text_add_json_escaped(struct text *text, const char *data, size_t bytes);

/* Length in bytes of the valid UTF-8 character at data[0..bytes); 0 = none. */
size_t text_utf8_character(const char *data, size_t bytes);
/* Offset of the first byte that is not part of valid UTF-8; `bytes` = all is valid. */
size_t text_utf8_check(const char *data, size_t bytes);

#endif
