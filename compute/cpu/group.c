/* group: sums over the ranks of a group, in shared memory (compute/meeting.h). Each rank publishes
 * all of its numbers and adds up the numbers of all ranks itself, always in the order of the ranks.
 * So every rank has the same bits for any batch, after one wait. (Dividing the additions among the
 * ranks and exchanging the results would move fewer bytes from four ranks on, but needs a second
 * wait.) */
#include "compute/cpu/cpu.h"
#include "compute/meeting.h"

#include <assert.h>
#include <string.h>

/* Work items of a piece. For less than SHARED_FLOATS, waking the workers takes longer than the
 * work. */
#define ITEM_FLOATS   4096
#define SHARED_FLOATS (4 * ITEM_FLOATS)
#define ADD_FLOATS    512 /* On the stack. */

enum status cpu_group_make(struct compute *c, uint8_t id_out[COMPUTE_GROUP_ID_BYTES],
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

void cpu_group_add(struct compute *c, size_t count, float *y, float *x)
{
    sum(c, count, y, x, true);
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
