/* Goal: a trace's rows are what the file says, in both formats; a wrong one is named by file, line
 * and column, and ends the run or is left out, as was asked. Method: files that are written here.
 */
#include "simulator/sim_trace.h"

#include "tests/check.h"

#include <string.h>
#include <unistd.h>

static char path[] = "/tmp/test_sim_trace.XXXXXX";

static void file_write(const char *text)
{
    FILE *file = fopen(path, "w");
    CHECK(file != NULL);
    fputs(text, file);
    CHECK(fclose(file) == 0);
}

static uint32_t rows_read(bool skip, struct sim_arrival *rows, uint32_t most, uint64_t *skipped_out,
                          struct error *error)
{
    struct sim_trace trace;
    bool end;
    uint32_t count = 0;
    enum status status = sim_trace_open(&trace, path, skip, error);
    if (status != ST_OK)
        return 0;
    while (count < most && sim_trace_next(&trace, &rows[count], &end, error) == ST_OK && !end)
        count++;
    *skipped_out = trace.skipped;
    if (trace.skipped > 0)
        *error = trace.first_skipped;
    sim_trace_close(&trace);
    return count;
}

static void good_rows(void)
{
    struct sim_arrival rows[4];
    uint64_t skipped = 0;
    struct error error = {""};
    file_write("request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,"
               "token_size\r\n7,2,0,0.25,1,10,3\r\n\n9,2,0,1e1,1,20,1");
    CHECK(rows_read(false, rows, 4, &skipped, &error) == 2 && skipped == 0);
    CHECK(rows[0].id == 7 && rows[0].at_s == 0.25 && rows[0].prompt_tokens == 10 &&
          rows[0].output_tokens == 3 && rows[0].line == 2);
    CHECK(rows[1].id == 9 && rows[1].at_s == 10 && rows[1].line == 4);
    file_write("TIMESTAMP,ContextTokens,GeneratedTokens\n2024-02-28 23:59:59.7500000,5,6\n"
               "2024-02-29 00:00:00,7,8\n2024-03-01T00:00:00.5+00:00,9,10\n");
    CHECK(rows_read(false, rows, 4, &skipped, &error) == 3);
    CHECK(rows[0].at_s == 0 && rows[0].id == 0 && rows[1].at_s == 0.25 && rows[1].id == 1);
    CHECK(rows[2].at_s == 86400.75 && rows[2].prompt_tokens == 9 && rows[2].output_tokens == 10);
}

static void bad_rows(void)
{
    static const struct {
        const char *row;
        const char *error;
    } bad[] = {
        {"1.5,10,0", ":3: token_size = 0: want at least 1"},
        {"1.5,0,10", ":3: prompt_size = 0: want at least 1"},
        {"-1,10,10", ":3: arrival_timestamp = -1: want 0 or more"},
        {"0.5,10,10",
         ":3: arrival_timestamp = 0.5: want rows sorted by time, the one before has 1"},
        {"soon,10,10", ":3: arrival_timestamp = \"soon\": want a number"},
        {"nan,10,10", ":3: arrival_timestamp = \"nan\": want a number"},
        {"1.5,-10,10", ":3: prompt_size = \"-10\": want a whole number"},
        {"1.5,99999999999,10", ":3: prompt_size = \"99999999999\": want a whole number"},
        {"1.5,10", ":3: token_size = \"\": want a whole number"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char text[256];
        struct sim_arrival rows[4];
        uint64_t skipped = 0;
        struct error error = {""};
        snprintf(text, sizeof(text),
                 "arrival_timestamp,prompt_size,token_size\n1,10,10\n%s\n2,10,10\n", bad[i].row);
        file_write(text);
        CHECK(rows_read(false, rows, 4, &skipped, &error) == 1);
        CHECKF(strstr(error.text, bad[i].error) != NULL && strstr(error.text, path) == error.text,
               "%s", error.text);
        error.text[0] = 0;
        CHECK(rows_read(true, rows, 4, &skipped, &error) == 2 && skipped == 1);
        CHECK(strstr(error.text, bad[i].error) != NULL && rows[1].at_s == 2 && rows[1].id == 2);
    }
}

static void bad_headers(void)
{
    static const char *const bad[][2] = {
        {"", ": empty: want a line with the names of the columns"},
        {"time,prompt_size,token_size\n", ":1: no column \"arrival_timestamp\" or \"TIMESTAMP\""},
        {"TIMESTAMP,Context,GeneratedTokens\n", ":1: no column \"prompt_size\" or"},
        {"TIMESTAMP,ContextTokens,Generated\n", ":1: no column \"token_size\" or"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct sim_trace trace;
        struct error error = {""};
        file_write(bad[i][0]);
        CHECK(sim_trace_open(&trace, path, true, &error) == ST_INVALID);
        CHECKF(strstr(error.text, bad[i][1]) != NULL, "%s", error.text);
    }
}

int main(void)
{
    int file = mkstemp(path);
    CHECK(file >= 0);
    close(file);
    good_rows();
    bad_rows();
    bad_headers();
    CHECK(remove(path) == 0);
    return 0;
}
