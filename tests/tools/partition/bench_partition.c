/* bench_partition: measures the time to find a split of 96 layers over 64 devices. Times and bytes
 * of the layers are invented: like those of a large model, each slightly different (± 5 %), so that
 * there are no ties. Kinds of devices differ in speed and memory, and slightly from layer to layer.
 * Each cluster is solved without a limit, and with limits between the latency of the plan with the
 * smallest bottleneck and the smallest possible latency. Prints the median of a few runs. */
#include "common/random.h"
#include "tools/partition/solver/partition.h"
#include "tools/partition/solver/state.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define LAYERS 96
#define RUNS   5

struct cluster {
    const char *name;
    uint32_t host_count;
    struct partition_host hosts[3];
    uint32_t stages;
};

static const struct cluster clusters[] = {
    {"8 hosts of 8, one kind", 1, {{8, {8}}}, 0},
    {"8 hosts of 8, one kind, 16 stages", 1, {{8, {8}}}, 16},
    {"4 + 4 hosts of 8, two kinds", 2, {{4, {8, 0}}, {4, {0, 8}}}, 0},
    {"8 hosts of 4 + 4, two kinds", 1, {{8, {4, 4}}}, 0},
    {"3 + 3 + 2 hosts of 8, three kinds", 3, {{3, {8}}, {3, {0, 8}}, {2, {0, 0, 8}}}, 0},
    {"8 hosts of 3 + 3 + 2, three kinds", 1, {{8, {3, 3, 2}}}, 0},
    {"64 hosts of one, one kind", 1, {{64, {1}}}, 0},
    {"22 + 21 + 21 hosts of one, three kinds", 3, {{22, {1}}, {21, {0, 1}}, {21, {0, 0, 1}}}, 0},
    {"one host of 64, one kind", 1, {{1, {64}}}, 0},
    {"one host of 22 + 21 + 21, three kinds", 1, {{1, {22, 21, 21}}}, 0},
};

static uint64_t layer_ns[3][LAYERS];
static uint64_t layer_bytes[LAYERS];
static struct partition_kind kinds[3];

static uint64_t around(uint64_t value, uint64_t key, uint64_t at)
{
    return (uint64_t)((double)value * (0.95 + 0.1 * (double)random_unit_at(key, at)));
}

static void make_model(void)
{
    static const double slowness[3] = {1, 1.7, 2.6};
    static const uint64_t memory_gib[3] = {80, 40, 24};
    for (uint64_t i = 0; i < LAYERS; i++) {
        layer_bytes[i] = around(4ull << 30, 4, i); /* Including the layer's KV. */
        uint64_t base = around(20000000, 5, i);
        for (uint64_t k = 0; k < 3; k++)
            layer_ns[k][i] = around((uint64_t)((double)base * slowness[k]), k, i);
    }
    for (uint64_t k = 0; k < 3; k++)
        kinds[k] = (struct partition_kind){.name = "device",
                                           .layer_ns = layer_ns[k],
                                           .first_ns = (uint64_t)(1000000 * slowness[k]),
                                           .last_ns = (uint64_t)(30000000 * slowness[k]),
                                           .memory_bytes = memory_gib[k] << 30};
}

static struct partition *open(const struct cluster *cluster, bool replicas)
{
    const struct partition_problem problem = {.layer_count = LAYERS,
                                              .layer_bytes = layer_bytes,
                                              .first_bytes = 2ull << 30,
                                              .last_bytes = 2ull << 30,
                                              .workspace_bytes = 1ull << 30,
                                              .kind_count = 3,
                                              .kinds = kinds,
                                              .host_count = cluster->host_count,
                                              .hosts = cluster->hosts,
                                              .inside_host = {200000, 210000},
                                              .between_hosts = {3000000, 3050000},
                                              .return_inside_host_ns = 10000,
                                              .return_between_hosts_ns = 50000,
                                              .stage_count = cluster->stages,
                                              .replicas = replicas,
                                              .paths_max = LIMIT_STAGE_PATHS};
    struct partition *partition;
    struct error error;
    if (partition_open(&problem, &partition, &error) != ST_OK) {
        printf("%s: %s\n", cluster->name, error.text);
        exit(1);
    }
    return partition;
}

static double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

static int compare(const void *a, const void *b)
{
    double left = *(const double *)a;
    double right = *(const double *)b;
    return left < right ? -1 : left > right;
}

static enum status measure(struct partition *partition, const char *what,
                           const struct partition_goal *goal, struct partition_plan *plan)
{
    double ms[RUNS];
    struct error error;
    enum status status = ST_OK;
    for (int i = 0; i < RUNS; i++) {
        double begin = now_ms();
        status = partition_solve(partition, goal, plan, &error);
        ms[i] = now_ms() - begin;
    }
    qsort(ms, RUNS, sizeof(ms[0]), compare);
    printf("  %-28s %8.1f ms (worst %8.1f)  ", what, ms[RUNS / 2], ms[RUNS - 1]);
    if (status == ST_OK)
        printf("%2u stages, %2u devices, bottleneck %8.3f ms, latency %8.3f ms\n",
               plan->stage_count, plan->devices,
               (double)plan->bottleneck.ns / plan->bottleneck.divisor / 1e6,
               (double)plan->latency_ns / 1e6);
    else
        printf("%s\n", error.text);
    return status;
}

static void run(const struct cluster *cluster, bool replicas)
{
    struct partition *partition = open(cluster, replicas);
    printf("%s, %s replicas: %.1f MiB\n", cluster->name, replicas ? "with" : "without",
           (double)partition->memory_bytes / 1048576);
    static const uint32_t pieces[] = {1, 8};
    for (int m = 0; m < 2; m++) {
        static struct partition_plan free;
        static struct partition_plan plan;
        char what[64];
        snprintf(what, sizeof(what), "M = %u, no limit", pieces[m]);
        struct partition_goal goal = {pieces[m], PARTITION_NO_LIMIT};
        measure(partition, what, &goal, &free);
        for (uint64_t percent = 95; percent >= 65; percent -= 15) {
            goal.limit_ns = free.latency_ns * percent / 100;
            snprintf(what, sizeof(what), "M = %u, %" PRIu64 " %% of its latency", pieces[m],
                     percent);
            measure(partition, what, &goal, &plan);
        }
    }
    partition_close(partition);
}

int main(int argc, char **argv)
{
    make_model();
    for (size_t i = 0; i < sizeof(clusters) / sizeof(clusters[0]); i++) {
        if (argc > 1 && (size_t)atoi(argv[1]) != i)
            continue;
        run(&clusters[i], false);
        run(&clusters[i], true);
    }
    return 0;
}
