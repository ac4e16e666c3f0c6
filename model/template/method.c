/* method: methods of strings, lists, dicts, loops and cyclers. */
#include "model/template/eval.h"

#include <string.h>

static const char *const string_methods[] = {
    "strip",    "lstrip",  "rstrip",    "split",     "rsplit",     "splitlines",   "startswith",
    "endswith", "upper",   "lower",     "title",     "capitalize", "swapcase",     "replace",
    "find",     "rfind",   "index",     "count",     "join",       "format",       "isdigit",
    "isalpha",  "isalnum", "isspace",   "isupper",   "islower",    "removeprefix", "removesuffix",
    "zfill",    "ljust",   "rjust",     "center",    "partition",  "rpartition",   "rindex",
    "casefold", "isascii", "isdecimal", "isnumeric", NULL};
static const char *const map_methods[] = {"items", "keys", "values", "get", "copy", NULL};
static const char *const list_methods[] = {"index", "count", "copy", NULL};
static const char *const cycler_methods[] = {"next", "reset", NULL};

static bool is_one_of(struct value name, const char *const *names)
{
    for (; *names != NULL; names++)
        if (value_is_text(name, *names))
            return true;
    return false;
}

bool has_method(struct value of, struct value name)
{
    return of.kind == STRING   ? is_one_of(name, string_methods)
           : of.kind == MAP    ? is_one_of(name, map_methods)
           : of.kind == CYCLER ? is_one_of(name, cycler_methods)
           : of.kind == LIST && (of.list->kind <= TUPLE || of.list->kind == RANGE)
               ? is_one_of(name, list_methods)
               : false;
}

static struct value text_argument(struct run *r, const struct arguments *a, size_t index,
                                  const char *name)
{
    struct value v = argument_get(r, a, index, name, value_of(NONE));
    value_want(r, v, STRING, name);
    return v;
}

/* ---- strings ---- */

/* Returns true if `what`, which is not empty, lies at the offset `at`. */
static bool is_at(struct run *r, struct value s, size_t at, struct value what)
{
    if (s.text[at] != what.text[0])
        return false;
    run_step(r, 1 + what.size / 64);
    return memcmp(s.text + at, what.text, what.size) == 0;
}

static size_t next_field(struct value s, size_t at, bool space)
{
    uint32_t c;
    while (at < s.size) {
        size_t bytes = character_read(s.text + at, s.size - at, &c);
        if (unicode_is_space(c) == space)
            break;
        at += bytes;
    }
    return at;
}

static void split_space(struct run *r, struct value s, int64_t limit, struct list *list)
{
    size_t at = next_field(s, 0, false);
    while (at < s.size) {
        size_t end = limit == 0 ? s.size : next_field(s, at, true);
        if (limit == 0) {
            list_add(r, list, string_part(s, at, end - at));
            return;
        }
        list_add(r, list, string_part(s, at, end - at));
        at = next_field(s, end, false);
        limit--;
    }
}

static struct value split(struct run *r, struct value s, const struct arguments *a, bool right)
{
    struct list *list;
    struct value v = list_new(r, PLAIN, 0, &list);
    struct value by = argument_get(r, a, 0, "sep", value_of(NONE));
    int64_t limit = argument_integer(r, a, 1, "maxsplit", -1);
    run_step(r, s.size / 16);
    if (by.kind == NONE) {
        if (right && limit >= 0)
            run_fail(r, ST_INVALID, "rsplit with maxsplit wants a separator");
        split_space(r, s, limit, list);
        return v;
    }
    value_want(r, by, STRING, "split");
    if (by.size == 0)
        run_fail(r, ST_INVALID, "empty separator");
    size_t at = 0, end = s.size;
    if (right && limit >= 0) {
        for (size_t i = s.size; i >= by.size && limit > 0;) {
            if (!is_at(r, s, i - by.size, by)) {
                i--;
                continue;
            }
            list_add(r, list, string_part(s, i, end - i));
            end = i -= by.size;
            limit--;
        }
        list_add(r, list, string_part(s, 0, end));
        for (size_t i = 0; i < list->count / 2; i++) {
            struct value other = list->items[list->count - 1 - i];
            list->items[list->count - 1 - i] = list->items[i];
            list->items[i] = other;
        }
        return v;
    }
    for (; limit != 0; limit--) {
        const char *found = at < s.size ? memmem(s.text + at, s.size - at, by.text, by.size) : NULL;
        if (found == NULL)
            break;
        list_add(r, list, string_part(s, at, (size_t)(found - s.text) - at));
        at = (size_t)(found - s.text) + by.size;
    }
    list_add(r, list, string_part(s, at, s.size - at));
    return v;
}

