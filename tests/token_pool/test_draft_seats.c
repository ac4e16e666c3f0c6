/* Goal: the books of the draft model's KV are right: every token of a context is computed in order,
 * no block belongs to two seats, a block that a job may read stays in its table, and no block is
 * lost. Method: random requests that come, grow, change their latest tokens and go, also while a
 * job runs, against a plain model that remembers which tokens each block has; memory is often
 * short. */
#include "common/random.h"
#include "tests/check.h"
#include "token_pool/draft_seats.h"

#include <stdlib.h>
#include <string.h>

#define SEATS        12
#define BLOCKS       40
#define BLOCK_TOKENS 4
#define CONTEXT      60
#define ROUNDS       200000

struct plain {
    draft_seat seat; /* DRAFT_SEAT_NONE = there is no such request. */
    uint32_t number; /* Of the request, which no other one has. */
    uint32_t capacity;
    uint32_t computed;
    bool in_job;
    uint32_t job_tokens;
    uint32_t job_blocks;
    const kv_block_id *table;    /* As the job has it. */
    kv_block_id blocks[CONTEXT]; /* What the table had when the job began. */
};

static struct plain requests[SEATS];
/* The job has the tables of requests that have gone, too. */
static struct plain gone[SEATS];
static uint32_t gone_count;

static uint32_t draw(uint32_t below)
{
    static uint64_t draws;
    return (uint32_t)(random_at(9, draws++) % below);
}

static uint32_t blocks_of(uint32_t tokens)
{
    return (tokens + BLOCK_TOKENS - 1) / BLOCK_TOKENS;
}

static void come(struct draft_seats *seats, uint32_t index)
{
    static uint32_t numbers;
    struct plain *r = &requests[index];
    *r = (struct plain){.number = ++numbers, .capacity = 1 + draw(CONTEXT)};
    r->seat = draft_seats_take(seats, r->capacity, r->number);
    CHECK(r->seat != DRAFT_SEAT_NONE || gone_count > 0);
    if (r->seat != DRAFT_SEAT_NONE)
        CHECK(draft_seats_computed(seats, r->seat) == 0);
}

static void go(struct draft_seats *seats, uint32_t index)
{
    struct plain *r = &requests[index];
    if (r->in_job)
        gone[gone_count++] = *r;
    draft_seats_free(seats, r->seat);
    r->seat = DRAFT_SEAT_NONE;
}

static void begin(struct draft_seats *seats, struct plain *r)
{
    const uint32_t end = r->computed + 1 + draw(r->capacity - r->computed);
    const uint32_t free_blocks = draft_seats_blocks_free(seats);
    if (!draft_seats_begin(seats, r->seat, end, &r->table)) {
        CHECK(blocks_of(end) > free_blocks && draft_seats_blocks_free(seats) == free_blocks);
        return;
    }
    r->in_job = true;
    r->job_tokens = end;
    r->job_blocks = blocks_of(end);
    memcpy(r->blocks, r->table, r->job_blocks * sizeof(r->blocks[0]));
}

/* The tables of the job are as they were when the job began, and no two requests that exist share a
 * block. */
static void job_check(void)
{
    bool used[BLOCKS] = {false};
    for (uint32_t i = 0; i < gone_count; i++)
        CHECK(memcmp(gone[i].blocks, gone[i].table, gone[i].job_blocks * sizeof(kv_block_id)) == 0);
    for (uint32_t i = 0; i < SEATS; i++) {
        const struct plain *r = &requests[i];
        if (r->seat == DRAFT_SEAT_NONE || !r->in_job)
            continue;
        CHECK(memcmp(r->blocks, r->table, r->job_blocks * sizeof(kv_block_id)) == 0);
        for (uint32_t k = 0; k < r->job_blocks; k++) {
            CHECK(r->table[k] < BLOCKS && !used[r->table[k]]);
            used[r->table[k]] = true;
        }
    }
}

static void job_end(struct draft_seats *seats)
{
    job_check();
    draft_seats_job_done(seats);
    gone_count = 0;
    for (uint32_t i = 0; i < SEATS; i++) {
        struct plain *r = &requests[i];
        r->computed = r->in_job ? r->job_tokens : r->computed;
        r->in_job = false;
    }
}

static void cut(struct draft_seats *seats, struct plain *r)
{
    const uint32_t tokens = draw(CONTEXT + 1);
    draft_seats_cut(seats, r->seat, tokens);
    r->computed = r->computed < tokens ? r->computed : tokens;
    r->job_tokens = r->job_tokens < tokens ? r->job_tokens : tokens;
}

static void seats_check(const struct draft_seats *seats)
{
    uint32_t number, count = 0, open = 0;
    for (draft_seat at = draft_seats_next(seats, 1, &number); at != DRAFT_SEAT_NONE;
         at = draft_seats_next(seats, at + 1, &number)) {
        bool found = false;
        for (uint32_t i = 0; i < SEATS; i++)
            found |= requests[i].seat == at && requests[i].number == number;
        CHECK(found);
        count++;
    }
    for (uint32_t i = 0; i < SEATS; i++) {
        if (requests[i].seat == DRAFT_SEAT_NONE)
            continue;
        open++;
        CHECK(draft_seats_computed(seats, requests[i].seat) == requests[i].computed);
    }
    CHECK(count == open);
}

int main(void)
{
    struct draft_seats *seats;
    uint32_t full = 0, jobs = 0;
    CHECK(draft_seats_open(&(struct draft_seats_options){.seat_count = SEATS,
                                                         .block_count = BLOCKS,
                                                         .block_tokens = BLOCK_TOKENS},
                           &seats) == ST_OK);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        const uint32_t index = draw(SEATS);
        struct plain *r = &requests[index];
        const bool open = r->seat != DRAFT_SEAT_NONE;
        switch (draw(8)) {
        case 0:
            if (open)
                go(seats, index);
            break;
        case 1:
            if (open)
                cut(seats, r);
            break;
        case 2:
            job_end(seats);
            jobs++;
            break;
        default:
            if (!open)
                come(seats, index);
            else if (!r->in_job && r->computed < r->capacity)
                begin(seats, r);
            break;
        }
        full += draft_seats_blocks_free(seats) == 0 ? 1 : 0;
        job_check();
        seats_check(seats);
    }
    CHECK(full > ROUNDS / 100 && jobs > ROUNDS / 20);
    job_end(seats);
    for (uint32_t i = 0; i < SEATS; i++)
        if (requests[i].seat != DRAFT_SEAT_NONE)
            go(seats, i);
    CHECK(draft_seats_blocks_free(seats) == BLOCKS);
    draft_seats_close(seats);
    return 0;
}
