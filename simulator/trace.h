/* trace: the requests of a trace, one after the other, in the order of their arrival: from a file
 * (Azure 2023 and 2024, BurstGPT, Splitwise's simulator, Mooncake), or made up by a law
 * (trace_synthetic.h). A file is read line by line: memory does not grow with it. It decides
 * nothing: what is to be sent or simulated is the caller's. One thread.
 *
 * A row is wrong when a field is missing or no number, when it comes before the row above it, or
 * when a length is not from 1 to TRACE_TOKENS_MAX. It ends the reading, or is left out and counted,
 * as the caller chose; either way file, line, column and value are named. */
#ifndef SIMULATOR_TRACE_H
#define SIMULATOR_TRACE_H

#include "common/status.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define TRACE_TOKENS_MAX   10000000 /* above this it is a broken row, not a long request */
#define TRACE_BLOCK_TOKENS 512      /* of a block that a hash id of Mooncake's stands for */

enum trace_format {
    TRACE_AUTO,      /* by the header */
    TRACE_AZURE,     /* TIMESTAMP (a date), ContextTokens, GeneratedTokens */
    TRACE_BURSTGPT,  /* Timestamp (s), Request tokens, Response tokens */
    TRACE_SPLITWISE, /* arrival_timestamp (s, kept as it is), prompt_size, token_size */
    TRACE_MOONCAKE,  /* JSON lines: timestamp (ms), input_length, output_length, hash_ids */
    TRACE_SYNTHETIC, /* never of a file */
    TRACE_FORMAT_COUNT,
};

/* As --format has it: "auto", "azure", … */
const char *trace_format_name(enum trace_format format);

struct trace_row {
    double at_s; /* ≥ 0, never before the row above; since the first row, except TRACE_SPLITWISE */
    uint64_t id;   /* the column request_id, else the number of rows above it, bad ones too */
    uint64_t line; /* in the file, from 1 on */
    uint32_t prompt_tokens; /* 1 … TRACE_TOKENS_MAX each */
    uint32_t output_tokens;
    const int64_t *blocks; /* hash ids of the prompt's blocks, until the next row is read */
    uint32_t block_count;  /* 0: nothing is known; never more than the prompt has blocks */
};

struct trace_options {
    const char *name;         /* a file, "-" for standard input, or a law as "poisson:rate=5,…" */
    enum trace_format format; /* of a file */
    bool skip;                /* bad rows are left out; otherwise they end the reading */
    uint64_t seed;            /* of a law that does not say its own */
};

struct trace;

/* Reads the header, or the first line. The error names file, line and what was wanted. */
enum status trace_open(const struct trace_options *options, struct trace **trace_out,
                       struct error *error);
/* Of a file that is open already, which becomes the trace's whatever is returned; options->name is
 * what errors call it. */
enum status trace_open_file(FILE *file, const struct trace_options *options,
                            struct trace **trace_out, struct error *error);
void trace_close(struct trace *trace); /* NULL is fine. */

/* ST_NOT_FOUND after the last row; ST_INVALID for a bad one. */
enum status trace_next(struct trace *trace, struct trace_row *row_out, struct error *error);

enum trace_format trace_format(const struct trace *trace);
uint64_t trace_skipped(const struct trace *trace);
const char *trace_first_skipped(const struct trace *trace); /* why the first was; "" if none was */

#endif
