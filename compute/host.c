/* host: see the header. */
#include "compute/host.h"

#include <stdlib.h>
#include <string.h>

const struct device_memory *host_device_memory(struct compute *c)
{
    (void)c;
    return NULL;
}

/* calloc, not memset: untouched pages take no memory. calloc cannot align, so the pointer that it
 * returned is stored before the memory that is returned here. */
enum status host_memory_allocate(struct compute *c, size_t floats, float **out)
{
    const size_t line = 64;
    uint8_t *block = calloc(1, floats * sizeof(float) + 2 * line);
    (void)c;
    if (block == NULL)
        return ST_NO_MEMORY;
    uint8_t *memory = block + 2 * line - (uintptr_t)block % line;
    memcpy(memory - sizeof(block), &block, sizeof(block));
    *out = (float *)(void *)memory;
    return ST_OK;
}

void host_memory_free(struct compute *c, float *memory)
{
    uint8_t *block;
    (void)c;
    if (memory == NULL)
        return;
    memcpy(&block, (uint8_t *)memory - sizeof(block), sizeof(block));
    free(block);
}

void host_memory_copy(struct compute *c, void *to, const void *from, size_t bytes)
{
    (void)c;
    memcpy(to, from, bytes);
}

void host_mark(struct compute *c, uint32_t number, void (*done)(void *self, uint32_t number),
               void *self)
{
    (void)c;
    done(self, number);
}

void host_wait(struct compute *c)
{
    (void)c;
}

enum status host_attention_check(struct compute *c, const struct compute_kv *kv,
                                 uint32_t head_count, struct error *error)
{
    (void)c, (void)kv, (void)head_count, (void)error;
    return ST_OK;
}
