/* sequence: the filters of lists, dicts and other values that have items. */
#include "model/template/eval.h"

#include <stdlib.h>
#include <string.h>

/* Returns v.a.b for the path "a.b"; a number is an index. */
static struct value path_get(struct run *r, struct value v, struct value path)
{
    if (path.kind == INT)
        return item_get(r, v, path);
    value_want(r, path, STRING, "attribute");
    for (size_t at = 0; at <= path.size;) {
        size_t end = at;
        bool digits = true;
        for (; end < path.size && path.text[end] != '.'; end++)
            digits = digits && path.text[end] >= '0' && path.text[end] <= '9';
        struct value name = string_part(path, at, end - at);
        if (digits && end > at && end - at < 10)
            name = value_int(strtol(path.text + at, NULL, 10));
        v = item_get(r, v, name);
        at = end + 1;
    }
    return v;
}

static struct value list_of(struct run *r, struct value v, enum list_kind kind)
{
    struct list items = value_items(r, v), *list;
    struct value out = list_new(r, kind, items.count, &list);
    for (size_t i = 0; i < items.count; i++)
        list_add(r, list, items.items[i]);
    return out;
}

static struct value apply_list(struct run *r, struct value v, const struct arguments *a)
{
    (void)a;
    return list_of(r, v, PLAIN);
}

static struct value apply_first(struct run *r, struct value v, const struct arguments *a)
{
    (void)a;
    struct list items = value_items(r, v);
    return items.count > 0 ? items.items[0] : value_of(UNDEFINED);
}

static struct value apply_last(struct run *r, struct value v, const struct arguments *a)
{
    (void)a;
    if (v.kind == LIST && v.list->kind == GENERATOR)
        run_fail(r, ST_INVALID, "'generator' object is not reversible");
    struct list items = value_items(r, v);
    return items.count > 0 ? items.items[items.count - 1] : value_of(UNDEFINED);
}

static struct value apply_reverse(struct run *r, struct value v, const struct arguments *a)
{
    (void)a;
    struct list items = value_items(r, v), *list;
    struct buffer *b = buffer_new(r);
    struct value out = list_new(r, GENERATOR, items.count, &list);
    for (size_t i = items.count; i-- > 0;)
        list_add(r, list, items.items[i]);
    if (v.kind != STRING)
        return out;
    for (size_t i = 0; i < list->count; i++)
        buffer_add_part(r, b, list->items[i], 0, list->items[i].size);
    return buffer_value(b);
}

static struct value apply_join(struct run *r, struct value v, const struct arguments *a)
{
    struct value by = string_of(r, argument_get(r, a, 0, "d", value_text("")));
    struct value path = argument_get(r, a, 1, "attribute", value_of(NONE));
    struct list items = value_items(r, v);
    struct buffer *b = buffer_new(r);
    for (size_t i = 0; i < items.count; i++) {
        struct value item = items.items[i];
        buffer_add_part(r, b, by, 0, i > 0 ? by.size : 0);
        buffer_add_str(r, b, path.kind != NONE ? path_get(r, item, path) : item);
    }
    return buffer_value(b);
}

static struct value apply_sum(struct run *r, struct value v, const struct arguments *a)
{
    struct value path = argument_get(r, a, 0, "attribute", value_of(NONE));
    struct value sum = argument_get(r, a, 1, "start", value_int(0));
    struct list items = value_items(r, v);
    for (size_t i = 0; i < items.count; i++) {
        run_step(r, 1);
        sum = value_operate(r, OP_ADD, sum,
                            path.kind != NONE ? path_get(r, items.items[i], path) : items.items[i]);
    }
    return sum;
}

/* ---- order ---- */

struct keyed {
    struct value key;
    struct value value;
};

static struct value without_case(struct run *r, struct value v, bool case_sensitive)
{
    return v.kind == STRING && !case_sensitive ? string_case(r, v, LOWER) : v;
}

