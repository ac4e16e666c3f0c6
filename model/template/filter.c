/* filter: the filters of texts, numbers and single values, and the table of all filters. */
#include "model/template/eval.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct value text_of(struct run *r, struct value v)
{
    return string_of(r, v);
}

/* ---- texts ---- */

static struct value apply_upper(struct run *r, struct value v, const struct arguments *a)
{
    (void)a;
    return string_case(r, text_of(r, v), UPPER);
}

static struct value apply_lower(struct run *r, struct value v, const struct arguments *a)
{
    (void)a;
    return string_case(r, text_of(r, v), LOWER);
}

static struct value apply_capitalize(struct run *r, struct value v, const struct arguments *a)
{
    (void)a;
    return string_case(r, text_of(r, v), CAPITALIZE);
}

static bool begins_word(uint32_t c)
{
    return unicode_is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
}

/* Unlike Python's title(), only blanks, hyphens and opening brackets end a word. */
static struct value apply_title(struct run *r, struct value v, const struct arguments *a)
{
    (void)a;
    struct buffer *b = buffer_new(r);
    bool first = true;
    v = text_of(r, v);
    for (size_t at = 0; at < v.size;) {
        uint32_t c;
        size_t bytes = character_read(v.text + at, v.size - at, &c);
        struct value part = string_case(r, string_part(v, at, bytes), first ? UPPER : LOWER);
        buffer_add_part(r, b, part, 0, part.size);
        first = begins_word(c);
        at += bytes;
    }
    return buffer_value(b);
}

static struct value apply_trim(struct run *r, struct value v, const struct arguments *a)
{
    struct value set = argument_get(r, a, 0, "chars", value_of(NONE));
    if (set.kind != NONE)
        value_want(r, set, STRING, "trim");
    return string_strip(r, text_of(r, v), SIDES_BOTH, set.kind != NONE ? &set : NULL);
}

static struct value apply_string(struct run *r, struct value v, const struct arguments *a)
{
    (void)a;
    return text_of(r, v);
}

static struct value apply_replace(struct run *r, struct value v, const struct arguments *a)
{
    struct value old = text_of(r, argument_get(r, a, 0, "old", value_of(UNDEFINED)));
    struct value new = text_of(r, argument_get(r, a, 1, "new", value_of(UNDEFINED)));
    struct value limit = argument_get(r, a, 2, "count", value_of(NONE));
    return string_replace(r, text_of(r, v), old, new,
                          limit.kind == NONE ? -1 : argument_integer(r, a, 2, "count", -1));
}

static struct value apply_center(struct run *r, struct value v, const struct arguments *a)
{
    struct list *list;
    list_new(r, PLAIN, 1, &list);
    list_add(r, list, value_int(argument_integer(r, a, 0, "width", 80)));
    struct arguments width = {.items = list->items, .count = 1};
    struct method method = {text_of(r, v), value_text("center")};
    return method_call(r, &method, &width);
}

static struct value apply_format(struct run *r, struct value v, const struct arguments *a)
{
    struct list *list;
    if (a->count == 0 && a->named != NULL)
        return string_percent(r, text_of(r, v), (struct value){.kind = MAP, .map = a->named});
    struct value all = list_new(r, TUPLE, a->count, &list);
    for (size_t i = 0; i < a->count; i++)
        list_add(r, list, a->items[i]);
    return string_percent(r, text_of(r, v), all);
}

