/* Goal: partition_solve finds the best plan of its cost model, or reports that there is none.
 * Method: thousands of random small problems (kinds of devices, kinds of hosts, replicas, memory,
 * links, numbers of stages, micro-batches, latency limits, many of them impossible) are compared
 * with partition_model, which tries every plan. The model also checks the plan itself. Then cases
 * that can be checked by eye, refused problems, and the memory used. */
#include "common/limits.h"
#include "common/random.h"
#include "tests/check.h"
#include "tests/tools/partition/partition_model.h"
#include "tools/partition/solver/partition.h"
#include "tools/partition/solver/state.h"

#include <string.h>

#define RUNS       4000
#define LAYERS_MAX 7
#define KINDS_MAX  3

struct small {
    struct partition_problem problem;
    struct partition_kind kinds[KINDS_MAX];
    struct partition_host hosts[3];
    uint64_t layer_ns[KINDS_MAX][LAYERS_MAX];
    uint64_t layer_bytes[LAYERS_MAX];
};

static struct {
    uint64_t plans;
    uint32_t infeasible;   /* The layers fit no devices. */
    uint32_t unattainable; /* No plan keeps the limit. */
    uint32_t limited;      /* The limit made the bottleneck worse. */
    uint32_t replicated;
    uint32_t many_hosts; /* A stage runs on several hosts. */
    uint32_t mixed;      /* A plan has several kinds of devices. */
    uint32_t links;      /* A link is the bottleneck. */
} seen;

static uint64_t seed;
static uint64_t draws;

static uint32_t draw(uint32_t below)
{
    return (uint32_t)(random_at(seed, draws++) % below);
}

/* ---- random problems ---- */

static void random_devices(struct small *s)
{
    struct partition_problem *q = &s->problem;
    q->kind_count = 1 + draw(KINDS_MAX);
    q->host_count = 1 + draw(3);
    uint32_t devices = 0;
    for (uint32_t t = 0; t < q->host_count; t++) {
        s->hosts[t].count = draw(4);
        for (uint32_t k = 0; k < q->kind_count; k++) {
            uint32_t each = draw(3) == 0 ? draw(4) : draw(2);
            if (devices + each * s->hosts[t].count > 7)
                each = 0;
            s->hosts[t].devices[k] = each;
            devices += each * s->hosts[t].count;
        }
    }
    if (devices == 0) {
        s->hosts[0].count = 1 + draw(3);
        s->hosts[0].devices[0] = 1;
    }
}

static void random_costs(struct small *s)
{
    struct partition_problem *q = &s->problem;
    uint32_t times = draw(2) == 0 ? 4 : 100; /* Few different times cause many ties. */
    for (uint32_t i = 0; i < q->layer_count; i++)
        s->layer_bytes[i] = 1 + draw(4);
    q->first_bytes = draw(4);
    q->last_bytes = draw(4);
    q->shared_bytes = draw(2) * draw((uint32_t)q->last_bytes + 1);
    q->workspace_bytes = draw(2);
    for (uint32_t k = 0; k < q->kind_count; k++) {
        for (uint32_t i = 0; i < q->layer_count; i++)
            s->layer_ns[k][i] = 1 + draw(times);
        s->kinds[k] = (struct partition_kind){.name = "abc" + k,
                                              .layer_ns = s->layer_ns[k],
                                              .stage_ns = draw(2) * draw(times),
                                              .first_ns = draw(2) * draw(times),
                                              .last_ns = draw(2) * draw(2 * times),
                                              .memory_bytes = draw(4) == 0 ? 6 + draw(8) : 1000};
    }
    q->inside_host.busy_ns = draw(3) * draw(times);
    q->inside_host.delay_ns = draw(times);
    q->between_hosts.busy_ns = draw(3) * draw(times);
    q->between_hosts.delay_ns = draw(times);
    q->return_inside_host_ns = draw(2) * draw(4);
    q->return_between_hosts_ns = q->return_inside_host_ns + draw(4);
}

