/* cluster_stored: which KV the tiers of machines have stored (kvcache/tiers/), and how long a load
 * takes. What a machine holds in its memory enters its tiers, too; there it stays when the memory
 * evicts it. So each kind of tier has a table like that of the memory (prefix.h), with more room,
 * from which evictions remove nothing. The shared store has one holder, STORE_HOLDER, for all
 * machines. The tables are estimates: the machine asks its tiers itself. */
#include "scheduler/cluster/prefix.h"
#include "scheduler/cluster/state.h"
#include "scheduler/tier_loads.h"

#include <string.h>

/* Prefixes that tiers store, for each prefix that memory holds. */
#define STORED_MULTIPLE 4
#define STORE_HOLDER    0

/* The load time of a tier that was not measured: short, so that a load is tried and measured. */
static const struct sched_tier first = {.load_fixed_us = 1000, .load_token_ns = 1000};

enum status cluster_stored_open(struct sched_cluster *sc)
{
    enum status status = ST_OK;
    for (int kind = 0; kind < TIER_KIND_COUNT && status == ST_OK; kind++)
        status =
            cluster_prefixes_open(sc->options.prefix_count * STORED_MULTIPLE, &sc->stored[kind]);
    return status;
}

void cluster_stored_close(struct sched_cluster *sc)
{
    for (int kind = 0; kind < TIER_KIND_COUNT; kind++)
        cluster_prefixes_close(sc->stored[kind]);
}

static void forget(struct sched_cluster *sc, uint32_t machine, enum tier_kind kind)
{
    if (kind != TIER_KIND_STORE && sc->stored[kind] != NULL)
        cluster_prefixes_forget(sc->stored[kind], machine);
}

void cluster_tiers_set(struct sched_cluster *sc, uint32_t machine, const struct sched_tier *tiers)
{
    for (int kind = 0; kind < TIER_KIND_COUNT; kind++) {
        struct sched_tier *tier = &sc->machines[machine].tiers[kind];
        const struct sched_tier before = *tier;
        if (before.works && !tiers[kind].works)
            forget(sc, machine, (enum tier_kind)kind);
        *tier = tiers[kind];
        sc->tiers_worked |= tier->works;
        if (tier->load_fixed_us > 0 || tier->load_token_ns > 0)
            continue;
        tier->load_fixed_us = before.load_fixed_us;
        tier->load_token_ns = before.load_token_ns;
    }
}

void cluster_tiers_down(struct sched_cluster *sc, uint32_t machine)
{
    struct sched_tier *tiers = sc->machines[machine].tiers;
    if (tiers[TIER_KIND_MEMORY].works)
        forget(sc, machine, TIER_KIND_MEMORY);
    for (int kind = 0; kind < TIER_KIND_COUNT; kind++)
        tiers[kind].works = false;
}

static bool uses(const struct cluster_machine *machine, enum tier_kind kind)
{
    return machine->tiers[kind].works && tier_kind_stores(kind, machine->home);
}

void cluster_stored_add(struct sched_cluster *sc, uint32_t machine, const uint64_t *hashes,
                        uint32_t count)
{
    for (int kind = 0; kind < TIER_KIND_COUNT; kind++) {
        const uint32_t holder = kind == TIER_KIND_STORE ? STORE_HOLDER : machine;
        if (sc->stored[kind] == NULL || !uses(&sc->machines[machine], (enum tier_kind)kind))
            continue;
        for (uint32_t i = 0; i < count; i++)
            cluster_prefixes_add(sc->stored[kind], hashes[i], holder);
    }
}

static bool holder_is(void *self, uint32_t machine)
{
    return machine == *(const uint32_t *)self;
}

/* Returns the number of the request's hashes up to the longest prefix that the tier has stored. */
static uint32_t hashes_stored(const struct sched_cluster *sc, const struct cluster_request *request,
                              uint32_t machine, enum tier_kind kind)
{
    const uint64_t *hashes = sc->prefixes_of + (size_t)(request - sc->requests) * SCHED_PREFIX_MAX;
    uint32_t holder = kind == TIER_KIND_STORE ? STORE_HOLDER : machine;
    uint32_t count = request->prefix_count;
    while (count > 0 &&
           !cluster_prefixes_holders(sc->stored[kind], hashes[count - 1], holder_is, &holder))
        count--;
    return count;
}

void cluster_stored_holders(const struct sched_cluster *sc, uint64_t hash,
                            bool (*take)(void *self, uint32_t machine), void *self)
{
    if (!sc->tiers_worked) /* Most clusters have no tiers. */
        return;
    cluster_prefixes_holders(sc->stored[TIER_KIND_MEMORY], hash, take, self);
    cluster_prefixes_holders(sc->stored[TIER_KIND_FILE], hash, take, self);
}

static uint64_t tier_us(const struct sched_tier *tier, uint64_t tokens)
{
    if (tier->load_fixed_us == 0 && tier->load_token_ns == 0)
        tier = &first;
    return tier->load_fixed_us + tokens * tier->load_token_ns / 1000;
}

struct cluster_load cluster_load_estimate(const struct sched_cluster *sc,
                                          const struct cluster_request *request, uint32_t machine,
                                          uint32_t held_tokens)
{
    const struct cluster_machine *m = &sc->machines[machine];
    const double row_us = (double)US_PER_S / (double)cluster_rate(sc, machine, MEASURE_PENDING);
    struct cluster_load load = {.tokens = 0};
    for (int kind = 0; kind < TIER_KIND_COUNT; kind++) {
        const struct sched_tier *tier = &m->tiers[kind];
        if (sc->stored[kind] == NULL || !uses(m, (enum tier_kind)kind))
            continue;
        const uint64_t stored =
            (uint64_t)hashes_stored(sc, request, machine, (enum tier_kind)kind) *
            sc->options.prefix_step_tokens;
        const uint32_t end =
            stored < request->prompt_tokens ? (uint32_t)stored : request->prompt_tokens - 1;
        const uint32_t have = held_tokens + load.tokens;
        if (end <= have ||
            end - have <
                sched_tier_least_tokens(tier->load_fixed_us, tier->load_token_ns / 1000.0, row_us))
            continue;
        load.us += tier_us(tier, end - have);
        load.tokens += end - have;
    }
    return load;
}
