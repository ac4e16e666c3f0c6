/* eval: expressions. */
#include "model/template/eval.h"

#include "common/fixed_math.h"

#include <math.h>
#include <string.h>

/* ---- attributes and items ---- */

static struct value undefined(struct value name)
{
    struct value v = {.kind = UNDEFINED};
    v.missing = NULL;
    if (name.kind == STRING && name.size < 64)
        v.missing = name.text;
    v.size = name.size;
    return v;
}

static _Noreturn void fail_undefined(struct run *r, struct value v)
{
    run_fail(r, ST_INVALID, "'%.*s' is undefined", v.missing != NULL ? (int)v.size : 7,
             v.missing != NULL ? v.missing : "a value");
}

static struct value loop_get(struct run *r, struct loop *l, struct value name)
{
    static const char *const names[] = {"index",  "index0",   "revindex", "revindex0",
                                        "first",  "last",     "length",   "depth",
                                        "depth0", "previtem", "nextitem"};
    int64_t count = (int64_t)l->items.count, at = (int64_t)l->index;
    const int64_t numbers[] = {at + 1,     at,
                               count - at, count - at - 1,
                               at == 0,    at + 1 == count,
                               count,      (int64_t)l->depth + 1,
                               l->depth};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (!value_is_text(name, names[i]))
            continue;
        if (i == 4 || i == 5)
            return value_bool(numbers[i] != 0);
        if (i < 9)
            return value_int(numbers[i]);
        if (i == 9 ? at == 0 : at + 1 == count)
            return undefined(name);
        return l->items.items[i == 9 ? at - 1 : at + 1];
    }
    if (!value_is_text(name, "cycle") && !value_is_text(name, "changed"))
        return undefined(name);
    struct method *m = run_alloc(r, sizeof(*m));
    *m = (struct method){{.kind = LOOP, .loop = l}, name};
    return (struct value){.kind = METHOD, .method = m};
}

static struct value method_of(struct run *r, struct value of, struct value name)
{
    struct method *m = run_alloc(r, sizeof(*m));
    *m = (struct method){of, name};
    return (struct value){.kind = METHOD, .method = m};
}

/* Methods that would change their list or dict: the sandbox hides them. */
static bool is_hidden(struct value of, struct value name)
{
    static const char *const names[] = {"append", "extend", "insert",  "pop",
                                        "remove", "clear",  "popitem", "setdefault",
                                        "update", "sort",   "reverse"};
    size_t from = of.kind == MAP ? 3 : 0;
    for (size_t i = from; i < sizeof(names) / sizeof(names[0]); i++)
        if ((of.kind == LIST ? i != 6 && i != 7 && i != 8 : i != 4 && i < 9) &&
            value_is_text(name, names[i]))
            return true;
    return false;
}

struct value attribute_get(struct run *r, struct value object, struct value name)
{
    if (object.kind == UNDEFINED)
        fail_undefined(r, object);
    if (object.kind == LOOP)
        return loop_get(r, object.loop, name);
    if ((object.kind == MAP || object.kind == LIST) && is_hidden(object, name))
        return undefined(name);
    if (object.kind == CYCLER && value_is_text(name, "current"))
        return cycler_current(r, object.map);
    if (has_method(object, name))
        return method_of(r, object, name);
    if (object.kind == MAP || object.kind == NAMESPACE) {
        struct value *found = map_get(r, object.map, name);
        if (found != NULL)
            return *found;
    }
    if (object.kind == MACRO && value_is_text(name, "name"))
        return object.macro->node->value;
    return undefined(name);
}

static bool index_of(struct value key, size_t count, size_t *index)
{
    if (key.kind != INT && key.kind != BOOL)
        return false;
    int64_t at = integer_of(key);
    at += at < 0 ? (int64_t)count : 0;
    *index = (size_t)at;
    return at >= 0 && at < (int64_t)count;
}

