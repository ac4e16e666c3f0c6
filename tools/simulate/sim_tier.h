/* sim_tier: the records of one simulated tier (kvcache/tiers/): a bounded set of spans. When the
 * set is full, the span that was used longest ago is replaced. The name of a span is a hash of all
 * contents up to its end. A simulation owns its tiers, and calls them on one thread. A tier knows
 * no times and no machines (sim_run_tiers.c does). */
#ifndef TOOLS_SIMULATE_SIM_TIER_H
#define TOOLS_SIMULATE_SIM_TIER_H

#include "common/options.h"
#include "common/status.h"
#include "common/tier_kind.h"

#include <stdbool.h>
#include <stdint.h>

/* Properties of a kind of tier: of each machine's own tier, or of the store that all machines
 * share. */
struct sim_tier_kind {
    double bytes;       /* Size of the tier; 0 = there is no such tier. */
    double bytes_per_s; /* Rate of loads. */
    double fixed_s;     /* Time that each load takes besides the time for its bytes. */
};

/* Reads texts KIND:GIB:GB/S:US (--tier) into out[TIER_KIND_COUNT]. Kinds without a text stay
 * unchanged. ST_INVALID: a text is wrong. */
enum status sim_tier_kinds_read(const struct option_texts *texts, struct sim_tier_kind *out,
                                struct error *error);

struct sim_tier;

/* Opens an empty tier for `spans` spans; more than SIM_TIER_SPANS_MAX count as SIM_TIER_SPANS_MAX.
 * Returns ST_NO_MEMORY on failure. */
enum status sim_tier_open(uint64_t spans, struct sim_tier **out);
void sim_tier_close(struct sim_tier *tier); /* NULL is fine. */
#define SIM_TIER_SPANS_MAX (1u << 22)

/* Returns the name of a span. before: the name of the span before this span; 0 = this span is the
 * first. content: the number that stands for the span's tokens (sim_pool.h). */
uint64_t sim_tier_name(uint64_t before, uint32_t content);
/* Returns true if the tier has the span, which then counts as used now. */
bool sim_tier_use(struct sim_tier *tier, uint64_t name);
/* Stores the span, which then counts as used now. If the tier is full, removes the span that was
 * used longest ago. Does nothing if the tier has room for no span. */
void sim_tier_put(struct sim_tier *tier, uint64_t name);
/* Removes all spans. */
void sim_tier_clear(struct sim_tier *tier);

#endif
