/* engine: see the header. */
#include "tests/model/forward/engine.h"

#include "tests/check.h"

#include <string.h>

struct engine_options engine_options_small(bool exact)
{
    return (struct engine_options){
        .threads = 2,
        .exact = exact,
        .dtype = exact ? COMPUTE_KV_F32 : COMPUTE_KV_I16,
        .block_tokens = 16,
        .block_count = 4,
        .rows_max = 64,
        .logits_max = 64,
    };
}

static void kv_take(struct engine *e, size_t bytes)
{
    const struct device_memory *memory = e->ops->device_memory(e->compute);
    struct error error = {0};
    if (memory != NULL) {
        CHECKF(memory->ops->allocate(memory->self, bytes, &e->kv.base, &error) == ST_OK, "%s",
               error.text);
        return;
    }
    e->kv.base = aligned_alloc(64, (bytes + 63) / 64 * 64);
    CHECK(e->kv.base != NULL);
    memset(e->kv.base, 0xff, bytes); /* NaN: what is read before it was written shows */
}

void engine_open(const struct model_file *g, const struct engine_options *options,
                 struct engine *out)
{
    struct error error = {0};
    struct compute_options compute_options = {.threads = options->threads,
                                              .isa = options->isa,
                                              .lanes = options->lanes,
                                              .exact = options->exact};
    memset(out, 0, sizeof(*out));
    out->ops = &compute_cpu;
    if (options->device != NULL)
        CHECKF(compute_device_find(options->device, &out->ops, &compute_options, &error) == ST_OK,
               "%s", error.text);
    if (options->ops != NULL)
        out->ops = options->ops;
    CHECKF(out->ops->open(&compute_options, &out->compute, &error) == ST_OK, "%s", error.text);
    if (options->group != NULL)
        ranks_join(options->group, out->ops, out->compute);
    struct model_hyper hyper;
    CHECKF(model_hyper_read(g, &hyper, &error) == ST_OK, "%s", error.text);
    out->stage_count = options->stage_count > 0 ? options->stage_count : 1;
    CHECK(out->stage_count <= ENGINE_STAGES_MAX && out->stage_count <= hyper.layer_count);
    for (uint32_t i = 0; i < out->stage_count; i++) {
        const struct model_options model_options = {
            .ops = out->ops,
            .compute = out->compute,
            .draft_layer = options->draft_layer,
            .first_layer = hyper.layer_count * i / out->stage_count,
            .end_layer = options->draft_layer ? 0 : hyper.layer_count * (i + 1) / out->stage_count,
            .rank = options->group != NULL ? options->group->rank : 0,
            .rank_count = options->group != NULL ? options->group->ranks : 0};
        out->first_layers[i] = model_options.first_layer;
        CHECKF(model_open(g, &model_options, &out->models[i], &error) == ST_OK, "%s", error.text);
        CHECKF(forward_open(out->models[i], options->rows_max, options->logits_max,
                            &out->forwards[i], &error) == ST_OK,
               "%s", error.text);
    }
    out->hyper = model_hyper_get(out->models[0]);
    out->shard = model_shard_get(out->models[0]);
    size_t x_bytes = (size_t)options->rows_max * hyper.hidden * sizeof(float);
    out->x = aligned_alloc(64, (x_bytes + 63) / 64 * 64);
    CHECK(out->x != NULL);
    out->block_count = options->block_count;
    out->kv.block_tokens = options->block_tokens;
    out->kv.dtype = options->dtype;
    out->kv.block_bytes = compute_kv_block_bytes(options->block_tokens, out->shard->kv_head_count,
                                                 out->hyper->head_dim, options->dtype);
    out->kv.layer_stride_bytes = out->kv.block_bytes * options->block_count;
    kv_take(out, out->kv.layer_stride_bytes * out->hyper->layer_count);
}

void engine_close(struct engine *e)
{
    const struct device_memory *memory = e->ops->device_memory(e->compute);
    if (memory != NULL)
        memory->ops->free(memory->self, e->kv.base);
    else
        free(e->kv.base);
    free(e->x);
    for (uint32_t i = 0; i < e->stage_count; i++) {
        forward_close(e->forwards[i]);
        model_close(e->models[i]);
    }
    e->ops->close(e->compute);
}

void engine_forward(struct engine *e, const struct forward_batch *batch, const float **logits_out)
{
    for (uint32_t i = 0; i < e->stage_count; i++) {
        struct forward_batch part = *batch;
        struct model_kv kv = e->kv;
        part.token_ids = i == 0 ? batch->token_ids : NULL;
        part.activations = e->stage_count > 1 ? e->x : NULL;
        kv.base = (uint8_t *)kv.base + e->first_layers[i] * kv.layer_stride_bytes;
        forward_run(e->forwards[i], &part, &kv, logits_out);
        CHECK((*logits_out != NULL) == (i + 1 == e->stage_count && e->shard->rank == 0));
    }
}

void engine_logits(struct engine *e, const uint32_t *rows, uint32_t count, const float **logits_out)
{
    forward_logits(e->forwards[e->stage_count - 1], rows, count, logits_out);
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
        .draft_final_vectors = e->finals,
        .batch = {.row_count = count, .sequence_count = 1, .sequences = &sequence},
        .logits_rows = rows + logits_from,
        .logits_count = count - logits_from,
    };
    engine_forward(e, &batch, &logits);
    free(blocks);
    free(rows);
    return logits;
}
