/* format: tojson as Python's json.dumps, the % operator of strings, and str.format. */
#include "model/template/value.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void put(struct run *r, struct buffer *b, const char *text)
{
    buffer_add(r, b, text, strlen(text), true);
}

/* ---- tojson ---- */

struct json_style {
    int indent; /* -1 = one line. */
    struct value comma;
    struct value colon;
    bool ascii;
    bool sorted;
};

static void json_string_add(struct run *r, struct buffer *b, struct value v, bool ascii)
{
    static const char plain[] = "\"\\\n\r\t\f\b";
    static const char letters[] = "\"\\nrtfb";
    size_t from = 0;
    run_step(r, v.size / 16);
    put(r, b, "\"");
    for (size_t at = 0; at < v.size;) {
        uint32_t c = (unsigned char)v.text[at];
        char text[16];
        size_t bytes = c < 0x80 ? 1 : character_read(v.text + at, v.size - at, &c);
        const char *found = c != 0 && c < 0x80 ? strchr(plain, (int)c) : NULL;
        text[0] = 0;
        if (found != NULL)
            snprintf(text, sizeof(text), "\\%c", letters[found - plain]);
        else if (c < 0x20 || (ascii && c >= 0x7f && c < 0x10000 && c != 0x7f))
            snprintf(text, sizeof(text), "\\u%04x", c);
        else if (ascii && c >= 0x10000)
            snprintf(text, sizeof(text), "\\u%04x\\u%04x", 0xd7c0u + (c >> 10),
                     0xdc00u + (c & 0x3ff));
        if (text[0] != 0) {
            buffer_add_part(r, b, v, from, at - from);
            put(r, b, text);
            from = at + bytes;
        }
        at += bytes;
    }
    buffer_add_part(r, b, v, from, v.size - from);
    put(r, b, "\"");
}

static void json_line(struct run *r, struct buffer *b, const struct json_style *s, int level)
{
    if (s->indent < 0)
        return;
    put(r, b, "\n");
    for (int i = 0; i < level * s->indent; i++)
        put(r, b, " ");
}

static void json_add(struct run *r, struct buffer *b, struct value v, const struct json_style *s,
                     int level);

static void json_list(struct run *r, struct buffer *b, const struct list *list,
                      const struct json_style *s, int level)
{
    put(r, b, "[");
    for (size_t i = 0; i < list->count; i++) {
        buffer_add_part(r, b, s->comma, 0, i > 0 ? s->comma.size : 0);
        json_line(r, b, s, level + 1);
        json_add(r, b, list->items[i], s, level + 1);
    }
    if (list->count > 0)
        json_line(r, b, s, level);
    put(r, b, "]");
}

static void json_key(struct run *r, struct buffer *b, struct value key, const struct json_style *s)
{
    bool quoted = key.kind == STRING;
    if (!quoted && key.kind != NONE && !is_number(key))
        run_fail(r, ST_INVALID, "keys must be str, int, float, bool or None, not %s",
                 value_type(key));
    put(r, b, quoted ? "" : "\"");
    json_add(r, b, key, s, 0);
    put(r, b, quoted ? "" : "\"");
    buffer_add_part(r, b, s->colon, 0, s->colon.size);
}

static void json_map(struct run *r, struct buffer *b, const struct map *map,
                     const struct json_style *s, int level)
{
    uint32_t *order = run_alloc(r, map->count * sizeof(*order));
    for (uint32_t i = 0; i < map->count; i++) {
        uint32_t at = i;
        while (s->sorted && at > 0 &&
               value_order(r, map->entries[order[at - 1]].key, map->entries[i].key) > 0) {
            run_step(r, 1);
            order[at] = order[at - 1];
            at--;
        }
        order[at] = i;
    }
    put(r, b, "{");
    for (uint32_t i = 0; i < map->count; i++) {
        buffer_add_part(r, b, s->comma, 0, i > 0 ? s->comma.size : 0);
        json_line(r, b, s, level + 1);
        json_key(r, b, map->entries[order[i]].key, s);
        json_add(r, b, map->entries[order[i]].value, s, level + 1);
    }
    if (map->count > 0)
        json_line(r, b, s, level);
    put(r, b, "}");
}

