/* Goal: a trace made from event logs has exactly the requests that were served, with their arrival,
 * tokens, shared prefixes and tenants; every other request is counted by its reason; a broken log
 * gives an error that names file and line. Method: small logs by hand, each line as
 * events/event_text.h shows it. A real gateway's log is in tests/cluster/test_replay.py. */
#include "tests/check.h"
#include "tests/scarce_lines.h"
#include "tools/trace/served.h"
#include "tools/trace/trace.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

#define BEGIN                                                                                      \
    "{\"events\":1,\"whole\":true,\"options\":{\"request_count\":8,\"machine_count\":2,"           \
    "\"prefix_step_tokens\":128}}\n"
#define ARRIVED(t, slot, prompt, more)                                                             \
    "{\"t\":" #t ",\"event\":\"arrived\",\"request\":" #slot ",\"prompt_tokens\":" #prompt         \
    ",\"output_tokens\":50" more ",\"actions\":[]}\n"
#define NO_KEY ",\"key\":4294967295"
#define ENDED(t, slot, tokens)                                                                     \
    "{\"t\":" #t ",\"event\":\"ended\",\"request\":" #slot ",\"output_tokens\":" #tokens           \
    ",\"actions\":[]}\n"
#define COMPUTED(t, slot)                                                                          \
    "{\"t\":" #t ",\"event\":\"computed\",\"request\":" #slot ",\"actions\":[]}\n"

static char folder[] = "/tmp/cleave-trace-served-XXXXXX";
static char paths[2][80];

