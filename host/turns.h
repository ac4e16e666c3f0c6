/* turns: if machines of one host together have more threads than the host has cores, they compute
 * in turns of some milliseconds each. Without turns, the kernel switches between the threads of
 * different machines in the middle of a layer: the other threads of each machine wait, and the
 * caches hold the wrong machine's weights.
 *
 * The gateway's launcher calls turns_create. Each process that computes joins with turns_open, on
 * its event loop thread; its engine (machine/executor/engine.h) asks for turns and ends them, and
 * its event loop reports the times of decode steps. The state is in memory that all these processes
 * share. There is no central process: each process that asks for a turn or ends one also grants the
 * next turns. Turns are granted in the order in which they were asked for, each as soon as the
 * machine's threads fit on the free cores.
 *
 * While the machines' threads do not all fit on the cores, the thread of a machine with one thread
 * is pinned to the core of its turn. Otherwise the kernel may wake it on a busy core. This requires
 * that there are at most 64 cores and that the machine's process may run on all of them. Machines
 * with several threads run where the kernel puts them.
 *
 * Results do not depend on turns. A turn that lasts longer than 100 ms may be taken back while
 * other machines wait, so a dead or stopped process blocks the others for at most that time. There
 * are no priorities. Machines that `cleave serve` did not start, and the ranks of a stage, do not
 * take part. */
#ifndef HOST_TURNS_H
#define HOST_TURNS_H

#include "common/status.h"

#include <stdbool.h>
#include <stdint.h>

struct turns; /* One process that has joined. */

/* Creates the shared memory. The caller owns the descriptor (close-on-exec) and passes it to each
 * machine that it starts. The machines share the cores on which this process may run. */
enum status turns_create(int *fd_out, struct error *error);

/* Joins the turns. `threads` is the number of threads that compute in a turn; 0, or more than there
 * are cores = one for each core. `fd` is the descriptor of turns_create; the caller may close it
 * afterwards. Returns an error if 64 processes have joined already, or if `fd` is not a descriptor
 * of turns_create. */
enum status turns_open(int fd, uint32_t threads, struct turns **out, struct error *error);
/* Ends the process's turn, if it has one, and leaves. NULL is fine. */
void turns_close(struct turns *turns);

/* Records that this machine's decode steps take `us` microseconds of a turn. Any thread may call
 * it. NULL is fine. */
void turns_step_us_set(struct turns *turns, uint32_t us);
/* Returns the sum of the times that other machines have set last with turns_step_us_set. Only
 * machines that have set one within the last second count. 0 = no such machine, or `turns` is
 * NULL. */
uint64_t turns_other_steps_us(const struct turns *turns);

/* Asks for a turn without waiting; the event loop calls it when it hands a batch to the engine
 * thread. Any thread may call it. NULL is fine. */
void turns_request(struct turns *turns);
/* Only an engine thread makes the four calls below; with NULL they have no effect. If the process
 * has two engines (a draft model), turns_begin of one waits for turns_end of the other. */

/* Asks for a turn, unless turns_request was called, and waits for the turn. */
void turns_begin(struct turns *turns, uint32_t slice_us);
/* Call it between layers. If the turn has lasted slice_us (of turns_begin) and other machines wait,
 * or if the turn was taken back, ends the turn and waits for this machine's next turn. */
void turns_yield(struct turns *turns);
/* Returns the microseconds since turns_begin returned, without those spent waiting in turns_yield;
 * 0 if `turns` is NULL. */
uint64_t turns_used_us(const struct turns *turns);
/* Ends the turn. */
void turns_end(struct turns *turns);

#endif
