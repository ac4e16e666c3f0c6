/* profile_beside: devices of one computer share its memory and caches: this keeps others of the
 * same kind busy, in processes of their own, while one is measured. */
#ifndef BENCH_PROFILE_BESIDE_H
#define BENCH_PROFILE_BESIDE_H

#include "common/status.h"
#include "model/model_file.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define PROFILE_BESIDE_MAX 64

struct profile_beside {
    uint32_t count;
    pid_t pids[PROFILE_BESIDE_MAX];
    _Atomic bool *steps; /* what they compute: prompts, or steps; in memory that they share */
};

/* Returns when all of them compute, prompts at first. *out is to be stopped, also after an
 * error. Before this process starts threads. */
enum status profile_beside_start(const struct model_file *file, const char *device,
                                 uint32_t threads, uint32_t count, struct profile_beside *out,
                                 struct error *error);
/* They do nothing until profile_beside_resume. */
void profile_beside_pause(const struct profile_beside *beside);
/* With prompts or with steps: as the stages of a machine, all of which do the same. */
void profile_beside_resume(const struct profile_beside *beside, bool prompts);
void profile_beside_stop(struct profile_beside *beside);

#endif
