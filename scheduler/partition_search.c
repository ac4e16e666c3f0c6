/* partition_search: the least bottleneck that keeps the limit. More may be slower under a higher
 * bound, so what is possible under one is possible under every higher one: bisection, over bounds
 * that a plan can have. Whether one is possible is a question to partition_reach while there is no
 * limit; with a limit it is one for the plan of the least latency under that bound.
 *
 * A prompt of several micro-batches goes through at the pace of its slowest stage, which replicas
 * do not help. So its latency is that of one piece, which falls as slower stages are allowed, and
 * the pace, which rises: the best is found by branch and bound over the pace. */
#include "scheduler/partition_state.h"

#include <assert.h>
#include <math.h>

#define NONE       UINT64_MAX
#define BISECT     256 /* bounds between whole nanoseconds are multiples of 1 / this */
#define BRANCH_MAX 128 /* halves that wait: one for each bit of a pace, and to spare */

struct search {
    struct partition *p;
    uint64_t pieces;  /* micro-batches after the first */
    uint64_t cutoff;  /* of the score: what is not below breaks the limit */
    uint64_t hint_ns; /* the pace of a plan that kept the limit; 0: none yet */
};

/* What plans are compared by under one bound: latency << 8 | devices. */
static uint64_t score_of(const struct partition_plan *plan)
{
    return plan->latency_ns << 8 | plan->devices;
}

/* `latency` of one piece, at a pace: at least so much, of any number of devices. */
static uint64_t score_least(const struct search *s, uint64_t latency_ns, uint64_t pace_ns)
{
    return (latency_ns + s->pieces * pace_ns) << 8 | 1;
}

struct branch { /* paces above `above_ns`, up to `pace_ns` */
    uint64_t above_ns;
    uint64_t pace_ns;
    uint64_t latency_ns; /* of one piece: at least */
};

struct branches {
    uint32_t count;
    struct branch items[BRANCH_MAX];
};

/* Paces in (above, pace], to be looked at before what is there already. */
static void branch(struct branches *branches, uint64_t above_ns, uint64_t pace_ns,
                   uint64_t latency_ns)
{
    assert(branches->count < BRANCH_MAX);
    if (pace_ns > above_ns)
        branches->items[branches->count++] = (struct branch){above_ns, pace_ns, latency_ns};
}

/* What a plan below `best` can have under b's bound, now that its best latency is known: a lower
 * pace than that plan's, and one that leaves room for the latency. In halves, the faster one first.
 */
