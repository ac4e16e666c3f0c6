/* profile_beside: keeps other devices of the same kind busy, in processes of their own, while a
 * device is measured, because the devices of a host share its memory and caches. One thread. */
#ifndef TOOLS_PROFILE_BESIDE_H
#define TOOLS_PROFILE_BESIDE_H

#include "common/status.h"
#include "model/file/model_file.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define PROFILE_BESIDE_MAX 64

struct profile_beside {
    uint32_t count;
    pid_t pids[PROFILE_BESIDE_MAX];
    /* In shared memory: true = the processes compute decode steps, false = prompts. */
    _Atomic bool *steps;
};

/* Starts `count` processes and returns when all of them compute, prompts at first. Call
 * profile_beside_stop on *out also after an error. Requires that this process has no threads yet,
 * because it forks. */
enum status profile_beside_start(const struct model_file *file, const char *device,
                                 uint32_t threads, uint32_t count, struct profile_beside *out,
                                 struct error *error);
/* Stops the processes until profile_beside_resume. */
void profile_beside_pause(const struct profile_beside *beside);
/* Lets the processes compute prompts or decode steps, like the stages of a machine, which all do
 * the same. */
void profile_beside_resume(const struct profile_beside *beside, bool prompts);
void profile_beside_stop(struct profile_beside *beside);

#endif
