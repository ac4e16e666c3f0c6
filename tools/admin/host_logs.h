/* admin_host_logs: reads the latest log lines of `cleave serve` and `cleave machine` on this host:
 * from the files to which running processes write their standard error, and from systemd's journal
 * of cleave's services. `cleave bundle` calls the function on the main thread. The function keeps
 * no state and sends no requests. */
#ifndef TOOLS_ADMIN_HOST_LOGS_H
#define TOOLS_ADMIN_HOST_LOGS_H

#include "common/text.h"

#define HOST_LOGS_FILES 16        /* Most files that are read, in addition to the journal. */
#define HOST_LOGS_BYTES (1 << 18) /* Most bytes of a log; earlier bytes are left out. */

struct host_log {
    char name[32];    /* Such as "stderr-1.txt" or "journal.txt". */
    struct text text; /* The lines; broken = memory ran out. */
};

/* Stores the logs, and returns their number. Logs that are empty or cannot be read are left out. Of
 * a file, only lines in the form of cleave's log are stored. Of the journal, at most the last 2,000
 * lines are stored. The caller frees each text (text_done). */
unsigned host_logs_read(struct host_log out[HOST_LOGS_FILES + 1]);

#endif
