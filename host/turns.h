/* turns: lets the machines of one host compute in turns of some milliseconds each, if they together
 * have more threads than the host has cores. Without turns, the kernel switches between the threads
 * of different machines in the middle of a layer: the other threads of each machine wait, and the
 * caches hold the wrong machine's weights.
 *
 * This part owns memory that the processes share: which process waits for a turn, and which has
 * one. The gateway's launcher calls turns_create. Each process that computes joins with turns_open,
 * on its event loop thread. Its event loop asks for turns and reports the times of decode steps;
 * its engine threads (machine/executor/engine.h) begin and end turns. There is no central process:
 * each process that asks for a turn, waits for one or ends one also grants the next turns. Turns
 * are granted in the order in which they were asked for, each as soon as the machine's threads fit
 * on the free cores.
 *
 * While the machines' threads do not all fit on the cores, the thread of a machine with one thread
 * is pinned to the core of its turn. Otherwise the kernel may wake the thread on a busy core.
 * Threads are not pinned if there are more than 64 cores, or if the machine's process may not run
 * on all of them. Machines with several threads run where the kernel puts them.
 *
 * Results do not depend on turns. A turn that lasts longer than 100 ms may be taken back while
 * other machines wait, so that a dead or stopped process does not block the others. There are no
 * priorities. Machines that `cleave serve` did not start, and the ranks of a stage, do not take
 * part. */
#ifndef HOST_TURNS_H
#define HOST_TURNS_H

#include "common/status.h"

#include <stdbool.h>
#include <stdint.h>

struct turns; /* One process that has joined. */

/* Creates the shared memory. The caller owns the descriptor (close-on-exec) and passes it to each
 * machine that it starts. The machines share the cores on which the caller's process may run.
 * Returns ST_IO on failure. */
enum status turns_create(int *fd_out, struct error *error);

/* Joins the turns. `threads` is the number of threads that compute in a turn; 0, or more than there
 * are cores = one for each core. `fd` is the descriptor of turns_create; the caller may close it
 * afterwards. Returns ST_NO_RESOURCE if 64 processes have joined already, ST_INVALID if `fd` is
 * other memory than that of turns_create, ST_IO if `fd` cannot be mapped, or ST_NO_MEMORY. */
enum status turns_open(int fd, uint32_t threads, struct turns **out, struct error *error);
/* Ends the process's turn, if it has one, and leaves. NULL is fine. */
void turns_close(struct turns *turns);

/* Reports to the other processes that one decode step of this process takes step_us microseconds of
 * a turn. Any thread may call it. NULL is fine. */
void turns_step_us_set(struct turns *turns, uint32_t step_us);
/* Returns the sum of the times that other processes reported last with turns_step_us_set. Only
 * processes that have called it within the last second count. 0 = there are none, or `turns` is
 * NULL. Any thread may call turns_other_steps_us. */
uint64_t turns_other_steps_us(const struct turns *turns);

/* Asks for a turn without waiting. The event loop calls it when it hands a batch to an engine
 * thread. Any thread may call it. NULL is fine. */
void turns_request(struct turns *turns);
/* Only engine threads make the four calls below; with NULL they have no effect. If the process has
 * two engines (a draft model), turns_begin of one waits for turns_end of the other. */

/* Waits for a turn. Asks for the turn first, unless turns_request has already asked. slice_us: see
 * turns_yield. */
void turns_begin(struct turns *turns, uint32_t slice_us);
/* Called between layers. If the turn has lasted slice_us and other processes wait, or if the turn
 * was taken back, ends the turn and waits for this process's next turn. */
void turns_yield(struct turns *turns);
/* Returns the microseconds since turns_begin returned, without the time of waiting in turns_yield;
 * 0 if `turns` is NULL. */
uint64_t turns_used_us(const struct turns *turns);
/* Ends the turn. */
void turns_end(struct turns *turns);

#endif