struct value item_get(struct run *r, struct value object, struct value key)
{
    size_t index;
    if (object.kind == UNDEFINED)
        fail_undefined(r, object);
    if (object.kind == MAP && key.kind != LIST && key.kind != MAP) {
        struct value *found = map_get(r, object.map, key);
        if (found != NULL)
            return *found;
    }
    if (object.kind == LIST && (object.list->kind <= TUPLE || object.list->kind == RANGE) &&
        index_of(key, object.list->count, &index))
        return object.list->items[index];
    if (object.kind == STRING && key.kind == INT &&
        index_of(key, value_length(r, object), &index)) {
        size_t at = character_offset(object.text, object.size, index);
        return string_part(object, at, character_offset(object.text + at, object.size - at, 1));
    }
    if (key.kind == STRING && object.kind != MAP)
        return attribute_get(r, object, key);
    return key.kind == STRING && has_method(object, key) ? method_of(r, object, key)
                                                         : undefined(key);
}

/* Turns a slice's bounds into indices: the first, the one at which the slice stops, and the step.
 * Returns the number of items. */
static size_t slice_bounds(struct run *r, const struct value bounds[3], int64_t count,
                           int64_t limits[3])
{
    for (int i = 0; i < 3; i++)
        if (bounds[i].kind != NONE && bounds[i].kind != INT && bounds[i].kind != BOOL)
            run_fail(r, ST_INVALID, "slice indices must be integers, not %s",
                     value_type(bounds[i]));
    const int64_t step = bounds[2].kind == NONE ? 1 : integer_of(bounds[2]);
    if (step == 0 || step == INT64_MIN)
        run_fail(r, ST_INVALID, "slice step cannot be zero");
    for (int i = 0; i < 2; i++) {
        bool low = (i == 0) == (step > 0);
        int64_t at = bounds[i].kind == NONE ? (low ? INT64_MIN : INT64_MAX) : integer_of(bounds[i]);
        if (bounds[i].kind != NONE && at < 0)
            at += count;
        int64_t least = step > 0 ? 0 : -1, most = step > 0 ? count : count - 1;
        limits[i] = at < least ? least : at > most ? most : at;
    }
    limits[2] = step;
    int64_t span = step > 0 ? limits[1] - limits[0] : limits[0] - limits[1];
    int64_t stride = step > 0 ? step : -step;
    return span > 0 ? (size_t)((span - 1) / stride + 1) : 0;
}

/* Sets *to to the part of a range that the limits of a slice select. Very large numbers wrap. */
static void range_slice(const struct list *from, const int64_t limits[3], struct list *to)
{
    const uint64_t start = (uint64_t)from->range[0], step = (uint64_t)from->range[2];
    to->range[0] = (int64_t)(start + (uint64_t)limits[0] * step);
    to->range[1] = (int64_t)(start + (uint64_t)limits[1] * step);
    to->range[2] = (int64_t)((uint64_t)limits[2] * step);
}

static struct value slice_get(struct run *r, struct value of, const struct value bounds[3])
{
    int64_t limits[3];
    if (of.kind == UNDEFINED)
        fail_undefined(r, of);
    if (of.kind != STRING && (of.kind != LIST || (of.list->kind > TUPLE && of.list->kind != RANGE)))
        return undefined(value_of(NONE)); /* jinja2 hides the TypeError. */
    size_t count = slice_bounds(r, bounds, (int64_t)value_length(r, of), limits);
    const int64_t first = limits[0], step = limits[2];
    run_step(r, count);
    if (of.kind == STRING && step == 1) {
        size_t at = character_offset(of.text, of.size, (size_t)first);
        return string_part(of, at, character_offset(of.text + at, of.size - at, count));
    }
    struct list items = value_items(r, of), *list;
    struct value v = list_new(r, of.kind == LIST ? of.list->kind : PLAIN, count, &list);
    for (size_t i = 0; i < count; i++)
        list_add(r, list, items.items[first + (int64_t)i * step]);
    if (of.kind == LIST && list->kind == RANGE)
        range_slice(of.list, limits, list);
    if (of.kind == LIST)
        return v;
    struct buffer *b = buffer_new(r);
    for (size_t i = 0; i < count; i++)
        buffer_add_str(r, b, list->items[i]);
    return buffer_value(b);
}

/* ---- operators ---- */

