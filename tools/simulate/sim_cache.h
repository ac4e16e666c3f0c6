/* sim_cache: the free KV blocks of a simulated machine, in the order in which they are used again
 * (kvcache/kv_prefix.h: the least recently used first). Blocks that still hold KV of a request which
 * may come back form a run with a number; all others are unnamed. sim_machine.c calls it on the
 * simulation's one thread. It knows no requests and no block ids. */
#ifndef TOOLS_SIMULATE_SIM_CACHE_H
#define TOOLS_SIMULATE_SIM_CACHE_H

#include "common/status.h"

#include <stdint.h>

/* A run. 0 = none. A run that has lost its last block is gone: its number means an empty run. */
typedef uint64_t sim_cache_id;

struct sim_cache_run; /* Defined in sim_cache.c. */

struct sim_cache {
    struct sim_cache_run *runs;
    uint32_t capacity;
    uint32_t unused; /* First entry that is not in use. */
    uint32_t first;  /* The run whose blocks are used next. */
    uint32_t last;
    uint32_t named;  /* Runs with a number. */
    uint32_t serial; /* Number of runs so far. */
    uint32_t blocks; /* Blocks of all runs. */
};

/* Opens a queue of `blocks` unnamed blocks. ST_NO_MEMORY. */
enum status sim_cache_open(struct sim_cache *cache, uint32_t blocks);
void sim_cache_close(struct sim_cache *cache); /* All zeros are fine. */

/* Takes the first `count` blocks. Requires that there are as many. */
void sim_cache_take(struct sim_cache *cache, uint32_t count);
/* Adds unnamed blocks at the end. */
void sim_cache_add(struct sim_cache *cache, uint32_t count);
/* Begins an empty run that sim_cache_fill fills; 0 = out of memory. */
sim_cache_id sim_cache_begin(struct sim_cache *cache);
/* Adds blocks at the end as the run, which has begun and is empty. Without blocks it is gone. */
void sim_cache_fill(struct sim_cache *cache, sim_cache_id id, uint32_t count);
/* Returns the blocks that the run still has. */
uint32_t sim_cache_count(const struct sim_cache *cache, sim_cache_id id);
/* Takes all blocks of the run and returns their number. The run is gone. */
uint32_t sim_cache_take_run(struct sim_cache *cache, sim_cache_id id);
/* Makes the blocks of the run unnamed; they keep their place. */
void sim_cache_forget(struct sim_cache *cache, sim_cache_id id);

#endif
