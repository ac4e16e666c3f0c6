/* schema: what the files schema*.c share to compile a JSON schema into rules of a builder
 * (builder.h). The functions run on the thread that compiles the constraint, and record errors in
 * the builder. This part does not check finished documents.
 *
 * A conjunction is a set of subschemas that one value must satisfy together. There is one rule for
 * each conjunction. schema.c finds the conjunctions ($ref, allOf, anyOf, oneOf), and the other
 * files make the fragments for values. */
#ifndef MODEL_GRAMMAR_SCHEMA_H
#define MODEL_GRAMMAR_SCHEMA_H

#include "model/grammar/dfa.h"
#include "model/grammar/internal.h"

/* Bits of the types of values. A number is an integer or a fraction. */
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

/* A place in the schema: a JSON pointer, from its last part to its first. NULL = the whole
 * schema. */
struct pointer {
    const struct pointer *parent; /* The parts before the last one; NULL = none. */
    const char *key;              /* The last part; NULL = it is the number `index`. */
    size_t index;
};

/* Bits of facet.done. The subschemas of these keywords are already in the conjunction, as facets of
 * their own: $ref and allOf (DONE_PARTS), one of anyOf (DONE_ANY), one of oneOf (DONE_ONE). */
enum { DONE_PARTS = 1, DONE_ANY = 2, DONE_ONE = 4 };

/* One of the subschemas of a conjunction. */
struct facet {
    const json_t *schema;
    const struct pointer *place; /* Where the subschema is, for errors. */
    unsigned done;               /* OR of DONE_ bits. */
};

#define FACETS_MAX 64 /* Most facets of a conjunction; more are the error ST_TOO_LARGE. */

/* A conjunction. */
struct facets {
    uint32_t count;
    bool never; /* A subschema is `false`: no value satisfies the conjunction. */
    struct facet items[FACETS_MAX];
};

/* The state of compiling one schema. */
struct schema {
    struct builder *b;
    const json_t *root;      /* The whole schema. */
    const char *place;       /* What errors call the whole schema, such as "#". */
    bool old_draft;          /* Draft 7 or older: the keywords beside $ref are ignored. */
    unsigned depth;          /* Nested calls of schema_rule. */
    uint32_t work;           /* Number of compiled conjunctions. */
    struct memo *memo[1024]; /* Hash table from a conjunction to its rule. */
    struct block *blocks;    /* Memory of schema_allocate. */
    /* Number + 1 of the rule for white space, and of the rule for any string; 0 = not made yet. */
    uint32_t space_rule, text_rule;
};

/* ---- schema.c ---- */

/* Returns zeroed memory that is freed after the schema is compiled; NULL = no memory. */
void *schema_allocate(struct schema *s, size_t bytes);
/* Returns the place whose last part is `key` (NULL = `index`), after the parts of `parent`; NULL =
 * no memory. */
const struct pointer *schema_pointer(struct schema *s, const struct pointer *parent,
                                     const char *key, size_t index);
/* Records an error: the keyword `key` (NULL = the subschema itself) at the place `at` is refused.
 * `format` is the reason. */
void schema_refuse(struct schema *s, enum status status, const struct pointer *at, const char *key,
                   const char *format, ...) __attribute__((format(printf, 5, 6)));
/* Adds the subschema `schema`, whose place is `at`, to a conjunction, with its $ref and allOf. */
void facets_add(struct schema *s, struct facets *list, const json_t *schema,
                const struct pointer *at);
/* Returns the number of a rule for the values that satisfy all facets; after an error the number is
 * meaningless. */
uint32_t schema_rule(struct schema *s, const struct facets *list);
/* Returns a fragment for the white space inside of objects and arrays. */
struct fragment schema_space(struct schema *s);
/* Returns the value of the keyword `key`, which must be a whole number from 0 to 1000000000;
 * `otherwise` if the facet does not have the keyword or after an error. */
uint32_t schema_count(struct schema *s, const struct facet *facet, const char *key,
                      uint32_t otherwise);

/* ---- schema_keywords.c ---- */

/* Records an error if `schema` has a keyword that grammar_keywords refuses (except uniqueItems and
 * nullable with the value false), or if it has $id and is not the whole schema. */
void schema_keywords_check(struct schema *s, const json_t *schema, const struct pointer *at);
/* Returns true if the subschema has a keyword that is honoured; false = all values satisfy the
 * subschema. */
bool schema_keywords_any(const json_t *schema);

/* ---- schema_value.c: enum and const ---- */

/* Stores a fragment for the values of `types` (TYPE_ bits) that enum and const allow and that
 * satisfy the facets. Returns false, and stores nothing, if no facet has enum or const. */
bool schema_values(struct schema *s, const struct facets *list, unsigned types,
                   struct fragment *out);
/* Returns true if no value satisfies the keywords enum and const of both subschemas. Requires that
 * `a` has enum or const. */
bool schema_values_disjoint(const json_t *a, const json_t *b);

/* ---- one file for each type ---- */

/* Return a fragment for the values of one type that satisfy all facets. fractions: false = only
 * integers. */
struct fragment schema_object(struct schema *s, const struct facets *list);
struct fragment schema_array(struct schema *s, const struct facets *list);
struct fragment schema_string(struct schema *s, const struct facets *list);
struct fragment schema_number(struct schema *s, const struct facets *list, bool fractions);
/* Returns true if the string satisfies all keywords of the facets for strings. */
bool schema_string_matches(struct schema *s, const struct facets *list, const json_t *value);
/* Returns true if the number satisfies all keywords of the facets for numbers. */
bool schema_number_matches(struct schema *s, const struct facets *list, double value);
/* Returns a dfa for the inside of strings, in SPELLING_JSON, that match the regular expression
 * `pattern` of `bytes` bytes at the place `at`. NULL = error. The caller closes the dfa. */
struct dfa *schema_pattern(struct schema *s, const char *pattern, size_t bytes,
                           const struct pointer *at);
/* Returns a dfa for the inside of all strings, in SPELLING_JSON. NULL = error. The caller closes
 * the dfa. */
struct dfa *schema_any_text(struct schema *s);

#endif
