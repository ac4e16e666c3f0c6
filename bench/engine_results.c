/* engine_results: see the header. */
#include "bench/engine_results.h"

#include "bench/engine_bound.h"
#include "common/json.h"
#include "tools/report/table.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define SERIES_MAX 64

/* The samples of one case with one number of threads. */
struct series {
    const struct engine_case *c;
    uint32_t threads;
    uint32_t count;
    struct engine_sample samples[ENGINE_SAMPLES_MAX];
};

struct engine_results {
    uint32_t count;
    struct series series[SERIES_MAX];
};

enum status engine_results_open(struct engine_results **out)
{
    struct engine_results *results = calloc(1, sizeof(*results));
    if (results == NULL)
        return ST_NO_MEMORY;
    *out = results;
    return ST_OK;
}

void engine_results_close(struct engine_results *results)
{
    free(results);
}

static const struct series *series_find(const struct engine_results *results,
                                        const struct engine_case *c, uint32_t threads)
{
    for (uint32_t i = 0; i < results->count; i++)
        if (results->series[i].c == c && results->series[i].threads == threads)
            return &results->series[i];
    return NULL;
}

enum status engine_results_add(struct engine_results *results, const struct engine_case *c,
                               uint32_t threads, const struct engine_sample *sample)
{
    struct series *series = (struct series *)series_find(results, c, threads);
    if (series == NULL) {
        if (results->count == SERIES_MAX)
            return ST_NO_RESOURCE;
        series = &results->series[results->count++];
        *series = (struct series){.c = c, .threads = threads};
    }
    if (series->count == ENGINE_SAMPLES_MAX)
        return ST_NO_RESOURCE;
    series->samples[series->count++] = *sample;
    return ST_OK;
}

static const struct engine_case *case_find(const char *name)
{
    for (size_t i = 0; name != NULL && i < engine_case_count; i++)
        if (strcmp(engine_cases[i].name, name) == 0)
            return &engine_cases[i];
    return NULL;
}

/* Skips a case that this version does not have. */
static enum status series_read(struct engine_results *results, json_t *from)
{
    const struct engine_case *c = case_find(json_string_value(json_object_get(from, "case")));
    uint32_t threads = (uint32_t)json_integer_value(json_object_get(from, "threads"));
    size_t i;
    json_t *one;
    json_array_foreach(json_object_get(from, "samples"), i, one)
    {
        struct engine_sample sample = {
            .tokens_a_second = json_number_value(json_object_get(one, "tokens_a_second"))};
        for (enum roofline_rate rate = 0; rate < ROOFLINE_RATES; rate++)
            sample.roofline.rates[rate] =
                json_number_value(json_object_get(one, roofline_rate_name(rate)));
        enum status status = c != NULL ? engine_results_add(results, c, threads, &sample) : ST_OK;
        if (status != ST_OK)
            return status;
    }
    return ST_OK;
}

enum status engine_results_read(struct engine_results *results, const char *path,
                                struct error *error)
{
    json_error_t why;
    json_t *root;
    enum status status = json_file_load(path, 0, &root, &why);
    if (status == ST_INVALID)
        return error_set(error, status, "%s:%d: %s", path, why.line, why.text);
    if (status != ST_OK)
        return error_set(error, status, "%s: %s", path, why.text);
    json_t *all = json_object_get(root, "engine"), *one;
    status =
        json_is_array(all) ? ST_OK : error_set(error, ST_INVALID, "%s: no \"engine\" list", path);
    size_t i;
    json_array_foreach(all, i, one)
    {
        if (status == ST_OK && series_read(results, one) != ST_OK)
            status = error_set(error, ST_NO_RESOURCE, "%s: more samples than %d of a case", path,
                               ENGINE_SAMPLES_MAX);
    }
    json_decref(root);
    return status;
}

static json_t *series_json(const struct series *series)
{
    json_t *samples = json_array();
    for (uint32_t i = 0; i < series->count; i++) {
        const struct engine_sample *sample = &series->samples[i];
        json_t *one = json_pack("{s:f}", "tokens_a_second", sample->tokens_a_second);
        for (enum roofline_rate rate = 0; rate < ROOFLINE_RATES; rate++)
            json_object_set_new(one, roofline_rate_name(rate),
                                json_real(sample->roofline.rates[rate]));
        json_array_append_new(samples, one);
    }
    return json_pack("{s:s, s:i, s:o}", "case", series->c->name, "threads", (int)series->threads,
                     "samples", samples);
}

