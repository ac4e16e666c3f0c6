/* tokenizer_bpe: byte-pair encoding (Sennrich et al. 2016) of one word: merge the pair of lowest
 * rank, the leftmost of equals, until none can be merged. Most words are short: their pairs are
 * searched in an array. A long one (text without a space) goes through a heap of pairs over a
 * linked list, n log n. */
#include "model/tokenizer_internal.h"

#include <stdlib.h>
#include <string.h>

#define SHORT_BYTES 48 /* up to here the search is faster than the heap */
#define NOWHERE     UINT32_MAX

/* ids[0..count) in place. Returns the new count. */
static size_t merge_short(const struct bpe *bpe, uint32_t *ids, size_t count,
                          struct bpe_space *space)
{
    uint32_t ranks[SHORT_BYTES];
    for (size_t i = 0; i + 1 < count; i++)
        ranks[i] = merges_rank(&bpe->merges, ids[i], ids[i + 1]);
    while (count > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < count; i++)
            if (ranks[i] < ranks[best])
                best = i;
        space->steps += count;
        if (ranks[best] == MERGE_NONE)
            break;
        ids[best] = bpe->merges.ids[ranks[best]];
        count--;
        memmove(ids + best + 1, ids + best + 2, (count - best - 1) * sizeof(*ids));
        if (best + 1 < count) {
            memmove(ranks + best, ranks + best + 1, (count - best - 1) * sizeof(*ranks));
            ranks[best] = merges_rank(&bpe->merges, ids[best], ids[best + 1]);
        }
        if (best > 0)
            ranks[best - 1] = merges_rank(&bpe->merges, ids[best - 1], ids[best]);
    }
    return count;
}

/* A symbol of a long word. `rank` is that of merging it with the next. */
struct symbol {
    uint32_t id; /* TOKENIZER_NO_TOKEN: merged into the one before */
    uint32_t previous;
    uint32_t next;
    uint32_t rank;
};

/* A heap of rank << 32 | position: the least is the pair to merge. Entries are not removed when
 * their pair changes; one that no longer has its symbol's rank is passed over when it comes up. */
struct heap {
    uint64_t *entries;
    size_t count;
    uint64_t *steps;
};

static void heap_push(struct heap *h, uint64_t entry)
{
    size_t at = h->count++;
    while (at > 0 && entry < h->entries[(at - 1) / 2]) {
        h->entries[at] = h->entries[(at - 1) / 2];
        at = (at - 1) / 2;
        ++*h->steps;
    }
    h->entries[at] = entry;
    ++*h->steps;
}

static uint64_t heap_pop(struct heap *h)
{
    uint64_t top = h->entries[0];
    uint64_t last = h->entries[--h->count];
    size_t at = 0;
    for (size_t child = 1; child < h->count; child = at * 2 + 1) {
        if (child + 1 < h->count && h->entries[child + 1] < h->entries[child])
            child++;
        if (last <= h->entries[child])
            break;
        h->entries[at] = h->entries[child];
        at = child;
        ++*h->steps;
    }
    h->entries[at] = last;
    ++*h->steps;
    return top;
}

static void rank_pair(const struct bpe *bpe, struct symbol *symbols, uint32_t at, struct heap *heap)
{
    struct symbol *s = &symbols[at];
    s->rank =
        s->next == NOWHERE ? MERGE_NONE : merges_rank(&bpe->merges, s->id, symbols[s->next].id);
    if (s->rank != MERGE_NONE)
        heap_push(heap, (uint64_t)s->rank << 32 | at);
}

/* The heap holds at most one entry per symbol at first and two more per merge. */
static enum status space_reserve(struct bpe_space *space, size_t count)
{
    if (count <= space->capacity)
        return ST_OK;
    free(space->memory);
    space->capacity = 0;
    space->memory = malloc(count * (sizeof(struct symbol) + 3 * sizeof(uint64_t)));
    if (space->memory == NULL)
        return ST_NO_MEMORY;
    space->capacity = count;
    return ST_OK;
}

void bpe_space_done(struct bpe_space *space)
{
    free(space->memory);
}

static enum status merge_long(const struct bpe *bpe, uint32_t *ids, size_t count,
                              struct bpe_space *space, size_t *count_out)
{
    enum status status = space_reserve(space, count);
    if (status != ST_OK)
        return status;
    struct symbol *symbols = space->memory;
    struct heap heap = {(uint64_t *)(symbols + count), 0, &space->steps};
    for (size_t i = 0; i < count; i++)
        symbols[i] = (struct symbol){.id = ids[i],
                                     .previous = i > 0 ? (uint32_t)i - 1 : NOWHERE,
                                     .next = i + 1 < count ? (uint32_t)i + 1 : NOWHERE,
                                     .rank = MERGE_NONE};
    for (size_t i = 0; i + 1 < count; i++)
        rank_pair(bpe, symbols, (uint32_t)i, &heap);

    while (heap.count > 0) {
        uint64_t entry = heap_pop(&heap);
        uint32_t at = (uint32_t)entry;
        struct symbol *left = &symbols[at];
        if (left->id == TOKENIZER_NO_TOKEN || left->rank != (uint32_t)(entry >> 32))
            continue;
        struct symbol *right = &symbols[left->next];
        left->id = bpe->merges.ids[left->rank];
        left->next = right->next;
        right->id = TOKENIZER_NO_TOKEN;
        if (left->next != NOWHERE)
            symbols[left->next].previous = at;
        rank_pair(bpe, symbols, at, &heap);
        if (left->previous != NOWHERE)
            rank_pair(bpe, symbols, left->previous, &heap);
    }

    size_t written = 0;
    for (uint32_t at = 0; at != NOWHERE; at = symbols[at].next) /* symbol 0 only ever grows */
        ids[written++] = symbols[at].id;
    *count_out = written;
    return ST_OK;
}

enum status bpe_encode(const struct bpe *bpe, const char *word, size_t bytes,
                       struct bpe_space *space, uint32_t *ids_out, size_t *count_out)
{
    size_t count = 0;
    for (size_t i = 0; i < bytes; i++) {
        uint32_t id = bpe->byte_ids[(uint8_t)word[i]];
        if (id != TOKENIZER_NO_TOKEN)
            ids_out[count++] = id;
    }
    if (count > SHORT_BYTES)
        return merge_long(bpe, ids_out, count, space, count_out);
    *count_out = merge_short(bpe, ids_out, count, space);
    return ST_OK;
}
