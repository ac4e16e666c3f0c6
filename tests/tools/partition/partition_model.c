#include "tests/tools/partition/partition_model.h"

#include "tests/check.h"

#include <string.h>

#define STAGES_MAX 16
#define HOSTS_MAX  16

struct stage {
    uint32_t first;
    uint32_t end;
    uint32_t kind;
    uint32_t replicas;
    bool new_host; /* The link before the stage connects two hosts. */
};

struct host {
    uint32_t kind;
    uint32_t left[PARTITION_KINDS_MAX];
    bool entered;
};

struct model {
    const struct partition_problem *problem;
    const struct partition_goal *goal;
    struct host hosts[HOSTS_MAX];
    uint32_t host_count;
    uint32_t hosts_entered;
    struct stage stages[STAGES_MAX];
    uint32_t stage_count;
    struct partition_model_cost best;
    bool found;
    uint64_t plans;
};

/* ---- what a plan costs ---- */

static uint64_t stage_ns(const struct partition_problem *q, const struct stage *stage)
{
    const struct partition_kind *kind = &q->kinds[stage->kind];
    uint64_t ns = kind->stage_ns;
    for (uint32_t i = stage->first; i < stage->end; i++)
        ns += kind->layer_ns[i];
    if (stage->first == 0)
        ns += kind->first_ns;
    if (stage->end == q->layer_count)
        ns += kind->last_ns;
    return ns;
}

static uint64_t stage_bytes(const struct partition_problem *q, const struct stage *stage)
{
    uint64_t bytes = q->workspace_bytes;
    for (uint32_t i = stage->first; i < stage->end; i++)
        bytes += q->layer_bytes[i];
    if (stage->first == 0)
        bytes += q->first_bytes;
    if (stage->end == q->layer_count)
        bytes += q->last_bytes;
    if (stage->first == 0 && stage->end == q->layer_count)
        bytes -= q->shared_bytes;
    return bytes;
}

static bool slower(uint64_t ns, uint32_t over, struct partition_interval than)
{
    return ns * than.divisor > than.ns * over;
}

static struct partition_model_cost cost_of(const struct partition_problem *q,
                                           const struct partition_goal *goal,
                                           const struct stage *stages, uint32_t count)
{
    struct partition_model_cost cost = {.bottleneck = {.ns = 0, .divisor = 1}};
    uint64_t pace = 0;
    bool one_host = true;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t ns = stage_ns(q, &stages[i]);
        cost.latency_ns += ns;
        cost.devices += stages[i].replicas;
        if (slower(ns, stages[i].replicas, cost.bottleneck))
            cost.bottleneck = (struct partition_interval){ns, stages[i].replicas};
        pace = ns > pace ? ns : pace;
        if (i == 0)
            continue;
        one_host = one_host && !stages[i].new_host;
        const struct partition_link *link =
            stages[i].new_host ? &q->between_hosts : &q->inside_host;
        cost.latency_ns += link->delay_ns;
        if (slower(link->busy_ns, 1, cost.bottleneck))
            cost.bottleneck = (struct partition_interval){link->busy_ns, 1};
        pace = link->busy_ns > pace ? link->busy_ns : pace;
    }
    if (count > 1)
        cost.latency_ns += one_host ? q->return_inside_host_ns : q->return_between_hosts_ns;
    cost.latency_ns += (goal->micro_batches - 1) * pace;
    return cost;
}

int partition_model_compare(const struct partition_model_cost *a,
                            const struct partition_model_cost *b)
{
    if (slower(a->bottleneck.ns, a->bottleneck.divisor, b->bottleneck))
        return 1;
    if (slower(b->bottleneck.ns, b->bottleneck.divisor, a->bottleneck))
        return -1;
    if (a->latency_ns != b->latency_ns)
        return a->latency_ns < b->latency_ns ? -1 : 1;
    return a->devices < b->devices ? -1 : a->devices > b->devices;
}

/* ---- every plan ---- */

static void extend(struct model *m, struct host *open);

/* The stage runs on `hosts`. If `hosts` is one host, it stays open for the next stage. */
static void add_stage(struct model *m, struct stage stage, struct host *open)
{
    if (stage_bytes(m->problem, &stage) > m->problem->kinds[stage.kind].memory_bytes)
        return;
    m->stages[m->stage_count++] = stage;
    extend(m, open);
    m->stage_count--;
}

static void on_open_host(struct model *m, struct host *open, struct stage stage)
{
    uint32_t left = open->left[stage.kind];
    for (stage.replicas = 1; stage.replicas <= left; stage.replicas++) {
        open->left[stage.kind] = left - stage.replicas;
        add_stage(m, stage, open);
    }
    open->left[stage.kind] = left;
}

/* Puts the stage on several unused hosts of a kind; no other stage uses them. */
static void on_many_hosts(struct model *m, uint32_t host_kind, struct stage stage)
{
    uint32_t each = m->problem->hosts[host_kind].devices[stage.kind];
    struct host *taken[HOSTS_MAX];
    uint32_t count = 0;
    for (uint32_t h = 0; h < m->host_count; h++) {
        if (m->hosts[h].entered || m->hosts[h].kind != host_kind)
            continue;
        m->hosts[h].entered = true;
        taken[count++] = &m->hosts[h];
        for (stage.replicas = count; count > 1 && stage.replicas <= count * each; stage.replicas++)
            add_stage(m, stage, NULL);
    }
    while (count > 0)
        taken[--count]->entered = false;
}

