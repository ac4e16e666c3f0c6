/* tier_memory: see the header. Places have the size of a record, rounded up to cache lines. */
#include "kvcache/tiers/tier_memory.h"

#include "kvcache/tiers/tier_index.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define LINE       64
#define PAGE       4096
#define PLACES_MIN 4

struct tier_memory {
    struct tier_backend backend;
    uint64_t bytes; /* Most bytes of records and index. */
    size_t record_bytes;
    uint64_t place_bytes;
    uint64_t region_bytes;
    uint8_t *region; /* NULL = not open. */
    struct tier_index *index;
};

static struct tier_memory *memory_of(struct tier_backend *b)
{
    return (struct tier_memory *)(void *)b;
}

static uint64_t up(uint64_t bytes, uint64_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

/* Returns the bytes of the backend with `count` places. */
static uint64_t bytes_with(const struct tier_memory *s, uint32_t count)
{
    return up(count * s->place_bytes, PAGE) + tier_index_bytes(count);
}

/* Returns the largest number of places that fits; 0 = fewer than PLACES_MIN do. */
static uint32_t places_fitting(const struct tier_memory *s)
{
    uint32_t low = 0, high = TIER_INDEX_NONE - 1;
    while (low < high) {
        const uint32_t middle = low + (high - low + 1) / 2;
        if (bytes_with(s, middle) <= s->bytes)
            low = middle;
        else
            high = middle - 1;
    }
    return low >= PLACES_MIN ? low : 0;
}

static enum status memory_open(struct tier_backend *b, const struct digest *identity,
                               size_t record_bytes, int64_t deadline_us, struct error *error)
{
    struct tier_memory *s = memory_of(b);
    (void)identity; /* No record is older than this call. */
    (void)deadline_us;
    s->record_bytes = record_bytes;
    s->place_bytes = up(record_bytes, LINE);
    const uint32_t count = places_fitting(s);
    if (count == 0)
        return error_set(error, ST_INVALID, "%llu bytes: want at least %llu for this model",
                         (unsigned long long)s->bytes,
                         (unsigned long long)bytes_with(s, PLACES_MIN));
    s->region_bytes = up(count * s->place_bytes, PAGE);
    void *region = mmap(NULL, s->region_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (region == MAP_FAILED)
        return error_set(error, ST_NO_MEMORY, "%llu bytes: no memory: %s",
                         (unsigned long long)s->region_bytes, strerror(errno));
    (void)madvise(region, s->region_bytes, MADV_HUGEPAGE);
    (void)madvise(region, s->region_bytes, MADV_DONTDUMP);
    if (tier_index_open(count, &s->index) != ST_OK) {
        munmap(region, s->region_bytes);
        return error_set(error, ST_NO_MEMORY, "no memory for the index of %u records", count);
    }
    s->region = region;
    return ST_OK;
}

static uint8_t *place_at(const struct tier_memory *s, uint32_t place)
{
    return s->region + place * s->place_bytes;
}

static enum status memory_stored_count(struct tier_backend *b, const struct digest *names,
                                       uint32_t count, int64_t deadline_us, uint32_t *count_out,
                                       struct error *error)
{
    (void)deadline_us;
    (void)error;
    *count_out = tier_index_count(memory_of(b)->index, names, count);
    return ST_OK;
}

static enum status memory_get(struct tier_backend *b, const struct digest *name, void *record_out,
                              int64_t deadline_us, struct error *error)
{
    struct tier_memory *s = memory_of(b);
    const uint32_t place = tier_index_find(s->index, name);
    (void)deadline_us;
    (void)error;
    if (place == TIER_INDEX_NONE)
        return ST_NOT_FOUND;
    tier_index_use(s->index, place);
    memcpy(record_out, place_at(s, place), s->record_bytes);
    return ST_OK;
}

static enum status memory_put(struct tier_backend *b, const struct digest *name, const void *record,
                              int64_t deadline_us, struct error *error)
{
    struct tier_memory *s = memory_of(b);
    uint32_t place = tier_index_find(s->index, name);
    (void)deadline_us;
    (void)error;
    if (place != TIER_INDEX_NONE) {
        tier_index_use(s->index, place);
        return ST_OK;
    }
    place = tier_index_take(s->index);
    memcpy(place_at(s, place), record, s->record_bytes);
    tier_index_add(s->index, place, name);
    return ST_OK;
}

static enum status memory_drop(struct tier_backend *b, const struct digest *name,
                               int64_t deadline_us, struct error *error)
{
    struct tier_memory *s = memory_of(b);
    const uint32_t place = tier_index_find(s->index, name);
    (void)deadline_us;
    (void)error;
    if (place != TIER_INDEX_NONE)
        tier_index_remove(s->index, place);
    return ST_OK;
}

static void memory_close(struct tier_backend *b)
{
    struct tier_memory *s = memory_of(b);
    if (s->region != NULL)
        munmap(s->region, s->region_bytes);
    tier_index_close(s->index);
    free(s);
}

enum status tier_memory_make(uint64_t bytes_max, struct tier_backend **out)
{
    static const struct tier_backend_ops ops = {.kind = TIER_KIND_MEMORY,
                                                .open = memory_open,
                                                .stored_count = memory_stored_count,
                                                .get = memory_get,
                                                .put = memory_put,
                                                .drop = memory_drop,
                                                .close = memory_close};
    struct tier_memory *s = calloc(1, sizeof(*s));
    if (s == NULL)
        return ST_NO_MEMORY;
    s->backend.ops = &ops;
    s->bytes = bytes_max;
    *out = &s->backend;
    return ST_OK;
}
