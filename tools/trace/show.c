/* trace_show: see the header. */
#include "tools/trace/show.h"

#include "tools/report/gnuplot.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define ROWS_MOST      24
#define PICTURE_POINTS 600
#define CDF_POINTS     200
#define BAR_WIDTH      40

static const char *const length_names[TRACE_LENGTH_COUNT] = {"prompt", "output"};

/* ---- text ---- */

static void lengths_print(const struct trace_stats *stats, FILE *out)
{
    static const double shares[] = {0, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 1};
    fprintf(out, "\n%-8s %9s %8s %8s %8s %8s %8s %8s %8s %8s %8s %8s\n", "tokens", "mean", "min",
            "P1", "P10", "P25", "P50", "P75", "P90", "P99", "P99.9", "max");
    for (int length = 0; length < TRACE_LENGTH_COUNT; length++) {
        fprintf(out, "%-8s %9.1f", length_names[length],
                trace_stats_mean(stats, (enum trace_length)length));
        for (size_t i = 0; i < sizeof(shares) / sizeof(shares[0]); i++)
            fprintf(out, " %8" PRIu32,
                    trace_stats_quantile(stats, (enum trace_length)length, shares[i]));
        fprintf(out, "\n");
    }
}

/* Prints a row per doubling of the length: requests, share, and cumulative share. */
static void histogram_print(const struct trace_stats *stats, enum trace_length length, FILE *out)
{
    uint32_t longest = trace_stats_quantile(stats, length, 1);
    double count = (double)trace_stats_count(stats);
    uint64_t before = 0;
    fprintf(out, "\n%s tokens   requests   share     CDF\n", length_names[length]);
    for (uint64_t low = 1; low <= longest; low *= 2) {
        uint64_t upto = trace_stats_up_to(stats, length, (uint32_t)(2 * low - 1));
        double share = (double)(upto - before) / count;
        int bar = (int)(share * BAR_WIDTH + 0.5);
        if (upto > 0)
            fprintf(out, "%8" PRIu64 "-%-8" PRIu64 " %9" PRIu64 " %6.2f%% %6.2f%%%.*s\n", low,
                    2 * low - 1, upto - before, 100 * share, 100 * (double)upto / count,
                    bar > 0 ? bar + 1 : 0, " ########################################");
        before = upto;
    }
}

static void intervals_print(const struct trace_stats *stats,
                            const struct trace_stats_options *options, FILE *out)
{
    uint32_t count;
    double width_s;
    struct trace_interval *intervals = trace_stats_intervals(stats, ROWS_MOST, &count, &width_s);
    if (intervals == NULL)
        return;
    fprintf(out,
            "\nover time, in intervals of %g s; active: if prompts take 1/%g s a token and the "
            "tokens of an\nanswer %g ms each, without waiting\n",
            width_s, options->prompt_tokens_per_s, options->tbt_s * 1000);
    fprintf(out, "%12s %10s %12s %12s %12s %14s\n", "from s", "requests/s", "prompt tok/s",
            "output tok/s", "active req.", "active tokens");
    for (uint32_t i = 0; i < count; i++) {
        double seconds = intervals[i].seconds;
        fprintf(out, "%12.0f %10.3f %12.1f %12.1f %12.2f %14.0f\n", i * width_s,
                (double)intervals[i].requests / seconds,
                (double)intervals[i].tokens[TRACE_PROMPT] / seconds,
                (double)intervals[i].tokens[TRACE_OUTPUT] / seconds, intervals[i].active_requests,
                intervals[i].active_tokens);
    }
    free(intervals);
}

