/* local: the executor of a machine without stages: one device with all layers, and one
 * batch at a time. */
#include "kvcache/kv_targets.h"
#include "machine/executor/device.h"
#include "machine/executor/local_staging.h"

#include <stdio.h>
#include <stdlib.h>

/* While KV is copied to or from the staging memory, `progress` is called at least this often: the
 * transport may take the device's signal. */
#define COPY_LOOK_US 1000

struct local {
    struct executor executor;
    const struct config *config;
    const struct machine_shape *shape;
    struct executor_calls calls;
    void *self;
    struct transport *transport; /* The machine's; NULL = not open yet. */
    struct kv_arena arena;
    struct device device;
    struct kv_targets *targets;
    struct local_staging *staging; /* NULL = tiers can use the KV memory, or there are none. */
    struct message_stage layers;   /* All layers and heads. */
    bool running;                  /* The engine computes the batch in `slot`. */
    uint32_t slot;
};

static struct local *local_of(struct executor *e)
{
    return (struct local *)(void *)e;
}

static const struct local *local_of_const(const struct executor *e)
{
    return (const struct local *)(const void *)e;
}

/* ---- opening and closing ---- */

/* Opens the staging memory if there are tiers, and KV is in the device's memory. */
static enum status open_staging(struct local *l, const struct device_memory *device, void *kv,
                                struct error *error)
{
    struct executor *e = &l->executor;
    if (device == NULL)
        return ST_OK;
    e->staging = staging_arena(l->config, l->shape);
    if (e->staging.block_count == 0)
        return ST_OK;
    const enum status status =
        local_staging_open(device, &l->arena, kv, &e->staging, &l->staging, error);
    if (status == ST_OK)
        e->staging_memory = local_staging_memory(l->staging);
    return status;
}

static enum status open_region(void *self, const struct device_memory *device, void **kv_out,
                               struct error *error)
{
    struct local *l = self;
    const uint64_t bytes = kv_arena_bytes(&l->arena);
    enum status status = l->calls.transport_open(l->self, bytes, device, &l->transport, error);
    if (status != ST_OK)
        return status;
    *kv_out = transport_region(l->transport);
    return open_staging(l, device, *kv_out, error);
}

static enum status open_device(struct local *l, const struct executor_options *options,
                               struct error *error)
{
    const struct config_machine *entry = options->config_entry;
    char who[LIMIT_NAME_BYTES + 16];
    snprintf(who, sizeof(who), "machine %s", entry->name);
    const struct device_options device = {
        .process_name = who,
        .machine = entry,
        .name = entry->device,
        .fallback = entry->cpu_fallback,
        .ops = options->compute,
        .threads = entry->threads,
        .shape = options->shape,
        .arena = &l->arena,
        .file = options->file,
        .kv_region_create = open_region,
        .self = l,
        .prefault = options->config->kv.prefault,
        .turns = options->turns,
    };
    const enum status status = device_open(&device, &l->device, error);
    l->executor.fell_back = l->device.fell_back;
    return status;
}

static void local_stop(struct executor *e)
{
    device_stop(&local_of(e)->device);
}

static void local_disconnect(struct executor *e)
{
    struct local *l = local_of(e);
    kv_targets_close(l->targets);
    l->targets = NULL;
    local_staging_close(l->staging);
    l->staging = NULL;
}

static void local_close(struct executor *e)
{
    device_close(&local_of(e)->device);
    free(e);
}

/* ---- batches ---- */

static int local_fd(const struct executor *e)
{
    return engine_fd(local_of_const(e)->device.engine);
}

static int64_t local_progress(struct executor *e, int64_t now_us)
{
    struct local *l = local_of(e);
    struct engine_progress progress = engine_poll(l->device.engine);
    if (l->running && progress.done) {
        l->running = false;
        l->calls.batch_done(l->self, l->slot);
    } else if (l->running && progress.stored_layers > 0) {
        l->calls.layers_computed(l->self, progress.stored_layers);
    }
    const bool copies =
        l->staging != NULL && local_staging_progress(l->staging, l->calls.kv_copied, l->self);
    return copies ? now_us + COPY_LOOK_US : INT64_MAX;
}

static bool local_is_ready(const struct executor *e)
{
    (void)e;
    return true;
}

static enum status local_failure(const struct executor *e, struct error *error)
{
    (void)e;
    (void)error;
    return ST_OK;
}

static const char *local_describe(const struct executor *e)
{
    return device_describe(&local_of_const(e)->device);
}

static bool local_can_start(const struct executor *e)
{
    return !local_of_const(e)->running;
}

