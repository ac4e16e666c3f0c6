/* Goal: the ring of the latest lines holds exactly the newest lines that fit, whole and in order.
 * Method: random lines against a list of all lines; rings so small that every line wraps. */
#include "common/line_ring.h"
#include "tests/check.h"

#include "common/random.h"

#include <string.h>

enum { LINES = 3000, LINE_BYTES_MAX = 90 };

static char lines[LINES][LINE_BYTES_MAX + 1];

/* What a ring of this capacity must hold after the first `count` lines. */
static void want_write(uint32_t count, size_t capacity, const char *separator, struct text *out)
{
    size_t used = 0;
    uint32_t first = count;
    while (first > 0 && used + strlen(lines[first - 1]) + 1 <= capacity) {
        used += strlen(lines[--first]) + 1;
    }
    for (uint32_t i = first; i < count; i++) {
        text_string_add(out, i > first ? separator : "");
        text_string_add(out, lines[i]);
    }
}

static void check(const struct line_ring *ring, uint32_t count, size_t capacity)
{
    static const char *const separators[] = {"\n", ",\n", ""};
    for (size_t i = 0; i < 3; i++) {
        struct text want = {0}, is = {0};
        want_write(count, capacity, separators[i], &want);
        line_ring_write(ring, separators[i], &is);
        CHECKF(want.bytes == is.bytes &&
                   (is.bytes == 0 || memcmp(want.data, is.data, is.bytes) == 0),
               "after %u lines in %zu bytes: want %.*s, is %.*s", count, capacity, (int)want.bytes,
               want.data, (int)is.bytes, is.data);
        text_done(&want);
        text_done(&is);
    }
}

int main(void)
{
    uint64_t seed = test_seed(), draws = 0;
    static const size_t capacities[] = {1, 2, LINE_BYTES_MAX, LINE_BYTES_MAX + 1, 1000, 5000};
    for (size_t c = 0; c < sizeof(capacities) / sizeof(capacities[0]); c++) {
        struct line_ring *ring;
        uint32_t count = 0;
        CHECK(line_ring_open(capacities[c], &ring) == ST_OK);
        check(ring, 0, capacities[c]);
        while (count < LINES) {
            char *line = lines[count];
            size_t bytes = random_at(seed, draws++) % (LINE_BYTES_MAX + 1);
            for (size_t i = 0; i < bytes; i++)
                line[i] = (char)('a' + random_at(seed, draws++) % 26);
            line[bytes] = 0;
            line_ring_add(ring, line, bytes);
            if (bytes < capacities[c]) /* A longer line is left out, and displaces nothing. */
                count++;
            if (count % 50 == 0)
                check(ring, count, capacities[c]);
        }
        line_ring_add(ring, "two\nlines", 9); /* Would break the form. */
        check(ring, count, capacities[c]);
        line_ring_close(ring);
    }
    return 0;
}
