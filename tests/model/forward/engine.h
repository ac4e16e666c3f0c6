/* engine: compute device, model, workspace and KV memory as one object, for the tests of model/.
 * The test's main thread calls it, and waits while the device's threads compute. It is not the
 * engine of a machine (machine/executor/engine.h): it has no thread, no sampler and no queue. A
 * part that cannot be opened ends the test. */
#ifndef TESTS_MODEL_FORWARD_ENGINE_H
#define TESTS_MODEL_FORWARD_ENGINE_H

#include "model/forward/model.h"
#include "tests/model/forward/ranks.h"

struct engine_options {
    const char *device; /* As in a config, such as "cuda:0"; only one stage. NULL = the CPU. */
    const struct compute_ops *ops; /* Used instead of the device's functions; NULL = those. */
    uint32_t threads;
    enum compute_isa isa;
    enum compute_lanes lanes;
    bool exact;
    enum compute_kv_dtype dtype; /* Type of the cached K and V. */
    uint32_t block_tokens;
    uint32_t block_count;
    uint32_t rows_max;   /* Most tokens of one batch. */
    uint32_t logits_max; /* Most rows of logits of one batch. */
    /* Stage i has the layers [i * count / stages, (i + 1) * count / stages); 0 = one stage. */
    uint32_t stage_count;
    bool draft_layer; /* Open the draft layer instead of the model; one stage. */
    /* Group in which this process is a rank; only rank 0 gets logits. NULL = the whole model. */
    struct ranks *group;
};

/* Returns the options for up to 64 tokens on two threads of the CPU. exact: fp32 arithmetic and
 * fp32 KV; else both as shipped. */
struct engine_options engine_options_small(bool exact);

#define ENGINE_STAGES_MAX 8

struct engine {
    const struct compute_ops *ops;
    struct compute *compute;
    uint32_t stage_count;
    struct model *models[ENGINE_STAGES_MAX];
    struct forward *forwards[ENGINE_STAGES_MAX];
    uint32_t first_layers[ENGINE_STAGES_MAX];
    float *x;           /* Activations between stages. */
    struct model_kv kv; /* KV of all layers. */
    const struct model_hyper *hyper;
    const struct model_shard *shard; /* This rank's share of the model. */
    uint32_t block_count;
    const float *finals; /* forward_batch.draft_final_vectors of the next engine_run. */
};

void engine_open(const struct model_file *g, const struct engine_options *options,
                 struct engine *out);
void engine_close(struct engine *e);
/* Runs forward_run through all stages, and forward_logits of the last stage. */
void engine_forward(struct engine *e, const struct forward_batch *batch, const float **logits_out);
void engine_logits(struct engine *e, const uint32_t *rows, uint32_t count,
                   const float **logits_out);
/* Returns false if this CPU does not have the instructions. */
bool engine_isa_present(enum compute_isa isa);

/* Runs tokens of one sequence whose blocks are 0, 1, 2, …. Returns the logits of the tokens from
 * `logits_from` on. */
const float *engine_run(struct engine *e, const uint32_t *ids, uint32_t count, uint32_t position,
                        uint32_t logits_from);

#endif
