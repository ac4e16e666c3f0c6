/* local_staging: the staging memory (staging.h) of a machine without stages whose KV is in the
 * memory of a GPU. It is pinned memory of the host; the GPU copies KV to it and from it. local.c
 * owns the part and calls the functions on the machine's event loop thread. The tiers' threads use
 * the memory of a slot while no copy of the slot is under way. This part does not decide what is
 * copied, or when. */
#ifndef MACHINE_EXECUTOR_LOCAL_STAGING_H
#define MACHINE_EXECUTOR_LOCAL_STAGING_H

#include "common/device_memory.h"
#include "machine/executor/executor.h"
#include "machine/executor/staging.h"

struct local_staging;

/* Allocates memory with the layout `staging`. device: the GPU, whose memory has KV with the layout
 * `arena` at `kv`. The layouts are copied. Returns ST_NO_MEMORY on failure. */
enum status local_staging_open(const struct device_memory *device, const struct kv_arena *arena,
                               void *kv, const struct kv_arena *staging, struct local_staging **out,
                               struct error *error);
/* Waits for copies that are under way, and frees the memory. Requires that the KV memory is still
 * there. NULL is fine. */
void local_staging_close(struct local_staging *s);
/* Returns the staging memory. */
uint8_t *local_staging_memory(const struct local_staging *s);

/* Begins a copy from the GPU to a slot (DEVICE_TO_HOST: executor_ops.kv_fetch), or from the slot to
 * the GPU (HOST_TO_DEVICE: executor_ops.kv_deliver). */
void local_staging_copy(struct local_staging *s, enum device_direction direction,
                        const struct executor_copy *copy);
/* Calls `copied` for each slot whose copy has ended. Returns true if copies are still under way. */
bool local_staging_progress(struct local_staging *s,
                            void (*copied)(void *self, uint32_t slot, enum status status),
                            void *self);

#endif
