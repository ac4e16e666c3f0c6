/* shard: see shard.h. */
#include "model/forward/shard.h"

#include "model/forward/model.h"

#include <inttypes.h>

/* A slice of the feed-forward is a multiple of this, if every rank then gets a part: activations
 * are quantised in blocks of 32, and products on GPUs read 32 elements at once. */
#define FFN_UNIT 32
/* A slice of the vocabulary is a multiple of this; only the last rank's slice may end anywhere. */
#define VOCAB_UNIT 64

struct share {
    uint32_t first, count;
};

/* Divides `count` items in units of `unit`, of which the last may be smaller, among the ranks. */
static struct share share_of(uint32_t count, uint32_t unit, uint32_t rank, uint32_t ranks)
{
    const uint32_t units = (count + unit - 1) / unit;
    const uint32_t each = units / ranks, more = units % ranks;
    const uint32_t first = (rank * each + (rank < more ? rank : more)) * unit;
    const uint32_t all = (each + (rank < more)) * unit;
    return (struct share){first, all < count - first ? all : count - first};
}

/* Returns the unit in which a feed-forward with such quantisation blocks is divided; 0 = no unit
 * gives every rank a part. */
static uint32_t ffn_unit(uint32_t ffn, uint32_t ffn_block, uint32_t ranks)
{
    const uint32_t block = ffn_block > 1 ? ffn_block : 1;
    if (block < FFN_UNIT && ffn % FFN_UNIT == 0 && ffn / FFN_UNIT >= ranks)
        return FFN_UNIT;
    return ffn / block >= ranks ? block : 0;
}

static struct share ffn_share(uint32_t ffn, uint32_t ffn_block, uint32_t rank, uint32_t ranks)
{
    if (ffn == 0 || ranks == 1)
        return (struct share){0, ffn};
    return share_of(ffn, ffn_unit(ffn, ffn_block, ranks), rank, ranks);
}

static enum status check_ffn(const char *what, uint32_t ffn, uint32_t ffn_block, uint32_t ranks,
                             struct error *error)
{
    if (ffn == 0 || ffn_unit(ffn, ffn_block, ranks) != 0)
        return ST_OK;
    return error_set(error, ST_INVALID,
                     "tensor parallelism of %" PRIu32 " ranks: the model's %s of %" PRIu32
                     " in blocks of %" PRIu32 " has no piece for each",
                     ranks, what, ffn, ffn_block);
}

static enum status check_experts(const struct model_experts *e, uint32_t ranks, struct error *error)
{
    if (e->count == 0 || ranks <= e->count)
        return check_ffn("shared experts' feed-forward", e->shared_ffn, e->shared_block, ranks,
                         error);
    return error_set(error, ST_INVALID,
                     "tensor parallelism of %" PRIu32 " ranks: the model has %" PRIu32
                     " experts in a layer, want up to as many ranks",
                     ranks, e->count);
}

static enum status check(const struct model_hyper *hyper, uint32_t rank, uint32_t ranks,
                         struct error *error)
{
    if (rank >= ranks || ranks > MODEL_RANKS_MAX)
        return error_set(error, ST_INVALID,
                         "rank %" PRIu32 " of %" PRIu32 ", want 0 and more below as many ranks, "
                         "up to %d of them",
                         rank, ranks, MODEL_RANKS_MAX);
    const bool latent = hyper->latent.rank != 0;
    const uint32_t heads = latent ? hyper->head_count : hyper->kv_head_count;
    if (ranks > heads)
        return error_set(error, ST_INVALID,
                         "tensor parallelism of %" PRIu32 " ranks: the model has %" PRIu32
                         " %sheads, want up to as many ranks",
                         ranks, heads, latent ? "" : "KV ");
    if (ranks > hyper->vocab)
        return error_set(error, ST_INVALID,
                         "tensor parallelism of %" PRIu32 " ranks: the model has %" PRIu32
                         " tokens, want up to as many ranks",
                         ranks, hyper->vocab);
    enum status status = check_ffn("feed-forward", hyper->ffn, hyper->ffn_block, ranks, error);
    return status == ST_OK ? check_experts(&hyper->experts, ranks, error) : status;
}

enum status model_shard_compute(const struct model_hyper *hyper, uint32_t rank, uint32_t rank_count,
                                struct model_shard *out, struct error *error)
{
    const uint32_t ranks = rank_count == 0 && rank == 0 ? 1 : rank_count;
    if (ranks != 1 || rank != 0) {
        enum status status = check(hyper, rank, ranks, error);
        if (status != ST_OK)
            return status;
    }
    const bool latent = hyper->latent.rank != 0;
    const uint32_t group = latent ? 1 : hyper->head_count / hyper->kv_head_count;
    const uint32_t vocab_unit = hyper->vocab / VOCAB_UNIT >= ranks ? VOCAB_UNIT : 1;
    const struct share heads = share_of(hyper->head_count / group, 1, rank, ranks);
    const struct model_experts *e = &hyper->experts;
    const struct share ffn = ffn_share(hyper->ffn, hyper->ffn_block, rank, ranks);
    const struct share shared = ffn_share(e->shared_ffn, e->shared_block, rank, ranks);
    const struct share experts = share_of(e->count, 1, rank, ranks);
    const struct share vocab = share_of(hyper->vocab, vocab_unit, rank, ranks);
    *out = (struct model_shard){
        .rank = rank,
        .rank_count = ranks,
        .kv_head_first = latent ? 0 : heads.first,
        .kv_head_count = latent ? hyper->kv_head_count : heads.count,
        .head_first = heads.first * group,
        .head_count = heads.count * group,
        .ffn_first = ffn.first,
        .ffn_count = ffn.count,
        .shared_ffn_first = shared.first,
        .shared_ffn_count = shared.count,
        .expert_first = experts.first,
        .expert_count = experts.count,
        .vocab_first = vocab.first,
        .vocab_count = vocab.count,
    };
    return ST_OK;
}
