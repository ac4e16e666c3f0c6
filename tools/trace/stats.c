/* trace_stats: counts requests per length, and sums per interval. Intervals are 1 s long at first;
 * when there are too many, they become a minute, an hour and a day long. */
#include "tools/trace/stats.h"

#include "common/random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BINS_MAX   (1u << 20)
#define SEEN_BITS  (1u << 27) /* Bits of the filter that recognizes ids seen before: 16 MiB. */
#define SEEN_PROBE 4

static const double nice_s[] = {1,     2,     5,     10,    20,     30,     60,
                                120,   300,   600,   1200,  1800,   3600,   7200,
                                14400, 21600, 43200, 86400, 172800, 604800, 2592000};

/* Active requests and tokens are sums over seconds. */
struct trace_stats {
    struct trace_stats_options options;
    uint64_t *lengths[TRACE_LENGTH_COUNT]; /* Number of requests of each length. */
    uint64_t tokens[TRACE_LENGTH_COUNT];
    uint32_t longest[TRACE_LENGTH_COUNT];
    uint64_t count;
    double first_s, last_s;
    double gap_squares;

    struct trace_interval *bins;
    uint32_t bin_count, bin_room; /* bin_count: up to the last bin that is used. */
    double width_s;

    uint64_t *seen;
    uint64_t blocks, blocks_again;
};

enum status trace_stats_open(const struct trace_stats_options *options,
                             struct trace_stats **stats_out)
{
    struct trace_stats *stats = calloc(1, sizeof(*stats));
    if (stats == NULL)
        return ST_NO_MEMORY;
    stats->options = *options;
    stats->width_s = options->interval_s > 0 ? options->interval_s : 1;
    /* Pages of lengths that do not occur are never touched. */
    for (int i = 0; i < TRACE_LENGTH_COUNT; i++) {
        stats->lengths[i] = calloc(TRACE_TOKENS_MAX + 1, sizeof(stats->lengths[i][0]));
        if (stats->lengths[i] == NULL) {
            trace_stats_close(stats);
            return ST_NO_MEMORY;
        }
    }
    *stats_out = stats;
    return ST_OK;
}

void trace_stats_close(struct trace_stats *stats)
{
    if (stats == NULL)
        return;
    for (int i = 0; i < TRACE_LENGTH_COUNT; i++)
        free(stats->lengths[i]);
    free(stats->bins);
    free(stats->seen);
    free(stats);
}

/* ---- intervals ---- */

static void interval_add(struct trace_interval *to, const struct trace_interval *from)
{
    to->requests += from->requests;
    for (int i = 0; i < TRACE_LENGTH_COUNT; i++)
        to->tokens[i] += from->tokens[i];
    to->active_requests += from->active_requests;
    to->active_tokens += from->active_tokens;
}

/* Makes the bins `times` times as wide. */
static void bins_widen(struct trace_stats *stats, uint32_t times)
{
    uint32_t count = (stats->bin_count + times - 1) / times;
    for (uint32_t i = 0; i < stats->bin_count; i++) {
        struct trace_interval bin = stats->bins[i];
        if (i % times == 0)
            stats->bins[i / times] = bin;
        else
            interval_add(&stats->bins[i / times], &bin);
    }
    if (count < stats->bin_count)
        memset(stats->bins + count, 0, (stats->bin_count - count) * sizeof(stats->bins[0]));
    stats->bin_count = count;
    stats->width_s *= times;
}

/* Makes bins up to the one that contains `at_s`. */
static enum status bins_reach(struct trace_stats *stats, double at_s)
{
    while (at_s / stats->width_s >= BINS_MAX) {
        if (stats->options.interval_s > 0)
            return ST_TOO_LARGE;
        bins_widen(stats, stats->width_s < 3600 ? 60 : 24);
    }
    uint32_t count = (uint32_t)(at_s / stats->width_s) + 1;
    if (count > stats->bin_room) {
        uint32_t room = count + count / 2 + 64;
        struct trace_interval *grown = realloc(stats->bins, room * sizeof(*grown));
        if (grown == NULL)
            return ST_NO_MEMORY;
        memset(grown + stats->bin_room, 0, (room - stats->bin_room) * sizeof(*grown));
        stats->bins = grown;
        stats->bin_room = room;
    }
    if (count > stats->bin_count)
        stats->bin_count = count;
    return ST_OK;
}

