/* value: see the header. */
#include "model/template/value.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_BYTES ((size_t)32 << 10)
#define FEW_ENTRIES 8 /* A map with more entries has a hash table. */

struct chunk {
    struct chunk *next;
};

void run_fail(struct run *r, enum status status, const char *format, ...)
{
    char text[400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    for (char *c = text; *c != 0; c++)
        *c = *c >= ' ' && *c <= '~' ? *c : *c == '\n' ? ' ' : '?';
    r->status = error_set(r->error, status, "chat template, line %u: %s", r->line, text);
    longjmp(*r->fail_jump, 1);
}

void *run_alloc(struct run *r, size_t bytes)
{
    struct arena *a = &r->arena;
    bytes = (bytes + 15) & ~(size_t)15;
    if (bytes <= a->free_bytes) {
        void *at = a->next_free;
        a->next_free += bytes;
        a->free_bytes -= bytes;
        return at;
    }
    size_t room = bytes + 16 > CHUNK_BYTES ? bytes + 16 : CHUNK_BYTES;
    if (bytes > a->limit || room > a->limit - a->total)
        run_fail(r, ST_TOO_LARGE, "more than %zu bytes of memory", a->limit);
    struct chunk *chunk = malloc(room);
    if (chunk == NULL)
        run_fail(r, ST_NO_MEMORY, "out of memory");
    chunk->next = a->chunks;
    a->chunks = chunk;
    a->total += room;
    char *start = (char *)chunk + 16;
    if (room - 16 - bytes >= a->free_bytes) {
        a->next_free = start + bytes;
        a->free_bytes = room - 16 - bytes;
    }
    return start;
}

void arena_done(struct arena *arena)
{
    while (arena->chunks != NULL) {
        struct chunk *next = arena->chunks->next;
        free(arena->chunks);
        arena->chunks = next;
    }
}

void run_step(struct run *r, uint64_t steps)
{
    if (steps > r->steps_left)
        run_fail(r, ST_TOO_LARGE, "too many steps");
    r->steps_left -= steps;
}

void run_enter(struct run *r)
{
    run_step(r, 1);
    if (r->depth_left == 0)
        run_fail(r, ST_TOO_LARGE, "nested too deeply");
    r->depth_left--;
}

/* ---- making values ---- */

struct value value_text(const char *literal)
{
    return (struct value){.kind = STRING, .size = (uint32_t)strlen(literal), .text = literal};
}

struct value value_bytes(struct run *r, const char *text, size_t bytes)
{
    char *copy = run_alloc(r, bytes);
    if (bytes > 0)
        memcpy(copy, text, bytes);
    return (struct value){.kind = STRING, .size = (uint32_t)bytes, .text = copy};
}

static struct value list_from_json(struct run *r, const json_t *json, bool input)
{
    struct list *list;
    size_t count = json_array_size(json);
    struct value v = list_new(r, PLAIN, count, &list);
    for (size_t i = 0; i < count; i++)
        list_add(r, list, value_from_json(r, json_array_get(json, i), input));
    return v;
}

/* Returns true for the usual values of a key "role". They count as the template's text, because
 * templates build control tokens from them, and they contain no control tokens. */
static bool is_usual_role(struct value key, const json_t *value)
{
    static const char *const roles[] = {"system", "developer", "user",    "assistant",
                                        "tool",   "function",  "ipython", "model"};
    const char *text = json_string_value(value);
    if (text == NULL || !value_is_text(key, "role"))
        return false;
    for (size_t i = 0; i < sizeof(roles) / sizeof(roles[0]); i++)
        if (strlen(roles[i]) == json_string_length(value) && strcmp(text, roles[i]) == 0)
            return true;
    return false;
}

static struct value map_from_json(struct run *r, const json_t *json, bool input)
{
    struct value v = map_new(r);
    json_t *object = (json_t *)json; /* jansson's iteration changes nothing. */
    for (void *at = json_object_iter(object); at != NULL; at = json_object_iter_next(object, at)) {
        struct value key = value_text(json_object_iter_key(at));
        const json_t *value = json_object_iter_value(at);
        key.input = input;
        map_set(r, v.map, key, value_from_json(r, value, input && !is_usual_role(key, value)));
    }
    return v;
}

struct value value_from_json(struct run *r, const json_t *json, bool input)
{
    struct value v = {.kind = NONE};
    run_enter(r);
    switch (json != NULL ? json_typeof(json) : JSON_NULL) {
    case JSON_OBJECT:
        v = map_from_json(r, json, input);
        break;
    case JSON_ARRAY:
        v = list_from_json(r, json, input);
        break;
    case JSON_STRING:
        if (json_string_length(json) > r->arena.limit)
            run_fail(r, ST_TOO_LARGE, "a text of %zu bytes", json_string_length(json));
        v.kind = STRING;
        v.input = input;
        v.text = json_string_value(json);
        v.size = (uint32_t)json_string_length(json);
        break;
    case JSON_INTEGER:
        v = value_int(json_integer_value(json));
        break;
    case JSON_REAL:
        v = value_float(json_real_value(json));
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        v = value_bool(json_is_true(json));
        break;
    default:
        break;
    }
    run_leave(r);
    return v;
}

struct value list_new(struct run *r, enum list_kind kind, size_t capacity, struct list **list_out)
{
    struct list *list = run_alloc(r, sizeof(*list));
    run_step(r, capacity / 4);
    if (capacity > r->arena.limit / sizeof(struct value))
        run_fail(r, ST_TOO_LARGE, "a list of %zu items", capacity);
    *list = (struct list){.kind = kind, .capacity = capacity};
    list->items = run_alloc(r, capacity * sizeof(struct value));
    if (list_out != NULL)
        *list_out = list;
    return (struct value){.kind = LIST, .list = list};
}

void list_add(struct run *r, struct list *list, struct value v)
{
    run_step(r, 1);
    if (list->count == list->capacity) {
        size_t capacity = list->capacity * 2 + 4;
        struct value *items = run_alloc(r, capacity * sizeof(*items));
        if (list->count > 0)
            memcpy(items, list->items, list->count * sizeof(*items));
        list->items = items;
        list->capacity = capacity;
    }
    list->items[list->count++] = v;
}

struct value map_new(struct run *r)
{
    struct map *map = run_alloc(r, sizeof(*map));
    *map = (struct map){0};
    return (struct value){.kind = MAP, .map = map};
}

static uint32_t hash_bytes(const void *data, size_t bytes)
{
    const unsigned char *at = data;
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ at[i]) * 16777619u;
    return hash ^ hash >> 15;
}

