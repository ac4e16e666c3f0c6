/* arena: memory for the weights of one device. Matrices lie next to each other in large chunks that
 * use huge pages, because the kernels stream through hundreds of matrices per token and would wait
 * for page walks with 4 KiB pages. The arena owns the chunks, and frees a chunk when the caller has
 * freed all pieces of the chunk. matrix.c calls the functions, on the thread that opens and closes
 * matrices; there are no locks. The arena does not fill the memory, and does not reuse gaps. */
#ifndef COMPUTE_CPU_ARENA_H
#define COMPUTE_CPU_ARENA_H

#include <stddef.h>
#include <stdint.h>

/* One mapping, from which pieces are cut in order. */
struct arena_chunk {
    struct arena_chunk *next;
    void *map;        /* The mapping, as the system returned it. */
    size_t map_bytes; /* Size of the mapping. */
    uint8_t *data;    /* The part of the mapping that pieces are cut from. */
    size_t bytes;     /* Size of `data`. */
    size_t used;      /* Bytes of `data` that pieces were cut from. */
    uint32_t pieces;  /* Number of pieces that were not freed. */
};

/* All chunks of a device. All zeros = no chunk yet. */
struct arena {
    /* List, newest chunk first. */
    struct arena_chunk *chunks;
};

/* Returns 64-byte aligned memory, not zeroed; NULL = no memory. *chunk_out is for arena_free. */
uint8_t *arena_allocate(struct arena *arena, size_t bytes, struct arena_chunk **chunk_out);
/* Frees one piece of the chunk, and the chunk if this was the last piece in use. */
void arena_free(struct arena *arena, struct arena_chunk *chunk);

#endif