static struct value repeat(struct run *r, struct value v, struct value times)
{
    int64_t count = integer_of(times) < 0 ? 0 : integer_of(times);
    if (count > (int64_t)r->arena.limit)
        run_fail(r, ST_TOO_LARGE, "a repetition of %lld times", (long long)count);
    if (v.kind == STRING) {
        struct buffer *b = buffer_new(r);
        for (int64_t i = 0; i < count && v.size > 0; i++) {
            run_step(r, 1);
            buffer_add_part(r, b, v, 0, v.size);
        }
        return buffer_value(b);
    }
    struct list *list, from = *v.list;
    struct value result = list_new(r, from.kind, 0, &list);
    for (int64_t i = 0; i < count && from.count > 0; i++)
        for (size_t k = 0; k < from.count; k++)
            list_add(r, list, from.items[k]);
    return result;
}

/* Returns a^b for a > 0, with the same bits on every CPU: a prompt may have the result. The result
 * is within 1 ulp, or within 3 ulp beyond the limits of fixed_pow. */
static double power_of_positive(double a, double b)
{
    const double logarithm = b * fixed_log(a);
    if (fabs(logarithm) < 690)
        return fixed_pow(a, b);
    if (fabs(logarithm) > 760) /* Beyond what a double holds. */
        return logarithm > 0 ? INFINITY : 0;
    const double root = fixed_pow(a, b / 2);
    return root * root;
}

/* Requires that a^b is a real number. */
static double power(struct run *r, double a, double b)
{
    const bool odd = fmod(b, 2) != 0; /* Of a whole number. */
    if (b == 0 || a == 1)
        return 1;
    if (!isfinite(a) || !isfinite(b))
        run_fail(r, ST_INVALID, "a power of a number that is not finite");
    if (a == 0)
        return 0;
    const double size = power_of_positive(fabs(a), b);
    return a < 0 && odd ? -size : size;
}

static struct value float_operation(struct run *r, enum operation op, double a, double b)
{
    if ((op == OP_DIV || op == OP_FLOOR || op == OP_MOD) && b == 0)
        run_fail(r, ST_INVALID, "division by zero");
    switch (op) {
    case OP_ADD:
        return value_float(a + b);
    case OP_SUB:
        return value_float(a - b);
    case OP_MUL:
        return value_float(a * b);
    case OP_DIV:
        return value_float(a / b);
    case OP_FLOOR:
        return value_float(floor(a / b));
    case OP_MOD: {
        double rest = fmod(a, b);
        return value_float(rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest);
    }
    default:
        if ((a < 0 && b != floor(b)) || (a == 0 && b < 0))
            run_fail(r, ST_INVALID, "a power without a real value");
        return value_float(power(r, a, b));
    }
}

static struct value integer_power(struct run *r, int64_t a, int64_t b)
{
    int64_t result = 1;
    for (int64_t i = 0; i < b && a != 1 && a != 0; i++) {
        run_step(r, 1);
        if (a == -1)
            return value_int(b % 2 == 0 ? 1 : -1);
        if (__builtin_mul_overflow(result, a, &result))
            run_fail(r, ST_INVALID, "an integer of more than 64 bits");
    }
    return value_int(a == 0 && b > 0 ? 0 : result);
}

static struct value integer_operation(struct run *r, enum operation op, int64_t a, int64_t b)
{
    int64_t result = 0;
    if (op == OP_DIV || (op == OP_POW && b < 0))
        return float_operation(r, op, (double)a, (double)b);
    if (op == OP_POW)
        return integer_power(r, a, b);
    if (op == OP_ADD   ? __builtin_add_overflow(a, b, &result)
        : op == OP_SUB ? __builtin_sub_overflow(a, b, &result)
        : op == OP_MUL ? __builtin_mul_overflow(a, b, &result)
                       : a == INT64_MIN && b == -1)
        run_fail(r, ST_INVALID, "an integer of more than 64 bits");
    if (op != OP_FLOOR && op != OP_MOD)
        return value_int(result);
    if (b == 0)
        run_fail(r, ST_INVALID, "division by zero");
    int64_t rest = a % b, floor_by = a / b;
    if (rest != 0 && (rest < 0) != (b < 0)) {
        rest += b;
        floor_by--;
    }
    return value_int(op == OP_MOD ? rest : floor_by);
}

static struct value lists_join(struct run *r, const struct list *a, const struct list *b)
{
    struct list *list;
    struct value v = list_new(r, a->kind, a->count + b->count, &list);
    for (size_t i = 0; i < a->count; i++)
        list_add(r, list, a->items[i]);
    for (size_t i = 0; i < b->count; i++)
        list_add(r, list, b->items[i]);
    return v;
}

