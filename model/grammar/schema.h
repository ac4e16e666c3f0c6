/* schema: what the files schema*.c share. A schema is compiled into rules of a builder: one rule
 * for each conjunction of subschemas that must hold for one value. schema.c finds the conjunctions
 * ($ref, allOf, anyOf, oneOf), the other files make the text of one type. Only schema*.c include
 * it. */
#ifndef MODEL_GRAMMAR_SCHEMA_H
#define MODEL_GRAMMAR_SCHEMA_H

#include "model/grammar/dfa.h"
#include "model/grammar/internal.h"

/* Types of values. A number is an integer or not. */
enum {
    TYPE_NULL = 1,
    TYPE_BOOLEAN = 2,
    TYPE_OBJECT = 4,
    TYPE_ARRAY = 8,
    TYPE_INTEGER = 16,
    TYPE_FRACTION = 32,
    TYPE_STRING = 64,
    TYPE_NUMBER = TYPE_INTEGER | TYPE_FRACTION,
    TYPE_ALL = 127,
};

struct pointer { /* A JSON pointer: its last part and the rest. */
    const struct pointer *parent;
    const char *key; /* NULL = `index`. */
    size_t index;
};

/* What has been taken from a facet into its conjunction. */
enum { DONE_PARTS = 1, DONE_ANY = 2, DONE_ONE = 4 };

struct facet { /* One of the subschemas of a conjunction. */
    const json_t *schema;
    const struct pointer *at;
    unsigned done;
};

#define FACETS_MAX 64

struct facets {
    uint32_t count;
    bool never; /* `false` is among the subschemas. */
    struct facet items[FACETS_MAX];
};

struct schema {
    struct builder *b;
    const json_t *root;
    const char *place; /* Where the root is, for errors. */
    bool old_draft;    /* Draft 7 or older: what stands beside $ref is ignored. */
    unsigned depth;
    uint32_t work; /* Conjunctions so far. */
    struct memo *memo[1024];
    struct block *blocks; /* Memory until the end. */
    uint32_t space, text; /* Shared rules + 1; 0 = not yet. */
};

/* schema.c */
void *schema_allocate(struct schema *s, size_t bytes); /* Zeroed; NULL = failed. */
const struct pointer *schema_pointer(struct schema *s, const struct pointer *parent,
                                     const char *key, size_t index);
/* Refuses the keyword `key` (NULL = the schema itself) of the subschema at `at`. */
void schema_refuse(struct schema *s, enum status status, const struct pointer *at, const char *key,
                   const char *format, ...) __attribute__((format(printf, 5, 6)));
void facets_add(struct schema *s, struct facets *list, const json_t *schema,
                const struct pointer *at);
/* A rule for the values that satisfy all facets. */
uint32_t schema_rule(struct schema *s, const struct facets *list);
struct fragment schema_space(struct schema *s); /* White space between two tokens. */
/* A keyword that is a whole number from 0 on; `otherwise` = the keyword is missing. */
uint32_t schema_count(struct schema *s, const struct facet *facet, const char *key,
                      uint32_t otherwise);

/* schema_keywords.c: refuses what the subschema has and cleave does not honour. */
void schema_keywords_check(struct schema *s, const json_t *schema, const struct pointer *at);
/* False if the subschema has annotations only, so that every value satisfies it. */
bool schema_keywords_any(const json_t *schema);

/* schema_value.c: enum and const. Returns false if no facet has them. */
bool schema_values(struct schema *s, const struct facets *list, unsigned types,
                   struct fragment *out);
bool schema_values_disjoint(const json_t *one, const json_t *other);

/* One type each. */
struct fragment schema_object(struct schema *s, const struct facets *list);
struct fragment schema_array(struct schema *s, const struct facets *list);
struct fragment schema_string(struct schema *s, const struct facets *list);
struct fragment schema_number(struct schema *s, const struct facets *list, bool fractions);
/* The inside of a string of the facets, for enum; NULL = any. */
bool schema_string_matches(struct schema *s, const struct facets *list, const json_t *value);
bool schema_number_matches(struct schema *s, const struct facets *list, double value);
/* Patterns of the inside of strings as SPELLING_JSON writes them. */
struct dfa *schema_pattern(struct schema *s, const char *pattern, size_t bytes,
                           const struct pointer *at);
struct dfa *schema_any_text(struct schema *s);

#endif
