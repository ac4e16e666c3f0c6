/* tier_kind: the kinds of tiers. A tier is a store for KV below a machine's KV memory
 * (kvcache/tiers/). A machine has at most one tier of each kind. Any folder may call the functions,
 * on any thread; they keep no state. They open no tier. */
#ifndef COMMON_TIER_KIND_H
#define COMMON_TIER_KIND_H

#include "common/counters.h"
#include "common/pool.h"

#include <stdbool.h>

#define TIER_KIND_ENTRY(KIND, kind) TIER_KIND_##KIND,
/* In the order in which a machine asks its tiers for KV. */
enum tier_kind { TIER_KINDS(TIER_KIND_ENTRY) TIER_KIND_COUNT };
#undef TIER_KIND_ENTRY

/* Returns the name in logs, metrics and /admin/state, such as "file". */
static inline const char *tier_kind_name(enum tier_kind kind)
{
#define TIER_KIND_NAME(KIND, kind) #kind,
    static const char *const names[] = {TIER_KINDS(TIER_KIND_NAME)};
#undef TIER_KIND_NAME
    return names[kind];
}

/* Returns true if a machine whose home pool is `home` stores KV in its tier of this kind. Machines
 * of the token pool seldom compute prompts. They store KV only in TIER_KIND_STORE, which all
 * machines read. */
static inline bool tier_kind_stores(enum tier_kind kind, enum pool home)
{
    return kind == TIER_KIND_STORE || home != POOL_TOKEN;
}

#endif
