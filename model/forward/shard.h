/* shard: computes which slice of every layer a rank has (tensor parallelism; Shoeybi et al. 2019,
 * Megatron-LM, section 3): some heads of q, k and v with their columns of the attention's output
 * matrix, some rows of gate and up with their columns of down, some whole experts, and some rows of
 * the vocabulary. machine/executor/stage_plan.c and model/forward/ call model_shard_of;
 * machine/executor/ and model/forward/ read the result. Any thread; no state. It loads no weights
 * and knows no device. */
#ifndef MODEL_FORWARD_SHARD_H
#define MODEL_FORWARD_SHARD_H

#include "common/status.h"

#include <stdbool.h>
#include <stdint.h>

struct model_hyper;

/* Most ranks that can compute one stage together. */
#define MODEL_RANKS_MAX 16

/* One rank's slice of every layer. If a count does not divide evenly, the first ranks have more. */
struct model_shard {
    uint32_t rank, rank_count; /* Rank 0 of 1 has the whole layer. */
    /* With latent attention, every rank has the only KV head, because all heads read it. */
    uint32_t kv_head_first, kv_head_count;
    uint32_t head_first, head_count; /* Query heads that read these KV heads. */
    /* Elements of the feed-forward of layers without experts. The range starts at a multiple of the
     * weights' quantisation block. */
    uint32_t ffn_first, ffn_count;
    uint32_t shared_ffn_first, shared_ffn_count; /* The same for the shared experts; 0, 0 = none. */
    uint32_t expert_first, expert_count;         /* Whole routed experts. */
    uint32_t vocab_first, vocab_count;
};

/* Computes the slice of `rank` (0 to rank_count - 1). rank_count 0 counts as 1: rank 0 has whole
 * layers. Returns ST_INVALID if the rank is out of range or rank_count is above MODEL_RANKS_MAX, or
 * if a rank would have no part of something that the model has: if there are more ranks than KV
 * heads (with latent attention, than heads), than blocks of a feed-forward, than experts, or than
 * tokens in the vocabulary. */
enum status model_shard_of(const struct model_hyper *hyper, uint32_t rank, uint32_t rank_count,
                           struct model_shard *out, struct error *error);

/* Returns true if the slice is the whole layer. */
static inline bool model_shard_is_whole(const struct model_shard *shard)
{
    return shard->rank_count <= 1;
}

#endif
