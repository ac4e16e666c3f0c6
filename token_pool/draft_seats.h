/* draft_seats: which tokens of each request a draft model has computed, and the blocks of the draft
 * model's own KV memory that have their K and V. A request for which the draft model may draft has
 * a *seat*. The token pool owns the seats; token_pool/token_drafts.c decides what the draft model
 * computes, one job at a time. token_pool/ makes every call on the machine's event loop thread.
 * This part knows neither the tokens nor the memory. */
#ifndef TOKEN_POOL_DRAFT_SEATS_H
#define TOKEN_POOL_DRAFT_SEATS_H

#include "kvcache/kv_pool.h"

typedef uint32_t draft_seat; /* 1 + the index of a seat. */
#define DRAFT_SEAT_NONE 0    /* No seat. */

struct draft_seats_options {
    uint32_t seat_count;
    uint32_t block_count;  /* Blocks of the draft model's KV memory. */
    uint32_t block_tokens; /* Tokens of a block. */
};

struct draft_seats;

enum status draft_seats_open(const struct draft_seats_options *options, struct draft_seats **out);
void draft_seats_close(struct draft_seats *seats); /* NULL is fine. Frees all seats. */

/* Takes a seat for a context of at most `tokens` tokens, none of which is computed. `user` is any
 * number of the caller. Returns DRAFT_SEAT_NONE if no seat is free, if memory is short, or if
 * `tokens` is 0. */
draft_seat draft_seats_take(struct draft_seats *seats, uint32_t tokens, uint32_t user);
/* Frees the seat and its blocks. The job that runs may still use them: later jobs overwrite what it
 * writes. DRAFT_SEAT_NONE is fine. */
void draft_seats_free(struct draft_seats *seats, draft_seat seat);

/* Stores the `user` of the first taken seat from `at` on, and returns this seat; DRAFT_SEAT_NONE =
 * there is none. All seats: at = 1, then 1 + the returned seat. */
draft_seat draft_seats_next(const struct draft_seats *seats, draft_seat at, uint32_t *user_out);

/* Returns how many tokens, the first ones of the context, are computed. */
uint32_t draft_seats_computed(const struct draft_seats *seats, draft_seat seat);
/* The tokens of the context from `tokens` on have changed: only those before are computed. */
void draft_seats_cut(struct draft_seats *seats, draft_seat seat, uint32_t tokens);

/* Adds the seat's tokens up to `end` to the next job: takes blocks for them, and stores the seat's
 * block table, which is valid until the job is done. Requires that draft_seats_computed < end ≤ the
 * `tokens` of draft_seats_take, and that the job has the seat only once. Returns false, and changes
 * nothing, if too few blocks are free. */
bool draft_seats_begin(struct draft_seats *seats, draft_seat seat, uint32_t end,
                       const kv_block_id **blocks_out);
/* Call it when the job is done: records that its tokens are computed. */
void draft_seats_job_done(struct draft_seats *seats);

/* Returns the number of free blocks. */
uint32_t draft_seats_blocks_free(const struct draft_seats *seats);

#endif
