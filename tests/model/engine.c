/* engine: see the header. */
#include "tests/model/engine.h"

#include "tests/check.h"

#include <string.h>

void engine_open(const struct gguf *g, const struct engine_options *options, struct engine *out)
{
    struct error error = {0};
    const struct compute_options compute_options = {
        .threads = options->threads, .isa = options->isa, .exact = options->exact};
    memset(out, 0, sizeof(*out));
    CHECKF(compute_cpu.open(&compute_options, &out->compute, &error) == ST_OK, "%s", error.text);
    const struct model_options model_options = {.ops = &compute_cpu, .compute = out->compute};
    CHECKF(model_open(g, &model_options, &out->model, &error) == ST_OK, "%s", error.text);
    CHECKF(forward_open(out->model, options->rows_max, options->logits_max, &out->forward,
                        &error) == ST_OK,
           "%s", error.text);
    out->hyper = model_hyper_of(out->model);
    out->block_count = options->block_count;
    out->kv.block_tokens = options->block_tokens;
    out->kv.dtype = options->dtype;
    out->kv.block_bytes = compute_kv_block_bytes(options->block_tokens, out->hyper->kv_head_count,
                                                 out->hyper->head_dim, options->dtype);
    out->kv.layer_stride_bytes = out->kv.block_bytes * options->block_count;
    size_t bytes = out->kv.layer_stride_bytes * out->hyper->layer_count;
    out->kv.base = aligned_alloc(64, (bytes + 63) / 64 * 64);
    CHECK(out->kv.base != NULL);
    memset(out->kv.base, 0xff, bytes); /* NaN: what is read before it was written shows */
}

void engine_close(struct engine *e)
{
    free(e->kv.base);
    forward_close(e->forward);
    model_close(e->model);
    compute_cpu.close(e->compute);
}

bool engine_isa_present(enum compute_isa isa)
{
    const struct compute_options options = {.threads = 1, .isa = isa};
    struct compute *c;
    struct error error;
    if (compute_cpu.open(&options, &c, &error) != ST_OK)
        return false;
    compute_cpu.close(c);
    return true;
}

const float *engine_run(struct engine *e, const uint32_t *ids, uint32_t count, uint32_t position,
                        uint32_t logits_from)
{
    uint32_t *blocks = malloc(e->block_count * sizeof(*blocks));
    uint32_t *rows = malloc(count * sizeof(*rows));
    const float *logits;
    CHECK(blocks != NULL && rows != NULL);
    for (uint32_t i = 0; i < e->block_count; i++)
        blocks[i] = i;
    for (uint32_t i = 0; i < count; i++)
        rows[i] = i;
    const struct compute_sequence sequence = {
        .row_count = count, .first_position = position, .blocks = blocks};
    const struct forward_batch batch = {
        .token_ids = ids,
        .batch = {.row_count = count, .sequence_count = 1, .sequences = &sequence},
        .logits_rows = rows + logits_from,
        .logits_count = count - logits_from,
    };
    forward_run(e->forward, &batch, &e->kv, &logits);
    free(blocks);
    free(rows);
    return logits;
}
