/* schema: strings. Without pattern and format, all escapes of JSON are allowed; else a character is
 * escaped only where JSON demands it. */
#include "model/grammar/schema.h"

#include <stdlib.h>
#include <string.h>

#define DATE                                                                                       \
    "((000[1-9]|00[1-9]\\d|0[1-9]\\d\\d|[1-9]\\d{3})-"                                             \
    "((0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|(0[469]|11)-(0[1-9]|[12]\\d|30)|"                    \
    "02-(0[1-9]|1\\d|2[0-8]))|"                                                                    \
    "(\\d\\d(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)-02-29)"
#define TIME  "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,9})?([Zz]|[+-]([01]\\d|2[0-3]):[0-5]\\d)"
#define BYTE  "(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define IPV4  "(" BYTE "\\.){3}" BYTE
#define H16   "[0-9A-Fa-f]{1,4}"
#define LABEL "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define URI   "([A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2})"

static const struct {
    const char *name;
    const char *pattern; /* NULL = a format of numbers, which strings ignore. */
    uint32_t most;       /* Characters; 0 = any number. */
} formats[] = {
    {"date", "^" DATE "$", 0},
    {"time", "^" TIME "$", 0},
    {"date-time", "^" DATE "[Tt]" TIME "$", 0},
    {"duration",
     "^P(\\d+W|(\\d+Y(\\d+M(\\d+D)?)?|\\d+M(\\d+D)?|\\d+D)"
     "(T(\\d+H(\\d+M(\\d+S)?)?|\\d+M(\\d+S)?|\\d+S))?|"
     "T(\\d+H(\\d+M(\\d+S)?)?|\\d+M(\\d+S)?|\\d+S))$",
     0},
    {"uuid", "^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$", 0},
    {"ipv4", "^" IPV4 "$", 0},
    {"ipv6",
     "^((" H16 ":){7}" H16 "|(" H16 ":){6}" IPV4 "|(" H16 ":){1,7}:|(" H16 ":){1,6}:" H16 "|(" H16
     ":){1,5}(:" H16 "){2}|(" H16 ":){1,4}(:" H16 "){3}|(" H16 ":){1,3}(:" H16 "){4}|(" H16
     ":){1,2}(:" H16 "){5}|" H16 ":(:" H16 "){6}|:((:" H16 "){1,7}|:))$",
     0},
    {"hostname", "^" LABEL "(\\." LABEL ")*$", 253},
    {"email",
     "^[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(\\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*@" LABEL "(\\." LABEL
     ")*$",
     0},
    {"uri",
     "^[A-Za-z][A-Za-z0-9+.-]*:(//([A-Za-z0-9._~!$&'()*+,;=:-]|%[0-9A-Fa-f]{2})*"
     "(@([A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*)?(:\\d*)?(/" URI "*)?|"
     "/?(([A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})" URI "*)?)(\\?(" URI "|\\?)*)?"
     "(#(" URI "|\\?)*)?$",
     0},
    {"int32", NULL, 0},
    {"int64", NULL, 0},
    {"float", NULL, 0},
    {"double", NULL, 0},
};

/* ---- automata of the inside of strings ---- */

struct dfa *schema_pattern(struct schema *s, const char *pattern, size_t bytes,
                           const struct pointer *at)
{
    struct builder part = {0};
    struct fragment body = regex_parse(&part, pattern, bytes, SPELLING_JSON, true, "pattern");
    if (part.status != ST_OK)
        schema_refuse(s, part.status, at, NULL, "%.180s", part.error.text);
    return dfa_open(s->b, &part, body);
}

static struct fragment any_characters(struct builder *b)
{
    struct charset set = {.count = 1, .ranges = {{0, CHARACTER_MAX}}};
    return fragment_repeat(b, fragment_characters(b, &set, SPELLING_JSON), 0, COUNT_UNLIMITED);
}

struct dfa *schema_any_text(struct schema *s)
{
    struct builder part = {0};
    return dfa_open(s->b, &part, any_characters(&part));
}

/* ---- keywords ---- */

#define RULES_MAX 16

struct text { /* What the facets demand of a string. */
    uint32_t least, most;
    uint32_t count; /* Patterns, also those of formats. */
    struct {
        const char *pattern;
        const struct pointer *at;
    } rules[RULES_MAX];
};

static void rule_add(struct schema *s, struct text *t, const char *pattern,
                     const struct pointer *at)
{
    for (uint32_t i = 0; i < t->count; i++)
        if (strcmp(t->rules[i].pattern, pattern) == 0)
            return;
    if (t->count == RULES_MAX) {
        schema_refuse(s, ST_TOO_LARGE, at, NULL, "more than %d patterns", RULES_MAX);
        return;
    }
    t->rules[t->count].pattern = pattern;
    t->rules[t->count++].at = at;
}

