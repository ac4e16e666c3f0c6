/* replay_comparison: see the header. Rows are sorted by id and found by bisection. Each joined
 * request gives three pairs of samples and their ratios. */
#include "tools/replay/comparison.h"

#include "common/json.h"
#include "tools/report/csv.h"
#include "tools/report/slo.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define QUANTILES   SLO_QUANTILES
#define ID_MAX      9007199254740992.0 /* 2^53: whole numbers are exact up to this one. */
#define SECONDS_MAX 1e9

struct row {
    uint64_t id;
    float ms[REPLAY_TIME_COUNT]; /* Precision of 24 bits: 0.00001 %. */
};

struct replay_comparison {
    char *path;
    struct row *rows;
    uint64_t row_count, row_room;
    bool summary; /* True: no rows, only percentiles of all requests. */
    struct replay_percentiles predicted_summary[REPLAY_TIME_COUNT];
    uint64_t joined, unmatched, within;
    struct replay_samples measured[REPLAY_TIME_COUNT], predicted[REPLAY_TIME_COUNT];
    struct replay_samples slowdowns[REPLAY_TIME_COUNT]; /* Ratios, not milliseconds. */
};

static const char *const names[REPLAY_TIME_COUNT] = {"TTFT", "TBT", "E2E"};
static const char *const keys[REPLAY_TIME_COUNT] = {"ttft", "tbt", "e2e"};
static const char *const quantile_names[QUANTILES] = {"P50", "P90", "P99"};

static_assert((int)REPLAY_TIME_TTFT == SLO_TTFT && (int)REPLAY_TIME_TBT == SLO_TBT &&
                  (int)REPLAY_TIME_E2E == SLO_E2E,
              "slo_limits has the same index, enum replay_time");

static double quantile_of(const struct replay_percentiles *p, int q)
{
    return q == 0 ? p->p50 : q == 1 ? p->p90 : p->p99;
}

/* ---- reading ---- */

static int compare_rows(const void *left, const void *right)
{
    const struct row *a = left, *b = right;
    return (a->id > b->id) - (a->id < b->id);
}

static enum status row_read(struct replay_comparison *times, const struct csv *csv,
                            const uint32_t *columns, struct error *error)
{
    double id, s;
    enum status status = csv_number_read(csv, columns[REPLAY_TIME_COUNT], &id, error);
    if (status != ST_OK)
        return status;
    if (!(id >= 0 && id <= ID_MAX && id == floor(id)))
        return error_set(error, ST_INVALID, "%s:%llu: request_id = \"%.40s\": want a whole number",
                         times->path, (unsigned long long)csv->line,
                         csv_text_at(csv, columns[REPLAY_TIME_COUNT]));
    struct row row = {.id = (uint64_t)id};
    for (int t = 0; t < REPLAY_TIME_COUNT; t++) {
        status = csv_number_read(csv, columns[t], &s, error);
        if (status != ST_OK)
            return status;
        if (!(s >= 0 && s <= SECONDS_MAX))
            return error_set(error, ST_INVALID, "%s:%llu: %s = \"%.40s\": want seconds, 0 or more",
                             times->path, (unsigned long long)csv->line, csv->names[columns[t]],
                             csv_text_at(csv, columns[t]));
        row.ms[t] = (float)(s * 1000);
    }
    if (times->row_count == times->row_room) {
        uint64_t room = times->row_room == 0 ? 4096 : 2 * times->row_room;
        struct row *grown = realloc(times->rows, room * sizeof(*grown));
        if (grown == NULL)
            return error_set(error, ST_NO_MEMORY, "%s: out of memory", times->path);
        times->rows = grown;
        times->row_room = room;
    }
    times->rows[times->row_count++] = row;
    return ST_OK;
}

static enum status rows_read(struct replay_comparison *times, struct csv *csv, struct error *error)
{
    static const char *const columns_wanted[] = {"ttft_s", "tbt_s", "e2e_s", "request_id"};
    uint32_t columns[REPLAY_TIME_COUNT + 1], outcome;
    enum status status = ST_OK;
    for (int c = 0; c <= REPLAY_TIME_COUNT && status == ST_OK; c++)
        status = csv_column_find(csv, columns_wanted[c], &columns[c], error);
    if (status != ST_OK)
        return status;
    bool has_outcome = csv_column_find(csv, "outcome", &outcome, NULL) == ST_OK;
    while (csv_next(csv, &status, error)) {
        if (has_outcome && strcmp(csv_text_at(csv, outcome), "done") != 0)
            continue;
        status = row_read(times, csv, columns, error);
        if (status != ST_OK)
            return status;
    }
    if (status == ST_OK && times->row_count > 0)
        qsort(times->rows, times->row_count, sizeof(times->rows[0]), compare_rows);
    return status;
}

