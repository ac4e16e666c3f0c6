/* arena: memory for weights. Matrices lie next to each other in large chunks that ask for huge
 * pages: the kernels stream through hundreds of matrices per token, and with 4 KiB pages they wait
 * for page walks. A chunk goes back when the last matrix in it does. One thread. */
#ifndef COMPUTE_CPU_ARENA_H
#define COMPUTE_CPU_ARENA_H

#include <stddef.h>
#include <stdint.h>

struct arena_chunk {
    struct arena_chunk *next;
    void *map; /* what the system gave: data is aligned in it */
    size_t map_bytes;
    uint8_t *data;
    size_t bytes;
    size_t used;
    uint32_t pieces; /* not yet given back */
};

struct arena {
    struct arena_chunk *chunks; /* the newest first: pieces are cut from it */
};

/* 64-byte aligned, not zeroed; NULL if there is no memory. *chunk_out is for arena_give. */
uint8_t *arena_take(struct arena *arena, size_t bytes, struct arena_chunk **chunk_out);
void arena_give(struct arena *arena, struct arena_chunk *chunk);

#endif
