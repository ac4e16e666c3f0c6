/* batch_record: a list of the requests in the running batches of a machine, in memory that the
 * machine shares with the gateway. So the gateway can read the list after the machine's process has
 * died. The gateway's launcher (server/fleet/launcher.h) creates one record for each local machine
 * that it starts, and reads the record after a crash. The machine writes the record when a batch
 * starts and ends. Gateway and machine make their calls on their event loop threads. Writing costs
 * no system call. The reader trusts nothing that the machine has written. Machines that the gateway
 * did not start have no record. */
#ifndef HOST_BATCH_RECORD_H
#define HOST_BATCH_RECORD_H

#include "common/limits.h"
#include "common/status.h"

#include <stdint.h>

/* Most requests that batch_record_read stores. */
#define BATCH_RECORD_REQUESTS_MAX LIMIT_MACHINE_REQUESTS

struct batch_record; /* A record that this process writes. */

/* Creates an empty record. The caller owns the descriptor, which is close-on-exec. Returns ST_IO on
 * failure. */
enum status batch_record_create(int *fd_out, struct error *error);
/* Copies the ids of the requests in running batches to ids_out [BATCH_RECORD_REQUESTS_MAX], each
 * once. Returns their number. A part of the record that cannot be read counts as empty. */
uint32_t batch_record_read(int fd, uint64_t *ids_out);

/* Opens the record for writing; the caller may close `fd` afterwards. Returns ST_INVALID if `fd` is
 * not a descriptor of batch_record_create, ST_IO, or ST_NO_MEMORY. */
enum status batch_record_open(int fd, struct batch_record **out, struct error *error);
void batch_record_close(struct batch_record *record); /* NULL is fine. */
/* Adds a request to the batch in a batch slot (below LIMIT_BATCHES_IN_FLIGHT). The machine calls
 * this before the batch starts. NULL is fine. Requires at most LIMIT_BATCH_SEQUENCES calls for a
 * batch. */
void batch_record_add(struct batch_record *record, uint32_t batch_slot, uint64_t request_id);
/* Removes the requests of a batch that has ended. NULL is fine. */
void batch_record_end(struct batch_record *record, uint32_t batch_slot);

#endif
