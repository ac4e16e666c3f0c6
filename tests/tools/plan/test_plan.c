/* Goal: `cleave plan` finds the best mix of a small budget, gives the same bytes for any number of
 * workers and after any interruption, writes a config that a gateway reads, and has one clear error
 * for each mistake. Method: every split at every rate, simulated to the end, compared with the
 * result of the search; runs that end early compared with whole ones; a journal cut at every other
 * position; arguments with one mistake each. */
#include "tools/plan/failures.h"
#include "tools/plan/main.h"
#include "tools/plan/print.h"
#include "tools/plan/setup.h"

#include "config/config.h"
#include "tests/check.h"
#include "tests/profile/profile_example.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

static char scratch[] = "/tmp/test_plan.XXXXXX";
static char table_path[1024];
static char lengths_path[1024];
static char hardware_paths[3][1024];

static const char *scratch_path(const char *name)
{
    static char paths[4][400];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof(paths[0]), "%s/%.300s", scratch, name);
    return path;
}

static void file_write(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    CHECK(file != NULL);
    fputs(text, file);
    CHECK(fclose(file) == 0);
}

static void paths_make(void)
{
    const char *source = getenv("CLEAVE_SOURCE");
    static const char *const kinds[] = {"a100", "h100", "h100-capped"};
    CHECK(source != NULL && mkdtemp(scratch) != NULL);
    snprintf(table_path, sizeof(table_path), "%s/tests/data/splitwise/perf_model.csv", source);
    snprintf(lengths_path, sizeof(lengths_path), "%s", scratch_path("lengths.csv"));
    for (int i = 0; i < 3; i++)
        snprintf(hardware_paths[i], sizeof(hardware_paths[0]), "%s/deploy/hardware/%s.json", source,
                 kinds[i]);
    FILE *file = fopen(lengths_path, "w");
    CHECK(file != NULL);
    fputs("arrival_timestamp,prompt_size,token_size\n", file);
    for (int i = 0; i < 200; i++)
        fprintf(file, "%d,%d,%d\n", i, 50 + i * i % 1900, 1 + 7 * i % 150);
    CHECK(fclose(file) == 0);
}

/* ---- a plan in memory ---- */

struct plan {
    struct plan_options options;
    struct plan_setup setup;
    struct plan_memo memo;
    struct plan_search search;
    char *json; /* The results as JSON. */
};

static const char *const usual[] = {
    "--lengths",       lengths_path, "--table",         table_path,   "--hardware",
    hardware_paths[0], "--hardware", hardware_paths[1], "--duration", "20",
    "--step",          "1",          "--rate-most",     "12"};
#define USUAL_COUNT (sizeof(usual) / sizeof(usual[0]))

/* Sets up a plan with the usual arguments and `more`, which ends with NULL. */
static enum status plan_setup_try(struct plan *p, const char *const *more, struct error *error)
{
    char *argv[64] = {"plan"};
    int argc = 1;
    for (size_t i = 0; i < USUAL_COUNT; i++)
        argv[argc++] = (char *)usual[i];
    for (; *more != NULL; more++)
        argv[argc++] = (char *)*more;
    memset(p, 0, sizeof(*p));
    enum status status = options_read(&plan_options_table, argc, argv, &p->options, error);
    return status == ST_OK ? plan_setup_read(&p->options, &p->setup, error) : status;
}

static void plan_find(struct plan *p, uint32_t workers, const char *state)
{
    struct error error;
    p->search = (struct plan_search){.inputs = &p->setup.inputs,
                                     .memo = &p->memo,
                                     .step_per_s = p->options.step_per_s,
                                     .rate_max = p->setup.rate_max,
                                     .machines_max = (uint32_t)p->options.machines_max,
                                     .all_boundaries = p->options.all_boundaries,
                                     .worker_count = workers,
                                     .cell_count = p->setup.cell_count,
                                     .cells = p->setup.cells};
    CHECKF(plan_memo_open(&p->memo, state, p->setup.inputs_hash, &error) == ST_OK, "%s",
           error.text);
    CHECKF(plan_search_run(&p->search, &error) == ST_OK, "%s", error.text);
    json_t *json = plan_json(&p->search);
    p->json = json_dumps(json, JSON_INDENT(1));
    json_decref(json);
}

static struct plan *plan_new(const char *const *more, uint32_t workers, const char *state)
{
    struct error error;
    struct plan *p = calloc(1, sizeof(*p));
    CHECK(p != NULL);
    CHECKF(plan_setup_try(p, more, &error) == ST_OK, "%s", error.text);
    plan_find(p, workers, state);
    return p;
}

static void plan_free(struct plan *p)
{
    struct error error;
    plan_search_done(&p->search);
    CHECK(plan_memo_close(&p->memo, "state", &error) == ST_OK);
    plan_setup_done(&p->setup);
    free(p->json);
    free(p);
}

