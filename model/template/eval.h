/* eval: executes a compiled template (tree.h) on values (value.h): expressions, statements, scopes
 * of variables, calls of macros, functions, methods, filters and tests. The files of
 * model/template/ call the functions, on the thread that calls template_render. All memory belongs
 * to the rendering (struct run). A function that fails ends the rendering with run_fail, and does
 * not return. This part does not parse templates (tree.h). */
#ifndef MODEL_TEMPLATE_EVAL_H
#define MODEL_TEMPLATE_EVAL_H

#include "model/template/tree.h"

struct variable {
    uint32_t name; /* The name's number (name_number). */
    struct value value;
};

/* The variables of one scope. A name that the scope does not have is looked up in `parent`. */
struct scope {
    struct scope *parent; /* NULL = none. */
    struct variable *variables;
    uint32_t count;
    uint32_t capacity;
};

/* What a value of kind MACRO points to: a macro, or the body of a call block. */
struct macro {
    const struct node *node; /* N_MACRO or N_CALL_BODY. */
    struct scope *scope;     /* The scope in which the macro was defined. */
};

/* What a value of kind LOOP points to: the state of a for loop, which is the body's variable
 * `loop`. */
struct loop {
    struct list items;       /* The items that the loop visits. */
    size_t index;            /* Index of the current item. */
    uint32_t depth;          /* Recursion depth, from 0 (loop.depth0). */
    const struct node *node; /* N_FOR. */
    struct scope *scope;     /* The scope around the loop. */
    struct value *changed;   /* Arguments of the latest loop.changed, as a tuple; NULL = none. */
};

/* The values of a call's arguments. */
struct arguments {
    struct value *items; /* [count] positional arguments. */
    size_t count;
    struct map *named; /* Keyword arguments; NULL = none. */
};

/* What runs after a statement. */
enum flow {
    FLOW_NEXT,    /* The next statement. */
    FLOW_BREAK,   /* The statement after the loop. */
    FLOW_CONTINUE /* The loop's body, for the next item. */
};

/* ---- eval.c, exec.c, call.c ---- */

/* Returns the value of an expression. */
struct value eval_expression(struct run *r, const struct node *n);
/* Runs the loop n (N_FOR) over the items of `items` that the loop's filter accepts. `depth` becomes
 * loop.depth0. Returns FLOW_NEXT, or the flow of the loop's else body. */
enum flow exec_loop(struct run *r, const struct node *n, struct value items, uint32_t depth);
/* Runs the statements that begin with `body` and returns the text that they write. */
struct value exec_text(struct run *r, const struct node *body);
/* Sets a variable of the current scope (r->scope). */
void scope_set(struct run *r, uint32_t name, struct value v);
/* Returns a new empty scope, which does not become the current scope. */
struct scope *scope_new(struct run *r, struct scope *parent);
/* Evaluates the arguments of a call and stores their values in *out. `first` is the first node of
 * the list; NULL = no arguments. */
void read_arguments(struct run *r, const struct node *first, struct arguments *out);
/* Calls a macro, function, method, loop or joiner, and returns the result. Fails for another
 * value. */
struct value value_call(struct run *r, struct value callee, const struct arguments *with);
/* Returns the number of the global function with this name; -1 = there is none. */
int function_number(struct value name);

/* Returns object.name, an attribute or an item as in jinja2; an undefined value if the object has
 * neither, or if the name is that of a method that would change a list or dict. Fails for an
 * undefined object. */
struct value attribute_get(struct run *r, struct value object, struct value name);
/* Returns object[key], an item or an attribute as in jinja2; an undefined value if the object has
 * neither. Fails for an undefined object. */
struct value item_get(struct run *r, struct value object, struct value key);
/* Returns a op b, for op from OP_ADD to OP_POW. */
struct value value_operate(struct run *r, enum operation op, struct value a, struct value b);
/* Returns whether a op b holds, for op from OP_EQ to OP_NOT_IN. */
bool value_compare(struct run *r, enum operation op, struct value a, struct value b);

/* Returns the positional argument `index`; if the call has none, the keyword argument `name`; if
 * the call has neither, `otherwise`. */
struct value argument_get(struct run *r, const struct arguments *a, size_t index, const char *name,
                          struct value otherwise);
/* Returns argument_get as an integer. Fails unless the argument is an integer or a bool. */
int64_t argument_integer(struct run *r, const struct arguments *a, size_t index, const char *name,
                         int64_t otherwise);

/* ---- filter.c, test.c, method.c ---- */

/* Applies the filter with this number (filter_number) to v. Errors call the filter `name`. Fails
 * for the number UINT32_MAX. */
struct value filter_apply(struct run *r, uint32_t number, struct value name, struct value v,
                          const struct arguments *a);
/* Applies the test with this number (test_number) to v. Errors call the test `name`. Fails for the
 * number UINT32_MAX. */
bool test_apply(struct run *r, uint32_t number, struct value name, struct value v,
                const struct arguments *a);
/* Calls a method of a string, list, dict, loop or cycler, and returns the result. */
struct value method_call(struct run *r, const struct method *m, const struct arguments *a);
/* Returns the current item of a cycler. */
struct value cycler_current(struct run *r, const struct map *state);
/* Returns true if the value, of a kind other than LOOP, has a method with this name. */
bool has_method(struct value of, struct value name);

/* Takes the value and the arguments of a filter, and returns the new value. */
typedef struct value (*filter_function)(struct run *r, struct value v, const struct arguments *a);
struct filter {
    const char *name;
    filter_function apply;
};
/* The filters of sequences. The entry after the last has name NULL. */
extern const struct filter sequence_filters[];

#endif
