/* Goal: a simulated machine has the stages and the micro-batches of a real machine with the same
 * config. Method: configs with a number of stages, in every pool, with and without a profile in the
 * config; the stages of the simulation are compared with those of the machine's own plan
 * (stage_plan.h). */
#include "machine/executor/stage_plan.h"
#include "tests/profile/profile_example.h"
#include "tests/tools/simulate/scratch.h"
#include "tools/simulate/sim_machines.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct config config;
static struct sim_machines hosts;

/* `count`: number of stages, each with two threads. */
static void config_read(const char *pool, const char *stages, int count, bool profile)
{
    char text[1024];
    struct error error = {""};
    bool mixed = strcmp(pool, "mixed") == 0;
    snprintf(text, sizeof(text),
             "{%s\"pools\": {\"%s\": [\"a\"]%s}, \"machines\": {\"a\": {\"threads\": %d, "
             "\"stages\": %s}%s}}",
             profile ? "\"profile\": \"p.json\", " : "", pool,
             mixed                        ? ""
             : strcmp(pool, "token") == 0 ? ", \"prompt\": [\"b\"]"
                                          : ", \"token\": [\"b\"]",
             2 * count, stages, mixed ? "" : ", \"b\": {\"threads\": 2}");
    CHECKF(config_parse(text, strlen(text), scratch_path("c.json"), &config, &error) == ST_OK, "%s",
           error.text);
}

/* The vocabulary has as many weights as two layers. */
static const struct model_hyper hyper = {.layer_count = 3,
                                         .hidden = 64,
                                         .ffn = 256,
                                         .head_count = 4,
                                         .kv_head_count = 4,
                                         .head_dim = 16,
                                         .vocab = 2048};

static void compare(const char *pool, const char *stages, int count, bool profile)
{
    struct stage_plan plan;
    struct error error = {""};
    const struct sim_machine_facts *host = NULL;
    config_read(pool, stages, count, profile);
    const struct config_machine *entry = &config.machines[config_machine_find(&config, "a")];
    CHECKF(stage_plan_make(&config, entry, &hyper, 0xdeadbeef, &plan, &error) == ST_OK, "%s",
           error.text);
    hosts.count = 0;
    CHECKF(sim_machines_of_config(&hosts, &config, &error) == ST_OK, "%s", error.text);
    for (uint32_t i = 0; i < hosts.count; i++)
        host = strcmp(hosts.machines[i].name, "a") == 0 ? &hosts.machines[i] : host;
    CHECK(host != NULL && host->cost.stage_count == plan.stage_count);
    for (uint32_t i = 0; i < plan.process_count; i++)
        CHECKF(host->cost.stages[plan.processes[i].stage].first == plan.processes[i].first_layer &&
                   host->cost.stages[plan.processes[i].stage].end == plan.processes[i].end_layer,
               "%s %s: stage %u is %u to %u, the simulation's %u to %u", pool, stages,
               plan.processes[i].stage, plan.processes[i].first_layer, plan.processes[i].end_layer,
               host->cost.stages[plan.processes[i].stage].first,
               host->cost.stages[plan.processes[i].stage].end);
    CHECK(host->micro_batch_tokens == plan.micro_batch_tokens &&
          (plan.micro_batch_tokens > 0) == profile);
}

int main(void)
{
    static const char *const pools[] = {"prompt", "token", "mixed"};
    struct error error = {""};
    CHECK(mkdtemp(scratch) != NULL);
    scratch_write("p.json", profile_example);
    CHECK(profile_load(scratch_path("p.json"), &hosts.profile, &error) == ST_OK);
    CHECK(hosts.profile->model.vocabulary_layers == 0.5); /* By its bytes: the file says nothing. */
    hosts.profile->model.vocabulary_layers = model_vocabulary_layers(&hyper);
    CHECKF(hosts.profile->model.vocabulary_layers == 2, "%g",
           hosts.profile->model.vocabulary_layers);
    hosts.context_tokens = 2048;
    for (uint32_t i = 0; i < 3; i++)
        for (int profile = 0; profile <= 1; profile++) {
            compare(pools[i], "2", 2, profile);
            compare(pools[i], "3", 3, profile);
            compare(pools[i],
                    "[{\"threads\": 2, \"layers\": \"0-0\"}, {\"threads\": 2, "
                    "\"layers\": \"1-2\"}]",
                    2, profile);
        }
    sim_machines_done(&hosts);
    CHECK(unlink(scratch_path("p.json")) == 0 && rmdir(scratch) == 0);
    return 0;
}
