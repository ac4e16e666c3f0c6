/* batch_record: a list of the requests in the running batches of a machine, in memory that the
 * machine shares with the gateway: the gateway reads the list after the machine's process has
 * crashed. The gateway's launcher (server/fleet/launcher.h) creates a record for each machine that
 * it starts; other machines have no record. The machine writes the record when a batch starts and
 * ends. Gateway and machine make their calls on their event loop threads. Writing makes no system
 * call. The reader trusts nothing that the machine has written. */
#ifndef HOST_BATCH_RECORD_H
#define HOST_BATCH_RECORD_H

#include "common/limits.h"
#include "common/status.h"

#include <stdint.h>

/* Most requests that batch_record_read stores. */
#define BATCH_RECORD_REQUESTS_MAX LIMIT_MACHINE_REQUESTS

struct batch_record; /* A record that this process writes. */

/* Creates an empty record. The caller owns the descriptor (close-on-exec). Returns ST_IO on
 * failure. */
enum status batch_record_create(int *fd_out, struct error *error);
/* Copies the ids of the requests in running batches to ids_out [BATCH_RECORD_REQUESTS_MAX], without
 * duplicates. Returns the number of ids. Parts of the record that cannot be read count as empty. */
uint32_t batch_record_read(int fd, uint64_t *ids_out);

/* Opens the record for writing; the caller may close `fd` afterwards. Returns ST_INVALID if `fd` is
 * no record, ST_IO, or ST_NO_MEMORY. */
enum status batch_record_open(int fd, struct batch_record **out, struct error *error);
void batch_record_close(struct batch_record *record); /* NULL is fine. */
/* Adds a request to the batch in a batch slot (below LIMIT_BATCHES_IN_FLIGHT). Requires that the
 * batch has fewer than LIMIT_BATCH_SEQUENCES requests. Call this function before the batch starts.
 * NULL is fine. */
void batch_record_add(struct batch_record *record, uint32_t batch_slot, uint64_t request_id);
/* Removes the requests of a batch that has ended. NULL is fine. */
void batch_record_end(struct batch_record *record, uint32_t batch_slot);

#endif
