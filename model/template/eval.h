/* eval: executes a compiled template (tree.h) on values (value.h): expressions, statements, scopes
 * of variables, calls of macros, functions, methods, filters and tests. Only the files of
 * model/template/ call it, on the thread that calls template_render. All memory belongs to the
 * rendering (struct run). A function that meets an error or a limit ends the rendering with
 * run_fail, and does not return. This part does not parse templates (tree.h does). */
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

/* What a value of kind MACRO points to: a macro, or the body of a call block, which is the value of
 * `caller` in the called macro. */
struct macro {
    const struct node *node; /* N_MACRO or N_CALL_BODY. */
    struct scope *scope;     /* The scope in which the macro was defined. */
};

/* What a value of kind LOOP points to: the state of a for loop, which the loop's body sees as the
 * variable `loop`. */
struct loop {
    struct list items;       /* The items that the loop visits. */
    size_t index;            /* Index of the current item. */
    uint32_t depth;          /* Recursion depth, from 0 (loop.depth0). */
    const struct node *node; /* N_FOR. */
    struct scope *scope;     /* The scope around the loop. */
    struct value *changed;   /* The value of the latest call of loop.changed; NULL = none. */
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
/* Runs the loop n (N_FOR) over the items of `items`, except those that the loop's filter refuses.
 * `depth` becomes loop.depth0. Returns FLOW_NEXT, or the flow of the loop's else body. */
enum flow exec_loop(struct run *r, const struct node *n, struct value items, uint32_t depth);
/* Runs the statements that begin with `body` and returns the text that they write. */
struct value exec_text(struct run *r, const struct node *body);
/* Sets a variable of the current scope (r->scope). */
void scope_set(struct run *r, uint32_t name, struct value v);
/* Returns a new empty scope. The caller makes the new scope the current one (r->scope). */
struct scope *scope_new(struct run *r, struct scope *parent);
/* Evaluates the arguments of a call and stores their values in *out. `first` is the first node of
 * the list; NULL = no arguments. */
void read_arguments(struct run *r, const struct node *first, struct arguments *out);
/* Calls `callee`, which must be a macro, function, method, loop or joiner, and returns the result.
 * Fails for other values. */
struct value value_call(struct run *r, struct value callee, const struct arguments *with);
/* Returns the number of the global function with this name; -1 = there is none. */
int function_number(struct value name);

/* Return object.name and object[key] as jinja2 looks them up: as an attribute or as an item. Return
 * an undefined value if the object has neither. Fail for an undefined object. */
struct value attribute_get(struct run *r, struct value object, struct value name);
struct value item_get(struct run *r, struct value object, struct value key);
/* Returns a op b, for op from OP_ADD to OP_POW. */
struct value value_operate(struct run *r, enum operation op, struct value a, struct value b);
/* Returns whether a op b holds, for op from OP_EQ to OP_NOT_IN. */
bool value_compare(struct run *r, enum operation op, struct value a, struct value b);

/* Return the positional argument `index`; if the call has none, the keyword argument `name`; if the
 * call has neither, `otherwise`. argument_integer fails unless the argument is an integer or a
 * bool. */
struct value argument_get(struct run *r, const struct arguments *a, size_t index, const char *name,
                          struct value otherwise);
int64_t argument_integer(struct run *r, const struct arguments *a, size_t index, const char *name,
                         int64_t otherwise);

/* ---- filter.c, test.c, method.c ---- */

/* Apply the filter, or the test, with this number (filter_number, test_number) to v, and return the
 * result. Errors call the filter or the test `name`. Both functions fail for the number UINT32_MAX,
 * which stands for an unknown name. */
struct value filter_apply(struct run *r, uint32_t number, struct value name, struct value v,
                          const struct arguments *a);
bool test_apply(struct run *r, uint32_t number, struct value name, struct value v,
                const struct arguments *a);
/* Calls a method of a string, list, dict, loop or cycler, and returns the result. */
struct value method_call(struct run *r, const struct method *m, const struct arguments *a);
/* Returns the current item of a cycler. */
struct value cycler_current(struct run *r, const struct map *state);
/* Returns true if the value has a method with this name. Requires a value that is no LOOP, whose
 * methods only attribute_get knows. */
bool has_method(struct value of, struct value name);

/* A filter takes the value and the arguments, and returns the new value. */
typedef struct value (*filter_function)(struct run *r, struct value v, const struct arguments *a);
struct filter {
    const char *name;
    filter_function apply;
};
/* sequence.c: the filters of sequences. The entry after the last has name NULL. */
extern const struct filter sequence_filters[];

#endif
