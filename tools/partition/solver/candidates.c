/* partition_candidates: the bottleneck of a plan is the time of a run of layers / a number of
 * replicas, or the time of a link. These are finitely many numbers: hundreds of thousands, so they
 * are not listed but searched one at a time. */
#include "tools/partition/solver/state.h"

int partition_interval_compare(struct partition_interval a, struct partition_interval b)
{
    uint64_t left = a.ns * b.divisor;
    uint64_t right = b.ns * a.divisor;
    return left < right ? -1 : left > right;
}

/* Returns the longest time below `below_ns` of a run of layers that fits into memory. When the
 * first layer moves forward, so does the end. */
static uint64_t run_below(const struct partition *p, uint32_t kind, uint64_t below_ns)
{
    uint64_t longest = 0;
    uint32_t end = 0;
    for (uint32_t first = 0; first < p->layers; first++) {
        end = end > first ? end : first;
        while (end < p->layers && partition_run_ns(p, kind, first, end + 1) < below_ns &&
               partition_run_bytes(p, first, end + 1) <= p->memory_bytes_of[kind])
            end++;
        uint64_t ns = end > first ? partition_run_ns(p, kind, first, end) : 0;
        longest = ns > longest ? ns : longest;
    }
    return longest;
}

struct partition_interval partition_interval_before(const struct partition *p,
                                                    struct partition_interval interval,
                                                    uint64_t pace_ns)
{
    struct partition_interval best = {.ns = 0, .divisor = 1};
    const uint64_t links[2] = {p->inside_host.busy_ns, p->between_hosts.busy_ns};
    for (int i = 0; i < 2; i++) {
        struct partition_interval link = {.ns = links[i], .divisor = 1};
        if (partition_interval_compare(link, interval) < 0 &&
            partition_interval_compare(link, best) > 0)
            best = link;
    }
    for (uint32_t k = 0; k < p->kinds; k++) {
        for (uint32_t r = 1; r <= p->replicas_max[k]; r++) {
            if (!partition_replicas_fit(p, r))
                continue;
            /* time / r < ns / over means time < ns × r / over, rounded up */
            uint64_t below_ns = (interval.ns * r + interval.divisor - 1) / interval.divisor;
            below_ns = below_ns <= pace_ns ? below_ns : pace_ns + 1;
            struct partition_interval run = {.ns = run_below(p, k, below_ns), .divisor = r};
            if (partition_interval_compare(run, best) > 0)
                best = run;
        }
    }
    return best;
}

uint64_t partition_pace_before(const struct partition *p, uint64_t pace_ns)
{
    uint64_t best = p->inside_host.busy_ns < pace_ns ? p->inside_host.busy_ns : 0;
    if (p->between_hosts.busy_ns < pace_ns && p->between_hosts.busy_ns > best)
        best = p->between_hosts.busy_ns;
    for (uint32_t k = 0; k < p->kinds; k++) {
        uint64_t run_ns = p->replicas_max[k] > 0 ? run_below(p, k, pace_ns) : 0;
        best = run_ns > best ? run_ns : best;
    }
    return best;
}
