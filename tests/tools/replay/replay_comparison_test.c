/* Goal: the comparison with other times is right, and quantiles stay right when samples are counted
 * in buckets. Method: rows with known ratios in another order; two million samples compared with
 * their exact quantiles. */
#include "tests/check.h"
#include "tests/scarce_memory.h"
#include "tools/replay/comparison.h"
#include "tools/report/csv.h"

#include <math.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static char path[] = "/tmp/cleave-times-XXXXXX";

static void file_write(const char *text)
{
    FILE *file = fopen(path, "w");
    CHECK(file != NULL && fputs(text, file) >= 0);
    CHECK(fclose(file) == 0);
}

static struct replay_comparison *open_text(const char *text)
{
    struct replay_comparison *times = NULL;
    struct error error = {0};
    file_write(text);
    CHECKF(replay_comparison_open(path, false, &times, &error) == ST_OK, "%s", error.text);
    return times;
}

static double number_at(json_t *root, const char *time, const char *quantile, const char *key)
{
    json_t *of = json_object_get(json_object_get(root, time), quantile);
    CHECKF(json_is_number(json_object_get(of, key)), "%s %s %s", time, quantile, key);
    return json_number_value(json_object_get(of, key));
}

static bool near(double a, double b)
{
    return fabs(a - b) < 1e-3;
}

/* 100 requests. Compared with the times without contention, TTFT is 1.9 times as long, TBT equal,
 * and E2E six times as long. */
static void test_joined(void)
{
    FILE *file = fopen(path, "w");
    CHECK(file != NULL);
    fprintf(file, "request_id,e2e_s,ttft_s,tbt_s,outcome\n");
    for (int i = 0; i < 100; i++)
        fprintf(file, "%d,2,%g,0.05,done\n", i * 37 % 100, 0.001 * (i * 37 % 100 + 1));
    fprintf(file, "100,1,1,1,refused\n");
    fclose(file);
    struct replay_comparison *times = NULL;
    struct error error = {0};
    CHECKF(replay_comparison_open(path, true, &times, &error) == ST_OK, "%s", error.text);
    for (uint64_t i = 0; i < 101; i++)
        CHECK(replay_comparison_add(times, i,
                                    (double[]){1.9 * (double)(i + 1), 50, i == 7 ? 5000 : 12000},
                                    i % 2 == 0) == ST_OK);
    CHECK(replay_comparison_count_within_limits(times) == 1);

    json_t *root = replay_comparison_json_errors(times);
    CHECK(json_integer_value(json_object_get(root, "joined")) == 100);
    CHECK(json_integer_value(json_object_get(root, "not_in_it")) == 1);
    CHECK(near(number_at(root, "ttft", "P50", "measured_ms"), 95.95));
    CHECK(near(number_at(root, "ttft", "P50", "predicted_ms"), 50.5));
    CHECK(near(number_at(root, "ttft", "P50", "error_percent"), -47.3684));
    CHECK(near(number_at(root, "tbt", "P99", "error_percent"), 0));
    json_decref(root);
    root = replay_comparison_json_slowdowns(times);
    CHECK(near(number_at(root, "ttft", "P50", "slowdown"), 1.9));
    CHECK(near(number_at(root, "e2e", "P90", "slowdown"), 6));
    CHECK(near(number_at(root, "e2e", "P90", "limit"), 1.5));
    CHECK(json_is_false(json_object_get(root, "met")));
    json_decref(root);

    char text[2000] = "";
    FILE *out = fmemopen(text, sizeof(text), "w");
    replay_comparison_print_slowdowns(times, out);
    replay_comparison_print_errors(times, out);
    fclose(out);
    CHECKF(strstr(text, "6 of 9 limits met: the SLO is missed") != NULL, "%s", text);
    CHECKF(strstr(text, "TTFT P50          95.95        50.50     -47.4%") != NULL, "%s", text);
    replay_comparison_close(times);
}

