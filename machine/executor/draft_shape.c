/* draft_shape: see the header. */
#include "machine/executor/draft_shape.h"

#include "model/file/draft_file.h"

enum status draft_shape_file_open(const struct config *config, struct model_file *target,
                                  struct model_file **out, struct error *error)
{
    char path[LIMIT_PATH_BYTES];
    enum status status = config_draft_path(config, path, error);
    if (status == ST_OK)
        status = draft_file_open(path, target, out, error);
    if (status != ST_OK)
        error_prefix(error, "%s", config_draft_key(config));
    return status;
}

static enum status sizes_read(const struct config *config, const struct model_file *file,
                              uint32_t context_tokens, enum compute_kv_dtype dtype,
                              struct draft_shape *out, struct error *error)
{
    enum status status = config->scheduler.draft_layer
                             ? model_hyper_read_draft_layer(file, &out->hyper, error)
                             : model_hyper_read(file, &out->hyper, error);
    if (status != ST_OK)
        return status;
    const struct model_hyper *hyper = &out->hyper;
    if (compute_kv_fixed(dtype) && hyper->head_dim % 2 != 0)
        return error_set(error, ST_UNSUPPORTED,
                         "kv/dtype = \"%s\" needs heads of an even size, this model's have %u",
                         config_kv_dtype(config), hyper->head_dim);
    out->context_tokens =
        context_tokens < hyper->context_tokens ? context_tokens : hyper->context_tokens;
    out->block_bytes = (uint64_t)hyper->layer_count *
                       compute_kv_block_bytes(config->kv.block_tokens, hyper->kv_head_count,
                                              hyper->head_dim, dtype);
    return ST_OK;
}

enum status draft_shape_read(const struct config *config, struct model_file *target,
                             uint32_t context_tokens, enum compute_kv_dtype dtype,
                             struct draft_shape *out, struct error *error)
{
    struct model_file *file = NULL;
    enum status status = draft_shape_file_open(config, target, &file, error);
    if (status != ST_OK)
        return status;
    status = sizes_read(config, file, context_tokens, dtype, out, error);
    if (status != ST_OK)
        error_prefix(error, "%s", config_draft_key(config));
    model_file_close(file);
    return status;
}

struct kv_arena draft_shape_arena(const struct draft_shape *shape, uint32_t block_tokens,
                                  uint32_t block_count)
{
    const uint64_t bytes = shape->block_bytes / shape->hyper.layer_count;
    return (struct kv_arena){
        .layer_count = shape->hyper.layer_count,
        .head_count = shape->hyper.kv_head_count,
        .head_total = shape->hyper.kv_head_count,
        .block_count = block_count,
        .block_tokens = block_tokens,
        .block_bytes = bytes,
        .layer_stride_bytes = block_count * bytes,
    };
}