/* empty_lines: how many lines before the file's position were read. Closes the file. */
static enum status csv_read(struct replay_comparison *times, FILE *file, uint64_t empty_lines,
                            struct error *error)
{
    struct csv csv;
    enum status status = csv_open_file(&csv, file, times->path, error);
    if (status != ST_OK)
        return status;
    csv.line += empty_lines;
    status = rows_read(times, &csv, error);
    csv_close(&csv);
    return status;
}

/* Reads {"ttft_s":{"p50":…}} of simulate, or {"summary":{"ttft_ms":{…}}} of replay, where TBT is
 * the distribution of gaps. */
static enum status summary_read(struct replay_comparison *times, FILE *file, struct error *error)
{
    json_error_t why;
    json_t *root;
    enum status status = json_stream_load(file, 0, &root, &why);
    if (status != ST_OK && status != ST_INVALID)
        return error_set(error, status, "%s: %s", times->path, why.text);
    json_t *summary = json_object_get(root, "summary");
    const json_t *from = summary != NULL ? summary : root;
    status = ST_OK;
    times->summary = true;
    for (int t = 0; t < REPLAY_TIME_COUNT && status == ST_OK; t++) {
        char key[16];
        double scale = summary != NULL ? 1 : 1000;
        snprintf(key, sizeof(key), "%s_%s", keys[t], summary != NULL ? "ms" : "s");
        json_t *of = json_object_get(from, key);
        if (!json_is_object(of))
            status =
                error_set(error, ST_INVALID,
                          "%s: no \"%s\": want the --json of cleave "
                          "simulate or cleave replay%s%s",
                          times->path, key, root == NULL ? ": " : "", root == NULL ? why.text : "");
        times->predicted_summary[t] = (struct replay_percentiles){
            .p50 = json_number_value(json_object_get(of, "p50")) * scale,
            .p90 = json_number_value(json_object_get(of, "p90")) * scale,
            .p99 = json_number_value(json_object_get(of, "p99")) * scale};
    }
    json_decref(root);
    return status;
}

/* Reads rows or a summary, and closes the file. A pipe cannot be opened again, so only white space
 * is read to tell which of the two the file has. */
static enum status file_read(struct replay_comparison *times, FILE *file, bool rows_required,
                             struct error *error)
{
    uint64_t empty_lines = 0;
    int c = getc(file);
    for (; c != EOF && isspace(c); c = getc(file))
        empty_lines += c == '\n';
    ungetc(c, file);
    if (c != '{')
        return csv_read(times, file, empty_lines, error);
    enum status status =
        rows_required
            ? error_set(error, ST_INVALID, "%s: a summary: want a CSV row per request", times->path)
            : summary_read(times, file, error);
    fclose(file);
    return status;
}

enum status replay_comparison_open(const char *path, bool rows_required,
                                   struct replay_comparison **times_out, struct error *error)
{
    struct replay_comparison *times = calloc(1, sizeof(*times));
    if (times == NULL)
        return error_set(error, ST_NO_MEMORY, "%s: out of memory", path);
    times->path = strdup(path);
    FILE *file = times->path != NULL ? fopen(path, "re") : NULL;
    enum status status = times->path == NULL ? error_set(error, ST_NO_MEMORY, "out of memory")
                         : file == NULL ? error_set(error, ST_IO, "%s: %s", path, strerror(errno))
                                        : file_read(times, file, rows_required, error);
    if (status != ST_OK) {
        replay_comparison_close(times);
        return status;
    }
    *times_out = times;
    return ST_OK;
}

void replay_comparison_close(struct replay_comparison *times)
{
    if (times == NULL)
        return;
    for (int t = 0; t < REPLAY_TIME_COUNT; t++) {
        replay_samples_done(&times->measured[t]);
        replay_samples_done(&times->predicted[t]);
        replay_samples_done(&times->slowdowns[t]);
    }
    free(times->rows);
    free(times->path);
    free(times);
}

/* ---- joining ---- */

enum status replay_comparison_add(struct replay_comparison *times, uint64_t request_id,
                                  const double *times_ms, bool has_tbt)
{
    const struct row key = {.id = request_id};
    const struct row *row = times->row_count == 0 ? NULL
                                                  : bsearch(&key, times->rows, times->row_count,
                                                            sizeof(times->rows[0]), compare_rows);
    enum status status = ST_OK;
    bool within = true;
    times->unmatched += row == NULL && !times->summary;
    if (row == NULL && !times->summary)
        return ST_OK;
    for (int t = 0; t < REPLAY_TIME_COUNT && status == ST_OK; t++) {
        if (t == REPLAY_TIME_TBT && !has_tbt)
            continue;
        status = replay_samples_add(&times->measured[t], times_ms[t]);
        if (row == NULL || status != ST_OK)
            continue;
        status = replay_samples_add(&times->predicted[t], (double)row->ms[t]);
        if (row->ms[t] > 0 && status == ST_OK) {
            double slowdown = times_ms[t] / (double)row->ms[t];
            status = replay_samples_add(&times->slowdowns[t], slowdown);
            within &= slowdown < slo_limits[t][QUANTILES - 1];
        }
    }
    if (status != ST_OK)
        return status;
    times->joined += row != NULL;
    times->within += within && row != NULL;
    return ST_OK;
}

