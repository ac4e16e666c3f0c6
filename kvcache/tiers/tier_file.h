/* tier_file: a backend (tier_backend.h) that stores records in one file, such as on an SSD. The
 * tier's thread calls the backend (tiers.h). One machine uses a file: for a second machine, `open`
 * returns ST_UNREACHABLE until the first machine has ended. The records survive a restart of the
 * machine. They are removed if the machine's model or its KV layout has changed.
 *
 * The file has its full size from the start. If the file system can allocate space in advance, the
 * disk cannot become full later. When all places are taken, the next record takes the place that
 * tier_index.h says. Nothing is flushed to the disk: after a power failure some records may be
 * damaged, which their checksums show. */
#ifndef KVCACHE_TIERS_TIER_FILE_H
#define KVCACHE_TIERS_TIER_FILE_H

#include "kvcache/tiers/tier_backend.h"

/* Makes a backend; the file is opened by ops->open, which ignores its deadline, like all functions
 * of this backend. bytes: size of the file. Returns ST_NO_MEMORY on failure. */
enum status tier_file_make(const char *path, uint64_t bytes, struct tier_backend **out);

#endif
