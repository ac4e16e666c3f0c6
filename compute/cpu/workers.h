/* workers: the threads of one CPU device. The files of compute/cpu/ call workers_run on the thread
 * that calls the device (compute.h): this thread works too, and returns when all items are done.
 * Each thread begins with a contiguous share of the items, so that weights stream in address order.
 * A thread whose share is empty takes items from other shares, so that a thread that lost its core
 * does not delay the others.
 *
 * A lane is a device that computes some rows of a batch on one thread (compute/lanes.h). The
 * workers of a lane are only the thread that calls the lane.
 *
 * Idle threads spin for 30 us, then sleep. This part allocates nothing after workers_open, logs
 * nothing, and does not know what an item computes. The threads are not pinned to cores. */
#ifndef COMPUTE_CPU_WORKERS_H
#define COMPUTE_CPU_WORKERS_H

#include "common/status.h"

#include <stdint.h>

#define WORKERS_THREADS_MAX 64
#define WORKERS_ITEMS_MAX   (65535u * WORKERS_THREADS_MAX) /* Most items of any run. */

struct workers;

/* Computes item `item`. `thread` is the number of the thread that calls the function; 0 = the
 * thread that called workers_run. The item may use the scratch memory of this thread. */
typedef void (*workers_fn)(void *context, uint32_t item, uint32_t thread);

/* Starts `threads` - 1 threads; thread 0 is the thread that calls workers_run. Returns ST_INVALID
 * unless `threads` is 1 to WORKERS_THREADS_MAX; ST_NO_RESOURCE, with the reason, if a thread cannot
 * be started; or ST_NO_MEMORY. */
enum status workers_open(uint32_t threads, struct workers **out, struct error *error);
/* Ends the threads and waits for them. NULL is fine. */
void workers_close(struct workers *w);
/* Returns the number of threads, including the thread that calls workers_run. */
uint32_t workers_threads(const struct workers *w);

/* Returns the first item of the share of thread `thread` in a run of `items` items. The share ends
 * where the share of thread + 1 begins; returns `items` if `thread` is the number of threads. Other
 * threads may take items from a share. If a run has only one item, thread 0 computes the item. */
uint32_t workers_share(const struct workers *w, uint32_t items, uint32_t thread);

/* Calls fn(context, item, thread) once for each item from 0 to `items` - 1, on any of the threads.
 * Returns when all calls have returned. Requires at most 65535 items per thread, and that no other
 * call of workers_run for w is running. */
void workers_run(struct workers *w, workers_fn fn, void *context, uint32_t items);

#endif
