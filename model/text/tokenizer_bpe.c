/* tokenizer_bpe: byte-pair encoding (Sennrich et al. 2016) of one word: merge the pair of lowest
 * rank, the leftmost among equals, until no pair can be merged.
 *
 * For up to WINDOW symbols the pairs are in an array, and the least pair is searched for each
 * merge, sixteen at a time. A longer word (text without a space) is encoded window by window. This
 * is correct because tokens that are each their own encoding are the encoding of their joined text
 * if, and only if, each two neighbouring tokens are the encoding of their joined text. (Before the
 * first merge across a boundary, the symbols on both sides are the same as if the two neighbours
 * stood alone, so the same merge would happen there; and the other way round.) A window therefore
 * begins where the tokens kept so far end. Its last tokens are dropped, because they have not seen
 * what follows, and one comparison decides whether the two parts fit. If they do not fit, some kept
 * tokens are taken back and the window grows. */
#include "common/widest.h"
#include "model/text/tokenizer_internal.h"

#include <stdlib.h>
#include <string.h>

#define LANES  16
#define SHORT  24
#define WINDOW 128 /* Positions fit in 8 bits. */
/* Tokens at a window's end that are dropped. With 2, more windows do not fit; with 1, most. */
#define DROPPED 3

/* A pair's rank << 8 | its position: the least key is the pair to merge. */
#define KEY_NONE UINT32_MAX

static uint32_t key_of(const struct bpe *bpe, uint32_t left, uint32_t right, size_t at)
{
    uint32_t rank = merges_rank(&bpe->merges, left, right);
    return rank == MERGE_NONE ? KEY_NONE : rank << 8 | (uint32_t)at;
}

static inline uint32_t least(const uint32_t *keys, size_t count)
{
    uint32_t best = KEY_NONE;
    for (size_t i = 0; i < count / LANES * LANES; i++)
        best = keys[i] < best ? keys[i] : best;
    return best;
}

/* Merges ids[0..count) in place, 2 <= count <= SHORT. For so few ids a plain search is faster than
 * a vector search that waits for its stores. Returns the new count. */
static size_t merge_short(const struct bpe *bpe, uint32_t *ids, size_t count,
                          struct bpe_workspace *space)
{
    uint32_t ranks[SHORT];
    for (size_t i = 0; i + 1 < count; i++)
        ranks[i] = merges_rank(&bpe->merges, ids[i], ids[i + 1]);
    space->steps += count;
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
        for (size_t i = best + 1; i < count; i++) {
            ids[i] = ids[i + 1];
            ranks[i - 1] = ranks[i];
        }
        if (best + 1 < count)
            ranks[best] = merges_rank(&bpe->merges, ids[best], ids[best + 1]);
        if (best > 0)
            ranks[best - 1] = merges_rank(&bpe->merges, ids[best - 1], ids[best]);
    }
    return count;
}

/* Merges ids[0..count) in place, count <= WINDOW. ends_out[i] is where token i ends, in symbols.
 * Returns the new count. */
WIDEST static size_t merge_window(const struct bpe *bpe, uint32_t *ids, size_t count,
                                  uint32_t *ends_out, struct bpe_workspace *space)
{
    uint32_t keys[WINDOW + LANES];
    uint8_t next[WINDOW + 1], previous[WINDOW + 1];
    size_t used = (count + LANES - 1) / LANES * LANES;
    if (count < 2) {
        ends_out[0] = 1;
        return count;
    }
    for (size_t i = 0; i < count; i++) {
        keys[i] = i + 1 < count ? key_of(bpe, ids[i], ids[i + 1], i) : KEY_NONE;
        next[i] = (uint8_t)(i + 1);
        previous[i + 1] = (uint8_t)i;
    }
    for (size_t i = count; i < used; i++)
        keys[i] = KEY_NONE;
    space->steps += count;
    for (uint32_t key; (key = least(keys, used)) != KEY_NONE;) {
        size_t at = key & 0xff, right = next[at];
        ids[at] = bpe->merges.ids[key >> 8];
        keys[right] = KEY_NONE;
        next[at] = next[right];
        previous[next[at]] = (uint8_t)at;
        keys[at] = next[at] < count ? key_of(bpe, ids[at], ids[next[at]], at) : KEY_NONE;
        if (at > 0)
            keys[previous[at]] = key_of(bpe, ids[previous[at]], ids[at], previous[at]);
        space->steps += 2 + used / LANES;
    }
    size_t written = 0;
    for (size_t at = 0; at < count; at = next[at]) {
        ids[written] = ids[at];
        ends_out[written++] = next[at];
    }
    return written;
}

