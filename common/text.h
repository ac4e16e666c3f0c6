/* text: a growing byte buffer with JSON escaping, and checks of UTF-8. The server builds response
 * bodies, SSE events and the page /metrics in it; events/ and the simulator build lines of the
 * event log. The owner keeps a buffer and clears it between uses, so nothing is allocated once it
 * is large enough. A failed allocation marks the text broken, and later calls do nothing, so
 * callers check `broken` once, at the end. Not thread-safe: the owner makes every call on one
 * thread. It parses no JSON and does no I/O. */
#ifndef COMMON_TEXT_H
#define COMMON_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* All zeros = an empty text. */
struct text {
    char *data;      /* The content, without a NUL at its end; NULL = nothing allocated. */
    size_t bytes;    /* Length of the content. */
    size_t capacity; /* Bytes allocated. */
    bool broken;     /* An allocation has failed: the content is incomplete. */
};

/* Frees the content and makes the text empty and not broken. */
void text_done(struct text *text);
/* Makes the text empty, keeping its memory and `broken`. */
static inline void text_clear(struct text *text)
{
    text->bytes = 0;
}

/* Append bytes, a NUL-terminated string, and formatted text. */
void text_add(struct text *text, const char *data, size_t bytes);
void text_adds(struct text *text, const char *string);
void text_addf(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Appends a natural logarithm as a JSON number; infinities and NaN, which JSON lacks, become -9999.
 */
void text_add_logprob(struct text *text, float logprob);
/* Appends a JSON string with its quotation marks, with everything escaped that JSON demands. Bytes
 * that are not UTF-8 become U+FFFD. */
void text_add_json_string(struct text *text, const char *data, size_t bytes);
/* Appends escaped text without quotation marks, to build a string from pieces. */
void text_add_json_escaped(struct text *text, const char *data, size_t bytes);

/* Returns the length in bytes of the UTF-8 character that begins at data[0] and is complete within
 * `bytes` bytes; 0 = there is no valid one. */
size_t text_utf8_character(const char *data, size_t bytes);
/* Returns the offset of the first byte that is not part of valid UTF-8; `bytes` = all is valid. */
size_t text_utf8_check(const char *data, size_t bytes);

#endif
