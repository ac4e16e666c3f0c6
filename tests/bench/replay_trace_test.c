/* Goal: the trace reader gives the rows of a good trace exactly, and refuses a bad one with file,
 * line and value. Method: small files written to a scratch directory; each error text is compared
 * in full. */
#include "bench/replay_trace.h"
#include "tests/check.h"

#include <string.h>
#include <unistd.h>

#define HEADER "TIMESTAMP,ContextTokens,GeneratedTokens\n"

static char path[] = "/tmp/cleave-trace-XXXXXX";

static void trace_write(const char *text, size_t size)
{
    FILE *file = fopen(path, "wb");
    CHECK(file != NULL);
    CHECK(fwrite(text, 1, size, file) == size);
    CHECK(fclose(file) == 0);
}

static struct replay_trace *trace_open(const char *text)
{
    struct replay_trace *trace = NULL;
    struct error error = {0};
    trace_write(text, strlen(text));
    enum status status = replay_trace_open(path, &trace, &error);
    CHECKF(status == ST_OK, "%s", error.text);
    return trace;
}

static void row_wanted(struct replay_trace *trace, int64_t at_us, uint32_t context,
                       uint32_t generated, uint64_t line)
{
    struct replay_row row;
    struct error error = {0};
    enum status status = replay_trace_next(trace, &row, &error);
    CHECKF(status == ST_OK, "%s", error.text);
    CHECKF(row.at_us == at_us, "%lld us, want %lld", (long long)row.at_us, (long long)at_us);
    CHECK(row.context_tokens == context);
    CHECK(row.generated_tokens == generated);
    CHECK(row.line == line);
}

static void end_wanted(struct replay_trace *trace)
{
    struct replay_row row;
    CHECK(replay_trace_next(trace, &row, NULL) == ST_NOT_FOUND);
    replay_trace_close(trace);
}

/* Seven digits, over midnight, equal times, no newline at the end. */
static void test_azure_2023(void)
{
    struct replay_trace *trace = trace_open(HEADER "2023-11-16 23:59:59.9799600,4808,10\n"
                                                   "2023-11-17 00:00:00.0319609,3180,8\n"
                                                   "2023-11-17 00:00:00.0319609,0,0\n"
                                                   "2023-11-18 00:00:00.9799600,110,27");
    row_wanted(trace, 0, 4808, 10, 2);
    row_wanted(trace, 52000, 3180, 8, 3);
    row_wanted(trace, 52000, 0, 0, 4);
    row_wanted(trace, INT64_C(86401000000), 110, 27, 5);
    end_wanted(trace);
}

/* A byte order mark, CRLF, zones, other columns in another order, blank lines. */
static void test_other_forms(void)
{
    struct replay_trace *trace =
        trace_open("\xef\xbb\xbfid,GeneratedTokens,TIMESTAMP,ContextTokens\r\n"
                   "a,7,2024-05-10 00:00:00.009930+00:00,2162\r\n\r\n"
                   "b,8,2024-05-10T02:00:01+02:00,5\r\n"
                   "c,9,2024-05-10 00:00:02Z,6\r\n");
    row_wanted(trace, 0, 2162, 7, 2);
    row_wanted(trace, 990070, 5, 8, 4);
    row_wanted(trace, 1990070, 6, 9, 5);
    end_wanted(trace);
}

/* The rows that were read before the bad one stay good. */
static void bad_row(const char *row, const char *wanted)
{
    char text[512], expected[600];
    struct replay_row out = {.line = 99};
    struct error error = {0};
    snprintf(text, sizeof(text), HEADER "2023-11-16 18:17:03.5,1,1\n%s", row);
    struct replay_trace *trace = trace_open(text);
    row_wanted(trace, 0, 1, 1, 2);
    CHECK(replay_trace_next(trace, &out, &error) == ST_INVALID);
    snprintf(expected, sizeof(expected), "%s:3: %s", path, wanted);
    CHECKF(strcmp(error.text, expected) == 0, "\ngot  %s\nwant %s", error.text, expected);
    CHECK(out.line == 99);
    replay_trace_close(trace);
}

#define WANT_TIME   "want YYYY-MM-DD HH:MM:SS[.fraction][+hh:mm]"
#define WANT_TOKENS "want a whole number from 0 to 10000000"

