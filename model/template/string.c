/* string: building, slicing and changing text; every byte keeps its mark. */
#include "model/template/value.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define JOIN_BYTES 256 /* A joined text from this size lies in a buffer that can grow. */

struct buffer *buffer_new(struct run *r)
{
    struct buffer *b = run_alloc(r, sizeof(*b));
    *b = (struct buffer){0};
    return b;
}

static void buffer_reserve(struct run *r, struct buffer *b, size_t bytes)
{
    if (bytes > r->arena.limit || b->used + bytes > r->arena.limit)
        run_fail(r, ST_TOO_LARGE, "more than %zu bytes of memory", r->arena.limit);
    if (b->used + bytes <= b->capacity)
        return;
    size_t capacity = (b->used + bytes) * 2 + 32;
    char *text = run_alloc(r, capacity);
    uint8_t *marks = run_alloc(r, capacity);
    if (b->used > 0) {
        memcpy(text, b->text, b->used);
        memcpy(marks, b->marks, b->used);
    }
    b->text = text;
    b->marks = marks;
    b->capacity = capacity;
}

void buffer_add(struct run *r, struct buffer *b, const char *text, size_t bytes, bool input)
{
    if (bytes == 0)
        return;
    run_step(r, 1 + bytes / 64);
    buffer_reserve(r, b, bytes);
    memcpy(b->text + b->used, text, bytes);
    memset(b->marks + b->used, input, bytes);
    b->used += bytes;
    b->any_input = b->any_input || input;
    b->any_template = b->any_template || !input;
    if (b == r->out && b->used > r->output_limit)
        run_fail(r, ST_TOO_LARGE, "more than %zu bytes of output", r->output_limit);
}

void buffer_add_part(struct run *r, struct buffer *b, struct value v, size_t at, size_t bytes)
{
    size_t from = b->used;
    buffer_add(r, b, v.text + at, bytes, v.input);
    if (v.marks != NULL && bytes > 0) {
        memcpy(b->marks + from, v.marks + at, bytes);
        b->any_input = b->any_template = true;
    }
}

struct value buffer_value(struct buffer *b)
{
    struct value v = {.kind = STRING, .size = (uint32_t)b->used, .text = b->text};
    if (b->any_input && b->any_template)
        v.marks = b->marks;
    v.input = b->any_input;
    v.buffer = b;
    if (b->used == 0)
        v.text = "";
    return v;
}

struct value string_part(struct value v, size_t at, size_t bytes)
{
    v.text += at;
    v.size = (uint32_t)bytes;
    v.marks = v.marks != NULL ? v.marks + at : NULL;
    v.buffer = NULL;
    return v;
}

/* ---- str() and repr() ---- */

static void buffer_add_float(struct run *r, struct buffer *b, double d)
{
    char digits[40], text[400];
    if (isnan(d) || isinf(d)) {
        const char *name = isnan(d) ? "nan" : d > 0 ? "inf" : "-inf";
        buffer_add(r, b, name, strlen(name), false);
        return;
    }
    int precision = 0;
    do {
        run_step(r, 8); /* A microsecond. */
        snprintf(digits, sizeof(digits), "%.*e", precision, d);
    } while (strtod(digits, NULL) != d && precision++ < 17);
    int exponent = atoi(strchr(digits, 'e') + 1);
    if (exponent < -4 || exponent >= 16) {
        snprintf(text, sizeof(text), "%s", digits);
    } else {
        int decimals = precision - exponent;
        snprintf(text, sizeof(text), "%.*f", decimals > 1 ? decimals : 1, d);
    }
    buffer_add(r, b, text, strlen(text), false);
}

static void add_int(struct run *r, struct buffer *b, int64_t integer)
{
    char text[24];
    int bytes = snprintf(text, sizeof(text), "%lld", (long long)integer);
    buffer_add(r, b, text, (size_t)bytes, false);
}

static void add_literal(struct run *r, struct buffer *b, const char *text)
{
    buffer_add(r, b, text, strlen(text), false);
}

