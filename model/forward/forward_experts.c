/* forward_experts: the feed-forward of a layer with experts, for the rows of one slab. With
 * several ranks, each rank adds the experts that it has and its slice of the shared experts, and
 * the sum over the ranks is made as for a dense layer. */
#include "model/forward/forward_state.h"

/* target (+)= the shared experts of the rows. */
static void shared_add(struct forward *f, struct forward_lane *lane,
                       const struct model_layer_experts *e, uint32_t row_count, bool add,
                       float *target)
{
    const struct compute_ops *ops = f->m->ops;
    const uint32_t ffn = f->m->shard.shared_ffn_count;
    struct compute *c = lane->compute;
    const struct compute_matrix *const matrices[] = {e->shared_gate, e->shared_up};
    const struct compute_matrix *const down[] = {e->shared_down};
    float *const results[] = {lane->gate, lane->up};
    ops->matmul(c, matrices, NULL, 2, lane->hidden, row_count, results);
    if (e->shared_router != NULL)
        ops->experts->row_gate(c, f->shared_product, row_count, ffn, lane->up);
    ops->gate_mul(c, f->m->hyper.activation, lane->gate, lane->up, row_count, ffn, lane->shared);
    if (add)
        ops->matmul_add(c, e->shared_down, lane->shared, row_count, target);
    else
        ops->matmul(c, down, NULL, 1, lane->shared, row_count, &target);
}

void forward_lane_experts(struct forward *f, struct forward_lane *lane,
                          const struct model_layer *layer, uint32_t row_count, float *branch,
                          float *x)
{
    const struct model_hyper *h = &f->m->hyper;
    const struct model_layer_experts *e = &layer->experts;
    const struct compute_ops *ops = f->m->ops;
    struct compute *c = lane->compute;
    const struct compute_matrix *const routers[] = {e->router, e->shared_router};
    const float *const biases[] = {e->router_bias, NULL};
    float *const products[] = {f->router_product, f->shared_product};
    float *target = branch != NULL ? branch : x;
    bool add = branch == NULL;
    ops->norm(c, x, NULL, row_count, h->hidden, layer->ffn_norm, h->norm_epsilon, lane->hidden);
    ops->matmul(c, routers, biases, e->shared_router != NULL ? 2 : 1, lane->hidden, row_count,
                products);
    if (e->shared_gate != NULL) {
        shared_add(f, lane, e, row_count, add, target);
        add = true;
    }
    ops->experts->run(c, e->routed, lane->experts_workspace, f->router_product, lane->hidden,
                      row_count, add, target);
    if (branch != NULL)
        forward_branch_add(f, c, row_count, layer->ffn_post_norm, branch, x);
}
