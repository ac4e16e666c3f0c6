/* Goal: no constraint keeps a machine from its other work. A short constraint can make a state of
 * the automaton cost 0.5 ms, and a mask need tens of thousands of states: before its work was
 * bounded, one mask took many seconds, in which the machine's peers gave the machine up. Method: a
 * vocabulary of all texts of one to three small letters. Hostile constraints must end with an error
 * before their work exceeds the bounds; ordinary constraints must go on without end, also beside
 * hostile ones in the same batch. */
#include "model/grammar/answers.h"
#include "tests/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LETTERS 26u
#define TOKENS  (LETTERS + LETTERS * LETTERS + LETTERS * LETTERS * LETTERS)
/* One computed state, which is not interrupted, and a walk over the vocabulary's tree. */
#define OVERSHOOT  (1u << 20)
#define STEPS      400
#define ANSWERS    64
#define BITS       4u
#define EMPTY_MANY 5200 /* Empty alternatives: with more, a state has too many places. */
#define EMPTY_FEW  150

static const char *piece_of(const void *self, uint32_t id, size_t *bytes_out, bool *control_out)
{
    static char text[3];
    (void)self, (void)control_out;
    const uint32_t pairs = LETTERS * LETTERS;
    *bytes_out = id < LETTERS ? 1 : id < LETTERS + pairs ? 2 : 3;
    id -= *bytes_out == 1 ? 0 : *bytes_out == 2 ? LETTERS : LETTERS + pairs;
    for (size_t i = 0; i < *bytes_out; i++, id /= LETTERS)
        text[i] = (char)('a' + id % LETTERS);
    return text;
}

static enum status vocabulary_make(void *self, struct grammar_vocabulary **out, struct error *error)
{
    (void)self;
    return grammar_vocabulary_open(TOKENS, piece_of, NULL, out, error);
}

/* Writes a regular expression whose states remember BITS bits of each of the last letters, and cost
 * much: `empties` empty alternatives come before each letter. `number` makes expressions different.
 */
static void hostile_write(char *out, size_t capacity, int empties, int number)
{
    char *at = out, *end = out + capacity;
    at += snprintf(at, capacity, "regex:(?:(?:");
    CHECK(at + empties < end);
    memset(at, '|', (size_t)empties);
    at += empties;
    at += snprintf(at, (size_t)(end - at), ")[a-z])*(?:x{%d}", 1000 + number);
    for (uint32_t bit = 0; bit < BITS; bit++) {
        at += snprintf(at, (size_t)(end - at), "|[");
        for (uint32_t letter = 0; letter < LETTERS && at < end; letter++)
            if ((letter >> bit & 1) != 0)
                *at++ = (char)('a' + letter);
        at += snprintf(at, (size_t)(end - at), "]");
        for (int i = 0; i < 20; i++)
            at += snprintf(at, (size_t)(end - at), "[a-z]");
    }
    CHECK(snprintf(at, (size_t)(end - at), ")") < end - at);
}

/* Returns the first token of the mask from `id` on. */
static uint32_t token_from(const uint32_t *mask, uint32_t id)
{
    id %= TOKENS;
    while ((mask[id / 32] >> id % 32 & 1) == 0)
        id = (id + 1) % TOKENS;
    return id;
}

/* Follows an answer. Returns the status of the mask or token that was not there, or ST_OK after
 * STEPS tokens. Checks the work of each. */
static enum status follow(const struct grammar_vocabulary *vocabulary, const char *constraint)
{
    static uint32_t mask[GRAMMAR_MASK_WORDS(TOKENS)];
    struct grammar *g;
    struct grammar_run *run;
    struct error error = {0};
    enum status status = ST_OK;
    CHECKF(grammar_open(constraint, strlen(constraint), vocabulary, &g, &error) == ST_OK, "%s",
           error.text);
    CHECK(grammar_run_open(g, &run, &error) == ST_OK);
    for (uint32_t step = 0; step < STEPS && status == ST_OK; step++) {
        const uint64_t before = grammar_work(g);
        status = grammar_run_mask(run, mask, &error);
        const uint64_t used = grammar_work(g) - before;
        CHECKF(used <= GRAMMAR_WORK_MASK_MAX + OVERSHOOT, "step %u: %llu units", step,
               (unsigned long long)used);
        if (status == ST_OK)
            status = grammar_run_token(run, token_from(mask, 5003 * step), &error);
        CHECKF(grammar_work(g) <=
                   GRAMMAR_WORK_SAVED_MAX + OVERSHOOT + (step + 2ull) * 2 * GRAMMAR_WORK_TOKEN,
               "step %u: %llu units", step, (unsigned long long)grammar_work(g));
    }
    CHECK(status == ST_OK || strstr(error.text, "too much time") != NULL);
    grammar_run_close(run);
    grammar_close(g);
    return status;
}

static void test_follow(void)
{
    struct grammar_vocabulary *vocabulary;
    struct error error;
    char text[8192];
    CHECK(vocabulary_make(NULL, &vocabulary, &error) == ST_OK);
    hostile_write(text, sizeof(text), EMPTY_MANY, 0);
    CHECK(follow(vocabulary, text) == ST_TOO_LARGE);
    CHECK(follow(vocabulary, "regex:[a-z]{2000}") == ST_OK);
    CHECK(follow(vocabulary, "regex:(?:[a-y]{1,12}z){1000}") == ST_OK);
    CHECK(follow(vocabulary, "regex:[a-z]*[a-m][a-z]{4}") == ST_OK);
    grammar_vocabulary_close(vocabulary);
}

/* Returns the status of the first mask of an answer to a new constraint. */
static enum status first_mask(struct grammar_cache *cache, const char *text,
                              struct grammar_answer **answer_out)
{
    const uint32_t *mask;
    struct error error = {0};
    (void)grammar_cache_prepare(cache, text, (uint32_t)strlen(text), 0);
    CHECK(grammar_answer_open(cache, text, (uint32_t)strlen(text), NULL, 0, answer_out) == ST_OK);
    enum status status = grammar_answer_mask(*answer_out, NULL, 0, &mask, &error);
    CHECKF(status == ST_OK || status == ST_TOO_LARGE, "%s", error.text);
    return status;
}

/* Many costly masks in one batch: the first ones are made, later ones are not. */
static void test_batch(void)
{
    struct grammar_cache *cache;
    struct grammar_answer *answers[ANSWERS + 2];
    struct error error;
    char text[8192];
    uint32_t made = 0;
    CHECK(grammar_cache_open(vocabulary_make, NULL, &cache, &error) == ST_OK);
    grammar_cache_batch_begin(cache);
    for (int i = 0; i < ANSWERS; i++) {
        hostile_write(text, sizeof(text), EMPTY_FEW, i);
        const bool good = first_mask(cache, text, &answers[i]) == ST_OK;
        CHECKF(!good || made == (uint32_t)i, "answer %d has a mask, an earlier one has none", i);
        made += good;
    }
    CHECKF(made > 4 && made < ANSWERS, "%u masks", made);
    CHECK(first_mask(cache, "regex:[a-z]{2000}", &answers[ANSWERS]) == ST_OK);
    grammar_cache_batch_begin(cache);
    hostile_write(text, sizeof(text), EMPTY_FEW, ANSWERS);
    CHECK(first_mask(cache, text, &answers[ANSWERS + 1]) == ST_OK);
    for (int i = 0; i < ANSWERS + 2; i++)
        grammar_answer_close(answers[i]);
    grammar_cache_close(cache);
}

int main(void)
{
    test_follow();
    test_batch();
    return 0;
}
