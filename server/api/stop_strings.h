/* stop_strings: finds the first of a request's stop strings in a text that arrives in pieces, and
 * holds back only the bytes that could begin a stop string. server/http/completion.c has one
 * stop_matcher for each choice. No other state: any thread. It does not end requests: its caller
 * does. Input pieces are whole UTF-8 characters, and so is the output (a stop string is valid
 * UTF-8, so a held-back tail begins at a character). */
#ifndef SERVER_API_STOP_STRINGS_H
#define SERVER_API_STOP_STRINGS_H

#include "common/limits.h"

#include <stdbool.h>
#include <stddef.h>

struct stop_strings {
    size_t count;
    const char *strings[LIMIT_STOP_STRINGS]; /* 1 … LIMIT_STOP_BYTES bytes each; not owned. */
    size_t lengths[LIMIT_STOP_STRINGS];
};

struct stop_matcher {
    char held[LIMIT_STOP_BYTES]; /* The tail that may begin a stop string. */
    size_t held_bytes;
    size_t found; /* Set when a stop string is complete: its number. */
};

/* Feeds piece[0..bytes). `out` receives the text that may be shown (capacity ≥ held_bytes + bytes).
 * Returns true when a stop string is complete: *out_bytes then ends before it, it follows in `out`,
 * and the rest is dropped.
 * The stop string that is completed first wins; at the same end, the one that begins first. */
bool stop_matcher_feed(struct stop_matcher *m, const struct stop_strings *stops, const char *piece,
                       size_t bytes, char *out, size_t *out_bytes);

/* Ends the text: `out` receives the held-back bytes. Returns their number. */
size_t stop_matcher_finish(struct stop_matcher *m, char out[LIMIT_STOP_BYTES]);

#endif
