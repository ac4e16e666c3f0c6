/* device_model: a model on any device, with its KV-cache where the device has it: what the tests
 * and benches of devices use. Ends the program when anything of it cannot be opened. */
#ifndef TESTS_GPU_DEVICE_MODEL_H
#define TESTS_GPU_DEVICE_MODEL_H

#include "model/file/model_file.h"
#include "model/forward/model.h"
#include "tests/model/ranks.h"

struct device_model_options {
    const char *device; /* "cuda:0" */
    bool exact;
    uint32_t threads;
    enum compute_kv_dtype dtype;
    uint32_t block_tokens;
    uint32_t block_count;
    uint32_t context_tokens;
    struct ranks *group; /* this process is a rank of it; NULL: whole */
    const struct compute_ops
        *ops; /* in the place of the device's, for what the model calls; NULL */
    const struct compute_ops *(*wrap)(const struct compute_ops *ops); /* NULL: as they are */
};

struct device_model {
    const struct compute_ops *ops;
    struct compute *compute;
    struct model *model;
    const struct model_hyper *hyper;
    struct model_kv kv;
    uint64_t kv_bytes;
};

void device_model_open(const struct model_file *g, const struct device_model_options *options,
                       struct device_model *out);
void device_model_close(struct device_model *m);
/* Ends the program if the device has failed. */
void device_model_check(const struct device_model *m);

#endif
