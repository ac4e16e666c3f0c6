/* sim_pool: the server's block pool and prefix cache (kvcache/) in a simulated machine whose
 * requests share prefixes. A machine whose requests share no prefixes only counts its blocks
 * (sim_cache.h). The machine owns the pool, and calls the functions on the thread of the
 * simulation. This part decides nothing about memory: the caller asks scheduler/memory.h first.
 *
 * A simulated request has no tokens. Instead, a number stands for the tokens of each span of the
 * request (common/layer_groups.h); the functions below call these numbers `contents`. Two requests
 * have equal numbers for spans in which their tokens are equal. */
#ifndef TOOLS_SIMULATE_SIM_POOL_H
#define TOOLS_SIMULATE_SIM_POOL_H

#include "kvcache/kv_prefix.h"

struct sim_pool;

/* The blocks of one task (sim_machine.h). A struct of zeros = no task. */
struct sim_holding {
    kv_owner_id owner;              /* Owner of the blocks that are not in the cache. */
    struct kv_tables tables;        /* The blocks of each span. */
    struct kv_prefix_reader reader; /* The chain in the cache that the task reads. */
    uint32_t spans;                 /* Spans that have blocks. */
};

/* Opens a pool of free blocks and an empty cache. *groups is copied. listener: called when prefixes
 * enter or leave the cache; NULL = none. ST_INVALID: block_count is 0. ST_NO_MEMORY. */
enum status sim_pool_open(uint32_t block_count, uint32_t block_tokens,
                          const struct layer_groups *groups,
                          const struct kv_prefix_listener *listener, struct sim_pool **out);
/* Requires that no task holds blocks. NULL is fine. */
void sim_pool_close(struct sim_pool *pool);

/* Returns the number of blocks that are free, or cached and read by no task. */
uint32_t sim_pool_available(const struct sim_pool *pool);

/* Opens a holding without blocks. spans_max: most spans of the task. keep: number of spans that a
 * group with a window keeps (layer_groups_spans_kept). Returns ST_NO_MEMORY on failure. */
enum status sim_holding_open(struct sim_pool *pool, uint32_t spans_max, uint32_t keep,
                             struct sim_holding *out);
/* Ends reading, and frees the tables and the blocks not in the cache. A struct of zeros is fine. */
void sim_holding_close(struct sim_pool *pool, struct sim_holding *holding);

/* Begins to read the longest cached chain of at most spans_max spans of `contents`. window_first:
 * as in kv_prefix_read_begin. Requires a holding that has no blocks and reads nothing. */
void sim_holding_pin(struct sim_pool *pool, struct sim_holding *holding, const uint32_t *contents,
                     uint32_t spans_max, uint32_t window_first);
/* Ends the reading of the cache. Requires a holding without blocks. */
void sim_holding_unpin(struct sim_pool *pool, struct sim_holding *holding);
/* Takes blocks for more spans, until the holding has `spans` spans. Blocks that the holding
 * reads from the cache are not taken. Requires that enough blocks are available. */
void sim_holding_take(struct sim_pool *pool, struct sim_holding *holding, uint32_t spans);
/* Ends the reading of cached blocks of layers with a window, once the window has passed all of
 * these blocks. window_first: first span that the next token reads in layers with a window. */
void sim_holding_window_move(struct sim_pool *pool, struct sim_holding *holding,
                             uint32_t window_first);
/* Adds the first `spans` spans to the cache; in layers with a window, only the spans from
 * window_valid_first on. */
void sim_holding_cache(struct sim_pool *pool, struct sim_holding *holding, const uint32_t *contents,
                       uint32_t spans, uint32_t window_valid_first);

/* Returns how many of the first `spans` spans of `contents` are in the cache; 0 also if memory runs
 * out. */
uint32_t sim_pool_cached_spans(struct sim_pool *pool, const uint32_t *contents, uint32_t spans);
/* Adds the first `spans` spans to the cache, as far as blocks are available. Requires layers
 * without windows. Returns false if memory runs out. */
bool sim_pool_add(struct sim_pool *pool, const uint32_t *contents, uint32_t spans);

#endif