static bool met(const struct plan *p, const struct plan_mix *mix, double rate)
{
    struct plan_outcome whole;
    struct error error;
    bool brief;
    CHECKF(plan_try(&p->setup.inputs, mix, rate, &whole, &error) == ST_OK, "%s", error.text);
    CHECK(plan_try_meets(&p->setup.inputs, mix, rate, &brief, &error) == ST_OK);
    CHECKF(brief == whole.met, "%u + %u at %g: %d, whole %d", mix->prompt_count, mix->token_count,
           rate, brief, whole.met);
    CHECK(whole.met == (whole.worst_ratio < 1) || whole.totals.unended_requests > 0);
    CHECK(whole.totals.requests + whole.totals.unended_requests ==
          plan_requests_count(&p->setup.inputs.requests, rate));
    return whole.met;
}

/* ---- against every split at every rate ---- */

#define RATES 12

/* Checks that the search's result for a split is at the rate where requests begin to be late.
 * Returns the highest rate that meets the SLO; 0 = there is no single such rate, because a rate may
 * miss the SLO and a higher one meet it. */
static uint32_t point_check(const struct plan *p, const struct plan_cell *cell,
                            const struct plan_point *point)
{
    const struct plan_mix mix = {cell->prompt_kind, cell->token_kind, point->prompts, point->tokens,
                                 0};
    bool meets[RATES + 2] = {true};
    uint32_t count = 0;
    uint32_t last = 0;
    for (uint32_t rate = 1; rate <= RATES; rate++) {
        meets[rate] = met(p, &mix, rate);
        count += meets[rate];
        last = meets[rate] ? rate : last;
    }
    CHECKF(point->state != PLAN_SOLVED || (meets[point->boundary] && !meets[point->boundary + 1]),
           "%s, %u + %u: %u", cell->name, mix.prompt_count, mix.token_count, point->boundary);
    return count == last ? last : 0;
}

static void budget(void)
{
    static const char *const more[] = {"--fixed", "cost=120", "--slo", "2.5/4/8,1.6/2/6,1.6/2/6",
                                       NULL};
    struct plan *p = plan_new(more, 2, NULL);
    CHECK(p->search.cell_count == 6); /* Two kinds alone, and four pairs of kinds. */
    uint32_t rates = 0;
    for (uint32_t c = 0; c < p->search.cell_count; c++) {
        const struct plan_cell *cell = &p->search.cells[c];
        for (uint32_t i = 0; i < cell->point_count; i++) {
            const struct plan_point *point = &cell->points[i];
            const struct plan_mix mix = {cell->prompt_kind, cell->token_kind, point->prompts,
                                         point->tokens, 0};
            struct plan_mix larger = mix;
            *(cell->split ? &larger.token_count : &larger.prompt_count) += 1;
            CHECK(plan_mix_amount(&p->setup.inputs, &mix, PLAN_COST) <= 120);
            CHECK(plan_mix_amount(&p->setup.inputs, &larger, PLAN_COST) > 120);
            uint32_t rate = point_check(p, cell, point);
            CHECKF(rate <= cell->best_rate_per_s, "%s, %u + %u: %u, best %g", cell->name,
                   mix.prompt_count, mix.token_count, rate, cell->best_rate_per_s);
            rates += rate > 0;
        }
        CHECK(cell->found && met(p, &cell->best, cell->best_rate_per_s));
    }
    CHECK(rates > 10);
    plan_free(p);
}

static void fixed_rate(void)
{
    static const char *const more[] = {"--fixed", "rate=4",          "--machines-most",
                                       "9",       "--clusters=a100", "--clusters=h100+a100",
                                       NULL};
    struct plan *p = plan_new(more, 2, NULL);
    CHECK(p->search.cell_count == 2);
    for (uint32_t c = 0; c < 2; c++) {
        const struct plan_cell *cell = &p->search.cells[c];
        double least = 1e9;
        for (uint32_t prompts = 1; prompts <= 9; prompts++)
            for (uint32_t tokens = cell->split ? 1 : 0; prompts + tokens <= 9; tokens++) {
                const struct plan_mix mix = {cell->prompt_kind, cell->token_kind, prompts, tokens,
                                             0};
                double cost = plan_mix_amount(&p->setup.inputs, &mix, PLAN_COST);
                if ((cell->split || tokens == 0) && cost < least && met(p, &mix, 4))
                    least = cost;
            }
        CHECKF(cell->found == (least < 1e9), "%s", cell->name);
        double found = plan_mix_amount(&p->setup.inputs, &cell->best, PLAN_COST);
        CHECKF(!cell->found || found == least, "%s: %g, want %g", cell->name, found, least);
        CHECK(cell->found && met(p, &cell->best, 4));
    }
    plan_free(p);
}