static void log_write(int which, const char *text)
{
    FILE *file = fopen(paths[which], "w");
    CHECK(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
}

/* Converts the first `count` logs, and opens the trace. */
static struct trace *served(uint32_t count, bool skip, struct served_totals *totals)
{
    const char *const names[] = {paths[0], paths[1]};
    struct error error = {""};
    struct trace *trace = NULL;
    FILE *file = tmpfile();
    CHECK(file != NULL);
    enum status status = trace_served_write(names, count, skip, file, totals, &error);
    CHECKF(status == ST_OK, "%s", error.text);
    rewind(file);
    status = trace_open_file(file, &(struct trace_options){.name = "t"}, &trace, &error);
    CHECKF(status == ST_OK, "%s", error.text);
    return trace;
}

static struct trace_row row_wanted(struct trace *trace, double at_s, uint32_t prompt,
                                   uint32_t output)
{
    struct trace_row row;
    struct error error = {""};
    CHECKF(trace_next(trace, &row, &error) == ST_OK, "%s", error.text);
    CHECKF(fabs(row.at_s - at_s) < 1e-6 && row.prompt_tokens == prompt &&
               row.output_tokens == output,
           "%f s, %u and %u tokens; want %f, %u and %u", row.at_s, row.prompt_tokens,
           row.output_tokens, at_s, prompt, output);
    return row;
}

static void end_wanted(struct trace *trace)
{
    struct trace_row row;
    CHECK(trace_next(trace, &row, NULL) == ST_NOT_FOUND);
    trace_close(trace);
}

static void failure_wanted(const char *text, bool skip, enum status wanted, const char *error_text)
{
    const char *const names[] = {paths[0]};
    struct served_totals totals;
    struct error error = {""};
    char wanted_text[400];
    FILE *out = tmpfile();
    log_write(0, text);
    snprintf(wanted_text, sizeof(wanted_text), "%s%s", paths[0], error_text);
    CHECK(trace_served_write(names, 1, skip, out, &totals, &error) == wanted);
    CHECKF(strncmp(error.text, wanted_text, strlen(wanted_text)) == 0, "%s\nwant %s", error.text,
           wanted_text);
    fclose(out);
}

/* Arrivals in order, answers that end in another order, slots that are used again, prefixes that
 * two requests share, and two API keys. */
static void test_served(void)
{
    struct served_totals totals;
    log_write(0, BEGIN "{\"machine\":0,\"name\":\"prompt-0\"}\n"
                       "{\"request\":3,\"id\":\"a\"}\n" ARRIVED(5000000, 3, 300,
                                                                ",\"key\":7,\"prefix\":[-9,12]")
                           ARRIVED(5001500, 4, 10, NO_KEY) ENDED(5002000, 4, 7)
                               ARRIVED(5003000, 4, 400, ",\"key\":2,\"prefix\":[-9,77,13]")
                                   ENDED(5004000, 4, 2) ENDED(9000000, 3, 40)
                                       ARRIVED(9500000, 3, 9, ",\"key\":7") ENDED(9600000, 3, 1));
    struct trace *trace = served(1, false, &totals);
    struct trace_row row = row_wanted(trace, 0, 300, 40);
    CHECK(row.block_count == 2 && row.block_tokens == 128 && row.tenant == 1);
    int64_t shared = row.blocks[0], alone = row.blocks[1];
    row = row_wanted(trace, 0.0015, 10, 7);
    CHECK(row.block_count == 0 && row.tenant == 0);
    row = row_wanted(trace, 0.003, 400, 2);
    CHECK(row.block_count == 3 && row.tenant == 2);
    CHECK(row.blocks[0] == shared && row.blocks[1] != alone && row.blocks[2] != alone);
    CHECK(row.blocks[1] != shared && row.blocks[1] != row.blocks[2]);
    CHECK(row_wanted(trace, 4.5, 9, 1).tenant == 1);
    end_wanted(trace);
    CHECK(totals.requests == 4 && totals.requests_unended + totals.refused + totals.tokenless == 0);
    CHECK(!totals.begins_after_start);
}

/* A resumed request is one request with all of its tokens, whether the scheduler ended its first
 * generation (preempted) or lost it. */
static void test_resumed(void)
{
    struct served_totals totals;
    log_write(0, BEGIN ARRIVED(1000, 0, 100, NO_KEY) ARRIVED(1000, 1, 50, NO_KEY) ENDED(2000, 0, 6)
                     ARRIVED(2500, 0, 106,
                             NO_KEY ",\"resumed\":1") "{\"t\":2600,\"event\":\"machine_down\","
                                                      "\"machine\":1,\"actions\":[{\"do\":"
                                                      "\"lost\",\"request\":1}]}\n" ARRIVED(
                                                          2700, 1, 53, NO_KEY ",\"resumed\":1")
                                                          ENDED(3000, 1, 4) ENDED(3000, 0, 10));
    struct trace *trace = served(1, false, &totals);
    row_wanted(trace, 0, 100, 16);
    row_wanted(trace, 0, 50, 7);
    end_wanted(trace);
}

/* Requests that are not in the trace are counted. A prompt without an answer (an embedding) is
 * there, if it was computed. */
static void test_left_out(void)
{
    struct served_totals totals;
    log_write(
        0,
        BEGIN ARRIVED(1000, 0, 100, NO_KEY) ARRIVED(
            1100, 1, 101,
            NO_KEY) "{\"t\":1200,\"event\":\"tick\",\"actions\":[{\"do\":\"expired\",\"request\":1}"
                    ",{\"do\":\"refuse\",\"request\":0}]}\n" ARRIVED(1300, 2, 102, NO_KEY)
                        ENDED(1400, 2, 0) ARRIVED(1500, 2, 103,
                                                  NO_KEY) COMPUTED(1600, 2) ENDED(1700, 2, 0)
                            ARRIVED(1800, 3, 104, NO_KEY) "{\"t\":1900,\"event\":\"ended\",\"requ");
    struct trace *trace = served(1, false, &totals);
    row_wanted(trace, 0, 103, 1);
    end_wanted(trace);
    CHECK(totals.requests == 1 && totals.refused == 2 && totals.tokenless == 1);
    CHECK(totals.requests_unended == 1 && totals.files_incomplete == 1 && totals.lines_lost == 0);
}

/* An answer that ends in the next file of the rotation; lines that are missing; a restart. */
static void test_files(void)
{
    struct served_totals totals;
    log_write(0, BEGIN ARRIVED(1000, 0, 100, NO_KEY) ARRIVED(1100, 1, 101, NO_KEY));
    log_write(1, "{\"events\":1,\"whole\":false,\"options\":{\"request_count\":8}}\n" ENDED(
                     2000, 0, 5) "{\"dropped\":12}\n" ENDED(2100, 1, 9) ARRIVED(2200, 2, 9, NO_KEY)
                     BEGIN ENDED(2300, 2, 9) ARRIVED(2400, 2, 8, NO_KEY) ENDED(2500, 2, 3));
    struct trace *trace = served(2, false, &totals);
    row_wanted(trace, 0, 100, 5);
    row_wanted(trace, 0.0014, 8, 3);
    end_wanted(trace);
    CHECK(totals.requests_unended == 2 && totals.lines_lost == 12 && !totals.begins_after_start);
    log_write(0, ENDED(900, 3, 5) ARRIVED(1000, 0, 100, NO_KEY) ENDED(1100, 0, 5));
    trace = served(1, false, &totals);
    row_wanted(trace, 0, 100, 5);
    end_wanted(trace);
    CHECK(totals.begins_after_start);
    log_write(0, "");
    log_write(1, ENDED(900, 3, 5) ARRIVED(1000, 0, 100, NO_KEY) ENDED(1100, 0, 5));
    trace = served(2, false, &totals);
    row_wanted(trace, 0, 100, 5);
    end_wanted(trace);
    CHECK(totals.begins_after_start);
}

static void test_wrong(void)
{
    struct served_totals totals;
    static const char broken[] =
        BEGIN ARRIVED(1000, 0, 100, NO_KEY) "{\"t\":11\xff\n" ENDED(1200, 0, 5)
            ARRIVED(1300, 0, 9, NO_KEY) ENDED(1400, 0, 2);
    failure_wanted(broken, false, ST_INVALID, ":3: not JSON: ");
    log_write(0, broken);
    struct trace *trace = served(1, true, &totals);
    row_wanted(trace, 0, 9, 2);
    end_wanted(trace);
    CHECK(totals.lines_wrong == 1 && totals.requests_unended == 1 &&
          strstr(totals.first_wrong, ":3: ") != NULL);
    CHECK(!totals.begins_after_start);
    log_write(0, "{\"t\":11\xff\n" ENDED(1200, 0, 5) ARRIVED(1300, 0, 9, NO_KEY) ENDED(1400, 0, 2));
    trace = served(1, true, &totals);
    row_wanted(trace, 0, 9, 2);
    end_wanted(trace);
    CHECK(totals.lines_wrong == 1 && totals.begins_after_start);
    failure_wanted("TIMESTAMP,ContextTokens\n1,2\n", false, ST_INVALID, ":1: not JSON: ");
    failure_wanted("{\"input_length\":5}\n", false, ST_INVALID, ":1: no line of an event log: ");
    failure_wanted(BEGIN ARRIVED(1000, 999999, 1, NO_KEY), false, ST_INVALID,
                   ":2: request 999999: want less than 262144");
    failure_wanted(BEGIN ARRIVED(1000, 1, 0, NO_KEY), false, ST_INVALID, ":2: prompt_tokens 0: ");
    failure_wanted(BEGIN ARRIVED(1000, 1, 9, NO_KEY) ARRIVED(1000, 1, 8, NO_KEY ",\"resumed\":1"),
                   false, ST_INVALID, ":3: prompt_tokens 8 of a resumed request: ");
    failure_wanted(BEGIN ARRIVED(9000000, 1, 9, NO_KEY) ENDED(2000000, 1, 9), false, ST_INVALID,
                   ":3: t 2000000 is 7.0 s before the line above: ");
    failure_wanted(BEGIN, false, ST_NOT_FOUND, ": no request was served");
    failure_wanted("", false, ST_NOT_FOUND, ": no request was served");
    unlink(paths[0]);
    const char *const names[] = {paths[0]};
    CHECK(trace_served_write(names, 1, false, stdout, &totals, NULL) == ST_NOT_FOUND);
}

/* More requests than the tables have room for at first. */
static void test_many(void)
{
    struct served_totals totals;
    FILE *file = fopen(paths[0], "w");
    CHECK(file != NULL);
    fputs(BEGIN, file);
    for (int i = 0; i < 5000; i++)
        fprintf(file,
                "{\"t\":%d,\"event\":\"arrived\",\"request\":1,\"prompt_tokens\":256,\"key\":%d,"
                "\"prefix\":[%d,%d],\"actions\":[]}\n{\"t\":%d,\"event\":\"ended\",\"request\":1,"
                "\"output_tokens\":%d,\"actions\":[]}\n",
                1000 * i, i % 1500, i % 2500, -i - 1, 1000 * i + 1, i + 1);
    CHECK(fclose(file) == 0);
    struct trace *trace = served(1, false, &totals);
    int64_t first[2500];
    for (int i = 0; i < 5000; i++) {
        struct trace_row row = row_wanted(trace, i / 1000.0, 256, (uint32_t)i + 1);
        CHECK(row.tenant == (uint32_t)i % 1500 + 1 && row.block_count == 2);
        CHECK(i < 2500 || row.blocks[0] == first[i - 2500]);
        if (i < 2500)
            first[i] = row.blocks[0];
    }
    end_wanted(trace);
    unlink(paths[0]);
}

/* The log does not end where memory runs out, even if wrong lines are skipped. */
static void test_no_memory(void)
{
    for (int skip = 0; skip < 2; skip++) {
        scarce_lines_left = 1;
        failure_wanted(COMPUTED(1, 0) ENDED(2, 0, 3), skip, ST_NO_MEMORY, ": out of memory");
        scarce_lines_left = SIZE_MAX;
    }
}

int main(void)
{
    CHECK(mkdtemp(folder) != NULL);
    for (int i = 0; i < 2; i++)
        snprintf(paths[i], sizeof(paths[i]), "%s/%d.jsonl", folder, i);
    test_served();
    test_resumed();
    test_left_out();
    test_files();
    test_wrong();
    test_no_memory();
    test_many();
    unlink(paths[1]);
    CHECK(rmdir(folder) == 0);
    return 0;
}
