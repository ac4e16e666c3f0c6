/* schema: objects. The declared properties come in the order of the schema, names that are only
 * required after them, all others last. Other names never repeat a declared one. */
#include "model/grammar/schema.h"

#include <stdlib.h>
#include <string.h>

#define PROPERTIES_MAX 1000
#define PATTERNS_MAX   16
#define NAMES_BYTES    6000 /* All declared names, where other names must differ from them. */
#define COUNTED_MAX    64   /* Properties, where minProperties or maxProperties count them. */

struct property {
    const char *name;
    bool required;
    uint32_t rule; /* Of its value. */
};

/* Names that are not declared and match one pattern (or none of them), with a rule for their
 * values. */
struct others {
    const char *pattern; /* NULL = no pattern matches. */
    const struct pointer *at;
    struct dfa *names;
};

struct object {
    struct schema *s;
    const struct facets *list;
    struct property *properties;
    size_t count;
    struct others patterns[PATTERNS_MAX];
    size_t pattern_count;
    uint32_t more; /* Rule for one other property + 1; 0 = there is none. */
    uint32_t least, most;
};

/* ---- which properties ---- */

static bool is_declared(const struct object *o, const char *name)
{
    for (size_t i = 0; i < o->count; i++)
        if (strcmp(o->properties[i].name, name) == 0)
            return true;
    return false;
}

static void declare(struct object *o, const char *name, const struct pointer *at, const char *key)
{
    if (o->s->b->status != ST_OK || is_declared(o, name))
        return;
    if (o->count == PROPERTIES_MAX)
        schema_refuse(o->s, ST_TOO_LARGE, at, key, "more than %d properties", PROPERTIES_MAX);
    else
        o->properties[o->count++] = (struct property){name, false, 0};
}

static void require(struct object *o, const char *name)
{
    for (size_t i = 0; i < o->count; i++)
        if (strcmp(o->properties[i].name, name) == 0)
            o->properties[i].required = true;
}

static void names_find(struct object *o)
{
    const char *name;
    json_t *value;
    for (uint32_t i = 0; i < o->list->count; i++) {
        const struct facet *facet = &o->list->items[i];
        json_t *properties = json_object_get(facet->schema, "properties");
        if (properties != NULL && !json_is_object(properties))
            schema_refuse(o->s, ST_INVALID, facet->place, "properties", "want an object");
        json_object_foreach(properties, name, value) declare(o, name, facet->place, "properties");
    }
    for (uint32_t i = 0; i < o->list->count; i++) {
        const struct facet *facet = &o->list->items[i];
        const json_t *required = json_object_get(facet->schema, "required");
        if (required != NULL && !json_is_array(required))
            schema_refuse(o->s, ST_INVALID, facet->place, "required", "want a list of names");
        for (size_t k = 0; k < json_array_size(required) && o->s->b->status == ST_OK; k++) {
            name = json_string_value(json_array_get(required, k));
            if (name == NULL) {
                schema_refuse(o->s, ST_INVALID, facet->place, "required", "want a list of names");
                return;
            }
            declare(o, name, facet->place, "required");
            require(o, name);
        }
    }
}

static void patterns_find(struct object *o)
{
    const char *pattern;
    json_t *value;
    for (uint32_t i = 0; i < o->list->count; i++) {
        const struct facet *facet = &o->list->items[i];
        json_t *patterns = json_object_get(facet->schema, "patternProperties");
        if (patterns != NULL && !json_is_object(patterns))
            schema_refuse(o->s, ST_INVALID, facet->place, "patternProperties", "want an object");
        json_object_foreach(patterns, pattern, value)
        {
            bool known = false;
            for (size_t k = 0; k < o->pattern_count; k++)
                known |= strcmp(o->patterns[k].pattern, pattern) == 0;
            if (known)
                continue;
            if (o->pattern_count == PATTERNS_MAX) {
                schema_refuse(o->s, ST_TOO_LARGE, facet->place, "patternProperties",
                              "more than %d patterns", PATTERNS_MAX);
                return;
            }
            const struct pointer *at = schema_pointer(o->s, facet->place, "patternProperties", 0);
            o->patterns[o->pattern_count++] =
                (struct others){pattern, at, schema_pattern(o->s, pattern, strlen(pattern), at)};
        }
    }
}

