/* cluster_links: the time that KV takes from one machine to another: latency and bandwidth of the
 * link, and the transfers that the link's machines have before. A link that was not measured counts
 * as the mean of the measured ones that, like it, lead to another host or stay in one; if there are
 * none, as the mean of all measured links; before the first measurement, as `first`. */
#include "scheduler/cluster/state.h"

#include <stdlib.h>

#define PS_PER_US 1000000
#define PS_PER_S  1000000000000

/* A fast link, so that a cluster without measurements moves KV instead of computing it. */
static const struct link_time first = {.latency_us = 1000, .token_ps = PS_PER_S / 1000000};

static struct sched_link_speed *speed_at(const struct sched_cluster *sc, uint32_t from, uint32_t to)
{
    return &sc->link_speeds[(size_t)from * sc->options.machine_count + to];
}

bool cluster_same_host(const struct sched_cluster *sc, uint32_t a, uint32_t b)
{
    return sc->machines[a].host > 0 && sc->machines[a].host == sc->machines[b].host;
}

static void sum_add(struct link_sum *sum, const struct sched_link_speed *speed, int sign)
{
    if (speed->tokens_per_s == 0)
        return;
    sum->count += (uint64_t)sign;
    sum->all.latency_us += (uint64_t)sign * speed->latency_us;
    sum->all.token_ps += (uint64_t)sign * (PS_PER_S / speed->tokens_per_s);
    sum->all.error_percent += (uint64_t)sign * speed->error_percent;
}

static void speed_set(struct sched_cluster *sc, uint32_t from, uint32_t to,
                      const struct sched_link_speed *speed)
{
    struct sched_link_speed *at = speed_at(sc, from, to);
    struct link_sum *sum = &sc->link_sums[cluster_same_host(sc, from, to)];
    sum_add(sum, at, -1);
    *at = *speed;
    sum_add(sum, at, 1);
}

void cluster_link_measured(struct sched_cluster *sc, uint32_t from, uint32_t to,
                           const struct sched_link_speed *speed)
{
    speed_set(sc, from, to, speed);
}

void cluster_host_set(struct sched_cluster *sc, uint32_t machine, uint32_t host)
{
    if (sc->machines[machine].host == host)
        return;
    const struct sched_link_speed none = {.tokens_per_s = 0};
    for (uint32_t i = 0; i < sc->options.machine_count; i++) {
        speed_set(sc, machine, i, &none);
        speed_set(sc, i, machine, &none);
    }
    sc->machines[machine].host = host;
}

/* The mean of the links of both sums. Requires that one is measured. */
static struct link_time mean_of(const struct link_sum *a, const struct link_sum *b)
{
    const uint64_t count = a->count + b->count;
    return (struct link_time){
        .latency_us = (a->all.latency_us + b->all.latency_us) / count,
        .token_ps = (a->all.token_ps + b->all.token_ps) / count,
        .error_percent = (a->all.error_percent + b->all.error_percent) / count,
    };
}

static struct link_time time_of(const struct sched_cluster *sc, uint32_t from, uint32_t to)
{
    static const struct link_sum none;
    const struct sched_link_speed *speed = speed_at(sc, from, to);
    if (speed->tokens_per_s > 0)
        return (struct link_time){.latency_us = speed->latency_us,
                                  .token_ps = PS_PER_S / speed->tokens_per_s,
                                  .error_percent = speed->error_percent};
    const struct link_sum *alike = &sc->link_sums[cluster_same_host(sc, from, to)];
    if (alike->count > 0)
        return mean_of(alike, &none);
    if (sc->link_sums[0].count + sc->link_sums[1].count > 0)
        return mean_of(&sc->link_sums[0], &sc->link_sums[1]);
    return first;
}

static uint64_t transfer_us(const struct link_time *link, uint64_t tokens)
{
    return link->latency_us + tokens * link->token_ps / PS_PER_US;
}

uint64_t cluster_transfer_us(const struct sched_cluster *sc, uint32_t from, uint32_t to,
                             uint64_t tokens)
{
    const struct link_time link = time_of(sc, from, to);
    return transfer_us(&link, tokens);
}

uint64_t cluster_transfer_error_us(const struct sched_cluster *sc, uint32_t from, uint32_t to,
                                   uint64_t tokens)
{
    const struct link_time link = time_of(sc, from, to);
    return transfer_us(&link, tokens) * link.error_percent / 100;
}

uint64_t cluster_transfer_wait_us(const struct sched_cluster *sc, uint32_t from, uint32_t to)
{
    const int64_t sends_us = sc->machines[from].sends_until_us;
    const int64_t receives_us = sc->machines[to].receives_until_us;
    const int64_t until_us = sends_us > receives_us ? sends_us : receives_us;
    return until_us > sc->now_us ? (uint64_t)(until_us - sc->now_us) : 0;
}

uint64_t cluster_exposed_us(const struct sched_cluster *sc, uint32_t from, uint32_t to,
                            uint64_t tokens, uint64_t computed_us, uint64_t compute_us)
{
    const uint64_t begins_us =
        max_u64(computed_us - compute_us, cluster_transfer_wait_us(sc, from, to));
    return max_u64(begins_us + cluster_transfer_us(sc, from, to, tokens),
                   computed_us + cluster_transfer_us(sc, from, to, 0)) -
           computed_us;
}

void cluster_transfer_begin(struct sched_cluster *sc, uint32_t from, uint32_t to, uint64_t tokens)
{
    sc->machines[from].sends_until_us = sc->machines[to].receives_until_us =
        sc->now_us + (int64_t)(cluster_transfer_wait_us(sc, from, to) +
                               cluster_transfer_us(sc, from, to, tokens));
}

void sched_cluster_link_view(const struct sched_cluster *sc, uint32_t from, uint32_t to,
                             struct sched_link_speed *out)
{
    *out = *speed_at(sc, from, to);
}
