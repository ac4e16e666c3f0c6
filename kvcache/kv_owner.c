/* kv_owner: the records are in an array, and are found through an open-addressing hash table
 * (linear probing; deletion shifts entries back). Leases are in a binary heap ordered by (end, id),
 * so leases end in the same order in every run. */
#include "kvcache/kv_owner.h"

#include "common/random.h"

#include <assert.h>
#include <stdlib.h>

#define NOT_IN_HEAP UINT32_MAX

struct record {
    kv_owner_id id; /* 0 = the record is unused. */
    uint32_t blocks;
    uint32_t leased;    /* Blocks that are reserved or quarantined. */
    uint32_t heap_at;   /* NOT_IN_HEAP = no lease. */
    uint32_t next_free; /* Next unused record. */
    uint32_t seen;      /* Blocks counted by a running check. */
    uint32_t seen_leased;
    int64_t until_us;
};

struct kv_owners {
    uint32_t capacity;
    uint32_t table_mask;
    uint32_t first_free;
    uint32_t heap_count;
    struct record *records;
    uint32_t *table; /* Records by id; KV_OWNER_NONE = empty. */
    uint32_t *heap;  /* Records ordered by (until_us, id). */
};

enum status kv_owners_open(uint32_t owners_max, struct kv_owners **out)
{
    uint64_t table_size = 2;
    while (table_size < 2 * (uint64_t)owners_max) /* At most half full: probes stay short. */
        table_size *= 2;
    struct kv_owners *owners = calloc(1, sizeof(*owners));
    if (owners == NULL)
        return ST_NO_MEMORY;
    owners->records = calloc(owners_max, sizeof(*owners->records));
    owners->heap = calloc(owners_max, sizeof(*owners->heap));
    owners->table = calloc(table_size, sizeof(*owners->table));
    if (owners->records == NULL || owners->heap == NULL || owners->table == NULL) {
        kv_owners_close(owners);
        return ST_NO_MEMORY;
    }
    owners->capacity = owners_max;
    owners->table_mask = (uint32_t)(table_size - 1);
    for (uint64_t i = 0; i < table_size; i++)
        owners->table[i] = KV_OWNER_NONE;
    for (uint32_t i = 0; i < owners_max; i++) {
        owners->records[i].next_free = i + 1 < owners_max ? i + 1 : KV_OWNER_NONE;
        owners->records[i].heap_at = NOT_IN_HEAP;
    }
    *out = owners;
    return ST_OK;
}

void kv_owners_close(struct kv_owners *owners)
{
    if (owners == NULL)
        return;
    free(owners->records);
    free(owners->heap);
    free(owners->table);
    free(owners);
}

static uint32_t table_home(const struct kv_owners *owners, kv_owner_id id)
{
    return (uint32_t)random_mix(id) & owners->table_mask;
}

/* Returns the position of `id` in the table, or of the hole where `id` belongs. */
static uint32_t table_at(const struct kv_owners *owners, kv_owner_id id)
{
    uint32_t at = table_home(owners, id);
    while (owners->table[at] != KV_OWNER_NONE && owners->records[owners->table[at]].id != id)
        at = (at + 1) & owners->table_mask;
    return at;
}

static void table_remove(struct kv_owners *owners, kv_owner_id id)
{
    uint32_t hole = table_at(owners, id);
    uint32_t at = hole;
    for (;;) {
        at = (at + 1) & owners->table_mask;
        if (owners->table[at] == KV_OWNER_NONE)
            break;
        /* An entry may fill the hole if its preferred position is not between the hole and the
         * entry. */
        uint32_t home = table_home(owners, owners->records[owners->table[at]].id);
        if (((at - home) & owners->table_mask) < ((at - hole) & owners->table_mask))
            continue;
        owners->table[hole] = owners->table[at];
        hole = at;
    }
    owners->table[hole] = KV_OWNER_NONE;
}

static bool heap_before(const struct kv_owners *owners, uint32_t a, uint32_t b)
{
    const struct record *left = &owners->records[a];
    const struct record *right = &owners->records[b];
    if (left->until_us != right->until_us)
        return left->until_us < right->until_us;
    return left->id < right->id;
}

static void heap_put(struct kv_owners *owners, uint32_t at, uint32_t record)
{
    owners->heap[at] = record;
    owners->records[record].heap_at = at;
}

