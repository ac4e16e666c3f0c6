/* arena: see arena.h. */
#include "compute/cpu/arena.h"

#include <assert.h>
#include <stdlib.h>
#include <sys/mman.h>

#define HUGE_PAGE_BYTES ((size_t)2 << 20)

/* Memory that is never written takes no pages, so the unused rest of the last chunk costs nothing.
 * The memory comes from mmap, because malloc can be configured to fill what it returns. With the
 * address sanitizer each piece is a chunk from malloc, so that overruns of a piece are detected. */
#ifdef __SANITIZE_ADDRESS__
#define CHUNK_BYTES 0
#else
#define CHUNK_BYTES ((size_t)64 << 20)
#endif

static uint8_t *chunk_map(struct arena_chunk *chunk)
{
    if (CHUNK_BYTES == 0) {
        chunk->map = aligned_alloc(64, chunk->bytes);
        return chunk->map;
    }
    chunk->map_bytes = chunk->bytes + HUGE_PAGE_BYTES;
    chunk->map = mmap(NULL, chunk->map_bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (chunk->map == MAP_FAILED)
        return NULL;
    uintptr_t begin = ((uintptr_t)chunk->map + HUGE_PAGE_BYTES - 1) & ~(HUGE_PAGE_BYTES - 1);
    /* A kernel without huge pages refuses, which does no harm. */
    (void)madvise((void *)begin, chunk->bytes, MADV_HUGEPAGE);
    return (uint8_t *)begin;
}

static struct arena_chunk *chunk_open(size_t bytes)
{
    struct arena_chunk *chunk = calloc(1, sizeof(*chunk));
    if (chunk == NULL)
        return NULL;
    chunk->bytes = bytes;
    chunk->data = chunk_map(chunk);
    if (chunk->data == NULL) {
        free(chunk);
        return NULL;
    }
    return chunk;
}

static void chunk_close(struct arena_chunk *chunk)
{
    if (CHUNK_BYTES == 0)
        free(chunk->map);
    else
        munmap(chunk->map, chunk->map_bytes);
    free(chunk);
}

uint8_t *arena_allocate(struct arena *arena, size_t bytes, struct arena_chunk **chunk_out)
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

void arena_free(struct arena *arena, struct arena_chunk *chunk)
{
    assert(chunk->pieces > 0);
    if (--chunk->pieces > 0)
        return;
    struct arena_chunk **link = &arena->chunks;
    while (*link != chunk)
        link = &(*link)->next;
    *link = chunk->next;
    chunk_close(chunk);
}
