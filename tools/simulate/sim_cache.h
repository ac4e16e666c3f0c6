/* sim_cache: the free KV blocks of a simulated machine, as a queue: the least recently used blocks
 * are used again first. A free block may still hold KV. If a request may return, its blocks form a
 * run, which has an id. All other blocks are unnamed. A simulated machine owns the struct, and
 * calls the functions on the thread of the simulation. This part knows no requests and no block
 * ids. */
#ifndef TOOLS_SIMULATE_SIM_CACHE_H
#define TOOLS_SIMULATE_SIM_CACHE_H

#include "common/status.h"

#include <stdint.h>

/* The id of a run; 0 = none. A run ends when its last block is taken. After that, the id stands for
 * an empty run. */
typedef uint64_t sim_cache_id;

struct sim_cache_run; /* Defined in sim_cache.c. */

struct sim_cache {
    struct sim_cache_run *runs; /* [capacity] */
    uint32_t capacity;
    /* First entry of `runs` that is not in use, the head of a list; UINT32_MAX = none. */
    uint32_t unused;
    uint32_t first;  /* The run whose blocks are used next; UINT32_MAX = none. */
    uint32_t last;   /* The run whose blocks are used last; UINT32_MAX = none. */
    uint32_t named;  /* Runs with an id. */
    uint32_t serial; /* Number of the latest run, which is the upper half of its id. */
    uint32_t blocks; /* Blocks of all runs, including unnamed blocks. */
};

/* Opens a queue of `blocks` unnamed blocks. Returns ST_NO_MEMORY on failure. */
enum status sim_cache_open(struct sim_cache *cache, uint32_t blocks);
void sim_cache_close(struct sim_cache *cache); /* A struct of zeros is fine. */

/* Takes the first `count` blocks of the queue. Requires that the queue has `count` blocks. */
void sim_cache_take(struct sim_cache *cache, uint32_t count);
/* Adds unnamed blocks at the end. */
void sim_cache_add(struct sim_cache *cache, uint32_t count);
/* Begins an empty run, which sim_cache_fill fills later. Returns 0 if memory runs out. */
sim_cache_id sim_cache_begin(struct sim_cache *cache);
/* Adds `count` blocks at the end of the queue. They become the blocks of the run `id`, or unnamed
 * blocks if the run was forgotten. Call it at most once for each run. count = 0 ends the run. */
void sim_cache_fill(struct sim_cache *cache, sim_cache_id id, uint32_t count);
/* Returns the number of blocks that the run still has. */
uint32_t sim_cache_count(const struct sim_cache *cache, sim_cache_id id);
/* Takes all blocks of the run, which ends the run, and returns their number. Does nothing and
 * returns 0 if the run has no blocks. */
uint32_t sim_cache_take_run(struct sim_cache *cache, sim_cache_id id);
/* Ends the run: its blocks become unnamed and keep their place in the queue. */
void sim_cache_forget(struct sim_cache *cache, sim_cache_id id);

#endif
