/* message_tier: the fields of struct message_stats about one tier (kvcache/tiers/). machine/tiers.c
 * stores the fields; server/gateway/ and server/metrics/ read them. Any thread may call the
 * functions, which only copy: machine/ counts. */
#ifndef TRANSPORT_MESSAGE_TIER_H
#define TRANSPORT_MESSAGE_TIER_H

#include "common/tier_kind.h"
#include "transport/message.h"

#include <stddef.h>
#include <string.h>

/* Values of `state`: the machine has no such tier; the tier has failed and does not serve now; the
 * tier works. */
enum message_tier_state { MESSAGE_TIER_NONE, MESSAGE_TIER_BROKEN, MESSAGE_TIER_WORKS };

/* TIER_FIELDS of one tier, in the same order. */
struct message_tier {
    uint64_t state; /* enum message_tier_state */
#define MESSAGE_TIER_FIELD(name, kind, factor, family, help) uint64_t name;
    TIER_COUNTERS(MESSAGE_TIER_FIELD)
#undef MESSAGE_TIER_FIELD
};

#define MESSAGE_TIER_SAME(KIND, kind)                                                              \
    static_assert(offsetof(struct message_stats, tier_##kind##_least_tokens) -                     \
                          offsetof(struct message_stats, tier_##kind##_state) ==                   \
                      offsetof(struct message_tier, least_tokens),                                 \
                  "the fields of a tier follow each other");
TIER_KINDS(MESSAGE_TIER_SAME)
#undef MESSAGE_TIER_SAME

/* Returns the offset of the tier's fields. */
static inline size_t message_stats_tier_at(enum tier_kind kind)
{
#define MESSAGE_TIER_AT(KIND, kind) offsetof(struct message_stats, tier_##kind##_state),
    static const size_t at[] = {TIER_KINDS(MESSAGE_TIER_AT)};
#undef MESSAGE_TIER_AT
    return at[kind];
}

static inline struct message_tier message_stats_tier(const struct message_stats *stats,
                                                     enum tier_kind kind)
{
    struct message_tier tier;
    memcpy(&tier, (const char *)stats + message_stats_tier_at(kind), sizeof(tier));
    return tier;
}

static inline void message_stats_tier_set(struct message_stats *stats, enum tier_kind kind,
                                          const struct message_tier *tier)
{
    memcpy((char *)stats + message_stats_tier_at(kind), tier, sizeof(*tier));
}

#endif