/* ---- values ---- */

/* Whether the name, as it is spelled in JSON, matches the pattern. */
static bool name_matches(struct object *o, const char *name, const struct dfa *names)
{
    size_t bytes = strlen(name);
    char *spelled = schema_allocate(o->s, 6 * bytes + 1);
    return spelled != NULL && dfa_matches(names, spelled, json_spell(name, bytes, spelled));
}

/* The schemas of all facets for one property. A facet that has no schema for this property (by name
 * or pattern) contributes additionalProperties. */
static uint32_t value_rule(struct object *o, const char *name, const struct others *pattern)
{
    struct facets *value = schema_allocate(o->s, sizeof(*value));
    for (uint32_t i = 0; i < o->list->count && value != NULL; i++) {
        const struct facet *facet = &o->list->items[i];
        const json_t *own = NULL, *patterns = json_object_get(facet->schema, "patternProperties");
        const char *key = "properties", *part = name;
        if (name != NULL)
            own = json_object_get(json_object_get(facet->schema, key), name);
        if (own != NULL)
            facets_add(o->s, value, own,
                       schema_pointer(o->s, schema_pointer(o->s, facet->place, key, 0), part, 0));
        bool found = own != NULL;
        for (size_t k = 0; k < o->pattern_count; k++) {
            const struct others *p = &o->patterns[k];
            const json_t *its = json_object_get(patterns, p->pattern);
            if (its == NULL || (name != NULL ? !name_matches(o, name, p->names) : p != pattern))
                continue;
            found = true;
            facets_add(o->s, value, its, schema_pointer(o->s, p->at, p->pattern, 0));
        }
        const json_t *rest = json_object_get(facet->schema, "additionalProperties");
        if (!found && rest != NULL)
            facets_add(o->s, value, rest,
                       schema_pointer(o->s, facet->place, "additionalProperties", 0));
    }
    return value != NULL ? schema_rule(o->s, value) : 0;
}

/* ---- other properties ---- */

/* Whether the object may have other properties that match no pattern. */
static bool is_open(const struct object *o)
{
    for (uint32_t i = 0; i < o->list->count; i++)
        if (json_is_false(json_object_get(o->list->items[i].schema, "additionalProperties")))
            return false;
    return true;
}

/* The declared names, as they are spelled in JSON. */
static struct dfa *declared_names(struct object *o)
{
    struct builder part = {0};
    struct literal *names = schema_allocate(o->s, (o->count + 1) * sizeof(*names));
    size_t total = 0;
    for (size_t i = 0; i < o->count && names != NULL; i++) {
        size_t bytes = strlen(o->properties[i].name);
        char *spelled = schema_allocate(o->s, 6 * bytes + 1);
        total += bytes;
        if (spelled == NULL)
            return NULL;
        names[i] = (struct literal){spelled, json_spell(o->properties[i].name, bytes, spelled)};
    }
    if (total > NAMES_BYTES)
        schema_refuse(o->s, ST_TOO_LARGE, o->list->items[0].place, "additionalProperties",
                      "not false beside names of more than %d bytes together", NAMES_BYTES);
    if (names == NULL || o->s->b->status != ST_OK)
        return NULL;
    return dfa_open(o->s->b, &part, fragment_literals(&part, names, o->count));
}

static struct fragment other_pair(struct object *o, struct dfa *names, const struct others *of)
{
    struct builder *b = o->s->b;
    struct fragment pair = fragment_join(b, fragment_text(b, "\""), dfa_fragment(b, names));
    pair = fragment_join(b, fragment_join(b, pair, fragment_text(b, "\":")), schema_space(o->s));
    return fragment_join(b, pair, fragment_call(b, value_rule(o, NULL, of)));
}

/* No name may match two patterns. A declared name may match one: value_rule joins their schemas. */
static void patterns_check(struct object *o)
{
    struct schema *s = o->s;
    for (size_t i = 0; i < o->pattern_count; i++) {
        for (size_t k = i + 1; k < o->pattern_count && s->b->status == ST_OK; k++) {
            struct dfa *both = dfa_and(s->b, dfa_copy(s->b, o->patterns[i].names),
                                       dfa_copy(s->b, o->patterns[k].names));
            if (s->b->status == ST_OK && !dfa_is_empty(both))
                schema_refuse(s, ST_UNSUPPORTED, o->patterns[i].at, NULL,
                              "a name can match \"%.60s\" and \"%.60s\"", o->patterns[i].pattern,
                              o->patterns[k].pattern);
            dfa_close(both);
        }
    }
}

