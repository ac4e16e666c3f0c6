/* Goal: the means of sim_usage are those of the levels that were set, for any simulated time, and
 * memory does not grow with that time; a simulated machine's means add up to its busy time; its
 * picture is drawn for any content. Method: levels that change at random moments, with each
 * interval's mean computed from the list of all changes; a pipeline's batch by hand; pictures of no
 * time, no requests, one machine and many. */
#include "tools/simulate/sim_machine_state.h"
#include "tools/simulate/sim_usage_show.h"

#include "common/random.h"
#include "tests/check.h"
#include "tests/profile/profile_example.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

#define CHANGES 3000

static uint64_t seed;
static uint64_t draws;

static double draw(void)
{
    return (double)(random_at(seed, draws++) >> 11) * 0x1p-53;
}

struct change {
    double at_s;
    double level;
};

static double level_mean(const struct change *changes, uint32_t count, double from_s, double to_s)
{
    double sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        double begin_s = fmax(changes[i].at_s, from_s);
        double end_s = i + 1 < count ? fmin(changes[i + 1].at_s, to_s) : to_s;
        sum += end_s > begin_s ? changes[i].level * (end_s - begin_s) : 0;
    }
    return sum / (to_s - from_s);
}

/* Checks one gauge of the last machine and one of the cluster, over random times up to
 * `length_s`. */
static void means(double length_s)
{
    static struct change changes[2][CHANGES];
    struct sim_usage usage;
    double now_s = 0;
    CHECK(sim_usage_open(&usage, 3) == ST_OK);
    for (uint32_t i = 0; i < CHANGES; i++) {
        now_s += 2 * draw() * length_s / CHANGES;
        for (int k = 0; k < 2; k++)
            changes[k][i] = (struct change){now_s, floor(4 * draw()) / 4};
        sim_usage_set(&usage, 2, SIM_USAGE_KV, changes[0][i].level, now_s);
        sim_usage_set_cluster(&usage, SIM_USAGE_QUEUED, changes[1][i].level, now_s);
    }
    now_s += length_s / 50;
    sim_usage_end(&usage, now_s);
    uint32_t count = sim_usage_count(&usage);
    CHECKF(count <= SIM_USAGE_INTERVALS && (count > SIM_USAGE_INTERVALS / 2 || now_s < 0.25),
           "%u intervals", count);
    CHECK((count - 1) * usage.interval_s < now_s && count * usage.interval_s >= now_s);
    for (uint32_t i = 0; i < count; i++) {
        double from_s = i * usage.interval_s;
        double to_s = fmin(from_s + usage.interval_s, now_s);
        double got[] = {sim_usage_mean(&usage, 2, SIM_USAGE_KV, i),
                        sim_usage_cluster_mean(&usage, SIM_USAGE_QUEUED, i)};
        for (int k = 0; k < 2; k++) {
            double want = level_mean(changes[k], CHANGES, from_s, to_s);
            CHECKF(fabs(got[k] - want) < 1e-9, "interval %u of %g s: %g, want %g", i,
                   usage.interval_s, got[k], want);
        }
        CHECK(sim_usage_mean(&usage, 2, SIM_USAGE_BATCH, i) == 0 &&
              sim_usage_mean(&usage, 1, SIM_USAGE_KV, i) == 0);
    }
    sim_usage_close(&usage);
}

/* ---- what a machine says ---- */

/* Three stages of one layer, the last one with two replicas: each of four devices is busy for its
 * own computing time. */