static void json_add(struct run *r, struct buffer *b, struct value v, const struct json_style *s,
                     int level)
{
    run_enter(r);
    if (v.kind == NONE)
        put(r, b, "null");
    else if (v.kind == BOOL)
        put(r, b, v.boolean ? "true" : "false");
    else if (v.kind == FLOAT && (isnan(v.number) || isinf(v.number)))
        put(r, b, isnan(v.number) ? "NaN" : v.number > 0 ? "Infinity" : "-Infinity");
    else if (v.kind == INT || v.kind == FLOAT)
        buffer_add_repr(r, b, v);
    else if (v.kind == STRING)
        json_string_add(r, b, v, s->ascii);
    else if (v.kind == LIST && v.list->kind <= TUPLE)
        json_list(r, b, v.list, s, level);
    else if (v.kind == MAP)
        json_map(r, b, v.map, s, level);
    else
        run_fail(r, ST_INVALID, "Object of type %s is not JSON serializable", value_type(v));
    run_leave(r);
}

void buffer_add_json(struct run *r, struct buffer *b, struct value v, int indent,
                     struct value comma, struct value colon, bool ascii, bool sorted)
{
    struct json_style style = {indent, comma, colon, ascii, sorted};
    json_add(r, b, v, &style, 0);
}

/* ---- "…" % (…) ---- */

struct percent {
    char flags[8];
    int width;
    int precision;
    char type;
};

/* Reads what follows '%' and returns the bytes read. */
static size_t percent_read(struct run *r, const char *text, size_t bytes, struct percent *p)
{
    size_t at = 0, flags = 0;
    *p = (struct percent){.precision = -1};
    while (at < bytes && flags < 5 && text[at] != 0 && strchr("-+ #0", text[at]) != NULL)
        p->flags[flags++] = text[at++];
    while (at < bytes && text[at] >= '0' && text[at] <= '9' && p->width < 1000)
        p->width = p->width * 10 + text[at++] - '0';
    if (at < bytes && text[at] == '.')
        for (at++, p->precision = 0;
             at < bytes && text[at] >= '0' && text[at] <= '9' && p->precision < 100; at++)
            p->precision = p->precision * 10 + text[at] - '0';
    if (at == bytes || strchr("sridufFeEgGxXoc%", text[at]) == NULL || text[at] == 0)
        run_fail(r, ST_INVALID, "unsupported format character");
    p->type = text[at++];
    return at;
}

static void percent_pad(struct run *r, struct buffer *b, size_t count)
{
    while (count-- > 0)
        put(r, b, " ");
}

