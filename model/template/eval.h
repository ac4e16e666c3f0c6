/* eval: evaluates expressions and statements of a tree, and calls. */
#ifndef MODEL_TEMPLATE_EVAL_H
#define MODEL_TEMPLATE_EVAL_H

#include "model/template/tree.h"

struct variable {
    uint32_t name;
    struct value value;
};

struct scope {
    struct scope *parent;
    struct variable *variables;
    uint32_t count;
    uint32_t capacity;
};

struct macro {
    const struct node *node; /* N_MACRO or N_CALL_BODY. */
    struct scope *scope;
};

struct loop {
    struct list items;
    size_t index;
    uint32_t depth;
    const struct node *node;
    struct scope *scope;   /* The scope around the loop. */
    struct value *changed; /* Last value given to loop.changed; NULL = none. */
};

struct arguments {
    struct value *items;
    size_t count;
    struct map *named; /* NULL = none. */
};

enum flow { FLOW_NEXT, FLOW_BREAK, FLOW_CONTINUE };

struct value eval_expression(struct run *r, const struct node *n);
/* Runs the loop over items. `depth` is that of loop.depth0. */
enum flow exec_loop(struct run *r, const struct node *n, struct value items, uint32_t depth);
/* Runs a body and returns its text. */
struct value exec_text(struct run *r, const struct node *body);
void scope_set(struct run *r, uint32_t name, struct value v);
struct scope *scope_push(struct run *r, struct scope *parent);
void read_arguments(struct run *r, const struct node *first, struct arguments *out);
struct value value_call(struct run *r, struct value callee, const struct arguments *with);
/* number < 0: the name is not that of a global function. */
int function_number(struct value name);

struct value attribute_get(struct run *r, struct value of, struct value name);
struct value item_get(struct run *r, struct value of, struct value key);
struct value value_operate(struct run *r, enum operation op, struct value a, struct value b);
bool value_compare(struct run *r, enum operation op, struct value a, struct value b);

/* The argument at a place or of a name; `otherwise` if there is none. */
struct value argument_get(struct run *r, const struct arguments *a, size_t index, const char *name,
                          struct value otherwise);
int64_t argument_integer(struct run *r, const struct arguments *a, size_t index, const char *name,
                         int64_t otherwise);
struct value filter_apply(struct run *r, uint32_t number, struct value name, struct value v,
                          const struct arguments *a);
bool test_apply(struct run *r, uint32_t number, struct value name, struct value v,
                const struct arguments *a);
struct value method_call(struct run *r, const struct method *m, const struct arguments *a);
struct value cycler_current(struct run *r, const struct map *state);
bool has_method(struct value of, struct value name);

/* A filter takes the value and the arguments. */
typedef struct value (*filter_function)(struct run *r, struct value v, const struct arguments *a);
struct filter {
    const char *name;
    filter_function apply;
};
/* Filters of sequences; the last has no name. */
extern const struct filter sequence_filters[];

#endif
