/* plan_print: prints plans as a table, as JSON, as an HTML report, and as the config of a cluster.
 */
#ifndef TOOLS_PLAN_PRINT_H
#define TOOLS_PLAN_PRINT_H

#include "tools/plan/search.h"

#include <jansson.h>
#include <stdio.h>

void plan_print(const struct plan_search *search, FILE *out);
/* Returns a new reference for the caller; NULL = out of memory. */
json_t *plan_json(const struct plan_search *search);

/* Returns the cell with the best plan among the cells of the first budget. NULL: none of them has a
 * plan. */
const struct plan_cell *plan_best_cell(const struct plan_search *search);

/* Writes a config (docs/configuration.md) with the machines of the cell's plan, and with those
 * options of the simulated scheduler that a gateway has. Reads the file back to check it.
 * ST_TOO_LARGE: more machines than a gateway connects to. */
enum status plan_config_write(const struct plan_search *search, const struct plan_cell *cell,
                              const char *path, struct error *error);

/* Writes a report with the command line, the table, pictures (picture.h) and the data. Without
 * gnuplot the report has no pictures, and standard error says so. */
enum status plan_html_write(const struct plan_search *search, int argc, char **argv,
                            const char *path, struct error *error);

#endif
