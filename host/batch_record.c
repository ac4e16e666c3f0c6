/* batch_record: see the header. An id is written before the count that includes it. */
#include "host/batch_record.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct batch_entry {
    _Atomic uint32_t count;
    uint64_t ids[LIMIT_BATCH_SEQUENCES];
};

struct batch_record {
    struct batch_entry *entries; /* [LIMIT_BATCHES_IN_FLIGHT], in the shared memory. */
};

#define RECORD_BYTES (LIMIT_BATCHES_IN_FLIGHT * sizeof(struct batch_entry))

enum status batch_record_create(int *fd_out, struct error *error)
{
    int fd = memfd_create("batches", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, RECORD_BYTES) != 0) {
        int failed = errno;
        if (fd >= 0)
            close(fd);
        return error_set(error, ST_IO, "record of batches: %s", strerror(failed));
    }
    *fd_out = fd;
    return ST_OK;
}

static bool ids_have(const uint64_t *ids, uint32_t count, uint64_t id)
{
    for (uint32_t i = 0; i < count; i++)
        if (ids[i] == id)
            return true;
    return false;
}

uint32_t batch_record_read(int fd, uint64_t *ids_out)
{
    uint32_t read_count = 0;
    for (uint32_t slot = 0; slot < LIMIT_BATCHES_IN_FLIGHT; slot++) {
        struct batch_entry entry;
        off_t at = (off_t)(slot * sizeof(entry));
        if (pread(fd, &entry, sizeof(entry), at) != (ssize_t)sizeof(entry))
            continue;
        uint32_t count = atomic_load(&entry.count);
        for (uint32_t i = 0; i < count && i < LIMIT_BATCH_SEQUENCES; i++)
            if (read_count < BATCH_RECORD_REQUESTS_MAX &&
                !ids_have(ids_out, read_count, entry.ids[i]))
                ids_out[read_count++] = entry.ids[i];
    }
    return read_count;
}

enum status batch_record_open(int fd, struct batch_record **out, struct error *error)
{
    struct stat info;
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size != (off_t)RECORD_BYTES)
        return error_set(error, ST_INVALID, "descriptor %d is no record of batches", fd);
    struct batch_record *record = malloc(sizeof(*record));
    if (record == NULL)
        return error_set(error, ST_NO_MEMORY, "record of batches: out of memory");
    void *memory = mmap(NULL, RECORD_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) {
        free(record);
        return error_set(error, ST_IO, "record of batches: %s", strerror(errno));
    }
    record->entries = memory;
    *out = record;
    return ST_OK;
}

void batch_record_close(struct batch_record *record)
{
    if (record == NULL)
        return;
    munmap(record->entries, RECORD_BYTES);
    free(record);
}

void batch_record_add(struct batch_record *record, uint32_t batch_slot, uint64_t request_id)
{
    if (record == NULL)
        return;
    struct batch_entry *entry = &record->entries[batch_slot];
    uint32_t count = atomic_load_explicit(&entry->count, memory_order_relaxed);
    assert(batch_slot < LIMIT_BATCHES_IN_FLIGHT && count < LIMIT_BATCH_SEQUENCES);
    entry->ids[count] = request_id;
    atomic_store_explicit(&entry->count, count + 1, memory_order_release);
}

void batch_record_end(struct batch_record *record, uint32_t batch_slot)
{
    if (record != NULL)
        atomic_store_explicit(&record->entries[batch_slot].count, 0, memory_order_release);
}
