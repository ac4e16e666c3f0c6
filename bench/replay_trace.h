/* replay_trace: reads a trace of requests, row by row, in the form of the Azure LLM inference
 * traces: a header line with the columns TIMESTAMP, ContextTokens and GeneratedTokens in any order
 * (others are passed over), then one request a line, sorted by time. TIMESTAMP is `YYYY-MM-DD
 * HH:MM:SS[.fraction][zone]`; the 2023 traces have seven digits of fraction and no zone, those of
 * 2024 a zone.
 *
 * A trace may hold tens of millions of rows: nothing but the current line is kept. Not thread-safe.
 */
#ifndef BENCH_REPLAY_TRACE_H
#define BENCH_REPLAY_TRACE_H

#include "common/status.h"

#include <stdint.h>

#define REPLAY_TOKENS_MAX 10000000 /* a length above this is a broken row, not a long request */

struct replay_row {
    int64_t at_us; /* since the first row of the trace */
    uint32_t context_tokens;
    uint32_t generated_tokens;
    uint64_t line; /* in the file, the header being 1 */
};

struct replay_trace;

/* Opens the file and reads its header. The error text names file, line, value and what was wanted.
 */
enum status replay_trace_open(const char *path, struct replay_trace **trace_out,
                              struct error *error);

/* ST_NOT_FOUND after the last row; ST_INVALID for a row that is cut, malformed or earlier than the
 * one above it. Blank lines are passed over. */
enum status replay_trace_next(struct replay_trace *trace, struct replay_row *row_out,
                              struct error *error);

void replay_trace_close(struct replay_trace *trace); /* NULL is fine. */

#endif
