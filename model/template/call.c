/* call: arguments, macros, global functions and methods. */
#include "model/template/eval.h"

#include <string.h>

#define RANGE_MAX 100000 /* As the sandbox of jinja2. */

void read_arguments(struct run *r, const struct node *first, struct arguments *out)
{
    struct list *list;
    *out = (struct arguments){0};
    if (first == NULL)
        return;
    list_new(r, PLAIN, 0, &list);
    for (const struct node *n = first; n != NULL; n = n->next) {
        if (n->kind == N_KEYWORD || n->kind == N_SPREAD_MAP) {
            struct value v = eval_expression(r, n->a);
            out->named = out->named != NULL ? out->named : map_new(r).map;
            if (n->kind == N_KEYWORD) {
                map_set(r, out->named, n->value, v);
                continue;
            }
            value_want(r, v, MAP, "**");
            for (uint32_t i = 0; i < v.map->count; i++)
                map_set(r, out->named, v.map->entries[i].key, v.map->entries[i].value);
        } else if (n->kind == N_SPREAD) {
            struct list items = value_items(r, eval_expression(r, n->a));
            for (size_t i = 0; i < items.count; i++)
                list_add(r, list, items.items[i]);
        } else {
            list_add(r, list, eval_expression(r, n));
        }
    }
    out->items = list->items;
    out->count = list->count;
}

struct value argument_get(struct run *r, const struct arguments *a, size_t index, const char *name,
                          struct value otherwise)
{
    if (index < a->count)
        return a->items[index];
    struct value *found = a->named != NULL ? map_get(r, a->named, value_text(name)) : NULL;
    return found != NULL ? *found : otherwise;
}

int64_t argument_integer(struct run *r, const struct arguments *a, size_t index, const char *name,
                         int64_t otherwise)
{
    struct value v = argument_get(r, a, index, name, value_int(otherwise));
    if (v.kind != INT && v.kind != BOOL)
        run_fail(r, ST_INVALID, "%s: want an integer instead of %s", name, value_type(v));
    return integer_of(v);
}

/* ---- macros ---- */

static bool has_parameter(struct run *r, const struct node *n, struct value name)
{
    for (const struct node *p = n->a; p != NULL; p = p->next, run_step(r, 1))
        if (p->value.size == name.size && memcmp(p->value.text, name.text, name.size) == 0)
            return true;
    return false;
}

/* Sets varargs, kwargs and caller from what no parameter takes. */
static void set_rest(struct run *r, const struct node *n, const struct arguments *a, size_t used)
{
    struct list *rest;
    struct value varargs = list_new(r, TUPLE, 0, &rest), kwargs = map_new(r);
    for (; used < a->count; used++)
        list_add(r, rest, a->items[used]);
    for (uint32_t i = 0; a->named != NULL && i < a->named->count; i++) {
        struct map_entry *e = &a->named->entries[i];
        if (value_is_text(e->key, "caller") && (n->op & REST_CALLER) != 0)
            scope_set(r, NAME_CALLER, e->value);
        else if (e->key.kind != STRING || !has_parameter(r, n, e->key))
            map_set(r, kwargs.map, e->key, e->value);
    }
    if (kwargs.map->count > 0 && (n->op & REST_KWARGS) == 0)
        run_fail(r, ST_INVALID, "macro '%.*s' takes no such keyword argument", (int)n->value.size,
                 n->value.text);
    scope_set(r, NAME_VARARGS, varargs);
    scope_set(r, NAME_KWARGS, kwargs);
}

static struct value call_macro(struct run *r, const struct macro *m, const struct arguments *a)
{
    const struct node *n = m->node;
    struct scope *outer = r->scope;
    size_t used = 0;
    r->scope = scope_new(r, m->scope);
    for (const struct node *p = n->a; p != NULL; p = p->next, used++) {
        struct value *named = a->named != NULL ? map_get(r, a->named, p->value) : NULL;
        struct value v = {.kind = UNDEFINED, .size = p->value.size, .missing = p->value.text};
        if (used < a->count)
            v = a->items[used];
        else if (named != NULL)
            v = *named;
        else if (p->a != NULL)
            v = eval_expression(r, p->a);
        scope_set(r, p->name, v);
    }
    if (used < a->count && (n->op & REST_VARARGS) == 0)
        run_fail(r, ST_INVALID, "macro '%.*s' takes not more than %zu arguments",
                 (int)n->value.size, n->value.text, used);
    set_rest(r, n, a, used);
    struct value v = exec_text(r, n->body);
    r->scope = outer;
    return v;
}

/* ---- global functions ---- */

enum function { F_RANGE, F_DICT, F_NAMESPACE, F_CYCLER, F_JOINER, F_RAISE, F_NOW };

