/* Goal: head and stages make the same plan from config and model: every layer has one stage, every
 * path has one stage process (or its ranks) in each stage, and a config that does not fit is
 * refused with the machine's name and the value. Method: every even split of models of several
 * depths; configs with named layers, replicas and speeds, with plans computed by hand; configs that
 * need more than the model or the limits allow. */
#include "machine/executor/stage_plan.h"
#include "tests/check.h"

#include <string.h>

static struct model_hyper hyper_of(uint32_t layers, uint32_t vocab)
{
    return (struct model_hyper){.layer_count = layers,
                                .hidden = 576,
                                .ffn = 1536,
                                .head_count = 9,
                                .kv_head_count = 3,
                                .head_dim = 64,
                                .vocab = vocab};
}

/* Makes the plan of machine "a0" in this pool. */
static enum status plan(const char *pool, const char *stages, uint32_t layers, uint32_t vocab,
                        struct stage_plan *out, struct error *error)
{
    static struct config config;
    char text[4096];
    struct model_hyper hyper = hyper_of(layers, vocab);
    bool mixed = strcmp(pool, "mixed") == 0;
    snprintf(text, sizeof(text),
             "{\"pools\": {\"%s\": [\"a0\"]%s%s%s}, \"machines\": {\"a0\": {\"stages\": %s}}}",
             pool, mixed ? "" : ", \"",
             mixed                        ? ""
             : strcmp(pool, "token") == 0 ? "prompt"
                                          : "token",
             mixed ? "" : "\": [\"b0\"]", stages);
    enum status status = config_parse(text, strlen(text), "test", &config, error);
    CHECKF(status == ST_OK, "%s: %s", text, error->text);
    const struct config_machine *entry = &config.machines[config_machine_find(&config, "a0")];
    return stage_plan_make(&config, entry, &hyper, 1, out, error);
}

/* Checks which process sends activations to which on a path: each rank of a later stage receives
 * them from exactly one process. A process that sends them to no other process reports DONE.
 * Exactly one process samples. */
static void check_gives(const struct stage_plan *p, uint32_t path)
{
    const uint64_t processes = stage_plan_processes(p, path);
    const uint64_t enders = stage_plan_done_senders(p, path);
    uint32_t samplers = 0;
    CHECK((enders & ~processes) == 0);
    for (uint32_t i = 0; i < p->process_count; i++) {
        uint32_t to = 0, from = 0;
        if ((processes >> i & 1) == 0)
            continue;
        for (uint32_t j = 0; j < p->process_count; j++) {
            if ((processes >> j & 1) == 0)
                continue;
            to += stage_plan_sends(p, i, j);
            from += stage_plan_sends(p, j, i);
        }
        CHECK(from == (p->processes[i].stage > 0 ? 1 : 0) && ((enders >> i & 1) != 0) == (to == 0));
        samplers += stage_plan_samples(p, i);
        CHECK(!stage_plan_samples(p, i) || (enders >> i & 1) != 0);
    }
    CHECK(samplers == 1);
}

/* Checks the properties that every process relies on. */
static void check_whole(const struct stage_plan *p, uint32_t layers)
{
    uint32_t end = 0;
    CHECK(p->processes[0].first_layer == 0 &&
          p->processes[p->process_count - 1].end_layer == layers);
    for (uint32_t i = 0; i < p->process_count; i++) {
        const struct stage_plan_process *at = &p->processes[i];
        CHECK(at->end_layer > at->first_layer && at->paths != 0);
        CHECK(at->shard.rank == at->config.rank && at->shard.rank_count == at->config.ranks);
        if (at->shard.rank > 0) {
            const struct stage_plan_process *before = &p->processes[i - 1];
            CHECK(before->shard.rank + 1 == at->shard.rank && before->paths == at->paths &&
                  before->stage == at->stage && before->replica == at->replica &&
                  before->first_layer == at->first_layer && before->end_layer == at->end_layer);
        } else if (at->replica == 0) {
            CHECK(at->first_layer == end);
            end = at->end_layer;
        } else {
            CHECK(at->first_layer == p->processes[i - 1].first_layer && at->end_layer == end);
        }
    }
    for (uint32_t path = 0; path < p->paths.path_count; path++) {
        for (uint32_t stage = 0; stage < p->stage_count; stage++) {
            uint32_t found = 0, ranks = 0;
            for (uint32_t i = 0; i < p->process_count; i++) {
                if (p->processes[i].stage != stage || (p->processes[i].paths >> path & 1) == 0)
                    continue;
                ranks = p->processes[i].shard.rank_count;
                CHECK(p->processes[i].shard.rank == found);
                found++;
            }
            CHECKF(found == ranks, "path %u has %u stage processes in stage %u", path, found,
                   stage);
        }
        check_gives(p, path);
    }
    CHECK(stage_plan_slot_count(p) == p->paths.path_count * p->batches_in_flight);
    CHECK(stage_plan_slot_count(p) <= LIMIT_BATCHES_IN_FLIGHT && p->batches_in_flight >= 1);
}