static struct keyed *keyed_new(struct run *r, const struct list *items, struct value path,
                               bool case_sensitive)
{
    struct keyed *all = run_alloc(r, (items->count + 1) * sizeof(*all));
    for (size_t i = 0; i < items->count; i++) {
        struct value key = items->items[i];
        key = path.kind != NONE ? path_get(r, key, path) : key;
        all[i] = (struct keyed){without_case(r, key, case_sensitive), items->items[i]};
    }
    return all;
}

/* Merges neighbouring runs until one run is left; equal keys keep their order. */
static struct keyed *keyed_sort(struct run *r, struct keyed *all, size_t count, bool reverse)
{
    struct keyed *other = run_alloc(r, (count + 1) * sizeof(*other));
    for (size_t width = 1; width < count; width *= 2) {
        for (size_t begin = 0; begin < count; begin += 2 * width) {
            size_t middle = begin + width < count ? begin + width : count;
            size_t end = begin + 2 * width < count ? begin + 2 * width : count;
            size_t left = begin, right = middle;
            for (size_t at = begin; at < end; at++) {
                run_step(r, 1);
                bool from_right = left == middle;
                if (!from_right && right < end) {
                    int order = value_order(r, all[right].key, all[left].key);
                    from_right = reverse ? order > 0 : order < 0;
                }
                other[at] = from_right ? all[right++] : all[left++];
            }
        }
        struct keyed *swap = all;
        all = other;
        other = swap;
    }
    return all;
}

static struct value apply_sort(struct run *r, struct value v, const struct arguments *a)
{
    bool reverse = value_true(argument_get(r, a, 0, "reverse", value_bool(false)));
    bool exact = value_true(argument_get(r, a, 1, "case_sensitive", value_bool(false)));
    struct list items = value_items(r, v), *list;
    struct keyed *all =
        keyed_new(r, &items, argument_get(r, a, 2, "attribute", value_of(NONE)), exact);
    struct value out = list_new(r, PLAIN, items.count, &list);
    all = keyed_sort(r, all, items.count, reverse);
    for (size_t i = 0; i < items.count; i++)
        list_add(r, list, all[i].value);
    return out;
}

static struct value map_items(struct run *r, struct value v)
{
    struct method method = {v, value_text("items")};
    struct arguments none = {0};
    value_want(r, v, MAP, "items");
    return method_call(r, &method, &none);
}

static struct value apply_dictsort(struct run *r, struct value v, const struct arguments *a)
{
    bool exact = value_true(argument_get(r, a, 0, "case_sensitive", value_bool(false)));
    struct value by = argument_get(r, a, 1, "by", value_text("key"));
    bool reverse = value_true(argument_get(r, a, 2, "reverse", value_bool(false)));
    if (!value_is_text(by, "key") && !value_is_text(by, "value"))
        run_fail(r, ST_INVALID, "You can only sort by either \"key\" or \"value\"");
    struct list pairs = value_items(r, map_items(r, v)), *list;
    struct keyed *all = keyed_new(r, &pairs, value_int(value_is_text(by, "value")), exact);
    struct value out = list_new(r, PLAIN, pairs.count, &list);
    all = keyed_sort(r, all, pairs.count, reverse);
    for (size_t i = 0; i < pairs.count; i++)
        list_add(r, list, all[i].value);
    return out;
}

static struct value apply_items(struct run *r, struct value v, const struct arguments *a)
{
    (void)a;
    if (v.kind == UNDEFINED)
        return list_new(r, GENERATOR, 0, NULL);
    return list_of(r, map_items(r, v), GENERATOR);
}

static struct value extreme(struct run *r, struct value v, const struct arguments *a, int sign)
{
    bool exact = value_true(argument_get(r, a, 0, "case_sensitive", value_bool(false)));
    struct list items = value_items(r, v);
    struct keyed *all =
        keyed_new(r, &items, argument_get(r, a, 1, "attribute", value_of(NONE)), exact);
    size_t best = 0;
    for (size_t i = 1; i < items.count; i++)
        if (value_order(r, all[i].key, all[best].key) * sign > 0)
            best = i;
    return items.count > 0 ? items.items[best] : value_of(UNDEFINED);
}

