/* Goal: `cleave plan` takes ranks where they are faster, and a cluster of the config that it writes
 * is the one that it simulated. Method: a small profile with a device of two ranks, with times by
 * which ranks win or lose; the written config is read as `cleave simulate` reads it, and its
 * machines are compared with those of the plan's hardware. */
#include "tools/plan/main.h"
#include "tools/simulate/sim_machines.h"

#include "tests/check.h"
#include "tests/profile/profile_example.h"
#include "tests/profile/profile_ranks.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

static char scratch[] = "/tmp/test_plan_ranks.XXXXXX";

static const char *scratch_path(const char *name)
{
    static char paths[8][400];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof(paths[0]), "%s/%.300s", scratch, name);
    return path;
}

static void file_write(const char *name, const char *text)
{
    FILE *file = fopen(scratch_path(name), "w");
    CHECK(file != NULL);
    fputs(text, file);
    CHECK(fclose(file) == 0);
}

/* Writes a profile whose two ranks have this number of threads together, and need this time for
 * vocabulary and sampling. */
static void profile_make(uint32_t threads, double vocabulary_us)
{
    struct profile *p = NULL;
    struct error error;
    CHECK(profile_parse(profile_example, strlen(profile_example), "test", &p, &error) == ST_OK);
    struct profile_device *device = profile_ranks_add(p);
    device->threads = threads;
    device->vocabulary.us[0] = vocabulary_us;
    FILE *file = fopen(scratch_path("p.json"), "w");
    CHECK(file != NULL && profile_write(p, file, &error) == ST_OK && fclose(file) == 0);
    profile_close(p);
}

#define USUAL_SLO "--slo=9/20/40,9/20/40,9/20/40"

/* Plans two machines of one of two hardware files, and returns the exit status. */
static int plan_run(const char *hardware, const char *other, const char *slo, const char *more)
{
    static char texts[8][420];
    char file[40];
    snprintf(texts[0], sizeof(texts[0]), "--profile=%s", scratch_path("p.json"));
    snprintf(texts[1], sizeof(texts[1]), "--lengths=%s", scratch_path("lengths.csv"));
    snprintf(texts[2], sizeof(texts[2]), "--write-config=%s", scratch_path("c.json"));
    for (int i = 0; i < 2; i++) {
        const char *name = i == 0 ? hardware : other;
        snprintf(file, sizeof(file), "%s.json", name);
        snprintf(texts[3 + i], sizeof(texts[3]), "--hardware=%s", scratch_path(file));
        snprintf(texts[5 + i], sizeof(texts[5]), "--clusters=%s", name);
    }
    const char *argv[] = {"plan",   texts[0],       texts[1],    texts[2],
                          texts[3], texts[4],       texts[5],    texts[6],
                          slo,      "--duration=3", "--step=40", "--fixed=machines=2",
                          more};
    return plan_main(more != NULL ? 13 : 12, (char **)argv);
}

/* Checks that every machine of the written config is like a machine of the hardware. */
static void written_check(const char *hardware, uint32_t stages, uint32_t ranks, uint32_t threads)
{
    static struct config config;
    static struct sim_machines written, simulated;
    struct error error = {""};
    char spec[440];
    memset(&written, 0, sizeof(written));
    memset(&simulated, 0, sizeof(simulated));
    CHECKF(config_load(scratch_path("c.json"), &config, &error) == ST_OK, "%s", error.text);
    CHECK(profile_load(scratch_path("p.json"), &written.profile, &error) == ST_OK);
    simulated.profile = written.profile;
    CHECKF(sim_machines_of_config(&written, &config, &error) == ST_OK, "%s", error.text);
    CHECK(written.count == 2);
    for (uint32_t i = 0; i < written.count; i++) {
        const struct sim_machine_facts *host = &written.machines[i];
        snprintf(spec, sizeof(spec), "1:%s:%s", pool_name(host->home), scratch_path(hardware));
        simulated.count = 0;
        CHECKF(sim_machines_add(&simulated, spec, NULL, "", &config, &error) == ST_OK, "%s",
               error.text);
        const struct sim_cost *cost = &host->cost, *want = &simulated.machines[0].cost;
        CHECK(cost->stage_count == stages && want->stage_count == stages);
        CHECK(cost->devices[0] == want->devices[0] && cost->devices[0]->ranks == ranks);
        CHECK(cost->devices[0]->threads == threads);
        CHECK(cost->stages[0].end == want->stages[0].end &&
              cost->stages[0].replica_count == want->stages[0].replica_count);
        CHECK(host->kv_tokens == simulated.machines[0].kv_tokens);
    }
    simulated.profile = NULL;
    sim_machines_done(&simulated);
    sim_machines_done(&written);
}