/* The paper's clusters, and the README's rule for A100 machines beside h H100 machines. */
static void budgets_of_the_paper(void)
{
    static const char *const more[] = {"--fixed",    "iso-power",  "--fixed",
                                       "iso-cost",   "--hardware", hardware_paths[2],
                                       "--clusters", "paper",      NULL};
    struct plan *p = calloc(1, sizeof(*p));
    struct error error;
    CHECK(p != NULL);
    CHECKF(plan_setup_try(p, more, &error) == ST_OK, "%s", error.text);
    CHECK(p->setup.cell_count == 12);
    const double budgets[] = {1760, 1523.2};
    for (uint32_t c = 0; c < 12; c++)
        CHECK(fabs(p->setup.cells[c].amount - budgets[c / 6]) < 1e-9 &&
              p->setup.cells[c].fixed == (c < 6 ? PLAN_POWER : PLAN_COST));
    p->setup.cell_count = 0; /* Only the splits matter here. */
    for (uint32_t c = 0; c < 12; c++) {
        CHECK(strcmp(p->setup.cells[c].name, p->setup.cells[c % 6].name) == 0);
        CHECK(p->setup.cells[c].split == (c % 6 >= 2));
    }
    plan_setup_done(&p->setup);
    free(p);
}

/* ---- the same bytes ---- */

static void state_cut(const char *from, const char *to, long bytes)
{
    char text[32768];
    FILE *in = fopen(from, "r");
    FILE *out = fopen(to, "w");
    CHECK(in != NULL && out != NULL);
    size_t all = fread(text, 1, sizeof(text), in);
    CHECK(feof(in) && (long)all > bytes);
    CHECK(fwrite(text, 1, (size_t)bytes, out) == (size_t)bytes);
    fclose(in);
    CHECK(fclose(out) == 0);
}

static void same_bytes(void)
{
    static const char *const more[] = {"--fixed", "machines=4", "--full", NULL};
    char whole[400];
    snprintf(whole, sizeof(whole), "%s", scratch_path("state"));
    struct plan *first = plan_new(more, 1, whole);
    CHECK(first->memo.entries_read == 0);
    for (uint32_t workers = 2; workers <= 5; workers += 3) {
        struct plan *p = plan_new(more, workers, NULL);
        CHECK(strcmp(p->json, first->json) == 0);
        plan_free(p);
    }
    uint64_t tried = first->memo.count;
    CHECK(tried > 30);
    for (long bytes = 30; bytes < 450; bytes += 67) {
        char part[400];
        snprintf(part, sizeof(part), "%s", scratch_path("part"));
        state_cut(whole, part, bytes);
        struct plan *p = plan_new(more, 2, part);
        CHECK(p->memo.entries_read < tried && p->memo.count == tried);
        CHECK(strcmp(p->json, first->json) == 0);
        plan_free(p);
        p = plan_new(more, 2, part); /* The files that the new plan wrote are complete. */
        CHECK(p->memo.entries_read == tried && strcmp(p->json, first->json) == 0);
        plan_free(p);
    }
    plan_free(first);
}

static void state_refused(void)
{
    static const char *const more[] = {"--fixed", "machines=3", NULL};
    struct plan *p = plan_new(more, 1, NULL);
    struct plan_memo memo;
    struct error error;
    FILE *file = fopen(scratch_path("bad"), "w");
    CHECK(file != NULL);
    fprintf(file, "cleave-plan 2 %016llx\n0 0 2 1 0 5 1\n0 0 x\n", 77ull);
    CHECK(fclose(file) == 0);
    CHECK(plan_memo_open(&memo, scratch_path("bad"), 77, &error) == ST_INVALID);
    CHECKF(strstr(error.text, "bad:3: not a line of a plan's state") != NULL, "%s", error.text);
    CHECK(plan_memo_open(&memo, scratch_path("bad"), 78, &error) == ST_MISMATCH);
    CHECKF(strstr(error.text, "the state of another plan") != NULL, "%s", error.text);
    CHECK(plan_memo_open(&memo, lengths_path, 77, &error) == ST_INVALID);
    CHECKF(strstr(error.text, "lengths.csv:1: not the state of a plan") != NULL, "%s", error.text);
    plan_free(p);
}

/* ---- the config ---- */

