/* Goal: constraints accept the right texts, masks say what the automaton says, and wrong or hostile
 * constraints end in one clear error. Method: tables of constraints and texts; masks compared with
 * a run per token; walks that are repeated from the start. grammar_schema_test.py has the
 * comparison with another validator. */
#include "common/random.h"
#include "model/grammar/grammar.h"
#include "tests/check.h"
#include "tests/model/grammar/tokens.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static struct grammar_vocabulary *vocabulary;

static struct grammar *open_text(const char *constraint)
{
    struct grammar *g;
    struct error error;
    enum status status = grammar_open(constraint, strlen(constraint), vocabulary, &g, &error);
    CHECKF(status == ST_OK, "%s: %s", constraint, error.text);
    return g;
}

static bool accepts(struct grammar *g, const char *text)
{
    struct grammar_run *run;
    CHECK(grammar_run_open(g, &run, NULL) == ST_OK);
    enum status status = grammar_run_bytes(run, text, strlen(text), NULL);
    CHECK(status == ST_OK || status == ST_INVALID);
    bool good = status == ST_OK && grammar_run_may_end(run);
    grammar_run_close(run);
    return good;
}

static const struct {
    const char *constraint;
    const char *good[6];
    const char *bad[6];
} texts[] = {
    {"regex:ab*c?", {"a", "abbc", "ac"}, {"", "b", "acc", "abab"}},
    {"regex:[^a-y]\\d{2,3}",
     {"z12", "\xC3\xA9"
             "123"},
     {"a12", "z1", "z1234"}},
    {"regex:^(?:x|yy)+$", {"x", "xyyx"}, {"y", ""}},
    {"regex:\\u00e9\\x41\\.",
     {"\xC3\xA9"
      "A."},
     {"eA.", "\xC3\xA9"
             "Ax"}},
    {"choice:[\"a\", \"ab\", \"\"]", {"a", "ab", ""}, {"b", "abc"}},
    {"grammar:root ::= x (\",\" x)* # a list\nx ::= [a-c] | \"(\" root? \")\"",
     {"a", "a,b", "(a,(b)),c", "()"},
     {"", "a,", "(a", "d"}},
    {"grammar:root ::= \"\\x41\" [^\\n\"]{2} .?", {"Axy", "Axyz"}, {"Ax", "A\nx", "Bxy"}},
    {"json_object:",
     {"{}", "{\"a\":[1,-2.5e+3,null,true]}", "{\n  \"a\": {}\n}"},
     {"[]", "1", "{\"a\":01}", "{'a':1}", "{\"a\":1,}", " {}"}},
    {"json_schema:{\"type\":\"string\"}",
     {"\"\"", "\"\\u00e9\\n\\\"\"", "\"\\ud83d\\ude00\"", "\"\xF0\x9F\x98\x80\""},
     {"\"\\ud83d\"", "\"\\x\"", "\"a\nb\"", "\"\xC3\"", "\"\xED\xA0\x80\""}},
    {"json_schema:{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}",
     {"\"ab\"", "\"\xC3\xA9\xC3\xA9\xC3\xA9\"", "\"\\u00e9a\""},
     {"\"a\"", "\"abcd\"", "\"\\ud83d\\ude00\""}},
    {"json_schema:{\"type\":\"integer\",\"minimum\":-12,\"exclusiveMaximum\":105}",
     {"-12", "-1", "0", "99", "104"},
     {"-13", "105", "1000", "00", "-0"}},
    {"json_schema:{\"type\":\"integer\",\"minimum\":95,\"multipleOf\":15}",
     {"105", "120", "990", "1000005"},
     {"90", "95", "106", "-15"}},
    {"json_schema:{\"type\":\"number\",\"exclusiveMinimum\":0,\"maximum\":1.25}",
     {"0.1", "1", "1.25", "1.2", "0.000001"},
     {"0", "0.0", "1.26", "1.251", "-1", "2"}},
    {"json_schema:{\"properties\":{\"a\":{},\"b\":{}},\"required\":[\"b\"],\"type\":\"object\","
     "\"additionalProperties\":{\"type\":\"null\"}}",
     {"{\"a\":1,\"b\":2}", "{\"b\":2,\"c\":null}", "{\"b\":0,\"bb\":null,\"\":null}"},
     {"{\"a\":1}", "{\"b\":2,\"a\":1}", "{\"b\":2,\"c\":1}", "{\"b\":2,\"b\":null}"}},
    {"json_schema:{\"type\":\"object\",\"patternProperties\":{\"^x\":{\"type\":\"integer\"}},"
     "\"additionalProperties\":false,\"maxProperties\":2}",
     {"{}", "{\"x\":1}", "{\"xa\":1,\"xb\":2}"},
     {"{\"y\":1}", "{\"x\":\"\"}", "{\"x\":1,\"xa\":1,\"xb\":2}"}},
    {"json_schema:{\"type\":\"array\",\"prefixItems\":[{\"const\":1}],\"items\":{\"const\":2},"
     "\"minItems\":2,\"maxItems\":3}",
     {"[1,2]", "[1, 2,\n2]"},
     {"[1]", "[2,2]", "[1,2,2,2]", "[]"}},
    {"json_schema:{\"$ref\":\"#/$defs/t\",\"$defs\":{\"t\":{\"type\":\"object\",\"properties\":"
     "{\"c\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/t\"}}},"
     "\"additionalProperties\":false}}}",
     {"{}", "{\"c\":[]}", "{\"c\":[{\"c\":[{}]},{}]}"},
     {"{\"c\":[1]}", "{\"c\":{}}"}},
    {"format:{\"any\":[[\"<a>\",{\"schema\":{\"type\":\"integer\"}},\"</a>\"],"
     "[\"<b>\",{\"schema\":{\"const\":\"x\"}}]]}",
     {"<a>12</a>", "<b>\"x\""},
     {"<a>12", "<b>12", "<a>\"x\"</a>"}},
    {"format:[{\"without\":\"</t>\"},\"</t>\",{\"constraint\":\"regex:[ab]+\"}]",
     {"</t>a", "x</t>ab", "<</</t</t>b", "\xC3\xA9</\n</t>a"},
     {"a", "x</t>", "x</t>c", "</t></t>a", "x</ta"}},
    {"format:[{\"without\":\"aab\"},{\"optional\":[\"aab\",\"!\"]}]",
     {"", "a", "aaaa", "abab", "aaaab!", "caab!"},
     {"aab", "aaab", "aab!aab!", "aab!x"}},
    {"format:{\"plain\":\"{[\"}", {"", " ", "\n x{", "\xC3\xA9"}, {"{", " [1]", "\t{x"}},
    {"format:[\"[\",{\"repeat\":{\"any\":[\"x\",\"yy\"]},\"between\":\", \",\"most\":3},\"]\"]",
     {"[x]", "[yy, x]", "[x, x, yy]"},
     {"[]", "[x,x]", "[x, x, x, x]", "[x, ]"}},
    {"format:[{\"token\":\"<|c|>\"},{\"without\":{\"token\":\"<|c|>\"}},{\"optional\":{\"token\":"
     "\"<|c|>\"}}]",
     {"\xFF<|c|>\xFE", "\xFF<|c|>\xFE<|c|> x", "\xFF<|c|>\xFEy\xFF<|c|>\xFE"},
     {"<|c|>", "\xFF<|c|>", "x", "\xFF<|c|>\xFE\xFF<|d|>\xFE"}},
};

