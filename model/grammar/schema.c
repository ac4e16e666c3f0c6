/* schema: conjunctions of subschemas, and rules for them. White space: between two tokens of a
 * document there may be one blank, or a line break and up to 40 blanks and tabs; none before ':'
 * and ',', and none around the document. */
#include "model/grammar/schema.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX  64
#define WORK_MAX   20000u
#define INDENT_MAX 40

struct block {
    struct block *next;
    max_align_t data[];
};

struct memo {
    struct memo *next;
    uint32_t rule;
    uint32_t count;
    struct facet items[];
};

/* ---- memory, errors ---- */

void *schema_allocate(struct schema *s, size_t bytes)
{
    struct block *block = calloc(1, sizeof(*block) + bytes);
    if (block == NULL) {
        builder_fail(s->b, ST_NO_MEMORY, "out of memory");
        return NULL;
    }
    block->next = s->blocks;
    s->blocks = block;
    return block->data;
}

const struct pointer *schema_pointer(struct schema *s, const struct pointer *parent,
                                     const char *key, size_t index)
{
    struct pointer *at = schema_allocate(s, sizeof(*at));
    if (at != NULL)
        *at = (struct pointer){parent, key, index};
    return at;
}

static void pointer_print(const struct pointer *at, char *out, size_t bytes)
{
    const struct pointer *parts[32];
    unsigned count = 0;
    size_t used = 0;
    for (; at != NULL && count < 32; at = at->parent)
        parts[count++] = at;
    while (count > 0 && used + 1 < bytes) {
        const struct pointer *part = parts[--count];
        int more = part->key != NULL ? snprintf(out + used, bytes - used, "/%.60s", part->key)
                                     : snprintf(out + used, bytes - used, "/%zu", part->index);
        used += more > 0 ? (size_t)more : 0;
    }
}

void schema_refuse(struct schema *s, enum status status, const struct pointer *at, const char *key,
                   const char *format, ...)
{
    char where[256] = "", why[200];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why, sizeof(why), format, arguments);
    va_end(arguments);
    pointer_print(at, where, sizeof(where));
    builder_fail(s->b, status, "%s%s%s%s: %s", s->place, where, key != NULL ? "/" : "",
                 key != NULL ? key : "", why);
}

uint32_t schema_count(struct schema *s, const struct facet *facet, const char *key,
                      uint32_t otherwise)
{
    const json_t *value = json_object_get(facet->schema, key);
    double number = json_number_value(value);
    if (value == NULL)
        return otherwise;
    if (!json_is_number(value) || number < 0 || number > 1e9 ||
        number != (double)(uint32_t)number) {
        schema_refuse(s, ST_INVALID, facet->place, key, "want a whole number from 0 to 1000000000");
        return otherwise;
    }
    return (uint32_t)number;
}

/* ---- shared rules ---- */

struct fragment schema_space(struct schema *s)
{
    if (s->space_rule == 0) {
        struct builder *b = s->b;
        struct fragment indent = fragment_either(b, fragment_text(b, " "), fragment_text(b, "\t"));
        struct fragment line =
            fragment_join(b, fragment_text(b, "\n"), fragment_repeat(b, indent, 0, INDENT_MAX));
        s->space_rule = builder_rule_add(b) + 1;
        builder_rule_define(b, s->space_rule - 1,
                            fragment_optional(b, fragment_either(b, fragment_text(b, " "), line)));
    }
    return fragment_call(s->b, s->space_rule - 1);
}

/* ---- references ---- */

/* Decodes one part of a JSON pointer in a fragment of a URI. Returns false if it is too long. */
static bool part_decode(const char **at, char *out, size_t bytes)
{
    size_t used = 0;
    for (; **at != 0 && **at != '/'; (*at)++) {
        char c = **at;
        unsigned hex;
        if (c == '~' && ((*at)[1] == '0' || (*at)[1] == '1'))
            c = *++*at == '0' ? '~' : '/';
        else if (c == '%' && sscanf(*at + 1, "%2x", &hex) == 1 && (*at)[1] != 0 && (*at)[2] != 0) {
            c = (char)hex;
            *at += 2;
        }
        if (used + 1 >= bytes)
            return false;
        out[used++] = c;
    }
    out[used] = 0;
    return true;
}

