/* device: the part of a process that computes. A device owns the backend, the weights of the
 * process's layers, and the engine with its thread. A machine without stages has a device for all
 * layers (local.c), and a second device for a draft model (machine/draft.c). A stage process has a
 * device for its layers (stage.c). All calls are made on the event loop thread of the process. A
 * device starts no jobs (its user does, with engine.h), and does not own the KV region (its user
 * does). */
#ifndef MACHINE_EXECUTOR_DEVICE_H
#define MACHINE_EXECUTOR_DEVICE_H

#include "machine/executor/engine.h"
#include "machine/executor/shape.h"

struct device {
    const struct compute_ops *ops;
    struct compute *compute;
    struct model *model;
    struct engine *engine;
    struct prefault *prefault; /* Prefaults the KV region; NULL = none. */
    bool fell_back;            /* The CPU computes, because the GPU of the config cannot be used. */
};

struct device_options {
    const char *process_name; /* The process, for log lines and errors: "machine t0". */
    /* Config entry of the machine that this device belongs to; read during the call. */
    const struct config_machine *machine;
    const char *name;                  /* Name of the device in the config, such as "cpu". */
    const struct compute_ops *ops;     /* Backend; NULL = selected by `name`. */
    bool fallback;                     /* Use the CPU if the GPU cannot be used. */
    uint32_t threads;                  /* Threads of a CPU; 0 = one for each core. */
    const struct machine_shape *shape; /* Sizes of the machine; read during the call. */
    /* Arena of this device's layers and KV heads; read during the call. */
    const struct kv_arena *arena;
    uint32_t rank; /* Index of this rank; 0 without ranks. */
    /* Ranks that compute this device's layers together; 0 = this device has the whole layers. */
    uint32_t ranks;
    bool draft_layer;              /* The device has the draft layer of the file's model. */
    const struct model_file *file; /* Read during the call. */
    /* Creates the KV region of this device's layers, and stores the region's address in *kv_out.
     * memory: the device memory for the region; NULL = host memory. Called during device_open. */
    enum status (*kv_region_create)(void *self, const struct device_memory *memory, void **kv_out,
                                    struct error *error);
    void *self;          /* First argument of kv_region_create. */
    bool prefault;       /* Allocate a KV region in host memory in the background (prefault.h). */
    struct turns *turns; /* Turns on the host's cores, for a CPU; NULL = none. */
};

/* Opens the backend, the KV region, the model and the engine. *out must be all zeros. The caller
 * calls device_close also after an error. */
enum status device_open(const struct device_options *options, struct device *out,
                        struct error *error);
/* Waits for the job that runs, then closes the engine. After that, the caller may close the KV
 * region. */
void device_stop(struct device *device);
/* Calls device_stop, frees everything, and sets *device to zeros. All zeros are fine. */
void device_close(struct device *device);
/* Returns a text for logs, such as "cpu, 4 threads"; valid until device_close. */
const char *device_describe(const struct device *device);

#endif
