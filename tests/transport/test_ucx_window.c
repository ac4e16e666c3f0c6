/* Goal: UCX is given a bounded number of bytes of a link's writes, so that a peer that does not
 * read can have no more than these land late, and everything arrives when the peer reads again. If
 * memory is short for a peer's writes, the error says so.
 *
 * Method: two fabrics in this process. The reader makes no progress while the writer writes 32 MiB
 * with a window of 1 MiB; then both do. Over TCP (messages) the window fills up. Over shared memory
 * each put is done when it returns, so nothing is under way. calloc is replaced (linker option
 * --wrap) by a function that can be told to fail. */
#include "tests/check.h"
#include "transport/fabric_internal.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define REGION ((uint64_t)32 << 20)
#define WINDOW ((uint64_t)1 << 20)
#define WRITE  ((size_t)3 << 20) /* Larger than the window. */

static struct fabric *fabrics[2]; /* Writer, reader. */

/* The names of the linker. */
/* NOLINTBEGIN(bugprone-reserved-identifier) */
void *__real_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);

static bool memory_scarce; /* True: each calloc fails. */

void *__wrap_calloc(size_t count, size_t bytes)
{
    return memory_scarce ? NULL : __real_calloc(count, bytes);
}
/* NOLINTEND(bugprone-reserved-identifier) */

static struct fabric *fabric_of(const char *tls)
{
    const struct fabric_options options = {
        .region_bytes = REGION, .window_bytes = WINDOW, .ucx_tls = tls, .one_host = true};
    struct fabric *fabric;
    struct error error = {{0}};
    CHECKF(fabric_open(&options, &fabric, &error) == ST_OK, "%s", error.text);
    return fabric;
}

static void write_all(struct fabric_link *link)
{
    static const struct transport_request none;
    const uint8_t *region = fabric_region(fabrics[0]);
    for (uint64_t at = 0; at < REGION; at += WRITE)
        fabric_link_write(link, region + at, REGION - at < WRITE ? REGION - at : WRITE, at, &none);
}

static void run(const char *tls, bool put)
{
    struct fabric_inbox *inbox;
    struct fabric_link *link;
    struct fabric_mark mark;
    struct error error = {{0}};
    uint64_t most = 0, cookie;
    uint32_t epoch;
    for (int i = 0; i < 2; i++)
        fabrics[i] = fabric_of(tls);
    uint32_t *words = fabric_region(fabrics[0]);
    for (uint32_t i = 0; i < REGION / sizeof(uint32_t); i++)
        words[i] = i * 2654435761u;
    CHECK(fabric_inbox_open(fabrics[1], NULL, &inbox) == ST_OK);
    CHECK(fabric_link_open(fabrics[0], fabric_address(fabrics[1]), fabric_inbox_token(inbox), false,
                           &link, &error) == ST_OK);
    write_all(link);
    bool marked = fabric_link_flush(link, 1, &mark);
    CHECK(marked == !put);
    for (int i = 0; i < 2000; i++) {
        (void)fabric_progress(fabrics[0]);
        most = link->under_way_bytes > most ? link->under_way_bytes : most;
        CHECKF(most <= WINDOW, "%llu bytes under way", (unsigned long long)most);
    }
    CHECK(put ? most == 0 : most > 0 && link->under_way_bytes > 0);
    if (marked)
        CHECK(fabric_inbox_epoch_mark(inbox, mark, &error) == ST_OK);
    while (!fabric_link_flushed(link, false, &cookie)) {
        for (int i = 0; i < 2; i++)
            (void)fabric_progress(fabrics[i]);
        CHECK(link->under_way_bytes <= WINDOW);
        if (fabric_inbox_landed(inbox, &epoch))
            CHECK(fabric_link_confirm(link, epoch) == ST_OK);
        CHECK(fabric_link_failed(link, &error) == ST_OK);
    }
    CHECK(cookie == 1 && memcmp(words, fabric_region(fabrics[1]), REGION) == 0);
    fabric_link_close(link, -1);
    for (int i = 0; i < 100; i++) { /* UCX must not be closed while it works. */
        (void)fabric_progress(fabrics[0]);
        (void)fabric_progress(fabrics[1]);
    }
    for (int i = 0; i < 2; i++)
        fabric_close(fabrics[i]);
}

/* A write and a flush so far ahead that an inbox needs more memory than there is. */
static void check_scarce(void)
{
    struct fabric_inbox *inboxes[2];
    struct error error = {{0}};
    const struct fabric_piece piece = {.epoch = 1000};
    fabrics[0] = fabric_of("self");
    for (int i = 0; i < 2; i++)
        CHECK(fabric_inbox_open(fabrics[0], NULL, &inboxes[i]) == ST_OK);
    memory_scarce = true;
    fabric_inbox_write(inboxes[0], &piece);
    CHECK(fabric_inbox_failed(inboxes[0], &error) == ST_NO_MEMORY);
    CHECKF(strstr(error.text, "out of memory") != NULL, "%s", error.text);
    error.text[0] = 0;
    CHECK(fabric_inbox_epoch_mark(inboxes[1], (struct fabric_mark){.epoch = 1000, .count = 1},
                                  &error) == ST_NO_MEMORY);
    CHECKF(strstr(error.text, "out of memory") != NULL, "%s", error.text);
    memory_scarce = false;
    fabric_close(fabrics[0]);
}

int main(void)
{
    run("tcp", false);
    run("sysv,self", true);
    check_scarce();
    return 0;
}