static void test_texts(void)
{
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct grammar *g = open_text(texts[i].constraint);
        for (size_t k = 0; k < 6 && texts[i].good[k] != NULL; k++)
            CHECKF(accepts(g, texts[i].good[k]), "%s: %s", texts[i].constraint, texts[i].good[k]);
        for (size_t k = 0; k < 6 && texts[i].bad[k] != NULL; k++)
            CHECKF(!accepts(g, texts[i].bad[k]), "%s: %s", texts[i].constraint, texts[i].bad[k]);
        grammar_close(g);
    }
}

static const struct {
    const char *constraint;
    const char *reason; /* A part of it. */
} refused[] = {
    {"", "no known kind"},
    {"regex:(a", "without )"},
    {"regex:a)", "without ("},
    {"regex:[z-a]", "range"},
    {"regex:(?=a)b", "looking around"},
    {"regex:(a)\\1", "escape"},
    {"regex:a^b", "anchor"},
    {"regex:a{2000000}", "100000"},
    {"regex:\xFF", "not UTF-8"},
    {"regex:(a*){100}", "can be empty"},
    {"choice:[]", "not empty"},
    {"choice:[1]", "choice[0]"},
    {"choice:{", "not JSON"},
    {"grammar:", "\"root\" is not defined"},
    {"grammar:root ::= x", "\"x\" is not defined"},
    {"grammar:root ::= root \"a\" | \"b\"", "begin with itself"},
    {"grammar:root ::= a root | \"b\"\na ::= \"x\"?", "begin with itself"},
    {"grammar:root ::= \"a\" root", "no text satisfies"},
    {"grammar:root ::= \"a", "closing quote"},
    {"json_object:x", "no content"},
    {"json_schema:1", "#: a schema is an object"},
    {"json_schema:{\"type\":\"strin\"}", "#/type: want"},
    {"json_schema:{\"properties\":{\"a\":{\"not\":{}}}}", "#/properties/a/not: not supported"},
    {"json_schema:{\"items\":{\"uniqueItems\":true}}", "#/items/uniqueItems"},
    {"json_schema:{\"$ref\":\"#/$defs/x\"}", "#/$ref: \"#/$defs/x\" does not exist"},
    {"json_schema:{\"$ref\":\"http://example.com\"}", "#/$ref"},
    {"json_schema:{\"$ref\":\"#\"}", "without progress"},
    {"json_schema:{\"allOf\":[{\"$ref\":\"#\"}]}", "without progress"},
    {"json_schema:{\"anyOf\":[{\"$ref\":\"#\"},{\"type\":\"null\"}]}", "without progress"},
    {"json_schema:{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"number\"}]}", "#/oneOf"},
    {"json_schema:{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#\"}},"
     "\"required\":[\"a\"]}",
     "no text satisfies"},
    {"json_schema:{\"type\":\"string\",\"pattern\":\"(\"}", "#/pattern"},
    {"json_schema:{\"type\":\"string\",\"format\":\"iri\"}", "#/format: \"iri\""},
    {"json_schema:{\"type\":\"string\",\"minLength\":-1}", "#/minLength"},
    {"json_schema:{\"type\":\"number\",\"multipleOf\":0.1}", "#/multipleOf"},
    {"json_schema:{\"type\":\"string\",\"pattern\":\"^(.*a.{12}b)$\",\"maxLength\":900}",
     "8192 states"},
    {"json_schema:{\"items\":{\"type\":\"string\",\"pattern\":\"^(a|b)*a(a|b){5}$\",\"maxLength\":"
     "60},"
     "\"prefixItems\":[{\"pattern\":\"^(a|b)*a(a|b){5}$\",\"maxLength\":61},"
     "{\"pattern\":\"^(a|b)*a(a|b){5}$\",\"maxLength\":62},{\"pattern\":\"^(a|b)*a(a|b){5}$\","
     "\"maxLength\":63},{\"pattern\":\"^(a|c)*a(a|c){6}$\",\"maxLength\":63},"
     "{\"pattern\":\"^(a|b)*a(a|b){6}$\",\"maxLength\":64},{\"pattern\":\"^(a|b)*a(a|b){6}$\","
     "\"maxLength\":61},{\"pattern\":\"^(a|b)*a(a|b){6}$\",\"maxLength\":60},{\"pattern\":"
     "\"^(a|b)*a(a|b){6}$\",\"maxLength\":63},{\"pattern\":\"^(a|b)*a(a|b){6}$\",\"maxLength\":62},"
     "{\"pattern\":\"^(d|b)*d(d|b){6}$\",\"maxLength\":64},{\"pattern\":\"^(a|f)*a(a|f){6}$\","
     "\"maxLength\":64},{\"pattern\":\"^(a|e)*e(a|e){6}$\",\"maxLength\":63}]}",
     "the patterns together need more than 65536 states"},
    {"format:{\"schema\":{\"not\":{}},\"place\":\"tools[0]#\"}", "tools[0]#/not"},
    {"format:{\"any\":1}", "want a list of expressions"},
    {"format:{\"without\":\"\"}", "want a marker"},
    {"format:{\"what\":1}", "want a text or a token"},
    {"format:{\"constraint\":\"format:1\"}", "another kind"},
    {"format:{\"constraint\":\"x\"}", "no known kind"},
    {"format:{\"repeat\":\"x\",\"most\":0}", "want 1 to 65535"},
    {"format:[[[[[[[[[[[[[[[[[[\"\"]]]]]]]]]]]]]]]]]]", "more than 16 levels"},
};