uint64_t replay_comparison_count_within_limits(const struct replay_comparison *times)
{
    return times->within;
}

/* ---- results ---- */

struct pair {
    struct replay_percentiles measured, predicted;
};

static struct pair pair_of(struct replay_comparison *times, int t)
{
    return (struct pair){replay_samples_percentiles(&times->measured[t]),
                         times->summary ? times->predicted_summary[t]
                                        : replay_samples_percentiles(&times->predicted[t])};
}

/* Returns the prediction's error in percent of the measured value. */
static double error_percent(double measured, double predicted)
{
    return measured > 0 ? 100 * (predicted / measured - 1) : 0;
}

void replay_comparison_print_errors(struct replay_comparison *times, FILE *out)
{
    fprintf(out, "\ncompared with %s: ", times->path);
    if (times->summary)
        fprintf(out, "its percentiles are those of all its requests; no request was joined\n");
    else
        fprintf(out, "%llu requests joined, %llu of this run are not in the file\n",
                (unsigned long long)times->joined, (unsigned long long)times->unmatched);
    fprintf(out, "%-10s %12s %12s %10s\n", "ms", "measured", "predicted", "error");
    for (int t = 0; t < REPLAY_TIME_COUNT; t++) {
        struct pair pair = pair_of(times, t);
        for (int q = 0; q < QUANTILES && pair.measured.count > 0; q++) {
            double measured = quantile_of(&pair.measured, q),
                   predicted = quantile_of(&pair.predicted, q);
            fprintf(out, "%-4s %-5s %12.2f %12.2f %+9.1f%%\n", names[t], quantile_names[q],
                    measured, predicted, error_percent(measured, predicted));
        }
    }
}

json_t *replay_comparison_json_errors(struct replay_comparison *times)
{
    json_t *root = json_pack("{s:s, s:I, s:I}", "file", times->path, "joined",
                             (json_int_t)times->joined, "not_in_it", (json_int_t)times->unmatched);
    for (int t = 0; t < REPLAY_TIME_COUNT; t++) {
        struct pair pair = pair_of(times, t);
        json_t *of = json_object();
        for (int q = 0; q < QUANTILES && pair.measured.count > 0; q++) {
            double measured = quantile_of(&pair.measured, q),
                   predicted = quantile_of(&pair.predicted, q);
            json_object_set_new(of, quantile_names[q],
                                json_pack("{s:f, s:f, s:f}", "measured_ms", measured,
                                          "predicted_ms", predicted, "error_percent",
                                          error_percent(measured, predicted)));
        }
        json_object_set_new(root, keys[t], of);
    }
    return root;
}

void replay_comparison_print_slowdowns(struct replay_comparison *times, FILE *out)
{
    int met = 0, of = 0;
    fprintf(out,
            "\nslowdown against %s: %llu requests joined, %llu of this run are not in the file\n",
            times->path, (unsigned long long)times->joined, (unsigned long long)times->unmatched);
    fprintf(out, "%-10s %10s %10s\n", "", "measured", "at most");
    for (int t = 0; t < REPLAY_TIME_COUNT; t++) {
        struct replay_percentiles p = replay_samples_percentiles(&times->slowdowns[t]);
        for (int q = 0; q < QUANTILES && p.count > 0; q++) {
            bool good = quantile_of(&p, q) < slo_limits[t][q];
            fprintf(out, "%-4s %-5s %10.2f %10.2f  %s\n", names[t], quantile_names[q],
                    quantile_of(&p, q), slo_limits[t][q], good ? "met" : "missed");
            met += good;
            of++;
        }
    }
    if (of == 0)
        fprintf(out, "no slowdown was measured\n");
    else
        fprintf(out, "%d of %d limits met: the SLO is %s\n", met, of, met == of ? "met" : "missed");
}

json_t *replay_comparison_json_slowdowns(struct replay_comparison *times)
{
    bool met = true, any = false;
    json_t *root = json_pack("{s:s, s:I, s:I}", "file", times->path, "joined",
                             (json_int_t)times->joined, "within", (json_int_t)times->within);
    for (int t = 0; t < REPLAY_TIME_COUNT; t++) {
        struct replay_percentiles p = replay_samples_percentiles(&times->slowdowns[t]);
        json_t *of = json_object();
        for (int q = 0; q < QUANTILES && p.count > 0; q++) {
            any = true;
            met &= quantile_of(&p, q) < slo_limits[t][q];
            json_object_set_new(
                of, quantile_names[q],
                json_pack("{s:f, s:f}", "slowdown", quantile_of(&p, q), "limit", slo_limits[t][q]));
        }
        json_object_set_new(root, keys[t], of);
    }
    json_object_set_new(root, "met", any ? json_boolean(met) : json_null());
    return root;
}
