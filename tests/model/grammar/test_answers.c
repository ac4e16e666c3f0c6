/* Goal: the state of an answer follows from its constraint and its delivered tokens, and the cache
 * keeps its bounds. Method: answers walk through a constraint with random tokens; at each step a
 * new answer that is given the tokens so far, in a cache of its own, has the same mask, also after
 * drafted tokens; the forced tokens are compared with the mask. Then more constraints than the
 * cache holds, wrong ones among them. */
#include "common/random.h"
#include "model/grammar/answers.h"
#include "model/grammar/turns.h"
#include "tests/check.h"
#include "tests/model/grammar/tokens.h"

#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define END 256u /* The control token of the vocabulary. */

static enum status vocabulary_make(void *self, struct grammar_vocabulary **out, struct error *error)
{
    if (self != NULL)
        return error_set(error, ST_NOT_FOUND, "%s", (const char *)self);
    return grammar_vocabulary_open(tokens_count(), tokens_piece, NULL, out, error);
}

static struct grammar_cache *cache_open(void)
{
    struct grammar_cache *cache;
    struct error error;
    CHECK(grammar_cache_open(vocabulary_make, NULL, &cache, &error) == ST_OK);
    return cache;
}

/* Without a vocabulary, each constraint fails with the reason. */
static void test_no_vocabulary(void)
{
    static char reason[] = "no tokenizer";
    struct grammar_cache *cache;
    struct grammar_answer *answer;
    struct error error;
    const uint32_t *mask;
    CHECK(grammar_cache_open(vocabulary_make, reason, &cache, &error) == ST_OK);
    grammar_cache_prepare(cache, "x", 1, 0);
    CHECK(grammar_answer_open(cache, "x", 1, NULL, 0, &answer) == ST_OK);
    CHECK(grammar_answer_mask(answer, NULL, 0, &mask, &error) == ST_NOT_FOUND);
    CHECK(strcmp(error.text, reason) == 0);
    grammar_answer_close(answer);
    grammar_cache_close(cache);
}

static struct grammar_answer *answer_open(struct grammar_cache *cache, const char *text,
                                          const uint32_t *tokens, uint32_t count)
{
    struct grammar_answer *answer;
    grammar_cache_prepare(cache, text, (uint32_t)strlen(text), 0);
    CHECK(grammar_answer_open(cache, text, (uint32_t)strlen(text), tokens, count, &answer) ==
          ST_OK);
    return answer;
}

static const uint32_t *mask_of(struct grammar_answer *answer)
{
    static const uint32_t ends[] = {END, 1000000};
    const uint32_t *mask;
    struct error error;
    enum status status = grammar_answer_mask(answer, ends, 2, &mask, &error);
    CHECKF(status == ST_OK, "%s", error.text);
    return mask;
}

#define TOKENS_MAX 64
#define DRAFT_MAX  6
#define MASK_BYTES (GRAMMAR_MASK_WORDS(tokens_count()) * sizeof(uint32_t))

static bool is_in(const uint32_t *mask, uint32_t id)
{
    return (mask[id / 32] >> id % 32 & 1) != 0;
}

/* Draws a token of the mask. */
static uint32_t draw_from(const uint32_t *mask, uint64_t seed, uint64_t at)
{
    uint32_t id = (uint32_t)(random_at(seed, at) % tokens_count());
    while (!is_in(mask, id))
        id = (id + 1) % tokens_count();
    return id;
}

/* After drafted tokens, the masks are those of an answer that has these tokens. Afterwards nothing
 * of the draft is left. */
static void check_draft(struct grammar_answer *answer, struct grammar_cache *other,
                        const char *text, const uint32_t *tokens, uint32_t count, uint64_t seed)
{
    uint32_t all[TOKENS_MAX + DRAFT_MAX], known = count;
    const uint32_t *first = mask_of(answer);
    uint32_t *before = malloc(MASK_BYTES);
    memcpy(before, first, MASK_BYTES);
    memcpy(all, tokens, count * sizeof(*tokens));
    while (known < count + DRAFT_MAX) {
        const uint32_t *mask = mask_of(answer);
        const uint32_t id = draw_from(mask, seed + 1, known), wrong = (id * 7 + 1) % tokens_count();
        if (id == END)
            break;
        uint32_t certain; /* Others than a certain token are not in the mask, but allowed. */
        CHECK(grammar_answer_forced(answer, &certain) == GRAMMAR_FORCED_TOKEN ||
              is_in(mask, wrong) || !grammar_answer_draft_add(answer, wrong));
        CHECK(grammar_answer_draft_add(answer, id));
        all[known++] = id;
        struct grammar_answer *again = answer_open(other, text, all, known);
        CHECK(memcmp(mask_of(again), mask_of(answer), MASK_BYTES) == 0);
        grammar_answer_close(again);
    }
    CHECK(memcmp(first, before, MASK_BYTES) == 0); /* It is still the mask before the draft. */
    grammar_answer_draft_drop(answer);
    CHECK(memcmp(mask_of(answer), before, MASK_BYTES) == 0);
    free(before);
}

