/* status: the result type of functions that can fail, and the text that explains a failure. A
 * status is 0 after success, above 0 while work is in progress, and below 0 after a failure. The
 * caller of a function owns the `struct error` that the function fills in when it fails. Any folder
 * may call the functions, on any thread; they keep no state and write no logs. */
#ifndef COMMON_STATUS_H
#define COMMON_STATUS_H

#include <stdarg.h>
#include <stddef.h>

enum status {
    ST_OK = 0,
    ST_IN_PROGRESS = 1,
    ST_NO_RESOURCE = -1, /* Full at the moment: the caller may try again later. */
    ST_INVALID = -2,     /* The input is wrong; the same input fails again. */
    ST_NOT_FOUND = -3,
    ST_IO = -4,          /* A file, socket or device failed. */
    ST_UNREACHABLE = -5, /* There is no such peer, or the connection to the peer is lost. */
    ST_TIMED_OUT = -6,
    ST_CANCELLED = -7,
    ST_MISMATCH = -8, /* Two sides do not agree (model, layout, protocol). */
    ST_NO_MEMORY = -9,
    ST_TOO_LARGE = -10, /* A value, size or number is above its limit. */
    ST_UNSUPPORTED = -11,
    ST_USAGE = -12, /* The command line is wrong. */
};

/* Returns a short lower-case name, such as "no resource"; never NULL. */
const char *status_name(enum status status);

/* The reason of a failure, as one line for a person: the place, the value and the allowed values.
 * Empty = no reason is known. */
struct error {
    char text[512];
};

/* Copies `string` to `out` (`capacity` > 0 bytes, NUL-terminated) with each control character of
 * ASCII or Unicode as \xNN, because the names and values of peers and files must not end a line or
 * control a terminal. Cuts the end if the text does not fit. Returns the bytes written, without the
 * NUL. */
size_t controls_escape(const char *string, char *out, size_t capacity);

/* Formats the text of *error with control characters as \xNN, cuts its end if it is too long, and
 * returns `status`, so that a caller can write `return error_set(error, ST_INVALID, "…")`. If
 * `error` is NULL, only returns `status`. */
enum status error_set(struct error *error, enum status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Puts the formatted prefix and ": " before the text of *error. If the new text is too long, cuts
 * its end. NULL is fine. */
void error_prefix(struct error *error, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
