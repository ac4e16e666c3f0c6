/* group: sums over the ranks of a group, in shared memory (compute/meeting.h). Each rank publishes
 * all of its numbers and adds up the numbers of all ranks itself, always in the order of the ranks.
 * So every rank has the same bits for any batch, after one wait. (Dividing the additions among the
 * ranks and exchanging the results would move fewer bytes from four ranks on, but needs a second
 * wait.) */
#include "compute/cpu/cpu.h"
#include "compute/meeting.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* Work items of a piece. For less than SHARED_FLOATS, waking the workers takes longer than the
 * work. */
#define ITEM_FLOATS   4096
#define SHARED_FLOATS (4 * ITEM_FLOATS)
#define ADD_FLOATS    512 /* On the stack. */

enum status cpu_group_id_make(struct compute *c, uint8_t id_out[COMPUTE_GROUP_ID_BYTES],
                              struct error *error)
{
    return meeting_make(&c->meeting, id_out, error);
}

enum status cpu_group_join(struct compute *c, const uint8_t id[COMPUTE_GROUP_ID_BYTES],
                           uint32_t rank, uint32_t ranks, uint32_t timeout_ms, struct error *error)
{
    return meeting_join(&c->meeting, id, rank, ranks, timeout_ms, error);
}

enum status cpu_check(struct compute *c, struct error *error)
{
    return meeting_check(c->meeting, error);
}

struct piece {
    const struct meeting *meeting;
    float *own; /* In shared memory. */
    const float *y;
    float *to;
    bool add;
    size_t count;
};

static size_t item_end(const struct piece *piece, size_t first)
{
    return piece->count - first < ITEM_FLOATS ? piece->count : first + ITEM_FLOATS;
}

static void give_item(void *context, uint32_t item, uint32_t thread)
{
    (void)thread;
    const struct piece *piece = context;
    const size_t first = (size_t)item * ITEM_FLOATS;
    memcpy(piece->own + first, piece->y + first, (item_end(piece, first) - first) * sizeof(float));
}

static void add(float *restrict sum, const float *restrict part, size_t count)
{
    for (size_t i = 0; i < count; i++)
        sum[i] += part[i];
}

static void sum_item(void *context, uint32_t item, uint32_t thread)
{
    (void)thread;
    const struct piece *piece = context;
    const uint32_t ranks = meeting_ranks(piece->meeting);
    size_t at = (size_t)item * ITEM_FLOATS;
    const size_t end = item_end(piece, at);
    for (size_t count; at < end; at += count) {
        float sum[ADD_FLOATS];
        count = end - at < ADD_FLOATS ? end - at : ADD_FLOATS;
        memcpy(sum, meeting_piece(piece->meeting, 0) + at, count * sizeof(float));
        for (uint32_t rank = 1; rank < ranks; rank++)
            add(sum, meeting_piece(piece->meeting, rank) + at, count);
        if (piece->add)
            add(piece->to + at, sum, count);
        else
            memcpy(piece->to + at, sum, count * sizeof(float));
    }
}

static void piece_run(struct compute *c, workers_fn fn, struct piece *piece)
{
    const uint32_t items = (uint32_t)((piece->count + ITEM_FLOATS - 1) / ITEM_FLOATS);
    if (piece->count >= SHARED_FLOATS)
        workers_run(c->workers, fn, piece, items);
    else
        for (uint32_t i = 0; i < items; i++)
            fn(piece, i, 0);
}

static void sum(struct compute *c, size_t count, const float *y, float *to, bool adds)
{
    assert(c->meeting != NULL);
    for (size_t at = 0, part; at < count; at += part) {
        part = count - at < MEETING_PIECE_FLOATS ? count - at : MEETING_PIECE_FLOATS;
        struct piece piece = {.meeting = c->meeting,
                              .own = meeting_own_piece(c->meeting),
                              .y = y + at,
                              .to = to + at,
                              .add = adds,
                              .count = part};
        piece_run(c, give_item, &piece);
        if (!meeting_exchange(c->meeting))
            return; /* `check` reports it. */
        piece_run(c, sum_item, &piece);
    }
}

void cpu_group_sum(struct compute *c, size_t count, float *y)
{
    sum(c, count, y, y, false);
}

void cpu_group_sum_add(struct compute *c, size_t count, float *y, float *x)
{
    sum(c, count, y, x, true);
}

struct norm_job {
    struct compute *c;
    const struct compute_group_norm *norms;
    uint32_t count; /* Arrays of rows. */
    float epsilon;
    uint32_t first_row, row_count; /* Rows of the exchange. */
    float *own;                    /* In shared memory: [row_count][count] sums of squares. */
};