static struct value apply_max(struct run *r, struct value v, const struct arguments *a)
{
    return extreme(r, v, a, 1);
}

static struct value apply_min(struct run *r, struct value v, const struct arguments *a)
{
    return extreme(r, v, a, -1);
}

static struct value apply_unique(struct run *r, struct value v, const struct arguments *a)
{
    bool exact = value_true(argument_get(r, a, 0, "case_sensitive", value_bool(false)));
    struct list items = value_items(r, v), *list;
    struct keyed *all =
        keyed_new(r, &items, argument_get(r, a, 1, "attribute", value_of(NONE)), exact);
    struct map *seen = map_new(r).map;
    struct value out = list_new(r, GENERATOR, 0, &list);
    for (size_t i = 0; i < items.count; i++)
        if (map_get(r, seen, all[i].key) == NULL) {
            map_set(r, seen, all[i].key, value_of(NONE));
            list_add(r, list, items.items[i]);
        }
    return out;
}

static struct value apply_groupby(struct run *r, struct value v, const struct arguments *a)
{
    struct value path = argument_get(r, a, 0, "attribute", value_of(NONE));
    bool exact = value_true(argument_get(r, a, 2, "case_sensitive", value_bool(false)));
    struct list items = value_items(r, v), *list, *pair, *group = NULL;
    struct keyed *all = keyed_new(r, &items, path, exact);
    struct value out = list_new(r, PLAIN, 0, &list);
    all = keyed_sort(r, all, items.count, false);
    for (size_t i = 0; i < items.count; i++) {
        if (i == 0 || !value_equal(r, all[i].key, all[i - 1].key)) {
            struct value both = list_new(r, TUPLE, 2, &pair);
            list_add(r, pair, path.kind != NONE ? path_get(r, all[i].value, path) : all[i].key);
            list_add(r, pair, list_new(r, PLAIN, 0, &group));
            list_add(r, list, both);
        }
        list_add(r, group, all[i].value);
    }
    return out;
}

/* ---- batches ---- */

static struct value apply_batch(struct run *r, struct value v, const struct arguments *a)
{
    int64_t count = argument_integer(r, a, 0, "linecount", 0);
    struct value fill = argument_get(r, a, 1, "fill_with", value_of(NONE));
    struct list items = value_items(r, v), *list, *row = NULL;
    struct value out = list_new(r, GENERATOR, 0, &list);
    if (count < 1 || count > (1 << 20))
        run_fail(r, ST_INVALID, "batch: want a count of 1 to 1048576");
    for (size_t i = 0; i < items.count; i++) {
        if (i % (size_t)count == 0)
            list_add(r, list, list_new(r, PLAIN, 0, &row));
        list_add(r, row, items.items[i]);
    }
    while (row != NULL && fill.kind != NONE && row->count < (size_t)count)
        list_add(r, row, fill);
    return out;
}

static struct value apply_slice(struct run *r, struct value v, const struct arguments *a)
{
    int64_t slices = argument_integer(r, a, 0, "slices", 0);
    struct value fill = argument_get(r, a, 1, "fill_with", value_of(NONE));
    struct list items = value_items(r, v), *list, *row;
    struct value out = list_new(r, GENERATOR, 0, &list);
    if (slices < 1 || slices > (1 << 20))
        run_fail(r, ST_INVALID, "slice: want 1 to 1048576 slices");
    size_t each = items.count / (size_t)slices, longer = items.count % (size_t)slices, at = 0;
    for (size_t i = 0; i < (size_t)slices; i++) {
        list_add(r, list, list_new(r, PLAIN, 0, &row));
        for (size_t k = 0; k < each + (i < longer); k++)
            list_add(r, row, items.items[at++]);
        if (fill.kind != NONE && i >= longer)
            list_add(r, row, fill);
    }
    return out;
}

