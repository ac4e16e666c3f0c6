/* arena: memory for weights. Matrices are placed next to each other in large chunks that use huge
 * pages, because the kernels stream through hundreds of matrices per token and would wait for page
 * walks with 4 KiB pages. A chunk is freed when its last matrix is given back. Only matrix.c calls
 * it, on the thread that opens and closes matrices (a machine's event loop thread); there are no
 * locks. The arena does not fill the memory and does not reuse gaps within a chunk. */
#ifndef COMPUTE_CPU_ARENA_H
#define COMPUTE_CPU_ARENA_H

#include <stddef.h>
#include <stdint.h>

/* One mapping, from which pieces are cut in order. */
struct arena_chunk {
    struct arena_chunk *next;
    void *map; /* Mapping as the system returned it; `data` is aligned within it. */
    size_t map_bytes;
    uint8_t *data;
    size_t bytes;    /* Size of `data`. */
    size_t used;     /* Bytes of `data` that pieces were cut from. */
    uint32_t pieces; /* Pieces that have not been given back. */
};

/* All chunks of a device. All zeros = no chunk yet. */
struct arena {
    struct arena_chunk *chunks; /* The newest chunk is first; new pieces are cut from it. */
};

/* Returns 64-byte aligned memory, not zeroed; NULL = no memory. *chunk_out is for arena_give. */
uint8_t *arena_take(struct arena *arena, size_t bytes, struct arena_chunk **chunk_out);
/* Gives back one piece of the chunk, which is freed with its last piece. */
void arena_give(struct arena *arena, struct arena_chunk *chunk);

#endif
