/* trace: reads the requests of a trace one by one, in the order of their arrival. A trace is a file
 * (Azure 2023 and 2024, BurstGPT, Splitwise's simulator, Mooncake) or a synthetic workload
 * (synthetic.h). A file is read line by line, so memory does not grow with its size. `cleave
 * trace`, `replay`, `simulate` and `plan` call it, each on one thread. This part does not decide
 * which requests are sent or simulated (window.h does), and does not wait for their times.
 *
 * A row is wrong if a field is missing or has the wrong form, if the row is earlier than the row
 * before it, if a length is not from 1 to TRACE_TOKENS_MAX, or if the line is longer than 1 MiB or
 * has a NUL byte. As the caller chooses, a wrong row ends the reading with an error, or is skipped
 * and counted. In both cases a text names the file, the line and the reason. */
#ifndef TOOLS_TRACE_TRACE_H
#define TOOLS_TRACE_TRACE_H

#include "common/status.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define TRACE_TOKENS_MAX 10000000 /* A longer request is taken for a broken row. */
/* Tokens of each block (one hash id) of a Mooncake row that has no block_tokens. */
#define TRACE_BLOCK_TOKENS 512

enum trace_format {
    TRACE_AUTO,      /* Find the format by the first line. */
    TRACE_AZURE,     /* TIMESTAMP (a date), ContextTokens, GeneratedTokens */
    TRACE_BURSTGPT,  /* Timestamp (s), Request tokens, Response tokens */
    TRACE_SPLITWISE, /* arrival_timestamp (s, kept as it is), prompt_size, token_size */
    /* JSON lines: timestamp (ms), input_length, output_length, hash_ids; and, in lines of
     * trace_row_write, request_id, block_tokens and tenant */
    TRACE_MOONCAKE,
    TRACE_SYNTHETIC, /* Not a file. */
    TRACE_FORMAT_COUNT,
};

/* Returns the name as --format has it: "auto", "azure", … */
const char *trace_format_name(enum trace_format format);

struct trace_row {
    /* Seconds from the first row, ≥ 0 and never less than in the row before. TRACE_SPLITWISE: the
     * time that the file has. */
    double at_s;
    /* The file's request_id; without a request_id, the number of rows before this row, right and
     * wrong. */
    uint64_t id;
    uint64_t line;          /* Line of the file, from 1. */
    uint32_t prompt_tokens; /* Length of the prompt: 1 to TRACE_TOKENS_MAX. */
    uint32_t output_tokens; /* Length of the answer: 1 to TRACE_TOKENS_MAX. */
    const int64_t *blocks;  /* Hash ids of the prompt's blocks, valid until the next row is read. */
    /* Number of hash ids, at most one per block of the prompt; 0 = the trace has none. */
    uint32_t block_count;
    uint32_t block_tokens; /* Tokens of each block; > 0 if there is a block. */
    uint32_t tenant;       /* Number of the API key, from 1; 0 = no key, or the trace has none. */
};

struct trace_options {
    /* A file, "-" for standard input, or a synthetic workload such as "poisson:rate=5,…". */
    const char *name;
    enum trace_format format; /* Format of a file. */
    bool skip;                /* Skip wrong rows. Otherwise a wrong row ends the reading. */
    uint64_t seed;            /* Seed of a synthetic workload whose text has none. */
};

struct trace;

/* Opens the trace and reads its header or first line. ST_NOT_FOUND: no such file. ST_TOO_LARGE: the
 * text of a synthetic workload is too long. ST_IO: the file cannot be read. ST_INVALID: it is no
 * trace. ST_NO_MEMORY: memory runs out. The error names file, line and what was wanted. */
enum status trace_open(const struct trace_options *options, struct trace **trace_out,
                       struct error *error);
/* Does what trace_open does, for an open file. Takes ownership of `file`, also on errors.
 * options->name is the file's name in errors. */
enum status trace_open_file(FILE *file, const struct trace_options *options,
                            struct trace **trace_out, struct error *error);
void trace_close(struct trace *trace); /* NULL is fine. */

/* Reads the next row. ST_NOT_FOUND: there are no more rows. ST_INVALID: a wrong row (with
 * options->skip it is skipped instead). ST_IO: the file cannot be read. ST_NO_MEMORY: memory runs
 * out. */
enum status trace_next(struct trace *trace, struct trace_row *row_out, struct error *error);

/* Writes a row as a line of the format TRACE_MOONCAKE. trace_next reads the line back as the same
 * row, except its time, which is rounded to a microsecond and counted from the first row, and its
 * line. Write errors: ferror(out). */
void trace_row_write(FILE *out, const struct trace_row *row);

/* Returns the format that was found. */
enum trace_format trace_format(const struct trace *trace);
/* Returns the number of wrong rows that were skipped so far; of a synthetic workload, the skipped
 * rows of its file. */
uint64_t trace_skipped(const struct trace *trace);
/* Returns why the first skipped row was wrong, valid until the trace is closed; "" = no row was
 * skipped. */
const char *trace_first_skipped(const struct trace *trace);

#endif
