/* profile_cache: the KV cache of a measured device, in the host's memory or in the device's own. */
#ifndef TOOLS_PROFILE_CACHE_H
#define TOOLS_PROFILE_CACHE_H

#include "model/forward/model.h"

/* Allocates zeroed memory. ST_NO_MEMORY: the error names the size. */
enum status profile_cache_take(const struct compute_ops *ops, struct compute *c, size_t bytes,
                               void **out, struct error *error);
void profile_cache_free(const struct compute_ops *ops, struct compute *c, void *base);
/* Copies block `from` to all `block_count` blocks, in every layer. */
enum status profile_cache_fill(const struct compute_ops *ops, struct compute *c,
                               const struct model_kv *kv, uint32_t layer_count,
                               uint32_t block_count, uint32_t from, struct error *error);

#endif
