/* plan_print: plans as a table, as JSON and as an HTML report, and the config that serves one. */
#ifndef SIMULATOR_PLAN_PRINT_H
#define SIMULATOR_PLAN_PRINT_H

#include "simulator/plan_search.h"

#include <jansson.h>
#include <stdio.h>

void plan_print(const struct plan_search *search, FILE *out);
/* NULL: out of memory. The caller's. */
json_t *plan_json(const struct plan_search *search);

/* Of the cells, the one whose plan is best by what was fixed in the first cell; cells in which
 * something else is fixed do not count. NULL: none found a plan. */
const struct plan_cell *plan_best_cell(const struct plan_search *search);

/* A config (docs/configuration.md) with as many machines of each pool, and the options of the
 * scheduler that the plan was simulated with, as far as a gateway has them. It is read back before
 * it counts as written. ST_TOO_LARGE: more machines than a gateway connects to. */
enum status plan_config_write(const struct plan_search *search, const struct plan_cell *cell,
                              const char *path, struct error *error);

/* A report with the command line, the table, pictures (plan_picture.h) and the data. Where gnuplot
 * is missing it has none, and standard error says so. */
enum status plan_html_write(const struct plan_search *search, int argc, char **argv,
                            const char *path, struct error *error);

#endif