static void others_add(struct object *o)
{
    struct builder *b = o->s->b;
    if (o->pattern_count == 0 && !is_open(o))
        return;
    patterns_check(o);
    struct dfa *declared = o->count > 0 ? declared_names(o) : NULL;
    struct dfa *rest = is_open(o) ? schema_any_text(o->s) : NULL;
    struct fragment all = fragment_never(b);
    for (size_t i = 0; i < o->pattern_count && b->status == ST_OK; i++) {
        struct dfa *names = dfa_copy(b, o->patterns[i].names);
        if (declared != NULL)
            names = dfa_without(b, names, dfa_copy(b, declared));
        if (rest != NULL)
            rest = dfa_without(b, rest, dfa_copy(b, o->patterns[i].names));
        all = fragment_either(b, all, other_pair(o, names, &o->patterns[i]));
        dfa_close(names);
    }
    if (rest != NULL && declared != NULL && b->status == ST_OK)
        rest = dfa_without(b, rest, dfa_copy(b, declared));
    if (rest != NULL && b->status == ST_OK)
        all = fragment_either(b, all, other_pair(o, rest, NULL));
    dfa_close(rest);
    dfa_close(declared);
    o->more = builder_rule_add(b) + 1;
    builder_rule_define(b, o->more - 1, all);
}

/* ---- the text ---- */

static struct fragment comma(struct object *o)
{
    struct builder *b = o->s->b;
    return fragment_join(b, fragment_text(b, ","), schema_space(o->s));
}

/* What follows the declared properties: `low` to `high` other ones, then the brace. first = nothing
 * has been written. */
static struct fragment tail(struct object *o, bool first, uint32_t low, uint32_t high)
{
    struct builder *b = o->s->b;
    struct fragment result;
    if (o->more == 0)
        high = 0;
    if (low > high)
        return fragment_never(b);
    if (high == 0)
        result = first ? fragment_empty(b) : schema_space(o->s);
    else {
        uint32_t used = first;
        result = fragment_repeat(b, fragment_join(b, comma(o), fragment_call(b, o->more - 1)),
                                 low > used ? low - used : 0,
                                 high == COUNT_UNLIMITED ? high : high - used);
        if (first)
            result = fragment_join(b, fragment_call(b, o->more - 1), result);
        result = fragment_join(b, result, schema_space(o->s));
        if (first && low == 0)
            result = fragment_optional(b, result);
    }
    return fragment_join(b, result, fragment_text(b, "}"));
}

static struct fragment pair_of(struct object *o, const struct property *p)
{
    struct builder *b = o->s->b;
    struct fragment pair =
        fragment_join(b, fragment_text(b, "\""), fragment_json_text(b, p->name, strlen(p->name)));
    pair = fragment_join(b, fragment_join(b, pair, fragment_text(b, "\":")), schema_space(o->s));
    return fragment_join(b, pair, fragment_call(b, p->rule));
}

static void set_next(struct builder *b, uint32_t node, uint32_t next, uint32_t other)
{
    if (b->status != ST_OK)
        return;
    b->nodes[node].next = next;
    b->nodes[node].target = other;
}

static uint32_t fork_new(struct builder *b)
{
    return builder_node(b,
                        (struct node){.kind = NODE_FORK, .next = NODE_NONE, .target = NODE_NONE});
}

/* The declared properties from number `i` on, when `written` have been written (with counting;
 * otherwise 0 or 1), and the tail. nodes[i × width + written] is the node of that place. */
