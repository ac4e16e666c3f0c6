/* engine_bound: see the header. */
#include "bench/engine_bound.h"

#include <math.h>

/* Share of the weights' bytes that a pass over `rows` rows reads: of the routed experts only those
 * that a row chooses, if each row chooses any of them with the same probability. */
static double weights_read(const struct model_hyper *h, double layer_weights, double rows)
{
    const struct model_experts *e = &h->experts;
    if (e->count == 0)
        return 1;
    const double used = e->used, each = 3.0 * h->hidden * e->ffn, experts = each * e->count;
    const double others =
        layer_weights - each * used + (double)h->hidden * h->vocab / h->layer_count;
    const double chosen = 1 - pow(1 - used / e->count, rows);
    return (others + experts * chosen) / (others + experts);
}

struct engine_bound engine_bound_of(const struct model_hyper *h, size_t weight_bytes,
                                    const struct roofline *roofline, const struct engine_case *c)
{
    bool prompt = c->prompt_tokens > 0;
    double rows = prompt ? c->prompt_tokens : c->streams, sampled = prompt ? 1 : c->streams;
    /* Mean number of tokens in the context of a row, with the row itself: over all rows, and over
     * the sampled rows. */
    double context = prompt ? (rows + 1) / 2 : c->depth_tokens + (ENGINE_DECODE_STEPS + 1) / 2.0;
    double sampled_context = prompt ? rows : context;
    double cached = prompt ? 0 : rows * (context - 1);

    double q = (double)h->head_count * h->head_dim, kv = (double)h->kv_head_count * h->head_dim;
    double kv_weights = 2.0 * h->hidden * kv;
    double layer_weights = 2.0 * h->hidden * q + kv_weights +
                           3.0 * h->hidden * model_ffn_rows_used(h) +
                           (double)h->hidden * h->experts.count;
    double full_layers = h->layer_count - 1.0; /* Without the last layer. */

    double matrices = 2 * (rows * full_layers * layer_weights + rows * kv_weights +
                           sampled * (layer_weights - kv_weights) + sampled * h->hidden * h->vocab);
    double attention = 4 * q * (rows * full_layers * context + sampled * sampled_context);
    /* K and V of one token, as i16. */
    double token_bytes = h->layer_count * (2 * kv * 2 + 4.0 * h->kv_head_count);
    double weights = (double)weight_bytes * weights_read(h, layer_weights, rows),
           cache = (cached + rows) * token_bytes;

    const double *rates = roofline->rates;
    struct engine_bound bound = {0};
    if (rates[ROOFLINE_INT8] == 0 || rates[ENGINE_BOUND_ATTENTION] == 0)
        return bound;
    double matrices_s = matrices / rates[ROOFLINE_INT8];
    double arithmetic_s = matrices_s + attention / rates[ENGINE_BOUND_ATTENTION];
    double memory_s = (weights + cache) / rates[ROOFLINE_MEMORY];
    bound.memory_bound = memory_s > arithmetic_s;
    bound.weights_share =
        bound.memory_bound ? weights / (weights + cache) : matrices_s / arithmetic_s;
    bound.tokens_a_second = rows / (bound.memory_bound ? memory_s : arithmetic_s);
    return bound;
}
