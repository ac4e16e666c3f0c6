/* probe: runs a check that may hang, crash or print (a driver, UCX) in a process of its own, with a
 * time limit. gpus.c, copies.c and paths.c call it on the main thread of `cleave doctor`. It does
 * not interpret the result and does not repeat a check. */
#ifndef TOOLS_DOCTOR_PROBE_H
#define TOOLS_DOCTOR_PROBE_H

#include "common/status.h"

#include <stddef.h>

/* Runs check(context, out, error) in a child process and waits for the child's answer. Returns the
 * status of `check`, and copies back its error and the `out_bytes` bytes of *out, which must not
 * contain pointers. Two more errors leave *out unchanged: ST_TIMED_OUT if there is no answer within
 * timeout_ms, and ST_IO if the child could not be started, has died, or its answer found no memory.
 * The child's standard output and standard error are dropped. When probe_run returns, the child and
 * its own children have been killed. Requires that this process has only one thread, because it
 * forks. */
enum status probe_run(enum status (*check)(const void *context, void *out, struct error *error),
                      const void *context, int timeout_ms, void *out, size_t out_bytes,
                      struct error *error);

#endif
