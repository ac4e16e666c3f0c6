#include "tools/plan/main.h"

#include "common/clock.h"
#include "common/cores.h"
#include "tools/plan/failures.h"
#include "tools/plan/picture.h"
#include "tools/plan/print.h"
#include "tools/plan/setup.h"

#include <stdlib.h>
#include <time.h>

#define PROGRESS_US 500000

struct progress {
    int64_t begun_us;
    int64_t shown_us;
};

static void progress_show(void *self, uint64_t done, uint64_t points, uint64_t runs)
{
    struct progress *progress = self;
    int64_t now_us = clock_now_us(&clock_system);
    if (now_us - progress->shown_us < PROGRESS_US)
        return;
    progress->shown_us = now_us;
    fprintf(stderr, "cleave plan: %llu of %llu splits, %llu simulations, %.1f s\n",
            (unsigned long long)done, (unsigned long long)points, (unsigned long long)runs,
            (double)(now_us - progress->begun_us) / 1e6);
}

/* Draws the plans of the first budget. */
static enum status plot_write(const struct plan_search *search, const char *path,
                              struct error *error)
{
    const struct plan_picture of = {.search = search, .first_cell = 0};
    const struct gnuplot_picture picture = plan_picture_make(&of);
    enum status status = plan_picture_is_empty(&of)
                             ? error_set(error, ST_NOT_FOUND, "no plan meets the SLO")
                             : gnuplot_file_draw(&picture, path, error);
    if (status != ST_OK)
        error_prefix(error, "--plot %s", path);
    return status;
}

static enum status results_write(const struct plan_options *options, int argc, char **argv,
                                 const struct plan_search *search, struct error *error)
{
    enum status status = ST_OK;
    if (options->json) {
        json_t *json = plan_json(search);
        if (json == NULL || json_dumpf(json, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(12)) != 0)
            status = error_set(error, ST_IO, "standard output could not be written");
        printf("\n");
        json_decref(json);
    } else {
        plan_print(search, stdout);
    }
    if (status == ST_OK && options->html != NULL)
        status = plan_html_write(search, argc, argv, options->html, error);
    if (status == ST_OK && options->plot != NULL)
        status = plot_write(search, options->plot, error);
    if (status != ST_OK || options->write_config == NULL)
        return status;
    const struct plan_cell *best = plan_best_cell(search);
    if (best == NULL)
        return error_set(error, ST_NOT_FOUND, "--write-config: no plan meets the SLO");
    return plan_config_write(search, best, options->write_config, error);
}

static enum status plan_run(const struct plan_options *options, int argc, char **argv,
                            struct plan_setup *setup, bool *all_found_out, struct error *error)
{
    struct plan_memo memo;
    struct progress progress = {.begun_us = clock_now_us(&clock_system)};
    struct plan_search search = {
        .inputs = &setup->inputs,
        .memo = &memo,
        .step_per_s = options->step_per_s,
        .rate_max = setup->rate_max,
        .machines_max = (uint32_t)options->machines_max,
        .all_boundaries = options->all_boundaries,
        .worker_count = options->workers > 0 ? (uint32_t)options->workers : cores_usable(),
        .cell_count = setup->cell_count,
        .cells = setup->cells,
        .progress = progress_show,
        .self = &progress,
    };
    enum status status = plan_memo_open(&memo, options->journal, setup->inputs_hash, error);
    if (status != ST_OK)
        return status;
    if (memo.entries_read > 0)
        fprintf(stderr, "cleave plan: %llu simulations from %s\n",
                (unsigned long long)memo.entries_read, options->journal);
    status = plan_search_run(&search, error);
    if (status == ST_OK && options->mtbf_s > 0)
        status = plan_failures_run(&search, options->mtbf_s, options->repair_s, error);
    if (status == ST_OK)
        fprintf(stderr, "cleave plan: %llu simulations, %.1f s, %.1f s of CPU\n",
                (unsigned long long)search.runs,
                (double)(clock_now_us(&clock_system) - progress.begun_us) / 1e6,
                (double)clock() / CLOCKS_PER_SEC);
    if (status == ST_OK)
        status = results_write(options, argc, argv, &search, error);
    *all_found_out = true;
    for (uint32_t c = 0; c < search.cell_count; c++)
        *all_found_out &= search.cells[c].found;
    plan_search_done(&search);
    enum status closed = plan_memo_close(&memo, options->journal, status == ST_OK ? error : NULL);
    return status == ST_OK ? closed : status;
}

int plan_main(int argc, char **argv)
{
    struct plan_options options = {.trace = NULL};
    struct error error = {""};
    bool all_found = false;
    int exit_status = options_start(&plan_options_table, argc, argv, &options);
    if (exit_status >= 0)
        return exit_status;
    struct plan_setup *setup = calloc(1, sizeof(*setup));
    enum status status = setup != NULL ? plan_setup_read(&options, setup, &error)
                                       : error_set(&error, ST_NO_MEMORY, "out of memory");
    if (status == ST_OK)
        status = plan_run(&options, argc, argv, setup, &all_found, &error);
    if (setup != NULL)
        plan_setup_done(setup);
    free(setup);
    if (status != ST_OK)
        return options_fail(&plan_options_table, status, &error);
    return all_found ? 0 : 1;
}