static uint32_t hash_of(struct run *r, struct value v)
{
    uint32_t hash = v.kind;
    if (v.kind == STRING)
        return run_step(r, v.size / 16), hash_bytes(v.text, v.size);
    if (is_number(v)) {
        double number = number_of(v) + 0.0; /* -0.0 and 0.0 are one key. */
        return hash_bytes(&number, sizeof(number));
    }
    if (v.kind == LIST && v.list->kind == TUPLE) {
        run_enter(r);
        for (size_t i = 0; i < v.list->count; i++)
            hash = hash * 31 + hash_of(r, v.list->items[i]);
        run_leave(r);
        return hash;
    }
    if (v.kind == LIST || v.kind == MAP)
        run_fail(r, ST_INVALID, "unhashable type: '%s'", value_type(v));
    return hash;
}

static void map_index(struct map *map, uint32_t hash, uint32_t number)
{
    uint32_t at = hash & (map->slot_count - 1);
    while (map->slots[at] != 0)
        at = (at + 1) & (map->slot_count - 1);
    map->slots[at] = number + 1;
}

static void map_grow(struct run *r, struct map *map)
{
    uint32_t capacity = map->capacity * 2 + 4;
    struct map_entry *entries = run_alloc(r, capacity * sizeof(*entries));
    if (map->count > 0)
        memcpy(entries, map->entries, map->count * sizeof(*entries));
    map->entries = entries;
    map->capacity = capacity;
    if (capacity <= FEW_ENTRIES)
        return;
    map->slot_count = 16;
    while (map->slot_count < capacity * 2)
        map->slot_count *= 2;
    map->slots = run_alloc(r, map->slot_count * sizeof(*map->slots));
    memset(map->slots, 0, map->slot_count * sizeof(*map->slots));
    for (uint32_t i = 0; i < map->count; i++)
        map_index(map, hash_of(r, entries[i].key), i);
}

