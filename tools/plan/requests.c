/* plan_requests: see the header. */
#include "tools/plan/requests.h"

#include "common/random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum draws { DRAW_GAP, DRAW_PROMPT, DRAW_OUTPUT };

static uint64_t hash_of(const struct plan_requests *requests)
{
    uint64_t hash = requests->count;
    for (uint64_t i = 0; i < requests->count; i++) {
        const struct sim_arrival *arrival = &requests->arrivals[i];
        uint64_t time_bits;
        memcpy(&time_bits, &arrival->at_s, sizeof(time_bits));
        hash = random_at(hash ^ time_bits,
                         (uint64_t)arrival->prompt_tokens << 32 | arrival->output_tokens);
        for (uint32_t k = 0; k < arrival->block_count; k++)
            hash = random_at(hash ^ arrival->block_tokens, (uint64_t)arrival->blocks[k]);
    }
    return hash;
}

/* The hash ids of all rows, one after the other. */
struct ids {
    int64_t *items;
    uint64_t count;
    uint64_t room;
};

/* Copies the row's ids, which are valid until the next row is read. */
static bool ids_add(struct ids *ids, const struct sim_arrival *row)
{
    if (ids->count + row->block_count > ids->room) {
        uint64_t room = 2 * ids->room + row->block_count + 4096;
        int64_t *more = realloc(ids->items, room * sizeof(more[0]));
        if (more == NULL)
            return false;
        ids->items = more;
        ids->room = room;
    }
    if (row->block_count > 0)
        memcpy(ids->items + ids->count, row->blocks, row->block_count * sizeof(row->blocks[0]));
    ids->count += row->block_count;
    return true;
}

/* Lets each row point to its ids, which no longer move. */
static void ids_assign(const struct ids *ids, struct sim_arrival *rows, uint64_t count)
{
    const int64_t *next = ids->items;
    for (uint64_t i = 0; i < count; i++) {
        rows[i].blocks = rows[i].block_count > 0 ? next : NULL;
        next += rows[i].block_count;
    }
}

static enum status rows_read(const char *name, uint64_t seed, struct sim_arrival **rows_out,
                             uint64_t *count_out, int64_t **ids_out, struct error *error)
{
    struct ids ids = {.items = NULL};
    struct sim_trace trace;
    struct sim_arrival *rows = NULL;
    uint64_t count = 0;
    uint64_t room = 0;
    bool end = false;
    enum status status = sim_trace_open(&trace, name, false, seed, error);
    if (status != ST_OK)
        return status;
    for (;;) {
        if (count == room) {
            room = room == 0 ? 4096 : 2 * room;
            struct sim_arrival *more = realloc(rows, room * sizeof(rows[0]));
            if (more == NULL) {
                status = error_set(error, ST_NO_MEMORY, "%s: out of memory", name);
                break;
            }
            rows = more;
        }
        status = sim_trace_next(&trace, &rows[count], &end, error);
        if (status != ST_OK || end)
            break;
        if (!ids_add(&ids, &rows[count])) {
            status = error_set(error, ST_NO_MEMORY, "%s: out of memory", name);
            break;
        }
        count++;
    }
    sim_trace_close(&trace);
    if (status == ST_OK && count == 0)
        status = error_set(error, ST_INVALID, "%s: no rows", name);
    if (status != ST_OK) {
        free(rows);
        free(ids.items);
        return status;
    }
    ids_assign(&ids, rows, count);
    *rows_out = rows;
    *count_out = count;
    *ids_out = ids.items;
    return ST_OK;
}

enum status plan_requests_read(struct plan_requests *requests, const char *name, uint64_t seed,
                               double duration_s, struct error *error)
{
    *requests = (struct plan_requests){.name = name, .duration_s = duration_s};
    enum status status =
        rows_read(name, seed, &requests->arrivals, &requests->count, &requests->ids, error);
    if (status != ST_OK)
        return status;
    struct sim_arrival *arrivals = requests->arrivals;
    double first_s = arrivals[0].at_s;
    double all_s = arrivals[requests->count - 1].at_s - first_s;
    if (all_s <= 0) {
        plan_requests_done(requests);
        return error_set(error, ST_INVALID,
                         "%s: all requests arrive at the same time, so there is no rate", name);
    }
    double rate_per_s = (double)(requests->count - 1) / all_s;
    for (uint64_t i = 0; i < requests->count; i++)
        arrivals[i].at_s = (arrivals[i].at_s - first_s) * rate_per_s;
    requests->rate_max = (double)(requests->count - 1) / duration_s;
    requests->hash = hash_of(requests);
    return ST_OK;
}

/* Uniform in (0, 1). */
static double draw(uint64_t seed, enum draws kind, uint64_t i)
{
    return ((double)(random_at(random_at(seed, (uint64_t)kind), i) >> 12) + 0.5) * 0x1p-52;
}

enum status plan_requests_draw(struct plan_requests *requests, const char *lengths_name, bool pairs,
                               uint64_t seed, double duration_s, double rate_max,
                               struct error *error)
{
    struct sim_arrival *rows;
    uint64_t row_count;
    int64_t *ids;
    *requests = (struct plan_requests){
        .name = lengths_name, .duration_s = duration_s, .rate_max = rate_max};
    enum status status = rows_read(lengths_name, seed, &rows, &row_count, &ids, error);
    if (status != ST_OK)
        return status;
    free(ids); /* Drawn requests have no prefixes. */
    double most = duration_s * rate_max;
    requests->count = (uint64_t)(most + 10 * sqrt(most) + 10);
    requests->arrivals = calloc(requests->count, sizeof(rows[0]));
    if (requests->arrivals == NULL) {
        free(rows);
        return error_set(error, ST_NO_MEMORY, "out of memory for %llu requests",
                         (unsigned long long)requests->count);
    }
    double at = 0;
    for (uint64_t i = 0; i < requests->count; i++) {
        uint64_t prompt_row = (uint64_t)(draw(seed, DRAW_PROMPT, i) * (double)row_count);
        uint64_t output_row =
            pairs ? prompt_row : (uint64_t)(draw(seed, DRAW_OUTPUT, i) * (double)row_count);
        at -= log(draw(seed, DRAW_GAP, i));
        requests->arrivals[i] =
            (struct sim_arrival){.at_s = at,
                                 .id = i,
                                 .line = i + 1,
                                 .prompt_tokens = rows[prompt_row].prompt_tokens,
                                 .output_tokens = rows[output_row].output_tokens};
    }
    free(rows);
    requests->hash = hash_of(requests);
    return ST_OK;
}

void plan_requests_done(struct plan_requests *requests)
{
    free(requests->arrivals);
    free(requests->ids);
    requests->arrivals = NULL;
    requests->ids = NULL;
}

void plan_requests_at(const struct plan_requests *requests, double rate_per_s,
                      struct sim_trace *out)
{
    sim_trace_array_open(out, requests->name, requests->arrivals, requests->count, 1 / rate_per_s,
                         requests->duration_s);
}

uint64_t plan_requests_count(const struct plan_requests *requests, double rate_per_s)
{
    uint64_t low = 0;
    uint64_t high = requests->count;
    while (low < high) {
        uint64_t middle = (low + high) / 2;
        if (requests->arrivals[middle].at_s * (1 / rate_per_s) < requests->duration_s)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}
