/* Goal: the figures of a report follow from its samples. Method: results with known times; totals,
 * percentiles, the text and the JSON (read back) are compared with figures computed by hand. */
#include "tests/check.h"
#include "tests/scarce_memory.h"
#include "tools/replay/report.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

static struct replay_result result_of(uint64_t line, int64_t ttft_us, uint32_t events,
                                      int64_t gap_us)
{
    struct replay_result result = {
        .id = line - 2,
        .line = line,
        .due_us = 1000000,
        .sent_us = 1000100,
        .first_token_us = 1000000 + ttft_us,
        .second_token_us = events > 1 ? 1000000 + ttft_us + gap_us : 0,
        .last_token_us = 1000000 + ttft_us + gap_us * (events - 1),
        .end_us = 1000000 + ttft_us + gap_us * events,
        .wanted_prompt_tokens = 10,
        .wanted_completion_tokens = events,
        .prompt_tokens = 10,
        .completion_tokens = events,
        .token_events = events,
        .gap_us_max = gap_us,
        .has_usage = true,
        .http_status = 200,
    };
    return result;
}

static bool near(double a, double b)
{
    return fabs(a - b) < 1e-6;
}

/* Adds 100 requests with TTFT 1…100 ms (in mixed order) and one gap of 10 ms each. The last but one
 * has a wrong count, and four failed. */
static void results_add(struct replay_report *report)
{
    for (uint64_t i = 0; i < 100; i++) {
        struct replay_result result =
            result_of(i + 2, (int64_t)(1 + i * 37 % 100) * 1000, 2, 10000);
        if (i == 98)
            result.completion_tokens = 1;
        if (i == 99)
            result.has_usage = false;
        replay_report_gap_add(report, 10000);
        replay_report_result_add(report, &result);
    }
    struct replay_result failed = result_of(200, 5000000, 2, 1);
    failed.failure = REPLAY_HTTP_STATUS;
    failed.http_status = 429;
    strcpy(failed.message, "queue \"full\"");
    replay_report_result_add(report, &failed);
    replay_report_result_add(report, &failed);
    failed.failure = REPLAY_CUT;
    failed.first_token_us = 0;
    strcpy(failed.message, "cut");
    replay_report_result_add(report, &failed);
    failed.failure = REPLAY_INTERRUPTED;
    replay_report_result_add(report, &failed);
}

static void percentiles_check(struct replay_report *report)
{
    struct replay_percentiles ttft = replay_report_percentiles(report, REPLAY_TTFT);
    CHECK(ttft.count == 100);
    CHECK(near(ttft.mean, 50.5));
    CHECKF(ttft.p50 >= 50 && ttft.p50 <= 51, "%g", ttft.p50);
    CHECKF(ttft.p90 >= 90 && ttft.p90 <= 91, "%g", ttft.p90);
    CHECKF(ttft.p99 >= 99 && ttft.p99 <= 100, "%g", ttft.p99);
    CHECK(near(ttft.max, 100));
    struct replay_percentiles gap = replay_report_percentiles(report, REPLAY_TBT);
    CHECK(gap.count == 100 && near(gap.p50, 10) && near(gap.max, 10));
    CHECK(near(replay_report_percentiles(report, REPLAY_E2E).max, 120));
    struct replay_percentiles late = replay_report_percentiles(report, REPLAY_LATE);
    CHECK(late.count == 104 && near(late.p99, 0.1));
}

static void rows_check(FILE *file)
{
    char line[200];
    rewind(file);
    CHECK(fgets(line, sizeof(line), file) != NULL);
    CHECK(strcmp(line,
                 "request_id,ttft_s,tbt_s,e2e_s,arrival_s,prompt_tokens,output_tokens,outcome,"
                 "late_s\n") == 0);
    CHECK(fgets(line, sizeof(line), file) != NULL);
    CHECKF(strcmp(line, "0,0.001000,0.010000,0.021000,0.000000,10,2,done,0.000100\n") == 0, "%s",
           line);
    for (int i = 1; i <= 100; i++)
        CHECK(fgets(line, sizeof(line), file) != NULL);
    CHECKF(strcmp(line, "198,,,,0.000000,10,2,failed,0.000100\n") == 0, "%s", line);
}

static void json_check(FILE *file)
{
    json_error_t why;
    rewind(file);
    json_t *root = json_loadf(file, 0, &why);
    CHECKF(root != NULL, "%s", why.text);
    CHECK(json_array_size(json_object_get(root, "requests")) == 104);
    json_t *row = json_array_get(json_object_get(root, "requests"), 98);
    CHECK(strcmp(json_string_value(json_object_get(row, "status")), "wrong counts") == 0);
    CHECK(json_integer_value(json_object_get(row, "line")) == 100);
    CHECK(near(json_real_value(json_object_get(row, "second_ms")), 10));
    row = json_array_get(json_object_get(root, "requests"), 100);
    CHECK(strcmp(json_string_value(json_object_get(row, "message")), "queue \"full\"") == 0);
    json_t *summary = json_object_get(root, "summary");
    CHECK(json_integer_value(json_object_get(summary, "failed")) == 3);
    CHECK(near(json_real_value(json_object_get(summary, "requests_per_s")), 10));
    CHECK(near(json_real_value(json_object_get(json_object_get(summary, "e2e_ms"), "max")), 120));
    json_t *failures = json_object_get(summary, "failures");
    CHECK(json_integer_value(json_object_get(json_object_get(failures, "http status"), "count")) ==
          2);
    CHECK(strcmp(json_string_value(json_object_get(json_object_get(root, "options"), "trace")),
                 "t.csv") == 0);
    json_decref(root);
}

