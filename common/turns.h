/* turns: machines of one computer that together have more threads than it has cores take turns on
 * them, a slice of some milliseconds each. Without that, the threads of one machine wait at every
 * barrier for one of them that the kernel has put aside for another machine, and each machine finds
 * the caches full of the other's weights many times a step.
 *
 * A turn names cores. The thread of a machine that has only one is put on its core by whoever gives
 * it the turn, before it is woken: left to itself, the kernel often wakes it behind another
 * machine's thread, where it waits for milliseconds while the core that has become free stands
 * idle. Machines of several threads go where the kernel puts them, and so does everybody while all
 * fit.
 *
 * A turn is advice: nothing is wrong when two compute at once. So nothing here waits for a process
 * that is dead or stopped: a turn that lasts too long is taken back, and the order is that of
 * arrival. The state is a few words of shared memory, changed by single atomic operations. */
#ifndef COMMON_TURNS_H
#define COMMON_TURNS_H

#include "common/status.h"

#include <stdbool.h>
#include <stdint.h>

struct turns;

/* Memory for the turns of this computer's machines, as a descriptor (close-on-exec, the caller's);
 * the cores are those that this process may run on. Handed to each machine when it is started. */
enum status turns_create(int *fd_out, struct error *error);

/* Joins. `threads` it uses in its turn (0: all cores). The descriptor stays the caller's.
 * ST_NO_RESOURCE: too many have joined. */
enum status turns_open(int fd, uint32_t threads, struct turns **out, struct error *error);
void turns_close(struct turns *turns); /* NULL is fine; ends its turn */

/* We want a turn from now on; any thread may say so, and need not wait for it, when work is about
 * to be given to the one that computes. */
void turns_ask(struct turns *turns);
/* Of one thread of the process, in this order; NULL is fine and does nothing. begin waits until it
 * is our turn (and asks, if nobody has); pause lets others have theirs if they wait and ours has
 * lasted slice_us; end gives it up. turns_ask for the next turn may come before the end of this
 * one. */
void turns_begin(struct turns *turns, uint32_t slice_us);
void turns_pause(struct turns *turns);
void turns_end(struct turns *turns);

#endif