/* Adds the time that the request is active: its prompt's tokens from the arrival on, the answer's
 * tokens one by one after the prompt is computed. */
static void active_add(struct trace_stats *stats, const struct trace_row *row, double decode_s,
                       double end_s)
{
    double tbt_s = stats->options.tbt_s;
    for (uint32_t i = (uint32_t)(row->at_s / stats->width_s); i < stats->bin_count; i++) {
        double from_s = fmax(row->at_s, i * stats->width_s);
        double to_s = fmin(end_s, (i + 1) * stats->width_s);
        if (from_s >= end_s)
            break;
        if (to_s <= from_s)
            continue; /* The first bin, if rounding puts the arrival at its end. */
        struct trace_interval *bin = &stats->bins[i];
        bin->active_requests += to_s - from_s;
        bin->active_tokens += (to_s - from_s) * row->prompt_tokens;
        double a = fmax(from_s, decode_s) - decode_s, b = fmax(to_s, decode_s) - decode_s;
        if (tbt_s > 0)
            bin->active_tokens += (b - a) * (1 + (a + b) / (2 * tbt_s));
    }
}

static enum status bins_add(struct trace_stats *stats, const struct trace_row *row)
{
    const struct trace_stats_options *options = &stats->options;
    double decode_s = row->at_s;
    if (options->prompt_tokens_per_s > 0)
        decode_s += row->prompt_tokens / options->prompt_tokens_per_s;
    double end_s = decode_s + (row->output_tokens - 1) * options->tbt_s;
    enum status status = bins_reach(stats, end_s);
    if (status != ST_OK)
        return status;
    struct trace_interval *bin = &stats->bins[(uint32_t)(row->at_s / stats->width_s)];
    bin->requests++;
    bin->tokens[TRACE_PROMPT] += row->prompt_tokens;
    bin->tokens[TRACE_OUTPUT] += row->output_tokens;
    active_add(stats, row, decode_s, end_s);
    return ST_OK;
}

/* Returns the number of bins per shown interval: 1 if the width was given, else a round width that
 * gives at most `most` intervals. */
static uint32_t intervals_merge(const struct trace_stats *stats, uint32_t most)
{
    uint32_t reached = (uint32_t)(stats->last_s / stats->width_s) + 1;
    if (stats->options.interval_s > 0)
        return 1;
    for (size_t i = 0; i < sizeof(nice_s) / sizeof(nice_s[0]); i++) {
        double times = nice_s[i] / stats->width_s;
        if (times >= 1 && times <= floor(times) && reached <= most * times)
            return (uint32_t)times;
    }
    return reached / most + 1;
}

/* Sets the intervals' lengths. The last interval ends with the trace; if it is shorter than half an
 * interval, it is merged with the one before it. The active sums of the last bin include some time
 * after the trace's end. Returns the new number of intervals. */
static uint32_t last_cut(struct trace_interval *intervals, uint32_t count, double width_s,
                         double last_s)
{
    for (uint32_t i = 0; i < count; i++)
        intervals[i].seconds = width_s;
    double rest_s = last_s - (count - 1) * width_s;
    if (count > 1 && rest_s < width_s / 2) {
        count--;
        interval_add(&intervals[count - 1], &intervals[count]);
        intervals[count - 1].seconds += rest_s;
    } else if (rest_s > 0)
        intervals[count - 1].seconds = rest_s;
    return count;
}

struct trace_interval *trace_stats_intervals(const struct trace_stats *stats, uint32_t count_max,
                                             uint32_t *count_out, double *width_s_out)
{
    uint32_t times = intervals_merge(stats, count_max);
    uint32_t reached = (uint32_t)(stats->last_s / stats->width_s) + 1;
    uint32_t count = (reached + times - 1) / times;
    double width_s = stats->width_s * times;
    struct trace_interval *intervals = calloc(count, sizeof(*intervals));
    if (intervals == NULL)
        return NULL;
    for (uint32_t i = 0; i < stats->bin_count && i < reached; i++)
        interval_add(&intervals[i / times], &stats->bins[i]);
    count = last_cut(intervals, count, width_s, stats->last_s);
    for (uint32_t i = 0; i < count; i++) {
        intervals[i].active_requests /= intervals[i].seconds;
        intervals[i].active_tokens /= intervals[i].seconds;
    }
    *count_out = count;
    *width_s_out = width_s;
    return intervals;
}

