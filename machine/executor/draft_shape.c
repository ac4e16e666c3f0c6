/* draft_shape: see the header. */
#include "machine/executor/draft_shape.h"

#include "model/file/model_file.h"
#include "model/file/vocabulary.h"

#include <stdio.h>
#include <string.h>

/* Vocabularies may differ by this number of tokens at their ends, which are padding. */
#define PADDING_TOKENS_MAX 1024

bool draft_shape_wanted(const struct config *config, const struct config_machine *entry,
                        uint32_t stage_processes)
{
    return config->scheduler.draft_model[0] != 0 && config->scheduler.speculative_tokens > 0 &&
           entry->pool != POOL_PROMPT && stage_processes == 0;
}

enum status draft_file_open(const struct config *config, struct model_file **out,
                            struct error *error)
{
    char path[LIMIT_PATH_BYTES];
    enum status status = config_draft_model_path(config, path, error);
    if (status != ST_OK)
        return status;
    status = model_file_open(path, out, error);
    if (status != ST_OK)
        error_prefix(error, "scheduler/draft_model");
    return status;
}

static bool texts_equal(const struct mapped_text *a, const struct mapped_text *b)
{
    return a->bytes == b->bytes && memcmp(a->text, b->text, a->bytes) == 0;
}

/* Drafts are token ids, so both models must give each id to the same token. */
static enum status vocabularies_compare(struct model_file *target, struct model_file *draft,
                                        struct error *error)
{
    const struct vocabulary *own, *other;
    enum status status = model_file_vocabulary(target, &own, error);
    if (status == ST_OK)
        status = model_file_vocabulary(draft, &other, error);
    if (status != ST_OK)
        return status;
    const uint32_t fewer = own->count < other->count ? own->count : other->count;
    const uint32_t more = own->count < other->count ? other->count : own->count;
    if (more - fewer > PADDING_TOKENS_MAX)
        return error_set(error, ST_INVALID,
                         "its vocabulary has %u tokens, that of the model has %u: the draft model "
                         "must have the model's vocabulary",
                         other->count, own->count);
    for (uint32_t id = 0; id < fewer; id++)
        if (!texts_equal(&own->tokens[id], &other->tokens[id]))
            return error_set(error, ST_INVALID,
                             "its token %u is \"%.*s\", that of the model is \"%.*s\": the draft "
                             "model must have the model's vocabulary",
                             id, (int)(other->tokens[id].bytes < 40 ? other->tokens[id].bytes : 40),
                             other->tokens[id].text,
                             (int)(own->tokens[id].bytes < 40 ? own->tokens[id].bytes : 40),
                             own->tokens[id].text);
    return ST_OK;
}

static enum status sizes_read(const struct config *config, const struct model_file *file,
                              uint32_t context_tokens, enum compute_kv_dtype dtype,
                              struct draft_shape *out, struct error *error)
{
    enum status status = model_hyper_read(file, &out->hyper, error);
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
    enum status status = draft_file_open(config, &file, error);
    if (status != ST_OK)
        return status;
    status = vocabularies_compare(target, file, error);
    if (status == ST_OK)
        status = sizes_read(config, file, context_tokens, dtype, out, error);
    if (status != ST_OK)
        error_prefix(error, "scheduler/draft_model");
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
