/* text: a growing buffer for response bodies and SSE events, and JSON escaping. Reused between
 * events: no allocation once it is large enough. A failed allocation marks the text broken (later
 * calls do nothing), so that callers check once, at the end. */
#ifndef SERVER_TEXT_H
#define SERVER_TEXT_H

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
/* A natural logarithm as a JSON number; -infinity and NaN, which JSON lacks, become -9999. */
void text_add_logprob(struct text *text, float logprob);
/* "…" with everything escaped that JSON wants. Bytes that are not UTF-8 become U+FFFD. */
void text_add_json_string(struct text *text, const char *data, size_t bytes);
/* The same without the quotation marks, to build a string from pieces. */
void text_add_json_escaped(struct text *text, const char *data, size_t bytes);

/* Length in bytes of the valid UTF-8 character at data[0..bytes), or 0. */
size_t text_utf8_character(const char *data, size_t bytes);
/* The offset of the first byte that is not part of valid UTF-8, or `bytes`. */
size_t text_utf8_check(const char *data, size_t bytes);

#endif