struct value value_operate(struct run *r, enum operation op, struct value a, struct value b)
{
    static const char *const names[] = {"+", "-", "*", "/", "//", "%", "**"};
    bool whole_a = a.kind == INT || a.kind == BOOL, whole_b = b.kind == INT || b.kind == BOOL;
    if (a.kind == UNDEFINED || b.kind == UNDEFINED)
        fail_undefined(r, a.kind == UNDEFINED ? a : b);
    if (whole_a && whole_b)
        return integer_operation(r, op, integer_of(a), integer_of(b));
    if (is_number(a) && is_number(b))
        return float_operation(r, op, number_of(a), number_of(b));
    if (op == OP_ADD && a.kind == STRING && b.kind == STRING)
        return string_join(r, a, b);
    if (op == OP_MOD && a.kind == STRING)
        return string_percent(r, a, b);
    bool list_a = a.kind == LIST && a.list->kind <= TUPLE;
    bool list_b = b.kind == LIST && b.list->kind <= TUPLE;
    if (op == OP_ADD && list_a && list_b && a.list->kind == b.list->kind)
        return lists_join(r, a.list, b.list);
    if (op == OP_MUL && (list_a || a.kind == STRING) && whole_b)
        return repeat(r, a, b);
    if (op == OP_MUL && (list_b || b.kind == STRING) && whole_a)
        return repeat(r, b, a);
    run_fail(r, ST_INVALID, "unsupported operand types for %s: '%s' and '%s'", names[op],
             value_type(a), value_type(b));
}

bool value_compare(struct run *r, enum operation op, struct value a, struct value b)
{
    if (op == OP_EQ || op == OP_NE)
        return value_equal(r, a, b) == (op == OP_EQ);
    if (op == OP_IN || op == OP_NOT_IN)
        return value_contains(r, b, a) == (op == OP_IN);
    if (a.kind == UNDEFINED || b.kind == UNDEFINED)
        fail_undefined(r, a.kind == UNDEFINED ? a : b);
    if (is_number(a) && is_number(b) && (isnan(number_of(a)) || isnan(number_of(b))))
        return false;
    int order = value_order(r, a, b);
    return op == OP_LT   ? order < 0
           : op == OP_LE ? order <= 0
           : op == OP_GT ? order > 0
                         : order >= 0;
}

/* ---- nodes ---- */

static struct value eval_name(struct run *r, const struct node *n)
{
    for (const struct scope *s = r->scope; s != NULL; s = s->parent) {
        run_step(r, s->count / 16);
        for (uint32_t i = s->count; i-- > 0;)
            if (s->variables[i].name == n->name)
                return s->variables[i].value;
    }
    return undefined(n->value);
}

static struct value eval_items(struct run *r, const struct node *n)
{
    struct list *list;
    struct value v = list_new(r, n->kind == N_TUPLE ? TUPLE : PLAIN, 0, &list);
    for (const struct node *item = n->a; item != NULL; item = item->next)
        list_add(r, list, eval_expression(r, item));
    return v;
}

static struct value eval_map(struct run *r, const struct node *n)
{
    struct value v = map_new(r);
    for (const struct node *item = n->a; item != NULL; item = item->next->next) {
        struct value key = eval_expression(r, item);
        map_set(r, v.map, key, eval_expression(r, item->next));
    }
    return v;
}

static struct value eval_slice(struct run *r, const struct node *n)
{
    const struct node *parts[] = {n->b, n->c, n->body};
    struct value of = eval_expression(r, n->a), bounds[3];
    for (int i = 0; i < 3; i++)
        bounds[i] = parts[i] != NULL ? eval_expression(r, parts[i]) : value_of(NONE);
    return slice_get(r, of, bounds);
}

/* A chain such as a + b + c … leans to the left: it is evaluated without recursion. */
static struct value eval_binary(struct run *r, const struct node *n)
{
    size_t count = 0;
    const struct node *first = n;
    while (first->kind == N_BINARY) {
        first = first->a;
        count++;
    }
    const struct node **chain = run_alloc(r, count * sizeof(*chain));
    for (size_t i = count; i-- > 0; n = n->a)
        chain[i] = n;
    struct value v = eval_expression(r, first);
    for (size_t i = 0; i < count; i++) {
        struct value b = eval_expression(r, chain[i]->b);
        r->line = chain[i]->line;
        v = value_operate(r, chain[i]->op, v, b);
    }
    return v;
}

