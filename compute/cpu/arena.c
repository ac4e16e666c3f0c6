/* See arena.h. */
#include "compute/cpu/arena.h"

#include <assert.h>
#include <stdlib.h>
#include <sys/mman.h>

#define HUGE_PAGE_BYTES ((size_t)2 << 20)

/* Memory that is never written takes no pages, so the last chunk's rest costs nothing. Under the
 * address sanitizer each piece is a chunk, so that it sees where a piece ends. */
#ifdef __SANITIZE_ADDRESS__
#define CHUNK_BYTES 0
#else
#define CHUNK_BYTES ((size_t)64 << 20)
#endif

static struct arena_chunk *chunk_open(size_t bytes)
{
    struct arena_chunk *chunk = calloc(1, sizeof(*chunk));
    if (chunk == NULL)
        return NULL;
    size_t alignment = bytes < HUGE_PAGE_BYTES ? 64 : HUGE_PAGE_BYTES;
    chunk->bytes = (bytes + alignment - 1) / alignment * alignment;
    chunk->data = aligned_alloc(alignment, chunk->bytes);
    if (chunk->data == NULL) {
        free(chunk);
        return NULL;
    }
    if (alignment == HUGE_PAGE_BYTES) /* a kernel without huge pages refuses: no harm */
        (void)madvise(chunk->data, chunk->bytes, MADV_HUGEPAGE);
    return chunk;
}

uint8_t *arena_take(struct arena *arena, size_t bytes, struct arena_chunk **chunk_out)
{
    struct arena_chunk *chunk = arena->chunks;
    bytes = (bytes + 63) / 64 * 64;
    if (chunk == NULL || chunk->bytes - chunk->used < bytes) {
        chunk = chunk_open(bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES);
        if (chunk == NULL)
            return NULL;
        chunk->next = arena->chunks;
        arena->chunks = chunk;
    }
    uint8_t *piece = chunk->data + chunk->used;
    chunk->used += bytes;
    chunk->pieces++;
    *chunk_out = chunk;
    return piece;
}

void arena_give(struct arena *arena, struct arena_chunk *chunk)
{
    assert(chunk->pieces > 0);
    if (--chunk->pieces > 0)
        return;
    struct arena_chunk **link = &arena->chunks;
    while (*link != chunk)
        link = &(*link)->next;
    *link = chunk->next;
    free(chunk->data);
    free(chunk);
}