static void split(const struct search *s, struct branches *branches, const struct branch *b,
                  const struct partition_plan *quickest, uint64_t latency_ns, uint64_t best)
{
    uint64_t pace_ns = quickest->pace_ns - 1;
    uint64_t room_ns = best == NONE ? NONE : (best - 1) >> 8; /* what is below may have */
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

/* The plan of the best score below s->cutoff under the rate. any: whichever is below it. hint_ns: a
 * pace that may do. */
static bool best_under(const struct search *s, struct partition_rate rate, bool any,
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
        const struct partition_bound bound = {.rate = rate, .pace_ns = b.pace_ns};
        /* For the first piece: what is left when the others have gone through at the least pace. */
        uint64_t rest = (s->pieces * (b.above_ns + 1)) << 8;
        struct partition_plan plan;
        if (!partition_shortest(s->p, &bound, best - rest, &plan))
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

/* Can a plan keep the bound? Then *rate becomes the bottleneck of one, or stays. */
typedef bool (*possible)(struct search *s, struct partition_rate *rate);

static bool possible_at_all(struct search *s, struct partition_rate *rate)
{
    const struct partition_bound bound = {.rate = *rate, .pace_ns = PARTITION_PACE_ANY};
    return partition_reach(s->p, &bound) == s->p->layers;
}

static bool possible_within(struct search *s, struct partition_rate *rate)
{
    struct partition_plan plan;
    if (!best_under(s, *rate, true, s->hint_ns, &plan))
        return false;
    *rate = plan.bottleneck;
    s->hint_ns = plan.pace_ns;
    return true;
}

static uint64_t pace_of(const struct search *s)
{
    return s->pieces > 0 ? s->hint_ns : PARTITION_PACE_ANY;
}

/* The same of plans at the hint's pace only: quicker, as it is one path. */
static bool possible_at_hint(struct search *s, struct partition_rate *rate)
{
    const struct partition_bound bound = {.rate = *rate, .pace_ns = pace_of(s)};
    struct partition_plan plan;
    if (!partition_shortest(s->p, &bound, s->cutoff, &plan))
        return false;
    plan.latency_ns += s->pieces * plan.pace_ns;
    if (score_of(&plan) >= s->cutoff)
        return false;
    *rate = plan.bottleneck;
    return true;
}

/* The least rate that is possible for stages and links that take pace_ns at most, above `low`
 * (which is not) and up to `high` (which is). */
static struct partition_rate least_rate(struct search *s, possible ask, uint64_t pace_ns,
                                        struct partition_rate low, struct partition_rate high)
{
    for (;;) {
        struct partition_rate rate = partition_rate_before(s->p, high, pace_ns);
        if (partition_rate_compare(rate, low) <= 0)
            return high;
        double middle = ((double)low.ns / low.over + (double)high.ns / high.over) / 2;
        struct partition_rate half = partition_rate_before(
            s->p, (struct partition_rate){.ns = (uint64_t)(middle * BISECT), .over = BISECT},
            pace_ns);
        if (partition_rate_compare(half, low) > 0 && partition_rate_compare(half, rate) < 0)
            rate = half;
        if (ask(s, &rate))
            high = rate;
        else
            low = rate;
    }
}

/* The least rate that a plan within the limit has, above `low` and up to `high` (which one has).
 * The best at the pace of one plan; then, is there a better one at any other pace? */
static struct partition_rate least_within(struct search *s, struct partition_rate low,
                                          struct partition_rate high)
{
    for (;;) {
        high = least_rate(s, possible_at_hint, pace_of(s), low, high);
        struct partition_rate rate = partition_rate_before(s->p, high, PARTITION_PACE_ANY);
        if (s->pieces == 0 || partition_rate_compare(rate, low) <= 0 || !possible_within(s, &rate))
            return high;
        high = rate;
    }
}

/* Nothing overflows: a score holds the worst latency that there can be. */
static bool too_long(const struct partition *p, uint64_t micro_batches)
{
    uint64_t pass_ns =
        PARTITION_DEVICES_MAX * (p->between.delay_ns + p->inside.delay_ns) + p->back_between_ns;
    uint64_t run_ns =
        p->between.busy_ns > p->inside.busy_ns ? p->between.busy_ns : p->inside.busy_ns;
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
    bool found = best_under(&free, PARTITION_RATE_ANY, false, 0, &plan);
    assert(found);
    return error_set(
        error, ST_NOT_FOUND, "no split keeps %.3f ms: the one of the least latency takes %.3f ms",
        (double)goal->limit_ns / 1e6, found ? (double)plan.latency_ns / 1e6 : INFINITY);
}

/* The best plan whose stages' replicas divide p->paths; known: if it is better than that. */
static bool solve_paths(struct search *s, const struct partition_plan *known,
                        struct partition_plan *out)
{
    struct partition_rate high = PARTITION_RATE_ANY;
    if (known != NULL) {
        high = partition_rate_before(s->p, known->bottleneck, PARTITION_PACE_ANY);
        if (!possible_at_all(s, &high) || !possible_within(s, &high)) {
            struct search tie = *s;
            tie.cutoff = score_of(known); /* which keeps the limit */
            return best_under(&tie, known->bottleneck, false, known->pace_ns, out);
        }
    }
    /* Nothing below is possible; this is, unless the limit or the number of stages is in the way.
     */
    const struct partition_rate zero = {.ns = 0, .over = 1};
    struct partition_rate low = least_rate(s, possible_at_all, PARTITION_PACE_ANY, zero, high);
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

/* Of the numbers of paths that are looked at the one that leaves the most counts of replicas: it is
 * likely to be hard to beat. */
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
    /* What divides a number divides its double too, so the upper half of them is enough. Whether
     * there is a plan at all does not depend on it: the quickest one has one replica a stage. */
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