/* A machine of two threads: as one process, or as two ranks. A step takes 119 us and 30 between two
 * steps in one process, and 35 and 30 in two ranks, so only ranks keep a limit of 0.8 times the
 * first one. With 5000 us for the vocabulary they keep no limit. */
static void one_device(void)
{
    file_write("plain.json", "{\"name\": \"plain\", \"device\": \"cpu\", \"threads\": 2, "
                             "\"kv_memory_bytes\": 8000000}");
    file_write("ranks.json", "{\"name\": \"ranks\", \"device\": \"cpu\", \"threads\": 2, "
                             "\"tensor_parallel\": 2, \"kv_memory_bytes\": 8000000}");
    profile_make(2, 20);
    /* The exit status says that the other cluster has no plan. */
    CHECK(plan_run("plain", "ranks", "--slo=9/20/40,0.8/20/40,9/20/40", NULL) == 1);
    written_check("ranks.json", 1, 2, 2);
    profile_make(2, 5000);
    CHECK(plan_run("plain", "ranks", USUAL_SLO, NULL) == 1);
    written_check("plain.json", 1, 1, 2);
    CHECK(remove(scratch_path("c.json")) == 0);
    CHECK(plan_run("plain", "ranks", USUAL_SLO, "--cores=8") == 2);
    CHECK(access(scratch_path("c.json"), F_OK) != 0);
}

/* A machine of two devices: two replicas, or both joined to two ranks. */
static void two_devices(void)
{
    static const char pair[] =
        "{\"name\": \"%s\", \"devices\": [{\"profile\": \"cpu-2\", \"count\": 2, \"memory\": "
        "9000000}], \"workspace_bytes\": 1, \"kv_memory_bytes\": 4000000}";
    char text[sizeof(pair) + 16];
    snprintf(text, sizeof(text), pair, "pair");
    file_write("pair.json", text);
    snprintf(text, sizeof(text), pair, "same");
    file_write("same.json", text);
    profile_make(4, 5000);
    CHECK(plan_run("pair", "same", USUAL_SLO, NULL) == 0);
    written_check("pair.json", 1, 1, 2);
    profile_make(4, 1);
    CHECK(plan_run("pair", "same", USUAL_SLO, NULL) == 0);
    written_check("pair.json", 1, 2, 4);
}

int main(void)
{
    static const char *const files[] = {"c.json",     "p.json",    "lengths.csv", "plain.json",
                                        "ranks.json", "pair.json", "same.json"};
    CHECK(mkdtemp(scratch) != NULL);
    FILE *file = fopen(scratch_path("lengths.csv"), "w");
    CHECK(file != NULL);
    fputs("arrival_timestamp,prompt_size,token_size\n", file);
    for (int i = 0; i < 100; i++)
        fprintf(file, "%d,%d,%d\n", i, 10 + i % 11, 1 + 7 * i % 50);
    CHECK(fclose(file) == 0);
    one_device();
    two_devices();
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
        CHECK(remove(scratch_path(files[i])) == 0);
    return rmdir(scratch);
}
