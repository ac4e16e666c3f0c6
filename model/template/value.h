/* value: the values of the variables and expressions of a Jinja2 template, as in Python, and the
 * memory that holds them. A struct run is one rendering or one compilation, and owns this memory
 * (the arena). The files of model/template/ call the functions, on the thread that calls
 * template_render or template_compile. This part does not execute templates (eval.h).
 *
 * Errors: a function that takes a struct run may call run_fail, which ends the rendering or the
 * compilation (longjmp) and does not return.
 *
 * Marks: each byte of a string has a mark; 1 = the byte comes from a string of the input
 * (template_output.inputs), or was added by escaping, JSON or `%`. Functions that copy bytes keep
 * the marks of the bytes. */
#ifndef MODEL_TEMPLATE_VALUE_H
#define MODEL_TEMPLATE_VALUE_H

#include "model/template/template.h"

#include <setjmp.h>
#include <stdbool.h>

/* Kinds of values. */
enum kind {
    UNDEFINED, /* A variable, attribute or item that does not exist. */
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
    CYCLER, /* Jinja2's cycler: `next` returns its items in turn. */
    JOINER, /* Jinja2's joiner: returns "" in the first call, then its separator. */
};

/* The Python type of a LIST; PLAIN = list, KEYS to ITEMS = dict_keys, dict_values, dict_items. */
enum list_kind { PLAIN, TUPLE, GENERATOR, RANGE, KEYS, VALUES, ITEMS };

/* A value. A comment names the kinds that use a field. */
struct value {
    uint8_t kind;  /* enum kind. */
    bool input;    /* STRING with `marks` NULL: the mark of all bytes. */
    bool markup;   /* STRING: HTML that is already escaped (Python's Markup). */
    uint32_t size; /* STRING: bytes of `text`. UNDEFINED: bytes of `missing`. */
    union {
        bool boolean;     /* BOOL. */
        int64_t integer;  /* INT, FUNCTION. */
        double number;    /* FLOAT. */
        const char *text; /* STRING; `size` bytes. */
        struct list *list;
        struct map *map; /* MAP, NAMESPACE, CYCLER, JOINER. */
        const struct macro *macro;
        struct method *method;
        struct loop *loop;
        const char *missing; /* UNDEFINED: the missing name, `size` bytes; NULL = unknown. */
    };
    const uint8_t *marks;  /* STRING: one mark for each byte; NULL = see `input`. */
    struct buffer *buffer; /* STRING: the buffer to which string_join may append; NULL = none. */
};

/* What a value of kind LIST points to. */
struct list {
    struct value *items; /* [count] */
    size_t count;
    size_t capacity;
    enum list_kind kind;
    int64_t range[3]; /* RANGE: start, stop and step, as in Python. */
};

struct map_entry {
    struct value key;
    struct value value;
};

/* A dict, the attributes of a namespace, or the state of a cycler or joiner. Entries are in the
 * order in which they were added. */
struct map {
    struct map_entry *entries; /* [count] */
    uint32_t *slots;           /* Hash table of entry number + 1, 0 = empty; NULL = few entries. */
    uint32_t count;
    uint32_t capacity;
    uint32_t slot_count;
};

/* A method bound to a value, such as `x.strip` before the brackets of the call. */
struct method {
    struct value self; /* The value that has the method. */
    struct value name; /* Name of the method. */
};

/* Text that grows. */
struct buffer {
    char *text;
    uint8_t *marks; /* One mark for each byte, as in struct value. */
    size_t used;
    size_t capacity;
    bool any_input;    /* False = no byte has the mark 1. */
    bool any_template; /* False = no byte has the mark 0. */
};

