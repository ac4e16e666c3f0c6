/* admin_host_logs: finds the latest log lines of cleave's processes on this host, for `cleave
 * bundle`: in the files that are their standard error, and in systemd's journal. The main thread
 * calls it. It asks no gateway. */
#ifndef TOOLS_ADMIN_HOST_LOGS_H
#define TOOLS_ADMIN_HOST_LOGS_H

#include "common/text.h"

#define HOST_LOGS_FILES 16        /* Most files that are read. */
#define HOST_LOGS_BYTES (1 << 18) /* Most bytes from the end of each file, and of the journal. */

struct host_log {
    char name[32]; /* Such as "stderr-1.txt" or "journal.txt". */
    struct text text;
};

/* Stores the logs that have a line, at most HOST_LOGS_FILES + 1, and returns their number. Only
 * lines that have the form of cleave's log are taken from a file, because other programs may write
 * to it. The caller frees each text. */
unsigned host_logs_read(struct host_log out[HOST_LOGS_FILES + 1]);

#endif