static struct value apply_indent(struct run *r, struct value v, const struct arguments *a)
{
    struct value width = argument_get(r, a, 0, "width", value_int(4));
    bool first = value_true(argument_get(r, a, 1, "first", value_bool(false)));
    bool blank = value_true(argument_get(r, a, 2, "blank", value_bool(false)));
    struct buffer *b = buffer_new(r), *blanks = buffer_new(r);
    if (width.kind != STRING) {
        int64_t count = argument_integer(r, a, 0, "width", 4);
        if (count > 1000)
            run_fail(r, ST_TOO_LARGE, "indent: want a width of up to 1000");
        for (int64_t i = 0; i < count; i++)
            buffer_add(r, blanks, " ", 1, false);
        width = buffer_value(blanks);
    }
    struct value text = string_join(r, text_of(r, v), value_text("\n"));
    struct list lines = value_items(r, string_lines(r, text, false));
    for (size_t i = 0; i < lines.count; i++) {
        buffer_add(r, b, "\n", i > 0, false);
        if (i == 0 ? first : blank || lines.items[i].size > 0)
            buffer_add_part(r, b, width, 0, width.size);
        buffer_add_part(r, b, lines.items[i], 0, lines.items[i].size);
    }
    return buffer_value(b);
}

static struct value apply_truncate(struct run *r, struct value v, const struct arguments *a)
{
    int64_t length = argument_integer(r, a, 0, "length", 255);
    bool kill = value_true(argument_get(r, a, 1, "killwords", value_bool(false)));
    struct value end = text_of(r, argument_get(r, a, 2, "end", value_text("...")));
    struct value leeway = argument_get(r, a, 3, "leeway", value_int(5));
    int64_t room = leeway.kind == NONE ? 5 : argument_integer(r, a, 3, "leeway", 5);
    v = text_of(r, v);
    if (room < 0 || room > INT32_MAX || length < (int64_t)value_length(r, end))
        run_fail(r, ST_INVALID, "truncate: the length is too small");
    if (length > INT32_MAX || (int64_t)value_length(r, v) <= length + room)
        return v;
    size_t keep = character_offset(v.text, v.size, (size_t)length - value_length(r, end));
    for (size_t at = keep; !kill && at-- > 0;)
        if (v.text[at] == ' ') {
            keep = at;
            break;
        }
    return string_join(r, string_part(v, 0, keep), end);
}

static bool is_word(uint32_t c)
{
    return unicode_is_letter(c) || c == '_' || (c >= '0' && c <= '9');
}

static struct value apply_wordcount(struct run *r, struct value v, const struct arguments *a)
{
    (void)a;
    int64_t count = 0;
    bool inside = false;
    v = text_of(r, v);
    run_step(r, v.size / 16);
    for (size_t at = 0; at < v.size;) {
        uint32_t c;
        at += character_read(v.text + at, v.size - at, &c);
        count += is_word(c) && !inside;
        inside = is_word(c);
    }
    return value_int(count);
}

static struct value apply_urlencode(struct run *r, struct value v, const struct arguments *a)
{
    (void)a;
    struct buffer *b = buffer_new(r);
    v = text_of(r, v);
    for (size_t i = 0; i < v.size; i++) {
        char c = v.text[i], coded[4];
        snprintf(coded, sizeof(coded), "%%%02X", (unsigned char)c);
        if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
            (c != 0 && strchr("_.-~/", c) != NULL))
            buffer_add_part(r, b, v, i, 1);
        else
            buffer_add(r, b, coded, 3, true);
    }
    return buffer_value(b);
}

static struct value apply_escape(struct run *r, struct value v, const struct arguments *a)
{
    (void)a;
    return v.kind == STRING && v.markup ? v : string_escape(r, v);
}

static struct value apply_safe(struct run *r, struct value v, const struct arguments *a)
{
    (void)a;
    v = text_of(r, v);
    v.markup = true;
    return v;
}

