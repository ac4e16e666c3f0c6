/* plan_print: the output of `cleave plan`: plans as a table, as JSON, as an HTML report, and as
 * the config of a cluster. plan_main calls it on the main thread, after the search; the report
 * (html.c) calls the table and the JSON. It does not search; only the report's pictures simulate
 * the best mixes again. */
#ifndef TOOLS_PLAN_PRINT_H
#define TOOLS_PLAN_PRINT_H

#include "tools/plan/search.h"

#include <jansson.h>
#include <stdio.h>

/* Writes the table: a row for each cell, then the layer splits and the effect of failures, where
 * there are any. */
void plan_print(const struct plan_search *search, FILE *out);
/* Returns all cells and plans as JSON, a new reference for the caller; NULL = out of memory. */
json_t *plan_json(const struct plan_search *search);

/* Returns the cell with the best plan among the cells of the first budget. NULL = none of these
 * cells has a plan. */
const struct plan_cell *plan_best_cell(const struct plan_search *search);

/* Writes a config (docs/configuration.md) with the machines of the cell's plan, and with the
 * simulated scheduler's options that a gateway has too. The operator must add each machine's
 * address. Reads the file back to check it. ST_TOO_LARGE: more machines than a gateway connects to.
 * ST_NO_MEMORY: memory runs out. Other errors name the file. */
enum status plan_config_write(const struct plan_search *search, const struct plan_cell *cell,
                              const char *path, struct error *error);

/* Writes a report with the command line, the table, pictures (picture.h, and the use of the best
 * plan's machines over time) and the data. Without gnuplot the report has no pictures, and standard
 * error says so. */
enum status plan_html_write(const struct plan_search *search, int argc, char **argv,
                            const char *path, struct error *error);

#endif
