/* sim_run, the tiers for KV below the machines' memory (machine/tiers.c): what enters a machine's
 * prefix cache is stored, in no time; before a prompt is queued, what memory lacks is loaded, if
 * the rule of scheduler/tier_loads.h says that this is faster than computing. The loads of a tier
 * follow each other. A machine's memory tier is lost with the machine. */
#include "tools/simulate/sim_run_state.h"

#include "scheduler/tier_loads.h"

#include <stdlib.h>

struct run_host_tiers {
    struct sim_tier *own[TIER_KIND_COUNT]; /* NULL = none; that of the store is in run_tiers. */
    double free_s[TIER_KIND_COUNT];        /* When all loads of the tier so far have ended. */
    struct sched_tier_loads loads[TIER_KIND_COUNT];
};

struct run_tiers {
    struct sim_tier *store; /* NULL = none. */
    double store_free_s;
    struct run_host_tiers hosts[SCHED_MACHINES_MAX];
};

static const struct sim_tier_kind *kind_of(const struct run *r, int kind)
{
    return &r->options.tiers[kind];
}

/* The simulator has no tiers for machines with stages or windows; the server has. */
static bool machine_has_tiers(const struct run *r, uint32_t machine)
{
    const struct sim_cost *cost = &r->options.machines->machines[machine].cost;
    return r->tiers != NULL && cost->stage_count == 1 && cost->groups.windowed == 0;
}

static double span_bytes(const struct run *r, uint32_t machine)
{
    return (double)sim_cost_kv_bytes(&r->options.machines->machines[machine].cost, 0,
                                     r->options.config->kv.block_tokens, 0);
}

/* Returns the machine's tier; NULL = none. */
static struct sim_tier *tier_of(const struct run *r, uint32_t machine, int kind)
{
    if (!machine_has_tiers(r, machine))
        return NULL;
    return kind == TIER_KIND_STORE ? r->tiers->store : r->tiers->hosts[machine].own[kind];
}

/* ---- life ---- */

enum status run_tiers_open(struct run *r)
{
    enum status status = ST_OK;
    bool any = false;
    for (int kind = 0; kind < TIER_KIND_COUNT; kind++)
        any |= kind_of(r, kind)->bytes > 0;
    if (!any || !r->prefixes)
        return ST_OK;
    r->tiers = calloc(1, sizeof(*r->tiers));
    if (r->tiers == NULL)
        return ST_NO_MEMORY;
    for (uint32_t i = 0; i < r->options.machines->count; i++) {
        for (int kind = 0; kind < TIER_KIND_COUNT && status == ST_OK; kind++) {
            const uint64_t spans = (uint64_t)(kind_of(r, kind)->bytes / span_bytes(r, i));
            if (spans == 0 || (kind == TIER_KIND_STORE && i > 0))
                continue;
            status = sim_tier_open(spans, kind == TIER_KIND_STORE ? &r->tiers->store
                                                                  : &r->tiers->hosts[i].own[kind]);
        }
    }
    return status;
}

void run_tiers_close(struct run *r)
{
    if (r->tiers == NULL)
        return;
    for (uint32_t i = 0; i < r->options.machines->count; i++)
        for (int kind = 0; kind < TIER_KIND_COUNT; kind++)
            sim_tier_close(r->tiers->hosts[i].own[kind]);
    sim_tier_close(r->tiers->store);
    free(r->tiers);
    r->tiers = NULL;
}

static uint32_t limited(double value)
{
    return value < UINT32_MAX ? (uint32_t)value : UINT32_MAX;
}

/* Tells the scheduler the tiers of the machine, with the measured times of loads. */
static void tiers_report(struct run *r, uint32_t machine)
{
    struct sched_event event = {.kind = SCHED_MACHINE_TIERS, .machine = machine};
    if (run_prefix_step(r) == 0)
        return;
    for (int kind = 0; kind < TIER_KIND_COUNT; kind++) {
        double fixed_us, token_us;
        if (tier_of(r, machine, kind) == NULL)
            continue;
        sched_tier_loads_line(&r->tiers->hosts[machine].loads[kind], run_now_us(r), &fixed_us,
                              &token_us);
        event.tiers[kind] = (struct sched_tier){.works = true,
                                                .load_fixed_us = limited(fixed_us),
                                                .load_token_ns = limited(token_us * 1000)};
    }
    run_event_apply(r, &event);
}

void run_tiers_up(struct run *r, uint32_t machine)
{
    if (!machine_has_tiers(r, machine))
        return;
    struct run_host_tiers *tiers = &r->tiers->hosts[machine];
    if (tiers->own[TIER_KIND_MEMORY] != NULL)
        sim_tier_clear(tiers->own[TIER_KIND_MEMORY]);
    for (int kind = 0; kind < TIER_KIND_COUNT; kind++) {
        tiers->free_s[kind] = r->now_s;
        tiers->loads[kind] = (struct sched_tier_loads){.latest_us = 0};
    }
    tiers_report(r, machine);
}

