/* plan_picture: see the header. */
#include "tools/plan/picture.h"

#include "tools/plan/points.h"

#include <math.h>
#include <stdlib.h>

#define RATIO_MOST 200 /* Percent; the end of the axis. */
#define RATES      12  /* 0.1 to 1.2 times the plan's rate. */
#define CDF_POINTS 100
#define CDF_LEAST  1e-6 /* Seconds; the axis is logarithmic. */
/* Shares of a plot's width and height that a legend needs. */
#define LEGEND_WIDTH  0.55
#define LEGEND_HEIGHT 0.3
/* A line between two values has this many points. */
#define LINE_POINTS 8

enum plot {
    PLOT_RATE_RATIO,
    PLOT_RATE_E2E,
    PLOT_SPLIT,
    PLOT_CDF,
    PLOT_COUNT = PLOT_CDF + SLO_MEASURES
};

struct point {
    double x, y;
};

/* Points on all lines of a plot. x is a logarithm to base 10 in the plots of distributions. */
struct points {
    struct point *at;
    uint32_t count;
};

struct figure {
    const struct plan_search *search;
    uint32_t first;
    uint32_t end; /* One after the last cell. */
    FILE *plot;
    struct points *points; /* [PLOT_COUNT] */
};

/* ---- data ---- */

/* Adds a point, and points on the line to it from the one before unless it `begins` a curve. */
static void point_add(struct points *points, bool begins, double x, double y)
{
    const double from_x = begins ? x : points->at[points->count - 1].x,
                 from_y = begins ? y : points->at[points->count - 1].y;
    for (int i = begins ? LINE_POINTS : 1; i <= LINE_POINTS; i++) {
        const double share = (double)i / LINE_POINTS;
        points->at[points->count].x = from_x + share * (x - from_x);
        points->at[points->count++].y = from_y + share * (y - from_y);
    }
}

