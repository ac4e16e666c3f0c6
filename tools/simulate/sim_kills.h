/* sim_kills: reads a list of failures: a CSV file with the columns `time_s` (seconds since the
 * start of the trace) and `machine` (the machine's name). `cleave simulate` owns the list, and
 * calls the function on the main thread. The failures are simulated by sim_run.h, not here. */
#ifndef TOOLS_SIMULATE_SIM_KILLS_H
#define TOOLS_SIMULATE_SIM_KILLS_H

#include "tools/simulate/sim_run.h"

/* Reads the file and sorts the failures by time. The caller frees *out with free; NULL = the file
 * has no rows. ST_NOT_FOUND: a machine is unknown, or a column is missing. ST_INVALID: a time is
 * wrong. ST_NO_MEMORY. Other errors are those of csv_open and csv_next. Errors of rows name file
 * and line. */
enum status sim_kills_read(const char *path, const struct sim_machines *machines,
                           struct sim_kill **out, uint32_t *count_out, struct error *error);

#endif
