/* device: what computes in one process: the backend, the weights of some layers, the engine thread.
 * A machine without stages has one for all layers; each stage has one for its own. */
#ifndef MACHINE_DEVICE_H
#define MACHINE_DEVICE_H

#include "machine/engine.h"
#include "machine/machine_shape.h"

struct device {
    const struct compute_ops *ops;
    struct compute *compute;
    struct model *model;
    struct engine *engine;
    struct prefault *prefault; /* of the KV, or NULL */
};

struct device_options {
    const char *who;                    /* "machine t0": begins errors about the device */
    const struct config_machine *entry; /* whose KV it is, or a part of it */
    const char *name;                   /* "cpu" */
    const struct compute_ops *ops;      /* NULL: what the name says */
    bool fallback;                      /* to the CPU, where a GPU cannot be had */
    uint32_t threads;
    const struct machine_shape *shape; /* read during the call */
    const struct kv_arena *arena;      /* of the layers and heads that it has; likewise */
    uint32_t rank;                 /* of so many ranks that have a slice of these layers each: */
    uint32_t ranks;                /* 0: it has them whole */
    const struct model_file *file; /* read during the call */
    /* Makes the memory of these layers' KV: a piece of `memory`, or the host's if that is NULL. Of
     * the host's before there are threads, else once the device is open. */
    enum status (*region)(void *self, const struct device_memory *memory, void **kv_out,
                          struct error *error);
    void *self;
    bool prefault;       /* take its memory soon, not when it is used */
    struct turns *turns; /* NULL: none */
};

/* *out, which is empty, is to be closed also after an error. */
enum status device_open(const struct device_options *options, struct device *out,
                        struct error *error);
/* Ends what uses the region, which may then be closed: waits for the job that runs. */
void device_stop(struct device *device);
void device_close(struct device *device); /* stops it, too */
const char *device_text(const struct device *device);

#endif
