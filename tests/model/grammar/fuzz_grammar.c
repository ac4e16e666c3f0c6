/* Fuzz target: constraints of every kind. The first byte of an input is a seed for a short walk
 * through what compiles; every mask on the way must agree with the run. */
#include "common/random.h"
#include "model/grammar/grammar.h"
#include "tests/check.h"
#include "tests/fuzz.h"
#include "tests/model/grammar/tokens.h"

#include <string.h>

static const char *const seeds[] = {
    "1regex:^(a|[^b-y]\\d{2,3}\\u00e9)+?x*$",
    "2choice:[\"yes\",\"no\",\"maybe\"]",
    "3grammar:root ::= x (\",\" x)* # list\nx ::= [a-c\\n] | \"(\" root? \")\" | .{1,3}",
    "4json_schema:{\"type\":\"object\",\"properties\":{\"a\":{\"type\":[\"integer\",\"null\"],"
    "\"minimum\":-5,\"exclusiveMaximum\":1e3,\"multipleOf\":3},\"b\":{\"enum\":[1,\"x\",{\"y\":[]}]"
    "}},"
    "\"required\":[\"a\"],\"additionalProperties\":{\"type\":\"number\",\"minimum\":0.5},"
    "\"maxProperties\":4}",
    "5json_schema:{\"$defs\":{\"t\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/t\"},"
    "\"prefixItems\":[{\"const\":1}],\"minItems\":1,\"maxItems\":9}},\"anyOf\":[{\"$ref\":\"#/"
    "$defs/t\"},"
    "{\"type\":\"string\",\"pattern\":\"^[a-z]+$\",\"maxLength\":4},{\"format\":\"date\",\"type\":"
    "\"string\"}]}",
    "6json_schema:{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"k\":{\"const\":1}},"
    "\"required\":"
    "[\"k\"]},{\"type\":\"object\",\"properties\":{\"k\":{\"const\":2}},\"required\":[\"k\"]}],"
    "\"allOf\":[{\"patternProperties\":{\"^x\":{},\"[0-9]$\":false}}]}",
    "7format:[{\"without\":\"<a>\"},\"<a>\",{\"schema\":{\"type\":\"boolean\"}},{\"token\":\"<|c|>"
    "\"}]",
    "8json_object:",
};

size_t fuzz_seed(unsigned index, uint8_t *buffer, size_t capacity)
{
    if (index >= sizeof(seeds) / sizeof(seeds[0]))
        return 0;
    size_t bytes = strlen(seeds[index]);
    CHECK(bytes <= capacity);
    memcpy(buffer, seeds[index], bytes);
    return bytes;
}

static struct grammar_vocabulary *vocabulary;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct grammar *g;
    struct grammar_run *run;
    struct error error = {0};
    uint32_t mask[64];
    if (vocabulary == NULL)
        CHECK(grammar_vocabulary_open(tokens_count(), tokens_piece, NULL, &vocabulary, &error) ==
              ST_OK);
    if (size < 1 || size > 2000)
        return 0;
    enum status status = grammar_open((const char *)data + 1, size - 1, vocabulary, &g, &error);
    if (status != ST_OK) {
        CHECK(error.text[0] != 0);
        return 0;
    }
    if (grammar_run_open(g, &run, &error) == ST_OK) {
        for (uint64_t step = 0; step < 20; step++) {
            if (grammar_run_mask(run, mask, &error) != ST_OK)
                break;
            uint32_t id = (uint32_t)(random_at(data[0], step) % tokens_count()), tried = 0;
            for (; tried < tokens_count() && (mask[id / 32] >> id % 32 & 1) == 0; tried++)
                id = (id + 1) % tokens_count();
            CHECK(tried < tokens_count() || grammar_run_may_end(run));
            status = grammar_run_token(run, id, &error);
            CHECK(status == (tried < tokens_count() ? ST_OK : ST_INVALID) ||
                  status == ST_TOO_LARGE);
            if (status != ST_OK)
                break;
        }
        grammar_run_close(run);
    }
    grammar_close(g);
    return 0;
}