static void pipeline(void)
{
    static struct sim_machine m;
    static struct sim_machine_facts host;
    static struct sim_flight flights[2];
    struct profile *profile;
    struct error error;
    struct sim_machine_use use;
    CHECK(profile_parse(profile_example, strlen(profile_example), "test", &profile, &error) ==
          ST_OK);
    host.cost = (struct sim_cost){.profile = profile, .stage_count = 3, .layer_count = 3};
    struct sched_paths_stage stages[3];
    static const uint32_t speeds[] = {1, 1};
    for (uint32_t i = 0; i < 3; i++) {
        host.cost.stages[i] = (struct sim_cost_stage){i, i + 1, i, i == 2 ? 2 : 1};
        stages[i] = (struct sched_paths_stage){.replica_count = i == 2 ? 2 : 1, .speeds = speeds};
    }
    for (uint32_t i = 0; i < 4; i++)
        host.cost.devices[i] = &profile->devices[0];
    CHECK(sched_paths_open(stages, 3, &m.paths) == ST_OK);
    m.options.host = &host;
    m.options.use_recorded = true;
    m.flights = flights;
    m.block_count = 8;
    m.cache.blocks = 6;
    const struct profile_work work = {.prompt_tokens = 10,
                                      .prompt_context = 0,
                                      .prompts_ending = 1,
                                      .decodes = 4,
                                      .decode_context = 100};
    const struct profile_work prompts = {.prompt_tokens = 10, .prompts_ending = 1};
    const struct profile_work decodes = {.decodes = 4, .decode_context = 100};
    double all_s = 0, prompts_s = 0, decodes_s = 0;
    for (uint32_t stage = 0; stage < 3; stage++) {
        all_s += sim_cost_stage_s(&host.cost, stage, 0, &work);
        prompts_s += sim_cost_stage_s(&host.cost, stage, 0, &prompts);
        decodes_s += sim_cost_stage_s(&host.cost, stage, 0, &decodes);
    }
    flights[1] =
        (struct sim_flight){.in_flight = true, .end_s = 5 + 2 * all_s, .batch.item_count = 5};
    m.flight_count = 1;
    sim_flight_use_set(&m, &flights[1], &work, 5);
    sim_machine_use(&m, &use);
    /* Half of the time that the batch is in flight, divided by four devices. */
    double busy = 1 / 2.0 / 4;
    CHECKF(fabs(use.prompt - busy * prompts_s / (prompts_s + decodes_s)) < 1e-6, "%g", use.prompt);
    CHECKF(fabs(use.prompt + use.decode - busy) < 1e-6, "%g", use.decode);
    CHECK(use.kv == 0.25 && use.batch == 5);
    sim_flight_use_set(&m, &flights[1], &decodes, 5 + all_s);
    sim_machine_use(&m, &use);
    CHECK(use.prompt == 0 && fabs(use.decode - decodes_s / all_s / 4) < 1e-6);
    profile_close(profile);
}

/* ---- what is shown ---- */

/* Checks that the JSON is valid and has a number for each interval. */
static void json_check(const struct sim_usage *usage)
{
    char *text = NULL;
    size_t bytes;
    json_error_t at;
    FILE *file = open_memstream(&text, &bytes);
    CHECK(file != NULL);
    sim_usage_json(usage, file);
    CHECK(fclose(file) == 0);
    json_t *root = json_loads(text, 0, &at);
    CHECKF(root != NULL, "%s at %d", at.text, at.position);
    const json_t *machines = json_object_get(root, "machines");
    CHECK(json_array_size(machines) == usage->machine_count);
    CHECK(json_array_size(json_object_get(root, "open")) == sim_usage_count(usage));
    for (size_t i = 0; i < json_array_size(machines); i++)
        CHECK(json_array_size(json_object_get(json_array_get(machines, i), "batch")) ==
              sim_usage_count(usage));
    json_decref(root);
    free(text);
}

static void pictures(void)
{
    static const uint32_t machines[] = {1, 3, 100, 300};
    for (size_t i = 0; i < sizeof(machines) / sizeof(machines[0]); i++)
        for (int busy = 0; busy < 2; busy++) {
            struct sim_usage usage;
            struct error error = {""};
            char *svg = NULL;
            CHECK(sim_usage_open(&usage, machines[i]) == ST_OK);
            for (uint32_t m = 0; m < machines[i]; m++) {
                snprintf(usage.names[m], sizeof(usage.names[m]), "it's-%u", m);
                sim_usage_set(&usage, m, SIM_USAGE_PROMPT, 0.5 * busy, 1);
            }
            sim_usage_end(&usage, busy * 100.0); /* The time may end without any event. */
            json_check(&usage);
            const struct gnuplot_picture picture = sim_usage_picture(&usage);
            enum status status = gnuplot_svg_draw(&picture, &svg, &error);
            if (status == ST_UNSUPPORTED) {
                printf("%s: no picture is drawn\n", error.text);
            } else {
                CHECKF(status == ST_OK, "%u machines: %s", machines[i], error.text);
                CHECK(strstr(svg, "their prompt waits") != NULL);
                CHECK(strstr(svg, "it's-0") != NULL || strstr(svg, "it&apos;s-0") != NULL);
            }
            free(svg);
            sim_usage_close(&usage);
        }
}

int main(void)
{
    seed = test_seed();
    static const double lengths_s[] = {0.1, 1, 37, 3600, 86400, 4e7};
    for (size_t i = 0; i < sizeof(lengths_s) / sizeof(lengths_s[0]); i++)
        means(lengths_s[i]);
    pipeline();
    pictures();
    return 0;
}