/* Memory that is freed as a whole. An arena is empty if all fields except `limit` are zero. */
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
    jmp_buf *fail_jump;              /* Where run_fail jumps to. */
    enum status status;              /* The status that run_fail has set. */
    struct error *error;             /* Receives the text of run_fail. */
    uint32_t line;                   /* Line of the template, for errors. */
    uint64_t steps_left;             /* Steps until the run fails. */
    uint32_t depth_left;             /* Calls of run_enter that may still be nested. */
    size_t output_limit;             /* Most bytes of `out`. */
    time_t now;                      /* The time that strftime_now formats. */
    struct buffer *out;              /* Receives the text of the statements that run. */
    struct scope *scope;             /* The current scope (eval.h). NULL in a compilation. */
    const struct template *template; /* The template that is rendered. NULL in a compilation. */
};

/* Sets r->status and r->error, and ends the rendering or the compilation. */
_Noreturn void run_fail(struct run *r, enum status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Returns memory of the arena, 16-byte aligned and not zeroed. Fails beyond the arena's limit. */
void *run_alloc(struct run *r, size_t bytes);
/* Counts `steps` steps; fails if fewer steps are left. */
void run_step(struct run *r, uint64_t steps);
/* Begins a function that may call itself: counts a step, and fails if calls are too deep. */
void run_enter(struct run *r);
/* Ends a function that has called run_enter. */
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
/* Returns a string whose bytes have the mark 0. The NUL-terminated text is not copied. */
struct value value_text(const char *literal);
/* Returns a copy of `bytes` bytes as a string whose bytes have the mark 0. */
struct value value_bytes(struct run *r, const char *text, size_t bytes);
/* Converts a JSON value; NULL becomes NONE. The strings are not copied. input true: strings get the
 * mark 1. Exception: the usual values of a key "role" ("user", …) count as the template's text,
 * because templates build control tokens from them. */
struct value value_from_json(struct run *r, const json_t *json, bool input);
/* Returns an empty list with room for `capacity` items, and stores the address of its struct in
 * *list_out (list_out NULL = not stored). */
struct value list_new(struct run *r, enum list_kind kind, size_t capacity, struct list **list_out);
void list_add(struct run *r, struct list *list, struct value v); /* Appends v. */
struct value map_new(struct run *r);                             /* Returns an empty MAP. */
/* Adds an entry, or replaces the value of an equal key. Fails for a key that is or contains a dict,
 * or a list other than a tuple. */
void map_set(struct run *r, struct map *map, struct value key, struct value value);
/* Returns the value of the key; NULL = there is none. Fails for a key for which map_set fails. */
struct value *map_get(struct run *r, const struct map *map, struct value key);

/* ---- reading values ---- */
const char *value_type(struct value v); /* Returns Python's name of the type, such as "str". */
bool value_true(struct value v);        /* Returns Python's bool(v). */
/* Returns Python's a == b. Exception: lists that are no tuples and no generators are compared by
 * their items, even if their kinds differ. (In Python, a range does not equal a list.) */
bool value_equal(struct run *r, struct value a, struct value b);
/* Returns a number below 0 if a is less than b, above 0 if a is greater, else 0. Fails for types
 * that have no order. */
int value_order(struct run *r, struct value a, struct value b);
/* Returns Python's `item in container`. */
bool value_contains(struct run *r, struct value container, struct value item);
/* Returns true if v is a string equal to `text`. */
bool value_is_text(struct value v, const char *text);
/* Returns true if v is an int, float or bool. */
static inline bool is_number(struct value v)
{
    return v.kind == INT || v.kind == FLOAT || v.kind == BOOL;
}
/* Returns an int, float or bool as a double. */
static inline double number_of(struct value v)
{
    return v.kind == FLOAT ? v.number : v.kind == BOOL ? v.boolean : (double)v.integer;
}
/* Returns an int or bool as an integer. */
static inline int64_t integer_of(struct value v)
{
    return v.kind == BOOL ? v.boolean : v.integer;
}
/* Returns Python's len(v): characters of a string, items of a list or dict; 0 for an undefined
 * value. Fails for other types and for generators. */
size_t value_length(struct run *r, struct value v);
/* Returns the items that Python's iteration over the value gives; none for an undefined value. The
 * items of a list are not copied. A generator is empty afterwards. Fails for types that have no
 * items. */
struct list value_items(struct run *r, struct value v);
/* Fails unless the value is of this kind. The text for run_fail begins with `where`. */
void value_want(struct run *r, struct value v, enum kind kind, const char *where);

/* ---- strings ---- */
struct buffer *buffer_new(struct run *r); /* Returns an empty buffer. */
/* Appends bytes, which get the mark `input`. */
void buffer_add(struct run *r, struct buffer *b, const char *text, size_t bytes, bool input);
/* Appends bytes [at, at + bytes) of a string, with their marks. */
void buffer_add_part(struct run *r, struct buffer *b, struct value v, size_t at, size_t bytes);
void buffer_add_str(struct run *r, struct buffer *b, struct value v); /* Appends string_of(v). */
/* Appends Python's repr(v), except for values that are no data, such as generators and functions:
 * these have a short name in angle brackets. */
void buffer_add_repr(struct run *r, struct buffer *b, struct value v);
/* Appends what Python's json.dumps returns. indent: blanks per level, -1 = one line. `comma` and
 * `colon`: the separators. ascii: characters outside ASCII become \uXXXX. sorted: keys are
 * sorted. */
void buffer_add_json(struct run *r, struct buffer *b, struct value v, int indent,
                     struct value comma, struct value colon, bool ascii, bool sorted);
/* Returns the buffer's text as a string. The text is not copied. */
struct value buffer_value(struct buffer *b);
/* Returns bytes [at, at + bytes) of a string. The bytes are not copied. */
struct value string_part(struct value v, size_t at, size_t bytes);
/* Returns Python's str(v), with the exceptions of buffer_add_repr; an empty string for an undefined
 * value. */
struct value string_of(struct run *r, struct value v);
/* Returns the strings a and b joined. If exactly one of them is markup, the other is escaped. */
struct value string_join(struct run *r, struct value a, struct value b);
/* Returns string_of(v) with &, <, >, " and ' escaped, as markup. */
struct value string_escape(struct run *r, struct value v);
enum string_case { UPPER, LOWER, TITLE, CAPITALIZE, SWAP };
/* Returns Python's str.upper, lower, title, capitalize or swapcase of v. */
struct value string_case(struct run *r, struct value v, enum string_case new_case);
enum string_sides { SIDES_LEFT = 1, SIDES_RIGHT = 2, SIDES_BOTH = SIDES_LEFT | SIDES_RIGHT };
/* Removes characters of `set` (NULL = white space) from the string's ends. */
struct value string_strip(struct run *r, struct value v, enum string_sides sides,
                          const struct value *set);
/* Replaces at most `limit` occurrences of `old`; a negative limit = all. */
struct value string_replace(struct run *r, struct value v, struct value old, struct value new,
                            int64_t limit);
/* Returns the list of lines. keep: the lines contain their line ends. */
struct value string_lines(struct run *r, struct value s, bool keep);
/* Returns Python's `format % arguments`. */
struct value string_percent(struct run *r, struct value format, struct value arguments);
/* Returns Python's str.format, for the fields {}, {0} and {name} only. */
struct value string_format(struct run *r, struct value format, const struct list *arguments,
                           const struct map *named);
/* Decodes the character at `text` (`bytes` > 0 bytes), stores its code point in *code, and returns
 * its length in bytes. An invalid byte is one character. */
size_t character_read(const char *text, size_t bytes, uint32_t *code);
/* Writes a character as UTF-8 and returns its length in bytes. */
size_t character_write(uint32_t code, char out[4]);
size_t characters_count(const char *text, size_t bytes); /* Returns the number of characters. */
/* Returns the byte offset of the character with this number, from 0; `bytes` if there are fewer
 * characters. */
size_t character_offset(const char *text, size_t bytes, size_t character);
/* Properties of a code point, approximated by ranges. */
bool unicode_is_space(uint32_t code);
bool unicode_is_printable(uint32_t code);
bool unicode_is_letter(uint32_t code);
uint32_t unicode_upper(uint32_t code); /* Changes Latin, Greek and Cyrillic letters only. */
uint32_t unicode_lower(uint32_t code); /* Changes Latin, Greek and Cyrillic letters only. */

#endif