/* The mask agrees with what is forced: a certain token is alone in it, and the tokens of a forced
 * text begin alike. Forced tokens may follow each other. Returns their number. */
static uint32_t check_forced(struct grammar_answer *answer)
{
    uint32_t count = 0;
    for (; count < DRAFT_MAX; count++) {
        const uint32_t *mask = mask_of(answer);
        uint32_t token, allowed = 0;
        char first[256], bytes[256];
        const enum grammar_forced forced = grammar_answer_forced(answer, &token);
        if (forced == GRAMMAR_FORCED_NONE)
            break;
        tokens_bytes(token, first);
        for (uint32_t id = 0; id < tokens_count(); id++) {
            if (!is_in(mask, id))
                continue;
            allowed++;
            tokens_bytes(id, bytes);
            CHECK(id != END && bytes[0] == first[0]);
            CHECK(forced != GRAMMAR_FORCED_TOKEN || id == token);
        }
        CHECK(is_in(mask, token) && allowed >= 1);
        CHECK(grammar_answer_allows(answer, token) && grammar_answer_draft_add(answer, token));
    }
    grammar_answer_draft_drop(answer);
    return count;
}

static uint32_t test_replay(uint64_t seed, const char *text)
{
    struct grammar_cache *cache = cache_open(), *other = cache_open();
    uint32_t tokens[TOKENS_MAX], count = 0, forced = 0;
    grammar_cache_prepare(cache, text, (uint32_t)strlen(text), 0);
    struct grammar_answer *answer = answer_open(cache, text, NULL, 0);
    for (;;) {
        const uint32_t *mask = mask_of(answer);
        struct grammar_answer *again = answer_open(other, text, tokens, count / 2);
        for (uint32_t i = count / 2; i < count; i++)
            grammar_answer_add(again, tokens[i]); /* some as RESERVE brings them, some later */
        CHECK(memcmp(mask_of(again), mask, MASK_BYTES) == 0);
        grammar_answer_close(again);
        check_draft(answer, other, text, tokens, count, seed);
        forced += check_forced(answer);
        uint32_t id = draw_from(mask, seed, count);
        if (id == END || count == TOKENS_MAX)
            break;
        tokens[count++] = id;
        grammar_answer_add(answer, id);
    }
    grammar_answer_close(answer);
    grammar_cache_close(cache);
    grammar_cache_close(other);
    return forced;
}

static void test_errors(void)
{
    static const uint32_t wrong[] = {'x'};
    struct grammar_cache *cache = cache_open();
    const uint32_t *mask;
    struct error error = {0};
    struct grammar_answer *answer = answer_open(cache, "regex:(", NULL, 0);
    CHECK(grammar_answer_mask(answer, NULL, 0, &mask, &error) == ST_INVALID);
    CHECK(strstr(error.text, "without )") != NULL);
    grammar_answer_close(answer);
    answer = answer_open(cache, "regex:ab", wrong, 1); /* tokens that contradict the constraint */
    CHECK(grammar_answer_mask(answer, NULL, 0, &mask, &error) == ST_INVALID);
    grammar_answer_close(answer);
    answer =
        answer_open(cache, "regex:", NULL, 0); /* nothing may follow, and there is no end token */
    CHECK(grammar_answer_mask(answer, NULL, 0, &mask, &error) == ST_UNSUPPORTED);
    grammar_answer_close(answer);
    answer = answer_open(NULL, "regex:a", NULL, 0);
    CHECK(grammar_answer_mask(answer, NULL, 0, &mask, &error) == ST_UNSUPPORTED);
    grammar_answer_add(answer, 'a');
    grammar_answer_close(answer);
    answer = answer_open(cache, "regex:a", NULL, 0); /* never used: closed without a run */
    grammar_answer_close(answer);
    grammar_cache_close(cache);
}

/* An answer whose constraint is not in the cache begins no compilation, for which the event loop
 * would wait: it fails. */
