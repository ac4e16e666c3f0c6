/* gbnf: grammars as llama.cpp and XGrammar write them: NAME ::= alternatives, with texts, classes
 * of characters, groups and repetitions. A rule ends where the next one begins. */
#include "model/grammar/internal.h"

#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX  100
#define REPEAT_MAX 100000u

struct gbnf {
    struct builder *b;
    const char *begin, *at, *end;
    json_t *rules; /* Name → number of the rule. */
    struct charset *set;
    unsigned depth;
};

static struct fragment refuse(struct gbnf *g, enum status status, const char *why)
{
    unsigned line = 1;
    for (const char *p = g->begin; p < g->at; p++)
        line += *p == '\n';
    builder_fail(g->b, status, "grammar: line %u: %s", line, why);
    g->at = g->end;
    return fragment_never(g->b);
}

static void skip_space(struct gbnf *g)
{
    while (g->at < g->end) {
        if (*g->at == '#')
            while (g->at < g->end && *g->at != '\n')
                g->at++;
        else if (*g->at == ' ' || *g->at == '\t' || *g->at == '\n' || *g->at == '\r')
            g->at++;
        else
            return;
    }
}

static bool is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
}

static size_t name_bytes(const struct gbnf *g)
{
    size_t bytes = 0;
    while (g->at + bytes < g->end && is_name(g->at[bytes]))
        bytes++;
    return bytes;
}

/* True if a name followed by ::= is next. */
static bool rule_is_next(const struct gbnf *g)
{
    struct gbnf look = *g;
    look.at += name_bytes(g);
    if (look.at == g->at)
        return false;
    skip_space(&look);
    return look.end - look.at >= 3 && memcmp(look.at, "::=", 3) == 0;
}

/* Returns the rule with this name, which is added if it is new. */
static uint32_t rule_find(struct gbnf *g, const char *name)
{
    json_t *known = json_object_get(g->rules, name);
    if (known != NULL)
        return (uint32_t)json_integer_value(known);
    uint32_t rule = builder_rule_add(g->b);
    if (json_object_set_new(g->rules, name, json_integer(rule)) != 0)
        builder_fail(g->b, ST_NO_MEMORY, "out of memory");
    return rule;
}

/* Returns the rule whose name has the next `bytes` bytes of the text. */
static uint32_t rule_named(struct gbnf *g, size_t bytes)
{
    char name[128];
    if (bytes >= sizeof(name)) {
        refuse(g, ST_TOO_LARGE, "a name of more than 127 bytes");
        return 0;
    }
    memcpy(name, g->at, bytes);
    name[bytes] = 0;
    return rule_find(g, name);
}

static bool hex_read(struct gbnf *g, unsigned digits, uint32_t *out)
{
    char text[9] = "";
    if ((size_t)(g->end - g->at) < digits)
        return false;
    memcpy(text, g->at, digits);
    for (unsigned i = 0; i < digits; i++)
        if (strchr("0123456789abcdefABCDEF", text[i]) == NULL || text[i] == 0)
            return false;
    *out = (uint32_t)strtoul(text, NULL, 16);
    g->at += digits;
    return true;
}

/* One character of a text or class, with escapes. *is_byte: written as \xHH above 7F. */
static bool character_read(struct gbnf *g, uint32_t *out)
{
    static const char plain[] = "n\nr\rt\t\"\"\\\\[[]]--''//^^";
    if (*g->at != '\\')
        return grammar_utf8_read(&g->at, g->end, out);
    g->at++;
    if (g->at == g->end)
        return false;
    char c = *g->at++;
    for (unsigned i = 0; i < sizeof(plain) - 1; i += 2)
        if (c == plain[i]) {
            *out = (uint8_t)plain[i + 1];
            return true;
        }
    if (c != 'x' && c != 'u' && c != 'U')
        return false;
    return hex_read(g,
                    c == 'x'   ? 2
                    : c == 'u' ? 4
                               : 8,
                    out) &&
           *out <= CHARACTER_MAX && (*out < 0xD800 || *out > 0xDFFF);
}

static struct fragment text_parse(struct gbnf *g)
{
    struct fragment result = fragment_empty(g->b);
    while (g->at < g->end && *g->at != '"' && g->b->status == ST_OK) {
        uint32_t c;
        if (!character_read(g, &c))
            return refuse(g, ST_INVALID, "a wrong escape, or not UTF-8");
        g->set->count = 0;
        charset_add(g->set, c, c);
        result = fragment_join(g->b, result, fragment_characters(g->b, g->set, SPELLING_RAW));
    }
    if (g->at == g->end)
        return refuse(g, ST_INVALID, "a text without its closing quote");
    g->at++;
    return result;
}

static struct fragment class_parse(struct gbnf *g)
{
    g->set->count = 0;
    bool invert = g->at < g->end && *g->at == '^';
    g->at += invert;
    while (g->at < g->end && *g->at != ']') {
        uint32_t low, high;
        if (!character_read(g, &low))
            return refuse(g, ST_INVALID, "a wrong escape, or not UTF-8");
        high = low;
        if (g->end - g->at >= 2 && g->at[0] == '-' && g->at[1] != ']') {
            g->at++;
            if (!character_read(g, &high) || high < low)
                return refuse(g, ST_INVALID, "a wrong range of characters");
        }
        if (!charset_add(g->set, low, high))
            return refuse(g, ST_TOO_LARGE, "a class has too many ranges");
    }
    if (g->at == g->end)
        return refuse(g, ST_INVALID, "a class without ]");
    g->at++;
    if (invert && !charset_invert(g->set))
        return refuse(g, ST_TOO_LARGE, "a class has too many ranges");
    return fragment_characters(g->b, g->set, SPELLING_RAW);
}

