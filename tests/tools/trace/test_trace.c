/* Goal: the trace reader gives the rows of a good trace exactly, in every format, and refuses a bad
 * one with file, line and value, or skips and reports it. Method: small files written to a scratch
 * directory; each error text is compared in full. */
#include "tests/check.h"
#include "tests/scarce_memory.h"
#include "tools/trace/trace.h"

#include <jansson.h>
#include <math.h>
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

static struct trace *open_as(const char *text, enum trace_format format, bool skip)
{
    struct trace *trace = NULL;
    struct error error = {0};
    trace_write(text, strlen(text));
    enum status status = trace_open(
        &(struct trace_options){.name = path, .format = format, .skip = skip}, &trace, &error);
    CHECKF(status == ST_OK, "%s", error.text);
    return trace;
}

static struct trace *open_text(const char *text)
{
    return open_as(text, TRACE_AUTO, false);
}

static struct trace_row row_wanted(struct trace *trace, double at_s, uint32_t prompt,
                                   uint32_t output, uint64_t line)
{
    struct trace_row row;
    struct error error = {0};
    enum status status = trace_next(trace, &row, &error);
    CHECKF(status == ST_OK, "%s", error.text);
    CHECKF(fabs(row.at_s - at_s) < 1e-9, "%.9f s, want %.9f", row.at_s, at_s);
    CHECK(row.prompt_tokens == prompt && row.output_tokens == output);
    CHECKF(row.line == line, "line %llu", (unsigned long long)row.line);
    return row;
}

static void end_wanted(struct trace *trace)
{
    struct trace_row row;
    struct error error = {0};
    CHECKF(trace_next(trace, &row, &error) == ST_NOT_FOUND, "%s", error.text);
    trace_close(trace);
}

/* Seven digits, a change of day, equal times, no newline at the end. */
static void test_azure_2023(void)
{
    struct trace *trace = open_text(HEADER "2023-11-16 23:59:59.9799600,4808,10\n"
                                           "2023-11-17 00:00:00.0319609,3180,8\n"
                                           "2023-11-17 00:00:00.0319609,1,1\n"
                                           "2023-11-18 00:00:00.9799600,110,27");
    CHECK(trace_format(trace) == TRACE_AZURE);
    CHECK(row_wanted(trace, 0, 4808, 10, 2).id == 0);
    row_wanted(trace, 0.0520009, 3180, 8, 3);
    row_wanted(trace, 0.0520009, 1, 1, 4);
    CHECK(row_wanted(trace, 86401, 110, 27, 5).id == 3);
    end_wanted(trace);
}

/* A byte order mark, CRLF, zones, other columns in another order, blank lines. */
static void test_azure_2024(void)
{
    struct trace *trace =
        open_text("\xef\xbb\xbfNumImages,GeneratedTokens,TIMESTAMP,ContextTokens\r\n"
                  "a,7,2024-05-10 00:00:00.009930+00:00,2162\r\n\r\n"
                  "b,8,2024-05-10T02:00:01+02:00,5\r\n"
                  "c,9,2024-05-10 00:00:02Z,6\r\n");
    row_wanted(trace, 0, 2162, 7, 2);
    CHECK(row_wanted(trace, 0.99007, 5, 8, 4).id == 1);
    row_wanted(trace, 1.99007, 6, 9, 5);
    end_wanted(trace);
}

/* Rows of the published file, and one with a fraction. */
static void test_burstgpt(void)
{
    struct trace *trace =
        open_text("Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
                  "5,ChatGPT,472,18,490,Conversation log\n"
                  "45,ChatGPT,1087,230,1317,Conversation log\n"
                  "118.25,GPT-4,417,276,693,API log\n");
    CHECK(trace_format(trace) == TRACE_BURSTGPT);
    row_wanted(trace, 0, 472, 18, 2);
    row_wanted(trace, 40, 1087, 230, 3);
    row_wanted(trace, 113.25, 417, 276, 4);
    end_wanted(trace);
}

/* Times are exact to the last bit. */
static void test_splitwise(void)
{
    struct trace *trace =
        open_text("request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,"
                  "token_size\n7,2,0,0.10000000000000003,1,100,5\n9,2,0,0.3,1,200,6\n");
    CHECK(trace_format(trace) == TRACE_SPLITWISE);
    struct trace_row row = row_wanted(trace, 0.1, 100, 5, 2);
    CHECK(row.id == 7 && row.at_s > 0.1);
    CHECK(row_wanted(trace, 0.3, 200, 6, 3).id == 9);
    end_wanted(trace);
}