static void test_unprepared(void)
{
    const char text[] = "regex:never";
    struct grammar_cache *cache = cache_open();
    struct grammar_answer *answer;
    const uint32_t *mask;
    struct error error = {0};
    CHECK(grammar_answer_open(cache, text, sizeof(text) - 1, NULL, 0, &answer) == ST_OK);
    CHECK(grammar_answer_mask(answer, NULL, 0, &mask, &error) == ST_NO_RESOURCE);
    CHECK(strstr(error.text, "the constraints of other answers") != NULL);
    grammar_answer_close(answer);
    grammar_cache_close(cache);
}

/* Many constraints, some in use: those in use stay right, the others make room. */
static void test_many(void)
{
    struct grammar_cache *cache = cache_open();
    struct grammar_answer *kept = answer_open(cache, "regex:kept[0-9]*", NULL, 0);
    const char word[] = "kept";
    (void)mask_of(kept);
    for (uint32_t i = 0; i < 600; i++) {
        char text[64];
        snprintf(text, sizeof(text), "regex:(%u|x)[a-z]{1,%u}", i, i + 1);
        grammar_cache_prepare(cache, text, (uint32_t)strlen(text), 0);
        struct grammar_answer *answer = answer_open(cache, text, NULL, 0);
        const uint32_t *mask = mask_of(answer);
        snprintf(text, sizeof(text), "%u", i);
        CHECK((mask[(uint8_t)text[0] / 32] >> text[0] % 32 & 1) == 1);
        grammar_answer_close(answer);
    }
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t *mask = mask_of(kept);
        CHECK((mask[(uint8_t)word[i] / 32] >> word[i] % 32 & 1) == 1);
        grammar_answer_add(kept, (uint8_t)word[i]);
    }
    const uint32_t *mask = mask_of(kept);
    CHECK((mask[END / 32] >> END % 32 & 1) == 1 && (mask['5' / 32] >> '5' % 32 & 1) == 1);
    grammar_answer_close(kept);
    grammar_cache_close(cache);
}

/* Returns true if an answer of the constraint gets a mask, false if the cache has no room. */
static bool answer_fits(struct grammar_cache *cache, const char *text, struct grammar_answer **out)
{
    const uint32_t *mask, end = END;
    struct error error;
    while (!grammar_cache_prepare(cache, text, (uint32_t)strlen(text), 0))
        sched_yield();
    *out = answer_open(cache, text, NULL, 0);
    const enum status status = grammar_answer_mask(*out, &end, 1, &mask, &error);
    CHECKF(status == ST_OK || status == ST_NO_RESOURCE, "%s", error.text);
    return status == ST_OK;
}

/* However many large constraints are in use, there is room for small ones. */
static void test_large(void)
{
    enum { DOTS = 3000, ANSWERS = 120 };
    static char text[DOTS + 64];
    struct grammar_cache *cache = cache_open();
    struct grammar_answer *answers[ANSWERS], *small;
    uint32_t count = 0;
    for (bool fits = true; fits; count++) {
        CHECK(count < ANSWERS);
        int at = snprintf(text, sizeof(text), "regex:%u", count);
        memset(text + at, '.', DOTS);
        fits = answer_fits(cache, text, &answers[count]);
    }
    CHECKF(count > 20, "%u large constraints", count);
    for (uint32_t i = 0; i < 40; i++) {
        snprintf(text, sizeof(text), "regex:%u[a-z]{1,50}", i);
        CHECKF(answer_fits(cache, text, &small), "%s", text);
        grammar_answer_close(small);
    }
    for (uint32_t i = 0; i < count; i++)
        grammar_answer_close(answers[i]);
    int at = snprintf(text, sizeof(text), "regex:again");
    memset(text + at, '.', DOTS);
    CHECK(answer_fits(cache, text, &small));
    grammar_answer_close(small);
    grammar_cache_close(cache);
}

/* Constraints in use that have grown make room. */
static void test_grown(void)
{
    enum { ANSWERS = 40, TOKENS = 14000, LETTERS = 60 };
    struct grammar_cache *cache = cache_open();
    struct grammar_answer *answers[ANSWERS], *last;
    for (uint32_t i = 0; i < ANSWERS; i++) {
        char text[5 * LETTERS];
        int at = snprintf(text, sizeof(text), "regex:(?:[ab]*a");
        for (uint32_t k = 0; k < LETTERS; k++)
            at += snprintf(text + at, sizeof(text) - (size_t)at, "[ab]");
        snprintf(text + at, sizeof(text) - (size_t)at, "|%u)", i);
        CHECKF(answer_fits(cache, text, &answers[i]), "answer %u", i);
        for (uint64_t k = 0; k < TOKENS; k++)
            grammar_answer_add(answers[i], random_at(i, k) % 2 == 0 ? 'a' : 'b');
    }
    CHECK(answer_fits(cache, "regex:[a-z]{1,50}", &last));
    grammar_answer_close(last);
    for (uint32_t i = 0; i < ANSWERS; i++) {
        CHECK((mask_of(answers[i])['a' / 32] >> 'a' % 32 & 1) == 1);
        grammar_answer_close(answers[i]);
    }
    grammar_cache_close(cache);
}

