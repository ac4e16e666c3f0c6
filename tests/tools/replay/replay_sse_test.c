/* Goal: the events do not depend on how the bytes were split. Method: one stream with every line
 * ending, comments, other fields, multi-line and empty data is fed whole, in two pieces at every
 * position, and byte by byte; the joined events must be equal. Then limits and early ends. */
#include "tests/check.h"
#include "tools/replay/sse.h"

#include <stdbool.h>
#include <string.h>

static const char stream[] = ": ping\n"
                             "data: {\"a\":1}\n\n"
                             "data:{\"b\":2}\r\n\r\n"
                             "event: x\rid: 7\rdata: c\r\r"
                             "\n\n\n" /* Blank lines alone make no event. */
                             "data: first\ndata: second\n: between\ndata:  third\n\n"
                             "data\n\n"
                             "dataset: no\nretry: 10\n\n"
                             "data: [DONE]\n\n";
static const char wanted[] = "{\"a\":1}|{\"b\":2}|c|first\nsecond\n third||[DONE]|";

struct joined {
    char text[512];
    size_t size;
    int events;
    int stop_after; /* -1 = never. */
};

static bool on_event(void *self, const char *data, size_t size)
{
    struct joined *joined = self;
    CHECK(data[size] == 0);
    CHECK(joined->size + size + 2 <= sizeof(joined->text));
    memcpy(joined->text + joined->size, data, size);
    joined->size += size;
    joined->text[joined->size++] = '|';
    joined->text[joined->size] = 0;
    return ++joined->events != joined->stop_after;
}

static void test_every_split(void)
{
    size_t size = sizeof(stream) - 1;
    struct joined joined = {.stop_after = -1};
    struct replay_sse sse;
    replay_sse_init(&sse, on_event, &joined);
    for (size_t cut = 0; cut <= size; cut++) {
        joined.size = 0;
        CHECK(replay_sse_feed(&sse, stream, cut) == ST_OK);
        CHECK(replay_sse_feed(&sse, stream + cut, size - cut) == ST_OK);
        CHECK(replay_sse_finish(&sse) == ST_OK);
        CHECKF(strcmp(joined.text, wanted) == 0, "cut at %zu: %s", cut, joined.text);
        replay_sse_reset(&sse);
    }
    joined.size = 0;
    for (size_t i = 0; i < size; i++)
        CHECK(replay_sse_feed(&sse, stream + i, 1) == ST_OK);
    CHECKF(strcmp(joined.text, wanted) == 0, "%s", joined.text);
    replay_sse_done(&sse);
}

/* An event whose blank line is missing counts when the stream ends, but not after a reset. */
static void test_open_end(void)
{
    struct joined joined = {.stop_after = -1};
    struct replay_sse sse;
    replay_sse_init(&sse, on_event, &joined);
    CHECK(replay_sse_feed(&sse, "data: a\ndata: b", 15) == ST_OK);
    CHECK(joined.events == 0);
    CHECK(replay_sse_finish(&sse) == ST_OK);
    CHECK(strcmp(joined.text, "a\nb|") == 0);

    CHECK(replay_sse_feed(&sse, "data: lost\r", 11) == ST_OK);
    replay_sse_reset(&sse);
    CHECK(replay_sse_feed(&sse, "\ndata: c\n\n", 10) == ST_OK);
    CHECKF(strcmp(joined.text, "a\nb|c|") == 0, "%s", joined.text);
    replay_sse_done(&sse);
}

static void test_stop_and_limit(void)
{
    struct joined joined = {.stop_after = 2};
    struct replay_sse sse;
    replay_sse_init(&sse, on_event, &joined);
    CHECK(replay_sse_feed(&sse, stream, sizeof(stream) - 1) == ST_CANCELLED);
    CHECK(joined.events == 2);
    replay_sse_reset(&sse);

    static char wide[4096];
    memset(wide, 'x', sizeof(wide));
    enum status status = replay_sse_feed(&sse, "data: ", 6);
    size_t fed = 0;
    while (status == ST_OK && fed < 2 * REPLAY_SSE_EVENT_BYTES) {
        status = replay_sse_feed(&sse, wide, sizeof(wide));
        fed += sizeof(wide);
    }
    CHECK(status == ST_TOO_LARGE);
    CHECK(fed <= REPLAY_SSE_EVENT_BYTES + sizeof(wide));
    replay_sse_done(&sse);
}

int main(void)
{
    test_every_split();
    test_open_end();
    test_stop_and_limit();
    return 0;
}