static void random_problem(struct small *s)
{
    memset(s, 0, sizeof(*s));
    s->problem.layer_count = 1 + draw(LAYERS_MAX);
    s->problem.layer_bytes = s->layer_bytes;
    s->problem.kinds = s->kinds;
    s->problem.hosts = s->hosts;
    s->problem.replicas = draw(3) > 0;
    s->problem.paths_max = draw(2) * draw(7);
    random_devices(s);
    random_costs(s);
    uint32_t devices = 0;
    for (uint32_t t = 0; t < s->problem.host_count; t++)
        for (uint32_t k = 0; k < s->problem.kind_count; k++)
            devices += s->hosts[t].count * s->hosts[t].devices[k];
    uint32_t stages = devices < s->problem.layer_count ? devices : s->problem.layer_count;
    s->problem.stage_count = draw(3) == 0 ? 1 + draw(stages) : 0;
}

/* ---- against every plan ---- */

static void count(const struct partition_plan *plan)
{
    uint32_t kinds = 0;
    bool replicated = false;
    bool many_hosts = false;
    bool stage = false;
    for (uint32_t i = 0; i < plan->stage_count; i++) {
        const struct partition_stage *at = &plan->stages[i];
        kinds |= 1u << at->kind;
        replicated = replicated || at->replicas > 1;
        many_hosts = many_hosts || at->host_count > 1;
        stage = stage ||
                partition_interval_compare((struct partition_interval){at->time_ns, at->replicas},
                                           plan->bottleneck) == 0;
    }
    seen.replicated += replicated;
    seen.many_hosts += many_hosts;
    seen.mixed += (kinds & (kinds - 1)) != 0;
    seen.links += !stage;
}

static bool compare(int run, const struct partition_problem *q, struct partition *partition,
                    const struct partition_goal *goal, struct partition_model_cost *cost_out)
{
    static struct partition_plan plan;
    struct error error = {0};
    struct partition_model_cost want;
    bool possible = partition_model_best(q, goal, &want, &seen.plans);
    enum status status = partition_solve(partition, goal, &plan, &error);
    CHECKF(status == (possible ? ST_OK : ST_NOT_FOUND), "run %d: %s \"%s\", want %s", run,
           status_name(status), error.text, possible ? "a plan" : "none");
    if (!possible)
        return false;
    *cost_out = partition_model_judge(q, goal, &plan);
    CHECKF(partition_model_compare(cost_out, &want) == 0,
           "run %d: bottleneck %" PRIu64 "/%u latency %" PRIu64 " devices %u, want %" PRIu64
           "/%u %" PRIu64 " %u",
           run, cost_out->bottleneck.ns, cost_out->bottleneck.divisor, cost_out->latency_ns,
           cost_out->devices, want.bottleneck.ns, want.bottleneck.divisor, want.latency_ns,
           want.devices);
    CHECK(cost_out->latency_ns <= goal->limit_ns);
    count(&plan);
    return true;
}

static void against_every_plan(void)
{
    for (int run = 0; run < RUNS; run++) {
        struct small s;
        random_problem(&s);
        struct partition *partition = NULL;
        struct error error = {0};
        struct partition_model_cost free;
        struct partition_goal goal = {.micro_batches = 1 + draw(2) * draw(6),
                                      .limit_ns = PARTITION_NO_LIMIT};
        enum status status = partition_open(&s.problem, &partition, &error);
        if (status != ST_OK) {
            CHECKF(status == ST_INVALID && error.text[0] != 0, "run %d: %s", run, error.text);
            CHECKF(!partition_model_best(&s.problem, &goal, &free, &seen.plans), "run %d: \"%s\"",
                   run, error.text);
            seen.infeasible++;
            continue;
        }
        CHECK(compare(run, &s.problem, partition, &goal, &free));
        for (int i = 0; i < 2; i++) { /* The same memory is used again, with limits. */
            struct partition_model_cost limited;
            goal.limit_ns = free.latency_ns * (75 + draw(26)) / 100;
            if (!compare(run, &s.problem, partition, &goal, &limited))
                seen.unattainable++;
            else
                seen.limited += partition_interval_compare(limited.bottleneck, free.bottleneck) > 0;
        }
        partition_close(partition);
    }
    printf("%" PRIu64 " plans; of %d problems %u fit nowhere; of twice the others with a limit %u "
           "cannot keep it, %u are slower for it; plans with replicas %u, a stage over hosts %u, "
           "unequal devices %u, a link as the bottleneck %u\n",
           seen.plans, RUNS, seen.infeasible, seen.unattainable, seen.limited, seen.replicated,
           seen.many_hosts, seen.mixed, seen.links);
    CHECK(seen.infeasible > RUNS / 100 && seen.unattainable > RUNS / 20);
    CHECK(seen.limited > RUNS / 50 && seen.replicated > RUNS / 20);
    CHECK(seen.many_hosts > RUNS / 100 && seen.mixed > RUNS / 20 && seen.links > RUNS / 50);
}

