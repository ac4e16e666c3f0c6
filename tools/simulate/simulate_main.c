#include "tools/simulate/simulate.h"

#include "tools/simulate/replay_log.h"
#include "tools/simulate/simulate_trace.h"
#include "tools/simulate/splitwise/reference.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define SHOWN_MAX 10 /* Most differences to show. */

static void difference_show(void *self, uint64_t line, const char *logged, const char *decided)
{
    uint32_t *shown = self;
    if ((*shown)++ < SHOWN_MAX)
        printf("line %llu\n  logged:  %s\n  decided: %s\n", (unsigned long long)line, logged,
               decided);
}

static int replay_file(const char *path)
{
    bool input = strcmp(path, "-") == 0;
    FILE *file = input ? stdin : fopen(path, "r");
    struct error error = {""};
    if (file == NULL) {
        error_set(&error, ST_IO, "%s: %s", path, strerror(errno));
        return options_fail(&simulate_options_table, ST_IO, &error);
    }
    uint32_t shown = 0;
    const struct replay_log_calls calls = {.differs = difference_show, .self = &shown};
    struct replay_log_totals totals;
    enum status status = replay_log(file, input ? "standard input" : path, &calls, &totals, &error);
    if (!input)
        fclose(file);
    if (status != ST_OK)
        return options_fail(&simulate_options_table, status, &error);
    printf("%llu lines, %llu starts of the gateway, %.1f s\n", (unsigned long long)totals.lines,
           (unsigned long long)totals.starts, (double)(totals.last_us - totals.first_us) / 1e6);
    printf("%llu events: %llu actions (%llu routes, %llu refusals, %llu moves, %llu lost)\n",
           (unsigned long long)totals.events, (unsigned long long)totals.actions,
           (unsigned long long)totals.routes, (unsigned long long)totals.refusals,
           (unsigned long long)totals.moves, (unsigned long long)totals.lost);
    if (totals.skipped > 0)
        printf("%llu events left out: the log lacks the events before them\n",
               (unsigned long long)totals.skipped);
    printf("%llu decided differently\n", (unsigned long long)totals.differing);
    return totals.differing > 0 ? 1 : 0;
}

/* ---- the reference's cases ---- */

static void case_show(void *self, const struct reference_result *result)
{
    bool *all_same = self;
    *all_same &= result->same;
    printf("%-28s %8llu %9.1e %9.1e %9.1e %8llu %9.1f  %s\n", result->name,
           (unsigned long long)result->requests, result->ttft_difference_s,
           result->tbt_difference_s, result->e2e_difference_s,
           (unsigned long long)result->totals.displaced, result->wall_s * 1e3,
           result->same ? "same" : "DIFFERS");
    if (result->missing > 0)
        printf("  %llu requests are only in one of the two\n", (unsigned long long)result->missing);
    if (result->totals.unended_requests > 0)
        printf(
            "  %u requests end in neither of them: they wait for KV memory that is never freed\n",
            result->totals.unended_requests);
    if (result->slo_known && result->slo_met != result->reference_slo_met)
        printf("  the paper's SLO is %s here, and %s there\n", result->slo_met ? "met" : "missed",
               result->reference_slo_met ? "met" : "missed");
    if (result->unsupported_argument != NULL)
        printf("  argument %s has no meaning here and was ignored\n", result->unsupported_argument);
    fflush(stdout);
}

static int reference_directory(const char *path)
{
    bool all_same = true;
    struct error error = {""};
    printf("%-28s %8s %9s %9s %9s %8s %9s\n", "case", "requests", "ttft, s", "tbt, s", "e2e, s",
           "displ.", "took, ms");
    enum status status = reference_run(path, case_show, &all_same, &error);
    if (status != ST_OK)
        return options_fail(&simulate_options_table, status, &error);
    return all_same ? 0 : 1;
}

int simulate_main(int argc, char **argv)
{
    struct simulate_options options = {.argc = argc, .argv = argv};
    int exit_status = options_start(&simulate_options_table, argc, argv, &options);
    if (exit_status >= 0)
        return exit_status;
    if (options.reference != NULL)
        return reference_directory(options.reference);
    if (options.replay_log != NULL)
        return replay_file(options.replay_log);
    return simulate_trace(&options);
}