struct value *map_get(struct run *r, const struct map *map, struct value key)
{
    uint32_t hash = hash_of(r, key);
    if (map->slots == NULL) {
        for (uint32_t i = 0; i < map->count; i++)
            if (value_equal(r, map->entries[i].key, key))
                return &map->entries[i].value;
        return NULL;
    }
    for (uint32_t at = hash & (map->slot_count - 1); map->slots[at] != 0;
         at = (at + 1) & (map->slot_count - 1)) {
        struct map_entry *e = &map->entries[map->slots[at] - 1];
        if (value_equal(r, e->key, key))
            return &e->value;
    }
    return NULL;
}

void map_set(struct run *r, struct map *map, struct value key, struct value value)
{
    struct value *existing = map_get(r, map, key);
    if (existing != NULL) {
        *existing = value;
        return;
    }
    if (map->count == map->capacity)
        map_grow(r, map);
    map->entries[map->count] = (struct map_entry){key, value};
    if (map->slots != NULL)
        map_index(map, hash_of(r, key), map->count);
    map->count++;
}

/* ---- asking ---- */

const char *value_type(struct value v)
{
    static const char *const names[] = {
        "Undefined", "NoneType", "bool",     "int",    "float",       "str",    "list",  "dict",
        "Namespace", "Macro",    "function", "method", "LoopContext", "Cycler", "Joiner"};
    static const char *const lists[] = {"list",      "tuple",       "generator", "range",
                                        "dict_keys", "dict_values", "dict_items"};
    return v.kind == LIST ? lists[v.list->kind] : names[v.kind];
}

bool value_true(struct value v)
{
    switch (v.kind) {
    case UNDEFINED:
    case NONE:
        return false;
    case BOOL:
        return v.boolean;
    case INT:
        return v.integer != 0;
    case FLOAT:
        return v.number != 0;
    case STRING:
        return v.size > 0;
    case LIST:
        return v.list->kind == GENERATOR || v.list->count > 0;
    case MAP:
        return v.map->count > 0;
    default:
        return true;
    }
}

bool value_is_text(struct value v, const char *text)
{
    return v.kind == STRING && v.size == strlen(text) && memcmp(v.text, text, v.size) == 0;
}

static bool lists_equal(struct run *r, const struct list *a, const struct list *b)
{
    if (a == b)
        return true;
    if ((a->kind == TUPLE) != (b->kind == TUPLE) || a->kind == GENERATOR || b->kind == GENERATOR ||
        a->count != b->count)
        return false;
    for (size_t i = 0; i < a->count; i++)
        if (!value_equal(r, a->items[i], b->items[i]))
            return false;
    return true;
}

static bool maps_equal(struct run *r, const struct map *a, const struct map *b)
{
    if (a == b)
        return true;
    if (a->count != b->count)
        return false;
    for (uint32_t i = 0; i < a->count; i++) {
        const struct value *other = map_get(r, b, a->entries[i].key);
        if (other == NULL || !value_equal(r, a->entries[i].value, *other))
            return false;
    }
    return true;
}

static int compare_numbers(struct value a, struct value b)
{
    if (a.kind != FLOAT && b.kind != FLOAT)
        return integer_of(a) < integer_of(b) ? -1 : integer_of(a) > integer_of(b);
    return number_of(a) < number_of(b) ? -1 : number_of(a) > number_of(b);
}

bool value_equal(struct run *r, struct value a, struct value b)
{
    bool equal = false;
    run_step(r, 1);
    if (is_number(a) && is_number(b))
        return compare_numbers(a, b) == 0 && !isnan(number_of(a)) && !isnan(number_of(b));
    if (a.kind != b.kind)
        return false;
    run_enter(r);
    switch (a.kind) {
    case STRING:
        run_step(r, a.size / 64);
        equal = a.size == b.size && (a.size == 0 || memcmp(a.text, b.text, a.size) == 0);
        break;
    case LIST:
        equal = lists_equal(r, a.list, b.list);
        break;
    case MAP:
        equal = maps_equal(r, a.map, b.map);
        break;
    case UNDEFINED:
    case NONE:
        equal = true;
        break;
    case FUNCTION:
        equal = a.integer == b.integer;
        break;
    default:
        equal = a.map == b.map;
        break;
    }
    run_leave(r);
    return equal;
}