static enum status rates_write(const struct figure *f, uint32_t c, struct error *error)
{
    const struct plan_cell *cell = &f->search->cells[c];
    enum status status = ST_OK;
    bool begins = true;
    fprintf(f->plot, "$rate%u << EOD\n", c);
    for (int i = 1; i <= RATES && status == ST_OK; i++) {
        struct plan_outcome outcome;
        double rate_per_s = cell->best_rate_per_s * i / 10;
        if (rate_per_s > f->search->rate_max * (1 + 1e-9))
            break; /* The trace does not have enough requests. */
        status = plan_try(f->search->inputs, &cell->best, rate_per_s, &outcome, error);
        if (status != ST_OK || outcome.totals.requests == 0)
            continue;
        const double percent = 100 * outcome.worst_ratio, e2e_s = outcome.ms[SLO_E2E][1] / 1e3;
        fprintf(f->plot, "%.9g %.9g %.9g\n", rate_per_s, percent, e2e_s);
        point_add(&f->points[PLOT_RATE_RATIO], begins, rate_per_s, percent);
        point_add(&f->points[PLOT_RATE_E2E], begins, rate_per_s, e2e_s);
        begins = false;
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
        for (int measure = 0; measure < SLO_MEASURES; measure++) {
            double ms = 1e3 * fmax(quantiles_at(&times[measure], q), CDF_LEAST);
            point_add(&f->points[PLOT_CDF + measure], true, log10(ms), q);
            fprintf(f->plot, " %.9g", ms);
        }
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
    bool begins = true;
    fprintf(f->plot, "$split%u << EOD\n", c);
    for (uint32_t i = 0; i < cell->point_count; i++) {
        const struct plan_point *point = &cell->points[i];
        struct plan_mix mix = {.prompt_count = point->prompts};
        double rate_per_s = 0;
        if (point->state != PLAN_SOLVED || (point->boundary == 0 && cell->fixed == PLAN_RATE))
            continue;
        if (point->boundary > 0)
            plan_point_mix_at(f->search, cell, point, point->boundary, &mix, &rate_per_s);
        const double y = cell->fixed == PLAN_RATE ? mix.token_count : rate_per_s;
        fprintf(f->plot, "%u %g\n", mix.prompt_count, y);
        point_add(&f->points[PLOT_SPLIT], begins, mix.prompt_count, y);
        begins = false;
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

/* Sets the corner of the legend: the one with the fewest points of lines. */
static void legend_write(const struct figure *f, enum plot plot)
{
    static const char *const corners[] = {"bottom right", "top left", "bottom left", "top right"};
    const struct points *points = &f->points[plot];
    const bool logarithmic = plot >= PLOT_CDF;
    double least = logarithmic ? INFINITY : 0, most = logarithmic ? -INFINITY : 0, high = 0;
    uint32_t counts[4] = {0}, best = 0;
    for (uint32_t i = 0; i < points->count; i++) {
        /* gnuplot extends a logarithmic axis to powers of ten. */
        least = fmin(least, floor(points->at[i].x));
        most = fmax(most, logarithmic ? ceil(points->at[i].x) : points->at[i].x);
        high = fmax(high, points->at[i].y);
    }
    if (plot == PLOT_RATE_RATIO)
        high = RATIO_MOST;
    for (uint32_t i = 0; i < points->count; i++) {
        const double x = (points->at[i].x - least) / fmax(most - least, 1e-9),
                     y = points->at[i].y / fmax(high, 1e-9);
        const bool right = x > 1 - LEGEND_WIDTH, left = x < LEGEND_WIDTH;
        const bool top = y > 1 - LEGEND_HEIGHT && y <= 1, bottom = y < LEGEND_HEIGHT;
        counts[0] += bottom && right;
        counts[1] += top && left;
        counts[2] += bottom && left;
        counts[3] += top && right;
    }
    for (uint32_t i = 1; i < 4; i++)
        best = counts[i] < counts[best] ? i : best;
    fprintf(f->plot, "set key %s font ',8' samplen 1.5\n", corners[best]);
}

static void plots_write(const struct figure *f)
{
    bool rate = f->search->cells[f->first].fixed == PLAN_RATE;
    fprintf(f->plot,
            "set multiplot layout 2,3\nset grid lc rgb '#dddddd'\n"
            "set xlabel 'requests/s'\nset ylabel 'nearest limit of the SLO, %%'\n"
            "set yrange [0:%d]\n",
            RATIO_MOST);
    legend_write(f, PLOT_RATE_RATIO);
    lines_write(f, "rate", "1:2", "linespoints pt 7 ps 0.4", "100 lc rgb 'black' dt 2 notitle");
    fprintf(f->plot, "set ylabel 'E2E P90, s'\nset yrange [0:*]\n");
    legend_write(f, PLOT_RATE_E2E);
    lines_write(f, "rate", "1:3", "linespoints pt 7 ps 0.4", "1/0 notitle");
    fprintf(f->plot, "set xlabel 'prompt machines'\nset ylabel '%s'\nset xrange [0:*]\n",
            rate ? "token machines: as many or more" : "requests/s within the SLO");
    legend_write(f, PLOT_SPLIT);
    lines_write(f, "split", "1:2", rate ? "steps" : "linespoints pt 7 ps 0.4", "1/0 notitle");
    fprintf(f->plot, "set ylabel 'share of requests'\nset yrange [0:1]\n"
                     "set logscale x\nset xrange [*:*]\n");
    static const char *const cdfs[][2] = {
        {"TTFT, ms", "2:1"}, {"TBT, ms", "3:1"}, {"E2E, ms", "4:1"}};
    for (int i = 0; i < SLO_MEASURES; i++) {
        fprintf(f->plot, "set xlabel '%s'\n", cdfs[i][0]);
        legend_write(f, (enum plot)(PLOT_CDF + i));
        lines_write(f, "cdf", cdfs[i][1], "lines", "1/0 notitle");
    }
    fprintf(f->plot, "unset multiplot\n");
}

/* ---- the parts together ---- */

/* Returns the most points that a plot may get. */
static size_t points_most(const struct figure *f)
{
    uint32_t most = RATES * LINE_POINTS > CDF_POINTS ? RATES * LINE_POINTS : CDF_POINTS;
    for (uint32_t c = f->first; c < f->end; c++)
        if (f->search->cells[c].point_count * LINE_POINTS > most)
            most = f->search->cells[c].point_count * LINE_POINTS;
    return (size_t)most * (f->end - f->first);
}

static enum status draw(const void *self, FILE *script, struct error *error)
{
    const struct plan_picture *picture = self;
    struct points points[PLOT_COUNT] = {{0}};
    struct figure f = {.search = picture->search,
                       .first = picture->first_cell,
                       .end = plan_picture_end(picture),
                       .plot = script,
                       .points = points};
    enum status status = ST_OK;
    for (int i = 0; i < PLOT_COUNT; i++) {
        points[i].at = calloc(points_most(&f), sizeof(points[i].at[0]));
        if (points[i].at == NULL)
            status = error_set(error, ST_NO_MEMORY, "out of memory");
    }
    if (status == ST_OK)
        status = data_write(&f, error);
    if (status == ST_OK)
        plots_write(&f);
    for (int i = 0; i < PLOT_COUNT; i++)
        free(points[i].at);
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
