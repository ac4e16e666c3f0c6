/* Goal: a draft is what followed the latest of the places that share most tokens with the end of
 * the context, places with DRAFT_MATCH_GOOD equal tokens first; and no draft begins with a token
 * that is not allowed. Method: random contexts of few different tokens. The short ones are compared
 * with a search of all places; in the long ones, each draft must have a source that shares as many
 * tokens as reported. Then shapes, a period, a context without repeats, and an index without memory. */
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

/* Every token is allowed except `self`. */
static bool is_allowed(void *self, uint32_t token)
{
    return token != *(const uint32_t *)self;
}

/* What a search of all places finds. */
struct expected {
    uint32_t longest; /* 0 = no place. */
    uint32_t best;    /* The latest place that shares most tokens. */
    uint32_t places;
    uint32_t common; /* First tokens of the draft that follow every place. */
    bool found;      /* A place shares `matched` tokens, and the draft is from there. */
};

/* Searches the places that share at least `least` tokens with the end of the context. */
static struct expected search(const uint32_t *tokens, uint32_t last, uint32_t least,
                              uint32_t forbidden, uint32_t matched, const uint32_t *draft)
{
    struct expected expected = {.common = DRAFT_TOKENS};
    for (uint32_t place = 0; place < last; place++) {
        uint32_t equal = shared(tokens, place, last), same = 0;
        if (equal < least || tokens[place + 1] == forbidden)
            continue;
        while (matched > 0 && same < DRAFT_TOKENS &&
               draft[same] == follower(tokens, place, last, same))
            same++;
        expected.places++;
        expected.common = same < expected.common ? same : expected.common;
        if (equal >= expected.longest) {
            expected.longest = equal;
            expected.best = place;
        }
        expected.found |= equal == matched && draft_is_from(tokens, place, last, draft);
    }
    return expected;
}

/* Stores the `most` tokens after the source. Returns the source's equal tokens; 0 = no source. */
static uint32_t draft_find(const struct draft_index *index, const uint32_t *tokens, uint32_t most,
                           draft_allows allows, void *self, uint32_t *out, uint32_t *agreed_out)
{
    struct draft_source source;
    if (!draft_source_find(index, tokens, index->count, 0, most, allows, self, &source))
        return 0;
    for (uint32_t i = 0; i < most; i++)
        out[i] = draft_token_after(tokens, source.place, index->count, i);
    *agreed_out = source.agreed;
    return source.equal;
}

static void check_draft(const struct draft_index *index, const uint32_t *tokens, uint32_t count,
                        uint32_t forbidden)
{
    uint32_t draft[DRAFT_TOKENS] = {0}, last = count - 1, agreed = 0;
    uint32_t matched =
        draft_find(index, tokens, DRAFT_TOKENS, is_allowed, &forbidden, draft, &agreed);
    struct expected expected = search(tokens, last, DRAFT_MATCH_GOOD, forbidden, matched, draft);
    /* In a long context, good places that were not compared may be the only ones that are
     * allowed. */
    if (expected.places == 0 || (matched > 0 && matched < DRAFT_MATCH_GOOD && count > SHORT))
        expected = search(tokens, last, 1, forbidden, matched, draft);
    CHECK(matched == 0 || draft[0] != forbidden);
    CHECK(matched == 0 || expected.found);
    CHECK(matched <= expected.longest);
    /* In a long context, places that were not compared may disagree. */
    if (matched > 0 && (count <= SHORT || expected.places == 1))
        CHECK(agreed == (expected.places == 1 ? 0 : expected.common));
    if (count <= SHORT)
        CHECK(matched == expected.longest &&
              (matched == 0 || draft_is_from(tokens, expected.best, last, draft)));
}

static void check_random(void)
{
    static uint32_t tokens[CONTEXT_MAX + DRAFT_TOKENS];
    uint64_t draws = 0;
    for (uint32_t run = 0; run < 400; run++) {
        uint32_t count = run % 2 == 0 ? SHORT : CONTEXT_MAX, kinds = 2 + run % 5;
        struct draft_index index;
        draft_index_open(&index, count, false);
        for (uint32_t known = 1; known <= count; known++) {
            tokens[known - 1] = (uint32_t)(random_at(9, draws++) % kinds) * 1000;
            /* Some tokens are added together, as those of a prompt or of a draft are. */
            if (random_at(10, draws) % 3 == 0)
                continue;
            draft_index_add(&index, tokens, known);
            check_draft(&index, tokens, known, UINT32_MAX);
            check_draft(&index, tokens, known, 1000);
        }
        draft_index_close(&index);
    }
}

