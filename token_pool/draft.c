/* draft: the index is a hash table with chains through an array, as in LZ77 compressors. */
#include "token_pool/draft.h"

#include <stdbool.h>
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
    *index = (struct draft_index){.mask = heads - 1};
    index->heads = calloc((size_t)heads + capacity, sizeof(uint32_t));
    if (index->heads != NULL)
        index->earlier = index->heads + heads;
}

void draft_index_close(struct draft_index *index)
{
    free(index->heads);
    *index = (struct draft_index){0};
}

/* Returns the head of the DRAFT_MATCH_MIN tokens that end with tokens[last]. */
static uint32_t *head_of(const struct draft_index *index, const uint32_t *tokens, uint32_t last)
{
    uint32_t hash = 0;
    for (uint32_t i = 0; i < DRAFT_MATCH_MIN; i++)
        hash = (hash ^ tokens[last - i]) * 0x9e3779b1u;
    return &index->heads[(hash >> 7 ^ hash >> 19) & index->mask];
}

void draft_index_add(struct draft_index *index, const uint32_t *tokens, uint32_t count)
{
    for (; index->heads != NULL && index->count < count; index->count++) {
        if (index->count + 1 < DRAFT_MATCH_MIN)
            continue;
        uint32_t *head = head_of(index, tokens, index->count);
        index->earlier[index->count] = *head;
        *head = index->count + 1;
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

uint32_t draft_find(const struct draft_index *index, const uint32_t *tokens, uint32_t most,
                    uint32_t *out, uint32_t *agreed_out)
{
    uint32_t longest = 0, source = 0, last = index->count - 1, places[PLACES_MAX], count = 0;
    if (index->heads == NULL || index->count < DRAFT_MATCH_MIN || most == 0)
        return 0;
    uint32_t next = index->earlier[last];
    for (uint32_t i = 0; i < PLACES_MAX && next > 0 && longest < DRAFT_MATCH_MAX; i++) {
        uint32_t place = next - 1, equal = equal_tokens(tokens, place, last);
        if (equal >= DRAFT_MATCH_MIN)
            places[count++] = place;
        if (equal > longest) {
            longest = equal;
            source = place;
        }
        next = index->earlier[place];
    }
    if (longest < DRAFT_MATCH_MIN)
        return 0;
    for (uint32_t i = 0; i < most; i++)
        out[i] = token_after(tokens, source, last, out, i);
    uint32_t agreed = count > 1 ? most : 0;
    for (uint32_t k = 0; k < count; k++)
        for (uint32_t i = 0; i < agreed; i++)
            if (token_after(tokens, places[k], last, out, i) != out[i])
                agreed = i;
    *agreed_out = agreed;
    return longest;
}
