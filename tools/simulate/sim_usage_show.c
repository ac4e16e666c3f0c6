/* sim_usage_show: see the header. The picture shows the requests and the mean of all machines next
 * to each other, and below them one plot per machine: three in a row, or six small ones if there
 * are more than 18 machines. */
#include "tools/simulate/sim_usage_show.h"

#include <math.h>
#include <stdbool.h>

#define MACHINES_MOST 240 /* Most machines to draw. */
#define WIDTH         1260
#define HEAD_HEIGHT   260

/* Layout of the machines' plots. */
struct grid {
    uint32_t machines;
    uint32_t columns;
    uint32_t rows;
    uint32_t row_height;
    uint32_t stride; /* Intervals per point. */
    bool small;
};

static struct grid grid_of(const struct sim_usage *usage)
{
    bool small = usage->machine_count > 18;
    struct grid grid = {.machines = usage->machine_count,
                        .columns = small ? 6 : 3,
                        .row_height = small ? 80 : 200,
                        .stride = small ? 4 : 1,
                        .small = small};
    grid.machines = grid.machines < MACHINES_MOST ? grid.machines : MACHINES_MOST;
    grid.rows = (grid.machines + grid.columns - 1) / grid.columns;
    return grid;
}

static uint32_t height_of(const struct grid *grid)
{
    return HEAD_HEIGHT + grid->rows * grid->row_height;
}

/* ---- data ---- */

struct time_unit {
    const char *name;
    double seconds;
};

static struct time_unit unit_of(const struct sim_usage *usage)
{
    return usage->end_s < 600     ? (struct time_unit){"s", 1}
           : usage->end_s < 14400 ? (struct time_unit){"min", 60}
                                  : (struct time_unit){"h", 3600};
}

/* Writes the mean over `machines` machines from `first` on, and over `stride` intervals. */
static void row_write(const struct sim_usage *usage, uint32_t first, uint32_t machines,
                      uint32_t interval, uint32_t stride, FILE *script)
{
    uint32_t count = sim_usage_count(usage);
    uint32_t end = interval + stride < count ? interval + stride : count;
    double middle_s = (interval + end) / 2.0 * usage->interval_s;
    double means[SIM_USAGE_LEVELS] = {0};
    for (uint32_t level = 0; level < SIM_USAGE_LEVELS; level++)
        for (uint32_t m = first; m < first + machines; m++)
            for (uint32_t i = interval; i < end; i++)
                means[level] += sim_usage_mean(usage, m, (enum sim_usage_level)level, i) /
                                ((double)machines * (end - interval));
    fprintf(script, "%.6g %.4g %.4g %.4g %.4g\n", middle_s / unit_of(usage).seconds,
            100 * means[SIM_USAGE_PROMPT],
            100 * (means[SIM_USAGE_PROMPT] + means[SIM_USAGE_DECODE]), 100 * means[SIM_USAGE_KV],
            means[SIM_USAGE_BATCH]);
}

static void machines_write(const struct sim_usage *usage, const char *name, uint32_t first,
                           uint32_t machines, uint32_t stride, FILE *script)
{
    fprintf(script, "$%s << EOD\n", name);
    for (uint32_t i = 0; i < sim_usage_count(usage); i += stride)
        row_write(usage, first, machines, i, stride, script);
    if (sim_usage_count(usage) == 0)
        fputs("0 0 0 0 0\n", script); /* gnuplot fails on empty data. */
    fputs("EOD\n", script);
}

static void requests_write(const struct sim_usage *usage, FILE *script)
{
    double unit_s = unit_of(usage).seconds;
    fputs("$requests << EOD\n", script);
    for (uint32_t i = 0; i < sim_usage_count(usage); i++)
        fprintf(script, "%.6g %.6g %.6g\n", (i + 0.5) * usage->interval_s / unit_s,
                sim_usage_cluster_mean(usage, SIM_USAGE_OPEN, i),
                sim_usage_cluster_mean(usage, SIM_USAGE_QUEUED, i));
    if (sim_usage_count(usage) == 0)
        fputs("0 0 0\n", script);
    fputs("EOD\n", script);
}

static double batch_most(const struct sim_usage *usage)
{
    double most = 1;
    for (uint32_t m = 0; m < usage->machine_count; m++)
        for (uint32_t i = 0; i < sim_usage_count(usage); i++)
            most = fmax(most, sim_usage_mean(usage, m, SIM_USAGE_BATCH, i));
    return most;
}

static double open_most(const struct sim_usage *usage)
{
    double most = 1;
    for (uint32_t i = 0; i < sim_usage_count(usage); i++)
        most = fmax(most, sim_usage_cluster_mean(usage, SIM_USAGE_OPEN, i));
    return most;
}

/* ---- plots ---- */

#define KEY "set key below center horizontal font ',8' samplen 1.5 width -2\n"

static void machine_plot(const char *name, const char *title, bool key, FILE *script)
{
    fputs("set title ", script);
    gnuplot_quoted_write(title, script);
    fprintf(script,
            " noenhanced\n%s"
            "plot $%s using 1:3 with filledcurves y1=0 lc rgb '#f0b27a' title 'decodes', "
            "$%s using 1:2 with filledcurves y1=0 lc rgb '#7fb3d5' title 'prompts', "
            "$%s using 1:4 with lines lw 1.5 lc rgb '#333333' title 'KV memory', "
            "$%s using 1:5 axes x1y2 with lines lc rgb '#1e8449' title 'requests in batches'\n",
            key ? KEY : "set key off\n", name, name, name, name);
}