int value_order(struct run *r, struct value a, struct value b)
{
    run_step(r, 1);
    if (is_number(a) && is_number(b))
        return compare_numbers(a, b);
    if (a.kind == STRING && b.kind == STRING) {
        size_t bytes = a.size < b.size ? a.size : b.size;
        run_step(r, bytes / 64);
        int order = bytes > 0 ? memcmp(a.text, b.text, bytes) : 0;
        return order != 0 ? order : a.size < b.size ? -1 : a.size > b.size;
    }
    if (a.kind != LIST || b.kind != LIST || a.list->kind != b.list->kind ||
        a.list->kind == GENERATOR)
        run_fail(r, ST_INVALID, "cannot compare %s with %s", value_type(a), value_type(b));
    run_enter(r);
    int order = 0;
    size_t i = 0;
    for (; order == 0 && i < a.list->count && i < b.list->count; i++)
        if (!value_equal(r, a.list->items[i], b.list->items[i]))
            order = value_order(r, a.list->items[i], b.list->items[i]);
    run_leave(r);
    return order != 0 ? order : a.list->count < b.list->count ? -1 : a.list->count > b.list->count;
}

bool value_contains(struct run *r, struct value container, struct value item)
{
    if (container.kind == STRING) {
        value_want(r, item, STRING, "'in <string>'");
        run_step(r, 1 + container.size / 8);
        return item.size == 0 || (container.size > 0 && memmem(container.text, container.size,
                                                               item.text, item.size) != NULL);
    }
    if (container.kind == MAP)
        return map_get(r, container.map, item) != NULL;
    struct list items = value_items(r, container);
    for (size_t i = 0; i < items.count; i++)
        if (value_equal(r, items.items[i], item))
            return true;
    return false;
}

size_t value_length(struct run *r, struct value v)
{
    if (v.kind == STRING)
        return run_step(r, v.size / 16), characters_count(v.text, v.size);
    if (v.kind == LIST && v.list->kind != GENERATOR)
        return v.list->count;
    if (v.kind == MAP)
        return v.map->count;
    if (v.kind != UNDEFINED)
        run_fail(r, ST_INVALID, "object of type '%s' has no length", value_type(v));
    return 0;
}

struct list value_items(struct run *r, struct value v)
{
    struct list *list;
    if (v.kind == LIST) {
        struct list items = *v.list;
        if (items.kind == GENERATOR)
            v.list->count = 0;
        return items;
    }
    if (v.kind == UNDEFINED)
        return (struct list){0};
    if (v.kind == MAP) {
        list_new(r, PLAIN, v.map->count, &list);
        for (uint32_t i = 0; i < v.map->count; i++)
            list_add(r, list, v.map->entries[i].key);
        return *list;
    }
    if (v.kind != STRING)
        run_fail(r, ST_INVALID, "'%s' object is not iterable", value_type(v));
    list_new(r, PLAIN, characters_count(v.text, v.size), &list);
    for (size_t at = 0; at < v.size;) {
        uint32_t code;
        size_t bytes = character_read(v.text + at, v.size - at, &code);
        list_add(r, list, string_part(v, at, bytes));
        at += bytes;
    }
    return *list;
}

void value_want(struct run *r, struct value v, enum kind kind, const char *where)
{
    if (v.kind == UNDEFINED && kind != UNDEFINED)
        run_fail(r, ST_INVALID, "%s: '%.*s' is undefined", where,
                 v.missing != NULL ? (int)v.size : 7, v.missing != NULL ? v.missing : "a value");
    if (v.kind != kind)
        run_fail(r, ST_INVALID, "%s: want %s instead of %s", where,
                 kind == LIST ? "list" : value_type(value_of(kind)), value_type(v));
}
