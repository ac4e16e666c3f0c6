/* metrics: receives the figures. render.c writes the page. */
#include "server/metrics/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIZE_BUCKETS 21 /* up to LIMIT_CONTEXT_TOKENS */

enum status metrics_open(const struct fleet *fleet, const char *model_name,
                         const struct api_keys *keys, struct metrics **out)
{
    struct metrics *m = calloc(1, sizeof(*m));
    if (m == NULL)
        return ST_NO_MEMORY;
    m->fleet = fleet;
    m->keys = keys;
    snprintf(m->model_name, sizeof(m->model_name), "%s", model_name);
    for (int which = 0; which < METRICS_TIME_COUNT; which++)
        histogram_init(&m->times[which], METRICS_TIME_FIRST_S, METRICS_TIME_FACTOR,
                       METRICS_TIME_BUCKETS);
    histogram_init(&m->iterations, METRICS_TIME_FIRST_S, METRICS_TIME_FACTOR, METRICS_TIME_BUCKETS);
    histogram_init(&m->prompt_sizes, 1, 2, SIZE_BUCKETS);
    histogram_init(&m->answer_sizes, 1, 2, SIZE_BUCKETS);
    if (metrics_problems_open(m) != ST_OK) {
        free(m);
        return ST_NO_MEMORY;
    }
    *out = m;
    return ST_OK;
}

void metrics_close(struct metrics *m)
{
    if (m == NULL)
        return;
    metrics_stages_close(m);
    metrics_problems_close(m);
    free(m);
}

void metrics_http_done(struct metrics *m, unsigned code)
{
    m->http_codes[code < METRICS_HTTP_CODES ? code : 0]++;
}

void metrics_time_add(struct metrics *m, enum metrics_time interval, int64_t us)
{
    histogram_add(&m->times[interval], us > 0 ? (double)us * 1e-6 : 0);
}

void metrics_request_ended(struct metrics *m, enum metrics_reason reason)
{
    m->ended[reason]++;
}

void metrics_request_refused(struct metrics *m, enum metrics_refusal refusal)
{
    m->refused[refusal]++;
}

void metrics_iteration_add(struct metrics *m, int64_t us)
{
    histogram_add(&m->iterations, us > 0 ? (double)us * 1e-6 : 0);
    if (us <= 1000000)
        return;
    m->stalls++;
    m->stall_us = us;
}

void metrics_reload_set(struct metrics *m, bool succeeded, int64_t unix_s)
{
    m->reloaded = true;
    m->values[METRICS_RELOAD_GOOD] = succeeded;
    if (succeeded)
        m->values[METRICS_RELOAD_TIME] = (uint64_t)unix_s;
}

void metrics_etcd_set(struct metrics *m, bool up)
{
    m->has_etcd = true;
    m->values[METRICS_ETCD_UP] = up;
}

void metrics_counter_add(struct metrics *m, enum metrics_value counter, uint64_t amount)
{
    m->values[counter] += amount;
}

void metrics_value_set(struct metrics *m, enum metrics_value gauge, uint64_t value)
{
    m->values[gauge] = value;
}

void metrics_machine_pool_set(struct metrics *m, uint32_t machine, uint32_t pool)
{
    struct metrics_machine *at = &m->machines[machine];
    at->moves += at->pool_known && at->pool != pool ? 1 : 0;
    at->pool_known = true;
    at->pool = pool;
}

void metrics_events_set(struct metrics *m, bool has_log, uint64_t written, uint64_t dropped)
{
    m->has_events = has_log;
    m->values[METRICS_EVENTS_WRITTEN] = written;
    m->values[METRICS_EVENTS_DROPPED] = dropped;
}

void metrics_request_sizes(struct metrics *m, uint32_t prompt_tokens, uint32_t generated_tokens)
{
    histogram_add(&m->prompt_sizes, prompt_tokens);
    histogram_add(&m->answer_sizes, generated_tokens);
}

void metrics_machine_up_set(struct metrics *m, uint32_t machine, bool up)
{
    m->machines[machine].losses += m->machines[machine].up && !up ? 1 : 0;
    m->machines[machine].up = up;
    m->machines[machine].gauges_known = false; /* until its first STATS */
}

/* Returns the index of a path text. When there are more than METRICS_PATHS, the rest share the last
 * index. */
static uint32_t path_find(struct metrics *m, const char *path)
{
    for (uint32_t i = 0; i < m->path_count; i++)
        if (strncmp(m->paths[i], path, sizeof(m->paths[i]) - 1) == 0)
            return i;
    if (m->path_count == METRICS_PATHS)
        return METRICS_PATHS - 1;
    snprintf(m->paths[m->path_count], sizeof(m->paths[0]), "%s", path);
    return m->path_count++;
}

void metrics_link_set(struct metrics *m, uint32_t prompt, uint32_t token, bool up, const char *path)
{
    m->links[prompt][token] =
        up ? (uint8_t)(METRICS_LINK_UP + path_find(m, path)) : METRICS_LINK_DOWN;
}

void metrics_link_speed_set(struct metrics *m, uint32_t prompt, uint32_t token,
                            uint64_t bytes_per_s)
{
    m->link_bytes_per_s[prompt][token] = (float)bytes_per_s;
}

/* True if the machine's process is a new one: counters only grow, so a smaller value shows a
 * restart. */
static bool has_restarted(const struct message_stats *last, const struct message_stats *now)
{
    return now->prompt_tokens_done < last->prompt_tokens_done ||
           now->generated_tokens_done < last->generated_tokens_done ||
           now->prompt_batches < last->prompt_batches || now->token_batches < last->token_batches ||
           message_stats_transferred(now) < message_stats_transferred(last) ||
           now->transfer_us < last->transfer_us;
}

void metrics_about_set(struct metrics *m, uint32_t machine, const struct message_about *about)
{
    m->machines[machine].about = *about;
}

void metrics_stats_set(struct metrics *m, uint32_t machine, const struct message_stats *stats)
{
    struct metrics_machine *figures = &m->machines[machine];
    if (has_restarted(&figures->latest_stats, stats))
        message_stats_add(&figures->earlier_counters, &figures->latest_stats);
    figures->latest_stats = *stats;
    figures->gauges_known = true;
    figures->counters_known = true;
}

struct message_stats metrics_counters(const struct metrics *m, uint32_t machine)
{
    struct message_stats sum = m->machines[machine].latest_stats;
    message_stats_add(&sum, &m->machines[machine].earlier_counters);
    return sum;
}

void metrics_machine_forget(struct metrics *m, uint32_t machine)
{
    struct message_stats counters = metrics_counters(m, machine);
    message_stats_add(&m->removed_counters, &counters);
    metrics_problems_forget(m, machine);
    free(m->machines[machine].loads);
    memset(&m->machines[machine], 0, sizeof(m->machines[machine]));
    for (uint32_t other = 0; other < LIMIT_MACHINES; other++) {
        m->links[machine][other] = m->links[other][machine] = METRICS_LINK_UNKNOWN;
        m->link_bytes_per_s[machine][other] = m->link_bytes_per_s[other][machine] = 0;
    }
}