/* ---- by eye ---- */

/* Twelve layers of 10 bytes. A boundary takes 1 ns inside a host, and 3 ns between hosts. */
static struct partition_problem twelve(const struct partition_kind *kinds, uint32_t kind_count,
                                       const struct partition_host *hosts, uint32_t host_count)
{
    static const uint64_t bytes[12] = {10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10};
    return (struct partition_problem){.layer_count = 12,
                                      .layer_bytes = bytes,
                                      .kind_count = kind_count,
                                      .kinds = kinds,
                                      .host_count = host_count,
                                      .hosts = hosts,
                                      .inside_host = {.busy_ns = 1, .delay_ns = 1},
                                      .between_hosts = {.busy_ns = 2, .delay_ns = 3},
                                      .return_between_hosts_ns = 1,
                                      .replicas = true};
}

static const uint64_t ten[12] = {10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10};
static const uint64_t twenty[12] = {20, 20, 20, 20, 20, 20, 20, 20, 20, 20, 20, 20};

/* Compares a plan with text such as "0-5 a2@0.0 | 6-11 b1@1.0": layers, kind and replicas, kind of
 * host and host. "|": the next stage is on another host; "/": it is on the same host. */
static void want(const struct partition_problem *problem, struct partition_goal goal,
                 const char *text, uint64_t latency_ns)
{
    struct partition *partition = NULL;
    struct error error = {0};
    static struct partition_plan plan;
    CHECKF(partition_open(problem, &partition, &error) == ST_OK, "%s", error.text);
    CHECKF(partition_solve(partition, &goal, &plan, &error) == ST_OK, "%s", error.text);
    char got[512] = "";
    size_t used = 0;
    for (uint32_t i = 0; i < plan.stage_count; i++) {
        const struct partition_stage *stage = &plan.stages[i];
        used += (size_t)snprintf(got + used, sizeof(got) - used, "%u-%u %s%u@%u.%u", stage->first,
                                 stage->end - 1, problem->kinds[stage->kind].name, stage->replicas,
                                 stage->host_kind, stage->host);
        if (i + 1 < plan.stage_count)
            used += (size_t)snprintf(got + used, sizeof(got) - used, " %s ",
                                     stage->next_on_other_host ? "|" : "/");
    }
    CHECKF(strcmp(got, text) == 0, "\"%s\", want \"%s\"", got, text);
    CHECKF(plan.latency_ns == latency_ns, "%" PRIu64, plan.latency_ns);
    partition_close(partition);
}

static void copies_and_stages(void)
{
    const struct partition_goal free = {1, PARTITION_NO_LIMIT};
    const struct partition_host two_of_two[] = {{2, {2}}};
    const struct partition_host four[] = {{1, {4}}};
    struct partition_kind kind = {"a", ten, 0, 0, 0, 1000};
    /* One device holds all layers: the plan has copies of it on both hosts, and no link. */
    struct partition_problem problem = twelve(&kind, 1, two_of_two, 1);
    want(&problem, free, "0-11 a4@0.0", 120);
    problem.replicas = false;
    want(&problem, free, "0-2 a1@0.0 / 3-5 a1@0.0 | 6-8 a1@0.1 / 9-11 a1@0.1", 126);
    /* No device holds all layers: each host gets a stage of two replicas. */
    kind.memory_bytes = 100;
    problem.replicas = true;
    want(&problem, free, "0-5 a2@0.0 | 6-11 a2@0.1", 124);
    /* Six replicas would make six paths. With at most three paths, the plan has two stages of three
     * replicas. */
    const struct partition_host six[] = {{1, {6}}};
    kind.memory_bytes = 1000;
    problem = twelve(&kind, 1, six, 1);
    want(&problem, free, "0-11 a6@0.0", 120);
    problem.paths_max = 3;
    want(&problem, free, "0-5 a3@0.0 / 6-11 a3@0.0", 121);
    /* A prompt in five pieces stays on one replica, so a pipeline finishes it sooner. */
    problem = twelve(&kind, 1, four, 1);
    want(&problem, free, "0-11 a4@0.0", 120);
    want(&problem, (struct partition_goal){5, PARTITION_NO_LIMIT},
         "0-2 a1@0.0 / 3-5 a1@0.0 / 6-8 a1@0.0 / 9-11 a1@0.0", 123 + 4 * 30);
}