/* json.dumps with the parameters ensure_ascii, indent, separators and sort_keys. */
static struct value apply_tojson(struct run *r, struct value v, const struct arguments *a)
{
    bool ascii = value_true(argument_get(r, a, 0, "ensure_ascii", value_bool(false)));
    struct value indent = argument_get(r, a, 1, "indent", value_of(NONE));
    struct value separators = argument_get(r, a, 2, "separators", value_of(NONE));
    bool sorted = value_true(argument_get(r, a, 3, "sort_keys", value_bool(false)));
    struct buffer *b = buffer_new(r);
    struct value marks[2] = {value_text(indent.kind == NONE ? ", " : ","), value_text(": ")};
    int64_t width = indent.kind == NONE ? -1 : argument_integer(r, a, 1, "indent", 0);
    if (width > 100)
        run_fail(r, ST_TOO_LARGE, "tojson: want an indent of up to 100");
    if (separators.kind != NONE) {
        struct list items = value_items(r, separators);
        if (items.count != 2)
            run_fail(r, ST_INVALID, "tojson: want two separators");
        for (int i = 0; i < 2; i++) {
            value_want(r, items.items[i], STRING, "tojson");
            marks[i] = items.items[i];
        }
    }
    buffer_add_json(r, b, v,
                    indent.kind == NONE ? -1
                    : width < 0         ? 0
                                        : (int)width,
                    marks[0], marks[1], ascii, sorted);
    return buffer_value(b);
}

/* ---- numbers ---- */

static struct value apply_abs(struct run *r, struct value v, const struct arguments *a)
{
    (void)a;
    if (!is_number(v))
        run_fail(r, ST_INVALID, "bad operand type for abs(): '%s'", value_type(v));
    if (v.kind == FLOAT)
        return value_float(fabs(v.number));
    return integer_of(v) < 0 ? value_operate(r, OP_SUB, value_int(0), v) : value_int(integer_of(v));
}

/* Reads a number that fills the text; digits may have '_' between them. */
static bool number_read(struct run *r, struct value v, bool is_float, int base, struct value *out)
{
    char text[64], *end = text;
    size_t used = 0;
    v = string_strip(r, v, SIDES_BOTH, NULL);
    for (size_t i = 0; i < v.size; i++) {
        if (v.text[i] == '_' && i > 0 && i + 1 < v.size)
            continue;
        if (used + 1 >= sizeof(text) || v.text[i] == 0 || strchr(" \t\n\r\v\f", v.text[i]) != NULL)
            return false;
        text[used++] = v.text[i];
    }
    text[used] = 0;
    if (used == 0 || (is_float && strpbrk(text, "xXpP") != NULL))
        return false;
    long long whole = is_float ? 0 : strtoll(text, &end, base);
    *out = is_float ? value_float(strtod(text, &end)) : value_int(whole);
    return *end == 0 && (is_float || (whole != INT64_MAX && whole != INT64_MIN));
}

static struct value apply_int(struct run *r, struct value v, const struct arguments *a)
{
    struct value out = argument_get(r, a, 0, "default", value_int(0)), number;
    int64_t base = argument_integer(r, a, 1, "base", 10);
    if (v.kind == UNDEFINED)
        value_want(r, v, INT, "int");
    if (v.kind == INT || v.kind == BOOL)
        return value_int(integer_of(v));
    if (base != 0 && (base < 2 || base > 36))
        run_fail(r, ST_INVALID, "int: want a base from 2 to 36");
    if (v.kind == STRING && number_read(r, v, false, (int)base, &number))
        return number;
    if (v.kind == STRING && number_read(r, v, true, 10, &number))
        v = number;
    if (v.kind == FLOAT && fabs(v.number) < 9e18)
        return value_int((int64_t)v.number);
    return out;
}

static struct value apply_float(struct run *r, struct value v, const struct arguments *a)
{
    struct value out = argument_get(r, a, 0, "default", value_float(0)), number;
    if (v.kind == UNDEFINED)
        value_want(r, v, FLOAT, "float");
    if (is_number(v))
        return value_float(number_of(v));
    return v.kind == STRING && number_read(r, v, true, 10, &number) ? number : out;
}

/* Returns the double next to 10^exponent, for exponents from -22 to 22. */
static double power_of_ten(int64_t exponent)
{
    double power = 1; /* Powers of ten up to 10^22 are doubles. */
    for (int64_t i = 0; i < (exponent < 0 ? -exponent : exponent); i++)
        power *= 10;
    return exponent < 0 ? 1 / power : power;
}