/* ---- map and select ---- */

/* The arguments after the first `count`. */
static struct arguments arguments_from(const struct arguments *a, size_t count)
{
    struct arguments rest = *a;
    rest.items += a->count > 0 ? count : 0;
    rest.count -= count;
    return rest;
}

static struct value apply_map(struct run *r, struct value v, const struct arguments *a)
{
    if (!value_true(v)) /* jinja2 does not look at it. */
        return list_new(r, GENERATOR, 0, NULL);
    struct list items = value_items(r, v), *list;
    struct value out = list_new(r, GENERATOR, items.count, &list);
    struct value path = argument_get(r, a, SIZE_MAX, "attribute", value_of(NONE));
    struct value otherwise = argument_get(r, a, SIZE_MAX, "default", value_of(UNDEFINED));
    if (a->count == 0 && path.kind == NONE)
        run_fail(r, ST_INVALID, "map requires a filter argument");
    if (a->count > 0)
        value_want(r, a->items[0], STRING, "map");
    struct arguments rest = a->count > 0 ? arguments_from(a, 1) : *a;
    uint32_t number = a->count > 0 ? filter_number(a->items[0]) : 0;
    for (size_t i = 0; i < items.count; i++) {
        struct value item = items.items[i];
        if (a->count > 0)
            item = filter_apply(r, number, a->items[0], item, &rest);
        else
            item = path_get(r, item, path);
        list_add(r, list, item.kind == UNDEFINED && a->count == 0 ? otherwise : item);
    }
    return out;
}

static struct value choose(struct run *r, struct value v, const struct arguments *a, bool by_path,
                           bool wanted)
{
    if (!value_true(v))
        return list_new(r, GENERATOR, 0, NULL);
    struct list items = value_items(r, v), *list;
    struct value out = list_new(r, GENERATOR, 0, &list);
    size_t skipped = by_path ? 1 : 0;
    if (by_path && a->count == 0)
        run_fail(r, ST_INVALID, "missing parameter for attribute name");
    bool tests = a->count > skipped;
    struct arguments rest = tests ? arguments_from(a, skipped + 1) : *a;
    uint32_t number = 0;
    if (tests) {
        value_want(r, a->items[skipped], STRING, "select");
        number = test_number(a->items[skipped]);
    }
    for (size_t i = 0; i < items.count; i++) {
        struct value item = items.items[i];
        item = by_path ? path_get(r, item, a->items[0]) : item;
        bool good =
            tests ? test_apply(r, number, a->items[skipped], item, &rest) : value_true(item);
        if (good == wanted)
            list_add(r, list, items.items[i]);
    }
    return out;
}

static struct value apply_select(struct run *r, struct value v, const struct arguments *a)
{
    return choose(r, v, a, false, true);
}

static struct value apply_reject(struct run *r, struct value v, const struct arguments *a)
{
    return choose(r, v, a, false, false);
}

static struct value apply_selectattr(struct run *r, struct value v, const struct arguments *a)
{
    return choose(r, v, a, true, true);
}

static struct value apply_rejectattr(struct run *r, struct value v, const struct arguments *a)
{
    return choose(r, v, a, true, false);
}

const struct filter sequence_filters[] = {
    {"batch", apply_batch},
    {"dictsort", apply_dictsort},
    {"first", apply_first},
    {"groupby", apply_groupby},
    {"items", apply_items},
    {"join", apply_join},
    {"last", apply_last},
    {"list", apply_list},
    {"map", apply_map},
    {"max", apply_max},
    {"min", apply_min},
    {"reject", apply_reject},
    {"rejectattr", apply_rejectattr},
    {"reverse", apply_reverse},
    {"select", apply_select},
    {"selectattr", apply_selectattr},
    {"slice", apply_slice},
    {"sort", apply_sort},
    {"sum", apply_sum},
    {"unique", apply_unique},
    {NULL, NULL},
};
