/* forward_latent: what latent attention does before and after attention itself. See
 * forward_state.h. */
#include "compute/latent.h"
#include "model/forward/forward_state.h"

void forward_latent_qkv(struct forward *f, struct forward_lane *lane,
                        const struct forward_layer *layer, struct compute_rope_table *rope,
                        const struct compute_batch *part, float *q)
{
    const struct model_hyper *h = &f->m->hyper;
    const struct model_latent *sizes = &h->latent;
    const struct compute_ops *ops = f->m->ops;
    struct compute *c = lane->compute;
    const struct model_latent_layer *w = &layer->weights->latent;
    const uint32_t heads = f->m->shard.head_count, rows = part->row_count;
    const struct compute_matrix *const first = w->q_a != NULL ? w->q_a : layer->weights->q;
    const struct compute_matrix *const matrices[] = {first, w->rotated_key, w->latent};
    float *const results[] = {lane->raw_queries, lane->rotated_keys, lane->v};
    ops->matmul(c, matrices, NULL, 3, lane->hidden, rows, results);
    if (w->q_a != NULL) {
        const struct compute_matrix *const second[] = {w->q_b};
        float *const raw[] = {lane->raw_queries};
        ops->norm(c, lane->raw_queries, NULL, rows, sizes->q_rank, w->q_norm, h->norm_epsilon,
                  lane->query_latent);
        ops->matmul(c, second, NULL, 1, lane->query_latent, rows, raw);
    }
    ops->latent->join(c, w->norm, h->norm_epsilon, rows, sizes->rotated, sizes->rank,
                      lane->rotated_keys, lane->v, lane->k);
    ops->latent->absorb(c, w->absorb, heads, sizes->rotated, rows, lane->raw_queries, q);
    ops->rope_store(c, rope, part, &layer->kv, heads, q, lane->k, NULL);
}

void forward_latent_output(struct forward *f, struct forward_lane *lane,
                           const struct forward_layer *layer, uint32_t row_count)
{
    f->m->ops->latent->expand(lane->compute, layer->weights->latent.expand, f->m->shard.head_count,
                              row_count, lane->value_latent, lane->heads);
}
