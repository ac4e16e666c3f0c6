/* stop_strings: keeps the longest suffix of the text that is a proper prefix of a stop string.
 * Pieces have a few bytes, and stop strings are few and short, so each new byte is compared with
 * the ends of all stop strings directly. */
#include "server/api/stop_strings.h"

#include <string.h>

/* The longest suffix of text[0..bytes) that is a proper prefix of any stop string. */
static size_t held_suffix(const struct stop_strings *stops, const char *text, size_t bytes)
{
    size_t longest = 0;
    for (size_t s = 0; s < stops->count; s++) {
        size_t most = stops->lengths[s] - 1 < bytes ? stops->lengths[s] - 1 : bytes;
        for (size_t n = most; n > longest; n--)
            if (memcmp(text + bytes - n, stops->strings[s], n) == 0) {
                longest = n;
                break;
            }
    }
    return longest;
}

/* The length of the longest stop string that text[0..end) ends with, and its number; or 0. */
static size_t stop_ending_at(const struct stop_strings *stops, const char *text, size_t end,
                             size_t *found_out)
{
    size_t longest = 0;
    for (size_t s = 0; s < stops->count; s++) {
        size_t n = stops->lengths[s];
        if (n <= end && n > longest && memcmp(text + end - n, stops->strings[s], n) == 0) {
            longest = n;
            *found_out = s;
        }
    }
    return longest;
}

bool stop_matcher_feed(struct stop_matcher *m, const struct stop_strings *stops, const char *piece,
                       size_t bytes, char *out, size_t *out_bytes)
{
    size_t before = m->held_bytes;
    memcpy(out, m->held, before);
    memcpy(out + before, piece, bytes);
    size_t total = before + bytes;
    for (size_t end = before + 1; end <= total && stops->count > 0; end++) {
        size_t length = stop_ending_at(stops, out, end, &m->found_index);
        if (length == 0)
            continue;
        m->held_bytes = 0;
        *out_bytes = end - length;
        return true;
    }
    m->held_bytes = held_suffix(stops, out, total);
    memcpy(m->held, out + total - m->held_bytes, m->held_bytes);
    *out_bytes = total - m->held_bytes;
    return false;
}

size_t stop_matcher_finish(struct stop_matcher *m, char out[LIMIT_STOP_BYTES])
{
    size_t bytes = m->held_bytes;
    memcpy(out, m->held, bytes);
    m->held_bytes = 0;
    return bytes;
}