static void add_string_repr(struct run *r, struct buffer *b, struct value v)
{
    bool single = memchr(v.text, '\'', v.size) != NULL && memchr(v.text, '"', v.size) == NULL;
    const char *quote = single ? "\"" : "'";
    add_literal(r, b, v.markup ? "Markup(" : "");
    add_literal(r, b, quote);
    for (size_t at = 0; at < v.size;) {
        uint32_t c;
        char text[16];
        size_t bytes = character_read(v.text + at, v.size - at, &c);
        if (c == (unsigned char)*quote || c == '\\')
            snprintf(text, sizeof(text), "\\%c", (char)c);
        else if (c == '\n' || c == '\r' || c == '\t')
            snprintf(text, sizeof(text), "\\%c", c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
        else if (unicode_is_printable(c))
            text[0] = 0;
        else
            snprintf(text, sizeof(text),
                     c < 0x100     ? "\\x%02x"
                     : c < 0x10000 ? "\\u%04x"
                                   : "\\U%08x",
                     c);
        if (text[0] != 0)
            buffer_add(r, b, text, strlen(text), true);
        else
            buffer_add_part(r, b, v, at, bytes);
        at += bytes;
    }
    add_literal(r, b, quote);
    add_literal(r, b, v.markup ? ")" : "");
}

static void add_map_repr(struct run *r, struct buffer *b, const struct map *map)
{
    add_literal(r, b, "{");
    for (uint32_t i = 0; i < map->count; i++) {
        add_literal(r, b, i > 0 ? ", " : "");
        buffer_add_repr(r, b, map->entries[i].key);
        add_literal(r, b, ": ");
        buffer_add_repr(r, b, map->entries[i].value);
    }
    add_literal(r, b, "}");
}

static void add_list_repr(struct run *r, struct buffer *b, const struct list *list)
{
    static const char *const open[] = {
        "[", "(", "<generator object>", "range(", "dict_keys([", "dict_values([", "dict_items(["};
    static const char *const close[] = {"]", ")", "", ")", "])", "])", "])"};
    add_literal(r, b, open[list->kind]);
    if (list->kind == RANGE) {
        /* Python leaves out a step of 1. */
        for (int i = 0; i < (list->range[2] == 1 ? 2 : 3); i++) {
            add_literal(r, b, i > 0 ? ", " : "");
            add_int(r, b, list->range[i]);
        }
    }
    for (size_t i = 0; i < list->count && list->kind != GENERATOR && list->kind != RANGE; i++) {
        add_literal(r, b, i > 0 ? ", " : "");
        buffer_add_repr(r, b, list->items[i]);
    }
    add_literal(r, b, list->kind == TUPLE && list->count == 1 ? ",)" : close[list->kind]);
}

void buffer_add_repr(struct run *r, struct buffer *b, struct value v)
{
    run_enter(r);
    switch (v.kind) {
    case UNDEFINED:
        add_literal(r, b, "Undefined");
        break;
    case NONE:
        add_literal(r, b, "None");
        break;
    case BOOL:
        add_literal(r, b, v.boolean ? "True" : "False");
        break;
    case INT:
        add_int(r, b, v.integer);
        break;
    case FLOAT:
        buffer_add_float(r, b, v.number);
        break;
    case STRING:
        add_string_repr(r, b, v);
        break;
    case LIST:
        add_list_repr(r, b, v.list);
        break;
    case MAP:
        add_map_repr(r, b, v.map);
        break;
    case NAMESPACE:
        add_literal(r, b, "<Namespace ");
        add_map_repr(r, b, v.map);
        add_literal(r, b, ">");
        break;
    default:
        add_literal(r, b, "<");
        add_literal(r, b, value_type(v));
        add_literal(r, b, ">");
        break;
    }
    run_leave(r);
}

void buffer_add_str(struct run *r, struct buffer *b, struct value v)
{
    if (v.kind == STRING)
        buffer_add_part(r, b, v, 0, v.size);
    else if (v.kind != UNDEFINED)
        buffer_add_repr(r, b, v);
}

struct value string_of(struct run *r, struct value v)
{
    if (v.kind == STRING)
        return v;
    struct buffer *b = buffer_new(r);
    buffer_add_str(r, b, v);
    return buffer_value(b);
}

/* ---- changing ---- */

/* Joins two texts. The result may use the room after the first, so that a text that grows piece by
 * piece costs linear time. */
struct value string_join(struct run *r, struct value a, struct value b)
{
    bool markup = a.markup || b.markup;
    if (markup) {
        a = a.markup ? a : string_escape(r, a);
        b = b.markup ? b : string_escape(r, b);
    }
    struct buffer *buffer = a.buffer;
    if (a.size == 0 || b.size == 0) {
        struct value v = a.size == 0 ? b : a;
        v.markup = markup;
        return v;
    }
    if (buffer == NULL || buffer->text != a.text || buffer->used != a.size || a.size < JOIN_BYTES) {
        buffer = buffer_new(r);
        buffer_reserve(r, buffer, (size_t)a.size + b.size);
        buffer_add_part(r, buffer, a, 0, a.size);
    }
    buffer_add_part(r, buffer, b, 0, b.size);
    struct value v = buffer_value(buffer);
    v.markup = markup;
    return v;
}

struct value string_escape(struct run *r, struct value v)
{
    struct buffer *b = buffer_new(r);
    v = string_of(r, v);
    for (size_t i = 0; i < v.size; i++) {
        char c = v.text[i];
        const char *as = c == '&'    ? "&amp;"
                         : c == '<'  ? "&lt;"
                         : c == '>'  ? "&gt;"
                         : c == '"'  ? "&#34;"
                         : c == '\'' ? "&#39;"
                                     : NULL;
        if (as != NULL)
            buffer_add(r, b, as, strlen(as), true);
        else
            buffer_add_part(r, b, v, i, 1);
    }
    v = buffer_value(b);
    v.markup = true;
    return v;
}

struct value string_case(struct run *r, struct value v, enum string_case new_case)
{
    struct buffer *b = buffer_new(r);
    bool first = true;
    for (size_t at = 0; at < v.size;) {
        uint32_t c;
        char text[4];
        size_t bytes = character_read(v.text + at, v.size - at, &c);
        bool upper = new_case == UPPER ||
                     ((new_case == TITLE || new_case == CAPITALIZE) && first) ||
                     (new_case == SWAP && unicode_lower(c) != c);
        upper = new_case == SWAP ? !upper : upper;
        uint32_t changed = upper ? unicode_upper(c) : unicode_lower(c);
        first = new_case == TITLE && !unicode_is_letter(c);
        size_t from = b->used;
        if (upper && c == 0xdf) { /* The sharp s, which has no upper case. */
            buffer_add(r, b, new_case == TITLE || new_case == CAPITALIZE ? "Ss" : "SS", 2,
                       v.marks != NULL ? v.marks[at] : v.input);
            at += bytes;
            continue;
        }
        buffer_add_part(r, b, v, at, bytes);
        if (changed != c && character_write(changed, text) == bytes)
            memcpy(b->text + from, text, bytes);
        at += bytes;
    }
    return buffer_value(b);
}

static bool in_set(uint32_t c, const struct value *set)
{
    if (set == NULL)
        return unicode_is_space(c);
    for (size_t at = 0; at < set->size;) {
        uint32_t other;
        at += character_read(set->text + at, set->size - at, &other);
        if (other == c)
            return true;
    }
    return false;
}

struct value string_strip(struct run *r, struct value v, enum string_sides sides,
                          const struct value *set)
{
    size_t begin = 0, end = v.size;
    uint32_t c;
    size_t cost = set != NULL ? set->size : 1;
    while ((sides & SIDES_LEFT) != 0 && begin < end) {
        size_t bytes = character_read(v.text + begin, end - begin, &c);
        run_step(r, cost / 8);
        if (!in_set(c, set))
            break;
        begin += bytes;
    }
    while ((sides & SIDES_RIGHT) != 0 && begin < end) {
        size_t at = end - 1;
        while (at > begin && end - at < 4 && ((unsigned char)v.text[at] & 0xc0) == 0x80)
            at--;
        if (character_read(v.text + at, end - at, &c) != end - at)
            character_read(v.text + (at = end - 1), 1, &c);
        run_step(r, cost / 8);
        if (!in_set(c, set))
            break;
        end = at;
    }
    run_step(r, (v.size - (end - begin)) / 16);
    return string_part(v, begin, end - begin);
}

struct value string_replace(struct run *r, struct value v, struct value old, struct value new,
                            int64_t limit)
{
    struct buffer *b = buffer_new(r);
    size_t at = 0;
    run_step(r, v.size / 16);
    while (old.size > 0 && at < v.size && limit != 0) {
        const char *found = memmem(v.text + at, v.size - at, old.text, old.size);
        if (found == NULL)
            break;
        size_t to = (size_t)(found - v.text);
        run_step(r, 1);
        buffer_add_part(r, b, v, at, to - at);
        buffer_add_part(r, b, new, 0, new.size);
        at = to + old.size;
        limit--;
    }
    for (; old.size == 0 && limit != 0; limit--) { /* Before each character and at the end. */
        uint32_t c;
        buffer_add_part(r, b, new, 0, new.size);
        if (at >= v.size)
            break;
        size_t bytes = character_read(v.text + at, v.size - at, &c);
        buffer_add_part(r, b, v, at, bytes);
        at += bytes;
    }
    if (at == 0 && b->used == 0)
        return v;
    buffer_add_part(r, b, v, at, v.size - at);
    struct value result = buffer_value(b);
    result.markup = v.markup;
    return result;
}

static bool ends_line(uint32_t c)
{
    return (c >= '\n' && c <= '\r') || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 ||
           c == 0x2029;
}

struct value string_lines(struct run *r, struct value s, bool keep)
{
    struct list *list;
    struct value v = list_new(r, PLAIN, 0, &list);
    run_step(r, s.size / 16);
    for (size_t begin = 0, at = 0; at < s.size;) {
        uint32_t c;
        size_t end = at;
        at += character_read(s.text + at, s.size - at, &c);
        if (c == '\r' && at < s.size && s.text[at] == '\n')
            at++;
        if (!ends_line(c)) {
            if (at < s.size)
                continue;
            end = at;
        }
        list_add(r, list, string_part(s, begin, (keep ? at : end) - begin));
        begin = at;
    }
    return v;
}