static void test_refused(void)
{
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        struct grammar *g;
        struct error error = {0};
        const char *text = refused[i].constraint;
        CHECKF(grammar_open(text, strlen(text), vocabulary, &g, &error) != ST_OK, "%s", text);
        CHECKF(strstr(error.text, refused[i].reason) != NULL, "%s: %s", text, error.text);
    }
}

/* ---- masks ---- */

static void mask_check(struct grammar *g, const char *text, size_t bytes, const uint32_t *mask)
{
    for (uint32_t id = 0; id < tokens_count(); id++) {
        struct grammar_run *run;
        CHECK(grammar_run_open(g, &run, NULL) == ST_OK);
        CHECK(grammar_run_bytes(run, text, bytes, NULL) == ST_OK);
        bool allowed = grammar_run_token(run, id, NULL) == ST_OK;
        CHECKF(allowed == (mask[id / 32] >> id % 32 & 1), "token %u behind %.*s", id, (int)bytes,
               text);
        grammar_run_close(run);
    }
}

/* Draws tokens until the text ends or is long. Returns its bytes. */
static size_t walk(struct grammar *g, uint64_t seed, size_t bytes_max, char *text, bool check)
{
    uint32_t mask[64];
    struct grammar_run *run;
    struct error error;
    size_t bytes = 0;
    CHECK(grammar_run_open(g, &run, &error) == ST_OK);
    CHECK(GRAMMAR_MASK_WORDS(tokens_count()) <= 64);
    for (uint64_t step = 0; bytes < bytes_max; step++) {
        uint32_t allowed[512], count = 0;
        CHECKF(grammar_run_mask(run, mask, &error) == ST_OK, "%s", error.text);
        if (check)
            mask_check(g, text, bytes, mask);
        for (uint32_t id = 0; id < tokens_count(); id++)
            if (mask[id / 32] >> id % 32 & 1)
                allowed[count++] = id;
        CHECK(count > 0 || grammar_run_may_end(run));
        CHECK(count > 0 || grammar_run_may_end(run));
        if (count == 0)
            break;
        uint32_t id = allowed[random_at(seed, step) % count];
        CHECK(grammar_run_token(run, id, &error) == ST_OK);
        char piece[256];
        size_t more = tokens_bytes(id, piece);
        memcpy(text + bytes, piece, more);
        bytes += more;
    }
    grammar_run_close(run);
    return bytes;
}

