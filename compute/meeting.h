/* meeting: where the processes of one host that compute together meet: each gives pieces of
 * numbers, and reads those of the others, through memory that they share. It owns that memory,
 * which has no name in any file system: nothing of it is left behind, however a process ends. A
 * rank's engine thread makes all calls.
 *
 * Who has to wait spins for some tens of microseconds, then sleeps. A rank whose process ends, or
 * that leaves, ends the others' waits for good: from then on every meeting fails at once. */
#ifndef COMPUTE_MEETING_H
#define COMPUTE_MEETING_H

#include "compute/compute.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MEETING_RANKS_MAX 16
/* Of a piece. Two of each rank's stay in a second cache of 1 MiB. */
#define MEETING_PIECE_FLOATS 65536

struct meeting;

/* Makes the memory; the ranks find it by the id as long as *m is not left. *m is NULL before. */
enum status meeting_make(struct meeting **m, uint8_t id_out[COMPUTE_GROUP_ID_BYTES],
                         struct error *error);
/* As compute_ops.group_join; *m is NULL or was made by meeting_make. Failed: only leave it. */
enum status meeting_join(struct meeting **m, const uint8_t id[COMPUTE_GROUP_ID_BYTES],
                         uint32_t rank, uint32_t ranks, uint32_t timeout_ms, struct error *error);
void meeting_leave(struct meeting *m); /* NULL is fine */

uint32_t meeting_rank(const struct meeting *m);
uint32_t meeting_ranks(const struct meeting *m);

/* Where this rank's next piece goes: [MEETING_PIECE_FLOATS]. May be written while the others' are
 * still read. */
float *meeting_own(const struct meeting *m);
/* Gives that piece, and returns when all ranks have given theirs. False: it has failed. */
bool meeting_meet(struct meeting *m);
/* What a rank has given: until meeting_meet is called again. */
const float *meeting_piece(const struct meeting *m, uint32_t rank);

/* What it failed of, or ST_OK. NULL is ST_OK: nobody to meet. */
enum status meeting_check(const struct meeting *m, struct error *error);

#endif
