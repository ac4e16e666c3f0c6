/* stop_strings: finds the first of a request's stop strings in a text that comes in pieces, and
 * holds back only the bytes that could still begin one. Pure. Pieces are whole UTF-8 characters,
 * and so is what comes out (a stop string is valid UTF-8, thus a held-back tail begins at a
 * character). */
#ifndef SERVER_STOP_STRINGS_H
#define SERVER_STOP_STRINGS_H

#include "common/limits.h"

#include <stdbool.h>
#include <stddef.h>

struct stop_strings {
    size_t count;
    const char *strings[LIMIT_STOP_STRINGS]; /* 1 … LIMIT_STOP_BYTES bytes each; the caller's */
    size_t lengths[LIMIT_STOP_STRINGS];
};

struct stop_matcher {
    char held[LIMIT_STOP_BYTES]; /* the tail that may begin a stop string */
    size_t held_bytes;
};

/* Feeds piece[0..bytes); out gets what may be shown (capacity ≥ held_bytes + bytes). Returns true
 * when a stop string was completed: out then ends before it, and the rest is dropped. Of several,
 * the one that is completed first wins; at the same end, the one that begins first. */
bool stop_matcher_feed(struct stop_matcher *m, const struct stop_strings *stops, const char *piece,
                       size_t bytes, char *out, size_t *out_bytes);

/* The text has ended: what was held back is shown after all. Returns its bytes. */
size_t stop_matcher_finish(struct stop_matcher *m, char out[LIMIT_STOP_BYTES]);

#endif
