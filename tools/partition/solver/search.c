/* partition_search: finds the smallest bottleneck that keeps the latency limit. A higher bound
 * allows every plan that a lower one allows, so the smallest possible bound is found by bisection
 * over the values that a bottleneck can have. Without a limit, partition_reach answers whether a
 * bound is possible; with a limit, the plan with the smallest latency under the bound does.
 *
 * A prompt of several micro-batches moves at the pace of its slowest stage, which replicas do not
 * improve. Its latency is that of one piece, which falls as slower stages are allowed, plus the
 * pace for each further piece, which rises. The best pace is found by branch and bound. */
#include "tools/partition/solver/state.h"

#include <assert.h>
#include <math.h>

#define NONE       UINT64_MAX
#define BISECT     256 /* Bounds between whole nanoseconds are multiples of 1 / BISECT. */
#define BRANCH_MAX 128 /* Waiting halves: at most one per bit of a pace. */

struct search {
    struct partition *p;
    uint64_t pieces;  /* Micro-batches after the first. */
    uint64_t cutoff;  /* Plans with this score or more break the limit. */
    uint64_t hint_ns; /* Pace of a plan that kept the limit; 0 = none yet. */
};

/* The score by which plans under one bound are compared: latency << 8 | devices. */
static uint64_t score_of(const struct partition_plan *plan)
{
    return plan->latency_ns << 8 | plan->devices;
}

/* Lower bound of the score, given the latency of one piece and a pace, for any number of
 * devices. */
static uint64_t score_least(const struct search *s, uint64_t latency_ns, uint64_t pace_ns)
{
    return (latency_ns + s->pieces * pace_ns) << 8 | 1;
}

struct branch { /* Paces above above_ns, up to pace_ns. */
    uint64_t above_ns;
    uint64_t pace_ns;
    uint64_t latency_ns; /* Lower bound of the latency of one piece. */
};

struct branches {
    uint32_t count;
    struct branch items[BRANCH_MAX];
};

/* Adds the paces in (above, pace], to be searched before the branches that wait already. */
static void branch(struct branches *branches, uint64_t above_ns, uint64_t pace_ns,
                   uint64_t latency_ns)
{
    assert(branches->count < BRANCH_MAX);
    if (pace_ns > above_ns)
        branches->items[branches->count++] = (struct branch){above_ns, pace_ns, latency_ns};
}

/* Adds the paces that a plan below `best` can have under b's bound, now that the best latency of
 * one piece is known: lower than the pace of that plan, and low enough for the latency. They are
 * added as two halves, the faster one to be searched first. */
static void split(const struct search *s, struct branches *branches, const struct branch *b,
                  const struct partition_plan *quickest, uint64_t latency_ns, uint64_t best)
{
    uint64_t pace_ns = quickest->pace_ns - 1;
    /* Largest latency of a better plan. */
    uint64_t room_ns = best == NONE ? NONE : (best - 1) >> 8;
    if (room_ns < latency_ns)
        return;
    if ((room_ns - latency_ns) / s->pieces < pace_ns)
        pace_ns = (room_ns - latency_ns) / s->pieces;
    pace_ns = partition_pace_before(s->p, pace_ns + 1);
    if (pace_ns <= b->above_ns)
        return;
    uint64_t middle_ns = partition_pace_before(s->p, b->above_ns + (pace_ns - b->above_ns) / 2);
    if (middle_ns < b->above_ns)
        middle_ns = b->above_ns;
    branch(branches, middle_ns, pace_ns, latency_ns);
    branch(branches, b->above_ns, middle_ns, latency_ns);
}

/* Finds the plan with the best score below s->cutoff under the interval. any: accept any plan below
 * the cutoff. hint_ns: a pace that may be suitable. */
