/* device_model: see the header. */
#include "tests/gpu/device_model.h"

#include "tests/check.h"

#include <string.h>

static void kv_take(struct device_model *m)
{
    const struct device_memory *memory = m->ops->device_memory(m->compute);
    struct error error = {0};
    if (memory != NULL) {
        CHECKF(memory->ops->allocate(memory->self, m->kv_bytes, &m->kv.base, &error) == ST_OK, "%s",
               error.text);
        return;
    }
    m->kv.base = aligned_alloc(64, (m->kv_bytes + 63) / 64 * 64);
    CHECK(m->kv.base != NULL);
    memset(m->kv.base, 0, m->kv_bytes);
}

void device_model_open(const struct model_file *g, const struct device_model_options *options,
                       struct device_model *out)
{
    struct error error = {0};
    struct compute_options compute_options = {.threads = options->threads, .exact = options->exact};
    memset(out, 0, sizeof(*out));
    CHECKF(compute_device_find(options->device, &out->ops, &compute_options, &error) == ST_OK, "%s",
           error.text);
    if (options->wrap != NULL)
        out->ops = options->wrap(out->ops);
    CHECKF(out->ops->open(&compute_options, &out->compute, &error) == ST_OK, "%s", error.text);
    struct model_options model_options = {.ops = options->ops != NULL ? options->ops : out->ops,
                                          .compute = out->compute,
                                          .context_tokens_max = options->context_tokens};
    if (options->group != NULL) {
        ranks_join(options->group, out->ops, out->compute);
        model_options.rank = options->group->rank;
        model_options.rank_count = options->group->ranks;
    }
    CHECKF(model_open(g, &model_options, &out->model, &error) == ST_OK, "%s", error.text);
    out->hyper = model_hyper_get(out->model);
    out->kv.block_tokens = options->block_tokens;
    out->kv.dtype = options->dtype;
    out->kv.block_bytes =
        compute_kv_block_bytes(options->block_tokens, model_shard_get(out->model)->kv_head_count,
                               out->hyper->head_dim, options->dtype);
    out->kv.layer_stride_bytes = out->kv.block_bytes * options->block_count;
    out->kv_bytes = out->kv.layer_stride_bytes * out->hyper->layer_count;
    kv_take(out);
}

void device_model_close(struct device_model *m)
{
    const struct device_memory *memory = m->ops->device_memory(m->compute);
    if (memory != NULL)
        memory->ops->free(memory->self, m->kv.base);
    else
        free(m->kv.base);
    model_close(m->model);
    m->ops->close(m->compute);
}

void device_model_check(const struct device_model *m)
{
    struct error error = {0};
    CHECKF(m->ops->check(m->compute, &error) == ST_OK, "the device has failed: %s", error.text);
}