/* Unlike +, ~ escapes nothing. */
static struct value eval_concat(struct run *r, const struct node *n)
{
    struct value v = string_of(r, eval_expression(r, n->a));
    v.markup = false;
    for (const struct node *item = n->a->next; item != NULL; item = item->next) {
        struct value next = string_of(r, eval_expression(r, item));
        next.markup = false;
        v = string_join(r, v, next);
    }
    return v;
}

static struct value eval_compare(struct run *r, const struct node *n)
{
    struct value a = eval_expression(r, n->a);
    for (const struct node *part = n->b; part != NULL; part = part->next) {
        struct value b = eval_expression(r, part->a);
        if (!value_compare(r, part->op, a, b))
            return value_bool(false);
        a = b;
    }
    return value_bool(true);
}

static struct value eval_negate(struct run *r, const struct node *n)
{
    struct value v = eval_expression(r, n->a);
    if (v.kind == UNDEFINED)
        fail_undefined(r, v);
    if (!is_number(v))
        run_fail(r, ST_INVALID, "bad operand type for unary %s: '%s'",
                 n->kind == N_PLUS ? "+" : "-", value_type(v));
    if (v.kind == FLOAT)
        return value_float(n->kind == N_PLUS ? v.number : -v.number);
    return n->kind == N_PLUS ? value_int(integer_of(v))
                             : integer_operation(r, OP_SUB, 0, integer_of(v));
}

static struct value eval_call(struct run *r, const struct node *n)
{
    struct arguments a;
    if (n->kind == N_CALL) {
        struct value callee = eval_expression(r, n->a);
        read_arguments(r, n->b, &a);
        r->line = n->line;
        return value_call(r, callee, &a);
    }
    struct value v = eval_expression(r, n->a);
    read_arguments(r, n->b, &a);
    r->line = n->line;
    if (n->kind == N_FILTER)
        return filter_apply(r, n->name, n->value, v, &a);
    return value_bool(test_apply(r, n->name, n->value, v, &a));
}

static struct value eval_choice(struct run *r, const struct node *n)
{
    if (value_true(eval_expression(r, n->a)))
        return eval_expression(r, n->b);
    return n->c != NULL ? eval_expression(r, n->c) : undefined(value_of(NONE));
}

static struct value eval_node(struct run *r, const struct node *n)
{
    struct value v;
    switch (n->kind) {
    case N_CONST:
        return n->value;
    case N_NAME:
        return eval_name(r, n);
    case N_LIST:
    case N_TUPLE:
        return eval_items(r, n);
    case N_MAP:
        return eval_map(r, n);
    case N_ATTRIBUTE:
        return attribute_get(r, eval_expression(r, n->a), n->value);
    case N_ITEM:
        v = eval_expression(r, n->a);
        return item_get(r, v, eval_expression(r, n->b));
    case N_SLICE:
        return eval_slice(r, n);
    case N_CALL:
    case N_FILTER:
    case N_TEST:
        return eval_call(r, n);
    case N_NOT:
        return value_bool(!value_true(eval_expression(r, n->a)));
    case N_NEGATE:
    case N_PLUS:
        return eval_negate(r, n);
    case N_AND:
    case N_OR:
        v = eval_expression(r, n->a);
        return value_true(v) == (n->kind == N_AND) ? eval_expression(r, n->b) : v;
    case N_CHOICE:
        return eval_choice(r, n);
    case N_COMPARE:
        return eval_compare(r, n);
    case N_BINARY:
        return eval_binary(r, n);
    case N_CONCAT:
        return eval_concat(r, n);
    case N_BODY_TEXT: {
        struct value text = buffer_value(r->out);
        return text;
    }
    default:
        run_fail(r, ST_INVALID, "an argument in the wrong place");
    }
}

struct value eval_expression(struct run *r, const struct node *n)
{
    run_enter(r);
    r->line = n->line;
    struct value v = eval_node(r, n);
    run_leave(r);
    return v;
}