static void test_bad_rows(void)
{
    bad_row("2023-11-16 18:1", "1 columns, the header has 3");
    bad_row("2023-11-16 18:17:04,5", "2 columns, the header has 3");
    bad_row("2023-11-16 18:17:04,5,", "GeneratedTokens = \"\": " WANT_TOKENS);
    bad_row("2023-11-16 18:17:04,5,6,7", "4 columns, the header has 3");
    bad_row("2023-11-16 18:17:04,x,6", "ContextTokens = \"x\": " WANT_TOKENS);
    bad_row("2023-11-16 18:17:04,-1,6", "ContextTokens = \"-1\": " WANT_TOKENS);
    bad_row("2023-11-16 18:17:04,1.5,6", "ContextTokens = \"1.5\": " WANT_TOKENS);
    bad_row("2023-11-16 18:17:04,10000001,6", "ContextTokens = \"10000001\": " WANT_TOKENS);
    bad_row("2023-11-16 18:17:04,99999999999999999999,6",
            "ContextTokens = \"99999999999999999999\": " WANT_TOKENS);
    bad_row("2023-11-16 18:17,5,6", "TIMESTAMP = \"2023-11-16 18:17\": " WANT_TIME);
    bad_row("2023-13-16 18:17:04,5,6", "TIMESTAMP = \"2023-13-16 18:17:04\": " WANT_TIME);
    bad_row("2023-11-16 18:17:04.,5,6", "TIMESTAMP = \"2023-11-16 18:17:04.\": " WANT_TIME);
    bad_row("2023-11-16 18:17:04.5 UTC,5,6",
            "TIMESTAMP = \"2023-11-16 18:17:04.5 UTC\": " WANT_TIME);
    bad_row("1700158623.5,5,6", "TIMESTAMP = \"1700158623.5\": " WANT_TIME);
    bad_row("2023-11-16 18:17:03.4,5,6",
            "TIMESTAMP = \"2023-11-16 18:17:03.4\": want a time not before the row above (sort the "
            "trace by time)");
}

static void bad_file(const char *text, size_t size, enum status wanted, const char *message)
{
    struct replay_trace *trace = NULL;
    struct error error = {0};
    trace_write(text, size);
    CHECK(replay_trace_open(path, &trace, &error) == wanted);
    CHECK(trace == NULL);
    CHECKF(strstr(error.text, message) != NULL, "%s", error.text);
}

static void test_bad_files(void)
{
    char wide[5000];
    struct replay_trace *trace = NULL;
    struct error error = {0};
    memset(wide, 'x', sizeof(wide));
    bad_file("", 0, ST_INVALID, "the file is empty");
    bad_file(wide, sizeof(wide), ST_INVALID, ":1: the line is longer than 4095 bytes");
    bad_file("a,b,c\n1,2,3\n", 12, ST_INVALID,
             ":1: header \"a,b,c\": want the columns TIMESTAMP,ContextTokens,GeneratedTokens");
    bad_file("\x7f"
             "ELF\0\0\0",
             7, ST_INVALID, "want the columns");
    CHECK(replay_trace_open("/nonexistent/trace.csv", &trace, &error) == ST_NOT_FOUND);
    CHECK(strcmp(error.text, "/nonexistent/trace.csv: No such file or directory") == 0);
}

/* The published trace, whole: its README tells rows and span. */
static void test_published_trace(void)
{
    struct replay_trace *trace = NULL;
    struct replay_row row;
    struct error error = {0};
    uint64_t rows = 0, context = 0;
    int64_t span_us = 0;
    const char *file = getenv("CLEAVE_SHARED");
    char name[1024];
    snprintf(name, sizeof(name), "%s/traces/AzureLLMInferenceTrace_code.csv",
             file != NULL ? file : "../shared");
    if (access(name, R_OK) != 0) {
        printf("no %s: the published trace is not read\n", name);
        return;
    }
    CHECK(replay_trace_open(name, &trace, &error) == ST_OK);
    enum status status;
    while ((status = replay_trace_next(trace, &row, &error)) == ST_OK) {
        rows++;
        context += row.context_tokens;
        span_us = row.at_us;
    }
    CHECKF(status == ST_NOT_FOUND, "%s", error.text);
    CHECK(rows == 8819);
    CHECK((context * 10 + rows / 2) / rows == 20478); /* mean 2047.8 */
    CHECK((span_us + 50000) / 100000 == 34359);       /* 3435.9 s */
    replay_trace_close(trace);
}

int main(void)
{
    int fd = mkstemp(path);
    CHECK(fd >= 0);
    close(fd);
    test_azure_2023();
    test_other_forms();
    test_bad_rows();
    test_bad_files();
    test_published_trace();
    unlink(path);
    return 0;
}
