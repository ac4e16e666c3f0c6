/* profile_cache: the KV memory of a measured device: in the device's own memory, or in the host's
 * if the device has none. step.c calls the functions on the main thread of each process that
 * computes. The functions keep no state, and do not decide which blocks a batch uses. */
#ifndef TOOLS_PROFILE_CACHE_H
#define TOOLS_PROFILE_CACHE_H

#include "model/forward/model.h"

/* Allocates `bytes` bytes for device `c`. profile_cache_free frees *out. ST_NO_MEMORY: memory runs
 * out. Other errors are those of the device. */
enum status profile_cache_take(const struct compute_ops *ops, struct compute *c, size_t bytes,
                               void **out, struct error *error);
/* Frees memory of profile_cache_take. */
void profile_cache_free(const struct compute_ops *ops, struct compute *c, void *base);
/* Copies block `source_block` to all other blocks, in every layer. ST_NO_MEMORY: the host has no
 * memory for a copy of a layer, which is needed if the device has its own memory. */
enum status profile_cache_fill(const struct compute_ops *ops, struct compute *c,
                               const struct model_kv *kv, uint32_t layer_count,
                               uint32_t block_count, uint32_t source_block, struct error *error);

#endif
