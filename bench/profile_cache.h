/* profile_cache: the KV-cache of a device that is measured: the host's memory, or the device's own.
 */
#ifndef BENCH_PROFILE_CACHE_H
#define BENCH_PROFILE_CACHE_H

#include "model/model.h"

/* Zeros. ST_NO_MEMORY says how much is wanted. */
enum status profile_cache_take(const struct compute_ops *ops, struct compute *c, size_t bytes,
                               void **out, struct error *error);
void profile_cache_free(const struct compute_ops *ops, struct compute *c, void *base);
/* In every layer each of `block_count` blocks gets what block `from` holds. */
enum status profile_cache_fill(const struct compute_ops *ops, struct compute *c,
                               const struct model_kv *kv, uint32_t layer_count,
                               uint32_t block_count, uint32_t from, struct error *error);

#endif
