/* simulate_html: see the header. */
#include "tools/simulate/simulate_html.h"

#include "tools/report/html.h"
#include "tools/simulate/sim_usage_show.h"

#include <stdlib.h>

#define CDF_POINTS 200
#define CDF_LEAST  1e-6 /* Seconds; the axis is logarithmic. */

struct measure {
    const char *title;
    const struct quantiles *seconds;
};

static void cdf_plot(const struct measure *measure, uint32_t number, FILE *script)
{
    fprintf(script, "$cdf%u << EOD\n", number);
    for (int i = 0; i < CDF_POINTS && measure->seconds->count > 0; i++) {
        double q = (i + 0.5) / CDF_POINTS;
        double seconds = quantiles_at(measure->seconds, q);
        fprintf(script, "%.9g %g\n", 1e3 * (seconds > CDF_LEAST ? seconds : CDF_LEAST), q);
    }
    fprintf(script, "EOD\nset xlabel '%s, ms'\n", measure->title);
    if (measure->seconds->count > 0)
        fprintf(script,
                "set xrange [*:*]\nplot $cdf%u using 1:2 with lines lw 2 lc rgb '#1f5fa8'\n",
                number);
    else /* An empty axis with its name. */
        fputs("set xrange [1:1000]\nplot 1/0\n", script);
}

static enum status cdfs_draw(const void *self, FILE *script, struct error *error)
{
    const struct sim_report *report = self;
    const struct measure measures[] = {
        {"TTFT", &report->ttft}, {"TBT", &report->tbt}, {"E2E", &report->e2e}};
    (void)error;
    fputs("set multiplot layout 1,3\nset grid lc rgb '#dddddd'\nset key off\nset logscale x\n"
          "set ylabel 'share of requests'\nset yrange [0:1]\n",
          script);
    for (uint32_t i = 0; i < 3; i++)
        cdf_plot(&measures[i], i, script);
    fputs("unset multiplot\n", script);
    return ST_OK;
}

static enum status data_write(const struct simulate_html *html, FILE *out, struct error *error)
{
    char *text = NULL;
    size_t bytes;
    FILE *memory = open_memstream(&text, &bytes);
    if (memory == NULL)
        return error_set(error, ST_NO_MEMORY, "out of memory");
    fputs("{\"simulation\":", memory);
    html->json(html->self, memory);
    fputs(",\n\"usage\":", memory);
    sim_usage_json(html->usage, memory);
    fputs("}\n", memory);
    bool whole = fclose(memory) == 0;
    if (whole)
        html_data_write(text, out);
    free(text);
    return whole ? ST_OK : error_set(error, ST_NO_MEMORY, "out of memory");
}

static enum status parts_write(const struct simulate_html *html, FILE *out, struct error *error)
{
    const struct gnuplot_picture usage = sim_usage_picture(html->usage);
    const struct gnuplot_picture cdfs = {
        .width = 1260, .height = 380, .draw = cdfs_draw, .self = html->report};
    html_head_write("cleave simulate", html->options->argc, html->options->argv, out);
    enum status status = html_output_write(html->text, html->self, out, error);
    html_heading_write("How the machines are used over time", out);
    if (status == ST_OK)
        status = html_picture_write(&usage, "cleave simulate: --html", out, error);
    html_heading_write("How long requests take", out);
    if (status == ST_OK)
        status = html_picture_write(&cdfs, "cleave simulate: --html", out, error);
    return status == ST_OK ? data_write(html, out, error) : status;
}

enum status simulate_html_write(const struct simulate_html *html, const char *path,
                                struct error *error)
{
    FILE *out;
    enum status status = html_open(path, &out, error);
    if (status != ST_OK)
        return status;
    return html_close(out, path, parts_write(html, out, error), error);
}