/* ---- blocks ---- */

/* A Bloom filter: true if all bits of the id were set before. */
static bool seen_before(uint64_t *seen, int64_t id)
{
    bool all = true;
    for (uint64_t probe = 0; probe < SEEN_PROBE; probe++) {
        uint64_t bit = random_at(probe, (uint64_t)id) % SEEN_BITS;
        uint64_t mask = UINT64_C(1) << (bit % 64);
        all &= (seen[bit / 64] & mask) != 0;
        seen[bit / 64] |= mask;
    }
    return all;
}

static enum status blocks_add(struct trace_stats *stats, const struct trace_row *row)
{
    if (row->block_count > 0 && stats->seen == NULL) {
        stats->seen = calloc(SEEN_BITS / 64, sizeof(stats->seen[0]));
        if (stats->seen == NULL)
            return ST_NO_MEMORY;
    }
    for (uint32_t i = 0; i < row->block_count; i++)
        stats->blocks_again += seen_before(stats->seen, row->blocks[i]);
    stats->blocks += row->block_count;
    return ST_OK;
}

/* ---- the parts together ---- */

enum status trace_stats_add(struct trace_stats *stats, const struct trace_row *row)
{
    const uint32_t lengths[TRACE_LENGTH_COUNT] = {row->prompt_tokens, row->output_tokens};
    enum status status = bins_add(stats, row);
    if (status == ST_OK)
        status = blocks_add(stats, row);
    if (status != ST_OK)
        return status;
    if (stats->count++ == 0)
        stats->first_s = stats->last_s = row->at_s;
    stats->gap_squares += (row->at_s - stats->last_s) * (row->at_s - stats->last_s);
    stats->last_s = row->at_s;
    for (int i = 0; i < TRACE_LENGTH_COUNT; i++) {
        stats->lengths[i][lengths[i]]++;
        stats->tokens[i] += lengths[i];
        if (lengths[i] > stats->longest[i])
            stats->longest[i] = lengths[i];
    }
    return ST_OK;
}

uint64_t trace_stats_count(const struct trace_stats *stats)
{
    return stats->count;
}

double trace_stats_first_s(const struct trace_stats *stats)
{
    return stats->first_s;
}

double trace_stats_last_s(const struct trace_stats *stats)
{
    return stats->last_s;
}

double trace_stats_gap_cv(const struct trace_stats *stats)
{
    double gaps = (double)stats->count - 1, span_s = stats->last_s - stats->first_s;
    if (gaps < 1 || span_s <= 0)
        return 0;
    double mean = span_s / gaps;
    return sqrt(fmax(0, stats->gap_squares / gaps - mean * mean)) / mean;
}

double trace_stats_mean(const struct trace_stats *stats, enum trace_length length)
{
    return stats->count > 0 ? (double)stats->tokens[length] / (double)stats->count : 0;
}

uint32_t trace_stats_quantile(const struct trace_stats *stats, enum trace_length length, double q)
{
    uint64_t wanted = (uint64_t)ceil(q * (double)stats->count), before = 0;
    uint32_t tokens = 0;
    if (wanted == 0)
        wanted = 1;
    while (tokens < stats->longest[length]) {
        before += stats->lengths[length][tokens];
        if (before >= wanted)
            break;
        tokens++;
    }
    return tokens;
}

uint64_t trace_stats_up_to(const struct trace_stats *stats, enum trace_length length,
                           uint32_t tokens)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i <= tokens && i <= stats->longest[length]; i++)
        count += stats->lengths[length][i];
    return count;
}

uint64_t trace_stats_blocks(const struct trace_stats *stats)
{
    return stats->blocks;
}

uint64_t trace_stats_blocks_again(const struct trace_stats *stats)
{
    return stats->blocks_again;
}