enum status engine_results_write(const struct engine_results *results, const char *path,
                                 struct error *error)
{
    json_t *all = json_array();
    for (uint32_t i = 0; i < results->count; i++)
        json_array_append_new(all, series_json(&results->series[i]));
    json_t *root = json_pack("{s:o}", "engine", all);
    int failed = json_dump_file(root, path, JSON_INDENT(1) | JSON_REAL_PRECISION(8));
    json_decref(root);
    return failed == 0 ? ST_OK : error_set(error, ST_IO, "%s: cannot write it", path);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct spread {
    double low, median, high;
};

static struct spread spread_of(double *values, uint32_t count)
{
    qsort(values, count, sizeof(*values), by_value);
    double median = (values[(count - 1) / 2] + values[count / 2]) / 2;
    return (struct spread){values[0], median, values[count - 1]};
}

static struct spread rates_of(const struct series *series)
{
    double values[ENGINE_SAMPLES_MAX] = {0};
    for (uint32_t i = 0; i < series->count; i++)
        values[i] = series->samples[i].tokens_a_second;
    return spread_of(values, series->count);
}

/* Fills the cells of the limit and of the share of the limit. Each sample is compared with the
 * limit at its own time; the words come from the last sample's limit. */
static void bound_cells(struct table *table, const struct series *series,
                        const struct model_hyper *hyper, size_t weight_bytes)
{
    double bounds[ENGINE_SAMPLES_MAX] = {0}, parts[ENGINE_SAMPLES_MAX] = {0};
    struct engine_bound bound = {0};
    for (uint32_t i = 0; i < series->count; i++) {
        const struct engine_sample *sample = &series->samples[i];
        bound = engine_bound_of(hyper, weight_bytes, &sample->roofline, series->c);
        if (bound.tokens_a_second == 0) {
            for (int k = 0; k < 3; k++)
                table_cell_add(table, "unknown");
            return;
        }
        bounds[i] = bound.tokens_a_second;
        parts[i] = 100 * sample->tokens_a_second / bound.tokens_a_second;
    }
    struct spread spread = spread_of(parts, series->count);
    table_cell_add(table, "%.0f", spread_of(bounds, series->count).median);
    table_cell_add(table, "%.0f (%.0f-%.0f) %%", spread.median, spread.low, spread.high);
    table_cell_add(table,
                   bound.memory_bound ? "memory: weights %.0f %%" : "arithmetic: matrices %.0f %%",
                   100 * bound.weights_share);
}

static void series_row(struct table *table, const struct series *series,
                       const struct engine_results *before, const struct model_hyper *hyper,
                       size_t weight_bytes)
{
    bool default_shape = hyper->hidden == 576 && hyper->layer_count == 30;
    double goal = series->threads == 1   ? series->c->goal_one_thread
                  : series->threads == 2 ? series->c->goal_two_threads
                                         : 0;
    struct spread rates = rates_of(series);
    table_cell_add(table, "%s", series->c->name);
    if (goal > 0 && default_shape)
        table_cell_add(table, "%.0f", goal);
    else
        table_cell_add(table, "-");
    table_cell_add(table, "%.0f", rates.median);
    table_cell_add(table, "%.0f-%.0f", rates.low, rates.high);
    bound_cells(table, series, hyper, weight_bytes);
    if (before == NULL)
        return;
    const struct series *old = series_find(before, series->c, series->threads);
    double old_median = old != NULL ? rates_of(old).median : 0;
    table_cell_add(table, "%.0f", old_median);
    table_cell_add(table, "%.2f", old_median > 0 ? rates.median / old_median : 0);
}

void engine_results_print(const struct engine_results *results, const struct engine_results *before,
                          uint32_t threads, const struct model_hyper *hyper, size_t weight_bytes,
                          FILE *file)
{
    static const char *const heads[] = {"goal",  "median",         "range",  "bound",
                                        "of it", "what bounds it", "before", "now/before"};
    static struct table table;
    uint32_t count = before != NULL ? 8 : 6;
    table_init(&table, count + 1);
    table_cell_add(&table, "tokens/s, %u thread%s", threads, threads == 1 ? "" : "s");
    for (uint32_t i = 0; i < count; i++)
        table_cell_add(&table, "%s", heads[i]);
    for (uint32_t i = 0; i < results->count; i++)
        if (results->series[i].threads == threads)
            series_row(&table, &results->series[i], before, hyper, weight_bytes);
    table_print_markdown(&table, file);
}

/* Returns the spread of one rate over all cases with `threads` threads; median 0 = no samples. */
static struct spread roofline_spread(const struct engine_results *results, uint32_t threads,
                                     enum roofline_rate rate)
{
    static double values[SERIES_MAX * ENGINE_SAMPLES_MAX];
    uint32_t count = 0;
    for (uint32_t i = 0; i < results->count; i++)
        for (uint32_t k = 0; results->series[i].threads == threads && k < results->series[i].count;
             k++)
            values[count++] = results->series[i].samples[k].roofline.rates[rate];
    return count > 0 ? spread_of(values, count) : (struct spread){0};
}

void engine_results_print_roofline(const struct engine_results *results, const uint32_t *threads,
                                   uint32_t threads_count, FILE *file)
{
    static const char *const titles[ROOFLINE_RATES] = {
        "8-bit dot products, Gop/s", "16-bit dot products, Gop/s", "bf16 dot products, Gop/s",
        "fp32 multiply-add, Gop/s",  "reads of memory, GB/s",      "reads of the last cache, GB/s"};
    static struct table table;
    table_init(&table, 1 + 2 * threads_count);
    table_cell_add(&table, "the machine at best");
    for (uint32_t i = 0; i < threads_count; i++) {
        table_cell_add(&table, "%u thread%s", threads[i], threads[i] == 1 ? "" : "s");
        table_cell_add(&table, "range");
    }
    for (enum roofline_rate rate = 0; rate < ROOFLINE_RATES; rate++) {
        table_cell_add(&table, "%s", titles[rate]);
        for (uint32_t i = 0; i < threads_count; i++) {
            struct spread spread = roofline_spread(results, threads[i], rate);
            table_cell_add(&table, "%.0f", spread.median * 1e-9);
            table_cell_add(&table, "%.0f-%.0f", spread.low * 1e-9, spread.high * 1e-9);
        }
    }
    table_print_markdown(&table, file);
}
