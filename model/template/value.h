/* value: the values of a template, as in Python, and the memory in which they live. All memory of a
 * rendering lies in one arena, so nothing is freed alone. An error leaves the rendering with
 * longjmp to template_render. One thread uses a `struct run`. */
#ifndef MODEL_TEMPLATE_VALUE_H
#define MODEL_TEMPLATE_VALUE_H

#include "model/template/template.h"

#include <setjmp.h>
#include <stdbool.h>

enum kind {
    UNDEFINED,
    NONE,
    BOOL,
    INT,
    FLOAT,
    STRING,
    LIST,
    MAP,
    NAMESPACE,
    MACRO,
    FUNCTION, /* A global function, number `integer`. */
    METHOD,
    LOOP,
    CYCLER,
    JOINER,
};

enum list_kind { PLAIN, TUPLE, GENERATOR, RANGE, KEYS, VALUES, ITEMS };

struct value {
    uint8_t kind;
    bool input;    /* STRING without marks: all bytes come from the input. */
    bool markup;   /* STRING: text that is already escaped (Markup). */
    uint32_t size; /* STRING: bytes. */
    union {
        bool boolean;
        int64_t integer;
        double number;
        const char *text;
        struct list *list;
        struct map *map; /* MAP, NAMESPACE, CYCLER. */
        const struct macro *macro;
        struct method *method;
        struct loop *loop;
        const char *missing; /* UNDEFINED: the name, for messages; NULL = unknown. */
    };
    /* STRING: one byte for each byte, 1 = from the input. NULL = `input` says it for all. */
    const uint8_t *marks;
    struct buffer *buffer; /* STRING: the buffer that can grow behind the text; NULL = none. */
};

struct list {
    struct value *items;
    size_t count;
    size_t capacity;
    enum list_kind kind;
};

struct entry {
    struct value key;
    struct value value;
};

struct map {
    struct entry *entries;
    uint32_t *slots; /* Hash table of entry number + 1; NULL = few entries. */
    uint32_t count;
    uint32_t capacity;
    uint32_t slot_count;
};

struct method {
    struct value self;
    struct value name;
};

/* Text that grows; marks are always there. */
struct buffer {
    char *text;
    uint8_t *marks;
    size_t used;
    size_t capacity;
    bool any_input;
    bool any_template;
};

struct arena {
    struct chunk *chunks;
    char *at;
    size_t left;
    size_t total;
    size_t limit;
};

struct run {
    struct arena arena;
    jmp_buf *failed;
    enum status status;
    struct error *error;
    uint32_t line;
    uint64_t steps_left;
    uint32_t depth_left;
    size_t output_limit;
    time_t now;
    struct buffer *out;
    struct scope *scope;
    const struct template *template;
};

/* Ends the rendering or the compilation. */
_Noreturn void run_fail(struct run *r, enum status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void *run_alloc(struct run *r, size_t bytes);
void run_step(struct run *r, uint64_t steps);
void run_enter(struct run *r);
static inline void run_leave(struct run *r)
{
    r->depth_left++;
}
void arena_done(struct arena *arena);

/* ---- making values ---- */
static inline struct value value_of(enum kind kind)
{
    return (struct value){.kind = (uint8_t)kind};
}
static inline struct value value_bool(bool b)
{
    return (struct value){.kind = BOOL, .boolean = b};
}
static inline struct value value_int(int64_t i)
{
    return (struct value){.kind = INT, .integer = i};
}
static inline struct value value_float(double d)
{
    return (struct value){.kind = FLOAT, .number = d};
}
struct value value_text(const char *literal);
struct value value_bytes(struct run *r, const char *text, size_t bytes);
struct value value_from_json(struct run *r, const json_t *json, bool input);
struct value list_new(struct run *r, enum list_kind kind, size_t capacity, struct list **list);
void list_add(struct run *r, struct list *list, struct value v);
struct value map_new(struct run *r);
void map_set(struct run *r, struct map *map, struct value key, struct value value);
struct value *map_get(struct run *r, const struct map *map, struct value key);

/* ---- asking ---- */
const char *value_type(struct value v);
bool value_true(struct value v);
bool value_equal(struct run *r, struct value a, struct value b);
int value_order(struct run *r, struct value a, struct value b); /* < 0, 0, > 0 */
bool value_contains(struct run *r, struct value in, struct value what);
bool value_is(struct value v, const char *text);
static inline bool is_number(struct value v)
{
    return v.kind == INT || v.kind == FLOAT || v.kind == BOOL;
}
static inline double number_of(struct value v)
{
    return v.kind == FLOAT ? v.number : v.kind == BOOL ? v.boolean : (double)v.integer;
}
static inline int64_t integer_of(struct value v)
{
    return v.kind == BOOL ? v.boolean : v.integer;
}
size_t value_length(struct run *r, struct value v);
/* Returns the items that iteration over a value gives; a generator is empty after that. */
struct list value_items(struct run *r, struct value v);
/* Fails unless the value is of that kind. */
void value_want(struct run *r, struct value v, enum kind kind, const char *where);

/* ---- strings ---- */
struct buffer *buffer_new(struct run *r);
void buffer_add(struct run *r, struct buffer *b, const char *text, size_t bytes, bool input);
void buffer_add_part(struct run *r, struct buffer *b, struct value v, size_t at, size_t bytes);
void buffer_add_str(struct run *r, struct buffer *b, struct value v); /* As Python's str(). */
void buffer_add_repr(struct run *r, struct buffer *b, struct value v);
/* As json.dumps. indent -1 = one line; `comma` and `colon` are the separators. */
void buffer_add_json(struct run *r, struct buffer *b, struct value v, int indent,
                     struct value comma, struct value colon, bool ascii, bool sorted);
struct value buffer_value(struct buffer *b);
struct value string_part(struct value v, size_t at, size_t bytes);
struct value string_of(struct run *r, struct value v);
struct value string_join(struct run *r, struct value a, struct value b);
struct value string_escape(struct run *r, struct value v);
enum string_case { UPPER, LOWER, TITLE, CAPITALIZE, SWAP };
struct value string_case(struct run *r, struct value v, enum string_case to);
/* `sides` 1 = left, 2 = right, 3 = both; `set` NULL = white space. */
struct value string_strip(struct run *r, struct value v, int sides, const struct value *set);
struct value string_replace(struct run *r, struct value v, struct value old, struct value new,
                            int64_t limit);
/* Returns the list of lines; `keep` = with their ends. */
struct value string_lines(struct run *r, struct value s, bool keep);
struct value string_percent(struct run *r, struct value format, struct value arguments);
struct value string_format(struct run *r, struct value format, const struct list *arguments,
                           const struct map *named);
/* Decodes the character at `text`; invalid bytes are characters of their own. */
size_t character_read(const char *text, size_t bytes, uint32_t *code);
size_t character_write(uint32_t code, char out[4]);
size_t characters_count(const char *text, size_t bytes);
size_t character_offset(const char *text, size_t bytes, size_t character);
bool unicode_is_space(uint32_t code);
bool unicode_is_printable(uint32_t code);
bool unicode_is_letter(uint32_t code);
uint32_t unicode_upper(uint32_t code);
uint32_t unicode_lower(uint32_t code);

#endif
