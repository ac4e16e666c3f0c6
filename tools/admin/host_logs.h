/* admin_host_logs: finds the latest log lines of `cleave serve` and `cleave machine` on this host:
 * in the files to which running processes write their standard error, and in systemd's journal of
 * cleave's services. `cleave bundle` calls it on the main thread. It asks no gateway. */
#ifndef TOOLS_ADMIN_HOST_LOGS_H
#define TOOLS_ADMIN_HOST_LOGS_H

#include "common/text.h"

#define HOST_LOGS_FILES 16 /* Most files that are read. */
/* Most bytes of each log, from its end; of the journal at most 2,000 lines. */
#define HOST_LOGS_BYTES (1 << 18)

struct host_log {
    char name[32]; /* Such as "stderr-1.txt" or "journal.txt". */
    struct text text;
};

/* Stores the logs that have a line, at most HOST_LOGS_FILES + 1, and returns their number. What
 * cannot be read is left out. Only lines that have the form of cleave's log are taken from a file,
 * because other programs may write to the file. The caller frees each text (text_done). */
unsigned host_logs_read(struct host_log out[HOST_LOGS_FILES + 1]);

#endif
