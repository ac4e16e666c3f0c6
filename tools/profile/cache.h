/* profile_cache: the memory of the KV cache of a measured device, in the host's memory or in the
 * device's own memory. `cleave profile` calls it on the thread that measures, before and after
 * measurements. The functions have no state. This part knows no block table: step.c decides which
 * blocks a batch uses. */
#ifndef TOOLS_PROFILE_CACHE_H
#define TOOLS_PROFILE_CACHE_H

#include "model/forward/model.h"

/* Allocates `bytes` zeroed bytes for device `c`. *out is freed by profile_cache_free. The caller
 * need not distinguish errors; *error tells the reason. */
enum status profile_cache_take(const struct compute_ops *ops, struct compute *c, size_t bytes,
                               void **out, struct error *error);
/* Frees memory of profile_cache_take. NULL is fine. */
void profile_cache_free(const struct compute_ops *ops, struct compute *c, void *base);
/* Copies block `source_block` to all other blocks, in every layer. Returns ST_NO_MEMORY if the
 * cache is in a device and the host has no memory for a copy of a layer. */
enum status profile_cache_fill(const struct compute_ops *ops, struct compute *c,
                               const struct model_kv *kv, uint32_t layer_count,
                               uint32_t block_count, uint32_t source_block, struct error *error);

#endif