static void test_mooncake(void)
{
    struct trace *trace =
        open_text("{\"timestamp\": 3000, \"input_length\": 1053, \"output_length\": 26, "
                  "\"hash_ids\": [0, 773, 774]}\n\n"
                  "{\"timestamp\": 5999.5, \"input_length\": 511, \"output_length\": 1, "
                  "\"request_id\": \"x\", "
                  "\"hash_ids\": [0]}\n"
                  "{\"output_length\": 2, \"timestamp\": 9000, \"input_length\": 600}\n");
    CHECK(trace_format(trace) == TRACE_MOONCAKE);
    struct trace_row row = row_wanted(trace, 0, 1053, 26, 1);
    CHECK(row.block_count == 3 && row.blocks[0] == 0 && row.blocks[2] == 774 && row.id == 0);
    row = row_wanted(trace, 2.9995, 511, 1, 3);
    CHECK(row.block_count == 1 && row.blocks[0] == 0 && row.id == 1);
    CHECK(row_wanted(trace, 6, 600, 2, 4).block_count == 0);
    end_wanted(trace);
}

/* Rows with block_tokens and tenant, and the same rows after trace_row_write. */
static void test_written(void)
{
    struct trace *trace = open_text(
        "{\"timestamp\": 0, \"input_length\": 9, \"output_length\": 1}\n"
        "{\"timestamp\": 1.25, \"input_length\": 300, \"output_length\": 2, "
        "\"request_id\": 77, \"tenant\": 3, \"block_tokens\": 128, \"hash_ids\": [4, -5, 6]}\n");
    for (int written = 0; written < 2; written++) {
        CHECK(row_wanted(trace, 0, 9, 1, 1).block_tokens == TRACE_BLOCK_TOKENS);
        struct trace_row row = row_wanted(trace, 0.00125, 300, 2, 2);
        CHECK(row.block_count == 3 && row.blocks[1] == -5 && row.blocks[2] == 6);
        CHECK(row.block_tokens == 128 && row.tenant == 3 && row.id == 77);
        FILE *file = tmpfile();
        trace_row_write(file, &(struct trace_row){.prompt_tokens = 9, .output_tokens = 1});
        trace_row_write(file, &row);
        end_wanted(trace);
        rewind(file);
        if (written == 1)
            fclose(file);
        else
            CHECK(trace_open_file(file, &(struct trace_options){.name = "t"}, &trace, NULL) ==
                  ST_OK);
    }
}

/* Rows before the bad row are returned. The row after it is returned if bad rows are skipped. */
static void bad_row_of(const char *before, const char *row, const char *after, uint64_t line,
                       const char *wanted)
{
    char text[1024], expected[700];
    struct trace_row out = {.line = 99};
    struct error error = {0};
    snprintf(text, sizeof(text), "%s%s\n%s", before, row, after);
    snprintf(expected, sizeof(expected), "%s:%llu: %s", path, (unsigned long long)line, wanted);
    struct trace *trace = open_text(text);
    row_wanted(trace, 0, 1, 1, line - 1);
    CHECK(trace_next(trace, &out, &error) == ST_INVALID);
    CHECKF(strcmp(error.text, expected) == 0, "\ngot  %s\nwant %s", error.text, expected);
    CHECK(out.line == 99);
    trace_close(trace);

    trace = open_as(text, TRACE_AUTO, true);
    row_wanted(trace, 0, 1, 1, line - 1);
    CHECK(trace_skipped(trace) == 0 && trace_first_skipped(trace)[0] == 0);
    CHECK(row_wanted(trace, 9, 2, 2, line + 1).id == line + 1 - (line == 3 ? 2 : 1));
    CHECK(trace_skipped(trace) == 1 && strcmp(trace_first_skipped(trace), expected) == 0);
    end_wanted(trace);
}

static void bad_row(const char *row, const char *wanted)
{
    bad_row_of(HEADER "2023-11-16 18:17:03.5,1,1\n", row, "2023-11-16 18:17:12.5,2,2\n", 3, wanted);
}

#define WANT_TIME   "want YYYY-MM-DD HH:MM:SS[.fraction][+hh:mm]"
#define WANT_TOKENS "want a whole number from 1 to 10000000"

static void test_bad_rows(void)
{
    bad_row("2023-11-16 18:1", "1 columns, the header has 3");
    bad_row("2023-11-16 18:17:04,5", "2 columns, the header has 3");
    bad_row("2023-11-16 18:17:04,5,", "GeneratedTokens = \"\": " WANT_TOKENS);
    bad_row("2023-11-16 18:17:04,5,0", "GeneratedTokens = \"0\": " WANT_TOKENS);
    bad_row("2023-11-16 18:17:04,0,5", "ContextTokens = \"0\": " WANT_TOKENS);
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
    bad_row("-2023-11-16 18:17:04,5,6", "TIMESTAMP = \"-2023-11-16 18:17:04\": " WANT_TIME);
    bad_row("1700158623.5,5,6", "TIMESTAMP = \"1700158623.5\": " WANT_TIME);
    bad_row("2023-11-16 18:17:03.4,5,6",
            "TIMESTAMP: 0.1000000 s before the row above: want rows sorted by time");
}