static struct fragment either_parse(struct gbnf *g);

static struct fragment atom_parse(struct gbnf *g)
{
    char c = *g->at;
    size_t bytes = name_bytes(g);
    if (bytes > 0) {
        struct fragment call = fragment_call(g->b, rule_named(g, bytes));
        if (g->b->status == ST_OK)
            g->at += bytes;
        return call;
    }
    g->at++;
    if (c == '"')
        return text_parse(g);
    if (c == '[')
        return class_parse(g);
    if (c == '.') {
        g->set->count = 0;
        charset_add(g->set, 0, CHARACTER_MAX);
        return fragment_characters(g->b, g->set, SPELLING_RAW);
    }
    if (c != '(')
        return refuse(g, ST_INVALID, "want a text, a class, a name or a group");
    if (g->depth == DEPTH_MAX)
        return refuse(g, ST_TOO_LARGE, "groups are nested too deep");
    g->depth++;
    struct fragment body = either_parse(g);
    g->depth--;
    if (g->at == g->end || *g->at != ')')
        return refuse(g, ST_INVALID, "a group without )");
    g->at++;
    return body;
}

static bool number_read(struct gbnf *g, uint32_t *out)
{
    const char *from = g->at;
    uint32_t value = 0;
    while (g->at < g->end && *g->at >= '0' && *g->at <= '9') {
        if (value <= REPEAT_MAX)
            value = value * 10 + (uint32_t)(*g->at - '0');
        g->at++;
    }
    *out = value;
    return g->at > from;
}

static struct fragment repeat_parse(struct gbnf *g, struct fragment atom)
{
    uint32_t least, most = COUNT_UNLIMITED;
    skip_space(g);
    if (g->at == g->end || strchr("*+?{", *g->at) == NULL || *g->at == 0)
        return atom;
    char c = *g->at++;
    least = c == '+';
    if (c == '?')
        most = 1;
    if (c == '{') {
        skip_space(g);
        bool given = number_read(g, &least);
        skip_space(g);
        most = least;
        if (g->at < g->end && *g->at == ',') {
            g->at++;
            skip_space(g);
            if (!number_read(g, &most))
                most = COUNT_UNLIMITED;
            skip_space(g);
            given = true;
        }
        if (!given || g->at == g->end || *g->at != '}')
            return refuse(g, ST_INVALID, "want {m}, {m,} or {m,n}");
        g->at++;
    }
    if (least > REPEAT_MAX || (most > REPEAT_MAX && most != COUNT_UNLIMITED))
        return refuse(g, ST_TOO_LARGE, "a repetition of more than 100000 times");
    if (most < least)
        return refuse(g, ST_INVALID, "a repetition with the larger number first");
    return fragment_repeat(g->b, atom, least, most);
}

static struct fragment sequence_parse(struct gbnf *g)
{
    struct fragment result = fragment_empty(g->b);
    for (;;) {
        skip_space(g);
        if (g->at == g->end || *g->at == '|' || *g->at == ')' || g->b->status != ST_OK)
            return result;
        if (rule_is_next(g)) {
            if (g->depth > 0)
                return refuse(g, ST_INVALID, "a group without )");
            return result;
        }
        struct fragment atom = atom_parse(g);
        for (;;) { /* As "a"+? : the repetitions are nested. */
            const char *from = g->at;
            atom = repeat_parse(g, atom);
            skip_space(g);
            if (g->at == from || g->at == g->end || strchr("*+?{", *g->at) == NULL)
                break;
        }
        result = fragment_join(g->b, result, atom);
    }
}

static struct fragment either_parse(struct gbnf *g)
{
    struct fragment result = sequence_parse(g);
    while (g->at < g->end && *g->at == '|' && g->b->status == ST_OK) {
        g->at++;
        result = fragment_either(g->b, result, sequence_parse(g));
    }
    return result;
}

static void rule_parse(struct gbnf *g)
{
    if (!rule_is_next(g)) {
        refuse(g, ST_INVALID, "want NAME ::= …");
        return;
    }
    size_t bytes = name_bytes(g);
    uint32_t rule = rule_named(g, bytes);
    if (g->b->status != ST_OK)
        return;
    if (g->b->rules[rule].start != NODE_NONE) {
        refuse(g, ST_INVALID, "a rule of this name exists already");
        return;
    }
    g->at += bytes;
    skip_space(g);
    g->at += 3;
    builder_rule_define(g->b, rule, either_parse(g));
    if (g->b->status == ST_OK && g->at < g->end && *g->at == ')')
        refuse(g, ST_INVALID, "a ) without (");
}

static void rules_check(struct gbnf *g)
{
    const char *name;
    json_t *number;
    json_object_foreach(g->rules, name, number)
    {
        if (g->b->status == ST_OK && g->b->rules[json_integer_value(number)].start == NODE_NONE)
            builder_fail(g->b, ST_INVALID, "grammar: the rule \"%s\" is not defined", name);
    }
}

uint32_t gbnf_parse(struct builder *b, const char *text, size_t bytes)
{
    struct gbnf g = {.b = b,
                     .begin = text,
                     .at = text,
                     .end = text + bytes,
                     .rules = json_object(),
                     .set = malloc(sizeof(*g.set))};
    uint32_t root = 0;
    if (g.rules == NULL || g.set == NULL)
        builder_fail(b, ST_NO_MEMORY, "out of memory");
    else {
        root = rule_find(&g, "root");
        skip_space(&g);
        while (g.at < g.end && b->status == ST_OK) {
            rule_parse(&g);
            skip_space(&g);
        }
        rules_check(&g);
    }
    json_decref(g.rules);
    free(g.set);
    return root;
}
