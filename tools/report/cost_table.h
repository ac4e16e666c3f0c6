/* cost_table: how long a batch takes according to the measurements of Splitwise's authors
 * (perf_model.csv). A curve is for one model, hardware and tensor parallelism. The tokens of a row
 * are prompt_size times batch_size. Each point has the medians of the times of all rows with one
 * number of tokens. Between and beyond the points, times are linear in the number of tokens.
 *
 * The tokens of a row stand for different numbers of a decode step: the simulators look token_s up
 * with the number of decoding sequences (sim_cost.c, splitwise/machine.c), the limits of the SLO
 * with the tokens of the prompt (slo.c). In a curve made from a profile (tools/plan/profile.h),
 * token_s[i] is the time of a decode step of one sequence whose context has tokens[i] tokens.
 *
 * `cleave simulate` and `cleave plan` read curves on the main thread; after that a curve is
 * constant, and any thread may use it. The caller owns the curve. This part does not read
 * profiles. */
#ifndef TOOLS_REPORT_COST_TABLE_H
#define TOOLS_REPORT_COST_TABLE_H

#include "common/status.h"

#include <stdint.h>

#define COST_TABLE_POINTS 80 /* Most points of one curve. */

struct cost_curve {
    uint32_t count;                     /* Points of the curve, ≥ 2. */
    double tokens[COST_TABLE_POINTS];   /* Tokens of the point's rows, ascending. */
    double prompt_s[COST_TABLE_POINTS]; /* Time of a batch of prompts with tokens[i] tokens. */
    /* Time of a decode step that follows the prompts of prompt_s[i]. */
    double token_s[COST_TABLE_POINTS];
};

/* Reads a CSV file with the columns model, hardware, tensor_parallel, prompt_size, batch_size,
 * prompt_time and token_time (both times in milliseconds). Uses the rows with this model, hardware
 * and tensor parallelism. ST_NOT_FOUND: a column is missing, or these rows give fewer than two
 * points. ST_TOO_LARGE: more than COST_TABLE_POINTS points, or more than 4096 of these rows.
 * ST_INVALID: a wrong value. Other errors are those of csv_open and csv_next. Errors name the file,
 * and the line if a line is wrong; `error` may be NULL. */
enum status cost_table_read(const char *path, const char *model, const char *hardware,
                            uint32_t tensor_parallel, struct cost_curve *out, struct error *error);

/* Returns the seconds of a batch of prompts with `tokens` tokens, at least a microsecond. */
double cost_curve_prompts_s(const struct cost_curve *curve, double tokens);
/* Returns token_s at `tokens`: the seconds of a decode step, at least a microsecond. The comment at
 * the top says which number the callers pass. */
double cost_curve_decodes_s(const struct cost_curve *curve, double tokens);

#endif
