/* tier_file: a backend (tier_backend.h) that stores records in one file, for example on an SSD.
 * machine/ makes the backend on its event loop thread; the tier's thread (tiers.h) uses it. From
 * `open` to `close` the backend owns the file: the `open` of another machine then returns
 * ST_UNREACHABLE. The records survive a restart of the machine. `open` removes records of another
 * identity, and records for which a file that becomes smaller has no room.
 *
 * `open` gives the file its full size. A new record may replace an older record, which tier_index.h
 * chooses. The backend does not flush the file to the disk: after a power failure some records may
 * be damaged. tier_record_open finds damaged records. */
#ifndef KVCACHE_TIERS_TIER_FILE_H
#define KVCACHE_TIERS_TIER_FILE_H

#include "kvcache/tiers/tier_backend.h"

/* Makes a backend without touching the file; `path` is copied. Returns ST_NO_MEMORY on failure. */
enum status tier_file_make(const char *path, uint64_t file_bytes, struct tier_backend **out);

#endif