static void local_start(struct executor *e, const struct executor_batch *batch)
{
    struct local *l = local_of(e);
    l->running = true;
    l->slot = batch->slot;
    engine_start(l->device.engine, batch->job);
}

static void local_abandon(struct executor *e, uint32_t slot)
{
    struct local *l = local_of(e);
    if (l->running && l->slot == slot)
        engine_abandon(l->device.engine);
}

static uint32_t local_loads(const struct executor *e,
                            struct message_load out[LIMIT_STAGE_PROCESSES])
{
    (void)e;
    (void)out;
    return 0;
}

/* ---- KV ---- */

static void local_layout(const struct executor *e, struct message_stages *out)
{
    *out = (struct message_stages){.count = 1, .stages = &local_of_const(e)->layers};
}

static void local_target_set(struct executor *e, uint32_t target,
                             const struct message_peer *machine, struct transport_peer *peer,
                             const struct message_stages *stages)
{
    kv_targets_set(local_of(e)->targets, target, machine->name, peer, stages);
}

static void local_target_drop(struct executor *e, uint32_t target)
{
    kv_targets_drop(local_of(e)->targets, target);
}

static enum status local_target_push(struct executor *e, struct kv_push *push, uint32_t layer_end)
{
    return kv_targets_push(local_of(e)->targets, push, layer_end);
}

static void local_target_flush(struct executor *e, uint32_t own_path, uint32_t target,
                               uint32_t path, uint64_t cookie, bool requested)
{
    (void)own_path;
    (void)requested;
    kv_targets_flush(local_of(e)->targets, target, path, cookie);
}

static void local_kv_fetch(struct executor *e, const struct executor_copy *copy)
{
    local_staging_copy(local_of(e)->staging, DEVICE_TO_HOST, copy);
}

static void local_kv_deliver(struct executor *e, const struct executor_copy *copy)
{
    local_staging_copy(local_of(e)->staging, HOST_TO_DEVICE, copy);
}

/* ---- connections to token machines ---- */

static void local_peer_up(struct executor *e, struct transport_peer *peer)
{
    kv_targets_peer_up(local_of(e)->targets, peer);
}

static void local_peer_down(struct executor *e, struct transport_peer *peer, const char *text,
                            int64_t now_us)
{
    (void)now_us;
    kv_targets_peer_down(local_of(e)->targets, peer, text);
}

static void local_peer_flushed(struct executor *e, struct transport_peer *peer, uint64_t cookie,
                               enum status status)
{
    kv_targets_flushed(local_of(e)->targets, peer, cookie, status);
}

static const struct executor_ops local_ops = {
    .stop = local_stop,
    .disconnect = local_disconnect,
    .close = local_close,
    .fd = local_fd,
    .progress = local_progress,
    .is_ready = local_is_ready,
    .failure = local_failure,
    .describe = local_describe,
    .can_start = local_can_start,
    .start = local_start,
    .abandon = local_abandon,
    .process_loads = local_loads,
    .layout = local_layout,
    .target_set = local_target_set,
    .target_drop = local_target_drop,
    .target_push = local_target_push,
    .target_flush = local_target_flush,
    .kv_fetch = local_kv_fetch,
    .kv_deliver = local_kv_deliver,
    .peer_up = local_peer_up,
    .peer_down = local_peer_down,
    /* no peer_message: it has no peers of kind PEER_STAGE */
    .peer_flushed = local_peer_flushed,
};

enum status executor_local_open(const struct executor_options *options, struct executor **out,
                                struct error *error)
{
    const struct kv_arena *arena = &options->shape->arena;
    struct local *l = calloc(1, sizeof(*l));
    if (l == NULL)
        return error_set(error, ST_NO_MEMORY, "machine %s: out of memory",
                         options->config_entry->name);
    l->executor.ops = &local_ops;
    l->config = options->config;
    l->shape = options->shape;
    l->calls = options->calls;
    l->self = options->self;
    l->arena = *arena;
    l->layers = (struct message_stage){
        .paths = UINT64_MAX, .end_layer = arena->layer_count, .end_head = arena->head_total};
    *out = &l->executor;
    enum status status = open_device(l, options, error);
    if (status != ST_OK)
        return status;
    const struct kv_targets_options targets = {
        .transport = l->transport,
        .arena = *arena,
        .context_spans = machine_shape_context_spans(options->shape),
        .link_changed = options->calls.target_changed,
        .flushed = options->calls.target_flushed,
        .self = options->self,
    };
    status = kv_targets_open(&targets, &l->targets);
    return status == ST_OK ? ST_OK
                           : error_set(error, status, "machine %s: %s", options->config_entry->name,
                                       status_name(status));
}