static void test_masks(uint64_t seed)
{
    static char text[1024], again[1024];
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        for (uint64_t round = 0; round < 3; round++) {
            struct grammar *g = open_text(texts[i].constraint), *other;
            size_t bytes = walk(g, seed + round, 60, text, true);
            other = open_text(texts[i].constraint);
            CHECK(walk(other, seed + round, 60, again, false) == bytes);
            CHECK(memcmp(text, again, bytes) == 0);
            grammar_close(g);
            grammar_close(other);
        }
}

/* Nesting is bounded, and near the bound each text can still be completed. */
static void test_depth(void)
{
    struct grammar *g = open_text("json_schema:{\"type\":\"array\"}");
    struct grammar_run *run;
    uint32_t mask[64], depth = 0;
    CHECK(grammar_run_open(g, &run, NULL) == ST_OK);
    for (; depth < 1000 && grammar_run_bytes(run, "[", 1, NULL) == ST_OK; depth++)
        CHECK(grammar_run_mask(run, mask, NULL) == ST_OK);
    CHECKF(depth > 50 && depth < 1000, "depth %u", depth);
    for (; depth > 0; depth--)
        CHECK(grammar_run_bytes(run, "]", 1, NULL) == ST_OK);
    CHECK(grammar_run_may_end(run));
    grammar_run_close(run);
    grammar_close(g);
}