static bool has_affix(struct run *r, struct value s, struct value affix, bool end)
{
    if (affix.kind == LIST && affix.list->kind == TUPLE) {
        for (size_t i = 0; i < affix.list->count; i++)
            if (has_affix(r, s, affix.list->items[i], end))
                return true;
        return false;
    }
    value_want(r, affix, STRING, end ? "endswith" : "startswith");
    run_step(r, affix.size / 64);
    return affix.size <= s.size &&
           (affix.size == 0 ||
            memcmp(s.text + (end ? s.size - affix.size : 0), affix.text, affix.size) == 0);
}

/* The byte at which `what` lies first or last; -1 = nowhere. */
static int64_t find(struct run *r, struct value s, struct value what, bool last)
{
    run_step(r, s.size / 8);
    if (what.size > s.size)
        return -1;
    if (what.size == 0)
        return last ? (int64_t)s.size : 0;
    if (!last) {
        const char *at = memmem(s.text, s.size, what.text, what.size);
        return at != NULL ? at - s.text : -1;
    }
    for (size_t i = s.size - what.size + 1; i-- > 0;)
        if (is_at(r, s, i, what))
            return (int64_t)i;
    return -1;
}

static struct value find_character(struct run *r, struct value s, const struct arguments *a,
                                   bool last, bool must)
{
    if (a->count > 1)
        run_fail(r, ST_INVALID, "find with a start is not supported");
    int64_t at = find(r, s, text_argument(r, a, 0, "sub"), last);
    if (at < 0 && must)
        run_fail(r, ST_INVALID, "substring not found");
    return value_int(at < 0 ? -1 : (int64_t)characters_count(s.text, (size_t)at));
}

static struct value count_text(struct run *r, struct value s, struct value what)
{
    int64_t count = 0;
    run_step(r, s.size / 8);
    if (what.size == 0)
        return value_int((int64_t)characters_count(s.text, s.size) + 1);
    for (size_t at = 0; at + what.size <= s.size; count++) {
        const char *found = memmem(s.text + at, s.size - at, what.text, what.size);
        if (found == NULL)
            break;
        at = (size_t)(found - s.text) + what.size;
    }
    return value_int(count);
}

static struct value join(struct run *r, struct value by, struct value of)
{
    struct list items = value_items(r, of);
    struct buffer *b = buffer_new(r);
    for (size_t i = 0; i < items.count; i++) {
        value_want(r, items.items[i], STRING, "join");
        buffer_add_part(r, b, by, 0, i > 0 ? by.size : 0);
        buffer_add_part(r, b, items.items[i], 0, items.items[i].size);
    }
    return buffer_value(b);
}

static struct value partition(struct run *r, struct value s, struct value by, bool last)
{
    struct list *list;
    struct value v = list_new(r, TUPLE, 3, &list);
    int64_t at = find(r, s, by, last);
    size_t cut = at < 0 ? (last ? 0 : s.size) : (size_t)at;
    size_t width = at < 0 ? 0 : by.size;
    list_add(r, list, string_part(s, 0, cut));
    list_add(r, list, at < 0 ? value_text("") : by);
    list_add(r, list, string_part(s, cut + width, s.size - cut - width));
    return v;
}

static struct value pad(struct run *r, struct value s, const struct arguments *a, struct value name)
{
    bool zeros = value_is_text(name, "zfill");
    struct value fill =
        zeros ? value_text("0") : argument_get(r, a, 1, "fillchar", value_text(" "));
    int64_t width = argument_integer(r, a, 0, "width", 0);
    int64_t missing = width - (int64_t)value_length(r, s), left = missing;
    struct buffer *b = buffer_new(r);
    size_t sign = zeros && s.size > 0 && (s.text[0] == '-' || s.text[0] == '+');
    value_want(r, fill, STRING, "fillchar");
    if (missing > (int64_t)r->arena.limit)
        run_fail(r, ST_TOO_LARGE, "a text of %lld characters", (long long)width);
    if (value_is_text(name, "ljust"))
        left = 0;
    else if (value_is_text(name, "center"))
        left = missing / 2 + (missing & width & 1);
    buffer_add_part(r, b, s, 0, sign);
    for (int64_t i = 0; i < missing; i++) {
        if (i == left)
            buffer_add_part(r, b, s, sign, s.size - sign);
        buffer_add_part(r, b, fill, 0, fill.size);
    }
    if (missing <= left || missing <= 0)
        buffer_add_part(r, b, s, sign, s.size - sign);
    return buffer_value(b);
}

