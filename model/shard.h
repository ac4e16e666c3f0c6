/* shard: which part of every layer a rank of a group has (tensor parallelism; Shoeybi et al. 2019,
 * Megatron-LM, section 3): heads of q, k and v with their columns of the attention's output, rows
 * of gate and up with their columns of down, rows of the vocabulary. Arithmetic only: no weights,
 * no device. */
#ifndef MODEL_SHARD_H
#define MODEL_SHARD_H

#include "common/status.h"

#include <stdbool.h>
#include <stdint.h>

struct model_hyper;

/* The most ranks of a group. */
#define MODEL_RANKS_MAX 16

/* One rank's slice of every layer. Uneven where counts do not divide: earlier ranks have more. */
struct model_shard {
    uint32_t rank, ranks; /* 0 of 1: whole */
    uint32_t kv_head_first, kv_head_count;
    uint32_t head_first, head_count; /* those that read these KV heads */
    uint32_t ffn_first, ffn_count;   /* at multiples of the weights' blocks */
    uint32_t vocab_first, vocab_count;
};

/* The slice of `rank` of `ranks`; ranks 0 or 1 is the whole. No part is ever empty: ST_INVALID
 * names the value and the model's where there are more ranks than KV heads, or than blocks of the
 * feed-forward. */
enum status model_shard_of(const struct model_hyper *hyper, uint32_t rank, uint32_t ranks,
                           struct model_shard *out, struct error *error);

static inline bool model_shard_is_whole(const struct model_shard *shard)
{
    return shard->ranks <= 1;
}

#endif
