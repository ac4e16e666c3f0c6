/* probe: runs a check that may hang, crash or print, such as a call of a driver or of UCX, in a
 * child process with a time limit. `cleave doctor` calls probe_run on the main thread. This part
 * keeps no state, does not interpret the result and does not repeat a check. */
#ifndef TOOLS_DOCTOR_PROBE_H
#define TOOLS_DOCTOR_PROBE_H

#include "common/status.h"

#include <stddef.h>

/* Runs check(context, out, error) in a child process and waits for the child's answer. Returns the
 * status of `check` and fills *out and *error as `check` has filled them, also if `check` failed.
 * out_bytes: size of *out, which must not contain pointers. ST_TIMED_OUT: there was no answer
 * within timeout_ms. ST_IO: the child could not be started or has died, or memory runs out. Without
 * an answer *out does not change. The output of `check` is dropped. Afterwards, kills the child and
 * its children. Requires that this process has only one thread, because probe_run forks. */
enum status probe_run(enum status (*check)(const void *context, void *out, struct error *error),
                      const void *context, int timeout_ms, void *out, size_t out_bytes,
                      struct error *error);

#endif
