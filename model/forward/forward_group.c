/* forward_group: the sums over ranks and the gathering that join the slices of a model (tensor
 * parallelism; shard.h). A layer has two sums of rows × hidden: after the attention's output
 * matrix, whose columns are the rank's heads, and after down. Families that normalise all heads
 * of q or k as one vector have a third sum, of two numbers a row. The rest of a layer needs no
 * other rank. The embedding's rows are divided too: a rank that does not have a token's row adds
 * zeros. */
#include "model/forward/forward_state.h"

#include <stdlib.h>

enum status forward_group_open(struct forward *f, struct error *error)
{
    const struct model_shard *own = &f->m->shard;
    if (!forward_in_group(f))
        return ST_OK;
    for (uint32_t rank = 0; rank < own->rank_count; rank++) {
        struct model_shard other;
        enum status status =
            model_shard_compute(&f->m->hyper, rank, own->rank_count, &other, error);
        if (status != ST_OK)
            return status;
        f->vocab_counts[rank] = other.vocab_count;
    }
    f->slice_ids = calloc(f->rows_max, sizeof(*f->slice_ids));
    return f->slice_ids != NULL ? ST_OK : ST_NO_MEMORY;
}

const uint32_t *forward_group_ids(struct forward *f, const struct forward_batch *batch)
{
    /* Ids before the slice wrap around to very large numbers. */
    for (uint32_t i = 0; i < batch->batch.row_count; i++)
        f->slice_ids[i] = batch->token_ids[i] - f->m->shard.vocab_first;
    return f->slice_ids;
}

void forward_group_add(const struct forward *f, struct compute *c, uint32_t row_count,
                       const float *post_norm, float *y, float *x)
{
    const struct model_hyper *h = &f->m->hyper;
    const struct compute_ops *ops = f->m->ops;
    const size_t count = (size_t)row_count * h->hidden;
    if (post_norm == NULL && h->residual_scale == 1) {
        ops->group->sum_add(c, count, y, x);
        return;
    }
    ops->group->sum(c, count, y);
    if (post_norm == NULL)
        ops->scale_add(c, h->residual_scale, count, y, x);
    else
        ops->norm_add(c, y, row_count, h->hidden, post_norm, h->norm_epsilon, x);
}

void forward_group_qk_norm(const struct forward *f, struct compute *c, const struct model_layer *w,
                           uint32_t row_count, float *q, float *k)
{
    const struct model_hyper *h = &f->m->hyper;
    const struct model_shard *own = &f->m->shard;
    const struct compute_group_norm norms[] = {
        {w->q_norm, own->head_count * h->head_dim, h->head_count * h->head_dim, q},
        {w->k_norm, own->kv_head_count * h->head_dim, h->kv_head_count * h->head_dim, k},
    };
    f->m->ops->group->norm(c, norms, 2, h->norm_epsilon, row_count);
}

void forward_group_logits(const struct forward *f, struct compute *c, uint32_t row_count,
                          const float *part, float *logits)
{
    f->m->ops->group->gather(c, row_count, part, f->vocab_counts, logits);
}
