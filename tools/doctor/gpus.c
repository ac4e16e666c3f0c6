/* doctor_gpus: the GPUs that the backend opens, and how KV leaves their memory. */
#include "compute/compute.h"
#include "tools/doctor/probe.h"
#include "tools/doctor/report.h"

#include <string.h>

#define REGION_BYTES ((uint64_t)2 << 20)

static void no_up(void *self, struct transport_peer *peer)
{
    (void)self, (void)peer;
}

static void no_down(void *self, struct transport_peer *peer, enum status why, const char *text)
{
    (void)self, (void)peer, (void)why, (void)text;
}

static void no_message(void *self, struct transport_peer *peer, const uint8_t *data, size_t bytes)
{
    (void)self, (void)peer, (void)data, (void)bytes;
}

static void no_flushed(void *self, struct transport_peer *peer, uint64_t cookie, enum status status)
{
    (void)self, (void)peer, (void)cookie, (void)status;
}

/* Opens a transport like a machine with its KV on the GPU. */
static void way_measure(const struct device_memory *memory, struct doctor_gpu *out)
{
    static const uint8_t key[SECRET_HASH_BYTES]; /* Any key, because no peer connects. */
    struct secret_keys keys;
    secret_keys_set(&keys, key);
    const struct transport_options options = {
        .identity = {.name = "doctor", .role = TRANSPORT_MACHINE},
        .events = {no_up, no_down, no_message, no_flushed, NULL},
        .region_bytes = REGION_BYTES,
        .block_count = 1,
        .layer_stride_bytes = REGION_BYTES,
        .device = memory,
        .one_host = true,
        .keys = &keys,
    };
    struct transport_memory state;
    struct transport *t;
    struct error error;
    if (transport_open(&transport_ucx, &options, &t, &error) != ST_OK) {
        out->way = TRANSPORT_WAY_STAGED;
        snprintf(out->way_note, sizeof(out->way_note), "%.120s", error.text);
        return;
    }
    transport_memory(t, &state);
    out->way = state.way;
    snprintf(out->way_note, sizeof(out->way_note), "%s", state.why);
    transport_close(t);
}

static enum status gpu_check(uint32_t number, struct doctor_gpu *out, struct error *error)
{
    struct compute_options options = {.threads = 1};
    const struct compute_ops *ops;
    struct compute *compute;
    snprintf(out->device, sizeof(out->device), "cuda:%u", number);
    enum status status = compute_device_find(out->device, &ops, &options, error);
    if (status == ST_OK)
        status = ops->open(&options, &compute, error);
    if (status != ST_OK)
        return status;
    snprintf(out->description, sizeof(out->description), "%s", ops->describe(compute));
    const struct device_memory *memory = ops->device_memory(compute);
    if (memory != NULL) {
        memory->ops->memory_sizes(memory->self, &out->free_bytes, &out->total_bytes);
        way_measure(memory, out);
    }
    ops->close(compute);
    return ST_OK;
}

static enum status one_gpu_check(const void *context, void *out, struct error *error)
{
    return gpu_check(*(const uint32_t *)context, out, error);
}

/* Each GPU is checked in a process of its own. The first one that fails ends the search. */
void doctor_gpus_check(struct doctor_report *report, int timeout_ms)
{
    struct doctor_gpus *gpus = &report->gpus;
    for (uint32_t i = 0; i < DOCTOR_GPUS_MAX; i++) {
        struct doctor_gpu gpu = {.device = ""};
        struct error error = {""};
        if (probe_run(one_gpu_check, &i, timeout_ms, &gpu, sizeof(gpu), &error) != ST_OK) {
            snprintf(gpus->end_why, sizeof(gpus->end_why), "%s", error.text);
            return;
        }
        gpus->gpus[gpus->count++] = gpu;
    }
}