static void on_new_hosts(struct model *m, struct stage stage)
{
    stage.new_host = true;
    for (uint32_t t = 0; t < m->problem->host_count; t++) {
        uint32_t h = 0;
        while (h < m->host_count && (m->hosts[h].kind != t || m->hosts[h].entered))
            h++;
        if (h == m->host_count || m->hosts[h].left[stage.kind] == 0)
            continue; /* Unused hosts of a kind are equal, so the first one is enough. */
        m->hosts[h].entered = true;
        on_open_host(m, &m->hosts[h], stage);
        m->hosts[h].entered = false;
        on_many_hosts(m, t, stage);
    }
}

/* Returns whether the least common multiple of all replica counts is within the limit. */
static bool paths_fit(const struct partition_problem *q, const struct stage *stages, uint32_t count)
{
    for (uint32_t paths = 1; paths <= q->paths_max; paths++) {
        uint32_t fit = 0;
        for (uint32_t i = 0; i < count; i++)
            fit += paths % stages[i].replicas == 0;
        if (fit == count)
            return true;
    }
    return q->paths_max == 0;
}

static void count_plan(struct model *m)
{
    m->plans++;
    if (m->problem->stage_count > 0 && m->stage_count != m->problem->stage_count)
        return;
    for (uint32_t i = 0; i < m->stage_count; i++)
        if (!m->problem->replicas && m->stages[i].replicas > 1)
            return;
    if (!paths_fit(m->problem, m->stages, m->stage_count))
        return;
    struct partition_model_cost cost = cost_of(m->problem, m->goal, m->stages, m->stage_count);
    if (cost.latency_ns > m->goal->limit_ns)
        return;
    if (!m->found || partition_model_compare(&cost, &m->best) < 0)
        m->best = cost;
    m->found = true;
}

static void extend(struct model *m, struct host *open)
{
    uint32_t first = m->stage_count > 0 ? m->stages[m->stage_count - 1].end : 0;
    if (first == m->problem->layer_count) {
        count_plan(m);
        return;
    }
    for (uint32_t end = first + 1; end <= m->problem->layer_count; end++) {
        for (uint32_t k = 0; k < m->problem->kind_count; k++) {
            struct stage stage = {.first = first, .end = end, .kind = k};
            if (open != NULL)
                on_open_host(m, open, stage);
            on_new_hosts(m, stage);
        }
    }
}

bool partition_model_best(const struct partition_problem *problem,
                          const struct partition_goal *goal, struct partition_model_cost *out,
                          uint64_t *plans_out)
{
    struct model m = {.problem = problem, .goal = goal};
    for (uint32_t t = 0; t < problem->host_count; t++)
        for (uint32_t i = 0; i < problem->hosts[t].count; i++) {
            CHECK(m.host_count < HOSTS_MAX);
            struct host *host = &m.hosts[m.host_count++];
            host->kind = t;
            memcpy(host->left, problem->hosts[t].devices, sizeof(host->left));
        }
    extend(&m, NULL);
    *plans_out += m.plans;
    *out = m.best;
    return m.found;
}

/* ---- is it a plan? ---- */

static void judge_hosts(const struct partition_problem *q, const struct partition_plan *plan)
{
    uint32_t entered[PARTITION_HOSTS_MAX] = {0};
    uint32_t left[PARTITION_KINDS_MAX];
    bool open = false;
    for (uint32_t i = 0; i < plan->stage_count; i++) {
        const struct partition_stage *stage = &plan->stages[i];
        const struct partition_host *host = &q->hosts[stage->host_kind];
        bool same = i > 0 && !plan->stages[i - 1].next_on_other_host;
        if (same) {
            CHECK(open && stage->host_count == 1 && stage->host == stage[-1].host &&
                  stage->host_kind == stage[-1].host_kind);
        } else {
            CHECK(stage->host == entered[stage->host_kind] && stage->host_count > 0);
            entered[stage->host_kind] += stage->host_count;
            CHECK(entered[stage->host_kind] <= host->count);
            memcpy(left, host->devices, sizeof(left));
            open = stage->host_count == 1;
        }
        if (!open) {
            CHECK(stage->replicas <= stage->host_count * host->devices[stage->kind]);
            continue;
        }
        CHECK(stage->replicas <= left[stage->kind]);
        left[stage->kind] -= stage->replicas;
    }
    CHECK(!plan->stages[plan->stage_count - 1].next_on_other_host);
}

struct partition_model_cost partition_model_judge(const struct partition_problem *q,
                                                  const struct partition_goal *goal,
                                                  const struct partition_plan *plan)
{
    struct stage stages[STAGES_MAX];
    CHECK(plan->stage_count > 0 && plan->stage_count <= STAGES_MAX);
    CHECK(q->stage_count == 0 || plan->stage_count == q->stage_count);
    uint32_t end = 0;
    for (uint32_t i = 0; i < plan->stage_count; i++) {
        const struct partition_stage *stage = &plan->stages[i];
        CHECK(stage->first == end && stage->end > end && stage->kind < q->kind_count);
        CHECK(stage->replicas >= 1 && (q->replicas || stage->replicas == 1));
        end = stage->end;
        stages[i] = (struct stage){.first = stage->first,
                                   .end = stage->end,
                                   .kind = stage->kind,
                                   .replicas = stage->replicas,
                                   .new_host = i == 0 || plan->stages[i - 1].next_on_other_host};
        CHECK(stage->time_ns == stage_ns(q, &stages[i]));
        CHECK(stage->bytes == stage_bytes(q, &stages[i]));
        CHECK(stage->bytes <= q->kinds[stage->kind].memory_bytes);
    }
    CHECK(end == q->layer_count && paths_fit(q, stages, plan->stage_count));
    judge_hosts(q, plan);
    struct partition_model_cost cost = cost_of(q, goal, stages, plan->stage_count);
    CHECK(partition_interval_compare(cost.bottleneck, plan->bottleneck) == 0);
    CHECK(cost.latency_ns == plan->latency_ns && cost.devices == plan->devices);
    return cost;
}
