/* layer_groups: which layers of a model share block tables, and how many KV blocks a request needs.
 * Layer l belongs to layer group l % count. All layers of a group read the same tokens: either all
 * earlier tokens, or only the tokens of an attention window. A request has one block table for each
 * group. The blocks of all groups come from one block pool. A block holds `block_tokens` tokens of
 * each layer of its group.
 *
 * Any folder may call the functions, on any thread; they keep no state. They handle no block ids
 * (kvcache/kv_tables.h does).
 *
 * Span i of a request is its tokens [i * block_tokens, (i + 1) * block_tokens). A group without a
 * window has a block for each span. A group with a window keeps blocks only for the latest `keep`
 * spans: span i takes over the block of span i - keep, whose tokens no later token reads. */
#ifndef COMMON_LAYER_GROUPS_H
#define COMMON_LAYER_GROUPS_H

#include <stdbool.h>
#include <stdint.h>

#define LAYER_GROUPS_MAX 16 /* Most groups of a model. */

/* Kinds of layers, by the KV that a layer keeps. */
enum layer_kind {
    LAYER_FULL,   /* K and V of all tokens. */
    LAYER_WINDOW, /* K and V of the tokens of an attention window. */
    LAYER_LATENT, /* One latent vector for each token (compute/kv.h). */
    LAYER_KIND_COUNT
};

/* Returns a lower-case name, such as "full". */
const char *layer_kind_name(enum layer_kind kind);

/* All zeros = one group without a window: every layer reads all tokens. */
struct layer_groups {
    uint32_t count;    /* Number of groups, up to LAYER_GROUPS_MAX; 0 = one group. */
    uint32_t windowed; /* Bit g: the layers of group g have a window. */
    /* Tokens of the window, including the token that reads the window; 0 = no window. */
    uint32_t window_tokens;
    bool latent; /* Groups without a window keep latent vectors. */
};

static inline uint32_t layer_groups_count(const struct layer_groups *groups)
{
    return groups->count > 0 ? groups->count : 1;
}

/* Returns the group of layer `layer` of the model. */
static inline uint32_t layer_groups_group_of(const struct layer_groups *groups, uint32_t layer)
{
    return layer % layer_groups_count(groups);
}

static inline bool layer_groups_windowed(const struct layer_groups *groups, uint32_t group)
{
    return (groups->windowed >> group & 1) != 0;
}

static inline enum layer_kind layer_groups_kind(const struct layer_groups *groups, uint32_t group)
{
    return layer_groups_windowed(groups, group) ? LAYER_WINDOW
           : groups->latent                     ? LAYER_LATENT
                                                : LAYER_FULL;
}

/* Returns the kinds that the groups have: bit K is set for enum layer_kind K. */
uint32_t layer_groups_kinds(const struct layer_groups *groups);

/* Returns the number of layer rows in the KV memory of the layers [first_layer, end_layer). A layer
 * row has up to one layer of each group: the layers l with equal l / count (rounded down). A block
 * has room in every layer row; the room in a row without a layer of the block's group stays unused.
 * Requires first_layer < end_layer. */
static inline uint32_t layer_groups_layer_rows(const struct layer_groups *groups,
                                               uint32_t first_layer, uint32_t end_layer)
{
    const uint32_t count = layer_groups_count(groups);
    return (end_layer - 1) / count - first_layer / count + 1;
}

/* Returns the number of spans that hold `tokens` tokens. */
static inline uint32_t layer_groups_spans(uint32_t tokens, uint32_t block_tokens)
{
    return tokens / block_tokens + (tokens % block_tokens != 0);
}

/* Returns the number of latest spans for which a group with a window keeps blocks, if at most
 * chunk_tokens (>= 1) tokens of a request are computed at once. UINT32_MAX = no group has a
 * window. */
uint32_t layer_groups_spans_kept(const struct layer_groups *groups, uint32_t block_tokens,
                                 uint32_t chunk_tokens);

/* Returns the number of blocks that a request with `spans` spans has in all groups. `keep` is the
 * result of layer_groups_spans_kept. */
uint32_t layer_groups_blocks(const struct layer_groups *groups, uint32_t spans, uint32_t keep);

/* Returns the KV memory of a request with `tokens` tokens. The unit is the memory of one token in
 * all layers. Without windows, the result is `tokens`; with windows, the memory of the request's
 * blocks, rounded up. `keep` is the result of layer_groups_spans_kept. */
uint64_t layer_groups_kv_tokens(const struct layer_groups *groups, uint32_t block_tokens,
                                uint64_t tokens, uint32_t keep);

/* Returns the number of blocks, in all groups, that a request with `spans` spans must take from the
 * block pool. The request takes none for the spans that a prefix cache holds: the first `held`
 * spans in groups without a window, the first `window_held` spans in groups with a window. `keep`
 * is the result of layer_groups_spans_kept. */
uint32_t layer_groups_blocks_to_take(const struct layer_groups *groups, uint32_t spans,
                                     uint32_t held, uint32_t window_held, uint32_t keep);

/* Returns the largest `spans` for which layer_groups_blocks returns at most `blocks`; UINT32_MAX =
 * no bound, because every group has a window. */
uint32_t layer_groups_spans_max(const struct layer_groups *groups, uint32_t blocks, uint32_t keep);

/* Returns the first span that the token at `position` (from 0) reads in a group with a window; 0 if
 * no group has a window. */
uint32_t layer_groups_window_first(const struct layer_groups *groups, uint32_t block_tokens,
                                   uint32_t position);

/* Returns the first span that is still needed in groups with a window after a prompt of
 * prompt_tokens tokens has been computed; 0 if no group has a window. The result is the first span
 * that the token after the prompt's last full span reads, because a machine that takes the answer
 * over computes the prompt again from this token on. */
static inline uint32_t layer_groups_answer_first(const struct layer_groups *groups,
                                                 uint32_t block_tokens, uint32_t prompt_tokens)
{
    return layer_groups_window_first(groups, block_tokens,
                                     prompt_tokens - prompt_tokens % block_tokens);
}

/* Returns the number of blocks, in all groups, of the spans [first, end) in groups without a window
 * and of the spans [window_first, end) in groups with a window. */
uint32_t layer_groups_blocks_between(const struct layer_groups *groups, uint32_t first,
                                     uint32_t end, uint32_t window_first);

#endif