static const json_t *resolve(struct schema *s, const struct facet *facet,
                             const struct pointer **at_out)
{
    const json_t *ref = json_object_get(facet->schema, "$ref"), *target = s->root;
    const char *at = json_string_value(ref);
    const struct pointer *place = NULL;
    if (at == NULL) {
        schema_refuse(s, ST_INVALID, facet->place, "$ref", "want a text");
        return NULL;
    }
    if (*at != '#' || (at[1] != 0 && at[1] != '/')) {
        schema_refuse(s, ST_UNSUPPORTED, facet->place, "$ref",
                      "\"%.80s\": only # and #/… are supported", at);
        return NULL;
    }
    for (at++; *at == '/' && target != NULL;) {
        char part[256];
        at++;
        if (!part_decode(&at, part, sizeof(part)))
            target = NULL;
        else if (json_is_array(target))
            target = json_array_get(target, (size_t)strtoul(part, NULL, 10));
        else
            target = json_object_get(target, part);
        char *copy = schema_allocate(s, strlen(part) + 1);
        if (copy == NULL)
            return NULL;
        strcpy(copy, part);
        place = schema_pointer(s, place, copy, 0);
    }
    if (target == NULL)
        schema_refuse(s, ST_INVALID, facet->place, "$ref", "\"%.80s\" does not exist",
                      json_string_value(ref));
    *at_out = place;
    return target;
}

/* ---- conjunctions ---- */

struct chain { /* The subschemas that are being added, to find rings. */
    const struct chain *outer;
    const json_t *schema;
};

static void add(struct schema *s, struct facets *list, struct facet facet,
                const struct chain *outer);

static void add_parts(struct schema *s, struct facets *list, const struct facet *facet,
                      const struct chain *chain)
{
    const json_t *all = json_object_get(facet->schema, "allOf"), *part;
    if (json_object_get(facet->schema, "$ref") != NULL) {
        struct facet target = {0};
        target.schema = resolve(s, facet, &target.place);
        if (target.schema != NULL)
            add(s, list, target, chain);
        if (s->old_draft)
            return;
    }
    if (all == NULL)
        return;
    if (!json_is_array(all) || json_array_size(all) == 0)
        schema_refuse(s, ST_INVALID, facet->place, "allOf", "want a list of schemas");
    const struct pointer *at = schema_pointer(s, facet->place, "allOf", 0);
    for (size_t i = 0; i < json_array_size(all) && s->b->status == ST_OK; i++) {
        part = json_array_get(all, i);
        add(s, list, (struct facet){part, schema_pointer(s, at, NULL, i), 0}, chain);
    }
}

static void add(struct schema *s, struct facets *list, struct facet facet,
                const struct chain *outer)
{
    const struct chain chain = {outer, facet.schema};
    if (s->b->status != ST_OK || json_is_true(facet.schema))
        return;
    if (json_is_false(facet.schema)) {
        list->never = true;
        return;
    }
    if (!json_is_object(facet.schema)) {
        schema_refuse(s, ST_INVALID, facet.place, NULL, "a schema is an object, true or false");
        return;
    }
    for (const struct chain *c = outer; c != NULL; c = c->outer)
        if (c->schema == facet.schema) {
            schema_refuse(s, ST_UNSUPPORTED, facet.place, NULL,
                          "the schema refers to itself without progress");
            return;
        }
    for (uint32_t i = 0; i < list->count; i++)
        if (list->items[i].schema == facet.schema) {
            if ((list->items[i].done & (DONE_ANY | DONE_ONE)) != 0)
                schema_refuse(s, ST_UNSUPPORTED, facet.place, NULL,
                              "the schema refers to itself without progress");
            return;
        }
    if (list->count == FACETS_MAX) {
        schema_refuse(s, ST_TOO_LARGE, facet.place, NULL, "more than %d schemas for one value",
                      FACETS_MAX);
        return;
    }
    bool only_ref = s->old_draft && json_object_get(facet.schema, "$ref") != NULL;
    if ((facet.done & DONE_PARTS) == 0 && !only_ref)
        schema_keywords_check(s, facet.schema, facet.place);
    unsigned before = facet.done;
    facet.done |= DONE_PARTS;
    if (!only_ref && schema_keywords_any(facet.schema))
        list->items[list->count++] = facet;
    if ((before & DONE_PARTS) == 0)
        add_parts(s, list, &facet, &chain);
}

