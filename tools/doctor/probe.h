/* probe: runs a check that may hang, crash or print (a driver, UCX) in a process of its own, with a
 * time limit. Called by the doctor_*.c files on the main thread of `cleave doctor`. It does not
 * interpret the result. */
#ifndef TOOLS_DOCTOR_PROBE_H
#define TOOLS_DOCTOR_PROBE_H

#include "common/status.h"

#include <stddef.h>

/* Runs look(context, out, error) in a child process and copies the `bytes` bytes of *out, which
 * must not contain pointers, and its status and error back. The child's standard output and
 * standard error are dropped. ST_TIMED_OUT: no answer in time. ST_IO: the child died. In both cases
 * the child is killed and *out is unchanged. Requires that the process has no threads. */
enum status probe_run(enum status (*look)(const void *context, void *out, struct error *error),
                      const void *context, int timeout_ms, void *out, size_t bytes,
                      struct error *error);

#endif