/* ---- storing ---- */

/* Of a chain that is longer than the tier, the end is replaced first. */
static void chain_put(struct sim_tier *tier, const uint32_t *contents, uint32_t spans,
                      uint64_t *names)
{
    uint64_t name = 0;
    for (uint32_t i = 0; i < spans; i++)
        names[i] = name = sim_tier_name(name, contents[i]);
    while (spans > 0)
        sim_tier_put(tier, names[--spans]);
}

void run_tiers_store(struct run *r, const struct run_request *q, uint32_t machine, uint32_t tokens)
{
    const uint32_t spans = tokens / r->options.config->kv.block_tokens;
    if (!machine_has_tiers(r, machine) || spans == 0)
        return;
    uint64_t *names = malloc(spans * sizeof(names[0]));
    if (names == NULL) {
        r->status = error_set(r->error, ST_NO_MEMORY, "out of memory");
        return;
    }
    for (int kind = 0; kind < TIER_KIND_COUNT; kind++) {
        struct sim_tier *tier = tier_of(r, machine, kind);
        if (tier != NULL && tier_kind_stores((enum tier_kind)kind, r->hosts[machine].home))
            chain_put(tier, q->contents, spans, names);
    }
    free(names);
}

/* ---- loading ---- */

/* Returns how many spans after the first `have` ones the tier has. */
static uint32_t spans_found(struct sim_tier *tier, const uint32_t *contents, uint32_t have,
                            uint32_t end)
{
    uint64_t name = 0;
    uint32_t i = 0;
    for (; i < end; i++) {
        name = sim_tier_name(name, contents[i]);
        if (i >= have && !sim_tier_use(tier, name))
            break;
    }
    return i > have ? i - have : 0;
}

/* Loads what the tier has after the first `have` spans, from at_s on, until due_s at the latest,
 * when the prompt no longer waits. Returns the number of loaded spans, and stores when the load
 * ends. */
static uint32_t tier_load(struct run *r, const struct run_request *q, uint32_t machine, int kind,
                          uint32_t have, uint32_t end, double at_s, double due_s, double *end_s_out)
{
    struct run_host_tiers *tiers = &r->tiers->hosts[machine];
    struct sim_tier *tier = tier_of(r, machine, kind);
    const uint32_t block_tokens = r->options.config->kv.block_tokens;
    if (tier == NULL)
        return 0;
    uint32_t spans = spans_found(tier, q->contents, have, end);
    const double row_us = r->options.config->scheduler.compare_time
                              ? sim_machine_prompt_token_us(r->hosts[machine].machine)
                              : 0;
    if (spans == 0 ||
        spans * block_tokens < sched_tier_loads_least(&tiers->loads[kind], row_us, run_now_us(r)))
        return 0;
    double *free_s = kind == TIER_KIND_STORE ? &r->tiers->store_free_s : &tiers->free_s[kind];
    const double first_s = (at_s > *free_s ? at_s : *free_s) + kind_of(r, kind)->fixed_s;
    const double span_s = span_bytes(r, machine) / kind_of(r, kind)->bytes_per_s;
    *end_s_out = first_s + spans * span_s;
    if (*end_s_out > due_s) {
        spans = first_s < due_s ? (uint32_t)((due_s - first_s) / span_s) : 0;
        *end_s_out = due_s;
    }
    *free_s = *end_s_out > *free_s ? *end_s_out : *free_s;
    sched_tier_loads_add(&tiers->loads[kind], spans * block_tokens,
                         (int64_t)((*end_s_out - at_s) * 1e6), run_now_us(r));
    r->totals->tier_tokens[kind] += (uint64_t)spans * block_tokens;
    return spans;
}

bool run_tiers_wait(struct run *r, uint32_t slot, uint32_t machine)
{
    struct run_request *q = &r->requests[slot];
    const uint32_t spans = (q->attempt_prompt_tokens - 1) / r->options.config->kv.block_tokens;
    const double due_s = r->now_s + r->options.config->kv.tiers.wait_ms / 1e3;
    struct sim_machine *m = r->hosts[machine].machine;
    double end_s = r->now_s;
    if (!machine_has_tiers(r, machine) || spans == 0)
        return false;
    if (q->load_pending) {
        q->load_pending = false;
        if (!sim_machine_prefix_add(m, q->contents, q->load_end))
            r->status = error_set(r->error, ST_NO_MEMORY, "out of memory");
        return false;
    }
    uint32_t have = sim_machine_prefix_spans(m, q->contents, spans);
    const uint32_t had = have;
    for (int kind = 0; kind < TIER_KIND_COUNT && have < spans && end_s < due_s; kind++)
        have += tier_load(r, q, machine, kind, have, spans, end_s, due_s, &end_s);
    if (have == had && end_s <= r->now_s)
        return false;
    q->load_pending = true;
    q->load_end = have;
    event_heap_put(&r->events, event_of_slot(r, slot), end_s);
    tiers_report(r, machine);
    return true;
}
