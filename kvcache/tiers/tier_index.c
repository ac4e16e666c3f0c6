/* tier_index: a hash table whose chains are linked through the places. */
#include "kvcache/tiers/tier_index.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct place {
    uint64_t name[2]; /* The first bytes of the name. */
    uint32_t next;    /* Next place of the bucket. */
    bool taken;
    bool used; /* Since the hand passed. */
};

struct tier_index {
    uint32_t count;
    uint32_t hand; /* The next record goes here or later. */
    uint32_t bucket_mask;
    uint32_t *buckets;
    struct place *places;
};

static uint32_t bucket_count(uint32_t count)
{
    uint32_t buckets = 1;
    while (buckets < count && buckets < 1u << 31)
        buckets *= 2;
    return buckets;
}

uint64_t tier_index_bytes(uint32_t place_count)
{
    return sizeof(struct tier_index) + place_count * sizeof(struct place) +
           bucket_count(place_count) * sizeof(uint32_t);
}

enum status tier_index_open(uint32_t place_count, struct tier_index **out)
{
    const uint32_t buckets = bucket_count(place_count);
    struct tier_index *index = calloc(1, sizeof(*index));
    if (index == NULL)
        return ST_NO_MEMORY;
    index->count = place_count;
    index->bucket_mask = buckets - 1;
    index->places = calloc(place_count, sizeof(index->places[0]));
    index->buckets = malloc(buckets * sizeof(index->buckets[0]));
    if (index->places == NULL || index->buckets == NULL) {
        tier_index_close(index);
        return ST_NO_MEMORY;
    }
    memset(index->buckets, 0xff, buckets * sizeof(index->buckets[0])); /* TIER_INDEX_NONE */
    *out = index;
    return ST_OK;
}

void tier_index_close(struct tier_index *index)
{
    if (index == NULL)
        return;
    free(index->buckets);
    free(index->places);
    free(index);
}

static uint32_t *bucket_of(const struct tier_index *index, const uint64_t name[2])
{
    return &index->buckets[name[0] & index->bucket_mask];
}

uint32_t tier_index_find(const struct tier_index *index, const struct digest *name)
{
    uint64_t key[2];
    memcpy(key, name->bytes, sizeof(key));
    uint32_t place = *bucket_of(index, key);
    while (place != TIER_INDEX_NONE && memcmp(index->places[place].name, key, sizeof(key)) != 0)
        place = index->places[place].next;
    return place;
}

uint32_t tier_index_count(struct tier_index *index, const struct digest *names, uint32_t count)
{
    uint32_t found = 0, place;
    for (; found < count; found++) {
        place = tier_index_find(index, &names[found]);
        if (place == TIER_INDEX_NONE)
            break;
        index->places[place].used = true;
    }
    return found;
}

void tier_index_use(struct tier_index *index, uint32_t place)
{
    index->places[place].used = true;
}

uint32_t tier_index_take(struct tier_index *index)
{
    while (index->places[index->hand].taken && index->places[index->hand].used) {
        index->places[index->hand].used = false;
        index->hand = (index->hand + 1) % index->count;
    }
    const uint32_t place = index->hand;
    index->hand = (index->hand + 1) % index->count;
    if (index->places[place].taken)
        tier_index_remove(index, place);
    return place;
}

void tier_index_add(struct tier_index *index, uint32_t place, const struct digest *name)
{
    struct place *p = &index->places[place];
    memcpy(p->name, name->bytes, sizeof(p->name));
    uint32_t *bucket = bucket_of(index, p->name);
    p->taken = true;
    p->used = false;
    p->next = *bucket;
    *bucket = place;
}

void tier_index_remove(struct tier_index *index, uint32_t place)
{
    struct place *p = &index->places[place];
    uint32_t *link = bucket_of(index, p->name);
    while (*link != place)
        link = &index->places[*link].next;
    *link = p->next;
    p->taken = false;
}

void tier_index_latest_set(struct tier_index *index, uint32_t place)
{
    index->hand = (place + 1) % index->count;
}