static struct value is_all(struct run *r, struct value s, char what)
{
    bool any = false;
    run_step(r, s.size / 8);
    for (size_t at = 0; at < s.size;) {
        uint32_t c;
        at += character_read(s.text + at, s.size - at, &c);
        bool digit = c >= '0' && c <= '9', letter = unicode_is_letter(c);
        bool upper = unicode_lower(c) != c, lower = unicode_upper(c) != c;
        bool good = what == 'd'   ? digit
                    : what == 'a' ? letter
                    : what == 'n' ? digit || letter
                    : what == 's' ? unicode_is_space(c)
                    : what == 'u' ? !lower
                                  : !upper;
        if (!good)
            return value_bool(false);
        any = any || (what == 'u' ? upper : what == 'l' ? lower : true);
    }
    return value_bool(any);
}

static struct value string_change(struct run *r, struct value s, struct value name,
                                  const struct arguments *a)
{
    struct value set = argument_get(r, a, 0, "chars", value_of(NONE));
    int sides = value_is_text(name, "strip") ? 3 : value_is_text(name, "lstrip") ? 1 : 2;
    if (value_is_text(name, "replace"))
        return string_replace(r, s, text_argument(r, a, 0, "old"), text_argument(r, a, 1, "new"),
                              argument_integer(r, a, 2, "count", -1));
    if (value_is_text(name, "format")) {
        struct list list = {.items = a->items, .count = a->count};
        return string_format(r, s, &list, a->named);
    }
    if (value_is_text(name, "removeprefix"))
        return has_affix(r, s, set, false) ? string_part(s, set.size, s.size - set.size) : s;
    if (value_is_text(name, "removesuffix"))
        return has_affix(r, s, set, true) ? string_part(s, 0, s.size - set.size) : s;
    if (value_is_text(name, "partition") || value_is_text(name, "rpartition"))
        return partition(r, s, text_argument(r, a, 0, "sep"), name.text[0] == 'r');
    if (name.text[0] == 'z' || value_is_text(name, "ljust") || value_is_text(name, "rjust") ||
        value_is_text(name, "center"))
        return pad(r, s, a, name);
    if (set.kind != NONE)
        value_want(r, set, STRING, "strip");
    return string_strip(r, s, sides, set.kind == NONE ? NULL : &set);
}

static struct value string_call(struct run *r, struct value s, struct value name,
                                const struct arguments *a)
{
    static const char *const cases[] = {"upper", "lower", "title", "capitalize", "swapcase"};
    static const char *const checks[] = {"isdigit", "isalpha", "nisalnum",
                                         "isspace", "isupper", "lislower"};
    for (int i = 0; i < 5; i++)
        if (value_is_text(name, cases[i]))
            return string_case(r, s, (enum string_case)i);
    for (int i = 0; i < 6; i++)
        if (value_is_text(name, checks[i] + (checks[i][0] != 'i')))
            return is_all(r, s, checks[i][0] != 'i' ? checks[i][0] : checks[i][2]);
    if (value_is_text(name, "casefold"))
        return string_case(r, s, LOWER);
    if (value_is_text(name, "isdecimal") || value_is_text(name, "isnumeric"))
        return is_all(r, s, 'd');
    if (value_is_text(name, "isascii"))
        return value_bool(value_length(r, s) == s.size);
    if (value_is_text(name, "split") || value_is_text(name, "rsplit"))
        return split(r, s, a, name.text[0] == 'r');
    if (value_is_text(name, "splitlines"))
        return string_lines(r, s, value_true(argument_get(r, a, 0, "keepends", value_bool(false))));
    if (value_is_text(name, "startswith") || value_is_text(name, "endswith"))
        return value_bool(
            has_affix(r, s, argument_get(r, a, 0, "prefix", value_of(NONE)), name.text[0] == 'e'));
    if (value_is_text(name, "find") || value_is_text(name, "rfind"))
        return find_character(r, s, a, name.text[0] == 'r', false);
    if (value_is_text(name, "index") || value_is_text(name, "rindex"))
        return find_character(r, s, a, name.text[0] == 'r', true);
    if (value_is_text(name, "count"))
        return count_text(r, s, text_argument(r, a, 0, "sub"));
    if (value_is_text(name, "join"))
        return join(r, s, argument_get(r, a, 0, "iterable", value_of(NONE)));
    return string_change(r, s, name, a);
}

