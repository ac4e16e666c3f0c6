/* splitwise_models: the models and the machine that the simulator of the Splitwise paper uses.
 * `cleave simulate` and `cleave plan` read these constants, on any thread. The models that cleave
 * computes are not here. */
#ifndef TOOLS_SIMULATE_SPLITWISE_MODELS_H
#define TOOLS_SIMULATE_SPLITWISE_MODELS_H

#include <stdint.h>

struct splitwise_model {
    const char *name; /* As in perf_model.csv. */
    uint64_t layers;  /* Number of layers. */
    uint64_t hidden;  /* Numbers in the activations of one token. */
    uint64_t weights_bytes;
};

/* Returns the bytes of K and V of one token, two bytes per number. */
static inline uint64_t splitwise_kv_bytes_per_token(const struct splitwise_model *model)
{
    return 2 * model->hidden * model->layers * 2;
}

#define SPLITWISE_MACHINE_BYTES   (8 * 85899345920ull) /* Memory of a DGX: 8 × 80 GiB. */
#define SPLITWISE_TENSOR_PARALLEL 8
#define SPLITWISE_SLO_HARDWARE    "a100-80gb" /* Hardware that the SLO compares with. */

/* Returns the model with this name; NULL = unknown model. */
const struct splitwise_model *splitwise_model_find(const char *name);

#endif
