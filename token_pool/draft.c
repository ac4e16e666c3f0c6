/* draft: the index is a hash table with chains through an array, as in LZ77 compressors. */
#include "token_pool/draft.h"

#include <stdlib.h>
#include <string.h>

/* Places that one look-up compares. */
#define PLACES_MAX 16
#define HEADS_MIN  64

void draft_index_open(struct draft_index *index, uint32_t capacity, bool shapes)
{
    uint32_t heads = HEADS_MIN;
    while (heads < capacity && heads < UINT32_MAX / 4)
        heads *= 2;
    const size_t words = (size_t)heads + capacity;
    const size_t all = shapes ? 3 * words + capacity : 2 * words;
    *index = (struct draft_index){.mask = heads - 1, .memory = calloc(all, sizeof(uint32_t))};
    if (index->memory == NULL)
        return;
    uint32_t *second = index->memory + words, *third = second + words;
    index->good = (struct draft_places){DRAFT_MATCH_GOOD, index->memory, index->memory + heads};
    index->any = (struct draft_places){1, second, second + heads};
    if (!shapes)
        return;
    index->shape_places = (struct draft_places){0, third, third + heads};
    index->shapes = third + words;
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

static uint32_t *head_of(const struct draft_index *index, const struct draft_places *places,
                         uint32_t hash)
{
    return &places->heads[(hash >> 7 ^ hash >> 19) & index->mask];
}

/* Returns the hash of the run that ends with tokens[last], or of the shape after this token. */
static uint32_t hash_of(const struct draft_places *places, const uint32_t *tokens, uint32_t last,
                        uint32_t shape)
{
    uint32_t hash = places->run_tokens == 0 ? shape * 0x9e3779b1u : 0;
    for (uint32_t i = 0; i < places->run_tokens; i++)
        hash = (hash ^ tokens[last - i]) * 0x9e3779b1u;
    return hash;
}

/* Adds the position of tokens[last]. No effect if the context is shorter than a run, or if the
 * position has no shape. */
static void place_add(const struct draft_index *index, const struct draft_places *places,
                      const uint32_t *tokens, uint32_t last)
{
    const uint32_t shape = index->shapes != NULL ? index->shapes[last] : 0;
    if (places->run_tokens == 0 ? shape == 0 : last + 1 < places->run_tokens)
        return;
    uint32_t *head = head_of(index, places, hash_of(places, tokens, last, shape));
    places->earlier[last] = *head;
    *head = last + 1;
}

void draft_index_shape_set(struct draft_index *index, uint32_t position, uint32_t shape)
{
    if (index->shapes != NULL)
        index->shapes[position] = shape;
}

void draft_index_add(struct draft_index *index, const uint32_t *tokens, uint32_t count)
{
    for (; draft_index_is_open(index) && index->count < count; index->count++) {
        place_add(index, &index->good, tokens, index->count);
        place_add(index, &index->any, tokens, index->count);
        place_add(index, &index->shape_places, tokens, index->count);
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

uint32_t draft_token_after(const uint32_t *tokens, uint32_t place, uint32_t count, uint32_t i)
{
    return tokens[place + 1 + i % (count - 1 - place)];
}

/* What a look-up looks for, and the places that it has found. `shape` is that of the context. */
struct lookup {
    const struct draft_index *index;
    const uint32_t *tokens;
    uint32_t count, shape;
    draft_allows allows;
    void *self;
    uint32_t places[PLACES_MAX];
    uint32_t place_count;
};

/* Finds the places of one kind. *source_out is the place with the most equal tokens. Returns false
 * if there is no place. */
static bool places_find(struct lookup *lookup, const struct draft_places *places,
                        struct draft_source *source_out)
{
    const struct draft_index *index = lookup->index;
    const uint32_t last = lookup->count - 1, *tokens = lookup->tokens;
    lookup->place_count = 0;
    if (places->run_tokens == 0 ? lookup->shape == 0 || index->shapes == NULL
                                : lookup->count < places->run_tokens)
        return false;
    uint32_t next = last < index->count
                        ? places->earlier[last]
                        : *head_of(index, places, hash_of(places, tokens, last, lookup->shape));
    for (uint32_t i = 0; i < PLACES_MAX && next > 0; i++) {
        const uint32_t place = next - 1, equal = equal_tokens(tokens, place, last);
        const bool has_shape =
            lookup->shape != 0 && index->shapes != NULL && index->shapes[place] == lookup->shape;
        next = places->earlier[place];
        if ((places->run_tokens == 0 ? !has_shape : equal < places->run_tokens) ||
            (lookup->allows != NULL && !lookup->allows(lookup->self, tokens[place + 1])))
            continue;
        if (lookup->place_count == 0 || equal > source_out->equal)
            *source_out =
                (struct draft_source){.place = place, .equal = equal, .has_shape = has_shape};
        lookup->places[lookup->place_count++] = place;
        if (equal == DRAFT_MATCH_MAX)
            break;
    }
    return lookup->place_count > 0;
}

/* Returns how many of the first agreed_max tokens after `source` also follow every other place; 0
 * if there is no other place. */
static uint32_t agreed_find(const struct lookup *lookup, uint32_t source, uint32_t agreed_max)
{
    uint32_t agreed = lookup->place_count > 1 ? agreed_max : 0;
    for (uint32_t k = 0; k < lookup->place_count; k++)
        for (uint32_t i = 0; i < agreed; i++)
            if (draft_token_after(lookup->tokens, lookup->places[k], lookup->count, i) !=
                draft_token_after(lookup->tokens, source, lookup->count, i))
                agreed = i;
    return agreed;
}

bool draft_source_find(const struct draft_index *index, const uint32_t *tokens, uint32_t count,
                       uint32_t shape, uint32_t agreed_max, draft_allows allows, void *self,
                       struct draft_source *source_out)
{
    struct lookup lookup = {index, tokens, count, shape, allows, self, {0}, 0};
    if (!draft_index_is_open(index) || count == 0 || agreed_max == 0 ||
        (!places_find(&lookup, &index->shape_places, source_out) &&
         !places_find(&lookup, &index->good, source_out) &&
         !places_find(&lookup, &index->any, source_out)))
        return false;
    source_out->agreed = agreed_find(&lookup, source_out->place, agreed_max);
    return true;
}
