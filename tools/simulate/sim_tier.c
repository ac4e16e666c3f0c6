/* sim_tier: a hash table of chains, and a list from the span that was used last to the one that was
 * used longest ago. Both are linked by the indices of the entries. */
#include "tools/simulate/sim_tier.h"

#include "common/random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

struct entry {
    uint64_t name;
    uint32_t chain; /* Next entry of the same bucket. */
    uint32_t newer;
    uint32_t older;
};

struct sim_tier {
    uint32_t room;
    uint32_t count;
    uint32_t bucket_count; /* A power of two. */
    uint32_t newest;
    uint32_t oldest;
    uint32_t *buckets;
    struct entry *entries;
};

/* ---- the option ---- */

static bool kind_read(const char *text, struct sim_tier_kind *kinds)
{
    char name[16];
    double gib, gb_per_s, us;
    int used = 0;
    if (sscanf(text, "%15[a-z]:%lf:%lf:%lf%n", name, &gib, &gb_per_s, &us, &used) != 4 ||
        text[used] != 0 || !(gib > 0 && gib < 1e9) || !(gb_per_s > 0 && gb_per_s < 1e9) ||
        !(us >= 0 && us < 1e9))
        return false;
    for (int kind = 0; kind < TIER_KIND_COUNT; kind++) {
        if (strcmp(name, tier_kind_name((enum tier_kind)kind)) != 0)
            continue;
        kinds[kind] = (struct sim_tier_kind){
            .bytes = gib * 1073741824.0, .bytes_per_s = gb_per_s * 1e9, .fixed_s = us / 1e6};
        return true;
    }
    return false;
}

enum status sim_tier_kinds_read(const struct option_texts *texts, struct sim_tier_kind *out,
                                struct error *error)
{
    for (uint32_t i = 0; i < texts->count; i++)
        if (!kind_read(texts->texts[i], out))
            return error_set(error, ST_INVALID,
                             "--tier %s: want memory, file or store, then GiB, GB per second and "
                             "microseconds, such as file:200:2:500",
                             texts->texts[i]);
    return ST_OK;
}

/* ---- the set ---- */

enum status sim_tier_open(uint64_t spans, struct sim_tier **out)
{
    struct sim_tier *tier = calloc(1, sizeof(*tier));
    if (tier == NULL)
        return ST_NO_MEMORY;
    tier->room = spans < SIM_TIER_SPANS_MAX ? (uint32_t)spans : SIM_TIER_SPANS_MAX;
    tier->bucket_count = 16;
    while (tier->bucket_count < tier->room)
        tier->bucket_count *= 2;
    tier->buckets = malloc(tier->bucket_count * sizeof(tier->buckets[0]));
    tier->entries = malloc((tier->room > 0 ? tier->room : 1) * sizeof(tier->entries[0]));
    if (tier->buckets == NULL || tier->entries == NULL) {
        sim_tier_close(tier);
        return ST_NO_MEMORY;
    }
    sim_tier_clear(tier);
    *out = tier;
    return ST_OK;
}

void sim_tier_close(struct sim_tier *tier)
{
    if (tier == NULL)
        return;
    free(tier->buckets);
    free(tier->entries);
    free(tier);
}

void sim_tier_clear(struct sim_tier *tier)
{
    memset(tier->buckets, 0xff, tier->bucket_count * sizeof(tier->buckets[0]));
    tier->count = 0;
    tier->newest = tier->oldest = NONE;
}

uint64_t sim_tier_name(uint64_t before, uint32_t content)
{
    return random_at(before, content);
}

static uint32_t *bucket_of(const struct sim_tier *tier, uint64_t name)
{
    return &tier->buckets[random_mix(name) & (tier->bucket_count - 1)];
}

static uint32_t find(const struct sim_tier *tier, uint64_t name)
{
    uint32_t at = *bucket_of(tier, name);
    while (at != NONE && tier->entries[at].name != name)
        at = tier->entries[at].chain;
    return at;
}

static void list_remove(struct sim_tier *tier, uint32_t at)
{
    const struct entry *entry = &tier->entries[at];
    *(entry->newer != NONE ? &tier->entries[entry->newer].older : &tier->newest) = entry->older;
    *(entry->older != NONE ? &tier->entries[entry->older].newer : &tier->oldest) = entry->newer;
}

static void list_add(struct sim_tier *tier, uint32_t at)
{
    struct entry *entry = &tier->entries[at];
    entry->newer = NONE;
    entry->older = tier->newest;
    *(tier->newest != NONE ? &tier->entries[tier->newest].newer : &tier->oldest) = at;
    tier->newest = at;
}

bool sim_tier_use(struct sim_tier *tier, uint64_t name)
{
    const uint32_t at = find(tier, name);
    if (at == NONE)
        return false;
    list_remove(tier, at);
    list_add(tier, at);
    return true;
}

/* Returns an entry that is in no list. */
static uint32_t entry_take(struct sim_tier *tier)
{
    if (tier->count < tier->room)
        return tier->count++;
    const uint32_t at = tier->oldest;
    uint32_t *link = bucket_of(tier, tier->entries[at].name);
    while (*link != at)
        link = &tier->entries[*link].chain;
    *link = tier->entries[at].chain;
    list_remove(tier, at);
    return at;
}

void sim_tier_put(struct sim_tier *tier, uint64_t name)
{
    if (tier->room == 0 || sim_tier_use(tier, name))
        return;
    const uint32_t at = entry_take(tier);
    uint32_t *bucket = bucket_of(tier, name);
    tier->entries[at] = (struct entry){.name = name, .chain = *bucket};
    *bucket = at;
    list_add(tier, at);
}
