/* Goal: each token has the final vector that was added last for it, and a store that lacks a token
 * says so. Method: random steps of an answer (tokens are drafted, accepted, computed, and sometimes
 * missing) against a plain array with one entry for each token of the context. */
#include "common/random.h"
#include "tests/check.h"
#include "token_pool/draft_finals.h"

#include <string.h>

#define FLOATS   3
#define CAPACITY 12
#define CONTEXT  400
#define ROUNDS   2000

static uint64_t draws;
static float vectors[CONTEXT][FLOATS]; /* Of all tokens. */
static uint32_t from, end;             /* The store has the vectors of these tokens. */

static uint32_t draw(uint32_t below)
{
    return (uint32_t)(random_at(17, draws++) % below);
}

static void add(struct draft_finals *finals, uint32_t first, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t k = 0; k < FLOATS; k++)
            vectors[first + i][k] = (float)draw(1000);
    const uint32_t kept = first > from ? first - from : 0;
    const bool whole = first <= end && kept + count <= CAPACITY;
    CHECK(draft_finals_add(finals, first, vectors[first], count) == whole);
    from = whole && first > from ? from : first;
    end = first + count;
}

static void check(const struct draft_finals *finals)
{
    CHECK(finals->first == from && finals->count == end - from && finals->count <= CAPACITY);
    CHECK(memcmp(finals->vectors, vectors[from], finals->count * sizeof(vectors[0])) == 0);
}

/* An answer whose first vectors belong to token `known`. */
static void answer_run(uint32_t known)
{
    struct draft_finals finals;
    draft_finals_open(&finals, FLOATS, CAPACITY);
    from = end = 0;
    while (known + 20 < CONTEXT) {
        const uint32_t taken = 1 + draw(5);
        known += draw(20) == 0 ? 1 + draw(3) : 0; /* Tokens without vectors. */
        add(&finals, known, taken);
        check(&finals);
        known += taken;
        for (uint32_t drafted = 0, count = draw(4); drafted < count; drafted++) {
            draft_finals_drop(&finals, end - from);
            from = end;
            add(&finals, known + drafted, 1);
            check(&finals);
        }
        if (draw(3) == 0) {
            const uint32_t computed = draw(end - from + 1);
            draft_finals_drop(&finals, computed);
            from += computed;
            check(&finals);
        }
    }
    draft_finals_close(&finals);
    CHECK(finals.vectors == NULL && finals.count == 0);
    CHECK(!draft_finals_add(&finals, 5, vectors[5], 1) && finals.count == 0);
}

int main(void)
{
    for (uint32_t round = 0; round < ROUNDS; round++)
        answer_run(draw(30));
    printf("%d answers\n", ROUNDS);
    return 0;
}
