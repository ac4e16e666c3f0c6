/* hyper_experts: reads how a model's layers use experts. See hyper.h and hyper_internal.h. */
#include "model/file/hyper_internal.h"

#include "compute/experts.h"

#include <inttypes.h>

#define EXPERT_FFN_MAX 65536

/* A number of expert_gating_func in GGUF files. */
#define GGUF_SOFTMAX 1
#define GGUF_SIGMOID 2

static enum status refuse_dense(const struct hyper_reader *r, const struct model_hyper *h)
{
    return error_set(r->error, ST_UNSUPPORTED,
                     "key %s is %" PRIu32 ", models of %s with experts are not supported",
                     hyper_key_name(r, KEY_EXPERTS).text, h->experts.count, h->architecture);
}

/* Reads how the router's product becomes weights. */
static enum status read_gating(const struct hyper_reader *r, struct model_experts *e)
{
    struct mapped_text text;
    if (!model_file_is_folder(r->file)) {
        uint32_t number = GGUF_SOFTMAX;
        enum status status =
            hyper_read_u32_range(r, KEY_EXPERTS_GATING, false, GGUF_SOFTMAX, GGUF_SIGMOID, &number);
        e->sigmoid = number == GGUF_SIGMOID;
        return status;
    }
    enum status status = key_text(r->file, KEY_EXPERTS_GATING, &text, r->error);
    if (status == ST_NOT_FOUND)
        return ST_OK;
    e->sigmoid = status == ST_OK && mapped_text_equals(text, "sigmoid");
    if (status == ST_OK && !e->sigmoid && !mapped_text_equals(text, "softmax"))
        return hyper_refuse_text(r, KEY_EXPERTS_GATING, text, "are \"softmax\" and \"sigmoid\"");
    return status;
}

/* Reads the groups of experts. DeepSeek-V2 scores a group by its best expert, DeepSeek-V3 by its
 * two best. */
static enum status read_groups(const struct hyper_reader *r, struct model_experts *e)
{
    struct mapped_text text;
    enum status status = key_text(r->file, KEY_EXPERTS_METHOD, &text, r->error);
    if (status == ST_OK && mapped_text_equals(text, "greedy"))
        return ST_OK; /* The files give groups all the same. */
    if (status == ST_OK && !mapped_text_equals(text, "group_limited_greedy") &&
        !mapped_text_equals(text, "noaux_tc"))
        return hyper_refuse_text(r, KEY_EXPERTS_METHOD, text,
                                 "are \"greedy\", \"group_limited_greedy\" and \"noaux_tc\"");
    if (status != ST_OK && status != ST_NOT_FOUND)
        return status;
    e->groups = e->groups_used = 1;
    e->group_best = e->sigmoid ? 2 : 1;
    status = hyper_read_u32_range(r, KEY_EXPERT_GROUPS, false, 1, e->count, &e->groups);
    if (status == ST_OK)
        status =
            hyper_read_u32_range(r, KEY_EXPERT_GROUPS_USED, false, 1, e->groups, &e->groups_used);
    if (status != ST_OK ||
        (e->count % e->groups == 0 && e->used <= e->count / e->groups * e->groups_used))
        return status;
    return error_set(r->error, ST_INVALID,
                     "key %s is %" PRIu32 ": want equal groups of the %" PRIu32
                     " experts, of which %" PRIu32 " have the %" PRIu32 " experts of a row",
                     hyper_key_name(r, KEY_EXPERT_GROUPS).text, e->groups, e->count, e->groups_used,
                     e->used);
}

static enum status read_ffn(const struct hyper_reader *r, const struct model_hyper *h,
                            struct model_experts *e)
{
    uint32_t shared = 0;
    e->ffn = h->ffn; /* Mixtral gives only this length. */
    enum status status = hyper_read_u32_range(r, KEY_EXPERT_FFN, false, 1, EXPERT_FFN_MAX, &e->ffn);
    if (status == ST_OK && e->ffn > EXPERT_FFN_MAX)
        return error_set(r->error, ST_INVALID, "key %s is %" PRIu32 ", want 1 to %d for experts",
                         hyper_key_name(r, KEY_FFN).text, e->ffn, EXPERT_FFN_MAX);
    if (status == ST_OK)
        status = hyper_read_u32_range(r, KEY_EXPERTS_SHARED, false, 0, 64, &shared);
    e->shared_ffn = shared * e->ffn;
    if (status == ST_OK)
        status =
            hyper_read_u32_range(r, KEY_SHARED_FFN, false, 0, 64 * EXPERT_FFN_MAX, &e->shared_ffn);
    return status;
}

enum status hyper_read_experts(const struct hyper_reader *r, bool experts_allowed,
                               struct model_hyper *h)
{
    struct model_experts e = h->experts;
    e.scale = 1;
    enum status status =
        hyper_read_u32_range(r, KEY_EXPERTS, false, 0, COMPUTE_EXPERTS_MAX, &e.count);
    h->experts = e;
    if (status != ST_OK || e.count == 0)
        return status;
    if (!experts_allowed)
        return refuse_dense(r, h);
    status = hyper_read_u32_range(
        r, KEY_EXPERTS_USED, true, 1,
        e.count < COMPUTE_EXPERTS_USED_MAX ? e.count : COMPUTE_EXPERTS_USED_MAX, &e.used);
    if (status == ST_OK)
        status = read_ffn(r, h, &e);
    if (status == ST_OK)
        status = hyper_read_f32_positive(r, KEY_EXPERTS_SCALE, false, &e.scale);
    if (status == ST_OK) {
        status = key_bool(r->file, KEY_EXPERTS_NORM, &e.normalise, r->error);
        status = status == ST_NOT_FOUND ? ST_OK : status;
    }
    if (status == ST_OK && e.limit > 0)
        status = hyper_read_f32_positive(r, KEY_GATE_LIMIT, false, &e.limit);
    if (status == ST_OK && e.limit > 0)
        status = hyper_read_f32_positive(r, KEY_GATE_ALPHA, false, &e.alpha);
    if (status == ST_OK)
        status = read_gating(r, &e);
    if (status == ST_OK)
        status = read_groups(r, &e);
    e.shared_block = hyper_block_elements(r->file, ROLE_SHARED_DOWN, 0, h->layer_count);
    if (status == ST_OK)
        h->experts = e;
    return status;
}
