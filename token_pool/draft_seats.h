/* draft_seats: owns the *seats* of a draft model, a small model that drafts tokens. Each request
 * for which the draft model may draft has a seat. A seat records how many tokens of the request's
 * context the draft model has computed, and which blocks of the draft model's own KV memory have
 * the KV of these tokens. The draft model computes one job at a time; a job has tokens of several
 * seats. token_pool/ calls the functions on the machine's event loop thread, and decides what the
 * draft model computes (token_drafts.c). This part handles numbers of tokens and ids of blocks, but
 * no tokens and no KV. */
#ifndef TOKEN_POOL_DRAFT_SEATS_H
#define TOKEN_POOL_DRAFT_SEATS_H

#include "kvcache/kv_pool.h"

typedef uint32_t draft_seat; /* Number of a seat, from 1. */
#define DRAFT_SEAT_NONE 0    /* No seat. */

struct draft_seats_options {
    uint32_t seat_count;   /* Most seats that are taken at a time. */
    uint32_t block_count;  /* Blocks of the draft model's KV memory. */
    uint32_t block_tokens; /* Tokens of a block. */
};

struct draft_seats;

/* Returns ST_NO_MEMORY, or ST_INVALID if block_count is 0. */
enum status draft_seats_open(const struct draft_seats_options *options, struct draft_seats **out);
void draft_seats_close(struct draft_seats *seats); /* Frees all seats. NULL is fine. */

/* Takes a seat for a context of at most `tokens_max` tokens, none of which is computed. user: any
 * number, which draft_seats_next returns. Returns DRAFT_SEAT_NONE if no seat is free, if memory is
 * short, or if `tokens_max` is 0. */
draft_seat draft_seats_take(struct draft_seats *seats, uint32_t tokens_max, uint32_t user);
/* Frees the seat and its blocks. A running job with the seat continues; the blocks may have new
 * owners, whose jobs run later and overwrite what the running job writes. DRAFT_SEAT_NONE is
 * fine. */
void draft_seats_free(struct draft_seats *seats, draft_seat seat);

/* Returns the taken seat with the lowest number ≥ `from`, and stores its `user`; DRAFT_SEAT_NONE =
 * there is none. To visit all seats, begin with from = 1, and go on with 1 + the returned seat. */
draft_seat draft_seats_next(const struct draft_seats *seats, draft_seat from, uint32_t *user_out);

/* Returns how many of the context's first tokens are computed. */
uint32_t draft_seats_computed(const struct draft_seats *seats, draft_seat seat);
/* Records that the context has changed after its first `tokens` tokens. Later tokens then do not
 * count as computed, also when the running job has computed them. */
void draft_seats_cut(struct draft_seats *seats, draft_seat seat, uint32_t tokens);

/* Adds a seat to the next job. The job computes the context's tokens [draft_seats_computed,
 * end_tokens). Takes blocks for these tokens, and stores the seat's block table, which is valid
 * until the job is done. Requires that draft_seats_computed < end_tokens ≤ tokens_max, and
 * that the job does not have the seat yet. Returns false, and changes nothing, if too few blocks
 * are free. */
bool draft_seats_begin(struct draft_seats *seats, draft_seat seat, uint32_t end_tokens,
                       const kv_block_id **blocks_out);
/* Call it when the job is done: the tokens of its seats count as computed. */
void draft_seats_job_done(struct draft_seats *seats);

/* Returns the number of free blocks. */
uint32_t draft_seats_blocks_free(const struct draft_seats *seats);

#endif