/* ---- other values ---- */

static struct value map_call(struct run *r, struct value m, struct value name,
                             const struct arguments *a)
{
    struct list *list;
    if (value_is_text(name, "get")) {
        if (a->count == 0)
            run_fail(r, ST_INVALID, "get: want a key");
        struct value *found = map_get(r, m.map, a->items[0]);
        return found != NULL ? *found : argument_get(r, a, 1, "default", value_of(NONE));
    }
    if (value_is_text(name, "copy")) {
        struct value copy = map_new(r);
        for (uint32_t i = 0; i < m.map->count; i++)
            map_set(r, copy.map, m.map->entries[i].key, m.map->entries[i].value);
        return copy;
    }
    bool items = value_is_text(name, "items"), keys = value_is_text(name, "keys");
    struct value v = list_new(r, items ? ITEMS : keys ? KEYS : VALUES, m.map->count, &list);
    for (uint32_t i = 0; i < m.map->count; i++) {
        const struct map_entry *e = &m.map->entries[i];
        struct list *pair;
        struct value both;
        if (items) {
            both = list_new(r, TUPLE, 2, &pair);
            list_add(r, pair, e->key);
            list_add(r, pair, e->value);
        }
        list_add(r, list, items ? both : keys ? e->key : e->value);
    }
    return v;
}

static struct value list_call(struct run *r, struct value l, struct value name,
                              const struct arguments *a)
{
    int64_t count = 0;
    struct list *copy;
    if (value_is_text(name, "copy")) {
        struct value v = list_new(r, l.list->kind, l.list->count, &copy);
        for (size_t i = 0; i < l.list->count; i++)
            list_add(r, copy, l.list->items[i]);
        memcpy(copy->range, l.list->range, sizeof(copy->range));
        return v;
    }
    struct value what = argument_get(r, a, 0, "value", value_of(NONE));
    for (size_t i = 0; i < l.list->count; i++)
        if (value_equal(r, l.list->items[i], what)) {
            if (name.text[0] == 'i')
                return value_int((int64_t)i);
            count++;
        }
    if (name.text[0] == 'i')
        run_fail(r, ST_INVALID, "index: the value is not in the list");
    return value_int(count);
}

static struct value loop_call(struct run *r, struct loop *l, struct value name,
                              const struct arguments *a)
{
    struct list *list;
    if (value_is_text(name, "cycle")) {
        if (a->count == 0)
            run_fail(r, ST_INVALID, "no items for cycling given");
        return a->items[l->index % a->count];
    }
    struct value now = list_new(r, TUPLE, a->count, &list);
    for (size_t i = 0; i < a->count; i++)
        list_add(r, list, a->items[i]);
    bool changed = l->changed == NULL || !value_equal(r, *l->changed, now);
    l->changed = run_alloc(r, sizeof(now));
    *l->changed = now;
    return value_bool(changed);
}

struct value cycler_current(struct run *r, const struct map *state)
{
    const struct list *items = map_get(r, state, value_text("items"))->list;
    const struct value *at = map_get(r, state, value_text("at"));
    return items->count > 0 ? items->items[at->integer] : value_of(UNDEFINED);
}

static struct value cycler_call(struct run *r, struct map *state, struct value name)
{
    struct value *at = map_get(r, state, value_text("at"));
    struct list *items = map_get(r, state, value_text("items"))->list;
    if (value_is_text(name, "reset") || items->count == 0) {
        at->integer = 0;
        return value_of(NONE);
    }
    struct value current = cycler_current(r, state);
    at->integer = (at->integer + 1) % (int64_t)items->count;
    return current;
}

struct value method_call(struct run *r, const struct method *m, const struct arguments *a)
{
    switch (m->self.kind) {
    case STRING:
        return string_call(r, m->self, m->name, a);
    case MAP:
        return map_call(r, m->self, m->name, a);
    case LIST:
        return list_call(r, m->self, m->name, a);
    case LOOP:
        return loop_call(r, m->self.loop, m->name, a);
    default:
        return cycler_call(r, m->self.map, m->name);
    }
}