static void format_add(struct schema *s, struct text *t, const struct facet *facet)
{
    const json_t *format = json_object_get(facet->schema, "format");
    const char *name = json_string_value(format);
    if (format == NULL)
        return;
    for (size_t i = 0; name != NULL && i < sizeof(formats) / sizeof(formats[0]); i++) {
        if (strcmp(name, formats[i].name) != 0)
            continue;
        if (formats[i].pattern != NULL)
            rule_add(s, t, formats[i].pattern, schema_pointer(s, facet->place, "format", 0));
        if (formats[i].most > 0 && formats[i].most < t->most)
            t->most = formats[i].most;
        return;
    }
    schema_refuse(s, ST_UNSUPPORTED, facet->place, "format", "\"%.40s\" is not supported",
                  name != NULL ? name : "(not a text)");
}

static void text_find(struct schema *s, const struct facets *list, struct text *t)
{
    *t = (struct text){.most = COUNT_UNLIMITED};
    for (uint32_t i = 0; i < list->count; i++) {
        const struct facet *facet = &list->items[i];
        const json_t *pattern = json_object_get(facet->schema, "pattern");
        uint32_t low = schema_count(s, facet, "minLength", 0);
        uint32_t high = schema_count(s, facet, "maxLength", COUNT_UNLIMITED);
        t->least = low > t->least ? low : t->least;
        t->most = high < t->most ? high : t->most;
        if (json_is_string(pattern))
            rule_add(s, t, json_string_value(pattern),
                     schema_pointer(s, facet->place, "pattern", 0));
        else if (pattern != NULL)
            schema_refuse(s, ST_INVALID, facet->place, "pattern", "want a text");
        format_add(s, t, facet);
    }
}

static struct dfa *text_dfa(struct schema *s, const struct text *t)
{
    struct dfa *all = NULL;
    for (uint32_t i = 0; i < t->count && s->b->status == ST_OK; i++) {
        struct dfa *one =
            schema_pattern(s, t->rules[i].pattern, strlen(t->rules[i].pattern), t->rules[i].at);
        all = all == NULL ? one : dfa_and(s->b, all, one);
    }
    if (all != NULL && (t->least > 0 || t->most != COUNT_UNLIMITED))
        all = dfa_with_length(s->b, all, t->least, t->most);
    return all;
}

static struct fragment inside(struct schema *s, const struct text *t)
{
    struct builder *b = s->b;
    if (t->least > t->most)
        return fragment_never(b);
    if (t->count == 0)
        return fragment_repeat(b, fragment_json_character(b), t->least, t->most);
    if (t->count == 1 && t->least == 0 && t->most == COUNT_UNLIMITED) {
        enum status before = b->status;
        struct fragment body = regex_parse(b, t->rules[0].pattern, strlen(t->rules[0].pattern),
                                           SPELLING_JSON, true, "pattern");
        if (before == ST_OK && b->status != ST_OK) { /* Say where. */
            struct error why = b->error;
            enum status status = b->status;
            b->status = ST_OK;
            schema_refuse(s, status, t->rules[0].at, NULL, "%.180s", why.text);
        }
        return body;
    }
    struct dfa *d = text_dfa(s, t);
    struct fragment result = dfa_fragment(b, d);
    dfa_close(d);
    return result;
}

static struct fragment quoted(struct builder *b, struct fragment body)
{
    return fragment_join(b, fragment_join(b, fragment_text(b, "\""), body), fragment_text(b, "\""));
}

struct fragment schema_string(struct schema *s, const struct facets *list)
{
    struct builder *b = s->b;
    struct text t;
    text_find(s, list, &t);
    if (t.count > 0 || t.least > 0 || t.most != COUNT_UNLIMITED)
        return quoted(b, inside(s, &t));
    if (s->text_rule == 0) {
        s->text_rule = builder_rule_add(b) + 1;
        builder_rule_define(b, s->text_rule - 1, quoted(b, inside(s, &t)));
    }
    return fragment_call(b, s->text_rule - 1);
}

bool schema_string_matches(struct schema *s, const struct facets *list, const json_t *value)
{
    struct text t;
    size_t bytes = json_string_length(value);
    const char *text = json_string_value(value), *at = text;
    uint32_t count = 0, c;
    text_find(s, list, &t);
    while (grammar_utf8_read(&at, text + bytes, &c))
        count++;
    if (count < t.least || count > t.most)
        return false;
    if (t.count == 0)
        return true;
    char *spelled = schema_allocate(s, 6 * bytes + 1);
    struct dfa *d = text_dfa(s, &t);
    bool matches = spelled != NULL && dfa_matches(d, spelled, json_spell(text, bytes, spelled));
    dfa_close(d);
    return matches;
}
