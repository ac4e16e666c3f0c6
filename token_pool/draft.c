/* draft: the index is a hash table with chains through an array, as in LZ77 compressors. */
#include "token_pool/draft.h"

#include <stdlib.h>
#include <string.h>

/* Places that one look-up compares. */
#define PLACES_MAX 16
#define HEADS_MIN  64

void draft_index_open(struct draft_index *index, uint32_t capacity)
{
    uint32_t heads = HEADS_MIN;
    while (heads < capacity && heads < UINT32_MAX / 4)
        heads *= 2;
    const size_t words = (size_t)heads + capacity;
    *index = (struct draft_index){.mask = heads - 1, .memory = calloc(2 * words, sizeof(uint32_t))};
    if (index->memory == NULL)
        return;
    index->good = (struct draft_places){DRAFT_MATCH_GOOD, index->memory, index->memory + heads};
    uint32_t *second = index->memory + words;
    index->any = (struct draft_places){1, second, second + heads};
}

void draft_index_close(struct draft_index *index)
{
    free(index->memory);
    *index = (struct draft_index){0};
}

bool draft_index_is_open(const struct draft_index *index)
{
    return index->memory != NULL;
}

/* Returns the head of the run that ends with tokens[last]. */
static uint32_t *head_of(const struct draft_index *index, const struct draft_places *places,
                         const uint32_t *tokens, uint32_t last)
{
    uint32_t hash = 0;
    for (uint32_t i = 0; i < places->run_tokens; i++)
        hash = (hash ^ tokens[last - i]) * 0x9e3779b1u;
    return &places->heads[(hash >> 7 ^ hash >> 19) & index->mask];
}

/* Adds the run that ends with tokens[last]. No effect if the context is shorter than a run. */
static void place_add(const struct draft_index *index, const struct draft_places *places,
                      const uint32_t *tokens, uint32_t last)
{
    if (last + 1 < places->run_tokens)
        return;
    uint32_t *head = head_of(index, places, tokens, last);
    places->earlier[last] = *head;
    *head = last + 1;
}

void draft_index_add(struct draft_index *index, const uint32_t *tokens, uint32_t count)
{
    for (; draft_index_is_open(index) && index->count < count; index->count++) {
        place_add(index, &index->good, tokens, index->count);
        place_add(index, &index->any, tokens, index->count);
    }
}

/* Returns how many tokens that end with tokens[place] are equal to those that end with
 * tokens[last], at most DRAFT_MATCH_MAX. */
static uint32_t equal_tokens(const uint32_t *tokens, uint32_t place, uint32_t last)
{
    uint32_t most = place + 1 < DRAFT_MATCH_MAX ? place + 1 : DRAFT_MATCH_MAX, equal = 0;
    while (equal < most && tokens[place - equal] == tokens[last - equal])
        equal++;
    return equal;
}

/* Returns token i of the draft from `place`. A draft that reaches the end of the context goes on
 * with itself: the context repeats with the period last - place. `out` has the tokens before i. */
static uint32_t token_after(const uint32_t *tokens, uint32_t place, uint32_t last,
                            const uint32_t *out, uint32_t i)
{
    const uint32_t from = place + 1 + i;
    return from <= last ? tokens[from] : out[from - last - 1];
}

/* The places that a look-up has found, and the first of those with the most equal tokens. */
struct found {
    uint32_t places[PLACES_MAX];
    uint32_t count;
    uint32_t source;
    uint32_t longest; /* Equal tokens of `source`; 0 = no place was found. */
};

static struct found places_find(const struct draft_index *index, const struct draft_places *places,
                                const uint32_t *tokens, draft_allows allows, void *self)
{
    const uint32_t last = index->count - 1;
    struct found found = {.count = 0};
    if (index->count < places->run_tokens)
        return found;
    uint32_t next = places->earlier[last];
    for (uint32_t i = 0; i < PLACES_MAX && next > 0 && found.longest < DRAFT_MATCH_MAX; i++) {
        const uint32_t place = next - 1, equal = equal_tokens(tokens, place, last);
        next = places->earlier[place];
        if (equal < places->run_tokens || (allows != NULL && !allows(self, tokens[place + 1])))
            continue;
        found.places[found.count++] = place;
        if (equal > found.longest) {
            found.longest = equal;
            found.source = place;
        }
    }
    return found;
}

uint32_t draft_find(const struct draft_index *index, const uint32_t *tokens, uint32_t draft_tokens,
                    draft_allows allows, void *self, uint32_t *out, uint32_t *agreed_out)
{
    if (!draft_index_is_open(index) || index->count == 0 || draft_tokens == 0)
        return 0;
    const uint32_t last = index->count - 1;
    struct found found = places_find(index, &index->good, tokens, allows, self);
    if (found.count == 0)
        found = places_find(index, &index->any, tokens, allows, self);
    if (found.count == 0)
        return 0;
    for (uint32_t i = 0; i < draft_tokens; i++)
        out[i] = token_after(tokens, found.source, last, out, i);
    uint32_t agreed = found.count > 1 ? draft_tokens : 0;
    for (uint32_t k = 0; k < found.count; k++)
        for (uint32_t i = 0; i < agreed; i++)
            if (token_after(tokens, found.places[k], last, out, i) != out[i])
                agreed = i;
    *agreed_out = agreed;
    return found.longest;
}
