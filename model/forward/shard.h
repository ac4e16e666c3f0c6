/* shard: computes which slice of every layer a rank has (tensor parallelism; Shoeybi et al. 2019,
 * Megatron-LM, section 3): some heads of q, k and v with their columns of the attention's output
 * matrix, some rows of gate and up with their columns of down, some whole experts, and some rows of
 * the vocabulary. machine/executor/stage_plan.c and model/forward/ compute slices; the engine and
 * the forward pass read them. Any thread; no state. It loads no weights and knows no device. */
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
    uint32_t rank, ranks; /* Rank 0 of 1 has the whole layer. */
    /* With latent attention, every rank has the one KV head: all heads read it. */
    uint32_t kv_head_first, kv_head_count;
    uint32_t head_first, head_count; /* Query heads that read these KV heads. */
    /* The range starts at a multiple of the weights' quantisation block. */
    uint32_t ffn_first, ffn_count;
    uint32_t shared_first, shared_count; /* Of the shared experts' feed-forward. */
    uint32_t expert_first, expert_count; /* Whole routed experts. */
    uint32_t vocab_first, vocab_count;
};

/* Computes the slice of `rank` (0 to ranks - 1). Rank 0 of 0 or 1 has whole layers. Returns
 * ST_INVALID for a rank out of range, or if a range of some rank would be empty: there are more
 * ranks than KV heads (with latent attention, than heads), than blocks of the feed-forward, than
 * experts, or than tokens in the vocabulary. */
enum status model_shard_of(const struct model_hyper *hyper, uint32_t rank, uint32_t ranks,
                           struct model_shard *out, struct error *error);

/* Returns true if the slice is the whole layer. */
static inline bool model_shard_is_whole(const struct model_shard *shard)
{
    return shard->ranks <= 1;
}

#endif
