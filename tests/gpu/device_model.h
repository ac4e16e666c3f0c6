/* device_model: a model on any device, for tests and benchmarks of devices. Its KV cache is in the
 * device's memory, or in the host's if the device has none. The program's main thread calls it. It
 * has no engine thread and no sampler. A part that cannot be opened ends the program. */
#ifndef TESTS_GPU_DEVICE_MODEL_H
#define TESTS_GPU_DEVICE_MODEL_H

#include "model/file/model_file.h"
#include "model/forward/model.h"
#include "tests/model/forward/ranks.h"

struct device_model_options {
    const char *device; /* Device as in a config, such as "cuda:0". */
    bool exact;
    uint32_t threads;
    enum compute_kv_dtype dtype;
    uint32_t block_tokens;
    uint32_t block_count;
    uint32_t context_tokens;
    struct ranks *group; /* Group in which this process is a rank; NULL = the whole model. */
    /* Operations that the model calls in place of the device's; NULL = the device's. */
    const struct compute_ops *ops;
    /* Returns operations that wrap those of the device, which the model then calls; NULL = the
     * model calls the device's operations. */
    const struct compute_ops *(*wrap)(const struct compute_ops *ops);
};

struct device_model {
    const struct compute_ops *ops;
    struct compute *compute;
    struct model *model;
    const struct model_hyper *hyper;
    struct model_kv kv;
    uint64_t kv_bytes; /* Size of the KV cache. */
};

void device_model_open(const struct model_file *g, const struct device_model_options *options,
                       struct device_model *out);
void device_model_close(struct device_model *m);
/* Ends the program if the device has failed. */
void device_model_check(const struct device_model *m);

#endif
