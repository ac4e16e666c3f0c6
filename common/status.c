/* status: see the header. */
#include "common/status.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

const char *status_name(enum status status)
{
    switch (status) {
    case ST_OK:
        return "ok";
    case ST_IN_PROGRESS:
        return "in progress";
    case ST_NO_RESOURCE:
        return "no resource";
    case ST_INVALID:
        return "invalid";
    case ST_NOT_FOUND:
        return "not found";
    case ST_IO:
        return "input/output error";
    case ST_UNREACHABLE:
        return "unreachable";
    case ST_TIMED_OUT:
        return "timed out";
    case ST_CANCELLED:
        return "cancelled";
    case ST_MISMATCH:
        return "mismatch";
    case ST_NO_MEMORY:
        return "out of memory";
    case ST_TOO_LARGE:
        return "too large";
    case ST_UNSUPPORTED:
        return "unsupported";
    case ST_USAGE:
        return "wrong usage";
    }
    return "unknown status";
}

size_t controls_escape(const char *string, char *out, size_t capacity)
{
    size_t used = 0;
    for (const unsigned char *at = (const unsigned char *)string; *at != 0; at++) {
        bool control = *at < 0x20 || *at == 0x7f;
        bool c1 = *at == 0xc2 && at[1] >= 0x80 && at[1] < 0xa0; /* U+0080 to U+009F in UTF-8 */
        size_t want = control || c1 ? 4 : 1;
        if (used + want >= capacity)
            break;
        if (want == 4) {
            at += c1;
            used += (size_t)snprintf(out + used, capacity - used, "\\x%02x", *at);
        } else {
            out[used++] = (char)*at;
        }
    }
    out[used] = 0;
    return used;
}

/* Formats the text of *error. */
static size_t text_set(struct error *error, const char *format, va_list args)
{
    char text[sizeof(error->text)];
    vsnprintf(text, sizeof(text), format, args);
    return controls_escape(text, error->text, sizeof(error->text));
}

enum status error_set(struct error *error, enum status status, const char *format, ...)
{
    if (error == NULL)
        return status;
    va_list args;
    va_start(args, format);
    text_set(error, format, args);
    va_end(args);
    return status;
}

void error_prefix(struct error *error, const char *format, ...)
{
    if (error == NULL)
        return;
    char before[sizeof(error->text)];
    memcpy(before, error->text, sizeof(before));
    va_list args;
    va_start(args, format);
    size_t used = text_set(error, format, args);
    va_end(args);
    snprintf(error->text + used, sizeof(error->text) - used, ": %.*s", (int)(sizeof(before) - used),
             before);
}