static bool best_under(const struct search *s, struct partition_interval interval, bool any,
                       uint64_t hint_ns, struct partition_plan *plan_out)
{
    struct branches branches = {.count = 0};
    uint64_t best = s->cutoff;
    branch(&branches, s->pieces > 0 ? hint_ns : 0, PARTITION_PACE_ANY, 0);
    if (s->pieces > 0)
        branch(&branches, 0, hint_ns, 0);
    while (branches.count > 0) {
        struct branch b = branches.items[--branches.count];
        if (score_least(s, b.latency_ns, b.above_ns + 1) >= best)
            continue;
        const struct partition_bound bound = {.interval = interval, .pace_ns = b.pace_ns};
        /* Limit for the first piece: what is left if the others follow at the smallest pace. */
        uint64_t rest = (s->pieces * (b.above_ns + 1)) << 8;
        struct partition_plan plan;
        if (!partition_shortest_find(s->p, &bound, best - rest, &plan))
            continue;
        uint64_t latency_ns = plan.latency_ns;
        plan.latency_ns += s->pieces * plan.pace_ns;
        if (score_of(&plan) < best) {
            best = score_of(&plan);
            *plan_out = plan;
            if (any || s->pieces == 0)
                return true;
        }
        split(s, &branches, &b, &plan, latency_ns, best);
    }
    return best < s->cutoff;
}

/* True if a plan can keep the bound *interval. *interval then becomes the bottleneck of such a
 * plan, or stays. */
typedef bool (*possible)(struct search *s, struct partition_interval *interval);

static bool possible_at_all(struct search *s, struct partition_interval *interval)
{
    const struct partition_bound bound = {.interval = *interval, .pace_ns = PARTITION_PACE_ANY};
    return partition_reach(s->p, &bound) == s->p->layers;
}

static bool possible_within(struct search *s, struct partition_interval *interval)
{
    struct partition_plan plan;
    if (!best_under(s, *interval, true, s->hint_ns, &plan))
        return false;
    *interval = plan.bottleneck;
    s->hint_ns = plan.pace_ns;
    return true;
}

static uint64_t pace_of(const struct search *s)
{
    return s->pieces > 0 ? s->hint_ns : PARTITION_PACE_ANY;
}

/* Like possible_within, but only for plans at the hint's pace, which takes a single search. */
static bool possible_at_hint(struct search *s, struct partition_interval *interval)
{
    const struct partition_bound bound = {.interval = *interval, .pace_ns = pace_of(s)};
    struct partition_plan plan;
    if (!partition_shortest_find(s->p, &bound, s->cutoff, &plan))
        return false;
    plan.latency_ns += s->pieces * plan.pace_ns;
    if (score_of(&plan) >= s->cutoff)
        return false;
    *interval = plan.bottleneck;
    return true;
}

/* Returns the smallest possible interval for stages and links that take at most pace_ns, above
 * `low` (which is impossible) and up to `high` (which is possible). */
static struct partition_interval least_interval(struct search *s, possible ask, uint64_t pace_ns,
                                                struct partition_interval low,
                                                struct partition_interval high)
{
    for (;;) {
        struct partition_interval interval = partition_interval_before(s->p, high, pace_ns);
        if (partition_interval_compare(interval, low) <= 0)
            return high;
        double middle = ((double)low.ns / low.divisor + (double)high.ns / high.divisor) / 2;
        struct partition_interval half = partition_interval_before(
            s->p, (struct partition_interval){.ns = (uint64_t)(middle * BISECT), .divisor = BISECT},
            pace_ns);
        if (partition_interval_compare(half, low) > 0 &&
            partition_interval_compare(half, interval) < 0)
            interval = half;
        if (ask(s, &interval))
            high = interval;
        else
            low = interval;
    }
}

/* Returns the smallest interval of a plan within the limit, above `low` and up to `high` (which one
 * has). It finds the smallest interval at the pace of one plan, then checks whether any other pace
 * allows a smaller one. */
static struct partition_interval least_within(struct search *s, struct partition_interval low,
                                              struct partition_interval high)
{
    for (;;) {
        high = least_interval(s, possible_at_hint, pace_of(s), low, high);
        struct partition_interval interval =
            partition_interval_before(s->p, high, PARTITION_PACE_ANY);
        if (s->pieces == 0 || partition_interval_compare(interval, low) <= 0 ||
            !possible_within(s, &interval))
            return high;
        high = interval;
    }
}

