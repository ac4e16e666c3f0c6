/* admin_host_logs: reads the latest log lines of `cleave serve` and `cleave machine` on this host,
 * from two sources: files to which running processes write their standard error, and systemd's
 * journal of cleave's services. `cleave bundle` calls it on the main thread. It sends no requests
 * to gateways, and changes nothing. */
#ifndef TOOLS_ADMIN_HOST_LOGS_H
#define TOOLS_ADMIN_HOST_LOGS_H

#include "common/text.h"

#define HOST_LOGS_FILES 16 /* Most files that are read. */
/* Most bytes of each log, from its end. At most the last 2,000 lines of the journal are read. */
#define HOST_LOGS_BYTES (1 << 18)

struct host_log {
    char name[32];    /* Such as "stderr-1.txt" or "journal.txt". */
    struct text text; /* The lines. */
};

/* Stores the logs that have a line, and returns their number. Logs that cannot be read are left
 * out. Of a file, only lines in the form of cleave's log are stored, because other programs may
 * write to the file. The caller frees each text (text_done). */
unsigned host_logs_read(struct host_log out[HOST_LOGS_FILES + 1]);

#endif
