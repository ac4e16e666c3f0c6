/* meeting: shared memory through which the ranks of a group on one host exchange numbers. Each rank
 * publishes a piece (an array of floats) and reads the pieces of the other ranks. compute/cpu/ uses
 * it to add up the ranks' results, and compute/wait/ to let the ranks of the waiting backend wait
 * for each other. The event loop thread calls meeting_make and, at the end, meeting_leave; the
 * engine thread calls everything else. Besides, worker threads of compute/cpu/ call meeting_ranks
 * and meeting_piece, and the event loop thread calls meeting_check once, before the engine thread
 * starts. The memory has no name in any file system, so nothing is left behind when a process ends.
 * A meeting does no arithmetic, and cannot join ranks on different hosts.
 *
 * A rank that waits in meeting_exchange spins for some tens of microseconds, then sleeps. When a
 * rank's process ends or a rank leaves, the other ranks stop waiting, and every later
 * meeting_exchange fails at once. */
#ifndef COMPUTE_MEETING_H
#define COMPUTE_MEETING_H

#include "compute/group.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MEETING_RANKS_MAX 16
/* Most floats of a piece. Two pieces of each rank fit in an L2 cache of 1 MiB. */
#define MEETING_PIECE_FLOATS 65536

struct meeting; /* One rank's membership in a group. */

/* Creates the shared memory. Requires *m = NULL. Other ranks find the memory by the id until all
 * ranks have joined or this rank has left. Returns ST_NO_MEMORY or ST_IO. */
enum status meeting_make(struct meeting **m, uint8_t id_out[COMPUTE_GROUP_ID_BYTES],
                         struct error *error);
/* Joins a group; see compute_group_ops.join. *m is NULL or comes from meeting_make. Besides the
 * errors of compute_group_ops.join, returns ST_INVALID for an id of another kind of group or a
 * rank out of range, ST_MISMATCH if a rank joins twice or ranks disagree about their number, and
 * ST_NO_MEMORY. After an error, a *m that is not NULL may only be passed to meeting_leave. */
enum status meeting_join(struct meeting **m, const uint8_t id[COMPUTE_GROUP_ID_BYTES],
                         uint32_t rank, uint32_t ranks, uint32_t timeout_ms, struct error *error);
/* Leaves the group and frees *m; the other ranks' calls of meeting_exchange then fail. NULL is
 * fine. */
void meeting_leave(struct meeting *m);

/* Return this process's rank, and the number of ranks. */
uint32_t meeting_rank(const struct meeting *m);
uint32_t meeting_ranks(const struct meeting *m);

/* Returns the buffer for this rank's next piece, [MEETING_PIECE_FLOATS]. It may be written while
 * other ranks still read the previous piece. */
float *meeting_own_piece(const struct meeting *m);
/* Publishes the piece in meeting_own_piece's buffer and returns when all ranks have published their
 * pieces. Returns false if the group has failed. */
bool meeting_exchange(struct meeting *m);
/* Returns the piece that `rank` published in the last meeting_exchange; valid until the next
 * meeting_exchange. */
const float *meeting_piece(const struct meeting *m, uint32_t rank);

/* Returns ST_OK, or the error with which the group failed. Returns ST_OK for NULL. */
enum status meeting_check(const struct meeting *m, struct error *error);

#endif