static void test_report(void)
{
    struct replay_report *report;
    char text[4096] = "";
    FILE *json = tmpfile(), *rows = tmpfile(), *out = fmemopen(text, sizeof(text), "w");
    CHECK(json != NULL && rows != NULL && out != NULL);
    struct replay_report_options options = {.trace = "t.csv",
                                            .url = "http://x",
                                            .model = "m",
                                            .slo_ttft_ms = 40,
                                            .slo_tbt_ms = 10,
                                            .json = json,
                                            .csv = rows};
    CHECK(replay_report_open(&options, &report) == ST_OK);
    results_add(report);

    const struct replay_totals *totals = replay_report_totals(report);
    CHECK(totals->sent == 104 && totals->done == 100 && totals->failed == 3);
    CHECK(totals->interrupted == 1 && totals->wrong_counts == 1 && totals->without_usage == 1);
    CHECK(totals->within_slo == 40);
    CHECK(totals->prompt_tokens == 1000 && totals->completion_tokens == 199);
    percentiles_check(report);

    const struct replay_end end = {
        .wall_us = 10000000, .skipped_rows = 3, .first_skipped = "t.csv:7: why"};
    CHECK(replay_report_finish(report, &end, out) == ST_OK);
    fclose(out);
    printf("%s", text);
    CHECK(strstr(text, "104 sent, 100 done, 3 failed, 1 interrupted") != NULL);
    CHECK(strstr(text, "2 http status, the first: 429 queue \"full\"") != NULL);
    CHECK(strstr(text, "1 cut short, the first: cut") != NULL);
    CHECK(strstr(text, "3 rows of the trace left out, the first: t.csv:7: why\n") != NULL);
    rows_check(rows);
    fclose(rows);
    CHECK(strstr(text, "10.00 requests/s, 100.0 tokens/s in, 19.9 tokens/s out") != NULL);
    CHECK(strstr(text, "4.00 requests/s in the SLO (40 of 104)") != NULL);
    json_check(json);
    fclose(json);
    replay_report_close(report);
}

/* Without requests, no percentile is printed, and the JSON is valid. */
static void test_empty(void)
{
    struct replay_report *report;
    char text[1024] = "";
    FILE *json = tmpfile(), *out = fmemopen(text, sizeof(text), "w");
    struct replay_report_options options = {.trace = "t", .url = "u", .model = "m", .json = json};
    CHECK(replay_report_open(&options, &report) == ST_OK);
    CHECK(replay_report_finish(report, &(struct replay_end){0}, out) == ST_OK);
    fclose(out);
    CHECK(strstr(text, "TTFT") == NULL);
    rewind(json);
    json_t *root = json_loadf(json, 0, NULL);
    CHECK(json_array_size(json_object_get(root, "requests")) == 0 && root != NULL);
    json_decref(root);
    fclose(json);
    replay_report_close(report);
}

/* A JSON for which memory runs out is not called written. */
static void test_no_memory(void)
{
    const struct replay_result result = {.failure = REPLAY_HTTP_STATUS, .message = "full"};
    enum status status = ST_NO_MEMORY;
    uint32_t count = 0;
    for (; status == ST_NO_MEMORY; count++) {
        struct replay_report *report;
        FILE *json = tmpfile(), *out = tmpfile();
        const struct replay_report_options options = {
            .trace = "t", .url = "u", .model = "m", .json = json};
        json_set_alloc_funcs(scarce_malloc, free);
        scarce_allocations_left = count;
        CHECK(replay_report_open(&options, &report) == ST_OK);
        replay_report_result_add(report, &result);
        status = replay_report_finish(report, &(struct replay_end){0}, out);
        json_set_alloc_funcs(malloc, free);
        replay_report_close(report);
        rewind(json);
        json_t *root = json_loadf(json, 0, NULL);
        json_t *row = json_array_get(json_object_get(root, "requests"), 0);
        json_t *summary = json_object_get(root, "summary");
        const bool complete = json_object_size(json_object_get(root, "options")) > 5 &&
                              json_object_get(row, "message") != NULL &&
                              json_object_get(summary, "late_ms") != NULL;
        CHECKF(complete || status == ST_NO_MEMORY, "%u allocations", count);
        json_decref(root);
        fclose(json);
        fclose(out);
    }
    CHECKF(status == ST_OK && count > 20, "%d after %u allocations", status, count - 1);
}

int main(void)
{
    test_report();
    test_empty();
    test_no_memory();
    return 0;
}