/* Most memory of one grammar (docs/constraints.md): 16 MiB of states, 16 MiB of masks and the mask
 * that exceeds them, 9.2 MiB of nodes, and scratch memory. */
#define BYTES_MAX (48u << 20)

/* A long text needs more states than the memory holds: they are forgotten and found again. Two runs
 * at different places of the same constraint stay right. */
static void test_memory(void)
{
    struct grammar *g = open_text("json_schema:{\"type\":\"array\",\"minItems\":90000,\"items\":"
                                  "{\"type\":\"string\",\"maxLength\":3}}");
    struct grammar_run *one, *two;
    uint32_t before[64], mask[64];
    CHECK(grammar_run_open(g, &one, NULL) == ST_OK && grammar_run_open(g, &two, NULL) == ST_OK);
    CHECK(grammar_run_bytes(two, "[\"ab\",\"a", 8, NULL) == ST_OK);
    CHECK(grammar_run_mask(two, before, NULL) == ST_OK);
    CHECK(grammar_run_bytes(one, "[\"abc\"", 6, NULL) == ST_OK);
    for (int i = 0; i < 89999; i++) {
        CHECK(!grammar_run_may_end(one) && grammar_run_bytes(one, "]", 1, NULL) != ST_OK);
        CHECK(grammar_run_bytes(one, ",\"x\"", 4, NULL) == ST_OK);
        if (i % 1000 == 0)
            CHECK(grammar_run_mask(one, mask, NULL) == ST_OK);
    }
    CHECK(grammar_bytes(g) <= BYTES_MAX);
    CHECK(grammar_run_bytes(one, "]", 1, NULL) == ST_OK && grammar_run_may_end(one));
    CHECK(grammar_run_mask(two, mask, NULL) == ST_OK);
    CHECK(memcmp(mask, before, GRAMMAR_MASK_WORDS(tokens_count()) * 4) == 0);
    CHECK(grammar_run_bytes(two, "bc\"", 3, NULL) == ST_OK);
    grammar_run_close(one);
    grammar_run_close(two);
    grammar_close(g);
}

/* ---- hostile constraints ---- */

/* Whatever happens, it happens soon and within the memory. */
static void survive(const char *constraint, size_t bytes)
{
    struct grammar *g;
    struct error error = {0};
    uint32_t mask[64];
    enum status status = grammar_open(constraint, bytes, vocabulary, &g, &error);
    if (status != ST_OK) {
        CHECK(error.text[0] != 0);
        return;
    }
    struct grammar_run *run;
    if (grammar_run_open(g, &run, &error) == ST_OK) {
        for (int i = 0; i < 200 && grammar_run_mask(run, mask, &error) == ST_OK; i++) {
            uint32_t id = 0;
            while (id < tokens_count() && (mask[id / 32] >> id % 32 & 1) == 0)
                id++;
            if (grammar_run_token(run, id, &error) != ST_OK)
                break;
        }
        grammar_run_close(run);
    }
    CHECK(grammar_bytes(g) <= BYTES_MAX);
    grammar_close(g);
}

static void repeat(const char *before, const char *part, const char *after, int times)
{
    size_t size = strlen(before) + (strlen(part) + strlen(after)) * (size_t)times + 64;
    char *text = malloc(size), *at = text;
    CHECK(text != NULL);
    at += sprintf(at, "%s", before);
    for (int i = 0; i < times; i++)
        at += sprintf(at, "%s", part);
    for (int i = 0; i < times; i++)
        at += sprintf(at, "%s", after);
    survive(text, (size_t)(at - text));
    free(text);
}

static enum status dots_open(uint32_t count, struct error *error)
{
    char text[1 << 16] = "regex:";
    struct grammar *g = NULL;
    memset(text + 6, '.', count);
    enum status status = grammar_open(text, 6 + count, vocabulary, &g, error);
    grammar_close(g);
    return status;
}

