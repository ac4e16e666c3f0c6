/* test: the tests of "is". */
#include "model/template/eval.h"

#include <string.h>

typedef bool (*test_function)(struct run *r, struct value v, struct value other);

struct test {
    const char *name;
    test_function apply;
};

static bool is_defined(struct run *r, struct value v, struct value other)
{
    (void)r, (void)other;
    return v.kind != UNDEFINED;
}

static bool is_undefined(struct run *r, struct value v, struct value other)
{
    (void)r, (void)other;
    return v.kind == UNDEFINED;
}

static bool is_none(struct run *r, struct value v, struct value other)
{
    (void)r, (void)other;
    return v.kind == NONE;
}

static bool is_boolean(struct run *r, struct value v, struct value other)
{
    (void)r, (void)other;
    return v.kind == BOOL;
}

static bool is_true(struct run *r, struct value v, struct value other)
{
    (void)r, (void)other;
    return v.kind == BOOL && v.boolean;
}

static bool is_false(struct run *r, struct value v, struct value other)
{
    (void)r, (void)other;
    return v.kind == BOOL && !v.boolean;
}

static bool is_integer(struct run *r, struct value v, struct value other)
{
    (void)r, (void)other;
    return v.kind == INT;
}

static bool is_float(struct run *r, struct value v, struct value other)
{
    (void)r, (void)other;
    return v.kind == FLOAT;
}

static bool is_any_number(struct run *r, struct value v, struct value other)
{
    (void)r, (void)other;
    return is_number(v);
}

static bool is_string(struct run *r, struct value v, struct value other)
{
    (void)r, (void)other;
    return v.kind == STRING;
}

static bool is_mapping(struct run *r, struct value v, struct value other)
{
    (void)r, (void)other;
    return v.kind == MAP;
}

/* As in jinja2, an undefined value is a sequence, can be called, and has (no) items. */
static bool is_iterable(struct run *r, struct value v, struct value other)
{
    (void)r, (void)other;
    return v.kind == LIST || v.kind == MAP || v.kind == STRING || v.kind == UNDEFINED;
}

static bool is_sequence(struct run *r, struct value v, struct value other)
{
    if (v.kind == LIST && v.list->kind > TUPLE && v.list->kind != RANGE)
        return false;
    return is_iterable(r, v, other);
}

static bool is_callable(struct run *r, struct value v, struct value other)
{
    (void)r, (void)other;
    return v.kind == MACRO || v.kind == FUNCTION || v.kind == METHOD || v.kind == LOOP ||
           v.kind == JOINER || v.kind == UNDEFINED;
}

static bool is_escaped(struct run *r, struct value v, struct value other)
{
    (void)r, (void)other;
    return v.kind == STRING && v.markup;
}

static bool has_case(struct run *r, struct value v, const char *name)
{
    struct method method = {string_of(r, v), value_text(name)};
    struct arguments none = {0};
    return value_true(method_call(r, &method, &none));
}

static bool is_lower(struct run *r, struct value v, struct value other)
{
    (void)other;
    return has_case(r, v, "islower");
}

static bool is_upper(struct run *r, struct value v, struct value other)
{
    (void)other;
    return has_case(r, v, "isupper");
}

static bool is_divisible(struct run *r, struct value v, struct value other)
{
    struct value rest = value_operate(r, OP_MOD, v, other);
    return is_number(rest) && number_of(rest) == 0;
}

static bool is_even(struct run *r, struct value v, struct value other)
{
    (void)other;
    return is_divisible(r, v, value_int(2));
}

static bool is_odd(struct run *r, struct value v, struct value other)
{
    (void)other;
    return value_compare(r, OP_EQ, value_operate(r, OP_MOD, v, value_int(2)), value_int(1));
}

static bool is_same(struct run *r, struct value v, struct value other)
{
    if (v.kind != other.kind)
        return false;
    return v.kind >= LIST && v.kind != FUNCTION ? v.list == other.list : value_equal(r, v, other);
}

static bool is_equal(struct run *r, struct value v, struct value other)
{
    return value_compare(r, OP_EQ, v, other);
}

static bool is_not_equal(struct run *r, struct value v, struct value other)
{
    return value_compare(r, OP_NE, v, other);
}

static bool is_less(struct run *r, struct value v, struct value other)
{
    return value_compare(r, OP_LT, v, other);
}

static bool is_less_or_equal(struct run *r, struct value v, struct value other)
{
    return value_compare(r, OP_LE, v, other);
}

static bool is_greater(struct run *r, struct value v, struct value other)
{
    return value_compare(r, OP_GT, v, other);
}

static bool is_greater_or_equal(struct run *r, struct value v, struct value other)
{
    return value_compare(r, OP_GE, v, other);
}

static bool is_in(struct run *r, struct value v, struct value other)
{
    return value_compare(r, OP_IN, v, other);
}

static bool is_filter(struct run *r, struct value v, struct value other)
{
    (void)r, (void)other;
    return v.kind == STRING && filter_number(v) != UINT32_MAX;
}

static bool is_test(struct run *r, struct value v, struct value other)
{
    (void)r, (void)other;
    return v.kind == STRING && test_number(v) != UINT32_MAX;
}

#define ONE_VALUE_TESTS 21 /* The tests after these in the table take a second value. */
static const struct test tests[] = {
    {"boolean", is_boolean},
    {"callable", is_callable},
    {"defined", is_defined},
    {"escaped", is_escaped},
    {"even", is_even},
    {"false", is_false},
    {"filter", is_filter},
    {"float", is_float},
    {"integer", is_integer},
    {"iterable", is_iterable},
    {"lower", is_lower},
    {"mapping", is_mapping},
    {"none", is_none},
    {"number", is_any_number},
    {"odd", is_odd},
    {"sequence", is_sequence},
    {"string", is_string},
    {"test", is_test},
    {"true", is_true},
    {"undefined", is_undefined},
    {"upper", is_upper},
    {"!=", is_not_equal},
    {"<", is_less},
    {"<=", is_less_or_equal},
    {"==", is_equal},
    {">", is_greater},
    {">=", is_greater_or_equal},
    {"divisibleby", is_divisible},
    {"eq", is_equal},
    {"equalto", is_equal},
    {"ge", is_greater_or_equal},
    {"greaterthan", is_greater},
    {"gt", is_greater},
    {"in", is_in},
    {"le", is_less_or_equal},
    {"lessthan", is_less},
    {"lt", is_less},
    {"ne", is_not_equal},
    {"sameas", is_same},
};

uint32_t test_number(struct value name)
{
    for (uint32_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
        if (value_is_text(name, tests[i].name))
            return i;
    return UINT32_MAX;
}

bool test_apply(struct run *r, uint32_t number, struct value name, struct value v,
                const struct arguments *a)
{
    if (number == UINT32_MAX)
        run_fail(r, ST_INVALID, "no test named '%.*s'", name.size < 40 ? (int)name.size : 40,
                 name.text);
    size_t wanted = number < ONE_VALUE_TESTS ? 0 : 1;
    if (a->count != wanted)
        run_fail(r, ST_INVALID, "the test '%s' takes %zu values more instead of %zu",
                 tests[number].name, wanted, a->count);
    run_enter(r);
    bool result = tests[number].apply(r, v, wanted > 0 ? a->items[0] : value_of(NONE));
    run_leave(r);
    return result;
}