static void config(void)
{
    static const char *const more[] = {"--fixed", "machines=5", "--clusters", "h100+a100", NULL};
    struct plan *p = plan_new(more, 1, NULL);
    struct error error;
    const struct plan_cell *best = plan_best_cell(&p->search);
    CHECK(best == &p->search.cells[0]);
    CHECKF(plan_config_write(&p->search, best, scratch_path("c.json"), &error) == ST_OK, "%s",
           error.text);
    struct config *config = calloc(1, sizeof(*config));
    CHECK(config != NULL && config_load(scratch_path("c.json"), config, &error) == ST_OK);
    uint32_t prompts = 0;
    CHECK(config->machine_count == 5);
    for (uint32_t i = 0; i < 5; i++)
        prompts += config->machines[i].pool == POOL_PROMPT;
    CHECK(prompts == best->best.prompt_count && best->best.token_count == 5 - prompts);
    CHECK(strcmp(config->machines[0].name, "h100-prompt-0") == 0);
    /* The options of the simulation. */
    CHECK(config->scheduler.prompt_queue_threshold_tokens == 8192 &&
          config->scheduler.prompt_queue_threshold_ms == 0 && config->scheduler.adaptive_pools);
    CHECK(config->scheduler.prompt_batch_tokens == 2048 &&
          config->scheduler.prompt_fill_tokens == 2048 &&
          config->scheduler.batch_sequences_max == 512);
    CHECK(!config->scheduler.compare_time && config->scheduler.machine_pending_ms == 0 &&
          config->scheduler.repurpose_window_ms == 0);
    CHECK(strcmp(config->scheduler.placement, "split") == 0);
    CHECK(plan_config_write(&p->search, best, "/no/such/folder", &error) == ST_IO);
    free(config);
    plan_free(p);
}

/* ---- times of a profile ---- */

/* A small profile with two threads: prompts of 50 to 1950 tokens take 0.2 to 9 ms. */
/* Failures cost goodput and tokens; without them there are none of their costs. */
static void failures(struct plan *p)
{
    struct error error = {""};
    CHECKF(plan_failures_run(&p->search, 0.5, 0.1, &error) == ST_OK, "%s", error.text);
    for (uint32_t c = 0; c < 2; c++) {
        const struct plan_cell *cell = &p->search.cells[c];
        const struct plan_goodput *whole = &cell->goodput[PLAN_GOODPUT_NO_FAILURES];
        const struct plan_goodput *fails = &cell->goodput[PLAN_GOODPUT_FAILURES];
        const struct plan_goodput *copies = &cell->goodput[PLAN_GOODPUT_CHECKPOINTS];
        CHECK(whole->known && whole->failures == 0 && whole->affected == 0 &&
              whole->recomputed_tokens == 0 && whole->copied_bytes == 0 && whole->pause_s_p99 == 0);
        /* All nine limits are met, so 99 of 100 requests are below those of P99. */
        CHECKF(whole->good >= 0.98 * (double)cell->outcome.totals.requests, "%llu good",
               (unsigned long long)whole->good);
        CHECK(fails->known && fails->failures > 0 && fails->affected > 0 &&
              fails->recomputed_tokens > 0 && fails->copied_bytes == 0);
        CHECKF(fails->good_per_s < whole->good_per_s, "%g and %g", fails->good_per_s,
               whole->good_per_s);
        CHECK(copies->known && copies->failures > 0);
    }
    json_t *json = plan_json(&p->search);
    char *text = json_dumps(json, JSON_INDENT(1));
    CHECK(strstr(text, "\"failures_checkpoint_idle\": {") != NULL);
    free(text);
    json_decref(json);
}