static float *norm_row(const struct norm_job *job, uint32_t row, uint32_t i)
{
    return job->norms[i].x + (size_t)(job->first_row + row) * job->norms[i].cols;
}

static void squares_item(void *context, uint32_t row, uint32_t thread)
{
    (void)thread;
    const struct norm_job *job = context;
    for (uint32_t i = 0; i < job->count; i++)
        job->own[(size_t)row * job->count + i] =
            job->c->kernels->squares(norm_row(job, row, i), job->norms[i].cols);
}

static void weigh_item(void *context, uint32_t row, uint32_t thread)
{
    (void)thread;
    const struct norm_job *job = context;
    const struct meeting *meeting = job->c->meeting;
    for (uint32_t i = 0; i < job->count; i++) {
        const struct compute_group_norm *norm = &job->norms[i];
        const size_t at = (size_t)row * job->count + i;
        float *x = norm_row(job, row, i);
        float sum = meeting_piece(meeting, 0)[at];
        for (uint32_t rank = 1; rank < meeting_ranks(meeting); rank++)
            sum += meeting_piece(meeting, rank)[at];
        const float mean = sum / (float)norm->cols_all;
        job->c->kernels->weigh(x, norm->cols, norm->weight, 1.0f / sqrtf(mean + job->epsilon), x);
    }
}

static void rows_run(struct norm_job *job, workers_fn fn)
{
    if ((size_t)job->row_count * job->norms[0].cols >= SHARED_FLOATS)
        workers_run(job->c->workers, fn, job, job->row_count);
    else
        for (uint32_t row = 0; row < job->row_count; row++)
            fn(job, row, 0);
}

void cpu_group_norm(struct compute *c, const struct compute_group_norm *norms, uint32_t count,
                    float epsilon, uint32_t row_count)
{
    assert(c->meeting != NULL && count > 0 && count <= COMPUTE_GROUP_NORMS_MAX);
    const uint32_t rows_most = MEETING_PIECE_FLOATS / count;
    struct norm_job job = {.c = c, .norms = norms, .count = count, .epsilon = epsilon};
    for (; job.first_row < row_count; job.first_row += job.row_count) {
        const uint32_t left = row_count - job.first_row;
        job.row_count = left < rows_most ? left : rows_most;
        job.own = meeting_own_piece(c->meeting);
        rows_run(&job, squares_item);
        if (!meeting_exchange(c->meeting))
            return; /* `check` reports it. */
        rows_run(&job, weigh_item);
    }
}

struct columns { /* A rank's columns in `all`. */
    uint32_t first, count, all;
};

/* Copies elements [at, at + count) of a rank's rows to their places in `all`. */
static void scatter(const struct columns *columns, size_t at, size_t count, const float *from,
                    float *all)
{
    while (count > 0) {
        const size_t row = at / columns->count, col = at % columns->count;
        const size_t part = columns->count - col < count ? columns->count - col : count;
        memcpy(all + row * columns->all + columns->first + col, from, part * sizeof(float));
        at += part;
        from += part;
        count -= part;
    }
}

static size_t part_at(size_t total, size_t at)
{
    const size_t left = at < total ? total - at : 0;
    return left < MEETING_PIECE_FLOATS ? left : MEETING_PIECE_FLOATS;
}

void cpu_group_gather(struct compute *c, uint32_t row_count, const float *part,
                      const uint32_t *counts, float *all)
{
    assert(c->meeting != NULL);
    const uint32_t rank = meeting_rank(c->meeting), ranks = meeting_ranks(c->meeting);
    const size_t own = (size_t)row_count * counts[rank];
    uint32_t most = 0, cols = 0;
    for (uint32_t i = 0; i < ranks; i++) {
        most = counts[i] > most ? counts[i] : most;
        cols += counts[i];
    }
    for (size_t at = 0; at < (size_t)row_count * most; at += MEETING_PIECE_FLOATS) {
        if (rank > 0)
            memcpy(meeting_own_piece(c->meeting), part + (at < own ? at : 0),
                   part_at(own, at) * sizeof(float));
        if (!meeting_exchange(c->meeting))
            return; /* `check` reports it. */
        for (uint32_t i = 0, first = 0; i < ranks && rank == 0; first += counts[i++]) {
            const struct columns columns = {first, counts[i], cols};
            const size_t total = (size_t)row_count * counts[i];
            const float *from = i > 0 ? meeting_piece(c->meeting, i) : part + (at < own ? at : 0);
            scatter(&columns, at, part_at(total, at), from, all);
        }
    }
}
