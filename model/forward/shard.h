/* shard: computes which slice of every layer a rank has (tensor parallelism; Shoeybi et al. 2019,
 * Megatron-LM, section 3). A slice has some heads of q, k and v, with their columns of attention's
 * output matrix; some rows of gate and up, with their columns of down; some whole experts; and some
 * rows of the embedding and of the vocabulary matrix. machine/executor/stage_plan.c, model.c and
 * forward_group.c call model_shard_compute; machine/executor/ and model/forward/ read the result.
 * It has no state, and any thread may call it. It loads no weights and knows no device. */
#ifndef MODEL_FORWARD_SHARD_H
#define MODEL_FORWARD_SHARD_H

#include "common/status.h"

#include <stdbool.h>
#include <stdint.h>

struct model_hyper;

/* Most ranks that can compute one stage together. */
#define MODEL_RANKS_MAX 16

/* One rank's slice of every layer. Each pair …_first, …_count is the range that begins at …_first
 * and has …_count items. If a number does not divide evenly, the first ranks have more items. */
struct model_shard {
    uint32_t rank, rank_count; /* Rank 0 of 1 has whole layers. */
    /* KV heads. With latent attention, every rank has the only KV head, because all heads read
     * it. */
    uint32_t kv_head_first, kv_head_count;
    /* Query heads: those that read the KV heads of the slice. With latent attention, the query
     * heads are divided among the ranks. */
    uint32_t head_first, head_count;
    /* Rows of gate and up in layers without experts. ffn_first is a multiple of
     * model_hyper.ffn_block. */
    uint32_t ffn_first, ffn_count;
    /* Rows of gate and up of the shared experts; 0, 0 = the model has no shared experts.
     * shared_ffn_first is a multiple of model_experts.shared_block. */
    uint32_t shared_ffn_first, shared_ffn_count;
    uint32_t expert_first, expert_count; /* Whole routed experts. */
    uint32_t vocab_first, vocab_count;   /* Rows of the embedding and of the vocabulary matrix. */
};

/* Computes the slice of rank `rank`, from 0 to rank_count - 1. With rank 0, rank_count 0 counts as
 * 1. Returns ST_INVALID if `rank` is out of range, if rank_count is above MODEL_RANKS_MAX, or if
 * there are more ranks than KV heads (with latent attention, than query heads), than quantisation
 * blocks in a row of down, than experts, or than tokens in the vocabulary. */
enum status model_shard_compute(const struct model_hyper *hyper, uint32_t rank, uint32_t rank_count,
                                struct model_shard *out, struct error *error);

/* Returns true if the stage has one rank, whose slice is the whole layer. */
static inline bool model_shard_is_whole(const struct model_shard *shard)
{
    return shard->rank_count <= 1;
}

#endif
