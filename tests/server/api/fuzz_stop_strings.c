/* fuzz_stop_strings: the text that a client sees ends exactly before the first stop string, for any
 * split into pieces. Method: the first bytes of an input choose the stop strings and the pieces;
 * the rest is the text. A plain search over the whole text says where it ends. */
#include "server/api/stop_strings.h"
#include "tests/check.h"
#include "tests/fuzz.h"
#include "tests/fuzz_input.h"

#include <stdbool.h>

#define TEXT_BYTES_MAX 2048

/* Returns where the shown text ends. */
static size_t plain_end(const char *text, size_t bytes, const struct stop_strings *stops,
                        bool *found_out)
{
    for (size_t end = 1; end <= bytes; end++) {
        size_t longest = 0;
        for (size_t s = 0; s < stops->count; s++) {
            size_t n = stops->lengths[s];
            if (n <= end && n > longest && memcmp(text + end - n, stops->strings[s], n) == 0)
                longest = n;
        }
        if (longest > 0) {
            *found_out = true;
            return end - longest;
        }
    }
    *found_out = false;
    return bytes;
}

static void compare(const char *text, size_t bytes, const struct stop_strings *stops,
                    const uint8_t *pieces, size_t piece_count)
{
    char shown[TEXT_BYTES_MAX];
    size_t shown_bytes = 0, at = 0, got;
    bool want_found, found = false;
    size_t want = plain_end(text, bytes, stops, &want_found);
    struct stop_matcher matcher = {.held_bytes = 0};
    for (size_t i = 0; at < bytes && !found; i++) {
        size_t piece = piece_count > 0 ? 1 + (size_t)pieces[i % piece_count] : bytes;
        piece = piece < bytes - at ? piece : bytes - at;
        char *in = fuzz_copy(text + at, piece);
        char *out = malloc(matcher.held_bytes + piece);
        CHECK(out != NULL);
        found = stop_matcher_feed(&matcher, stops, in, piece, out, &got);
        memcpy(shown + shown_bytes, out, got);
        shown_bytes += got;
        at += piece;
        free(in);
        free(out);
    }
    if (!found) {
        char out[LIMIT_STOP_BYTES];
        got = stop_matcher_finish(&matcher, out);
        memcpy(shown + shown_bytes, out, got);
        shown_bytes += got;
    }
    CHECK(found == want_found);
    CHECK(shown_bytes == want && memcmp(shown, text, want) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    struct stop_strings stops = {.count = fuzz_below(&in, 6)};
    size_t bytes, piece_count;
    for (size_t s = 0; s < stops.count; s++) {
        size_t most = 1 + fuzz_below(&in, LIMIT_STOP_BYTES);
        stops.strings[s] = (const char *)fuzz_bytes(&in, most, &stops.lengths[s]);
        if (stops.lengths[s] == 0)
            stops.count = s;
    }
    const uint8_t *pieces = fuzz_bytes(&in, fuzz_below(&in, 9), &piece_count);
    const char *text = (const char *)fuzz_bytes(&in, TEXT_BYTES_MAX, &bytes);
    compare(text, bytes, &stops, pieces, piece_count);
    return 0;
}

size_t fuzz_seed(unsigned index, uint8_t *buffer, size_t capacity)
{
    static const char *const seeds[] = {
        "\x02\x02"
        "end"
        "\x01"
        "ab"
        "\x04\x01\x02\x03\x01this is ababab the en, the end and more",
        "\x03\x01"
        "aa"
        "\x02"
        "aab"
        "\x03"
        "abab"
        "\x02\x01\x01"
        "aaaaababaabab",
        "\x01\x05STOP!!\x06no stop here at all",
    };
    return fuzz_seed_text(seeds, sizeof(seeds) / sizeof(seeds[0]), index, buffer, capacity);
}
