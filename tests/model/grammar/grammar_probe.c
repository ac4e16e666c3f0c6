/* grammar_probe: reads questions about constraints, one JSON object a line, and answers each with a
 * line. Python tests ask it (grammar_schema_test.py):
 *
 *   {"constraint": TEXT, "texts": [TEXT, …], "walks": N, "seed": N}
 *   → {"error": null or TEXT, "accepted": [true, …], "walks": [TEXT, …], "unfinished": N}
 *
 * A walk draws random tokens among those that the mask allows, until the constraint ends the text.
 * On its way it compares some masks with what the automaton says about each token. */
#include "common/random.h"
#include "model/grammar/grammar.h"
#include "tests/check.h"
#include "tests/model/grammar/tokens.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define WALK_TOKENS 3000

static uint64_t draws;

static uint32_t draw(uint64_t seed, uint32_t below)
{
    return (uint32_t)(random_at(seed, draws++) % below);
}

/* Checks the mask against a run of its own for every token. */
static void mask_check(struct grammar *g, const char *text, size_t bytes, const uint32_t *mask)
{
    for (uint32_t id = 0; id < tokens_count(); id++) {
        struct grammar_run *run;
        struct error error;
        CHECK(grammar_run_open(g, &run, &error) == ST_OK);
        CHECK(grammar_run_bytes(run, text, bytes, &error) == ST_OK);
        bool allowed = grammar_run_token(run, id, &error) == ST_OK;
        CHECKF(allowed == (mask[id / 32] >> id % 32 & 1), "token %u behind %.*s", id, (int)bytes,
               text);
        grammar_run_close(run);
    }
}

/* A token of the mask: often a short one, often one that ends something. Returns UINT32_MAX if the
 * mask is empty. */
static uint32_t choose(const uint32_t *mask, uint64_t seed, bool hurry)
{
    static const char enders[] = "\"}],:";
    uint32_t allowed[4096], count = 0;
    for (uint32_t i = 0; i < sizeof(enders) - 1 && (hurry || draw(seed, 4) == 0); i++)
        if (mask[(uint8_t)enders[i] / 32] >> (uint8_t)enders[i] % 32 & 1)
            return (uint8_t)enders[i];
    for (uint32_t id = 0; id < tokens_count(); id++)
        if (mask[id / 32] >> id % 32 & 1)
            allowed[count++] = id;
    return count > 0 ? allowed[draw(seed, count)] : UINT32_MAX;
}

/* Returns the text, NULL if the walk did not come to an end. */
static json_t *walk(struct grammar *g, uint64_t seed)
{
    static uint32_t mask[1024];
    static char text[WALK_TOKENS * 32];
    struct grammar_run *run;
    struct error error;
    size_t bytes = 0;
    bool ended = false;
    CHECKF(grammar_run_open(g, &run, &error) == ST_OK, "%s", error.text);
    for (uint32_t i = 0; i < WALK_TOKENS && !ended; i++) {
        enum status status = grammar_run_mask(run, mask, &error);
        if (status == ST_TOO_LARGE)
            break;
        CHECKF(status == ST_OK, "%s", error.text);
        if (draw(seed, 100) == 0 && bytes < 2000)
            mask_check(g, text, bytes, mask);
        bool accepts = grammar_run_may_end(run);
        uint32_t id = choose(mask, seed, i > 300);
        CHECKF(id != UINT32_MAX || accepts, "no way on behind %.*s", (int)bytes, text);
        CHECK(id != UINT32_MAX || grammar_run_may_end(run));
        ended = id == UINT32_MAX || (accepts && draw(seed, 3) == 0);
        if (ended)
            break;
        status = grammar_run_token(run, id, &error);
        if (status == ST_TOO_LARGE)
            break;
        CHECKF(status == ST_OK, "%s", error.text);
        char piece[256];
        size_t count = tokens_bytes(id, piece);
        memcpy(text + bytes, piece, count);
        bytes += count;
    }
    grammar_run_close(run);
    json_t *made = json_stringn(text, bytes);
    CHECKF(!ended || made != NULL, "not UTF-8: %.*s", (int)bytes, text);
    if (!ended) {
        json_decref(made);
        made = NULL;
    }
    return made;
}

static bool accepts(struct grammar *g, const char *text, size_t bytes)
{
    struct grammar_run *run;
    CHECK(grammar_run_open(g, &run, NULL) == ST_OK);
    bool good = grammar_run_bytes(run, text, bytes, NULL) == ST_OK && grammar_run_may_end(run);
    grammar_run_close(run);
    return good;
}

static void answer(const json_t *question, const struct grammar_vocabulary *vocabulary)
{
    const json_t *constraint = json_object_get(question, "constraint"), *text;
    json_t *accepted = json_array(), *walks = json_array();
    struct grammar *g = NULL;
    struct error error;
    size_t i;
    json_int_t unfinished = 0;
    uint64_t seed = (uint64_t)json_integer_value(json_object_get(question, "seed"));
    enum status status = grammar_open(json_string_value(constraint), json_string_length(constraint),
                                      vocabulary, &g, &error);
    json_array_foreach(json_object_get(question, "texts"), i, text)
    {
        bool good =
            status == ST_OK && accepts(g, json_string_value(text), json_string_length(text));
        json_array_append_new(accepted, json_boolean(good));
    }
    json_int_t count = json_integer_value(json_object_get(question, "walks"));
    for (json_int_t k = 0; k < count && status == ST_OK; k++) {
        json_t *made = walk(g, seed + (uint64_t)k);
        unfinished += made == NULL;
        if (made != NULL)
            json_array_append_new(walks, made);
    }
    json_t *reply = json_pack("{s:o,s:o,s:o,s:I}", "error",
                              status == ST_OK ? json_null() : json_string(error.text), "accepted",
                              accepted, "walks", walks, "unfinished", unfinished);
    CHECK(reply != NULL);
    json_dumpf(reply, stdout, JSON_COMPACT);
    putchar('\n');
    fflush(stdout);
    json_decref(reply);
    grammar_close(g);
}

int main(void)
{
    struct grammar_vocabulary *vocabulary;
    struct error error;
    char *line = NULL;
    size_t capacity = 0;
    ssize_t bytes;
    CHECK(grammar_vocabulary_open(tokens_count(), tokens_piece, NULL, &vocabulary, &error) ==
          ST_OK);
    while ((bytes = getline(&line, &capacity, stdin)) > 0) {
        json_t *question = json_loadb(line, (size_t)bytes, 0, NULL);
        CHECK(question != NULL);
        answer(question, vocabulary);
        json_decref(question);
    }
    free(line);
    grammar_vocabulary_close(vocabulary);
    return 0;
}