/* Both ends of the model share one matrix. A device with both ends stores it once. */
static void tied_ends(void)
{
    const struct partition_host two[] = {{1, {2}}};
    const struct partition_kind kind = {"a", ten, 0, 0, 0, 300};
    struct partition_problem problem = twelve(&kind, 1, two, 1);
    problem.first_bytes = 100;
    problem.last_bytes = 500;
    problem.shared_bytes = 500;
    want(&problem, (struct partition_goal){1, PARTITION_NO_LIMIT}, "0-11 a2@0.0", 120);
}

static void unequal_devices(void)
{
    const struct partition_goal free = {1, PARTITION_NO_LIMIT};
    /* PipeDream's "7-1": the vocabulary fits only the large device, and seven other devices match
     * its speed. */
    struct partition_kind kinds[2] = {{"a", ten, 0, 0, 6, 130}, {"b", ten, 0, 0, 6, 2000}};
    const struct partition_host eight[] = {{1, {7, 1}}};
    struct partition_problem problem = twelve(kinds, 2, eight, 1);
    problem.last_bytes = 995;
    want(&problem, free, "0-10 a7@0.0 / 11-11 b1@0.0", 110 + 16 + 1);
    /* The layers are divided by the devices' speed. A limit moves them to the fast device. */
    struct partition_kind speeds[2] = {{"a", ten, 0, 0, 0, 1000}, {"b", twenty, 0, 0, 0, 200}};
    const struct partition_host two[] = {{1, {1, 1}}};
    problem = twelve(speeds, 2, two, 1);
    problem.first_bytes = 500;
    want(&problem, free, "0-7 a1@0.0 / 8-11 b1@0.0", 161);
    want(&problem, (struct partition_goal){1, 150}, "0-9 a1@0.0 / 10-11 b1@0.0", 141);
    /* With a slow link, one device for all layers is better. */
    problem.inside_host.busy_ns = 121;
    want(&problem, free, "0-11 a1@0.0", 120);
}

/* ---- what is refused ---- */

static void refused(const struct partition_problem *problem, enum status status, const char *text)
{
    struct partition *partition = NULL;
    struct error error = {0};
    CHECKF(partition_open(problem, &partition, &error) == status, "\"%s\"", error.text);
    CHECKF(strcmp(error.text, text) == 0, "\"%s\", want \"%s\"", error.text, text);
    CHECK(partition == NULL);
}