/* The limit of 400,000 nodes holds exactly, although arrays grow in powers of two: a dot takes 56. */
static void test_nodes(void)
{
    struct error error = {0};
    uint32_t good = 1, bad = 65000;
    CHECK(dots_open(good, &error) == ST_OK && dots_open(bad, &error) == ST_TOO_LARGE);
    while (bad - good > 1) {
        uint32_t half = (good + bad) / 2;
        *(dots_open(half, &error) == ST_OK ? &good : &bad) = half;
    }
    CHECKF(good == 400000 / 56, "%u dots", good);
    CHECKF(strstr(error.text, "more than 400000 nodes") != NULL, "%s", error.text);
}

/* Returns the least CPU time of three compilations of an enum of `count` numbers, in ns. */
static int64_t enum_ns(uint32_t count)
{
    static char text[1 << 16];
    int64_t least = INT64_MAX;
    int at = snprintf(text, sizeof(text), "json_schema:{\"enum\":[0");
    for (uint32_t i = 1; i < count; i++)
        at += snprintf(text + at, sizeof(text) - (size_t)at, ",%u", i);
    at += snprintf(text + at, sizeof(text) - (size_t)at, "]}");
    for (int i = 0; i < 3; i++) {
        struct timespec begin, end;
        struct grammar *g;
        struct error error;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
        CHECK(grammar_open(text, (size_t)at, vocabulary, &g, &error) == ST_OK);
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
        grammar_close(g);
        int64_t ns = (end.tv_sec - begin.tv_sec) * 1000000000 + end.tv_nsec - begin.tv_nsec;
        least = ns < least ? ns : least;
    }
    return least;
}

/* The time to compile an enum is about proportional to its size: 20 times as many values take
 * hundreds of times as long if each value is compared with each other. */
static void test_enum_time(void)
{
    int64_t few = enum_ns(500), many = enum_ns(10000);
    CHECKF(many < 80 * few, "500 values take %lld ns, 10000 take %lld ns", (long long)few,
           (long long)many);
}

static void test_hostile(void)
{
    static const char *const constraints[] = {
        "regex:((((a{1,1000}){1,1000}){1,1000}){1,1000}){1,1000}",
        "regex:(a|aa|aaa){1,100000}b",
        "regex:(.*){60}(.*){60}(.*){60}x",
        "regex:(a?){64}(a?){64}(a?){64}a{100000}",
        "regex:(x+x+)+y",
        "grammar:root ::= s\ns ::= \"a\" s s | \"a\"",
        "grammar:root ::= (\"a\" | \"a\" root)* \"b\"",
        "json_schema:{\"minItems\":1000000000,\"type\":\"array\"}",
        "json_schema:{\"type\":\"string\",\"minLength\":1000000000}",
        "json_schema:{\"type\":\"integer\",\"minimum\":-9e18,\"maximum\":9e18,\"multipleOf\":997}",
        "json_schema:{\"type\":\"string\",\"pattern\":\"^(a|b)*a(a|b){11}$\",\"maxLength\":100}",
    };
    for (size_t i = 0; i < sizeof(constraints) / sizeof(constraints[0]); i++)
        survive(constraints[i], strlen(constraints[i]));
    repeat("regex:", "(", ")", 5000);
    repeat("regex:", "(a|", "b)", 90);
    repeat("grammar:root ::= ", "(", ")", 20000);
    repeat("json_schema:", "{\"items\":", "}", 5000);
    repeat("json_schema:", "{\"allOf\":[{\"anyOf\":[{\"minLength\":1},{\"maxLength\":9}]},", "{}]}",
           20);
    repeat("json_schema:{\"enum\":[0", ",\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"", "", 3000);
    repeat("json_schema:{\"anyOf\":[0", ",{\"anyOf\":[{}", "]}", 3000);
    repeat("choice:[\"", "a", "", 100000);
    repeat("x", "x", "", (int)GRAMMAR_TEXT_BYTES_MAX);
}

int main(void)
{
    uint64_t seed = test_seed();
    struct error error;
    CHECK(grammar_vocabulary_open(tokens_count(), tokens_piece, NULL, &vocabulary, &error) ==
          ST_OK);
    test_texts();
    test_refused();
    test_masks(seed);
    test_depth();
    test_memory();
    test_nodes();
    test_enum_time();
    test_hostile();
    grammar_vocabulary_close(vocabulary);
    return 0;
}
