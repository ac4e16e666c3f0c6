/* engine: compute, model, workspace and a KV arena as one object, as the engine tests use them.
 * Aborts the test when anything of it cannot be opened. */
#ifndef TESTS_MODEL_ENGINE_H
#define TESTS_MODEL_ENGINE_H

#include "model/model.h"

struct engine_options {
    uint32_t threads;
    enum compute_isa isa;
    bool exact;
    enum compute_kv_dtype dtype;
    uint32_t block_tokens;
    uint32_t block_count;
    uint32_t rows_max;
    uint32_t logits_max;
};

struct engine {
    struct compute *compute;
    struct model *model;
    struct forward *forward;
    struct model_kv kv;
    const struct model_hyper *hyper;
    uint32_t block_count;
};

void engine_open(const struct gguf *g, const struct engine_options *options, struct engine *out);
void engine_close(struct engine *e);
/* False when this CPU lacks the instructions. */
bool engine_isa_present(enum compute_isa isa);

/* Runs rows of one sequence whose blocks are 0, 1, 2 …; logits of the rows from `logits_from` on.
 */
const float *engine_run(struct engine *e, const uint32_t *ids, uint32_t count, uint32_t position,
                        uint32_t logits_from);

#endif