static void bad_burstgpt(const char *row, const char *wanted)
{
    bad_row_of("Timestamp,Request tokens,Response tokens\n5,1,1\n", row, "14,2,2\n", 3, wanted);
}

static void bad_mooncake(const char *row, const char *wanted)
{
    bad_row_of("{\"timestamp\":1000,\"input_length\":1,\"output_length\":1}\n", row,
               "{\"timestamp\":10000,\"input_length\":2,\"output_length\":2}\n", 2, wanted);
}

static void test_bad_rows_of_others(void)
{
    bad_burstgpt("-6,5,6", "Timestamp = \"-6\": want seconds, 0 or more");
    bad_burstgpt("nan,5,6", "Timestamp = \"nan\": want seconds, 0 or more");
    bad_burstgpt("6,5,0", "Response tokens = \"0\": " WANT_TOKENS);
    bad_burstgpt("4,5,6", "Timestamp: 1.0000000 s before the row above: want rows sorted by time");
    bad_mooncake("{\"timestamp\":-1,\"input_length\":1,\"output_length\":1}",
                 "timestamp = \"-1\": want milliseconds, 0 or more");
    bad_mooncake("{\"input_length\":1,\"output_length\":1}",
                 "timestamp = \"nothing\": want milliseconds, 0 or more");
    bad_mooncake("{\"timestamp\":2000,\"input_length\":1,\"output_length\":0}",
                 "output_length = \"0\": " WANT_TOKENS);
    bad_mooncake("{\"timestamp\":2000,\"input_length\":1.5,\"output_length\":1}",
                 "input_length = \"1.5\": " WANT_TOKENS);
    bad_mooncake("{\"timestamp\":2000,\"input_length\":512,\"output_length\":1,\"hash_ids\":[1,2]}",
                 "hash_ids = \"[1,2]\": want an id for each 512 tokens of input_length");
    bad_mooncake("{\"timestamp\":2000,\"input_length\":1,\"output_length\":1,\"hash_ids\":[\"a\"]}",
                 "hash_ids = \"[\"a\"]\": want whole numbers");
    bad_mooncake("{\"timestamp\":200",
                 "\"{\"timestamp\":200\": want an object of JSON with timestamp, input_length and "
                 "output_length");
    bad_mooncake("{\"timestamp\":200,\"input_length\":1,\"output_length\":1}",
                 "timestamp: 0.8000000 s before the row above: want rows sorted by time");
}

/* A row for which memory is short is an error, also where wrong rows are skipped. */
static void test_scarce_memory(void)
{
    static const char *const rows[] = {
        "{\"timestamp\":1,\"input_length\":1,\"output_length\":1,\"hash_ids\":[7],\"a\":\"b\"}\n",
        "{\"timestamp\":1,\"input_length\":1,\"output_length\":1,\"hash_ids\":[\"a\"]}\n",
    };
    for (int wrong = 0; wrong < 2; wrong++) {
        for (size_t count = 0;; count++) {
            struct trace_row row;
            struct error error = {0};
            struct trace *trace = open_as(rows[wrong], TRACE_MOONCAKE, true);
            json_set_alloc_funcs(scarce_malloc, free);
            scarce_allocations_left = count;
            enum status status = trace_next(trace, &row, &error);
            json_set_alloc_funcs(malloc, free);
            trace_close(trace);
            if (status == (wrong == 0 ? ST_OK : ST_NOT_FOUND)) {
                CHECK(count > 8);
                break;
            }
            CHECKF(status == ST_NO_MEMORY && strstr(error.text, "out of memory") != NULL,
                   "%zu allocations: %s: %s", count, status_name(status), error.text);
        }
    }
}

static void bad_file(const char *text, size_t size, enum trace_format format, const char *message)
{
    struct trace *trace = NULL;
    struct error error = {0};
    trace_write(text, size);
    CHECK(trace_open(&(struct trace_options){.name = path, .format = format}, &trace, &error) ==
          ST_INVALID);
    CHECK(trace == NULL);
    CHECKF(strstr(error.text, message) != NULL, "%s", error.text);
}

/* A line with a NUL byte and a line that is too long are one bad row each. The line after each is
 * read. A last line with a NUL byte and without a line end is a bad row, too. */