static void profile(void)
{
    static char profile_path[400];
    static char cpu_path[400];
    snprintf(profile_path, sizeof(profile_path), "%s", scratch_path("profile.json"));
    snprintf(cpu_path, sizeof(cpu_path), "%s", scratch_path("cpu.json"));
    file_write(profile_path, profile_example);
    file_write(cpu_path, "{\"name\": \"two\", \"device\": \"cpu\", \"threads\": 2, "
                         "\"kv_memory_bytes\": 8000000}");
    char *argv[] = {"plan",
                    "--lengths",
                    lengths_path,
                    "--profile",
                    profile_path,
                    "--hardware",
                    cpu_path,
                    "--duration=3",
                    "--step=40",
                    "--rate-most=480",
                    "--fixed=machines=3",
                    "--tier=memory:0.5:10:20",
                    "--tier=file:2:1:300",
                    "--acceptance=0.9",
                    "--draft-tokens=5",
                    "--slo=9/20/40,9/20/40,9/20/40"};
    struct plan *p = calloc(1, sizeof(*p));
    struct error error = {""};
    int argc = sizeof(argv) / sizeof(argv[0]);
    CHECK(p != NULL && options_read(&plan_options_table, argc, argv, &p->options, &error) == ST_OK);
    CHECKF(plan_setup_read(&p->options, &p->setup, &error) == ST_OK, "%s", error.text);
    plan_find(p, 2, NULL);
    CHECK(p->search.cell_count == 2);
    for (uint32_t c = 0; c < 2; c++) {
        const struct plan_cell *cell = &p->search.cells[c];
        CHECKF(cell->found && met(p, &cell->best, cell->best_rate_per_s), "%s", cell->name);
        CHECK(cell->best_rate_per_s == 480 || !met(p, &cell->best, cell->best_rate_per_s + 40));
    }
    failures(p);
    /* An idle machine of the same kind is the fastest possible one. */
    const struct plan_mix one = {.prompt_count = 1};
    struct plan_outcome slow;
    CHECK(plan_try(&p->setup.inputs, &one, 1, &slow, &error) == ST_OK);
    CHECKF(slow.slo.slowdowns[SLO_TTFT][0] >= 1, "%g", slow.slo.slowdowns[SLO_TTFT][0]);
    const double with = slow.ms[SLO_TBT][0]; /* With drafts, which shorten the gaps. */
    p->setup.inputs.draft_right = 0;
    CHECK(plan_try(&p->setup.inputs, &one, 1, &slow, &error) == ST_OK);
    CHECKF(with < 0.9 * slow.ms[SLO_TBT][0], "%g, %g ms", with, slow.ms[SLO_TBT][0]);
    struct config *config = calloc(1, sizeof(*config));
    CHECK(config != NULL);
    CHECKF(plan_config_write(&p->search, &p->search.cells[1], scratch_path("c.json"), &error) ==
               ST_OK,
           "%s", error.text);
    CHECK(config_load(scratch_path("c.json"), config, &error) == ST_OK);
    CHECK(config->machine_count == 3 && config->machines[2].threads == 2 &&
          config->machines[2].kv_memory_bytes == 8000000);
    CHECK(strcmp(config->scheduler.policy, "jsq") == 0 &&
          config->scheduler.speculative_tokens == 5);
    CHECK(config->kv.tiers.memory.bytes == 512u << 20 && config->kv.tiers.file.bytes == 2u << 30 &&
          config->kv.tiers.store.servers[0] == 0);
    /* With memory for the whole model, KV gets the memory that the weights leave. A long name is
     * cut. */
    struct hardware *hardware = &p->setup.inputs.kinds[0].hardware;
    hardware->kv_memory_bytes = 0;
    hardware->memory_bytes = profile_stage_weight_bytes(p->setup.inputs.profile, 0, 3) + 7000000;
    snprintf(hardware->name, sizeof(hardware->name), "a-machine-whose-name-is-so-long");
    CHECKF(plan_config_write(&p->search, &p->search.cells[1], scratch_path("c.json"), &error) ==
               ST_OK,
           "%s", error.text);
    CHECK(config_load(scratch_path("c.json"), config, &error) == ST_OK);
    CHECK(config->machines[2].kv_memory_bytes == 7000000);
    CHECK(strcmp(config->machines[0].name, "a-machine-whose--prompt-0") == 0);
    free(config);
    plan_free(p);
}

/* ---- the report ---- */

/* The report is complete, and its texts are escaped. Without gnuplot it says so. */
static void report(void)
{
    char svg_path[400];
    snprintf(svg_path, sizeof(svg_path), "%s", scratch_path("p.svg"));
    char *plot[] = {"plan",
                    "--lengths",
                    lengths_path,
                    "--table",
                    table_path,
                    "--hardware",
                    hardware_paths[1],
                    "--fixed=machines=3",
                    "--step=1",
                    "--rate-most=12",
                    "--duration=10",
                    "--plot",
                    svg_path,
                    NULL};
    static const char *const more[] = {"--fixed", "machines=3", "--clusters", "h100+a100", NULL};
    static char text[1u << 20];
    char *command[] = {"plan", "--lengths", "<&>.csv"};
    struct error error;
    struct plan *p = plan_new(more, 1, NULL);
    for (int gnuplot = 1; gnuplot >= 0; gnuplot--) {
        if (!gnuplot)
            CHECK(setenv("PATH", scratch, 1) == 0);
        CHECKF(plan_html_write(&p->search, 3, command, scratch_path("r.html"), &error) == ST_OK,
               "%s", error.text);
        FILE *file = fopen(scratch_path("r.html"), "r");
        CHECK(file != NULL);
        size_t bytes = fread(text, 1, sizeof(text) - 1, file);
        CHECK(feof(file) && fclose(file) == 0);
        text[bytes] = 0;
        bool drawn = strstr(text, "<svg") != NULL && strstr(text, "</svg>") != NULL;
        bool said = strstr(text, "No pictures: there is no gnuplot") != NULL;
        CHECK(drawn != said && (gnuplot || said));
        CHECK(strstr(text, "requests/s: how its machines are used over time</h2>") != NULL);
        CHECK(!drawn || strstr(text, "their prompt waits") != NULL);
        CHECK(strstr(text, "cleave plan --lengths &lt;&amp;>.csv</pre>") != NULL);
        CHECK(strcmp(text + bytes - 15, "</body></html>\n") == 0);
        CHECK(plan_main(13, plot) == (drawn ? 0 : 1));
        file = fopen(svg_path, "r");
        CHECK((file != NULL) == drawn);
        CHECK(!drawn || (fread(text, 1, 2000, file) == 2000 && fclose(file) == 0));
    }
    CHECK(plan_html_write(&p->search, 3, command, "/no/such/folder", &error) == ST_IO);
    plan_free(p);
}