static void percent_text(struct run *r, struct buffer *b, const struct percent *p, struct value v)
{
    struct buffer *repr = buffer_new(r);
    if (p->type == 'r')
        buffer_add_repr(r, repr, v);
    v = p->type == 'r' ? buffer_value(repr) : string_of(r, v);
    if (p->precision >= 0)
        v = string_part(v, 0, character_offset(v.text, v.size, (size_t)p->precision));
    size_t count = characters_count(v.text, v.size);
    size_t pad = count < (size_t)p->width ? (size_t)p->width - count : 0;
    bool left = strchr(p->flags, '-') != NULL;
    percent_pad(r, b, left ? 0 : pad);
    buffer_add_part(r, b, v, 0, v.size);
    percent_pad(r, b, left ? pad : 0);
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
static void percent_number(struct run *r, struct buffer *b, const struct percent *p, struct value v)
{
    char format[40], text[10000]; /* Of the largest width that percent_read reads, and a NUL. */
    bool whole = strchr("diuxXo", p->type) != NULL;
    if (!is_number(v))
        run_fail(r, ST_INVALID, "%%%c format: a number is required, not %s", p->type,
                 value_type(v));
    if (whole && v.kind == FLOAT && !(fabs(v.number) < 9e18))
        run_fail(r, ST_INVALID, "number too large");
    char precision[16] = "";
    if (p->precision >= 0)
        snprintf(precision, sizeof(precision), ".%d", p->precision);
    snprintf(format, sizeof(format), "%%%s%d%s%s%c", p->flags, p->width, precision,
             whole ? "ll" : "", p->type == 'u' ? 'd' : p->type);
    if (p->width == 0)
        snprintf(format, sizeof(format), "%%%s%s%s%c", p->flags, precision, whole ? "ll" : "",
                 p->type == 'u' ? 'd' : p->type);
    if (whole)
        snprintf(text, sizeof(text), format,
                 v.kind == FLOAT ? (long long)v.number : (long long)integer_of(v));
    else
        snprintf(text, sizeof(text), format, number_of(v));
    put(r, b, text);
}
#pragma GCC diagnostic pop

struct value string_percent(struct run *r, struct value format, struct value arguments)
{
    struct buffer *b = buffer_new(r);
    bool many = arguments.kind == LIST && arguments.list->kind == TUPLE;
    size_t count = many ? arguments.list->count : 1, used = 0;
    for (size_t at = 0; at < format.size;) {
        struct percent p;
        const char *mark = memchr(format.text + at, '%', format.size - at);
        size_t end = mark != NULL ? (size_t)(mark - format.text) : format.size;
        struct value v = arguments;
        buffer_add_part(r, b, format, at, end - at);
        if (mark == NULL)
            break;
        at = end + 1;
        if (at < format.size && format.text[at] == '(' && arguments.kind == MAP) {
            const char *close = memchr(format.text + at, ')', format.size - at);
            if (close == NULL)
                run_fail(r, ST_INVALID, "incomplete format key");
            size_t to = (size_t)(close - format.text);
            struct value *found =
                map_get(r, arguments.map, string_part(format, at + 1, to - at - 1));
            if (found == NULL)
                run_fail(r, ST_INVALID, "format: no such key");
            v = *found;
            used = 1;
            at = to + 1;
            at += percent_read(r, format.text + at, format.size - at, &p);
        } else {
            at += percent_read(r, format.text + at, format.size - at, &p);
            if (p.type != '%') {
                if (used == count)
                    run_fail(r, ST_INVALID, "not enough arguments for format string");
                v = many ? arguments.list->items[used] : arguments;
                used++;
            }
        }
        if (p.type == '%')
            put(r, b, "%");
        else if (p.type == 's' || p.type == 'r' || p.type == 'c')
            percent_text(r, b, &p, v);
        else
            percent_number(r, b, &p, v);
    }
    if (used < count && arguments.kind != MAP && !(arguments.kind == LIST && !many))
        run_fail(r, ST_INVALID, "not all arguments converted during string formatting");
    return buffer_value(b);
}

/* Fields are {}, {0} or {name}, without conversion and format. */
struct value string_format(struct run *r, struct value format, const struct list *arguments,
                           const struct map *named)
{
    struct buffer *b = buffer_new(r);
    size_t next = 0;
    for (size_t at = 0; at < format.size; at++) {
        char c = format.text[at];
        if (c != '{' && c != '}') {
            buffer_add_part(r, b, format, at, 1);
            continue;
        }
        if (at + 1 < format.size && format.text[at + 1] == c) {
            buffer_add_part(r, b, format, at++, 1);
            continue;
        }
        const char *close = c == '{' ? memchr(format.text + at, '}', format.size - at) : NULL;
        if (close == NULL)
            run_fail(r, ST_INVALID, "format: single '%c'", c);
        size_t end = (size_t)(close - format.text);
        struct value name = string_part(format, at + 1, end - at - 1);
        const struct value *v = NULL;
        if (name.size == 0 || (name.text[0] >= '0' && name.text[0] <= '9')) {
            size_t index = name.size == 0 ? next++ : (size_t)atoi(name.text);
            v = index < arguments->count ? &arguments->items[index] : NULL;
        } else if (named != NULL) {
            v = map_get(r, named, name);
        }
        if (v == NULL)
            run_fail(r, ST_INVALID, "format: no such argument, or an unsupported field");
        buffer_add_str(r, b, *v);
        at = end;
    }
    return buffer_value(b);
}