static void test_broken_lines(void)
{
    static const char nul[] = "arrival_timestamp,prompt_size,token_size\n"
                              "0,10,5\n1,1\0000,5\n2,20,6\n";
    size_t long_bytes = 2 << 20;
    char *text = malloc(sizeof(nul) + long_bytes + 16);
    struct trace *trace = NULL;
    struct error error = {0};
    const struct trace_options options = {.name = path, .skip = true};
    CHECK(text != NULL);
    memcpy(text, nul, sizeof(nul) - 1);
    memset(text + sizeof(nul) - 1, '3', long_bytes);
    memcpy(text + sizeof(nul) - 1 + long_bytes, "\n4,30,7\n5,40,8\0009", 16);
    trace_write(text, sizeof(nul) - 1 + long_bytes + 16);
    free(text);
    CHECKF(trace_open(&options, &trace, &error) == ST_OK, "%s", error.text);
    row_wanted(trace, 0, 10, 5, 2);
    row_wanted(trace, 2, 20, 6, 4);
    row_wanted(trace, 4, 30, 7, 6);
    CHECK(trace_skipped(trace) == 2);
    CHECKF(strstr(trace_first_skipped(trace), ":3: longer than") != NULL, "%s",
           trace_first_skipped(trace));
    end_wanted(trace);
    bad_file("a\0", 2, TRACE_AUTO, ":1: longer than");
    bad_file("\0", 1, TRACE_AUTO, ":1: longer than");
}

static void test_bad_files(void)
{
    size_t wide_size = 3 << 20;
    char *wide = malloc(wide_size);
    struct trace *trace = NULL;
    struct error error = {0};
    CHECK(wide != NULL);
    memset(wide, 'x', wide_size);
    bad_file("", 0, TRACE_AUTO, "the file is empty");
    bad_file(wide, wide_size, TRACE_AUTO, ":1: longer than 1048575 bytes");
    free(wide);
    bad_file("a,b,c\n1,2,3\n", 12, TRACE_AUTO, ":1: header \"a,b,c\": want the columns TIMESTAMP,");
    bad_file("TIMESTAMP,b,c\n", 14, TRACE_AUTO,
             ":1: header \"TIMESTAMP,b,c\": no column \"ContextTokens\", want "
             "TIMESTAMP,ContextTokens,GeneratedTokens");
    bad_file(HEADER, strlen(HEADER), TRACE_BURSTGPT, "no column \"Timestamp\"");
    bad_file("\x7f"
             "ELF\0\0\0\n",
             8, TRACE_AUTO, ":1: ");
    CHECK(trace_open(&(struct trace_options){.name = "/nonexistent/trace.csv"}, &trace, &error) ==
          ST_NOT_FOUND);
    CHECK(strcmp(error.text, "/nonexistent/trace.csv: No such file or directory") == 0);
}

/* Runs only in long test runs: rows, span and means of the complete published traces are those in
 * their README. */
static void test_published_trace(const char *file, uint64_t rows_wanted, double span_s,
                                 double prompt_mean, double output_mean)
{
    struct trace *trace = NULL;
    struct trace_row row;
    struct error error = {0};
    uint64_t rows = 0, prompt = 0, output = 0;
    double last_s = 0;
    char relative[128];
    snprintf(relative, sizeof(relative), "traces/%s", file);
    const char *name = test_shared_path(relative);
    if (name == NULL)
        return;
    CHECK(trace_open(&(struct trace_options){.name = name}, &trace, &error) == ST_OK);
    enum status status;
    while ((status = trace_next(trace, &row, &error)) == ST_OK) {
        rows++;
        prompt += row.prompt_tokens;
        output += row.output_tokens;
        last_s = row.at_s;
    }
    CHECKF(status == ST_NOT_FOUND, "%s", error.text);
    CHECK(rows == rows_wanted);
    CHECKF(fabs((double)prompt / (double)rows - prompt_mean) < 0.051, "%g", (double)prompt);
    CHECKF(fabs((double)output / (double)rows - output_mean) < 0.051, "%g", (double)output);
    CHECKF(fabs(last_s - span_s) < 0.051, "%f s", last_s);
    trace_close(trace);
}

int main(void)
{
    int fd = mkstemp(path);
    CHECK(fd >= 0);
    close(fd);
    test_azure_2023();
    test_azure_2024();
    test_burstgpt();
    test_splitwise();
    test_mooncake();
    test_written();
    test_bad_rows();
    test_bad_rows_of_others();
    test_scarce_memory();
    test_broken_lines();
    test_bad_files();
    test_published_trace("AzureLLMInferenceTrace_code.csv", 8819, 3435.9, 2047.8, 27.9);
    test_published_trace("AzureLLMInferenceTrace_conv.csv", 19366, 3501.7, 1154.7, 211.1);
    unlink(path);
    return 0;
}
