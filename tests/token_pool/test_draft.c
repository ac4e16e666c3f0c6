/* Goal: a draft is what followed the latest of the places that share most tokens with the end of
 * the context. Method: random contexts of few different tokens. The short ones are compared with a
 * search of all places; in the long ones, each draft must have a source that shares as many tokens
 * as reported. Then a period, a context without repeats, and an index without memory. */
#include "common/random.h"
#include "tests/check.h"
#include "token_pool/draft.h"

#include <stdbool.h>
#include <string.h>

#define CONTEXT_MAX  600
#define DRAFT_TOKENS 16
/* Contexts of at most this many tokens have no more places than a look-up compares. */
#define SHORT 18

static uint32_t shared(const uint32_t *tokens, uint32_t place, uint32_t last)
{
    uint32_t count = 0;
    while (count < DRAFT_MATCH_MAX && count <= place &&
           tokens[place - count] == tokens[last - count])
        count++;
    return count;
}

/* The token that follows `source` if the context goes on with period last - source. */
static uint32_t follower(const uint32_t *tokens, uint32_t source, uint32_t last, uint32_t i)
{
    return tokens[source + 1 + i % (last - source)];
}

static bool draft_is_from(const uint32_t *tokens, uint32_t source, uint32_t last,
                          const uint32_t *draft)
{
    for (uint32_t i = 0; i < DRAFT_TOKENS; i++)
        if (draft[i] != follower(tokens, source, last, i))
            return false;
    return true;
}

static void check_draft(const struct draft_index *index, const uint32_t *tokens, uint32_t count)
{
    uint32_t draft[DRAFT_TOKENS], longest = 0, best = 0, last = count - 1, agreed = 0, places = 0;
    uint32_t common = DRAFT_TOKENS; /* First tokens of the draft that follow every place. */
    bool found = false;
    uint32_t matched = draft_find(index, tokens, DRAFT_TOKENS, draft, &agreed);
    for (uint32_t place = 0; place < last; place++) {
        uint32_t equal = shared(tokens, place, last), same = 0;
        while (matched > 0 && same < DRAFT_TOKENS &&
               draft[same] == follower(tokens, place, last, same))
            same++;
        places += equal >= DRAFT_MATCH_MIN ? 1 : 0;
        common = equal >= DRAFT_MATCH_MIN && same < common ? same : common;
        if (equal >= DRAFT_MATCH_MIN && equal >= longest) {
            longest = equal;
            best = place;
        }
        found |= matched > 0 && equal == matched && draft_is_from(tokens, place, last, draft);
    }
    CHECK((matched == 0) == (longest == 0));
    CHECK(matched == 0 || found);
    CHECK(matched <= longest);
    /* In a long context, places that were not compared may disagree. */
    if (matched > 0 && (count <= SHORT || places == 1))
        CHECK(agreed == (places == 1 ? 0 : common));
    if (count <= SHORT)
        CHECK(matched == longest && (matched == 0 || draft_is_from(tokens, best, last, draft)));
}

static void check_random(void)
{
    static uint32_t tokens[CONTEXT_MAX + DRAFT_TOKENS];
    uint64_t draws = 0;
    for (uint32_t run = 0; run < 400; run++) {
        uint32_t count = run % 2 == 0 ? SHORT : CONTEXT_MAX, kinds = 2 + run % 5;
        struct draft_index index;
        draft_index_open(&index, count);
        for (uint32_t known = 1; known <= count; known++) {
            tokens[known - 1] = (uint32_t)(random_at(9, draws++) % kinds) * 1000;
            /* Some tokens are added together, as those of a prompt or of a draft are. */
            if (random_at(10, draws) % 3 == 0)
                continue;
            draft_index_add(&index, tokens, known);
            check_draft(&index, tokens, known);
        }
        draft_index_close(&index);
    }
}

static void check_by_hand(void)
{
    uint32_t tokens[64] = {7, 8, 9, 7, 8, 9}, draft[4], agreed;
    struct draft_index index;
    draft_index_open(&index, 64);
    draft_index_add(&index, tokens, 2);
    CHECK(draft_find(&index, tokens, 4, draft, &agreed) == 0);
    draft_index_add(&index, tokens, 6);
    CHECK(draft_find(&index, tokens, 0, draft, &agreed) == 0);
    /* The draft may be stored behind the context, and it goes on with itself. */
    CHECK(draft_find(&index, tokens, 4, tokens + 6, &agreed) == 3);
    const uint32_t want[4] = {7, 8, 9, 7};
    CHECK(memcmp(tokens + 6, want, sizeof(want)) == 0);
    CHECK(agreed == 0); /* There is one place. */
    draft_index_close(&index);

    /* 1 2 3 is followed by 4 5 and by 4 6: both agree on one token. */
    const uint32_t twice[] = {1, 2, 3, 4, 5, 1, 2, 3, 4, 6, 1, 2, 3};
    memcpy(tokens, twice, sizeof(twice));
    draft_index_open(&index, 64);
    draft_index_add(&index, tokens, 13);
    CHECK(draft_find(&index, tokens, 4, draft, &agreed) == 3);
    CHECK(draft[0] == 4 && draft[1] == 6 && agreed == 1);
    draft_index_close(&index);

    for (uint32_t i = 0; i < 64; i++)
        tokens[i] = i;
    draft_index_open(&index, 64);
    draft_index_add(&index, tokens, 64);
    CHECK(draft_find(&index, tokens, 4, draft, &agreed) == 0);
    draft_index_close(&index);

    draft_index_add(&index, tokens, 64); /* closed */
    CHECK(draft_find(&index, tokens, 4, draft, &agreed) == 0);
}

int main(void)
{
    check_random();
    check_by_hand();
    return 0;
}
