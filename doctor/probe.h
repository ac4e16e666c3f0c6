/* probe: one look at something that may hang, crash or print (a driver, UCX): in a process of its
 * own, with a time to be done. */
#ifndef DOCTOR_PROBE_H
#define DOCTOR_PROBE_H

#include "common/status.h"

#include <stddef.h>

/* Runs look(context, out, error) in a child and brings back the `bytes` of *out, which has no
 * pointers, and its status and error. Its standard output goes nowhere. ST_TIMED_OUT, ST_IO: the
 * child, which is gone, did not say; then *out is as it was. Before the process has threads. */
enum status probe_run(enum status (*look)(const void *context, void *out, struct error *error),
                      const void *context, int timeout_ms, void *out, size_t bytes,
                      struct error *error);

#endif
