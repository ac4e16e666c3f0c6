/* Goal: no trace and no synthetic workload crashes the reader, and its rows keep the promises of
 * its header. Seeds: a few rows of each format, and a synthetic workload. */
#include "tests/check.h"
#include "tests/fuzz.h"
#include "tools/trace/trace.h"

#include <string.h>

#define ROWS_MAX 10000 /* A synthetic workload may have no end. */

/* Reads all rows, with bad rows skipped or not. Every row that is returned must be good. */
static void read_all(struct trace *trace)
{
    struct trace_row row;
    struct error error;
    double last_s = 0;
    for (int i = 0; i < ROWS_MAX && trace_next(trace, &row, &error) == ST_OK; i++) {
        CHECK(row.at_s >= last_s);
        CHECK(row.prompt_tokens >= 1 && row.prompt_tokens <= TRACE_TOKENS_MAX);
        CHECK(row.output_tokens >= 1 && row.output_tokens <= TRACE_TOKENS_MAX);
        CHECK(row.block_count == 0 ||
              row.block_count - 1 <= (row.prompt_tokens - 1) / row.block_tokens);
        int64_t sum = 0;
        for (uint32_t b = 0; b < row.block_count; b++)
            sum ^= row.blocks[b];
        CHECK(sum == 0 || row.block_count > 0);
        last_s = row.at_s;
    }
    trace_close(trace);
}

static void fuzz_law(const uint8_t *data, size_t size)
{
    char text[600];
    struct trace *trace;
    struct error error;
    size_t bytes = size < sizeof(text) - 1 ? size : sizeof(text) - 1;
    memcpy(text, data, bytes);
    text[bytes] = 0;
    /* The fuzzer must not open files whose names it made up. */
    if (strstr(text, "lengths") == NULL &&
        trace_open(&(struct trace_options){.name = text}, &trace, &error) == ST_OK)
        read_all(trace);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct error error;
    if (size > 7 && (memcmp(data, "poisson:", 8) == 0 || memcmp(data, "gamma:", 6) == 0 ||
                     memcmp(data, "onoff:", 6) == 0)) {
        fuzz_law(data, size);
        return 0;
    }
    for (int skip = 0; skip < 2; skip++) {
        struct trace *trace;
        FILE *file = size > 0 ? fmemopen((void *)data, size, "r") : NULL;
        if (file == NULL)
            return 0;
        struct trace_options options = {.name = "trace", .skip = skip == 1};
        if (trace_open_file(file, &options, &trace, &error) == ST_OK)
            read_all(trace);
    }
    return 0;
}

size_t fuzz_seed(unsigned index, uint8_t *buffer, size_t capacity)
{
    static const char *const seeds[] = {
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n"
        "2023-11-16 18:17:04.0319600,3180,8\n2024-05-10 00:00:00.009930+00:00,2162,5\n",
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "5,ChatGPT,472,18,490,Conversation log\n45.5,GPT-4,1087,230,1317,API log\n",
        "request_id,arrival_timestamp,prompt_size,token_size\n0,0.1,100,5\n1,0.30001,7,9\n",
        "{\"timestamp\": 0, \"input_length\": 1053, \"output_length\": 26, \"hash_ids\": [0, 7, "
        "8]}\n"
        "{\"timestamp\": 3000.5, \"input_length\": 511, \"output_length\": 1, \"hash_ids\": [0]}\n"
        "{\"timestamp\": 3001, \"input_length\": 256, \"output_length\": 1, \"tenant\": 2, "
        "\"block_tokens\": 128, \"hash_ids\": [0, 9]}\n",
        "gamma:rate=5,cv=2,seconds=9,prompt=lognormal:100:0.5,output=uniform:1:9,seed=3",
        "onoff:rate=5,on=1,off=2,requests=20,prompt=fixed:5,output=fixed:3",
    };
    if (index >= sizeof(seeds) / sizeof(seeds[0]) || strlen(seeds[index]) > capacity)
        return 0;
    memcpy(buffer, seeds[index], strlen(seeds[index]));
    return strlen(seeds[index]);
}
