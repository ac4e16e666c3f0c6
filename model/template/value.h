/* value: the values of a template's variables and expressions, as in Python, and the memory that
 * holds them. A struct run is one rendering or one compilation. All its memory is in one arena. A
 * rendering frees its arena at the end; the arena of a compilation becomes the template's. An error
 * or an exceeded limit leaves the run with longjmp: run_fail returns to template_render or
 * template_compile. Any function with a struct run may do so.
 *
 * Only the files of model/template/ include it. One thread uses a struct run. Each byte of a string
 * has a mark that says whether the byte comes from the input (template_output.inputs). Functions
 * that copy bytes keep their marks. Bytes that a function generates have the mark 1 if they are
 * escapes, padding, numbers of string_percent, or JSON except its numbers; else 0. It does not
 * execute templates (eval.h does). */
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
    FUNCTION, /* A global function; `integer` is its number (function_number, eval.h). */
    METHOD,
    LOOP,
    CYCLER,
    JOINER,
};

/* Which Python type a LIST stands for: list, tuple, generator, range, dict_keys, dict_values,
 * dict_items. */
enum list_kind { PLAIN, TUPLE, GENERATOR, RANGE, KEYS, VALUES, ITEMS };

/* A value. Comments name the kinds that use a field. */
struct value {
    uint8_t kind;  /* enum kind. */
    bool input;    /* STRING without marks: all bytes come from the input. */
    bool markup;   /* STRING: text that is already escaped (Markup). */
    uint32_t size; /* STRING: bytes of `text`. UNDEFINED: bytes of `missing`. */
    union {
        bool boolean;
        int64_t integer;
        double number;
        const char *text;
        struct list *list;
        struct map *map; /* MAP, NAMESPACE, CYCLER, JOINER. */
        const struct macro *macro;
        struct method *method;
        struct loop *loop;
        /* UNDEFINED: the name, for messages, without a NUL at its end; NULL = unknown. */
        const char *missing;
    };
    /* STRING: one mark for each byte, 1 = from the input. NULL = `input` is the mark of all. */
    const uint8_t *marks;
    /* STRING: the buffer that `text` lies in, to which string_join may append in place; NULL =
     * none. */
    struct buffer *buffer;
};

struct list {
    struct value *items;
    size_t count;
    size_t capacity;
    enum list_kind kind;
};

struct map_entry {
    struct value key;
    struct value value;
};

/* A dict, the attributes of a namespace, or the state of a cycler or joiner. Entries are in the
 * order in which they were added. */
struct map {
    struct map_entry *entries;
    uint32_t *slots; /* Hash table of entry number + 1, 0 = empty; NULL = few entries. */
    uint32_t count;
    uint32_t capacity;
    uint32_t slot_count;
};

/* A method bound to a value, such as `x.strip` before the brackets of the call. */
struct method {
    struct value self; /* The value that has the method. */
    struct value name;
};

/* Text that grows. */
struct buffer {
    char *text;
    uint8_t *marks; /* One mark for each byte, as in struct value. */
    size_t used;
    size_t capacity;
    bool any_input;    /* Some byte comes from the input. */
    bool any_template; /* Some byte comes from the template. */
};

/* Memory that is freed as a whole. All zeros except `limit` = empty. */
struct arena {
    struct chunk *chunks; /* All pieces that malloc returned. */
    char *next_free;      /* Next free byte of the current chunk. */
    size_t free_bytes;    /* Free bytes of the current chunk. */
    size_t total;         /* Bytes of all chunks. */
    size_t limit;         /* Most bytes of all chunks. */
};

/* One rendering or one compilation. */
struct run {
    struct arena arena;
    jmp_buf *fail_jump;  /* Where run_fail jumps to. */
    enum status status;  /* The status that run_fail has set. */
    struct error *error; /* Receives the text of run_fail. */
    uint32_t line;       /* Line of the template, for errors. */
    uint64_t steps_left; /* Steps until the run fails. */
    uint32_t depth_left; /* Nested calls until the run fails. */
    size_t output_limit; /* Most bytes of the output. */
    time_t now;          /* The time that strftime_now formats. */
    struct buffer *out;  /* Receives the text of the statements that run. */
    struct scope *scope; /* The current variables. */
    const struct template *template;
};