void facets_add(struct schema *s, struct facets *list, const json_t *schema,
                const struct pointer *at)
{
    add(s, list, (struct facet){schema, at, 0}, NULL);
}

/* ---- types ---- */

static unsigned type_named(const char *name)
{
    static const struct {
        const char *name;
        unsigned type;
    } types[] = {{"null", TYPE_NULL},    {"boolean", TYPE_BOOLEAN}, {"object", TYPE_OBJECT},
                 {"array", TYPE_ARRAY},  {"number", TYPE_NUMBER},   {"integer", TYPE_INTEGER},
                 {"string", TYPE_STRING}};
    for (unsigned i = 0; name != NULL && i < 7; i++)
        if (strcmp(name, types[i].name) == 0)
            return types[i].type;
    return 0;
}

static unsigned schema_types(struct schema *s, const json_t *schema, const struct pointer *at)
{
    const json_t *type = json_object_get(schema, "type");
    unsigned types = 0;
    if (type == NULL)
        return TYPE_ALL;
    if (json_is_string(type))
        types = type_named(json_string_value(type));
    for (size_t i = 0; i < json_array_size(type); i++) {
        unsigned one = type_named(json_string_value(json_array_get(type, i)));
        if (one == 0) {
            types = 0;
            break;
        }
        types |= one;
    }
    if (types == 0)
        schema_refuse(s, ST_INVALID, at, "type",
                      "want null, boolean, object, array, number, integer, string or a list");
    return types;
}

static unsigned types_of(struct schema *s, const struct facets *list)
{
    unsigned types = list->never ? 0 : TYPE_ALL;
    for (uint32_t i = 0; i < list->count; i++)
        types &= schema_types(s, list->items[i].schema, list->items[i].place);
    return types;
}

/* ---- alternatives ---- */

static const json_t *values_of(const struct facets *list)
{
    for (uint32_t i = 0; i < list->count; i++) {
        const json_t *value = json_object_get(list->items[i].schema, "const");
        if (value == NULL)
            value = json_object_get(list->items[i].schema, "enum");
        if (value != NULL)
            return list->items[i].schema;
    }
    return NULL;
}

static const json_t *property_of(const struct facets *list, const char *name)
{
    for (uint32_t i = 0; i < list->count; i++) {
        const json_t *property =
            json_object_get(json_object_get(list->items[i].schema, "properties"), name);
        if (property != NULL)
            return property;
    }
    return NULL;
}

static bool is_closed_to(const struct facets *list, const char *name)
{
    for (uint32_t i = 0; i < list->count; i++) {
        const json_t *schema = list->items[i].schema;
        if (json_is_false(json_object_get(schema, "additionalProperties")) &&
            json_object_get(schema, "patternProperties") == NULL &&
            json_object_get(json_object_get(schema, "properties"), name) == NULL)
            return true;
    }
    return false;
}

static bool requires(const struct facets *list, const char *name)
{
    for (uint32_t i = 0; i < list->count; i++) {
        const json_t *required = json_object_get(list->items[i].schema, "required");
        for (size_t k = 0; k < json_array_size(required); k++) {
            const char *text = json_string_value(json_array_get(required, k));
            if (text != NULL && strcmp(text, name) == 0)
                return true;
        }
    }
    return false;
}