/* True if the worst latency would not fit into a score. */
static bool too_long(const struct partition *p, uint64_t micro_batches)
{
    uint64_t pass_ns =
        PARTITION_DEVICES_MAX * (p->between_hosts.delay_ns + p->inside_host.delay_ns) +
        p->return_between_hosts_ns;
    uint64_t run_ns = p->between_hosts.busy_ns > p->inside_host.busy_ns ? p->between_hosts.busy_ns
                                                                        : p->inside_host.busy_ns;
    for (uint32_t k = 0; k < p->kinds; k++) {
        uint64_t ns = partition_run_ns(p, k, 0, p->layers) + PARTITION_DEVICES_MAX * p->stage_ns[k];
        run_ns = ns > run_ns ? ns : run_ns;
    }
    uint64_t most = 1ull << 54;
    return pass_ns + run_ns > most || run_ns > (most - pass_ns - run_ns) / micro_batches;
}

static enum status unattainable(const struct search *s, const struct partition_goal *goal,
                                struct error *error)
{
    struct search free = *s;
    struct partition_plan plan;
    free.cutoff = NONE;
    bool found = best_under(&free, PARTITION_INTERVAL_ANY, false, 0, &plan);
    assert(found);
    return error_set(
        error, ST_NOT_FOUND, "no split takes at most %.3f ms: the fastest one takes %.3f ms",
        (double)goal->limit_ns / 1e6, found ? (double)plan.latency_ns / 1e6 : INFINITY);
}

/* Finds the best plan whose replica counts divide p->paths. known: only if it is better than this
 * plan. */
static bool solve_paths(struct search *s, const struct partition_plan *known,
                        struct partition_plan *out)
{
    struct partition_interval high = PARTITION_INTERVAL_ANY;
    if (known != NULL) {
        high = partition_interval_before(s->p, known->bottleneck, PARTITION_PACE_ANY);
        if (!possible_at_all(s, &high) || !possible_within(s, &high)) {
            struct search tie = *s;
            tie.cutoff = score_of(known); /* A plan that keeps the limit. */
            return best_under(&tie, known->bottleneck, false, known->pace_ns, out);
        }
    }
    /* No interval below is possible. This one is, unless the limit or the number of stages prevents
     * it. */
    const struct partition_interval zero = {.ns = 0, .divisor = 1};
    struct partition_interval low =
        least_interval(s, possible_at_all, PARTITION_PACE_ANY, zero, high);
    if (best_under(s, low, false, s->hint_ns, out))
        return true;
    if (known == NULL && !possible_within(s, &high))
        return false;
    high = least_within(s, low, high);
    bool found = best_under(s, high, false, s->hint_ns, out);
    assert(found);
    return found;
}

static uint32_t divisors(uint32_t number)
{
    uint32_t count = 0;
    for (uint32_t i = 1; i <= number; i++)
        count += number % i == 0;
    return count;
}

/* Returns the number of paths that allows the most replica counts; its plan is likely to be hard to
 * beat. */
static uint32_t paths_first(const struct partition *p)
{
    uint32_t best = p->paths_max;
    for (uint32_t paths = p->paths_max; paths * 2 > p->paths_max; paths--)
        best = divisors(paths) > divisors(best) ? paths : best;
    return best;
}

enum status partition_solve(struct partition *p, const struct partition_goal *goal,
                            struct partition_plan *plan_out, struct error *error)
{
    if (goal->micro_batches == 0)
        return error_set(error, ST_INVALID, "0 micro-batches: want 1 or more");
    if (too_long(p, goal->micro_batches))
        return error_set(error, ST_TOO_LARGE, "%u micro-batches through these layers take too long",
                         goal->micro_batches);
    struct search s = {.p = p, .pieces = goal->micro_batches - 1, .cutoff = NONE};
    if (goal->limit_ns < NONE >> 8)
        s.cutoff = (goal->limit_ns + 1) << 8;
    /* Divisors of a number divide its double too, so the upper half of the numbers is enough.
     * Whether any plan exists does not depend on the number of paths: the quickest plan has one
     * replica per stage. */
    struct partition_plan best;
    struct partition_plan plan;
    p->paths = paths_first(p);
    if (!solve_paths(&s, NULL, &best))
        return unattainable(&s, goal, error);
    uint32_t first = p->paths;
    for (uint32_t paths = p->paths_max; paths * 2 > p->paths_max; paths--) {
        p->paths = paths;
        if (paths != first && solve_paths(&s, &best, &plan))
            best = plan;
    }
    *plan_out = best;
    return ST_OK;
}