static void check_by_hand(void)
{
    uint32_t tokens[64] = {7, 8, 9, 7, 8, 9}, draft[4], agreed;
    struct draft_index index;
    draft_index_open(&index, 64, false);
    draft_index_add(&index, tokens, 2);
    CHECK(draft_find(&index, tokens, 4, NULL, NULL, draft, &agreed) == 0);
    draft_index_add(&index, tokens, 6);
    CHECK(draft_find(&index, tokens, 0, NULL, NULL, draft, &agreed) == 0);
    /* The draft may be stored behind the context, and it goes on with itself. */
    CHECK(draft_find(&index, tokens, 4, NULL, NULL, tokens + 6, &agreed) == 3);
    const uint32_t want[4] = {7, 8, 9, 7};
    CHECK(memcmp(tokens + 6, want, sizeof(want)) == 0);
    CHECK(agreed == 0); /* There is one place. */
    draft_index_close(&index);

    /* 1 2 3 is followed by 4 5 and by 4 6: both agree on one token. */
    const uint32_t twice[] = {1, 2, 3, 4, 5, 1, 2, 3, 4, 6, 1, 2, 3};
    memcpy(tokens, twice, sizeof(twice));
    draft_index_open(&index, 64, false);
    draft_index_add(&index, tokens, 13);
    CHECK(draft_find(&index, tokens, 4, NULL, NULL, draft, &agreed) == 3);
    CHECK(draft[0] == 4 && draft[1] == 6 && agreed == 1);
    draft_index_close(&index);

    /* One equal token is a place, too, if no place has more; the latest one that is allowed. */
    const uint32_t single[] = {1, 5, 6, 1, 7, 8, 9, 1};
    uint32_t forbidden = 7;
    memcpy(tokens, single, sizeof(single));
    draft_index_open(&index, 64, false);
    draft_index_add(&index, tokens, 8);
    CHECK(draft_find(&index, tokens, 2, NULL, NULL, draft, &agreed) == 1);
    CHECK(draft[0] == 7 && draft[1] == 8 && agreed == 0);
    CHECK(draft_find(&index, tokens, 2, is_allowed, &forbidden, draft, &agreed) == 1);
    CHECK(draft[0] == 5 && draft[1] == 6 && agreed == 0);
    draft_index_close(&index);

    for (uint32_t i = 0; i < 64; i++)
        tokens[i] = i;
    draft_index_open(&index, 64, false);
    draft_index_add(&index, tokens, 64);
    CHECK(draft_find(&index, tokens, 4, NULL, NULL, draft, &agreed) == 0);
    draft_index_close(&index);

    draft_index_add(&index, tokens, 64); /* closed */
    CHECK(draft_find(&index, tokens, 4, NULL, NULL, draft, &agreed) == 0);
}

/* A place with the shape of the context is a source without equal tokens; and drafted tokens are a
 * part of the context. */
static void check_shapes(void)
{
    uint32_t tokens[64] = {1, 50, 2, 3, 51, 2};
    const uint32_t shapes[6] = {100, 200, 0, 100, 200, 0};
    struct draft_index index;
    struct draft_source source;
    draft_index_open(&index, 64, true);
    for (uint32_t i = 0; i < 6; i++)
        draft_index_shape_set(&index, i, shapes[i]);
    draft_index_add(&index, tokens, 5);
    CHECK(draft_source_find(&index, tokens, 5, 200, 8, NULL, NULL, &source));
    CHECK(source.place == 1 && source.equal == 0 && source.has_shape && source.agreed == 0);
    CHECK(!draft_source_find(&index, tokens, 5, 0, 8, NULL, NULL, &source));
    CHECK(!draft_source_find(&index, tokens, 5, 300, 8, NULL, NULL, &source));
    draft_index_add(&index, tokens, 6);
    CHECK(draft_source_find(&index, tokens, 6, 0, 8, NULL, NULL, &source));
    CHECK(source.place == 2 && source.equal == 1 && !source.has_shape);
    /* Two drafted tokens follow: 9, and 50 with the shape of the places 1 and 4. */
    tokens[6] = 9;
    tokens[7] = 50;
    CHECK(draft_source_find(&index, tokens, 8, 200, 8, NULL, NULL, &source));
    CHECK(source.place == 1 && source.equal == 1 && source.has_shape && source.agreed == 1);
    draft_index_close(&index);
}

int main(void)
{
    check_random();
    check_by_hand();
    check_shapes();
    return 0;
}