static void test_even(void)
{
    struct stage_plan p;
    struct error error;
    char number[16];
    for (uint32_t layers = 2; layers <= 96; layers += 1 + layers / 4)
        for (uint32_t count = 2; count <= layers && count <= LIMIT_STAGE_PROCESSES; count++) {
            uint32_t least = layers, most = 0;
            snprintf(number, sizeof(number), "%u", count);
            /* A prompt machine does not count the vocabulary. */
            CHECK(plan("prompt", number, layers, 49152, &p, &error) == ST_OK);
            check_whole(&p, layers);
            CHECK(p.process_count == count && p.stage_count == count && p.paths.path_count == 1);
            for (uint32_t i = 0; i < count; i++) {
                uint32_t has = p.processes[i].end_layer - p.processes[i].first_layer;
                least = has < least ? has : least;
                most = has > most ? has : most;
            }
            CHECK(most - least <= 1);
            CHECK(plan("token", number, layers, 49152, &p, &error) == ST_OK);
            check_whole(&p, layers);
        }
    /* The vocabulary has 28.3 million weights and a layer 3.5 million: it counts as 8 layers. */
    CHECK(plan("token", "2", 30, 49152, &p, &error) == ST_OK);
    CHECK(p.processes[0].end_layer == 19);
    CHECK(plan("mixed", "2", 30, 49152, &p, &error) == ST_OK);
    CHECK(p.processes[0].end_layer == 19);
    CHECK(plan("token", "2", 30, 0, &p, &error) == ST_OK);
    CHECK(p.processes[0].end_layer == 15);
    CHECK(plan("token", "1", 30, 49152, &p, &error) == ST_OK);
    CHECK(p.process_count == 0);
    /* The stage is a separate process. */
    CHECK(plan("token", "[{}]", 30, 49152, &p, &error) == ST_OK);
    CHECK(p.process_count == 1 && p.batches_in_flight == 1);
    check_whole(&p, 30);
}

static void test_named(void)
{
    struct stage_plan p;
    struct error error;
    char name[LIMIT_NAME_BYTES];
    CHECK(plan("prompt",
               "[{\"layers\": \"0-0\"}, {\"layers\": \"1-21\", \"threads\": 3}, {\"layers\": "
               "\"22-29\"}]",
               30, 49152, &p, &error) == ST_OK);
    check_whole(&p, 30);
    CHECK(p.stage_count == 3 && p.processes[1].config.threads == 3 &&
          p.processes[2].first_layer == 22);
    /* The first replica gets two of three requests. */
    CHECK(plan("token",
               "[{\"layers\": \"0-9\", \"speed\": 100}, {\"layers\": \"0-9\", \"speed\": 50}, "
               "{\"layers\": \"10-29\"}]",
               30, 49152, &p, &error) == ST_OK);
    check_whole(&p, 30);
    CHECK(p.process_count == 3 && p.stage_count == 2 && p.paths.path_count == 2);
    CHECK(p.processes[1].replica == 1 && p.processes[1].stage == 0 && p.processes[2].stage == 1);
    CHECK(p.processes[2].paths == 3 && (p.processes[0].paths ^ p.processes[1].paths) == 3);
    uint32_t taken[2] = {0};
    struct sched_paths paths = p.paths;
    for (int i = 0; i < 300; i++)
        taken[(p.processes[1].paths >> sched_paths_next(&paths)) & 1]++;
    CHECK(taken[0] == 200 && taken[1] == 100);
    /* Two replicas, then four: each of the four is paired with one of the two. */
    CHECK(plan("mixed",
               "[{\"layers\": \"0-4\"}, {\"layers\": \"0-4\"}, {\"layers\": \"5-9\"}, {\"layers\": "
               "\"5-9\"}, "
               "{\"layers\": \"5-9\"}, {\"layers\": \"5-9\"}]",
               10, 49152, &p, &error) == ST_OK);
    check_whole(&p, 10);
    CHECK(p.paths.path_count == 4 && p.stage_count == 2);
    stage_name("t0", 11, name);
    CHECK(strcmp(name, "t0/11") == 0);
}