static void refusals(void)
{
    struct partition_kind kinds[2] = {{"a", ten, 0, 0, 0, 1000}, {"b", twenty, 0, 0, 0, 50}};
    const struct partition_host two[] = {{1, {1, 1}}};
    const struct partition_problem good = twelve(kinds, 2, two, 1);
    struct partition_problem problem = good;
    problem.layer_count = 0;
    refused(&problem, ST_INVALID, "0 layers: want 1 to 256");
    problem = good;
    problem.stage_count = 3;
    refused(&problem, ST_INVALID, "3 stages for 12 layers and 2 devices");
    problem = good;
    problem.last_bytes = 991;
    refused(&problem, ST_INVALID,
            "no device holds layer 11 with the vocabulary: it needs 1001 bytes, the largest (a) "
            "has 1000");
    kinds[0].memory_bytes = 60;
    refused(&good, ST_INVALID,
            "the devices' memory holds 11 of 12 layers (which need 120 bytes in all)");
    kinds[0].memory_bytes = 120;
    problem = good;
    problem.stage_count = 2;
    problem.workspace_bytes = 45; /* The smaller device holds no layer. */
    kinds[0].memory_bytes = 165;
    refused(&problem, ST_INVALID, "12 layers do not fit into the devices' memory as 2 stages");
    problem = good;
    problem.return_inside_host_ns = 2;
    refused(&problem, ST_INVALID,
            "the way of a token back to the first stage takes 2 ns inside a host, 1 between hosts: "
            "want no more inside");
    problem = good;
    problem.between_hosts.busy_ns = PARTITION_TIME_MAX + 1;
    refused(&problem, ST_TOO_LARGE,
            "a link between hosts takes 1099511627777 ns: want at most 1099511627776");
    problem.hosts = (struct partition_host[]){{65, {1, 1}}};
    refused(&problem, ST_TOO_LARGE, "65 hosts with 1 devices of kind a: want at most 64 devices");
    const uint64_t none[12] = {10, 10, 10, 0};
    kinds[1].layer_ns = none;
    refused(&good, ST_INVALID, "layer 3: a layer takes no time on b");
    struct partition_kind eight[8];
    for (int k = 0; k < 8; k++)
        eight[k] = (struct partition_kind){"a", ten, 0, 0, 0, 1000};
    const struct partition_host all[] = {{1, {8, 8, 8, 8, 8, 8, 8, 8}}};
    problem = twelve(eight, 8, all, 1);
    refused(&problem, ST_TOO_LARGE,
            "too many ways to use the devices: their table would take more than 100 MiB");
}

static void limits(void)
{
    struct partition_kind kind = {"a", ten, 0, 0, 0, 100};
    const struct partition_host two[] = {{2, {1}}};
    struct partition_problem problem = twelve(&kind, 1, two, 1);
    struct partition *partition;
    static struct partition_plan plan;
    struct error error = {0};
    CHECK(partition_open(&problem, &partition, NULL) == ST_OK);
    struct partition_goal goal = {1, 123};
    CHECK(partition_solve(partition, &goal, &plan, &error) == ST_NOT_FOUND);
    CHECK(strcmp(error.text, "no split takes at most 0.000 ms: the fastest one takes 0.000 ms") ==
          0);
    goal.limit_ns = 124;
    CHECK(partition_solve(partition, &goal, &plan, &error) == ST_OK && plan.latency_ns == 124);
    goal.micro_batches = 0;
    CHECK(partition_solve(partition, &goal, &plan, &error) == ST_INVALID);
    partition_close(partition);
    partition_close(NULL);
}

/* ---- the size that the design names ---- */

/* 96 layers over 64 devices of three kinds, each device on its own host. No other set of 64 devices
 * of three kinds needs more states, and these fit into the allowed memory. */
static void largest(void)
{
    static uint64_t layer_ns[3][96];
    static uint64_t bytes[96];
    struct partition_kind kinds[3];
    for (uint64_t k = 0; k < 3; k++) {
        for (uint64_t i = 0; i < 96; i++)
            layer_ns[k][i] = (k + 2) * 10000 + draw(1000);
        kinds[k] = (struct partition_kind){"a", layer_ns[k], 0, 0, 0, 1000};
    }
    const struct partition_host hosts[] = {{22, {1}}, {21, {0, 1}}, {21, {0, 0, 1}}};
    struct partition_problem problem = twelve(kinds, 3, hosts, 3);
    problem.layer_count = 96;
    problem.layer_bytes = bytes;
    problem.replicas = false;
    struct partition *partition;
    static struct partition_plan plan;
    CHECK(partition_open(&problem, &partition, NULL) == ST_OK);
    CHECK(partition->memory_bytes <= PARTITION_MEMORY_MAX);
    const struct partition_goal goal = {1, PARTITION_NO_LIMIT};
    CHECK(partition_solve(partition, &goal, &plan, NULL) == ST_OK);
    /* If the first kind has fewer than three layers, 22 × 2 + 21 + 21 fit. */
    CHECK(plan.bottleneck.ns >= 60000 && plan.bottleneck.ns <= 63000);
    partition_close(partition);
}

int main(void)
{
    seed = test_seed();
    copies_and_stages();
    tied_ends();
    unequal_devices();
    refusals();
    limits();
    largest();
    against_every_plan();
    return 0;
}