/* Places the next plot; x and y are pixels from the left and from the top. */
static void plot_place(const struct grid *grid, uint32_t x, uint32_t y, uint32_t width,
                       uint32_t height, FILE *script)
{
    double all = height_of(grid);
    fprintf(script, "set origin %.6g,%.6g\nset size %.6g,%.6g\n", (double)x / WIDTH,
            1 - (y + height) / all, (double)width / WIDTH, height / all);
}

static void head_draw(const struct sim_usage *usage, const struct grid *grid, FILE *script)
{
    const struct time_unit unit = unit_of(usage);
    fprintf(script,
            "set multiplot\nset grid lc rgb '#dddddd'\nset tics nomirror\n"
            "set lmargin 8\nset rmargin 7\nset bmargin 4.5\nset tmargin 2\n"
            "set xrange [0:%.9g]\nset xlabel 'time (%s)' offset 0,0.6\nset yrange [0:%.9g]\n"
            "set title 'requests'\n" KEY,
            usage->end_s > 0 ? usage->end_s / unit.seconds : 1, unit.name, 1.05 * open_most(usage));
    plot_place(grid, 0, 0, WIDTH / 2, HEAD_HEIGHT, script);
    fprintf(script,
            "plot $requests using 1:2 with lines lw 1.5 lc rgb '#333333' title 'open', "
            "$requests using 1:3 with lines lw 1.5 lc rgb '#c0392b' title 'their prompt waits'\n"
            "set yrange [0:100]\nset ytics 25\nset ylabel '%%'\nset y2range [0:%.9g]\nset y2tics\n",
            1.05 * batch_most(usage));
    plot_place(grid, WIDTH / 2, 0, WIDTH / 2, HEAD_HEIGHT, script);
    machine_plot("all", "all machines: computing, memory, batches", true, script);
}

static enum status draw(const void *self, FILE *script, struct error *error)
{
    const struct sim_usage *usage = self;
    const struct grid grid = grid_of(usage);
    (void)error;
    requests_write(usage, script);
    machines_write(usage, "all", 0, usage->machine_count, 1, script);
    for (uint32_t m = 0; m < grid.machines; m++) {
        char name[16];
        snprintf(name, sizeof(name), "m%u", m);
        machines_write(usage, name, m, 1, grid.stride, script);
    }
    head_draw(usage, &grid, script);
    if (grid.small)
        fputs("set lmargin 4\nset rmargin 2\nset bmargin 1\nset tmargin 1.5\nset format x ''\n"
              "set tics font ',7' scale 0\nset ytics 100\nset title font ',8' offset 0,-0.7\n"
              "unset y2tics\nunset xlabel\nunset ylabel\n",
              script);
    for (uint32_t m = 0; m < grid.machines; m++) {
        char name[16];
        uint32_t width = WIDTH / grid.columns;
        snprintf(name, sizeof(name), "m%u", m);
        plot_place(&grid, m % grid.columns * width,
                   HEAD_HEIGHT + m / grid.columns * grid.row_height, width, grid.row_height,
                   script);
        machine_plot(name, usage->names[m], false, script);
    }
    fputs("unset multiplot\n", script);
    return ST_OK;
}

struct gnuplot_picture sim_usage_picture(const struct sim_usage *usage)
{
    const struct grid grid = grid_of(usage);
    return (struct gnuplot_picture){
        .width = WIDTH, .height = height_of(&grid), .draw = draw, .self = usage};
}

/* ---- JSON ---- */

static void list_json(const struct sim_usage *usage, const char *name, uint32_t machine,
                      uint32_t level, bool cluster, FILE *out)
{
    fprintf(out, ",\n\"%s\":[", name);
    for (uint32_t i = 0; i < sim_usage_count(usage); i++)
        fprintf(out, "%s%.4g", i > 0 ? "," : "",
                cluster ? sim_usage_cluster_mean(usage, (enum sim_usage_cluster_level)level, i)
                        : sim_usage_mean(usage, machine, (enum sim_usage_level)level, i));
    fputc(']', out);
}

void sim_usage_json(const struct sim_usage *usage, FILE *out)
{
    static const char *const names[SIM_USAGE_LEVELS] = {
        [SIM_USAGE_PROMPT] = "prompt",
        [SIM_USAGE_DECODE] = "decode",
        [SIM_USAGE_KV] = "kv",
        [SIM_USAGE_BATCH] = "batch",
    };
    fprintf(out, "{\"interval_s\":%.9g", usage->interval_s);
    list_json(usage, "open", 0, SIM_USAGE_OPEN, true, out);
    list_json(usage, "queued", 0, SIM_USAGE_QUEUED, true, out);
    fputs(",\n\"machines\":[", out);
    for (uint32_t m = 0; m < usage->machine_count; m++) {
        fprintf(out, "%s{\"name\":\"%s\"", m > 0 ? ",\n" : "", usage->names[m]);
        for (uint32_t level = 0; level < SIM_USAGE_LEVELS; level++)
            list_json(usage, names[level], m, level, false, out);
        fputc('}', out);
    }
    fputs("]}", out);
}
