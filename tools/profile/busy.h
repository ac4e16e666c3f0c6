/* profile_busy: keeps other devices busy while a device is measured, because the devices of a host
 * share its memory and caches. A busy device is a child process, which opens a device with the
 * measured device's name and computes batches until the process is killed. device.c owns the struct
 * and calls the functions on the main thread of `cleave profile`. The functions measure nothing,
 * and are not for GPUs, because the processes would share the measured GPU. */
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
    /* In memory that the processes share. true = compute decode steps; false = compute prompts.
     * NULL = no process was started. */
    _Atomic bool *decode;
};

/* Starts `count` processes (0 to PROFILE_BUSY_MAX), and waits until each has opened its device or
 * ended. The processes then compute prompts. threads: threads of each device. ST_NO_RESOURCE: a
 * process did not start or did not open its device. ST_IO: no pipe. ST_NO_MEMORY: memory runs out.
 * Call profile_busy_stop also after an error. Requires that this process has no other threads,
 * because the function forks. */
enum status profile_busy_start(const struct model_file *file, const char *device, uint32_t threads,
                               uint32_t count, struct profile_busy *out, struct error *error);
/* Suspends the processes until profile_busy_resume. */
void profile_busy_pause(const struct profile_busy *busy);
/* Lets the processes continue. decode: true = with decode steps; false = with prompts. */
void profile_busy_resume(const struct profile_busy *busy, bool decode);
/* Kills the processes and waits for their end. Does nothing if no process was started. */
void profile_busy_stop(struct profile_busy *busy);

#endif