/* Answers of one token have no time between tokens, which a logarithmic axis cannot show. */
static void report_of_one_token(void)
{
    char law[] = "--trace=poisson:rate=1,requests=2000,prompt=fixed:500,output=fixed:1";
    char html[420];
    char *argv[] = {"plan",
                    law,
                    "--table",
                    table_path,
                    "--hardware",
                    hardware_paths[1],
                    "--clusters=h100+h100",
                    "--duration=20",
                    "--fixed=machines=3",
                    html,
                    NULL};
    snprintf(html, sizeof(html), "--html=%s", scratch_path("r.html"));
    CHECK(plan_main(10, argv) == 0);
}

/* With a budget for more machines than are tried, the output says so. */
static void budget_cut(void)
{
    for (int most = 2; most <= 3; most++) {
        char text[32];
        char printed[8192];
        const char *const more[] = {"--fixed=cost=120", "--clusters=h100", text, NULL};
        snprintf(text, sizeof(text), "--machines-most=%d", most);
        struct plan *p = plan_new(more, 1, NULL);
        FILE *out = fmemopen(printed, sizeof(printed), "w");
        CHECK(out != NULL);
        plan_print(&p->search, out);
        CHECK(fclose(out) == 0);
        bool said = strstr(printed, "cost=120, h100: has room for more machines than "
                                    "--machines-most 2.\n") != NULL;
        CHECKF(said == (most == 2), "%s", printed); /* Each machine costs 38.08. */
        plan_free(p);
    }
}

/* ---- what is wrong ---- */

static void refused(const char *option, const char *value, const char *want)
{
    const char *const more[] = {"--fixed=machines=3", option, value, NULL};
    struct error error = {""};
    struct plan *p = calloc(1, sizeof(*p));
    CHECK(p != NULL && plan_setup_try(p, more, &error) != ST_OK);
    CHECKF(strstr(error.text, want) != NULL, "\"%s\", want \"%s\"", error.text, want);
    plan_setup_done(&p->setup);
    free(p);
}

static void refusals(void)
{
    refused("--fixed", "gold=3", "--fixed \"gold=3\": want cost=X, power=X, machines=N, rate=X");
    refused("--fixed", "cost", "--fixed \"cost\": want cost=X, X above 0");
    refused("--fixed", "cost=-1", "want cost=X, X above 0");
    refused("--fixed", "machines=1.5", "--fixed \"machines=1.5\": want a whole number");
    refused("--fixed", "machines=101", "--fixed \"machines=101\": more than --machines-most 100");
    refused("--fixed", "rate=13", "more than --rate-most 12");
    refused("--least", "rate", "--least \"rate\": want cost, power or machines");
    refused("--slo", "2/3/6,1.25/1.5/5", "want nine numbers above 0");
    refused("--slo", "2/3/6,1.25/1.5/5,1/1/0", "want nine numbers above 0");
    refused("--model", "gpt", "--model \"gpt\": want bloom-176b or llama2-70b");
    refused("--plot", "p.gif", "--plot p.gif: want a name that ends in .svg or .png");
    refused("--clusters", "h100+v100", "--clusters \"h100+v100\": want PROMPT+TOKEN or KIND");
    refused("--clusters", "paper", "--clusters \"Splitwise-HHcap\": want PROMPT+TOKEN");
    refused("--hardware", hardware_paths[0], "a second hardware named a100");
    refused("--workers", "0", "--workers = \"0\": want a whole number from 1 to 64");
    refused("--mtbf", "600", "--mtbf: --profile FILE is missing");
    refused("--tier", "file:1:1:1", "--tier: --profile FILE is missing");
    refused("--acceptance", "0.5", "--acceptance: --profile FILE is missing");
    refused("--step", "20", "--rate-most 12: want at least --step 20");
    refused("--trace", "x.csv", "want --lengths FILE or --trace TRACE");
    refused("--wheels", "4", "unknown option --wheels");
    refused("--state", NULL, "--state wants a value");
    refused("--lengths", "/no/such.csv", "/no/such.csv");
    refused("--table", "/no/such.csv", "/no/such.csv");
    char *none[] = {"plan"};
    char *budget_too_small[] = {"plan",     "--lengths",  lengths_path,      "--table",
                                table_path, "--hardware", hardware_paths[0], "--fixed=cost=1",
                                NULL};
    CHECK(plan_main(1, none) == 2);
    CHECK(plan_main(8, budget_too_small) == 1);
}

/* ---- machines of several devices ---- */

