/* batch_record: a list of the requests that a machine is computing now. Another process can read
 * the list after the machine's process has died. The gateway's launcher (server/fleet/launcher.h)
 * creates one record for each local machine that it starts, and reads the record when the process
 * has ended. The machine writes the record when a batch starts and ends, on its event loop thread.
 * The record is memory that both processes share, so the record survives the machine's process, and
 * writing costs no system call. The reader trusts nothing that the machine has written. Machines on
 * other hosts have no record. */
#ifndef HOST_BATCH_RECORD_H
#define HOST_BATCH_RECORD_H

#include "common/limits.h"
#include "common/status.h"

#include <stdint.h>

/* Most requests that batch_record_read stores. */
#define BATCH_RECORD_REQUESTS_MAX LIMIT_MACHINE_REQUESTS

struct batch_record; /* A record that this process writes. */

/* Creates an empty record. The caller owns the descriptor (close-on-exec). Returns ST_IO. */
enum status batch_record_create(int *fd_out, struct error *error);
/* Copies the ids of the requests in running batches to ids_out [BATCH_RECORD_REQUESTS_MAX], each
 * once. Returns their number; a part of the record that cannot be read counts as empty. */
uint32_t batch_record_read(int fd, uint64_t *ids_out);

/* Opens the record for writing; the caller may close `fd` afterwards. Returns an error if `fd` is
 * not a descriptor of batch_record_create. */
enum status batch_record_open(int fd, struct batch_record **out, struct error *error);
void batch_record_close(struct batch_record *record); /* NULL is fine. */
/* Adds a request to the batch in this batch slot (< LIMIT_BATCHES_IN_FLIGHT), which is about to
 * start. NULL is fine. Requires at most LIMIT_BATCH_SEQUENCES calls for a batch. */
void batch_record_add(struct batch_record *record, uint32_t slot, uint64_t id);
/* Records that the batch has ended. NULL is fine. */
void batch_record_end(struct batch_record *record, uint32_t slot);

#endif
