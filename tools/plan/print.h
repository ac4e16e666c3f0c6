/* plan_print: the output of `cleave plan`: the plans as a table and as JSON (print.c), as an HTML
 * report (html.c), and as the config of a cluster (config.c). plan_main calls the functions on the
 * main thread, after the search. The functions own nothing and do not search.
 *
 * A cell is one search: two kinds of machines and one fixed amount (struct plan_cell). */
#ifndef TOOLS_PLAN_PRINT_H
#define TOOLS_PLAN_PRINT_H

#include "tools/plan/search.h"

#include <jansson.h>
#include <stdio.h>

/* Prints a table with a row for each cell, the costs of failures if failures were simulated, and
 * the layer splits of the machines that the plans use. */
void plan_print(const struct plan_search *search, FILE *out);
/* Returns all cells and plans as JSON, a new reference for the caller; NULL = out of memory. */
json_t *plan_json(const struct plan_search *search);

/* Returns the cell with the best plan among the cells with the first fixed amount of the command
 * line (such as cost=100); among equally good plans, the first. NULL = none of these cells has a
 * plan. */
const struct plan_cell *plan_best_cell(const struct plan_search *search);

/* Writes a config (docs/configuration.md) with the machines of the cell's plan and with those
 * options of the simulated scheduler that a gateway has. The operator must add what the plan does
 * not know, such as each machine's address. Requires that the cell has a plan. ST_TOO_LARGE: more
 * machines than a gateway connects to. ST_IO: the file cannot be written. ST_NO_MEMORY. Other
 * errors are those of config_load, which reads the file again. */
enum status plan_config_write(const struct plan_search *search, const struct plan_cell *cell,
                              const char *path, struct error *error);

/* Writes a report with the command line (argc, argv), the table, pictures and the data. The
 * pictures show the plans (picture.h), and how the machines of plan_best_cell are used over time.
 * To draw the pictures, the function simulates the machines of each cell's plan again. Without
 * gnuplot, the report has a sentence in place of each picture, and standard error gets a warning
 * for each. Errors name the file. */
enum status plan_html_write(const struct plan_search *search, int argc, char **argv,
                            const char *path, struct error *error);

#endif