/* Like `profile`, with this hardware file of a machine with several devices. */
static enum status devices_try(struct plan *p, const char *machine, const char *more,
                               struct error *error)
{
    static char profile_path[400];
    static char pair_path[400];
    snprintf(profile_path, sizeof(profile_path), "%s", scratch_path("profile.json"));
    snprintf(pair_path, sizeof(pair_path), "%s", scratch_path("pair.json"));
    file_write(profile_path, profile_example);
    file_write(pair_path, machine);
    char *argv[] = {"plan",
                    "--lengths",
                    lengths_path,
                    "--profile",
                    profile_path,
                    "--hardware",
                    pair_path,
                    "--duration=3",
                    "--step=40",
                    "--rate-most=400",
                    "--fixed=machines=3",
                    "--slo=9/20/40,9/20/40,9/20/40",
                    (char *)more};
    memset(p, 0, sizeof(*p));
    *error = (struct error){""};
    enum status status =
        options_read(&plan_options_table, more != NULL ? 13 : 12, argv, &p->options, error);
    return status == ST_OK ? plan_setup_read(&p->options, &p->setup, error) : status;
}

#define PAIR(memory)                                                                               \
    "{\"name\": \"pair\", \"devices\": [{\"profile\": \"cpu-2\", \"count\": 2, "                   \
    "\"memory\": " memory "}], \"workspace_bytes\": 1, \"kv_memory_bytes\": 4000000}"

/* The machine's stages appear in the plan and in the config. Results for another split are not
 * used. */
static void devices(void)
{
    struct plan *p = calloc(1, sizeof(*p));
    struct plan *other = calloc(1, sizeof(*other));
    struct config *config = calloc(1, sizeof(*config));
    struct error error;
    CHECK(p != NULL && other != NULL && config != NULL);
    CHECKF(devices_try(p, PAIR("3000000"), NULL, &error) == ST_OK, "%s", error.text);
    const struct machine_split *split = p->setup.inputs.kinds[0].prompt_split;
    CHECK(split != NULL && split->plan.stage_count == 2); /* No single device holds all layers. */
    CHECKF(devices_try(other, PAIR("9000000"), NULL, &error) == ST_OK, "%s", error.text);
    CHECK(other->setup.inputs.kinds[0].prompt_split->plan.stage_count == 1);
    CHECK(other->setup.inputs_hash != p->setup.inputs_hash);
    plan_find(p, 2, NULL);
    /* Prompts and tokens have different layer splits. Machines that do both phases try both
     * splits. */
    CHECK(p->search.cell_count == 3 && strcmp(p->search.cells[0].name, "pair (tokens)") == 0 &&
          strcmp(p->search.cells[1].name, "pair (prompts)") == 0);
    for (uint32_t c = 0; c < 2; c++)
        CHECK(p->search.cells[c].found &&
              plan_mix_split(&p->setup.inputs, &p->search.cells[c].best, false) ==
                  (c == 0 ? p->setup.inputs.kinds[0].token_split : split));
    const struct plan_cell *cell = &p->search.cells[2];
    CHECK(cell->split && cell->found && strstr(p->json, "\"prompt_layers\": {") != NULL &&
          strstr(p->json, "\"token_layers\": {") != NULL);
    CHECKF(plan_config_write(&p->search, cell, scratch_path("c.json"), &error) == ST_OK, "%s",
           error.text);
    CHECKF(config_load(scratch_path("c.json"), config, &error) == ST_OK, "%s", error.text);
    CHECK(config->machine_count == 3);
    for (uint32_t i = 0; i < config->machine_count; i++) {
        struct config_stages stages;
        bool prompt = config->machines[i].pool == POOL_PROMPT;
        split = plan_mix_split(&p->setup.inputs, &cell->best, !prompt);
        config_stages(&config->machines[i], &stages);
        CHECK(stages.count == split->plan.devices && stages.stages[0].threads == 2);
        CHECK(stages.stages[0].end_layer == split->plan.stages[0].end);
        CHECK(config->machines[i].kv_memory_bytes == 4000000);
    }
    plan_free(p);
    plan_setup_done(&other->setup);
    CHECK(devices_try(other, PAIR("\"300B\""), NULL, &error) == ST_INVALID);
    CHECKF(strstr(error.text, "pair.json: devices[0].memory = \"300B\": want a size") != NULL, "%s",
           error.text);
    plan_setup_done(&other->setup);
    CHECK(devices_try(other, PAIR("300"), NULL, &error) == ST_INVALID);
    CHECKF(strstr(error.text, "pair.json: its layers on prompt machines: ") != NULL, "%s",
           error.text);
    plan_setup_done(&other->setup);
    CHECK(devices_try(other, PAIR("9000000"), "--cores=4", &error) == ST_USAGE);
    CHECKF(strstr(error.text, "pair.json: machines of several devices cannot share") != NULL, "%s",
           error.text);
    plan_setup_done(&other->setup);
    free(other);
    free(config);
    refused("--hardware", scratch_path("pair.json"), "want --profile instead of --table");
}

/* ---- requests ---- */

