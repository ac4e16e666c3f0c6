/* trace_stats: what a trace is like: how many requests, how they come, how long they are, and how
 * many tokens are held at a time if each takes a time that the caller tells. Exact for lengths.
 * Rows are added one by one and not kept: memory is bounded by the longest length and a million
 * intervals. One owner; pure. */
#ifndef SIMULATOR_TRACE_STATS_H
#define SIMULATOR_TRACE_STATS_H

#include "simulator/trace.h"

struct trace_stats_options {
    double interval_s;          /* of the table over time; 0: one that gives about twenty rows */
    double tbt_s;               /* an answer's token is computed in so long, … */
    double prompt_tokens_per_s; /* … and a prompt at this rate, at once: nobody waits */
};

enum trace_length { TRACE_PROMPT, TRACE_OUTPUT, TRACE_LENGTH_COUNT };

/* Of the requests of one interval; what is held is a mean over it. */
struct trace_interval {
    double seconds; /* its length */
    uint64_t requests;
    uint64_t tokens[TRACE_LENGTH_COUNT];
    double active_requests; /* computed or being so */
    double active_tokens;   /* prompts and answers so far: what a KV-cache holds of them */
};

struct trace_stats;

enum status trace_stats_open(const struct trace_stats_options *options,
                             struct trace_stats **stats_out);
void trace_stats_close(struct trace_stats *stats); /* NULL is fine. */

/* ST_TOO_LARGE: more than a million intervals of the length that was asked for. */
enum status trace_stats_add(struct trace_stats *stats, const struct trace_row *row);

uint64_t trace_stats_count(const struct trace_stats *stats);
double trace_stats_first_s(const struct trace_stats *stats);
double trace_stats_last_s(const struct trace_stats *stats);
/* Standard deviation of the gaps between requests, in their mean: 1 for a Poisson process. */
double trace_stats_gap_cv(const struct trace_stats *stats);

double trace_stats_mean(const struct trace_stats *stats, enum trace_length length);
/* The least length that a share q of requests does not exceed; q = 0: the least, 1: the greatest.
 */
uint32_t trace_stats_quantile(const struct trace_stats *stats, enum trace_length length, double q);
/* How many requests have a length up to `tokens`. */
uint64_t trace_stats_up_to(const struct trace_stats *stats, enum trace_length length,
                           uint32_t tokens);

/* Hash ids of blocks, and how many of them an earlier request had (one in a thousand is miscounted
 * at six million different ones). */
uint64_t trace_stats_blocks(const struct trace_stats *stats);
uint64_t trace_stats_blocks_again(const struct trace_stats *stats);

/* The table over time: `*width_s_out` seconds an interval, from time 0 to the last request, at most
 * `most` of them where no length was asked for. The last is cut, or has grown by a cut one. To be
 * freed by the caller; NULL: no memory. */
struct trace_interval *trace_stats_intervals(const struct trace_stats *stats, uint32_t most,
                                             uint32_t *count_out, double *width_s_out);

#endif
