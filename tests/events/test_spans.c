/* Goal: a failed allocation drops only the spans that it concerns, with its reason, and later spans
 * are sent. Method: the test replaces realloc (linker option --wrap) by a function that can be told
 * to fail. No process listens at the endpoint, so a POST that was tried gives another reason than
 * missing memory. */
#include "events/spans.h"
#include "tests/check.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

void *__real_realloc(void *memory, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);

static atomic_bool memory_scarce;

void *__wrap_realloc(void *memory, size_t bytes)
{
    return atomic_load(&memory_scarce) ? NULL : __real_realloc(memory, bytes);
}

static void span_add(struct spans *spans)
{
    spans_add(spans, "{}", 2, 1);
}

/* Waits until `dropped` spans are dropped. Checks whether memory was the reason of the last one. */
static void drops_expect(struct spans *spans, uint64_t dropped, bool memory)
{
    for (int i = 0; i < 30000 && spans_counts(spans).dropped < dropped; i++)
        usleep(1000);
    const struct spans_counts counts = spans_counts(spans);
    CHECK(counts.dropped == dropped && counts.sent == 0);
    CHECKF((strcmp(counts.drop_reason, "out of memory") == 0) == memory &&
               strstr(counts.drop_reason, "slowly") == NULL,
           "%s", counts.drop_reason);
}

int main(void)
{
    struct spans *spans;
    struct error error;
    unsetenv("http_proxy");
    unsetenv("all_proxy");
    unsetenv("ALL_PROXY");
    enum status status = spans_open("http://127.0.0.1:1/v1/traces", &spans, &error);
    if (status == ST_UNSUPPORTED)
        test_skip("libcurl is not installed");
    CHECKF(status == ST_OK, "%s", error.text);
    atomic_store(&memory_scarce, true); /* The text that gathers spans cannot grow. */
    span_add(spans);
    drops_expect(spans, 1, true);
    atomic_store(&memory_scarce, false);
    span_add(spans); /* Sent after a second, when the text of the POST cannot grow. */
    atomic_store(&memory_scarce, true);
    drops_expect(spans, 2, true);
    atomic_store(&memory_scarce, false);
    span_add(spans);
    drops_expect(spans, 3, false);
    spans_close(spans);
    return 0;
}