static struct value apply_round(struct run *r, struct value v, const struct arguments *a)
{
    int64_t precision = argument_integer(r, a, 0, "precision", 0);
    struct value method = argument_get(r, a, 1, "method", value_text("common"));
    char text[400];
    if (!is_number(v) || precision < -15 || precision > 15)
        run_fail(r, ST_INVALID, "round: want a number, and a precision from -15 to 15");
    double scale = power_of_ten(precision), number = number_of(v);
    if (value_is_text(method, "ceil"))
        return value_float(ceil(number * scale) / scale);
    if (value_is_text(method, "floor"))
        return value_float(floor(number * scale) / scale);
    if (!value_is_text(method, "common"))
        run_fail(r, ST_INVALID, "round: the method must be common, ceil or floor");
    if (v.kind != FLOAT && precision >= 0)
        return value_int(integer_of(v));
    if (precision < 0) {
        double rounded = nearbyint(number * scale) / scale;
        if (v.kind == FLOAT)
            return value_float(rounded);
        if (!(fabs(rounded) < 0x1p63))
            run_fail(r, ST_INVALID, "an integer of more than 64 bits");
        return value_int((int64_t)rounded);
    }
    snprintf(text, sizeof(text), "%.*f", (int)precision, number);
    return value_float(strtod(text, NULL));
}

/* ---- any value ---- */

static struct value apply_default(struct run *r, struct value v, const struct arguments *a)
{
    bool falsy = value_true(argument_get(r, a, 1, "boolean", value_bool(false)));
    if (v.kind == UNDEFINED || (falsy && !value_true(v)))
        return argument_get(r, a, 0, "default_value", value_text(""));
    return v;
}

static struct value apply_attr(struct run *r, struct value v, const struct arguments *a)
{
    struct value name = argument_get(r, a, 0, "name", value_of(NONE));
    value_want(r, name, STRING, "attr");
    /* Unlike v.name, the filter does not look for items. */
    if (v.kind == MAP && !has_method(v, name))
        return (struct value){.kind = UNDEFINED};
    return attribute_get(r, v, name);
}

static struct value apply_length(struct run *r, struct value v, const struct arguments *a)
{
    (void)a;
    return value_int((int64_t)value_length(r, v));
}

static const struct filter filters[] = {
    {"abs", apply_abs},
    {"attr", apply_attr},
    {"capitalize", apply_capitalize},
    {"center", apply_center},
    {"count", apply_length},
    {"d", apply_default},
    {"default", apply_default},
    {"e", apply_escape},
    {"escape", apply_escape},
    {"float", apply_float},
    {"forceescape", apply_escape},
    {"format", apply_format},
    {"indent", apply_indent},
    {"int", apply_int},
    {"length", apply_length},
    {"lower", apply_lower},
    {"replace", apply_replace},
    {"round", apply_round},
    {"safe", apply_safe},
    {"string", apply_string},
    {"title", apply_title},
    {"tojson", apply_tojson},
    {"trim", apply_trim},
    {"truncate", apply_truncate},
    {"upper", apply_upper},
    {"urlencode", apply_urlencode},
    {"wordcount", apply_wordcount},
};

#define OWN_FILTERS (sizeof(filters) / sizeof(filters[0]))

uint32_t filter_number(struct value name)
{
    for (uint32_t i = 0; i < OWN_FILTERS; i++)
        if (value_is_text(name, filters[i].name))
            return i;
    for (uint32_t i = 0; sequence_filters[i].name != NULL; i++)
        if (value_is_text(name, sequence_filters[i].name))
            return (uint32_t)OWN_FILTERS + i;
    return UINT32_MAX;
}

struct value filter_apply(struct run *r, uint32_t number, struct value name, struct value v,
                          const struct arguments *a)
{
    if (number == UINT32_MAX)
        run_fail(r, ST_INVALID, "no filter named '%.*s'", name.size < 40 ? (int)name.size : 40,
                 name.text);
    run_enter(r);
    v = (number < OWN_FILTERS ? filters[number] : sequence_filters[number - OWN_FILTERS])
            .apply(r, v, a);
    run_leave(r);
    return v;
}
