/* trace: reads the requests of a trace one by one, in the order of their arrival. A trace is a file
 * (Azure 2023 and 2024, BurstGPT, Splitwise's simulator, Mooncake) or a synthetic workload
 * (synthetic.h). Subcommands that read traces call the functions; one thread at a time uses a
 * trace. A trace owns its file, except standard input. This part does not decide which requests are
 * sent or simulated (window.h does), and does not wait for their times.
 *
 * A row of a file is wrong if a field is missing or has the wrong form, if it has more columns than
 * the header, if its time is before the time of the previous valid row, if a length is not from 1
 * to TRACE_TOKENS_MAX, or if the line is longer than 1,048,575 bytes or has a NUL byte. */
#ifndef TOOLS_TRACE_TRACE_H
#define TOOLS_TRACE_TRACE_H

#include "common/status.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define TRACE_TOKENS_MAX 10000000 /* Most tokens of a prompt, and of an answer. */
/* Tokens of each block (one hash id) of a Mooncake row that has no block_tokens. */
#define TRACE_BLOCK_TOKENS 512

enum trace_format {
    TRACE_AUTO,      /* Find the format by the first line. */
    TRACE_AZURE,     /* TIMESTAMP (a date), ContextTokens, GeneratedTokens */
    TRACE_BURSTGPT,  /* Timestamp (s), Request tokens, Response tokens */
    TRACE_SPLITWISE, /* arrival_timestamp (s, see trace_row.at_s), prompt_size, token_size */
    /* JSON lines: timestamp (ms), input_length, output_length; and, if known, hash_ids, request_id,
     * block_tokens and tenant */
    TRACE_MOONCAKE,
    TRACE_SYNTHETIC, /* A synthetic workload. */
    TRACE_FORMAT_COUNT,
};

/* Returns the name as --format has it: "auto", "azure", … */
const char *trace_format_name(enum trace_format format);

struct trace_row {
    /* Seconds since the first row; does not decrease. TRACE_SPLITWISE and synthetic workloads:
     * seconds since time 0 of the file or workload. */
    double at_s;
    uint64_t id;            /* request_id; if the row has no such number, its index in the file. */
    uint64_t line;          /* Line of the file, from 1. */
    uint32_t prompt_tokens; /* Length of the prompt: 1 to TRACE_TOKENS_MAX. */
    uint32_t output_tokens; /* Length of the answer: 1 to TRACE_TOKENS_MAX. */
    const int64_t *blocks;  /* [block_count]: hash ids; valid until the next row is read. */
    uint32_t block_count;   /* Blocks of the prompt that have a hash id. */
    uint32_t block_tokens;  /* Tokens of each block; > 0 if block_count > 0. */
    uint32_t tenant;        /* Number of the API key, from 1; 0 = no key, or not known. */
};

struct trace_options {
    /* A file, "-" for standard input, or a synthetic workload such as "poisson:rate=5,…". */
    const char *name;
    enum trace_format format; /* Format of a file. */
    bool skip;                /* Skip and count wrong rows; false = a wrong row is an error. */
    uint64_t seed;            /* Seed of a synthetic workload whose text has none. */
};

struct trace;

/* Opens the trace and reads its header or first line; trace_close frees *trace_out. ST_NOT_FOUND:
 * no such file. ST_IO: the file cannot be read. ST_INVALID: the file or the text is no trace.
 * ST_TOO_LARGE: the text of a synthetic workload is too long. ST_NO_MEMORY: memory runs out. */
enum status trace_open(const struct trace_options *options, struct trace **trace_out,
                       struct error *error);
/* Does what trace_open does, for an open file. Takes ownership of `file`, also on errors.
 * options->name is the file's name in errors. */
enum status trace_open_file(FILE *file, const struct trace_options *options,
                            struct trace **trace_out, struct error *error);
void trace_close(struct trace *trace); /* NULL is fine. */

/* Reads the next row. ST_NOT_FOUND: there are no more rows. ST_INVALID: the row is wrong, and
 * options->skip was false; the error names file, line and reason. ST_IO: the file cannot be read.
 * ST_NO_MEMORY: memory runs out. */
enum status trace_next(struct trace *trace, struct trace_row *row_out, struct error *error);

/* Writes a row as a line of the format TRACE_MOONCAKE. The time is rounded to a microsecond. Write
 * errors: ferror(out). */
void trace_row_write(FILE *out, const struct trace_row *row);

/* Returns the format that was found. */
enum trace_format trace_format(const struct trace *trace);
/* Returns the number of wrong rows that were skipped. */
uint64_t trace_skipped(const struct trace *trace);
/* Returns why the first skipped row was wrong, valid until the trace is closed; "" = no row was
 * skipped. */
const char *trace_first_skipped(const struct trace *trace);

#endif