/* ---- larger windows: a heap of pairs over a linked list, O(n log n) ---- */

#define NOWHERE UINT32_MAX

/* A symbol of the list; `rank` is the rank of merging it with the next symbol. */
struct symbol {
    uint32_t id; /* TOKENIZER_NO_TOKEN = merged into the symbol before. */
    uint32_t previous;
    uint32_t next;
    uint32_t rank;
};

/* A heap of rank << 32 | position: the least entry is the pair to merge. Entries are not removed
 * when their pair changes; an entry that no longer has its symbol's rank is skipped when it is
 * popped. */
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

static bool reserve(void **memory, size_t *capacity, size_t count, size_t size)
{
    if (count <= *capacity)
        return true;
    free(*memory);
    *capacity = 0;
    *memory = malloc(count * size);
    if (*memory == NULL)
        return false;
    *capacity = count;
    return true;
}

void bpe_workspace_done(struct bpe_workspace *space)
{
    free(space->memory);
    free(space->heap);
}

/* Merges as merge_window does, for any count. The heap begins with at most one entry per symbol and
 * gets at most two more per merge. */
static bool merge_heap(const struct bpe *bpe, uint32_t *ids, size_t count, uint32_t *ends_out,
                       struct bpe_workspace *space, size_t *count_out)
{
    if (!reserve(&space->heap, &space->heap_capacity, count,
                 sizeof(struct symbol) + 3 * sizeof(uint64_t)))
        return false;
    struct symbol *symbols = space->heap;
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
    /* Symbol 0 is never merged into another one. */
    for (uint32_t at = 0; at != NOWHERE; at = symbols[at].next) {
        ids[written] = symbols[at].id;
        ends_out[written++] = symbols[at].next != NOWHERE ? symbols[at].next : (uint32_t)count;
    }
    *count_out = written;
    return true;
}

static bool merge_any(const struct bpe *bpe, uint32_t *ids, size_t count, uint32_t *ends_out,
                      struct bpe_workspace *space, size_t *count_out)
{
    if (count > WINDOW)
        return merge_heap(bpe, ids, count, ends_out, space, count_out);
    *count_out = merge_window(bpe, ids, count, ends_out, space);
    return true;
}

/* ---- long words ---- */

/* The tokens kept so far, and memory to find more. Positions and counts are in symbols of the word:
 * its bytes that have a token. */
struct walk {
    const struct bpe *bpe;
    struct bpe_workspace *space;
    const uint32_t *symbols; /* The word as tokens of single bytes. */
    size_t count;
    uint32_t *ids;  /* Tokens kept. */
    uint32_t *ends; /* Where each token ends. */
    size_t kept;
    uint32_t *window_ids;
    uint32_t *window_ends;
};

static size_t walk_end(const struct walk *w)
{
    return w->kept > 0 ? w->ends[w->kept - 1] : 0;
}

/* Encodes symbols [from, to) into the window's arrays. */
static bool encode_part(struct walk *w, size_t from, size_t to, size_t *count_out)
{
    memcpy(w->window_ids, w->symbols + from, (to - from) * sizeof(*w->window_ids));
    return merge_any(w->bpe, w->window_ids, to - from, w->window_ends, w->space, count_out);
}

/* Whether the last kept token, and the symbols up to `end`, which are token `id`, stay separate
 * when encoded together. */
