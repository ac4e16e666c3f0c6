/* message_tier: copies the fields of one tier (kvcache/tiers/) into and out of struct
 * message_stats. Machines store the fields, and gateways read the fields. Any thread may call the
 * functions, which keep no state, count nothing and send nothing. */
#ifndef TRANSPORT_MESSAGE_TIER_H
#define TRANSPORT_MESSAGE_TIER_H

#include "common/tier_kind.h"
#include "transport/message.h"

#include <stddef.h>
#include <string.h>

/* State of a tier. NONE: the machine has no tier of this kind. BROKEN: the tier cannot be used now:
 * it is not open yet, it cannot be reached, or it is off. WORKS: the tier is used. */
enum message_tier_state { MESSAGE_TIER_NONE, MESSAGE_TIER_BROKEN, MESSAGE_TIER_WORKS };

/* The state of a tier, then its counters and gauges, which TIER_COUNTERS of common/counters.h
 * describes. struct message_stats has these fields in this order for each kind of tier. */
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

/* Returns the offset in struct message_stats of the first field of the tier of this kind. */
static inline size_t message_stats_tier_at(enum tier_kind kind)
{
#define MESSAGE_TIER_AT(KIND, kind) offsetof(struct message_stats, tier_##kind##_state),
    static const size_t at[] = {TIER_KINDS(MESSAGE_TIER_AT)};
#undef MESSAGE_TIER_AT
    return at[kind];
}

/* Returns the fields of the tier of this kind from `stats`. */
static inline struct message_tier message_stats_tier(const struct message_stats *stats,
                                                     enum tier_kind kind)
{
    struct message_tier tier;
    memcpy(&tier, (const char *)stats + message_stats_tier_at(kind), sizeof(tier));
    return tier;
}

/* Replaces the fields of the tier of this kind in `stats`. */
static inline void message_stats_tier_set(struct message_stats *stats, enum tier_kind kind,
                                          const struct message_tier *tier)
{
    memcpy((char *)stats + message_stats_tier_at(kind), tier, sizeof(*tier));
}

#endif