/* The descriptor tells of the end of a compilation, and the constraint of an open answer stays,
 * even if the answer was never asked for a mask, while thousands of others come and go. */
static void test_prepared(void)
{
    const char text[] = "regex:early[a-z]{1,50}";
    struct grammar_cache *cache = cache_open();
    struct pollfd fd = {.fd = grammar_cache_fd(cache), .events = POLLIN};
    CHECK(!grammar_cache_ended(cache) && poll(&fd, 1, 0) == 0);
    while (!grammar_cache_prepare(cache, text, sizeof(text) - 1, 0))
        CHECK(poll(&fd, 1, 60000) == 1);
    CHECK(poll(&fd, 1, 60000) == 1);
    while (!grammar_cache_ended(cache))
        sched_yield(); /* the descriptor is written first */
    CHECK(!grammar_cache_ended(cache) && poll(&fd, 1, 0) == 0);
    struct grammar_answer *answer = answer_open(cache, text, NULL, 0);
    for (uint32_t i = 0; i < 5000; i++) {
        char other[32];
        int bytes = snprintf(other, sizeof(other), "regex:%u", i);
        grammar_cache_prepare(cache, other, (uint32_t)bytes, 0);
        while (i % 500 == 0 && !grammar_cache_prepare(cache, other, (uint32_t)bytes, 0))
            CHECK(poll(&fd, 1, 60000) == 1 && (grammar_cache_ended(cache) || true));
    }
    CHECK(grammar_cache_prepare(cache, text, sizeof(text) - 1, 0));
    CHECK((mask_of(answer)['e' / 32] >> 'e' % 32 & 1) == 1);
    grammar_answer_close(answer);
    grammar_cache_close(cache);
    CHECK(grammar_cache_prepare(NULL, text, sizeof(text) - 1, 0) && !grammar_cache_ended(NULL));
}

/* Keys take turns: A's constraints, which came first, let one of each other key go before the
 * next. */
static void test_turns(uint64_t seed)
{
    static struct turns turns;
    const char *keys = "AAAABABC", *order = "ABCABAAA";
    struct turns_item items[8];
    for (uint32_t i = 0; i < 8; i++) {
        items[i].key = (uint64_t)keys[i];
        turns_push(&turns, &items[i]);
    }
    for (uint32_t i = 0; i < 8; i++)
        CHECK(turns_pop(&turns)->key == (uint64_t)order[i]);
    CHECK(turns.count == 0);
    /* While a key floods the queue, an item of another key is behind at most one of them. */
    static struct turns_item flood[TURNS_MAX - 1];
    struct turns_item other = {.key = 2};
    uint32_t pushed = 0, popped = 0, ahead = 0;
    while (pushed < TURNS_MAX - 1) {
        flood[pushed].key = 1;
        turns_push(&turns, &flood[pushed++]);
        if (random_at(seed, pushed) % 3 == 0)
            CHECK(turns_pop(&turns) == &flood[popped++]);
    }
    turns_push(&turns, &other);
    for (; turns_pop(&turns) != &other; ahead++)
        popped++;
    CHECK(ahead <= 1 && turns.count == pushed - popped);
}

int main(void)
{
    uint64_t seed = test_seed();
    test_turns(seed);
    test_replay(seed, "json_schema:{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"array\","
                      "\"items\":{\"type\":\"string\",\"maxLength\":5}},\"b\":{}}}");
    test_replay(seed + 1, "json_object:");
    test_replay(seed + 2, "grammar:root ::= \"(\" root* \")\" | [a-c]+");
    const uint32_t forced = test_replay(
        seed + 3, "json_schema:{\"type\":\"object\",\"properties\":{\"first\":{\"enum\":[1,2]},"
                  "\"second\":{\"const\":true}},\"required\":[\"first\",\"second\"],"
                  "\"additionalProperties\":false}");
    CHECK(forced > 0);
    test_errors();
    test_no_vocabulary();
    test_unprepared();
    test_many();
    test_large();
    test_grown();
    test_prepared();
    return 0;
}
