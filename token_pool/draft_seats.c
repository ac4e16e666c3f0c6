/* draft_seats: see the header. */
#include "token_pool/draft_seats.h"

#include <assert.h>
#include <stdlib.h>

struct seat {
    bool taken;
    uint32_t user;
    uint32_t capacity; /* Most tokens of the context. */
    uint32_t computed;
    bool in_job;         /* The job that runs computes tokens of the seat, */
    uint32_t job_tokens; /* up to this number of tokens. */
    kv_block_id *ids;    /* [blocks of `capacity`]; NULL = the seat is free, and no job uses it. */
    uint32_t block_count;
};

struct draft_seats {
    struct draft_seats_options options;
    struct kv_pool *blocks;
    uint32_t high; /* Seats from this index on were never taken, or are free again. */
    struct seat seats[];
};

static struct seat *seat_of(struct draft_seats *seats, draft_seat seat)
{
    assert(seat >= 1 && seat <= seats->high && seats->seats[seat - 1].taken);
    return &seats->seats[seat - 1];
}

static uint32_t blocks_of(const struct draft_seats *seats, uint32_t tokens)
{
    return (tokens + seats->options.block_tokens - 1) / seats->options.block_tokens;
}

enum status draft_seats_open(const struct draft_seats_options *options, struct draft_seats **out)
{
    struct draft_seats *seats =
        calloc(1, sizeof(*seats) + options->seat_count * sizeof(seats->seats[0]));
    if (seats == NULL)
        return ST_NO_MEMORY;
    seats->options = *options;
    enum status status = kv_pool_open(options->block_count, &seats->blocks);
    if (status != ST_OK) {
        free(seats);
        return status;
    }
    *out = seats;
    return ST_OK;
}

void draft_seats_close(struct draft_seats *seats)
{
    if (seats == NULL)
        return;
    draft_seats_job_done(seats);
    for (draft_seat seat = seats->high; seat >= 1; seat--)
        if (seats->seats[seat - 1].taken)
            draft_seats_free(seats, seat);
    kv_pool_close(seats->blocks);
    free(seats);
}

draft_seat draft_seats_take(struct draft_seats *seats, uint32_t tokens_max, uint32_t user)
{
    uint32_t index = 0;
    while (index < seats->options.seat_count && seats->seats[index].ids != NULL)
        index++;
    if (index == seats->options.seat_count || tokens_max == 0)
        return DRAFT_SEAT_NONE;
    kv_block_id *ids = malloc(blocks_of(seats, tokens_max) * sizeof(*ids));
    if (ids == NULL)
        return DRAFT_SEAT_NONE;
    seats->seats[index] =
        (struct seat){.taken = true, .user = user, .capacity = tokens_max, .ids = ids};
    seats->high = index + 1 > seats->high ? index + 1 : seats->high;
    return index + 1;
}

/* Frees the table of a seat that is not taken. */
static void table_free(struct draft_seats *seats, struct seat *seat)
{
    free(seat->ids);
    *seat = (struct seat){.taken = false};
    while (seats->high > 0 && seats->seats[seats->high - 1].ids == NULL)
        seats->high--;
}

void draft_seats_free(struct draft_seats *seats, draft_seat seat)
{
    if (seat == DRAFT_SEAT_NONE)
        return;
    struct seat *s = seat_of(seats, seat);
    if (s->block_count > 0)
        kv_pool_free(seats->blocks, seat, s->ids, s->block_count);
    s->taken = false;
    if (!s->in_job)
        table_free(seats, s);
}

draft_seat draft_seats_next(const struct draft_seats *seats, draft_seat from, uint32_t *user_out)
{
    for (draft_seat seat = from; seat <= seats->high; seat++) {
        if (!seats->seats[seat - 1].taken)
            continue;
        *user_out = seats->seats[seat - 1].user;
        return seat;
    }
    return DRAFT_SEAT_NONE;
}

uint32_t draft_seats_computed(const struct draft_seats *seats, draft_seat seat)
{
    return seat_of((struct draft_seats *)seats, seat)->computed;
}

void draft_seats_cut(struct draft_seats *seats, draft_seat seat, uint32_t tokens)
{
    struct seat *s = seat_of(seats, seat);
    s->computed = s->computed < tokens ? s->computed : tokens;
    s->job_tokens = s->job_tokens < tokens ? s->job_tokens : tokens;
}

bool draft_seats_begin(struct draft_seats *seats, draft_seat seat, uint32_t end_tokens,
                       const kv_block_id **blocks_out)
{
    struct seat *s = seat_of(seats, seat);
    assert(!s->in_job && s->computed < end_tokens && end_tokens <= s->capacity);
    uint32_t blocks = blocks_of(seats, end_tokens);
    if (blocks > s->block_count) {
        uint32_t more = blocks - s->block_count;
        kv_block_id *ids = s->ids + s->block_count;
        if (kv_pool_take(seats->blocks, seat, LAYER_FULL, more, ids) != ST_OK)
            return false;
        kv_pool_state_set(seats->blocks, seat, ids, more, KV_LIVE);
        s->block_count = blocks;
    }
    s->in_job = true;
    s->job_tokens = end_tokens;
    *blocks_out = s->ids;
    return true;
}

void draft_seats_job_done(struct draft_seats *seats)
{
    for (uint32_t i = seats->high; i-- > 0;) {
        struct seat *s = &seats->seats[i];
        if (!s->in_job)
            continue;
        s->computed = s->job_tokens;
        s->in_job = false;
        if (!s->taken)
            table_free(seats, s);
    }
}

uint32_t draft_seats_blocks_free(const struct draft_seats *seats)
{
    return kv_pool_available(seats->blocks);
}
