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
 * waits for a dead or stopped one: a turn that lasts too long is taken back. Turns are granted in
 * order of arrival. The state is a few words of shared memory, changed by single atomic
 * operations. */
#ifndef HOST_TURNS_H
#define HOST_TURNS_H

#include "common/status.h"

#include <stdbool.h>
#include <stdint.h>

struct turns;

/* Creates the memory for the turns of this host's machines. The caller owns the descriptor
 * (close-on-exec) and passes it to each machine that it starts. The cores are those that this
 * process may run on. */
enum status turns_create(int *fd_out, struct error *error);

/* Joins with the number of threads that compute in a turn; 0 = all cores. The caller keeps the
 * descriptor. Returns ST_NO_RESOURCE if too many machines have joined. */
enum status turns_open(int fd, uint32_t threads, struct turns **out, struct error *error);
void turns_close(struct turns *turns); /* Ends a turn and leaves. NULL is fine. */

/* Asks for a turn without waiting, for example when work is about to be given to the computing
 * thread. Any thread may call it. NULL is fine. */
void turns_ask(struct turns *turns);
/* For one thread of the process, in this order; NULL is fine and does nothing. turns_begin asks for
 * a turn (unless turns_ask was called) and waits for it. turns_pause lets waiting machines have
 * their turn if ours has lasted slice_us, and waits for the next one. turns_end gives the turn up.
 * turns_ask for the next turn may be called before turns_end. */
void turns_begin(struct turns *turns, uint32_t slice_us);
void turns_pause(struct turns *turns);
void turns_end(struct turns *turns);

#endif
