/* layer_groups: see the header. */
#include "common/layer_groups.h"

const char *layer_kind_name(enum layer_kind kind)
{
    static const char *const names[LAYER_KIND_COUNT] = {"full", "window", "latent"};
    return names[kind];
}

uint32_t layer_groups_kinds(const struct layer_groups *groups)
{
    uint32_t kinds = 0;
    for (uint32_t group = 0; group < layer_groups_count(groups); group++)
        kinds |= 1u << layer_groups_kind(groups, group);
    return kinds;
}

static uint32_t windowed_count(const struct layer_groups *groups)
{
    return (uint32_t)__builtin_popcount(groups->windowed);
}

/* Any run of n tokens lies in at most (n - 2) / block_tokens + 2 spans, rounded down. A chunk and
 * the window before its first token are window_tokens + chunk_tokens - 1 tokens. */
uint32_t layer_groups_spans_kept(const struct layer_groups *groups, uint32_t block_tokens,
                                 uint32_t chunk_tokens)
{
    if (groups->windowed == 0)
        return UINT32_MAX;
    const uint64_t tokens = (uint64_t)groups->window_tokens + chunk_tokens - 1;
    const uint64_t spans = tokens < 2 ? 1 : (tokens - 2) / block_tokens + 2;
    return spans < UINT32_MAX ? (uint32_t)spans : UINT32_MAX;
}

uint32_t layer_groups_blocks_to_take(const struct layer_groups *groups, uint32_t spans,
                                     uint32_t held, uint32_t window_held, uint32_t keep)
{
    const uint32_t windowed = windowed_count(groups);
    const uint32_t own = spans > window_held ? spans - window_held : 0;
    return (layer_groups_count(groups) - windowed) * (spans > held ? spans - held : 0) +
           windowed * (own < keep ? own : keep);
}

uint32_t layer_groups_blocks(const struct layer_groups *groups, uint32_t spans, uint32_t keep)
{
    return layer_groups_blocks_to_take(groups, spans, 0, 0, keep);
}

uint64_t layer_groups_kv_tokens(const struct layer_groups *groups, uint32_t block_tokens,
                                uint64_t tokens, uint32_t keep)
{
    const uint32_t count = layer_groups_count(groups);
    if (groups->windowed == 0)
        return tokens;
    const uint32_t spans =
        layer_groups_spans(tokens < UINT32_MAX ? (uint32_t)tokens : UINT32_MAX, block_tokens);
    const uint64_t slots = (uint64_t)layer_groups_blocks(groups, spans, keep) * block_tokens;
    return slots / count + (slots % count != 0);
}

uint32_t layer_groups_spans_max(const struct layer_groups *groups, uint32_t blocks, uint32_t keep)
{
    const uint32_t count = layer_groups_count(groups), full = count - windowed_count(groups);
    if (keep == UINT32_MAX || blocks / count < keep)
        return blocks / count;
    return full > 0 ? (blocks - (count - full) * keep) / full : UINT32_MAX;
}

uint32_t layer_groups_window_first(const struct layer_groups *groups, uint32_t block_tokens,
                                   uint32_t position)
{
    if (groups->windowed == 0 || position < groups->window_tokens)
        return 0;
    return (position - groups->window_tokens + 1) / block_tokens;
}

uint32_t layer_groups_blocks_between(const struct layer_groups *groups, uint32_t first,
                                     uint32_t end, uint32_t window_first)
{
    const uint32_t windowed = windowed_count(groups);
    return (layer_groups_count(groups) - windowed) * (first < end ? end - first : 0) +
           windowed * (window_first < end ? end - window_first : 0);
}