int function_number(struct value name)
{
    static const char *const names[] = {
        "range", "dict", "namespace", "cycler", "joiner", "raise_exception", "strftime_now"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (value_is_text(name, names[i]))
            return (int)i;
    return -1;
}

static struct value make_range(struct run *r, const struct arguments *a)
{
    struct list *list;
    int64_t first = 0, step = 1;
    if (a->count == 0)
        run_fail(r, ST_INVALID, "range: want 1 to 3 integers");
    int64_t end = argument_integer(r, a, 0, "range", 0);
    if (a->count > 1) {
        first = end;
        end = argument_integer(r, a, 1, "range", 0);
        step = argument_integer(r, a, 2, "range", 1);
    }
    if (step == 0)
        run_fail(r, ST_INVALID, "range: the step must not be zero");
    struct value v = list_new(r, RANGE, 0, &list);
    list->range[0] = first;
    list->range[1] = end;
    list->range[2] = step;
    for (int64_t i = first; step > 0 ? i < end : i > end;) {
        list_add(r, list, value_int(i));
        if (list->count > RANGE_MAX)
            run_fail(r, ST_INVALID, "range: want up to %d items", RANGE_MAX);
        if (__builtin_add_overflow(i, step, &i))
            break;
    }
    return v;
}

static struct value make_map(struct run *r, const struct arguments *a, enum kind kind)
{
    struct value v = map_new(r);
    if (a->count > 0 && a->items[0].kind == MAP) {
        for (uint32_t i = 0; i < a->items[0].map->count; i++)
            map_set(r, v.map, a->items[0].map->entries[i].key, a->items[0].map->entries[i].value);
    } else if (a->count > 0) {
        struct list pairs = value_items(r, a->items[0]);
        for (size_t i = 0; i < pairs.count; i++) {
            struct list pair = value_items(r, pairs.items[i]);
            if (pair.count != 2)
                run_fail(r, ST_INVALID, "dict: want pairs");
            map_set(r, v.map, pair.items[0], pair.items[1]);
        }
    }
    for (uint32_t i = 0; a->named != NULL && i < a->named->count; i++)
        map_set(r, v.map, a->named->entries[i].key, a->named->entries[i].value);
    v.kind = (uint8_t)kind;
    return v;
}

/* A cycler or joiner keeps its state in a map. */
static struct value make_state(struct run *r, enum kind kind, struct value first)
{
    struct value v = map_new(r);
    map_set(r, v.map, value_text("items"), first);
    map_set(r, v.map, value_text("at"), value_int(0));
    v.kind = (uint8_t)kind;
    return v;
}

static struct value tuple_of(struct run *r, const struct arguments *a)
{
    struct list *list;
    struct value v = list_new(r, TUPLE, a->count, &list);
    for (size_t i = 0; i < a->count; i++)
        list_add(r, list, a->items[i]);
    return v;
}

static struct value raise(struct run *r, const struct arguments *a)
{
    struct value v = string_of(r, argument_get(r, a, 0, "message", value_text("")));
    run_fail(r, ST_INVALID, "%.*s", (int)(v.size < 300 ? v.size : 300), v.text);
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
static struct value now(struct run *r, const struct arguments *a)
{
    char format[256], text[512];
    struct tm tm;
    struct value v = argument_get(r, a, 0, "format", value_text(""));
    value_want(r, v, STRING, "strftime_now");
    if (v.size >= sizeof(format) || localtime_r(&r->now, &tm) == NULL)
        run_fail(r, ST_INVALID, "strftime_now: the format is too long");
    memcpy(format, v.text, v.size);
    format[v.size] = 0;
    for (size_t i = 0; i < v.size; i++) /* Widths such as %999d would fill memory. */
        if (format[i] == '%' && format[i + 1] >= '0' && format[i + 1] <= '9')
            run_fail(r, ST_INVALID, "strftime_now: a width is not supported");
    return value_bytes(r, text, strftime(text, sizeof(text), format, &tm));
}
#pragma GCC diagnostic pop

static struct value call_function(struct run *r, int64_t number, const struct arguments *a)
{
    switch (number) {
    case F_RANGE:
        return make_range(r, a);
    case F_DICT:
        return make_map(r, a, MAP);
    case F_NAMESPACE:
        return make_map(r, a, NAMESPACE);
    case F_CYCLER:
        return make_state(r, CYCLER, tuple_of(r, a));
    case F_JOINER:
        return make_state(r, JOINER, argument_get(r, a, 0, "sep", value_text(", ")));
    case F_RAISE:
        return raise(r, a);
    default:
        return now(r, a);
    }
}

static struct value call_loop(struct run *r, const struct loop *l, const struct arguments *a)
{
    if (l->node->name == 0 || a->count != 1)
        run_fail(r, ST_INVALID, "want a loop that is recursive, with one argument");
    struct buffer *outer = r->out;
    struct scope *scope = r->scope;
    r->out = buffer_new(r);
    r->scope = l->scope;
    exec_loop(r, l->node, a->items[0], l->depth + 1);
    struct value v = buffer_value(r->out);
    r->out = outer;
    r->scope = scope;
    return v;
}

static struct value call_joiner(struct run *r, struct map *state)
{
    struct value *used = map_get(r, state, value_text("at"));
    bool first = used->integer == 0;
    used->integer = 1;
    return first ? value_text("") : *map_get(r, state, value_text("items"));
}

struct value value_call(struct run *r, struct value callee, const struct arguments *with)
{
    struct value v;
    run_enter(r);
    switch (callee.kind) {
    case MACRO:
        v = call_macro(r, callee.macro, with);
        break;
    case FUNCTION:
        v = call_function(r, callee.integer, with);
        break;
    case METHOD:
        v = method_call(r, callee.method, with);
        break;
    case LOOP:
        v = call_loop(r, callee.loop, with);
        break;
    case JOINER:
        v = call_joiner(r, callee.map);
        break;
    case UNDEFINED:
        run_fail(r, ST_INVALID, "'%.*s' is undefined", callee.missing ? (int)callee.size : 10,
                 callee.missing ? callee.missing : "a function");
    default:
        run_fail(r, ST_INVALID, "'%s' object is not callable", value_type(callee));
    }
    run_leave(r);
    return v;
}