/* True if a property that `one` requires cannot have the same value in `other`. */
static bool objects_disjoint(struct schema *s, const struct facets *one, const struct facets *other)
{
    for (uint32_t i = 0; i < one->count; i++) {
        const json_t *required = json_object_get(one->items[i].schema, "required");
        for (size_t k = 0; k < json_array_size(required); k++) {
            const char *name = json_string_value(json_array_get(required, k));
            if (name == NULL)
                continue;
            if (is_closed_to(other, name))
                return true;
            const json_t *mine = property_of(one, name), *its = property_of(other, name);
            if (!requires(other, name) || mine == NULL || its == NULL)
                continue;
            struct facets left = {0}, right = {0};
            facets_add(s, &left, mine, one->items[i].place);
            facets_add(s, &right, its, other->items[0].place);
            const json_t *a = values_of(&left), *b = values_of(&right);
            if ((types_of(s, &left) & types_of(s, &right)) == 0 ||
                (a != NULL && b != NULL && schema_values_disjoint(a, b)))
                return true;
        }
    }
    return false;
}

static bool disjoint(struct schema *s, const struct facets *one, const struct facets *other)
{
    unsigned common = types_of(s, one) & types_of(s, other);
    const json_t *a = values_of(one), *b = values_of(other);
    if (common == 0 || (a != NULL && b != NULL && schema_values_disjoint(a, b)))
        return true;
    return common == TYPE_OBJECT &&
           (objects_disjoint(s, one, other) || objects_disjoint(s, other, one));
}

#define ONE_OF_MAX 64

static void one_of_check(struct schema *s, const struct facet *facet, const json_t *list)
{
    size_t count = json_array_size(list);
    if (count > ONE_OF_MAX) {
        schema_refuse(s, ST_TOO_LARGE, facet->place, "oneOf", "more than %d alternatives",
                      ONE_OF_MAX);
        return;
    }
    struct facets *sides = schema_allocate(s, 2 * sizeof(*sides));
    if (sides == NULL)
        return;
    for (size_t i = 0; i < count; i++)
        for (size_t k = i + 1; k < count && s->b->status == ST_OK; k++) {
            sides[0].count = sides[1].count = 0;
            sides[0].never = sides[1].never = false;
            facets_add(s, &sides[0], json_array_get(list, i), facet->place);
            facets_add(s, &sides[1], json_array_get(list, k), facet->place);
            if (s->b->status == ST_OK && !disjoint(s, &sides[0], &sides[1]))
                schema_refuse(s, ST_UNSUPPORTED, facet->place, "oneOf",
                              "a value may satisfy alternatives %zu and %zu: use anyOf, or "
                              "constants that tell them apart",
                              i, k);
        }
}

/* Expands the first anyOf or oneOf that is not expanded yet. Returns false if there is none. */
static bool expand(struct schema *s, const struct facets *list, struct fragment *out)
{
    for (uint32_t i = 0; i < list->count; i++)
        for (unsigned kind = 0; kind < 2; kind++) {
            const struct facet *facet = &list->items[i];
            const char *key = kind == 0 ? "anyOf" : "oneOf";
            const unsigned mark = kind == 0 ? DONE_ANY : DONE_ONE;
            const json_t *alternatives = json_object_get(facet->schema, key);
            if (alternatives == NULL || (facet->done & mark) != 0)
                continue;
            if (json_array_size(alternatives) == 0)
                schema_refuse(s, ST_INVALID, facet->place, key, "want a list of schemas");
            if (kind == 1)
                one_of_check(s, facet, alternatives);
            const struct pointer *at = schema_pointer(s, facet->place, key, 0);
            *out = fragment_never(s->b);
            struct facets *next = schema_allocate(s, sizeof(*next));
            for (size_t k = 0; k < json_array_size(alternatives) && s->b->status == ST_OK; k++) {
                *next = *list;
                next->items[i].done |= mark;
                facets_add(s, next, json_array_get(alternatives, k),
                           schema_pointer(s, at, NULL, k));
                *out = fragment_either(s->b, *out, fragment_call(s->b, schema_rule(s, next)));
            }
            return true;
        }
    return false;
}

/* ---- rules ---- */

