/* stop_strings: finds the first of a request's stop strings in a text that arrives in pieces, and
 * holds back only the bytes that could begin a stop string. Each choice of a completion has one
 * stop_matcher, on the gateway's event loop thread. A stop_matcher does not end requests. If pieces
 * and stop strings consist of whole UTF-8 characters, the output does, too. */
#ifndef SERVER_API_STOP_STRINGS_H
#define SERVER_API_STOP_STRINGS_H

#include "common/limits.h"

#include <stdbool.h>
#include <stddef.h>

struct stop_strings {
    size_t count;
    const char *strings[LIMIT_STOP_STRINGS]; /* 1 to LIMIT_STOP_BYTES bytes each; not owned. */
    size_t lengths[LIMIT_STOP_STRINGS];      /* Bytes of each string. */
};

/* The state of one text. All zeros = the text begins. */
struct stop_matcher {
    char held[LIMIT_STOP_BYTES]; /* The end of the text, which may begin a stop string. */
    size_t held_bytes;
    size_t found_index; /* Index of the stop string, after stop_matcher_feed has returned true. */
};

/* Adds piece[0..bytes) to the text. `out` receives the text that may be shown: *out_bytes bytes.
 * Requires room for held_bytes + bytes bytes at `out`. Returns true when a stop string is complete:
 * `out` then has the stop string after the *out_bytes bytes, and the rest of the piece is dropped.
 * The stop string that ends first counts; if several end at one byte, the longest of them. */
bool stop_matcher_feed(struct stop_matcher *m, const struct stop_strings *stops, const char *piece,
                       size_t bytes, char *out, size_t *out_bytes);

/* Ends the text: `out` receives the bytes that were held back. Returns their number. */
size_t stop_matcher_finish(struct stop_matcher *m, char out[LIMIT_STOP_BYTES]);

#endif
