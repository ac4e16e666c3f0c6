/* profile_cache: see the header. */
#include "tools/profile/cache.h"

#include <stdlib.h>
#include <string.h>

enum status profile_cache_take(const struct compute_ops *ops, struct compute *c, size_t bytes,
                               void **out, struct error *error)
{
    const struct device_memory *memory = ops->device_memory(c);
    if (memory != NULL)
        return memory->ops->allocate(memory->self, bytes, out, error);
    *out = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    if (*out == NULL)
        return error_set(error, ST_NO_MEMORY, "no memory for a KV-cache of %zu MiB", bytes >> 20);
    memset(*out, 0, bytes); /* Touch all pages before the measurement. */
    return ST_OK;
}

void profile_cache_free(const struct compute_ops *ops, struct compute *c, void *base)
{
    const struct device_memory *memory = ops->device_memory(c);
    if (memory != NULL)
        memory->ops->free(memory->self, base);
    else
        free(base);
}

static void layer_fill(const struct model_kv *kv, uint8_t *layer, uint32_t block_count,
                       uint32_t from)
{
    const uint8_t *block = layer + from * kv->block_bytes;
    for (uint32_t i = 0; i < block_count; i++)
        if (i != from)
            memcpy(layer + i * kv->block_bytes, block, kv->block_bytes);
}

enum status profile_cache_fill(const struct compute_ops *ops, struct compute *c,
                               const struct model_kv *kv, uint32_t layer_count,
                               uint32_t block_count, uint32_t source_block, struct error *error)
{
    const bool copied = ops->device_memory(c) != NULL;
    const size_t bytes = block_count * kv->block_bytes, at = source_block * kv->block_bytes;
    uint8_t *room = copied ? malloc(bytes) : NULL;
    if (copied && room == NULL)
        return error_set(error, ST_NO_MEMORY, "out of memory");
    for (uint32_t i = 0; i < layer_count; i++) {
        uint8_t *layer = (uint8_t *)kv->base + i * kv->layer_stride_bytes;
        if (!copied) {
            layer_fill(kv, layer, block_count, source_block);
            continue;
        }
        ops->memory_read(c, room + at, layer + at, kv->block_bytes);
        layer_fill(kv, room, block_count, source_block);
        ops->memory_write(c, layer, room, bytes);
    }
    free(room);
    return ST_OK;
}
