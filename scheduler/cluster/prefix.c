/* cluster_prefix: a set-associative table. The hash selects a set of eight entries; in a full set
 * the entry that was added or confirmed longest ago is replaced. Finding an entry costs eight
 * comparisons, whatever the table's size; cluster_prefixes_forget visits all entries. */
#include "scheduler/cluster/prefix.h"

#include "common/random.h"

#include <stdlib.h>
#include <string.h>

#define WAYS 8
#define NONE UINT16_MAX

struct entry {
    uint64_t hash;
    uint64_t used;                     /* 0 = the entry is empty. */
    uint16_t machines[PREFIX_HOLDERS]; /* Latest first, filled up with NONE. */
};

struct cluster_prefixes {
    uint64_t clock;
    uint32_t sets; /* A power of two. */
    struct entry entries[];
};

enum status cluster_prefixes_open(uint32_t count, struct cluster_prefixes **out)
{
    uint32_t sets = 1;
    while (sets < count / WAYS)
        sets *= 2;
    struct cluster_prefixes *prefixes =
        calloc(1, sizeof(*prefixes) + (size_t)sets * WAYS * sizeof(prefixes->entries[0]));
    if (prefixes == NULL)
        return ST_NO_MEMORY;
    prefixes->sets = sets;
    *out = prefixes;
    return ST_OK;
}

void cluster_prefixes_close(struct cluster_prefixes *prefixes)
{
    free(prefixes);
}

static uint32_t set_of(const struct cluster_prefixes *prefixes, uint64_t hash)
{
    return (uint32_t)(random_mix(hash) & (prefixes->sets - 1)) * WAYS;
}

static struct entry *entry_of(struct cluster_prefixes *prefixes, uint64_t hash)
{
    struct entry *set = &prefixes->entries[set_of(prefixes, hash)];
    for (int i = 0; i < WAYS; i++)
        if (set[i].used > 0 && set[i].hash == hash)
            return &set[i];
    return NULL;
}

static void machine_remove(struct entry *entry, uint16_t machine)
{
    int kept = 0;
    for (int i = 0; i < PREFIX_HOLDERS; i++)
        if (entry->machines[i] != machine)
            entry->machines[kept++] = entry->machines[i];
    while (kept < PREFIX_HOLDERS)
        entry->machines[kept++] = NONE;
}

void cluster_prefixes_add(struct cluster_prefixes *prefixes, uint64_t hash, uint32_t machine)
{
    struct entry *entry = entry_of(prefixes, hash);
    if (entry == NULL) {
        struct entry *set = &prefixes->entries[set_of(prefixes, hash)];
        entry = set;
        for (int i = 1; i < WAYS; i++)
            if (set[i].used < entry->used)
                entry = &set[i];
        entry->hash = hash;
        memset(entry->machines, 0xff, sizeof(entry->machines));
    }
    entry->used = ++prefixes->clock;
    machine_remove(entry, (uint16_t)machine);
    memmove(entry->machines + 1, entry->machines,
            (PREFIX_HOLDERS - 1) * sizeof(entry->machines[0]));
    entry->machines[0] = (uint16_t)machine;
}

void cluster_prefixes_remove(struct cluster_prefixes *prefixes, uint64_t hash, uint32_t machine)
{
    struct entry *entry = entry_of(prefixes, hash);
    if (entry == NULL)
        return;
    machine_remove(entry, (uint16_t)machine);
    if (entry->machines[0] == NONE)
        entry->used = 0;
}

void cluster_prefixes_forget(struct cluster_prefixes *prefixes, uint32_t machine)
{
    for (uint32_t i = 0; i < prefixes->sets * WAYS; i++) {
        struct entry *entry = &prefixes->entries[i];
        if (entry->used == 0)
            continue;
        machine_remove(entry, (uint16_t)machine);
        if (entry->machines[0] == NONE)
            entry->used = 0;
    }
}

bool cluster_prefixes_holders(const struct cluster_prefixes *prefixes, uint64_t hash,
                              bool (*take)(void *self, uint32_t machine), void *self)
{
    bool taken = false;
    const struct entry *set = &prefixes->entries[set_of(prefixes, hash)];
    for (int way = 0; way < WAYS; way++) {
        if (set[way].used == 0 || set[way].hash != hash)
            continue;
        for (int i = 0; i < PREFIX_HOLDERS && set[way].machines[i] != NONE; i++)
            taken |= take(self, set[way].machines[i]);
    }
    return taken;
}
