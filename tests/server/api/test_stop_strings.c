/* Goal: the text that a client sees ends exactly before the first stop string, for any split into
 * tokens. Method: random texts over a tiny alphabet (so that stop strings overlap themselves and
 * each other) are fed in random pieces and compared with a plain search over the whole text. */
#include "common/random.h"
#include "server/api/stop_strings.h"
#include "tests/check.h"

#include <string.h>

static uint64_t seed, counter;

static uint32_t draw(uint32_t below)
{
    return (uint32_t)(random_at(seed, counter++) % below);
}

/* Where a plain search says that the shown text ends, and whether a stop was found. */
static size_t plain_end(const char *text, size_t bytes, const struct stop_strings *stops,
                        bool *found)
{
    for (size_t end = 1; end <= bytes; end++) {
        size_t longest = 0;
        for (size_t s = 0; s < stops->count; s++) {
            size_t n = stops->lengths[s];
            if (n <= end && memcmp(text + end - n, stops->strings[s], n) == 0 && n > longest)
                longest = n;
        }
        if (longest > 0) {
            *found = true;
            return end - longest;
        }
    }
    *found = false;
    return bytes;
}

static void fill(char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        text[i] = (char)('a' + draw(3));
}

int main(void)
{
    seed = test_seed();
    uint32_t stopped_rounds = 0;
    for (int round = 0; round < 20000; round++) {
        char text[64], stop_text[4][8], shown[128] = {0}, out[256];
        size_t bytes = draw(64), shown_bytes = 0;
        fill(text, bytes);
        struct stop_strings stops = {.count = draw(4)};
        for (size_t s = 0; s < stops.count; s++) {
            stops.lengths[s] = 1 + draw(7);
            fill(stop_text[s], stops.lengths[s]);
            stops.strings[s] = stop_text[s];
        }
        bool want_found, found = false;
        size_t want = plain_end(text, bytes, &stops, &want_found);
        struct stop_matcher matcher = {0};
        for (size_t at = 0; at < bytes && !found;) {
            size_t piece = 1 + draw(6), out_bytes = 0;
            piece = piece < bytes - at ? piece : bytes - at;
            found = stop_matcher_feed(&matcher, &stops, text + at, piece, out, &out_bytes);
            memcpy(shown + shown_bytes, out, out_bytes);
            shown_bytes += out_bytes;
            at += piece;
            /* Only what may still begin a stop string is held back. */
            CHECK(found || matcher.held_bytes < 7 || stops.count == 0);
            CHECK(found || stops.count > 0 || matcher.held_bytes == 0);
        }
        if (!found) {
            size_t tail = stop_matcher_finish(&matcher, out);
            memcpy(shown + shown_bytes, out, tail);
            shown_bytes += tail;
        }
        CHECKF(found == want_found, "round %d", round);
        CHECKF(shown_bytes == want && memcmp(shown, text, want) == 0, "round %d: %zu of %zu", round,
               shown_bytes, want);
        stopped_rounds += found;
    }
    CHECK(stopped_rounds > 1000 && stopped_rounds < 19000); /* both outcomes were tried */
    printf("20000 rounds, %u stopped\n", stopped_rounds);
    return 0;
}
