/* fuzz_sse: the events of a stream do not depend on how its bytes are split. Method: the first
 * bytes of an input choose the pieces; the rest is fed whole, in the pieces, and byte by byte. */
#include "tests/check.h"
#include "tests/fuzz.h"
#include "tests/fuzz_input.h"
#include "tools/replay/sse.h"

#define PIECES 16

struct seen {
    size_t events, bytes;
    uint64_t hash;
    size_t stop_after;
};

static bool on_event(void *self, const char *data, size_t size)
{
    struct seen *seen = self;
    CHECK(data[size] == 0 && size <= REPLAY_SSE_EVENT_BYTES);
    for (size_t i = 0; i <= size; i++)
        seen->hash = (seen->hash ^ (uint8_t)data[i]) * 1099511628211ull;
    seen->bytes += size;
    return ++seen->events != seen->stop_after;
}

static struct seen feed(struct fuzz_input in, const uint8_t *pieces, size_t stop_after)
{
    struct seen seen = {.stop_after = stop_after};
    struct replay_sse sse;
    enum status status = ST_OK;
    replay_sse_init(&sse, on_event, &seen);
    for (size_t i = 0; in.size > 0 && status == ST_OK; i++) {
        size_t bytes;
        size_t most = pieces == NULL ? SIZE_MAX : 1 + (size_t)pieces[i % PIECES];
        const uint8_t *at = fuzz_bytes(&in, most, &bytes);
        char *copy = fuzz_copy(at, bytes);
        status = replay_sse_feed(&sse, copy, bytes);
        free(copy);
    }
    if (status == ST_OK)
        status = replay_sse_finish(&sse);
    CHECK(status == ST_OK || (status == ST_CANCELLED && seen.events == stop_after));
    replay_sse_done(&sse);
    return seen;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t single[PIECES];
    struct fuzz_input in = {data, size};
    size_t stop_after = fuzz_below(&in, 8), count;
    uint8_t pieces[PIECES] = {0};
    const uint8_t *chosen = fuzz_bytes(&in, PIECES, &count);
    memcpy(pieces, chosen, count);
    struct seen whole = feed(in, NULL, stop_after);
    struct seen split = feed(in, pieces, stop_after);
    struct seen bytes = feed(in, single, stop_after);
    CHECK(whole.events == split.events && whole.bytes == split.bytes && whole.hash == split.hash);
    CHECK(whole.events == bytes.events && whole.bytes == bytes.bytes && whole.hash == bytes.hash);
    return 0;
}

size_t fuzz_seed(unsigned index, uint8_t *buffer, size_t capacity)
{
    static const char *const seeds[] = {
        "0123456789abcdefg: ping\ndata: {\"a\":1}\n\ndata:{\"b\":2}\r\n\r\nevent: x\rid: 7\rdata: "
        "c\r\r",
        "\x02"
        "0123456789abcdefdata: first\ndata: second\n: between\ndata:  third\n\ndata\n\n"
        "dataset: no\nretry: 10\n\ndata: [DONE]\n\n",
        "00000000000000000\xef\xbb\xbf"
        "data: bom\n\ndata: end"};
    return fuzz_seed_text(seeds, sizeof(seeds) / sizeof(seeds[0]), index, buffer, capacity);
}