static void refuse(const char *stages, uint32_t layers, enum status want, const char *part)
{
    struct stage_plan p;
    struct error error;
    enum status status = plan("token", stages, layers, 49152, &p, &error);
    CHECKF(status == want, "%s: status %d", stages, status);
    CHECKF(strstr(error.text, "machines/a0/stages") != NULL && strstr(error.text, part) != NULL,
           "want \"%s\" in \"%s\"", part, error.text);
}

static void test_refused(void)
{
    char text[2048] = "[";
    refuse("4", 3, ST_INVALID, "4 stages, the model has 3 layers");
    refuse("64", 30, ST_INVALID, "64 stages, the model has 30 layers");
    refuse("[{\"layers\": \"0-9\"}, {\"layers\": \"10-28\"}]", 30, ST_INVALID,
           "/1/layers: the last one is 28, the model's is 29");
    refuse("[{\"layers\": \"0-9\"}, {\"layers\": \"10-30\"}]", 30, ST_INVALID,
           "the last one is 30");
    for (int i = 0; i < 7; i++)
        strcat(text, "{\"layers\": \"0-4\"}, ");
    refuse(strcat(text, "{\"layers\": \"5-9\"}, {\"layers\": \"5-9\"}, {\"layers\": \"5-9\"}]"), 10,
           ST_TOO_LARGE, "more than 16 paths");
}

/* 16 paths through 5 stages would need 80 batches. */
static void test_many(void)
{
    struct stage_plan p;
    struct error error;
    char text[2048] = "[";
    for (int i = 0; i < 16; i++)
        strcat(text, "{\"layers\": \"0-0\"}, ");
    strcat(text, "{\"layers\": \"1-1\"}, {\"layers\": \"2-2\"}, {\"layers\": \"3-3\"}, "
                 "{\"layers\": \"4-4\"}]");
    CHECK(plan("prompt", text, 5, 49152, &p, &error) == ST_OK);
    check_whole(&p, 5);
    CHECK(p.paths.path_count == 16 && p.batches_in_flight == 4);
}

/* Every number of stages with every number of ranks, equal and mixed. */
static void test_ranks(void)
{
    struct stage_plan p;
    struct error error;
    char text[2048];
    char place[STAGE_PLAN_PROCESS_TEXT_BYTES];
    for (uint32_t seed = 0; seed < 200; seed++) {
        uint32_t count = 1 + seed % 6, ranks = 0;
        strcpy(text, "[");
        for (uint32_t i = 0; i < count; i++) {
            uint32_t degree = 1 + (seed >> i ^ i * 5) % 3;
            ranks += degree;
            snprintf(text + strlen(text), 40, "%s{\"tensor_parallel\": %u}", i > 0 ? ", " : "",
                     degree);
        }
        strcat(text, "]");
        CHECKF(plan("token", text, 30, 49152, &p, &error) == ST_OK, "%s: %s", text, error.text);
        check_whole(&p, 30);
        CHECK(p.process_count == ranks && p.stage_count == count && p.paths.path_count == 1);
        CHECK(p.batches_in_flight == (count > 1 ? count + 1 : 1));
    }
    /* Layers are divided by the speed of a stage's ranks together: 15 + 3.75 against 11.25 + the
     * share of the vocabulary. */
    CHECK(plan("prompt", "[{\"tensor_parallel\": 3}, {}]", 28, 49152, &p, &error) == ST_OK);
    check_whole(&p, 28);
    CHECK(p.processes[0].end_layer == 21);
    /* Replicas with different tensor parallelism: 3 ranks and 1 rank, before 2 ranks to which both
     * send. */
    CHECK(plan("token",
               "[{\"layers\": \"0-9\", \"tensor_parallel\": 3}, {\"layers\": \"0-9\"}, "
               "{\"layers\": \"10-29\", \"tensor_parallel\": 2}]",
               30, 49152, &p, &error) == ST_OK);
    check_whole(&p, 30);
    CHECK(p.process_count == 6 && p.stage_count == 2 && p.paths.path_count == 2);
    CHECK(p.processes[2].replica == 0 && p.processes[3].replica == 1 && p.processes[4].stage == 1);
    CHECK(stage_plan_sends(&p, 1, 5) && !stage_plan_sends(&p, 2, 5) && stage_plan_sends(&p, 3, 5));
    stage_plan_process_text(&p.processes[5], place);
    CHECK(strcmp(place, "layers 10 to 29 (rank 1 of 2)") == 0);
    stage_plan_process_text(&p.processes[3], place);
    CHECK(strcmp(place, "layers 0 to 9") == 0);
    refuse("[{\"tensor_parallel\": 4}]", 30, ST_INVALID,
           "/0: tensor parallelism of 4 ranks: the "
           "model has 3 KV heads");
}

int main(void)
{
    test_even();
    test_named();
    test_ranks();
    test_refused();
    test_many();
    return 0;
}