static void lattice_fill(struct object *o, uint32_t *nodes, uint32_t width, bool counting)
{
    struct builder *b = o->s->b;
    for (uint32_t i = 0; i < o->count && b->status == ST_OK; i++) {
        const struct property *p = &o->properties[i];
        uint32_t rule = 0;
        struct fragment shared = {0};
        if (counting) {
            rule = builder_rule_add(b);
            builder_rule_define(b, rule, pair_of(o, p));
        } else {
            shared = pair_of(o, p);
            set_next(b, shared.end, nodes[(i + 1) * width + 1], NODE_NONE);
        }
        for (uint32_t written = 0; written < width && b->status == ST_OK; written++) {
            uint32_t start = shared.start;
            uint32_t after = written + 1 < width ? written + 1 : written;
            if (counting) {
                struct fragment call = fragment_call(b, rule);
                set_next(b, call.end, written < after ? nodes[(i + 1) * width + after] : NODE_NONE,
                         NODE_NONE);
                start = call.start;
            }
            if (written > 0) {
                struct fragment separator = comma(o);
                set_next(b, separator.end, start, NODE_NONE);
                start = separator.start;
            }
            set_next(b, nodes[i * width + written], start,
                     p->required ? NODE_NONE : nodes[(i + 1) * width + written]);
        }
    }
}

static struct fragment pairs(struct object *o)
{
    struct builder *b = o->s->b;
    const bool counting = o->least > 0 || o->most != COUNT_UNLIMITED;
    uint32_t width = counting ? (uint32_t)o->count + 1 : 2;
    if (counting && o->count > COUNTED_MAX) {
        schema_refuse(o->s, ST_TOO_LARGE, o->list->items[0].place, NULL,
                      "minProperties or maxProperties with more than %d properties", COUNTED_MAX);
        return fragment_never(b);
    }
    uint32_t *nodes = schema_allocate(o->s, (o->count + 1) * width * sizeof(*nodes));
    struct fragment end = fragment_empty(b);
    if (nodes == NULL)
        return fragment_never(b);
    for (size_t i = 0; i < (o->count + 1) * width; i++)
        nodes[i] = fork_new(b);
    lattice_fill(o, nodes, width, counting);
    for (uint32_t written = 0; written < width; written++) {
        uint32_t low = 0, high = COUNT_UNLIMITED;
        if (counting && written > o->most)
            continue; /* The node has no way on. */
        if (counting && o->most != COUNT_UNLIMITED)
            high = o->most - written;
        if (counting && written < o->least)
            low = o->least - written;
        /* Other names may be equal, so they count as one. */
        struct fragment last = low > 1 ? fragment_never(b) : tail(o, written == 0, low, high);
        set_next(b, nodes[o->count * width + written], last.start, NODE_NONE);
        set_next(b, last.end, end.start, NODE_NONE);
    }
    return (struct fragment){nodes[0], end.end, true};
}

static void counts_find(struct object *o)
{
    uint32_t required = 0;
    o->most = COUNT_UNLIMITED;
    for (size_t i = 0; i < o->count; i++)
        required += o->properties[i].required;
    for (uint32_t i = 0; i < o->list->count; i++) {
        const struct facet *facet = &o->list->items[i];
        uint32_t low = schema_count(o->s, facet, "minProperties", 0);
        uint32_t high = schema_count(o->s, facet, "maxProperties", COUNT_UNLIMITED);
        if (low > required + 1 && o->more != 0)
            schema_refuse(o->s, ST_UNSUPPORTED, facet->place, "minProperties",
                          "more than the required properties and one, where other names are "
                          "allowed");
        o->least = low > o->least ? low : o->least;
        o->most = high < o->most ? high : o->most;
    }
    if (o->least <= required)
        o->least = 0;
}

struct fragment schema_object(struct schema *s, const struct facets *list)
{
    struct builder *b = s->b;
    struct object o = {.s = s, .list = list};
    struct fragment result = fragment_never(b);
    o.properties = schema_allocate(s, PROPERTIES_MAX * sizeof(*o.properties));
    if (o.properties == NULL)
        return result;
    names_find(&o);
    patterns_find(&o);
    for (size_t i = 0; i < o.count && b->status == ST_OK; i++)
        o.properties[i].rule = value_rule(&o, o.properties[i].name, NULL);
    if (b->status == ST_OK)
        others_add(&o);
    counts_find(&o);
    if (b->status == ST_OK) {
        result = fragment_join(b, fragment_text(b, "{"), schema_space(s));
        result = fragment_join(b, result, pairs(&o));
    }
    for (size_t i = 0; i < o.pattern_count; i++)
        dfa_close(o.patterns[i].names);
    return result;
}
