/* Goal: a stage process accepts a write of KV only into blocks of the request that the write names,
 * only while that request awaits KV, and only from the machine that computes its prompt. It accepts
 * activations only from the stage before, and only into the memory behind the KV.
 *
 * Method: the functions of stage_writers.c with a stage that has no transport; every block, several
 * writers, before AWAIT, after it, after its end, and after the head is gone. */
#include "machine/executor/stage_state.h"
#include "tests/check.h"
#include "transport/transport_internal.h"

#include <string.h>

#define BLOCKS 12
#define LAYERS 3
#define BLOCK  64

static struct peer_user writer_user = {.kind = PEER_WRITER};
static struct peer_user previous_user = {.kind = PEER_STAGE_PREVIOUS};
static struct stage stage;

static struct transport_peer peer_of(const char *name, struct peer_user *user)
{
    struct transport_peer peer = {.user = user};
    snprintf(peer.identity.name, sizeof(peer.identity.name), "%s", name);
    return peer;
}

static void await(uint64_t id, uint32_t table, const char *writer, bool ends,
                  const uint32_t *blocks, uint32_t count)
{
    struct error error;
    struct stage_await message = {.cookie = id,
                                  .request = id,
                                  .generation = 2,
                                  .table = table,
                                  .ends = ends,
                                  .block_count = count,
                                  .blocks = blocks};
    snprintf(message.writer, sizeof(message.writer), "%s", writer);
    CHECKF(stage_await_take(&stage, &message, &error) == ST_OK, "%s", error.text);
}

/* Returns as bits which blocks of a layer this writer may write for the request. */
static uint32_t writable(const char *name, uint64_t id, uint32_t generation, uint32_t layer)
{
    const struct transport_peer peer = peer_of(name, &writer_user);
    const struct transport_request request = {.id = id, .generation = generation};
    uint32_t found = 0;
    for (uint32_t block = 0; block < BLOCKS; block++) {
        uint64_t offset = layer * stage.arena.layer_stride_bytes + (uint64_t)block * BLOCK;
        bool whole = stage_write_wanted(&stage, &peer, &request, offset, BLOCK);
        CHECK(stage_write_wanted(&stage, &peer, &request, offset + 5, 7) == whole);
        found |= (uint32_t)whole << block;
    }
    return found;
}

int main(void)
{
    static const uint32_t first[] = {2, 3, 4}, second[] = {5, 9}, bad[] = {BLOCKS};
    struct error error;
    stage.arena = (struct kv_arena){.layer_count = LAYERS,
                                    .block_count = BLOCKS,
                                    .block_bytes = BLOCK,
                                    .layer_stride_bytes = BLOCKS * BLOCK};
    CHECK(stage_writers_open(&stage) == ST_OK);
    CHECK(writable("p0", 7, 2, 0) == 0 && writable("p0", 0, 0, 0) == 0);
    await(7, 100, "p0", false, first, 3);
    await(8, 4095, "p1", false, second, 2);
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        CHECK(writable("p0", 7, 2, layer) == (1 << 2 | 1 << 3 | 1 << 4));
        CHECK(writable("p0/11", 7, 2, layer) == (1 << 2 | 1 << 3 | 1 << 4));
        CHECK(writable("p1", 8, 2, layer) == (1 << 5 | 1 << 9));
        /* Another machine, another request, another generation; no request. */
        CHECK(writable("p1", 7, 2, layer) == 0 && writable("p", 7, 2, layer) == 0);
        CHECK(writable("p00", 7, 2, layer) == 0 && writable("p0", 8, 2, layer) == 0);
        CHECK(writable("p0", 7, 1, layer) == 0 && writable("p0", 0, 0, layer) == 0);
    }
    const struct transport_peer peer = peer_of("p0", &writer_user);
    const struct transport_peer previous = peer_of("t0/0", &previous_user);
    const struct transport_request request = {.id = 7, .generation = 2};
    const struct transport_request none = {.id = 0};
    const uint64_t end = LAYERS * stage.arena.layer_stride_bytes;
    CHECK(stage_write_wanted(&stage, &peer, &request, 2 * BLOCK, 3 * BLOCK));
    CHECK(!stage_write_wanted(&stage, &peer, &request, 2 * BLOCK, 3 * BLOCK + 1));
    CHECK(!stage_write_wanted(&stage, &peer, &request, 2 * BLOCK - 1, 2));
    CHECK(!stage_write_wanted(&stage, &peer, &request, 2 * BLOCK, UINT64_MAX));
    CHECK(!stage_write_wanted(&stage, &peer, &request, UINT64_MAX, 1));
    CHECK(!stage_write_wanted(&stage, &peer, &request, end, 1));
    CHECK(!stage_write_wanted(&stage, &peer, &none, end, 1));
    CHECK(stage_write_wanted(&stage, &previous, &none, end, 100));
    CHECK(!stage_write_wanted(&stage, &previous, &none, 2 * BLOCK, BLOCK));
    CHECK(!stage_write_wanted(&stage, &previous, &request, 2 * BLOCK, BLOCK));
    await(7, 100, "p0", true, first, 3);
    CHECK(writable("p0", 7, 2, 1) == 0 && writable("p1", 8, 2, 1) != 0);
    await(9, 100, "p1", false, first, 3); /* The next request in this slot with these blocks. */
    CHECK(writable("p0", 7, 2, 1) == 0 && writable("p1", 9, 2, 1) != 0);
    const struct stage_await beyond = {.request = 1, .block_count = 1, .blocks = bad};
    CHECK(stage_await_take(&stage, &beyond, &error) == ST_INVALID);
    stage_writers_drop(&stage);
    CHECK(writable("p1", 9, 2, 1) == 0 && writable("p1", 8, 2, 1) == 0);
    stage_writers_close(&stage);
    return 0;
}
