/* device: see the header. */
#include "machine/executor/device.h"

#include "common/device_name.h"
#include "common/log.h"
#include "common/prefault.h"

#include <string.h>

/* True for a device that may have its own memory (a GPU), whose region can be created only after
 * the device is open, and perhaps not at all. */
static bool region_comes_last(const struct device_options *options)
{
    return options->ops != NULL ? options->ops != &compute_cpu
                                : device_name_gpu(options->name, NULL);
}

static const struct device_memory *memory_of(const struct device *device)
{
    return device->ops->device_memory(device->compute);
}

static enum status open_region(const struct device_options *options,
                               const struct device_memory *memory, void **kv_out,
                               struct error *error)
{
    enum status status = ST_OK;
    if (memory == NULL) /* also when a GPU's machine computes on the CPU */
        status = machine_shape_memory_check(options->machine, error);
    return status == ST_OK ? options->kv_region_create(options->self, memory, kv_out, error)
                           : status;
}

static enum status open_compute(const struct device_options *options, struct device *out,
                                struct error *error)
{
    const struct compute_options compute_options = {
        .threads = options->threads, .bf16_activations = !options->machine->f8_activations};
    struct error instead;
    out->ops = options->ops;
    if (out->ops != NULL)
        return out->ops->open(&compute_options, &out->compute, error);
    enum status status = compute_device_open(options->name, options->fallback, &compute_options,
                                             &out->ops, &out->compute, &instead, error);
    if (status != ST_OK)
        error_prefix(error, "%s", options->process_name);
    out->fell_back = status == ST_OK && instead.text[0] != 0;
    if (out->fell_back)
        log_warn("%s computes on the CPU: %s", options->process_name, instead.text);
    return status;
}

enum status device_open(const struct device_options *options, struct device *out,
                        struct error *error)
{
    const struct machine_shape *shape = options->shape;
    const struct kv_arena *arena = options->arena;
    const bool last = region_comes_last(options);
    enum status status = ST_OK;
    void *kv = NULL;
    if (!last)
        status = open_region(options, NULL, &kv, error);
    if (status == ST_OK)
        status = open_compute(options, out, error);
    if (status == ST_OK && last)
        status = open_region(options, memory_of(out), &kv, error);
    if (status != ST_OK)
        return status;
    const struct model_options model_options = {
        .ops = out->ops,
        .compute = out->compute,
        .first_layer = arena->first_layer,
        .end_layer = arena->first_layer + arena->layer_count,
        .rank = options->rank,
        .rank_count = options->ranks,
        .draft_layer = options->draft_layer,
        .context_tokens_max = shape->context_tokens,
    };
    status = model_open(options->file, &model_options, &out->model, error);
    if (status != ST_OK)
        return status;
    const struct engine_options engine_options = {
        .model = out->model,
        .ops = out->ops,
        .compute = out->compute,
        .kv = {.base = kv,
               .groups = arena->groups,
               .layer_stride_bytes = arena->layer_stride_bytes,
               .block_bytes = arena->block_bytes,
               .block_tokens = arena->block_tokens,
               .dtype = shape->kv_dtype},
        .rows_max = shape->rows_max,
        /* A device that only waits or computes elsewhere uses no core, so it takes no turns: they
         * would keep other machines from the cores. */
        .turns = out->ops == &compute_cpu ? options->turns : NULL,
        .rank = options->rank,
    };
    status = engine_open(&engine_options, &out->engine, error);
    if (status != ST_OK || !options->prefault || out->ops == &compute_wait ||
        memory_of(out) != NULL)
        return status;
    return prefault_start(kv, arena->layer_stride_bytes, kv_arena_rows(arena), &out->prefault,
                          error);
}

void device_stop(struct device *device)
{
    prefault_stop(device->prefault);
    engine_close(device->engine);
    device->prefault = NULL;
    device->engine = NULL;
}

void device_close(struct device *device)
{
    device_stop(device);
    model_close(device->model);
    if (device->compute != NULL)
        device->ops->close(device->compute);
    *device = (struct device){.ops = NULL};
}

const char *device_describe(const struct device *device)
{
    return device->ops->describe(device->compute);
}