/* Moves `record` from the free position `at` to its place in the heap. */
static void heap_settle(struct kv_owners *owners, uint32_t at, uint32_t record)
{
    while (at > 0 && heap_before(owners, record, owners->heap[(at - 1) / 2])) {
        heap_put(owners, at, owners->heap[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child + 1 < owners->heap_count &&
            heap_before(owners, owners->heap[child + 1], owners->heap[child]))
            child++;
        if (child >= owners->heap_count || !heap_before(owners, owners->heap[child], record))
            break;
        heap_put(owners, at, owners->heap[child]);
        at = child;
    }
    heap_put(owners, at, record);
}

static void heap_remove(struct kv_owners *owners, uint32_t record)
{
    uint32_t at = owners->records[record].heap_at;
    if (at == NOT_IN_HEAP)
        return;
    owners->records[record].heap_at = NOT_IN_HEAP;
    uint32_t last = owners->heap[--owners->heap_count];
    if (last != record)
        heap_settle(owners, at, last);
}

uint32_t kv_owners_find(const struct kv_owners *owners, kv_owner_id id)
{
    return owners->table[table_at(owners, id)];
}

uint32_t kv_owners_blocks_add(struct kv_owners *owners, kv_owner_id id, uint32_t block_count,
                              uint32_t leased_count)
{
    uint32_t at = table_at(owners, id);
    uint32_t record = owners->table[at];
    if (record == KV_OWNER_NONE) {
        record = owners->first_free;
        assert(record != KV_OWNER_NONE);
        owners->first_free = owners->records[record].next_free;
        owners->records[record].id = id;
        owners->table[at] = record;
    }
    owners->records[record].blocks += block_count;
    owners->records[record].leased += leased_count;
    return record;
}

void kv_owners_leased_add(struct kv_owners *owners, uint32_t record, int change)
{
    owners->records[record].leased += (uint32_t)change;
}

void kv_owners_blocks_remove(struct kv_owners *owners, uint32_t record, uint32_t block_count,
                             uint32_t leased_count)
{
    struct record *entry = &owners->records[record];
    assert(entry->blocks >= block_count && entry->leased >= leased_count);
    entry->blocks -= block_count;
    entry->leased -= leased_count;
    if (entry->blocks > 0)
        return;
    heap_remove(owners, record);
    table_remove(owners, entry->id);
    entry->id = 0;
    entry->next_free = owners->first_free;
    owners->first_free = record;
}

void kv_owners_lease_set(struct kv_owners *owners, uint32_t record, int64_t until_us)
{
    heap_remove(owners, record);
    if (until_us == 0)
        return;
    owners->records[record].until_us = until_us;
    owners->heap_count++;
    heap_settle(owners, owners->heap_count - 1, record);
}

bool kv_owners_expired(struct kv_owners *owners, int64_t now_us, kv_owner_id *id_out)
{
    while (owners->heap_count > 0) {
        uint32_t record = owners->heap[0];
        if (owners->records[record].until_us > now_us)
            return false;
        heap_remove(owners, record);
        /* This lease does not count: the owner's blocks became live before the lease ended. */
        if (owners->records[record].leased == 0)
            continue;
        *id_out = owners->records[record].id;
        return true;
    }
    return false;
}

void kv_owners_check_count(struct kv_owners *owners, uint32_t record, bool leased)
{
    assert(record < owners->capacity);
    owners->records[record].seen++;
    owners->records[record].seen_leased += leased ? 1 : 0;
}

bool kv_owners_check(struct kv_owners *owners, struct error *error)
{
    bool good = true;
    uint32_t leases = 0;
    for (uint32_t i = 0; i < owners->capacity; i++) {
        struct record *record = &owners->records[i];
        uint32_t blocks = record->id == 0 ? 0 : record->blocks;
        uint32_t leased = record->id == 0 ? 0 : record->leased;
        if (good && (record->seen != blocks || record->seen_leased != leased)) {
            error_set(error, ST_INVALID,
                      "owner %llu: holds %u blocks (%u leased), its record says %u (%u)",
                      (unsigned long long)record->id, record->seen, record->seen_leased, blocks,
                      leased);
            good = false;
        }
        if (good && record->id != 0 && kv_owners_find(owners, record->id) != i) {
            error_set(error, ST_INVALID, "owner %llu is not in the table",
                      (unsigned long long)record->id);
            good = false;
        }
        leases += record->heap_at != NOT_IN_HEAP ? 1 : 0;
        if (good && record->heap_at != NOT_IN_HEAP &&
            (record->heap_at >= owners->heap_count || owners->heap[record->heap_at] != i ||
             record->id == 0)) {
            error_set(error, ST_INVALID, "lease of record %u is not where it says", i);
            good = false;
        }
        record->seen = 0;
        record->seen_leased = 0;
    }
    if (good && leases != owners->heap_count) {
        error_set(error, ST_INVALID, "%u leases, the heap has %u", leases, owners->heap_count);
        good = false;
    }
    return good;
}