/* At twice the rate, the same requests arrive in half the time. */
static void requests(void)
{
    struct plan_requests r;
    struct sim_trace slow;
    struct sim_trace fast;
    struct error error;
    CHECK(plan_requests_draw(&r, lengths_path, true, 5, 50, 20, &error) == ST_OK);
    uint64_t count = plan_requests_count(&r, 10);
    CHECKF(count > 400 && count < 600, "%llu", (unsigned long long)count);
    plan_requests_at(&r, 10, &slow);
    plan_requests_at(&r, 20, &fast);
    for (uint64_t i = 0; i <= count; i++) {
        struct sim_arrival a;
        struct sim_arrival b;
        bool end;
        bool fast_end;
        CHECK(sim_trace_next(&slow, &a, &end, &error) == ST_OK && end == (i == count));
        CHECK(sim_trace_next(&fast, &b, &fast_end, &error) == ST_OK && !fast_end);
        CHECK(end || (a.at_s == 2 * b.at_s && a.at_s < 50 && a.prompt_tokens == b.prompt_tokens));
    }
    plan_requests_done(&r);
    CHECK(plan_requests_read(&r, lengths_path, 1, 50, &error) == ST_OK);
    /* The file has one request per second. */
    CHECK(r.count == 200 && plan_requests_count(&r, 2) == 100);
    plan_requests_done(&r);
}

/* The hash ids of a trace are kept, and make the simulations use prefix caches. */
static void requests_with_ids(void)
{
    static char path[] = "/tmp/test_plan_ids.XXXXXX";
    struct plan_requests r;
    struct sim_trace trace;
    struct error error;
    int fd = mkstemp(path);
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    CHECK(file != NULL);
    for (int i = 0; i < 3; i++)
        fprintf(file, "{\"timestamp\":%d,\"input_length\":600,\"output_length\":5%s}\n", i * 500,
                i != 1 ? ",\"hash_ids\":[7,8]" : "");
    CHECK(fclose(file) == 0);
    CHECKF(plan_requests_read(&r, path, 1, 50, &error) == ST_OK, "%s", error.text);
    CHECK(remove(path) == 0 && r.count == 3 && r.arrivals[1].block_count == 0);
    for (int i = 0; i < 3; i += 2)
        CHECK(r.arrivals[i].block_count == 2 && r.arrivals[i].block_tokens == 512 &&
              r.arrivals[i].blocks[0] == 7 && r.arrivals[i].blocks[1] == 8);
    plan_requests_at(&r, 1, &trace);
    CHECK(trace.has_prefixes);
    plan_requests_done(&r);
}

/* 200 requests last 20 s at 9.95 per second. Rates that need more requests are not tried, or are
 * refused. */
static void short_trace(void)
{
    static const struct {
        const char *arguments[3];
        const char *error; /* NULL = no error. */
    } tries[] = {
        {{"--fixed=machines=100", "--step=1"}, NULL},
        {{"--fixed=rate=9"}, NULL},
        {{"--fixed=machines=3", "--step=10"},
         "lengths.csv last 20 s at 9.95 a second at most: want more"},
        {{"--fixed=rate=10"}, "a shorter --duration or a smaller rate"},
    };
    for (size_t i = 0; i < sizeof(tries) / sizeof(tries[0]); i++) {
        char *argv[16] = {"plan",         "--trace",    lengths_path,      "--table",
                          table_path,     "--hardware", hardware_paths[1], "--clusters=h100",
                          "--duration=20"};
        int argc = 9;
        for (int k = 0; tries[i].arguments[k] != NULL; k++)
            argv[argc++] = (char *)tries[i].arguments[k];
        struct error error = {""};
        struct plan *p = calloc(1, sizeof(*p));
        CHECK(p != NULL &&
              options_read(&plan_options_table, argc, argv, &p->options, &error) == ST_OK);
        enum status status = plan_setup_read(&p->options, &p->setup, &error);
        CHECKF((status == ST_OK) == (tries[i].error == NULL), "%s", error.text);
        if (status == ST_OK && i == 0) {
            plan_find(p, 1, NULL);
            CHECKF(p->setup.cells[0].best_rate_per_s == 9, "%g", p->setup.cells[0].best_rate_per_s);
            plan_free(p);
            continue;
        }
        CHECKF(status == ST_OK || strstr(error.text, tries[i].error) != NULL, "%s", error.text);
        plan_setup_done(&p->setup);
        free(p);
    }
}

int main(void)
{
    paths_make();
    requests();
    requests_with_ids();
    short_trace();
    budget();
    fixed_rate();
    budgets_of_the_paper();
    same_bytes();
    state_refused();
    config();
    refusals();
    report_of_one_token();
    budget_cut();
    profile();
    devices();
    report();
    static const char *const files[] = {"lengths.csv", "state",    "part",  "bad",
                                        "c.json",      "r.html",   "p.svg", "profile.json",
                                        "cpu.json",    "pair.json"};
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
        unlink(scratch_path(files[i]));
    return rmdir(scratch);
}
