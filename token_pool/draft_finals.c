/* draft_finals: see the header. */
#include "token_pool/draft_finals.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

void draft_finals_open(struct draft_finals *finals, uint32_t floats, uint32_t capacity)
{
    float *vectors = malloc((size_t)capacity * floats * sizeof(*vectors));
    *finals = (struct draft_finals){
        .vectors = vectors, .floats = floats, .capacity = vectors != NULL ? capacity : 0};
}

void draft_finals_close(struct draft_finals *finals)
{
    free(finals->vectors);
    *finals = (struct draft_finals){.vectors = NULL};
}

bool draft_finals_add(struct draft_finals *finals, uint32_t first, const float *vectors,
                      uint32_t count)
{
    if (finals->vectors == NULL)
        return false;
    assert(count <= finals->capacity);
    const uint32_t kept = first > finals->first ? first - finals->first : 0;
    const bool whole = kept <= finals->count && kept + count <= finals->capacity;
    finals->count = whole ? kept : 0;
    finals->first = first - finals->count;
    memcpy(finals->vectors + (size_t)finals->count * finals->floats, vectors,
           (size_t)count * finals->floats * sizeof(*vectors));
    finals->count += count;
    return whole;
}

void draft_finals_drop(struct draft_finals *finals, uint32_t count)
{
    assert(count <= finals->count);
    finals->count -= count;
    finals->first += count;
    memmove(finals->vectors, finals->vectors + (size_t)count * finals->floats,
            (size_t)finals->count * finals->floats * sizeof(*finals->vectors));
}
