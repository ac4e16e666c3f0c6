/* plan_failures: see the header. Machines fail rarely during the seconds of arrivals of one
 * simulation, so several are run, each with other times of failures. Both checkpoint modes see the
 * same failures: their times depend on the seed and the machine only. */
#include "tools/plan/failures.h"

#include "tools/plan/profile.h"

#include <stdlib.h>

#define RUNS 8

static enum status mode_try(const struct plan_search *search, const struct plan_cell *cell,
                            const struct plan_failure_options *failures, uint32_t runs,
                            struct plan_goodput *out, struct quantiles *pauses, struct error *error)
{
    struct plan_failure_options each = *failures;
    enum status status = ST_OK;
    *out = (struct plan_goodput){.known = true};
    *pauses = (struct quantiles){.count = 0};
    for (uint32_t i = 0; i < runs && status == ST_OK; i++) {
        each.seed = i + 1;
        status = plan_profile_goodput(search->inputs, &cell->best, cell->best_rate_per_s, &each,
                                      out, pauses, error);
    }
    double seconds = search->inputs->requests.duration_s * runs;
    out->good_per_s = (double)out->good / seconds;
    out->pause_s_p50 = quantiles_at(pauses, 0.5);
    out->pause_s_p99 = quantiles_at(pauses, 0.99);
    return status;
}

enum status plan_failures_run(const struct plan_search *search, double mtbf_s, double repair_s,
                              struct error *error)
{
    static const char *const checkpoints[PLAN_GOODPUTS] = {"off", "off", "idle"};
    struct quantiles *pauses = malloc(sizeof(*pauses));
    enum status status = ST_OK;
    if (pauses == NULL)
        return error_set(error, ST_NO_MEMORY, "out of memory");
    for (uint32_t c = 0; c < search->cell_count; c++)
        for (int mode = 0; mode < PLAN_GOODPUTS && status == ST_OK && search->cells[c].found;
             mode++) {
            bool fails = mode != PLAN_GOODPUT_NO_FAILURES;
            const struct plan_failure_options failures = {.mtbf_s = fails ? mtbf_s : 0,
                                                          .repair_s = repair_s,
                                                          .checkpoint = checkpoints[mode]};
            status = mode_try(search, &search->cells[c], &failures, fails ? RUNS : 1,
                              &search->cells[c].goodput[mode], pauses, error);
        }
    free(pauses);
    return status;
}