static struct fragment value_of(struct schema *s, const struct facets *list)
{
    struct builder *b = s->b;
    struct fragment result;
    if (expand(s, list, &result))
        return result;
    unsigned types = types_of(s, list);
    if (schema_values(s, list, types, &result))
        return result;
    result = fragment_never(b);
    if (types & TYPE_NULL)
        result = fragment_either(b, result, fragment_text(b, "null"));
    if (types & TYPE_BOOLEAN)
        result = fragment_either(
            b, result, fragment_either(b, fragment_text(b, "true"), fragment_text(b, "false")));
    if (types & TYPE_STRING)
        result = fragment_either(b, result, schema_string(s, list));
    if (types & TYPE_NUMBER)
        result = fragment_either(b, result, schema_number(s, list, (types & TYPE_FRACTION) != 0));
    if (types & TYPE_OBJECT)
        result = fragment_either(b, result, schema_object(s, list));
    if (types & TYPE_ARRAY)
        result = fragment_either(b, result, schema_array(s, list));
    return result;
}

/* Adds the place of the value to an error that does not name a place, such as an exceeded bound of
 * the builder. */
static void error_place(struct schema *s, const struct pointer *at)
{
    char where[256] = "";
    pointer_print(at, where, sizeof(where));
    if (strncmp(s->b->error.text, s->place, strlen(s->place)) != 0)
        error_prefix(&s->b->error, "%s%s", s->place, where);
}

static uint32_t facets_hash(const struct facets *list)
{
    uint64_t hash = list->never;
    for (uint32_t i = 0; i < list->count; i++)
        hash =
            (hash ^ (uintptr_t)list->items[i].schema ^ list->items[i].done) * 0x9E3779B97F4A7C15ull;
    return (uint32_t)(hash >> 54);
}

static bool memo_equals(const struct memo *memo, const struct facets *list)
{
    if (memo->count != list->count)
        return false;
    for (uint32_t i = 0; i < list->count; i++)
        if (memo->items[i].schema != list->items[i].schema ||
            memo->items[i].done != list->items[i].done)
            return false;
    return true;
}

uint32_t schema_rule(struct schema *s, const struct facets *list)
{
    struct memo **bucket = &s->memo[facets_hash(list) % 1024];
    if (s->b->status != ST_OK)
        return 0;
    if (list->never) {
        uint32_t rule = builder_rule_add(s->b);
        builder_rule_define(s->b, rule, fragment_never(s->b));
        return rule;
    }
    for (const struct memo *memo = *bucket; memo != NULL; memo = memo->next)
        if (memo_equals(memo, list))
            return memo->rule;
    const struct pointer *at = list->count > 0 ? list->items[0].place : NULL;
    if (s->depth == DEPTH_MAX || ++s->work > WORK_MAX) {
        schema_refuse(s, ST_TOO_LARGE, at, NULL,
                      s->depth == DEPTH_MAX ? "nested deeper than 64 levels"
                                            : "more than 20000 combinations of schemas");
        return 0;
    }
    struct memo *memo = schema_allocate(s, sizeof(*memo) + list->count * sizeof(memo->items[0]));
    if (memo == NULL)
        return 0;
    memo->rule = builder_rule_add(s->b);
    memo->count = list->count;
    memcpy(memo->items, list->items, list->count * sizeof(memo->items[0]));
    memo->next = *bucket;
    *bucket = memo;
    s->depth++;
    builder_rule_define(s->b, memo->rule, value_of(s, list));
    if (s->b->status != ST_OK)
        error_place(s, at);
    s->depth--;
    return memo->rule;
}

uint32_t schema_parse(struct builder *b, const json_t *schema, const char *place)
{
    struct schema *s = calloc(1, sizeof(*s));
    struct facets *list = calloc(1, sizeof(*list));
    uint32_t rule = 0;
    if (s == NULL || list == NULL)
        builder_fail(b, ST_NO_MEMORY, "out of memory");
    else {
        const char *draft = json_string_value(json_object_get(schema, "$schema"));
        *s = (struct schema){.b = b, .root = schema, .place = place};
        s->old_draft = draft != NULL && strstr(draft, "/draft-0") != NULL;
        facets_add(s, list, schema, NULL);
        rule = schema_rule(s, list);
    }
    while (s != NULL && s->blocks != NULL) {
        struct block *block = s->blocks;
        s->blocks = block->next;
        free(block);
    }
    free(s);
    free(list);
    return rule;
}
