/* plan_picture: see the header. */
#include "tools/plan/picture.h"

#include "tools/plan/points.h"

#include <math.h>
#include <stdlib.h>

#define RATES      12 /* 0.1 to 1.2 times the plan's rate. */
#define CDF_POINTS 100
#define CDF_LEAST  1e-6 /* Seconds; the axis is logarithmic. */

struct figure {
    const struct plan_search *search;
    uint32_t first;
    uint32_t end; /* One after the last cell. */
    FILE *plot;
};

/* ---- data ---- */

static enum status rates_write(const struct figure *f, uint32_t c, struct error *error)
{
    const struct plan_cell *cell = &f->search->cells[c];
    enum status status = ST_OK;
    fprintf(f->plot, "$rate%u << EOD\n", c);
    for (int i = 1; i <= RATES && status == ST_OK; i++) {
        struct plan_outcome outcome;
        double rate_per_s = cell->best_rate_per_s * i / 10;
        if (rate_per_s > f->search->rate_max * (1 + 1e-9))
            break; /* The trace does not have enough requests. */
        status = plan_try(f->search->inputs, &cell->best, rate_per_s, &outcome, error);
        if (status == ST_OK && outcome.totals.requests > 0)
            fprintf(f->plot, "%.9g %.9g %.9g\n", rate_per_s, 100 * outcome.worst_ratio,
                    outcome.ms[SLO_E2E][1] / 1e3);
    }
    fprintf(f->plot, "EOD\n");
    return status;
}

static enum status cdf_write(const struct figure *f, uint32_t c, struct error *error)
{
    const struct plan_cell *cell = &f->search->cells[c];
    struct plan_outcome outcome;
    struct quantiles *times = calloc(SLO_MEASURES, sizeof(times[0]));
    if (times == NULL)
        return error_set(error, ST_NO_MEMORY, "out of memory");
    enum status status = plan_try_times(f->search->inputs, &cell->best, cell->best_rate_per_s,
                                        &outcome, times, error);
    fprintf(f->plot, "$cdf%u << EOD\n", c);
    for (int i = 0; i < CDF_POINTS && status == ST_OK; i++) {
        double q = (i + 0.5) / CDF_POINTS;
        fprintf(f->plot, "%g", q);
        for (int measure = 0; measure < SLO_MEASURES; measure++)
            fprintf(f->plot, " %.9g", 1e3 * fmax(quantiles_at(&times[measure], q), CDF_LEAST));
        fprintf(f->plot, "\n");
    }
    fprintf(f->plot, "EOD\n");
    free(times);
    return status;
}

/* With a fixed budget: prompt machines and the rate. With a fixed rate: prompt machines and the
 * fewest token machines. */
static void splits_write(const struct figure *f, uint32_t c)
{
    const struct plan_cell *cell = &f->search->cells[c];
    fprintf(f->plot, "$split%u << EOD\n", c);
    for (uint32_t i = 0; i < cell->point_count; i++) {
        const struct plan_point *point = &cell->points[i];
        struct plan_mix mix = {.prompt_count = point->prompts};
        double rate_per_s = 0;
        if (point->state != PLAN_SOLVED || (point->boundary == 0 && cell->fixed == PLAN_RATE))
            continue;
        if (point->boundary > 0)
            plan_point_mix_at(f->search, cell, point, point->boundary, &mix, &rate_per_s);
        fprintf(f->plot, "%u %g\n", mix.prompt_count,
                cell->fixed == PLAN_RATE ? mix.token_count : rate_per_s);
    }
    fprintf(f->plot, "EOD\n");
}

static enum status data_write(const struct figure *f, struct error *error)
{
    enum status status = ST_OK;
    for (uint32_t c = f->first; c < f->end && status == ST_OK; c++) {
        if (!f->search->cells[c].found)
            continue;
        splits_write(f, c);
        status = rates_write(f, c, error);
        if (status == ST_OK)
            status = cdf_write(f, c, error);
    }
    return status;
}

/* ---- plots ---- */

/* Writes one plot with a line for each cell that has a plan. */
static void lines_write(const struct figure *f, const char *data, const char *columns,
                        const char *style, const char *last)
{
    fprintf(f->plot, "plot ");
    for (uint32_t c = f->first; c < f->end; c++) {
        if (!f->search->cells[c].found)
            continue;
        fprintf(f->plot, "$%s%u using %s with %s lw 2 lc %u title ", data, c, columns, style,
                c - f->first + 1);
        gnuplot_quoted_write(f->search->cells[c].name, f->plot);
        fprintf(f->plot, " noenhanced, ");
    }
    fprintf(f->plot, "%s\n", last);
}

static void plots_write(const struct figure *f)
{
    bool rate = f->search->cells[f->first].fixed == PLAN_RATE;
    fprintf(f->plot, "set multiplot layout 2,3\nset grid lc rgb '#dddddd'\nset key top left\n"
                     "set xlabel 'requests/s'\nset ylabel 'nearest limit of the SLO, %%'\n"
                     "set yrange [0:200]\n");
    lines_write(f, "rate", "1:2", "linespoints pt 7 ps 0.4", "100 lc rgb 'black' dt 2 notitle");
    fprintf(f->plot, "set ylabel 'E2E P90, s'\nset yrange [0:*]\n");
    lines_write(f, "rate", "1:3", "linespoints pt 7 ps 0.4", "1/0 notitle");
    fprintf(f->plot,
            "set key %s\nset xlabel 'prompt machines'\nset ylabel '%s'\nset xrange [0:*]\n",
            rate ? "top right" : "bottom right",
            rate ? "token machines: as many or more" : "requests/s within the SLO");
    lines_write(f, "split", "1:2", rate ? "steps" : "linespoints pt 7 ps 0.4", "1/0 notitle");
    fprintf(f->plot, "set ylabel 'share of requests'\nset yrange [0:1]\n"
                     "set logscale x\nset xrange [*:*]\n");
    static const char *const cdfs[][2] = {
        {"TTFT, ms", "2:1"}, {"TBT, ms", "3:1"}, {"E2E, ms", "4:1"}};
    for (int i = 0; i < SLO_MEASURES; i++) {
        fprintf(f->plot, "set key %s\nset xlabel '%s'\n",
                i == SLO_E2E ? "top left" : "bottom right", cdfs[i][0]);
        lines_write(f, "cdf", cdfs[i][1], "lines", "1/0 notitle");
    }
    fprintf(f->plot, "unset multiplot\n");
}

/* ---- the parts together ---- */

static enum status draw(const void *self, FILE *script, struct error *error)
{
    const struct plan_picture *picture = self;
    struct figure f = {.search = picture->search,
                       .first = picture->first_cell,
                       .end = plan_picture_end(picture),
                       .plot = script};
    enum status status = data_write(&f, error);
    if (status == ST_OK)
        plots_write(&f);
    return status;
}

uint32_t plan_picture_end(const struct plan_picture *picture)
{
    const struct plan_search *search = picture->search;
    uint32_t end = picture->first_cell;
    while (end < search->cell_count &&
           search->cells[end].fixed_text == search->cells[picture->first_cell].fixed_text)
        end++;
    return end;
}

bool plan_picture_is_empty(const struct plan_picture *picture)
{
    bool found = false;
    for (uint32_t c = picture->first_cell; c < plan_picture_end(picture); c++)
        found |= picture->search->cells[c].found;
    return !found;
}

struct gnuplot_picture plan_picture_make(const struct plan_picture *picture)
{
    return (struct gnuplot_picture){.width = 1500, .height = 860, .draw = draw, .self = picture};
}