/* Sets r->status and r->error, and ends the rendering or the compilation. */
_Noreturn void run_fail(struct run *r, enum status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Returns memory of the arena, 16-byte aligned and not zeroed. */
void *run_alloc(struct run *r, size_t bytes);
/* Counts steps; fails if there are too many. */
void run_step(struct run *r, uint64_t steps);
/* A nested call begins with run_enter and ends with run_leave. run_enter counts a step and fails if
 * calls are nested too deeply. */
void run_enter(struct run *r);
static inline void run_leave(struct run *r)
{
    r->depth_left++;
}
void arena_done(struct arena *arena); /* Frees all memory of the arena. */

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
/* Returns a string. value_text does not copy the text, value_bytes does. */
struct value value_text(const char *literal);
struct value value_bytes(struct run *r, const char *text, size_t bytes);
/* Converts a JSON value, whose strings are not copied. input: strings get the mark 1, except the
 * usual values of a key "role", such as "user". */
struct value value_from_json(struct run *r, const json_t *json, bool input);
/* Returns a new list with room for `capacity` items, and stores it in *list (NULL = not wanted). */
struct value list_new(struct run *r, enum list_kind kind, size_t capacity, struct list **list);
void list_add(struct run *r, struct list *list, struct value v);
struct value map_new(struct run *r);
/* Adds an entry, or replaces the value of an equal key. */
void map_set(struct run *r, struct map *map, struct value key, struct value value);
/* Returns the value of the key; NULL = there is none. */
struct value *map_get(struct run *r, const struct map *map, struct value key);

/* ---- reading values ---- */
const char *value_type(struct value v); /* Returns Python's name of the type, such as "str". */
bool value_true(struct value v);        /* Returns Python's bool(v). */
bool value_equal(struct run *r, struct value a, struct value b);
/* Returns a number below 0 if a is less than b, above 0 if greater, else 0. Fails for types that
 * have no order. */
int value_order(struct run *r, struct value a, struct value b);
/* Returns Python's `item in container`. */
bool value_contains(struct run *r, struct value container, struct value item);
/* Returns true if v is a string equal to `text`. */
bool value_is_text(struct value v, const char *text);
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
/* Returns Python's len(v): characters of a string, items of a list or dict; 0 for an undefined
 * value. Fails for other types and for generators. */
size_t value_length(struct run *r, struct value v);
/* Returns the items that iteration over a value gives; none for an undefined value. A generator is
 * empty afterwards. Fails for types that have no items. */
struct list value_items(struct run *r, struct value v);
/* Fails unless the value is of this kind. `where` begins the error. */
void value_want(struct run *r, struct value v, enum kind kind, const char *where);

/* ---- strings ---- */
struct buffer *buffer_new(struct run *r);
/* buffer_add appends bytes, all with the mark `input`. buffer_add_part appends bytes [at, at +
 * bytes) of a string, with their marks. */
void buffer_add(struct run *r, struct buffer *b, const char *text, size_t bytes, bool input);
void buffer_add_part(struct run *r, struct buffer *b, struct value v, size_t at, size_t bytes);
void buffer_add_str(struct run *r, struct buffer *b, struct value v);  /* As string_of. */
void buffer_add_repr(struct run *r, struct buffer *b, struct value v); /* As Python's repr(). */
/* Appends what Python's json.dumps returns. indent: blanks per level, -1 = one line; `comma` and
 * `colon`: the separators; ascii: characters outside ASCII become \uXXXX; sorted: keys are
 * sorted. */
void buffer_add_json(struct run *r, struct buffer *b, struct value v, int indent,
                     struct value comma, struct value colon, bool ascii, bool sorted);
/* Returns the buffer's text as a string, without a copy. */
struct value buffer_value(struct buffer *b);
/* Returns bytes [at, at + bytes) of a string, without a copy. */
struct value string_part(struct value v, size_t at, size_t bytes);
/* Returns Python's str(v); an empty string for an undefined value. */
struct value string_of(struct run *r, struct value v);
/* Returns a followed by b. If one of them is escaped text (markup), the other is escaped. */
struct value string_join(struct run *r, struct value a, struct value b);
/* Returns string_of(v) with &, <, >, " and ' escaped, as markup. */
struct value string_escape(struct run *r, struct value v);
enum string_case { UPPER, LOWER, TITLE, CAPITALIZE, SWAP };
struct value string_case(struct run *r, struct value v, enum string_case new_case);
enum string_sides { SIDES_LEFT = 1, SIDES_RIGHT = 2, SIDES_BOTH = SIDES_LEFT | SIDES_RIGHT };
/* Removes characters of `set` (NULL = white space) from the string's ends. */
struct value string_strip(struct run *r, struct value v, enum string_sides sides,
                          const struct value *set);
/* Replaces at most `limit` occurrences of `old`; a negative limit = all. */
struct value string_replace(struct run *r, struct value v, struct value old, struct value new,
                            int64_t limit);
/* Returns the list of lines. keep: the lines have their line ends. */
struct value string_lines(struct run *r, struct value s, bool keep);
/* Returns Python's `format % arguments`. */
struct value string_percent(struct run *r, struct value format, struct value arguments);
/* Returns Python's str.format, for the fields {}, {0} and {name} only. */
struct value string_format(struct run *r, struct value format, const struct list *arguments,
                           const struct map *named);
/* Decodes the character at `text` and returns its length in bytes. An invalid byte is one
 * character. */
size_t character_read(const char *text, size_t bytes, uint32_t *code);
/* Writes a character as UTF-8 and returns its length in bytes. */
size_t character_write(uint32_t code, char out[4]);
size_t characters_count(const char *text, size_t bytes);
/* Returns the offset of character `character`; `bytes` if there are fewer characters. */
size_t character_offset(const char *text, size_t bytes, size_t character);
/* Properties of characters, approximated by ranges. unicode_upper and unicode_lower know Latin,
 * Greek and Cyrillic letters only. */
bool unicode_is_space(uint32_t code);
bool unicode_is_printable(uint32_t code);
bool unicode_is_letter(uint32_t code);
uint32_t unicode_upper(uint32_t code);
uint32_t unicode_lower(uint32_t code);

#endif
