/* trace_stats: the statistics of a trace: number of requests, arrivals, lengths, and the tokens in
 * a KV cache over time. The caller gives the computing times (struct trace_stats_options). The
 * statistics do not keep the rows. `cleave trace` calls the functions on the main thread. The
 * functions read no file and simulate no machine: they assume that no request waits. */
#ifndef TOOLS_TRACE_STATS_H
#define TOOLS_TRACE_STATS_H

#include "tools/trace/trace.h"

struct trace_stats_options {
    double interval_s; /* Length of the intervals over time; 0 = trace_stats_intervals chooses. */
    double tbt_s;      /* Time to generate one token of an answer. */
    double prompt_tokens_per_s; /* Rate at which a prompt is computed, without waiting. */
};

enum trace_length { TRACE_PROMPT, TRACE_OUTPUT, TRACE_LENGTH_COUNT };

/* The requests of one interval. A request is active while its prompt or answer is computed. */
struct trace_interval {
    double seconds;                      /* Length of the interval. */
    uint64_t requests;                   /* Requests that arrive in the interval. */
    uint64_t tokens[TRACE_LENGTH_COUNT]; /* Tokens of the requests that arrive in the interval. */
    double active_requests;              /* Mean number of active requests, over the interval. */
    double active_tokens; /* Mean number of tokens of active requests in a KV cache. */
};

struct trace_stats;

/* Opens empty statistics; trace_stats_close frees them. ST_NO_MEMORY: memory runs out. */
enum status trace_stats_open(const struct trace_stats_options *options,
                             struct trace_stats **stats_out);
void trace_stats_close(struct trace_stats *stats); /* NULL is fine. */

/* Adds a row. ST_TOO_LARGE: the trace has more than 2^20 intervals of options.interval_s.
 * ST_NO_MEMORY: memory runs out. */
enum status trace_stats_add(struct trace_stats *stats, const struct trace_row *row);

/* Returns the number of rows. */
uint64_t trace_stats_count(const struct trace_stats *stats);
/* Returns the time of the first row in seconds; 0 = no rows. */
double trace_stats_first_s(const struct trace_stats *stats);
/* Returns the time of the last row in seconds; 0 = no rows. */
double trace_stats_last_s(const struct trace_stats *stats);
/* Returns the coefficient of variation of the gaps between requests (1 for a Poisson process); 0 =
 * fewer than two requests, or all at the same time. */
double trace_stats_gap_cv(const struct trace_stats *stats);

/* Returns the mean length in tokens; 0 = no rows. */
double trace_stats_mean(const struct trace_stats *stats, enum trace_length length);
/* Returns the smallest length that a share q of the requests does not exceed. q = 0: the smallest
 * length; q = 1: the greatest. 0 = no rows. */
uint32_t trace_stats_quantile(const struct trace_stats *stats, enum trace_length length, double q);
/* Returns the number of requests with a length up to `tokens`. */
uint64_t trace_stats_up_to(const struct trace_stats *stats, enum trace_length length,
                           uint32_t tokens);

/* Returns the number of hash ids of blocks in all rows. */
uint64_t trace_stats_blocks(const struct trace_stats *stats);
/* Returns how many of the hash ids in trace_stats_blocks had occurred earlier in the trace. This is
 * an estimate: after six million different ids, about one new id in a thousand counts as known. */
uint64_t trace_stats_blocks_again(const struct trace_stats *stats);

/* Returns the intervals from time 0 to the last request. count_max: most intervals; not used if
 * options.interval_s is above 0. *width_s_out: length of an interval. The last interval may be
 * shorter, or longer by up to half an interval. The caller frees the array. NULL = no memory. */
struct trace_interval *trace_stats_intervals(const struct trace_stats *stats, uint32_t count_max,
                                             uint32_t *count_out, double *width_s_out);

#endif
