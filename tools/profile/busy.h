/* profile_busy: keeps other devices busy while a device is measured, because the devices of a host
 * share its memory and caches. Each busy device is a process of its own, which opens a device with
 * the measured device's name and computes prompts or decode steps (step.h) until it is killed.
 * options.c refuses GPUs, because the processes would share the measured GPU. device.c calls this
 * part on the main thread of `cleave profile`. It measures nothing. */
#ifndef TOOLS_PROFILE_BUSY_H
#define TOOLS_PROFILE_BUSY_H

#include "common/status.h"
#include "model/file/model_file.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define PROFILE_BUSY_MAX 64 /* Most processes. */

struct profile_busy {
    uint32_t count; /* Processes that run. */
    pid_t pids[PROFILE_BUSY_MAX];
    /* In memory that the processes share: true = they compute decode steps, false = prompts. NULL =
     * no process was started. */
    _Atomic bool *decode;
};

/* Starts `count` processes (at most PROFILE_BUSY_MAX; 0 = none), and waits until each has opened
 * its device or ended. After ST_OK all processes compute prompts. threads: threads of each device.
 * Returns ST_NO_RESOURCE if a process did not start or did not open its device, ST_IO or
 * ST_NO_MEMORY. Call profile_busy_stop on *out also after an error. Requires that this process has
 * no other threads yet, because the function forks. */
enum status profile_busy_start(const struct model_file *file, const char *device, uint32_t threads,
                               uint32_t count, struct profile_busy *out, struct error *error);
/* Suspends the processes until profile_busy_resume. */
void profile_busy_pause(const struct profile_busy *busy);
/* Lets the processes go on. decode: true = all compute decode steps; false = all compute prompts.
 */
void profile_busy_resume(const struct profile_busy *busy, bool decode);
/* Kills the processes and waits for their end. Does nothing if none was started. */
void profile_busy_stop(struct profile_busy *busy);

#endif
