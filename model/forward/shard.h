/* shard: computes which slice of every layer a rank has (tensor parallelism; Shoeybi et al. 2019,
 * Megatron-LM, section 3). A slice has some heads of q, k and v, with their columns of attention's
 * output matrix; some rows of gate and up, with their columns of down; some whole experts; and some
 * rows of the embedding and of the vocabulary matrix. Machines plan stages with this part, and
 * model/forward/ loads slices. Any thread; no state. This part loads no weights and knows no
 * device. */
#ifndef MODEL_FORWARD_SHARD_H
#define MODEL_FORWARD_SHARD_H

#include "common/status.h"

#include <stdbool.h>
#include <stdint.h>

struct model_hyper;

#define MODEL_RANKS_MAX 16 /* Most ranks of a stage. */

/* One rank's slice of every layer. A pair …_first, …_count is the range that begins at …_first and
 * has …_count items. */
struct model_shard {
    uint32_t rank, rank_count; /* Rank 0 of 1 has whole layers. */
    /* KV heads. With latent attention, every rank has the only KV head. */
    uint32_t kv_head_first, kv_head_count;
    /* Query heads that read the KV heads of the slice. With latent attention, the ranks divide the
     * query heads among them. */
    uint32_t head_first, head_count;
    /* Rows of gate and up in layers without experts. The first row is a multiple of
     * model_hyper.ffn_block. */
    uint32_t ffn_first, ffn_count;
    /* Rows of gate and up of the shared experts; 0, 0 = none. The first row is a multiple of
     * model_experts.shared_block. */
    uint32_t shared_ffn_first, shared_ffn_count;
    uint32_t expert_first, expert_count; /* Whole routed experts. */
    uint32_t vocab_first, vocab_count;   /* Rows of the embedding and of the vocabulary matrix. */
};

/* Computes the slice of rank `rank`, from 0 to rank_count - 1. rank 0 with rank_count 0 = whole
 * layers. Returns ST_INVALID if `rank` is out of range, or if rank_count is above any of these:
 * MODEL_RANKS_MAX; the number of KV heads (with latent attention: of query heads), of quantisation
 * blocks in a row of a `down` matrix, of experts (if there are any), or of tokens in the
 * vocabulary. */
enum status model_shard_compute(const struct model_hyper *hyper, uint32_t rank, uint32_t rank_count,
                                struct model_shard *out, struct error *error);

/* Returns true if the stage has one rank, whose slice is the whole layer. */
static inline bool model_shard_is_whole(const struct model_shard *shard)
{
    return shard->rank_count <= 1;
}

#endif