static bool stays_apart(struct walk *w, uint32_t id, size_t end, bool *fits_out)
{
    size_t begin = w->kept > 1 ? w->ends[w->kept - 2] : 0, count;
    uint32_t last = w->ids[w->kept - 1];
    if (!encode_part(w, begin, end, &count))
        return false;
    *fits_out = count == 2 && w->window_ids[0] == last && w->window_ids[1] == id;
    return true;
}

static void window_keep(struct walk *w, size_t from, size_t tokens)
{
    for (size_t i = 0; i < tokens; i++) {
        w->ids[w->kept] = w->window_ids[i];
        w->ends[w->kept++] = (uint32_t)(from + w->window_ends[i]);
    }
}

/* Encodes one window. If it does not fit, the caller must take back at least *back symbols. */
static bool walk_on(struct walk *w, size_t window, bool *kept_out, size_t *back)
{
    size_t from = walk_end(w), to = w->count - from < window ? w->count : from + window;
    size_t tokens;
    bool fit = true;
    *kept_out = false;
    if (!encode_part(w, from, to, &tokens))
        return false;
    if (to < w->count)
        tokens = tokens > DROPPED ? tokens - DROPPED : 0;
    if (tokens == 0)
        return true; /* Tokens as long as the window: the window must grow. */
    window_keep(w, from, tokens);
    /* The tokens are stored but do not count yet: the window's arrays are used again. */
    w->kept -= tokens;
    if (w->kept > 0 && !stays_apart(w, w->ids[w->kept], w->ends[w->kept], &fit))
        return false;
    *kept_out = fit;
    if (fit) {
        w->kept += tokens;
        *back = WINDOW / 4;
        return true;
    }
    while (w->kept > 0 && walk_end(w) + *back > from)
        w->kept--;
    *back *= 2;
    return true;
}

static enum status merge_long(const struct bpe *bpe, uint32_t *ids, size_t count,
                              struct bpe_workspace *space, size_t *count_out)
{
    if (!reserve(&space->memory, &space->capacity, count, 4 * sizeof(uint32_t)))
        return ST_NO_MEMORY;
    uint32_t *symbols = space->memory;
    memcpy(symbols, ids, count * sizeof(*ids));
    struct walk w = {.bpe = bpe,
                     .space = space,
                     .symbols = symbols,
                     .count = count,
                     .ids = ids,
                     .ends = symbols + count,
                     .window_ids = symbols + 2 * count,
                     .window_ends = symbols + 3 * count};
    size_t window = WINDOW, back = WINDOW / 4, misses = 0, hits = 0;
    while (walk_end(&w) < count) {
        bool kept;
        size_t before = walk_end(&w);
        if (!walk_on(&w, window + (back > WINDOW / 4 ? back : 0), &kept, &back))
            return ST_NO_MEMORY;
        hits += kept;
        misses += !kept;
        /* Too small for its tokens, or seldom right: use larger windows from now on. */
        bool small = (kept || walk_end(&w) == before) && walk_end(&w) - before < window / 2;
        if (small || (!kept && misses * 8 > hits + 8))
            window *= 2;
    }
    *count_out = w.kept;
    return ST_OK;
}

enum status bpe_merge(const struct bpe *bpe, uint32_t *ids, size_t count,
                      struct bpe_workspace *space, size_t *count_out)
{
    uint32_t ends[WINDOW];
    if (count > WINDOW)
        return merge_long(bpe, ids, count, space, count_out);
    *count_out = count > 1 && count <= SHORT ? merge_short(bpe, ids, count, space)
                                             : merge_window(bpe, ids, count, ends, space);
    return ST_OK;
}

enum status bpe_encode(const struct bpe *bpe, const char *word, size_t bytes,
                       struct bpe_workspace *space, uint32_t *ids_out, size_t *count_out)
{
    size_t count = 0;
    for (size_t i = 0; i < bytes; i++) {
        uint32_t id = bpe->byte_ids[(uint8_t)word[i]];
        if (id != TOKENIZER_NO_TOKEN)
            ids_out[count++] = id;
    }
    return bpe_merge(bpe, ids_out, count, space, count_out);
}
