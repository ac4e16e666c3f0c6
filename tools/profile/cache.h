/* profile_cache: the memory for the KV cache of a measured device: the device's own memory, if it
 * has one, or the host's. step.c calls the functions on the main thread of each process that
 * computes, when it opens and closes a device. The functions keep no state. step.c decides which
 * blocks a batch uses. */
#ifndef TOOLS_PROFILE_CACHE_H
#define TOOLS_PROFILE_CACHE_H

#include "model/forward/model.h"

/* Allocates `bytes` zeroed bytes for device `c`. profile_cache_free frees *out. Returns
 * ST_NO_MEMORY, or the errors of the device's memory. */
enum status profile_cache_take(const struct compute_ops *ops, struct compute *c, size_t bytes,
                               void **out, struct error *error);
/* Frees memory of profile_cache_take. */
void profile_cache_free(const struct compute_ops *ops, struct compute *c, void *base);
/* Copies block `source_block` to all other blocks, in every layer. Returns ST_NO_MEMORY if the
 * cache is in the device's own memory and the host has no memory for a copy of a layer. */
enum status profile_cache_fill(const struct compute_ops *ops, struct compute *c,
                               const struct model_kv *kv, uint32_t layer_count,
                               uint32_t block_count, uint32_t source_block, struct error *error);

#endif
