/* The report of print.h: one HTML file without references to other files. */
#include "tools/plan/print.h"

#include "tools/plan/picture.h"
#include "tools/report/html.h"
#include "tools/simulate/sim_usage_show.h"

#include <stdlib.h>

static void table_print(const void *self, FILE *out)
{
    plan_print(self, out);
}

static enum status pictures_write(const struct plan_search *search, FILE *out, struct error *error)
{
    struct plan_picture of = {.search = search, .first_cell = 0};
    enum status status = ST_OK;
    for (; of.first_cell < search->cell_count && status == ST_OK;
         of.first_cell = plan_picture_end(&of)) {
        const struct gnuplot_picture picture = plan_picture_make(&of);
        html_heading_write(search->cells[of.first_cell].fixed_text, out);
        if (plan_picture_is_empty(&of))
            fputs("<p>No plan meets the SLO.</p>\n", out);
        else
            status = html_picture_write(&picture, "cleave plan: --html", out, error);
    }
    return status;
}

/* Draws the use of the machines over time, for the plan that --write-config would write. */
static enum status usage_write(const struct plan_search *search, FILE *out, struct error *error)
{
    const struct plan_cell *best = plan_best_cell(search);
    struct sim_usage usage;
    char text[128];
    if (best == NULL)
        return ST_OK;
    if (sim_usage_open(&usage, best->best.prompt_count + best->best.token_count) != ST_OK)
        return error_set(error, ST_NO_MEMORY, "out of memory");
    snprintf(text, sizeof(text), "%s at %g requests/s: how its machines are used over time",
             best->name, best->best_rate_per_s);
    html_heading_write(text, out);
    enum status status =
        plan_try_usage(search->inputs, &best->best, best->best_rate_per_s, &usage, error);
    if (status == ST_OK) {
        const struct gnuplot_picture picture = sim_usage_picture(&usage);
        status = html_picture_write(&picture, "cleave plan: --html", out, error);
    }
    sim_usage_close(&usage);
    return status;
}

static enum status data_write(const struct plan_search *search, FILE *out, struct error *error)
{
    json_t *json = plan_json(search);
    char *text = json_dumps(json, JSON_INDENT(1) | JSON_REAL_PRECISION(12));
    json_decref(json);
    if (text == NULL)
        return error_set(error, ST_NO_MEMORY, "out of memory");
    html_data_write(text, out);
    free(text);
    return ST_OK;
}

enum status plan_html_write(const struct plan_search *search, int argc, char **argv,
                            const char *path, struct error *error)
{
    FILE *out;
    enum status status = html_open(path, &out, error);
    if (status != ST_OK)
        return status;
    html_head_write("cleave plan", argc, argv, out);
    status = html_output_write(table_print, search, out, error);
    if (status == ST_OK)
        status = pictures_write(search, out, error);
    if (status == ST_OK)
        status = usage_write(search, out, error);
    if (status == ST_OK)
        status = data_write(search, out, error);
    return html_close(out, path, status, error);
}
