/* meeting: shared memory through which the ranks of a group on one host exchange numbers. Each rank
 * publishes a piece (an array of floats) and reads the pieces of the other ranks. The backends cpu/
 * and wait/ use meetings. The memory has no name in any file system, so nothing is left behind when
 * a process ends. A meeting does no arithmetic, and cannot join ranks on different hosts.
 *
 * Threads: the thread that calls the device (compute.h) calls the functions for one meeting.
 * Several threads at once may call meeting_rank, meeting_ranks and meeting_piece.
 *
 * When a rank leaves or its process ends, the other ranks stop waiting for the next piece of this
 * rank within about 20 ms, and the group has failed. */
#ifndef COMPUTE_MEETING_H
#define COMPUTE_MEETING_H

#include "compute/group.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MEETING_RANKS_MAX 16
/* Most floats of a piece: 256 KiB. */
#define MEETING_PIECE_FLOATS 65536

struct meeting; /* One rank's membership in a group. */

/* Creates the shared memory. Requires *m = NULL. Other ranks find the memory by the id until all
 * ranks have joined or this rank has left. Returns ST_NO_MEMORY or ST_IO. */
enum status meeting_make(struct meeting **m, uint8_t id_out[COMPUTE_GROUP_ID_BYTES],
                         struct error *error);
/* Joins a group; see compute_group_ops.join. *m is NULL or was made by meeting_make. Returns
 * ST_TIMED_OUT and ST_UNREACHABLE as compute_group_ops.join does; ST_UNREACHABLE, too, if the
 * memory cannot be opened; ST_INVALID for an id of another kind of group, a rank out of range or
 * too many ranks; ST_MISMATCH if a rank joins twice or the ranks give different numbers of ranks;
 * or ST_NO_MEMORY. After an error, if *m is not NULL, the caller may pass it only to meeting_check
 * and meeting_leave. */
enum status meeting_join(struct meeting **m, const uint8_t id[COMPUTE_GROUP_ID_BYTES],
                         uint32_t rank, uint32_t ranks, uint32_t timeout_ms, struct error *error);
/* Leaves the group and frees *m. The other ranks' meeting_exchange then fails at the first piece
 * that this rank has not published. NULL is fine. */
void meeting_leave(struct meeting *m);

/* Returns this process's rank. */
uint32_t meeting_rank(const struct meeting *m);
/* Returns the number of ranks. */
uint32_t meeting_ranks(const struct meeting *m);

/* Returns the buffer for this rank's next piece, [MEETING_PIECE_FLOATS]. The caller may write to
 * the buffer while other ranks still read the previous piece. */
float *meeting_own_piece(const struct meeting *m);
/* Publishes the piece in the buffer of meeting_own_piece, and returns when all ranks have published
 * their pieces. Returns false if the group has failed. Requires meeting_join. */
bool meeting_exchange(struct meeting *m);
/* Returns the piece that `rank` published in the last meeting_exchange; valid until the next
 * meeting_exchange. */
const float *meeting_piece(const struct meeting *m, uint32_t rank);

/* Returns ST_OK, or the error with which the group failed. Returns ST_OK for NULL. */
enum status meeting_check(const struct meeting *m, struct error *error);

#endif
