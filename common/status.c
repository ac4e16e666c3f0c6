/* status: see the header. */
#include "common/status.h"

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

enum status error_set(struct error *error, enum status status, const char *format, ...)
{
    if (error == NULL)
        return status;
    va_list args;
    va_start(args, format);
    vsnprintf(error->text, sizeof(error->text), format, args);
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
    int used = vsnprintf(error->text, sizeof(error->text), format, args);
    va_end(args);
    if (used >= 0 && (size_t)used < sizeof(error->text))
        snprintf(error->text + used, sizeof(error->text) - (size_t)used, ": %.*s",
                 (int)(sizeof(before) - (size_t)used), before);
}
