/* profile_beside: keeps other devices of the measured kind busy while a device is measured, because
 * the devices of a host share its memory and caches. Each busy device is a process of its own that
 * computes prompts or decode steps (step.h) until it is killed. device.c calls it on the main
 * thread of `cleave profile`. It measures nothing. */
#ifndef TOOLS_PROFILE_BESIDE_H
#define TOOLS_PROFILE_BESIDE_H

#include "common/status.h"
#include "model/file/model_file.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define PROFILE_BESIDE_MAX 64

struct profile_beside {
    uint32_t count; /* Processes that run. */
    pid_t pids[PROFILE_BESIDE_MAX];
    /* In memory that the processes share: true = they compute decode steps, false = prompts. NULL =
     * no process was started. */
    _Atomic bool *steps;
};

/* Starts `count` processes (at most PROFILE_BESIDE_MAX; 0 = does nothing) and returns when all of
 * them have opened their device and compute prompts. threads: threads of each device. ST_NO_MEMORY,
 * ST_IO, ST_NO_RESOURCE (not all processes started). Call profile_beside_stop on *out also after an
 * error. Requires that this process has no threads yet, because it forks. */
enum status profile_beside_start(const struct model_file *file, const char *device,
                                 uint32_t threads, uint32_t count, struct profile_beside *out,
                                 struct error *error);
/* Suspends the processes until profile_beside_resume. */
void profile_beside_pause(const struct profile_beside *beside);
/* Lets the processes compute prompts (true) or decode steps (false). All processes compute the
 * same, as the stages of a machine do. */
void profile_beside_resume(const struct profile_beside *beside, bool prompts);
/* Kills the processes and waits for their end. Does nothing if none was started. */
void profile_beside_stop(struct profile_beside *beside);

#endif
