/* turns: lets machines that share the cores of a host compute in turns of some milliseconds each.
 * Without turns, the kernel switches between the threads of different machines in the middle of a
 * layer: the other threads of each machine wait, and the caches hold the wrong machine's weights.
 *
 * This part owns memory that the processes share: which processes wait for a turn or have a turn.
 * The gateway's launcher calls turns_create. A process of a machine joins with turns_open, on its
 * event loop thread. The event loop asks for turns and reports the times of decode steps; the
 * engine threads (machine/executor/engine.h) begin and end turns. A process that has asked earlier
 * gets its turn earlier, without priorities. Several processes have turns at one time if their
 * threads fit on the cores together.
 *
 * If the threads of all joined processes together are more than the cores, the engine thread of a
 * process with one thread may be pinned to the core of its turn. A turn that lasts longer than
 * 100 ms may be taken back while other processes wait, so that a dead or stopped process does not
 * block other processes. Processes that have not joined compute without turns. */
#ifndef HOST_TURNS_H
#define HOST_TURNS_H

#include "common/status.h"

#include <stdbool.h>
#include <stdint.h>

struct turns; /* One process that has joined. */

/* Creates the shared memory. The caller owns the descriptor (close-on-exec) and passes it to the
 * machines that it starts. The turns are for the cores on which the caller's process may run.
 * Returns ST_IO on failure. */
enum status turns_create(int *fd_out, struct error *error);

/* Joins the turns. fd: the descriptor of turns_create; the caller may close it afterwards. threads:
 * number of threads that compute in a turn; 0, or more than the cores = one for each core. Returns
 * ST_NO_RESOURCE if 64 processes have joined already, ST_INVALID if `fd` was not made by
 * turns_create, ST_IO if `fd` cannot be mapped, or ST_NO_MEMORY. */
enum status turns_open(int fd, uint32_t threads, struct turns **out, struct error *error);
/* Ends the process's turn, if it has one, and leaves. NULL is fine. */
void turns_close(struct turns *turns);

/* Reports to the other processes that a decode step of this process takes step_us microseconds. Any
 * thread may call it. NULL is fine. */
void turns_step_us_set(struct turns *turns, uint32_t step_us);
/* Returns the sum of the latest times that other processes reported with turns_step_us_set. Reports
 * older than a second do not count. 0 = no reports, or `turns` is NULL. Any thread may call it. */
uint64_t turns_other_steps_us(const struct turns *turns);

/* Asks for a turn without waiting. Call this function before an engine thread calls turns_begin.
 * Any thread may call it. NULL is fine. */
void turns_request(struct turns *turns);

/* The functions below are for engine threads. With NULL they have no effect. */

/* Waits for a turn. Asks for the turn first, unless turns_request has already asked. If another
 * engine thread of the process has begun a turn, first waits for its turns_end. slice_us: see
 * turns_yield. */
void turns_begin(struct turns *turns, uint32_t slice_us);
/* Call this function between layers. If the turn has lasted slice_us (of turns_begin) and other
 * processes wait, ends the turn and waits for the next turn. Also waits if the turn was taken
 * back. */
void turns_yield(struct turns *turns);
/* Returns the microseconds since turns_begin returned, without the waiting in turns_yield; 0 if
 * `turns` is NULL. */
uint64_t turns_used_us(const struct turns *turns);
/* Ends the turn. */
void turns_end(struct turns *turns);

#endif
