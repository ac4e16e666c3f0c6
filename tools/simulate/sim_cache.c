/* sim_cache: see the header. The runs form a list. Unnamed blocks are runs without a number;
 * neighbouring ones are joined. So the list has at most one more unnamed run than named runs, and
 * only sim_cache_begin needs memory. */
#include "tools/simulate/sim_cache.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>

#define NONE UINT32_MAX

struct sim_cache_run {
    uint32_t blocks;
    uint32_t serial; /* Upper half of the run's number; 0 = unnamed. */
    bool listed;     /* The run is in the list: it has blocks. */
    uint32_t previous;
    uint32_t next; /* If the entry is not in use: the next such entry. */
};

/* ---- entries ---- */

static enum status entries_grow(struct sim_cache *cache)
{
    uint32_t capacity = cache->capacity > 0 ? 2 * cache->capacity : 16;
    struct sim_cache_run *runs = realloc(cache->runs, capacity * sizeof(runs[0]));
    if (runs == NULL)
        return ST_NO_MEMORY;
    for (uint32_t i = capacity; i-- > cache->capacity;) {
        runs[i] = (struct sim_cache_run){.next = cache->unused};
        cache->unused = i;
    }
    cache->runs = runs;
    cache->capacity = capacity;
    return ST_OK;
}

static uint32_t entry_take(struct sim_cache *cache)
{
    uint32_t index = cache->unused;
    assert(index != NONE);
    cache->unused = cache->runs[index].next;
    return index;
}

static void entry_give(struct sim_cache *cache, uint32_t index)
{
    cache->named -= cache->runs[index].serial > 0;
    cache->runs[index] = (struct sim_cache_run){.next = cache->unused};
    cache->unused = index;
}

static struct sim_cache_run *run_of(const struct sim_cache *cache, sim_cache_id id)
{
    uint32_t index = (uint32_t)id;
    if (id == 0 || index >= cache->capacity || cache->runs[index].serial != (uint32_t)(id >> 32))
        return NULL;
    return &cache->runs[index];
}

/* ---- the list ---- */

static void append(struct sim_cache *cache, uint32_t index)
{
    struct sim_cache_run *run = &cache->runs[index];
    run->listed = true;
    run->previous = cache->last;
    run->next = NONE;
    if (cache->last != NONE)
        cache->runs[cache->last].next = index;
    else
        cache->first = index;
    cache->last = index;
}

static void list_remove(struct sim_cache *cache, uint32_t index)
{
    const struct sim_cache_run *run = &cache->runs[index];
    if (run->previous != NONE)
        cache->runs[run->previous].next = run->next;
    else
        cache->first = run->next;
    if (run->next != NONE)
        cache->runs[run->next].previous = run->previous;
    else
        cache->last = run->previous;
    entry_give(cache, index);
}

static bool is_unnamed(const struct sim_cache *cache, uint32_t index)
{
    return index != NONE && cache->runs[index].serial == 0;
}

/* Joins the run with the one before it, if both are unnamed. */
static void join(struct sim_cache *cache, uint32_t index)
{
    if (!is_unnamed(cache, index) || !is_unnamed(cache, cache->runs[index].previous))
        return;
    cache->runs[cache->runs[index].previous].blocks += cache->runs[index].blocks;
    list_remove(cache, index);
}

static void run_drop(struct sim_cache *cache, uint32_t index)
{
    uint32_t next = cache->runs[index].next;
    list_remove(cache, index);
    if (next != NONE)
        join(cache, next);
}

/* ---- the interface ---- */

enum status sim_cache_open(struct sim_cache *cache, uint32_t blocks)
{
    *cache = (struct sim_cache){.unused = NONE, .first = NONE, .last = NONE};
    enum status status = entries_grow(cache);
    if (status == ST_OK)
        sim_cache_add(cache, blocks);
    return status;
}

void sim_cache_close(struct sim_cache *cache)
{
    free(cache->runs);
    *cache = (struct sim_cache){.runs = NULL};
}

void sim_cache_take(struct sim_cache *cache, uint32_t count)
{
    assert(count <= cache->blocks);
    cache->blocks -= count;
    while (count > 0) {
        struct sim_cache_run *run = &cache->runs[cache->first];
        uint32_t some = run->blocks < count ? run->blocks : count;
        run->blocks -= some;
        count -= some;
        if (run->blocks == 0)
            run_drop(cache, cache->first);
    }
}

void sim_cache_add(struct sim_cache *cache, uint32_t count)
{
    if (count == 0)
        return;
    cache->blocks += count;
    if (is_unnamed(cache, cache->last)) {
        cache->runs[cache->last].blocks += count;
        return;
    }
    uint32_t index = entry_take(cache);
    cache->runs[index] = (struct sim_cache_run){.blocks = count};
    append(cache, index);
}

sim_cache_id sim_cache_begin(struct sim_cache *cache)
{
    /* Each named run may be followed by an unnamed one, and one may be before them all. */
    if (2 * (cache->named + 1) + 1 > cache->capacity && entries_grow(cache) != ST_OK)
        return 0;
    uint32_t index = entry_take(cache);
    cache->serial = cache->serial == UINT32_MAX ? 1 : cache->serial + 1;
    cache->named++;
    cache->runs[index] = (struct sim_cache_run){.serial = cache->serial};
    return (uint64_t)cache->serial << 32 | index;
}

void sim_cache_fill(struct sim_cache *cache, sim_cache_id id, uint32_t count)
{
    struct sim_cache_run *run = run_of(cache, id);
    if (run == NULL) { /* It was forgotten. */
        sim_cache_add(cache, count);
        return;
    }
    assert(!run->listed);
    if (count == 0) {
        entry_give(cache, (uint32_t)id);
        return;
    }
    run->blocks = count;
    cache->blocks += count;
    append(cache, (uint32_t)id);
}

uint32_t sim_cache_count(const struct sim_cache *cache, sim_cache_id id)
{
    const struct sim_cache_run *run = run_of(cache, id);
    return run != NULL ? run->blocks : 0;
}

uint32_t sim_cache_take_run(struct sim_cache *cache, sim_cache_id id)
{
    const struct sim_cache_run *run = run_of(cache, id);
    if (run == NULL || !run->listed)
        return 0;
    uint32_t blocks = run->blocks;
    cache->blocks -= blocks;
    run_drop(cache, (uint32_t)id);
    return blocks;
}

void sim_cache_forget(struct sim_cache *cache, sim_cache_id id)
{
    struct sim_cache_run *run = run_of(cache, id);
    if (run == NULL)
        return;
    if (!run->listed) {
        entry_give(cache, (uint32_t)id);
        return;
    }
    run->serial = 0;
    cache->named--;
    uint32_t next = run->next;
    join(cache, (uint32_t)id);
    if (next != NONE)
        join(cache, next);
}
