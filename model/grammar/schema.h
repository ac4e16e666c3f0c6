/* schema: the structs and functions that the files schema*.c share. A JSON schema is compiled into
 * rules of a builder (builder.h): one rule for each conjunction, that is, each set of subschemas
 * that must hold for one value. schema.c finds the conjunctions ($ref, allOf, anyOf, oneOf),
 * schema_keywords.c checks the keywords, schema_value.c handles enum and const, and each other file
 * makes the fragments for values of one type. Only the files schema*.c include it. They run on the
 * thread that compiles the constraint. Errors are recorded in the builder. A schema is never
 * checked against a finished document. */
#ifndef MODEL_GRAMMAR_SCHEMA_H
#define MODEL_GRAMMAR_SCHEMA_H

#include "model/grammar/dfa.h"
#include "model/grammar/internal.h"

/* Types of values. A number is an integer or a fraction. */
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

/* A place in the schema: a JSON pointer. */
struct pointer {
    const struct pointer *parent; /* NULL = this is the first part. */
    const char *key;              /* The last part, if it is a name; NULL = it is `index`. */
    size_t index;
};

/* Bits of facet.done: which keywords have been added to the conjunction as facets of their own:
 * $ref and allOf, anyOf, oneOf. */
enum { DONE_PARTS = 1, DONE_ANY = 2, DONE_ONE = 4 };

/* One of the subschemas of a conjunction. */
struct facet {
    const json_t *schema;
    const struct pointer *place; /* Its place, for errors. */
    unsigned done;
};

#define FACETS_MAX 64

/* A conjunction. */
struct facets {
    uint32_t count;
    bool never; /* One of the subschemas is `false`, so no value satisfies the conjunction. */
    struct facet items[FACETS_MAX];
};

/* The state of compiling one schema. */
struct schema {
    struct builder *b;
    const json_t *root;      /* The whole schema. */
    const char *place;       /* The root's JSON pointer in the request, for errors. */
    bool old_draft;          /* Draft 7 or older: the keywords beside $ref are ignored. */
    unsigned depth;          /* Nested calls of schema_rule. */
    uint32_t work;           /* Conjunctions so far. */
    struct memo *memo[1024]; /* Hash table from a conjunction to its rule. */
    struct block *blocks;    /* Memory of schema_allocate, which is freed at the end. */
    /* Rules for white space and for any string, + 1; 0 = not made yet. */
    uint32_t space_rule, text_rule;
};

/* ---- schema.c ---- */

/* Returns zeroed memory that is freed when the schema is compiled. NULL = no memory. */
void *schema_allocate(struct schema *s, size_t bytes);
/* Returns the place of a subschema. key NULL = `index` is its last part. */
const struct pointer *schema_pointer(struct schema *s, const struct pointer *parent,
                                     const char *key, size_t index);
/* Refuses the keyword `key` (NULL = the schema itself) of the subschema at `at`. */
void schema_refuse(struct schema *s, enum status status, const struct pointer *at, const char *key,
                   const char *format, ...) __attribute__((format(printf, 5, 6)));
/* Adds the subschema at `at` to a conjunction. */
void facets_add(struct schema *s, struct facets *list, const json_t *schema,
                const struct pointer *at);
/* Returns a rule for the values that satisfy all facets. */
uint32_t schema_rule(struct schema *s, const struct facets *list);
/* Returns a fragment for the white space between two tokens of a document. */
struct fragment schema_space(struct schema *s);
/* Returns the value of a keyword that must be a whole number from 0 to 1000000000; `otherwise` if
 * the facet does not have the keyword. */
uint32_t schema_count(struct schema *s, const struct facet *facet, const char *key,
                      uint32_t otherwise);

/* ---- schema_keywords.c ---- */

/* Refuses keywords of the subschema that are not honoured. */
void schema_keywords_check(struct schema *s, const json_t *schema, const struct pointer *at);
/* Returns false if the subschema has only annotations, so that every value satisfies it. */
bool schema_keywords_any(const json_t *schema);

/* ---- schema_value.c: enum and const ---- */

/* Stores a fragment for the values of `types` that enum and const allow. Returns false if no facet
 * has these keywords. */
bool schema_values(struct schema *s, const struct facets *list, unsigned types,
                   struct fragment *out);
/* Returns true if none of the values that enum or const of `a` lists satisfies enum and const of
 * both. Requires that `a` has one of these keywords. */
bool schema_values_disjoint(const json_t *a, const json_t *b);

/* ---- one file for each type ---- */

/* Return a fragment for the values of one type that satisfy all facets. fractions = false: integers
 * only. */
struct fragment schema_object(struct schema *s, const struct facets *list);
struct fragment schema_array(struct schema *s, const struct facets *list);
struct fragment schema_string(struct schema *s, const struct facets *list);
struct fragment schema_number(struct schema *s, const struct facets *list, bool fractions);
/* Return true if the value, which is of the function's type, satisfies the facets. */
bool schema_string_matches(struct schema *s, const struct facets *list, const json_t *value);
bool schema_number_matches(struct schema *s, const struct facets *list, double value);
/* Return a dfa for the inside of strings in SPELLING_JSON: schema_pattern for the strings that
 * match a pattern, schema_any_text for all strings. The caller closes the dfa. */
struct dfa *schema_pattern(struct schema *s, const char *pattern, size_t bytes,
                           const struct pointer *at);
struct dfa *schema_any_text(struct schema *s);

#endif