void trace_show_text(const struct trace_stats *stats, const struct trace_stats_options *options,
                     FILE *out)
{
    double span_s = trace_stats_last_s(stats) - trace_stats_first_s(stats);
    uint64_t count = trace_stats_count(stats), blocks = trace_stats_blocks(stats);
    fprintf(out, "%" PRIu64 " requests in %.1f s", count, span_s);
    if (span_s > 0)
        fprintf(out, ": %.4g requests/s, gaps with a coefficient of variation of %.2f",
                (double)count / span_s, trace_stats_gap_cv(stats));
    fprintf(out, "\n");
    if (count == 0)
        return;
    if (blocks > 0)
        fprintf(out, "%" PRIu64 " blocks of prompts, %.1f%% of which an earlier request had\n",
                blocks, 100 * (double)trace_stats_blocks_again(stats) / (double)blocks);
    lengths_print(stats, out);
    for (int length = 0; length < TRACE_LENGTH_COUNT; length++)
        histogram_print(stats, (enum trace_length)length, out);
    intervals_print(stats, options, out);
}

/* ---- picture ---- */

static bool data_write(const struct trace_stats *stats, FILE *plot)
{
    uint32_t count;
    double width_s;
    struct trace_interval *intervals =
        trace_stats_intervals(stats, PICTURE_POINTS, &count, &width_s);
    if (intervals == NULL)
        return false;
    fprintf(plot, "$time << EOD\n");
    for (uint32_t i = 0; i < count; i++) {
        double seconds = intervals[i].seconds;
        fprintf(plot, "%.9g %.9g %.9g %.9g %.9g\n", i * width_s + seconds / 2,
                (double)intervals[i].requests / seconds,
                (double)intervals[i].tokens[TRACE_PROMPT] / seconds,
                (double)intervals[i].tokens[TRACE_OUTPUT] / seconds, intervals[i].active_tokens);
    }
    fprintf(plot, "EOD\n");
    free(intervals);
    for (int length = 0; length < TRACE_LENGTH_COUNT; length++) {
        fprintf(plot, "$%s << EOD\n", length_names[length]);
        for (int i = 0; i <= CDF_POINTS; i++)
            fprintf(plot, "%" PRIu32 " %g\n",
                    trace_stats_quantile(stats, (enum trace_length)length, (double)i / CDF_POINTS),
                    (double)i / CDF_POINTS);
        fprintf(plot, "EOD\n");
    }
    return true;
}

static const char plots[] =
    "set multiplot layout 2,2 title the_title noenhanced\n"
    "set grid lc rgb '#dddddd'\nset key top right\nset style data lines\n"
    "set xlabel 'time (s)'\nset ylabel 'requests/s'\nset yrange [0:*]\n"
    "plot $time using 1:2 notitle lc rgb '#1f5fa8'\n"
    "set ylabel 'active tokens'\nplot $time using 1:5 notitle lc rgb '#a8521f'\n"
    "set xlabel 'tokens'\nset ylabel 'share of requests'\nset yrange [0:1]\nset logscale x\n"
    "set key bottom right\n"
    "plot $prompt title 'prompt' lc rgb '#1f5fa8', $output title 'output' lc rgb '#a8521f'\n"
    "unset logscale x\nset xlabel 'time (s)'\nset ylabel 'tokens/s'\nset yrange [0:*]\n"
    "set key top right\n"
    "plot $time using 1:3 title 'prompt' lc rgb '#1f5fa8', "
    "$time using 1:4 title 'output' lc rgb '#a8521f'\n"
    "unset multiplot\n";

struct figure {
    const struct trace_stats *stats;
    const char *title;
};

static enum status draw(const void *self, FILE *script, struct error *error)
{
    const struct figure *figure = self;
    fputs("the_title = ", script);
    gnuplot_quoted_write(figure->title, script);
    fputc('\n', script);
    if (!data_write(figure->stats, script))
        return error_set(error, ST_NO_MEMORY, "out of memory");
    fputs(plots, script);
    return ST_OK;
}

enum status trace_show_picture(const struct trace_stats *stats, const char *title, const char *path,
                               struct error *error)
{
    const struct figure figure = {stats, title};
    const struct gnuplot_picture picture = {
        .width = 1200, .height = 800, .draw = draw, .self = &figure};
    enum status status = gnuplot_file_draw(&picture, path, error);
    if (status != ST_OK)
        error_prefix(error, "--plot %s", path);
    return status;
}
