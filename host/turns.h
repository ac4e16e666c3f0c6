/* turns: lets machines of one host that together have more threads than the host has cores take
 * turns on the cores, for some milliseconds each. Without turns, the threads of one machine wait at
 * every barrier for a thread that the kernel has preempted for another machine, and several times
 * per batch each machine finds the caches filled with the other machine's weights.
 *
 * A turn names cores. If a machine has one thread, the process that grants the turn puts the thread
 * on the turn's core before waking it. Otherwise the kernel often wakes the thread behind another
 * machine's thread, where it waits for milliseconds although the freed core is idle. Machines with
 * several threads run where the kernel puts them; so do all machines while their threads fit on the
 * cores.
 *
 * A turn is advice: no result is wrong if two machines compute at the same time. So no process
 * waits for long for a dead or stopped process: a turn that lasts longer than 100 ms is taken back.
 * Turns are granted in order of arrival. The state is a few words of shared memory, changed by
 * single atomic operations.
 *
 * The gateway's launcher calls turns_create. Each process that computes (a machine, or one stage
 * process) joins with turns_open; machine/executor/engine.c takes the turns. Turns have no
 * priorities, and machines that `cleave serve` did not start do not take part. */
#ifndef HOST_TURNS_H
#define HOST_TURNS_H

#include "common/status.h"

#include <stdbool.h>
#include <stdint.h>

struct turns; /* One process that has joined. */

/* Creates the memory for the turns of this host's machines. The caller owns the descriptor
 * (close-on-exec) and passes it to each machine that it starts. The cores are those that this
 * process may run on. */
enum status turns_create(int *fd_out, struct error *error);

/* Joins with the number of threads that compute in a turn; 0 = all cores. `fd` is the descriptor of
 * turns_create, which the caller may close afterwards. Returns ST_NO_RESOURCE if 64 processes have
 * joined already, ST_INVALID if the descriptor is of other memory. */
enum status turns_open(int fd, uint32_t threads, struct turns **out, struct error *error);
/* Ends the process's turn, if it has one, and leaves. NULL is fine. */
void turns_close(struct turns *turns);

/* Asks for a turn without waiting, for example when work is about to be given to the computing
 * thread. Any thread may call it. NULL is fine. */
void turns_ask(struct turns *turns);
/* One thread of the process, the engine's, makes these three calls, in this order. NULL is fine and
 * does nothing. turns_begin asks for a turn (unless turns_ask was called) and waits for it.
 * turns_pause, called between layers, gives the turn up if it has lasted slice_us and other
 * machines wait, or if it was taken back; then it waits for the next turn. turns_end gives the turn
 * up. turns_ask for the next turn may be called before turns_end. */
void turns_begin(struct turns *turns, uint32_t slice_us);
void turns_pause(struct turns *turns);
void turns_end(struct turns *turns);

#endif