/* Without a joined request, or with times of 0 only, the SLO is neither met nor missed. */
static void test_nothing_measured(void)
{
    static const uint64_t ids[] = {1, 2};
    for (int i = 0; i < 2; i++) {
        struct replay_comparison *times = open_text("request_id,ttft_s,tbt_s,e2e_s\n1,0,0,0\n");
        CHECK(replay_comparison_add(times, ids[i], (double[]){10, 20, 30}, true) == ST_OK);
        json_t *root = replay_comparison_json_slowdowns(times);
        CHECK(json_integer_value(json_object_get(root, "joined")) == (i == 0 ? 1 : 0));
        CHECK(json_is_null(json_object_get(root, "met")));
        json_decref(root);
        char text[2000] = "";
        FILE *out = fmemopen(text, sizeof(text), "w");
        replay_comparison_print_slowdowns(times, out);
        fclose(out);
        CHECKF(strstr(text, "no slowdown was measured") != NULL, "%s", text);
        replay_comparison_close(times);
    }
}

static void refused(const char *text, const char *wanted)
{
    struct replay_comparison *times = NULL;
    struct error error = {0};
    file_write(text);
    CHECK(replay_comparison_open(path, false, &times, &error) < 0 && times == NULL);
    CHECKF(strstr(error.text, wanted) != NULL, "\ngot  %s\nwant %s", error.text, wanted);
}

static void test_files(void)
{
    struct replay_comparison *times =
        open_text("{\"done\":3,\"ttft_s\":{\"p50\":0.5,\"p90\":1,\"p99\":2},"
                  "\"tbt_s\":{\"p50\":0.1},\"e2e_s\":{\"p50\":1}}");
    CHECK(replay_comparison_add(times, 5, (double[]){1000, 100, 2000}, true) == ST_OK);
    json_t *root = replay_comparison_json_errors(times);
    CHECK(near(number_at(root, "ttft", "P50", "predicted_ms"), 500));
    CHECK(near(number_at(root, "ttft", "P90", "error_percent"), 0));
    json_decref(root);
    replay_comparison_close(times);
    refused("{\"done\":3}", "no \"ttft_s\": want the --json of cleave simulate");
    refused("{", "want the --json of cleave simulate");
    refused("request_id,ttft_s,tbt_s\n1,1,1\n", ":1: no column \"e2e_s\"");
    refused("request_id,ttft_s,tbt_s,e2e_s\n1,1,x,1\n", ":2: tbt_s = \"x\": want a number");
    refused("request_id,ttft_s,tbt_s,e2e_s\n1e300,1,1,1\n",
            ":2: request_id = \"1e300\": want a whole number");
    refused("request_id,ttft_s,tbt_s,e2e_s\n1,1,1,1\n2,-1,1,1\n",
            ":3: ttft_s = \"-1\": want seconds, 0 or more");
    refused("\n\nrequest_id,ttft_s,tbt_s,e2e_s\n1,1,1,x\n", ":4: e2e_s = \"x\"");
    refused("", "empty");
}

/* Writes `count` times a text into a pipe, and opens the pipe as the other run's times. */
static struct replay_comparison *open_pipe(const char *before, const char *text, uint32_t count)
{
    struct replay_comparison *times = NULL;
    struct error error = {0};
    int ends[2];
    char name[32];
    CHECK(pipe(ends) == 0);
    CHECK(dprintf(ends[1], "%s", before) == (int)strlen(before));
    for (uint32_t i = 0; i < count; i++)
        CHECK(dprintf(ends[1], "%s", text) == (int)strlen(text));
    CHECK(close(ends[1]) == 0);
    snprintf(name, sizeof(name), "/dev/fd/%d", ends[0]);
    CHECKF(replay_comparison_open(name, false, &times, &error) == ST_OK, "%s", error.text);
    CHECK(close(ends[0]) == 0);
    return times;
}

