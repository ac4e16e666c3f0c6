/* text: a growing byte buffer with JSON escaping, and a check of UTF-8. Any folder may use texts.
 * After a failed allocation the text is broken: later appends do nothing, so callers check `broken`
 * once, after the last append. A text is not thread-safe: one thread at a time uses a text. The
 * functions parse no JSON and do no I/O. */
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

/* Frees the memory. The text is then empty, not broken, and may be used again. */
void text_done(struct text *text);
/* Makes the text empty. The text keeps its memory. A broken text stays broken. */
static inline void text_clear(struct text *text)
{
    text->bytes = 0;
}

/* These functions append bytes, a NUL-terminated string, a decimal number, or a text that is
 * formatted as by printf. */
void text_add(struct text *text, const char *data, size_t bytes);
void text_string_add(struct text *text, const char *string);
void text_number_add(struct text *text, uint64_t number);
void text_format_add(struct text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Appends a natural logarithm as a JSON number. Infinities and NaN become -9999, because JSON has
 * no such numbers. */
void text_add_logprob(struct text *text, float logprob);
/* Appends the data as a JSON string, with quotation marks and escapes. U+FFFD replaces a character
 * whose last bytes are missing, and any other byte that is not UTF-8. `data` may be NULL if `bytes`
 * is 0. */
void text_add_json_string(struct text *text, const char *data, size_t bytes);

/* Returns the offset of the first byte that does not belong to a valid UTF-8 character; `bytes` if
 * all data is valid. */
size_t text_utf8_check(const char *data, size_t bytes);

#endif
