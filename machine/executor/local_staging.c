/* local_staging: see the header. */
#include "machine/executor/local_staging.h"

#include <assert.h>
#include <stdlib.h>

struct slot_copy {
    bool unreported; /* Not reported as ended. */
    bool failed;
    enum device_direction direction;
    uint64_t last; /* Number of the slot's last copy; 0 = nothing is copied. */
};

struct local_staging {
    const struct device_memory *device;
    struct kv_arena arena, staging;
    uint8_t *kv;     /* In the device. */
    uint8_t *memory; /* Pinned. */
    struct slot_copy slots[STAGING_SLOTS];
};

enum status local_staging_open(const struct device_memory *device, const struct kv_arena *arena,
                               void *kv, const struct kv_arena *staging, struct local_staging **out,
                               struct error *error)
{
    struct local_staging *s = calloc(1, sizeof(*s));
    void *memory = NULL;
    if (s == NULL)
        return error_set(error, ST_NO_MEMORY, "KV tiers: out of memory");
    const enum status status =
        device->ops->host_allocate(device->self, kv_arena_bytes(staging), &memory, error);
    if (status != ST_OK) {
        error_prefix(error, "KV tiers: %s", device->name);
        free(s);
        return status;
    }
    *s = (struct local_staging){
        .device = device, .arena = *arena, .staging = *staging, .kv = kv, .memory = memory};
    *out = s;
    return ST_OK;
}

void local_staging_close(struct local_staging *s)
{
    if (s == NULL)
        return;
    s->device->ops->host_free(s->device->self, s->memory);
    free(s);
}

uint8_t *local_staging_memory(const struct local_staging *s)
{
    return s->memory;
}

/* Queues the copies of one layer. */
static void layer_copy(struct local_staging *s, struct slot_copy *slot,
                       const struct executor_copy *copy, const struct staging_side *source,
                       const struct staging_side *target, uint32_t layer)
{
    const struct device_memory *device = s->device;
    const bool fetches = slot->direction == DEVICE_TO_HOST;
    struct kv_run runs[STAGING_SPANS_MAX];
    const uint32_t count =
        staging_layer_runs(source, target, layer, copy->window_first, copy->span_count, runs);
    for (uint32_t i = 0; i < count && !slot->failed; i++) {
        const struct kv_run *run = &runs[i];
        const uint64_t number = device->ops->copy(
            device->self, slot->direction,
            s->kv + (fetches ? run->source_offset : run->target_offset),
            s->memory + (fetches ? run->target_offset : run->source_offset), run->bytes);
        slot->failed = number == 0;
        slot->last = number > 0 ? number : slot->last;
    }
}

void local_staging_copy(struct local_staging *s, enum device_direction direction,
                        const struct executor_copy *copy)
{
    struct slot_copy *slot = &s->slots[copy->slot];
    kv_block_id ids[LAYER_GROUPS_MAX * STAGING_SPANS_MAX];
    const struct staging_side ours = {
        .arena = &s->staging, .blocks = ids, .stride = STAGING_SPANS_MAX};
    const struct staging_side kv = {
        .arena = &s->arena, .blocks = copy->blocks, .stride = copy->stride};
    const bool fetches = direction == DEVICE_TO_HOST;
    assert(copy->slot < STAGING_SLOTS && !slot->unreported);
    *slot = (struct slot_copy){.unreported = true, .direction = direction};
    staging_slot_blocks(&s->staging, copy->slot, ids);
    for (uint32_t layer = 0; layer < s->arena.layer_count; layer++)
        layer_copy(s, slot, copy, fetches ? &kv : &ours, fetches ? &ours : &kv, layer);
    s->device->ops->signal_when_done(s->device->self, direction);
}

bool local_staging_progress(struct local_staging *s,
                            void (*copied)(void *self, uint32_t slot, enum status status),
                            void *self)
{
    bool any = false;
    for (uint32_t i = 0; i < STAGING_SLOTS; i++) {
        struct slot_copy *slot = &s->slots[i];
        struct error ignored; /* transport/ reports a failed device */
        uint64_t done = 0;
        if (!slot->unreported)
            continue;
        if (s->device->ops->poll(s->device->self, slot->direction, &done, &ignored) != ST_OK)
            slot->failed = true;
        if (!slot->failed && done < slot->last) {
            any = true;
            continue;
        }
        slot->unreported = false;
        copied(self, i, slot->failed ? ST_IO : ST_OK);
    }
    return any;
}