/* A file is read once: the first and the last row of a pipe arrive, and a whole summary. */
static void test_pipe(void)
{
    static const char summary[] =
        "\n {\"ttft_s\":{\"p50\":0.5},\"tbt_s\":{\"p50\":0.1},\"e2e_s\":{\"p50\":1}}\n";
    static const char columns[] = "\nrequest_id,ttft_s,tbt_s,e2e_s\n1,1,1,1\n";
    /* The rows are more than one buffer of stdio, and less than a pipe holds. */
    struct replay_comparison *rows = open_pipe(columns, "2,1,1,1\n", 2000),
                             *percentiles = open_pipe(summary, "", 0);
    for (uint64_t id = 1; id <= 2; id++)
        CHECK(replay_comparison_add(rows, id, (double[]){1000, 100, 2000}, true) == ST_OK);
    json_t *root = replay_comparison_json_errors(rows);
    CHECK(json_integer_value(json_object_get(root, "joined")) == 2);
    json_decref(root);
    CHECK(replay_comparison_add(percentiles, 5, (double[]){1000, 100, 2000}, true) == ST_OK);
    root = replay_comparison_json_errors(percentiles);
    CHECK(near(number_at(root, "ttft", "P50", "predicted_ms"), 500));
    json_decref(root);
    replay_comparison_close(rows);
    replay_comparison_close(percentiles);
}

/* A summary for which memory runs out is not called a wrong file. */
static void test_no_memory(void)
{
    struct replay_comparison *times = NULL;
    enum status status = ST_NO_MEMORY;
    uint32_t count = 0;
    file_write("{\"ttft_s\":{\"p50\":1},\"tbt_s\":{},\"e2e_s\":{}}");
    json_set_alloc_funcs(scarce_malloc, free);
    for (; status == ST_NO_MEMORY; count++) {
        scarce_allocations_left = count;
        status = replay_comparison_open(path, false, &times, NULL);
    }
    json_set_alloc_funcs(malloc, free);
    CHECKF(status == ST_OK && count > 5, "%d after %u allocations", status, count - 1);
    replay_comparison_close(times);
}

/* A row for which memory runs out is not the end of the file. */
static void test_no_memory_for_row(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    printf("skipped: rows without memory, because a sanitizer ends a process without memory\n");
#else
    struct rlimit before;
    struct csv csv;
    struct error error = {0};
    enum status status;
    file_write("request_id\n1\n");
    CHECK(truncate(path, 1 << 24) == 0); /* The third line has 16 MiB. */
    CHECK(csv_open(&csv, path, &error) == ST_OK);
    CHECK(csv_next(&csv, &status, &error) && status == ST_OK);
    CHECK(getrlimit(RLIMIT_AS, &before) == 0);
    CHECK(setrlimit(RLIMIT_AS, &(struct rlimit){0, before.rlim_max}) == 0);
    const bool is_row = csv_next(&csv, &status, &error);
    CHECK(setrlimit(RLIMIT_AS, &before) == 0);
    CHECKF(!is_row && status == ST_NO_MEMORY, "%d %s", status, error.text);
    csv_close(&csv);
#endif
}

/* More than a million samples are counted in buckets that are 0.2 % wide. */
static void test_samples(void)
{
    struct replay_samples samples = {0};
    for (int i = 0; i < 2000000; i++)
        CHECK(replay_samples_add(&samples, (double)((i * 7919LL) % 2000000) / 1000) == ST_OK);
    struct replay_percentiles p = replay_samples_percentiles(&samples);
    CHECK(samples.values == NULL && samples.quantiles != NULL && p.count == 2000000);
    CHECKF(fabs(p.p50 - 1000) < 2 && fabs(p.p99 - 1980) < 4, "%g %g", p.p50, p.p99);
    CHECKF(fabs(p.mean - 999.9995) < 1e-6 && near(p.max, 1999.999), "%g %g", p.mean, p.max);
    replay_samples_done(&samples);
    CHECK(replay_samples_add(&samples, 3) == ST_OK);
    p = replay_samples_percentiles(&samples);
    CHECK(p.count == 1 && near(p.p50, 3) && near(p.p99, 3) && near(p.max, 3));
    replay_samples_done(&samples);
}

int main(void)
{
    int fd = mkstemp(path);
    CHECK(fd >= 0);
    close(fd);
    test_joined();
    test_nothing_measured();
    test_files();
    test_pipe();
    test_no_memory();
    test_no_memory_for_row();
    test_samples();
    unlink(path);
    return 0;
}
