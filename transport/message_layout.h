/* message_layout: describes the structs of messages by tables, and encodes, decodes and checks all
 * messages by these tables. message.c, stage_message.c and tests call the functions; other files
 * use message.h and stage_message.h.
 *
 * A message is a struct wire_header, then its struct as it is in memory up to the first pointer,
 * then its arrays in the order of the table. Arrays with 64-bit members come first, so that a
 * decoded message can point into the received bytes.
 *
 * A table has a rule for each field that may not hold any value: numbers with a range, bools,
 * texts, padding, nested structs with rules. A field without a rule is sent and received as it is.
 * A bool without a rule would let a peer send a byte that is neither true nor false.
 *
 * No state: any thread may call these functions. They send and receive nothing. */
#ifndef TRANSPORT_MESSAGE_LAYOUT_H
#define TRANSPORT_MESSAGE_LAYOUT_H

#include "transport/message.h"

struct wire_header {
    uint32_t kind;
    uint32_t bytes; /* Size of the whole message. A truncated message does not match it. */
};

enum message_rule_kind {
    RULE_U8, /* Numbers: from `low` to `high`. */
    RULE_U32,
    RULE_I32,
    RULE_FLOAT,
    RULE_FINITE,  /* A float that is neither infinite nor NaN. */
    RULE_BELOW,   /* A uint32_t that is less than the uint32_t at `other`. */
    RULE_TEXT,    /* Has a NUL within `bytes`. The bytes after the NUL are sent as 0. */
    RULE_PADDING, /* Sent as 0. */
    RULE_COUNTED, /* uint32_t[]; elements from the number at `other` on are sent as 0. */
    RULE_STRUCT,  /* A nested struct, described by `inner`. */
};

/* The rule for one field of a struct; `kind` says which members are used. */
struct message_rule {
    const char *field; /* Its name, for error texts. */
    enum message_rule_kind kind;
    uint16_t offset; /* Offset of the field in the struct. */
    uint16_t bytes;  /* Size of the field. */
    uint16_t other;  /* Offset of another field, which limits this one. */
    int64_t low;     /* Lowest and highest value. */
    int64_t high;
    const struct message_layout *inner;
};

struct message_array {
    const char *field;                    /* Name of the pointer, for error texts. */
    uint16_t pointer;                     /* Offset of the pointer to the elements. */
    uint16_t count;                       /* Offset of the number of elements, a uint32_t. */
    uint16_t element_bytes;               /* Size of an element. */
    const struct message_layout *element; /* Rules of each element; NULL = none. */
};

/* The message that is being checked or read: the part that is not read yet, and its place for error
 * texts. */
struct message_reader {
    const uint8_t *at; /* Bytes that are not read yet. */
    const uint8_t *end;
    const char *message;
    const char *array; /* The checked field is in element `index` of this array; NULL = in none. */
    uint32_t index;
    struct error *error;
};

/* A kind of message, or a struct in messages. */
struct message_layout {
    const char *name; /* The kind's name. NULL for a struct in messages. */
    uint16_t bytes;   /* Size of the struct up to its first pointer. */
    uint8_t rule_count;
    uint8_t array_count;
    const struct message_rule *rules;
    const struct message_array *arrays;
    /* Checks relations between fields after all rules have passed. NULL = there are none. */
    enum status (*check)(const struct message_reader *reader, const void *message);
    /* Reads bytes that follow the arrays. NULL = there are none. */
    enum status (*read_rest)(struct message_reader *reader, void *message);
};

/* Rows of the tables. */
/* clang-format off */
#define RULE_AT(type, name)     .field = #name, .offset = offsetof(struct type, name)
#define FIELD_BYTES(type, name) .bytes = sizeof(((struct type *)0)->name)
#define RANGE(type, name, from, to)                                                                \
    {RULE_AT(type, name), .low = (from), .high = (to),                                             \
     .kind = _Generic(((struct type *)0)->name, bool: RULE_U8, uint8_t: RULE_U8,                   \
                      uint32_t: RULE_U32, int32_t: RULE_I32, float: RULE_FLOAT)}
#define BOOL(type, name)   RANGE(type, name, 0, 1)
#define FINITE(type, name) {RULE_AT(type, name), .kind = RULE_FINITE}
#define BELOW(type, name, limit)                                                                   \
    {RULE_AT(type, name), .kind = RULE_BELOW, .other = offsetof(struct type, limit)}
#define TEXT(type, name)   {RULE_AT(type, name), .kind = RULE_TEXT, FIELD_BYTES(type, name)}
#define PADDING(type, name) {RULE_AT(type, name), .kind = RULE_PADDING, FIELD_BYTES(type, name)}
#define COUNTED(type, name, number)                                                                \
    {RULE_AT(type, name), .kind = RULE_COUNTED, FIELD_BYTES(type, name),                           \
     .other = offsetof(struct type, number)}
#define STRUCT(type, name, layout) {RULE_AT(type, name), .kind = RULE_STRUCT, .inner = &(layout)}

/* An array: its pointer, the number of its elements, and the layout of an element or NULL. */
#define ARRAY(type, name, number, layout)                                                          \
    {#name, offsetof(struct type, name), offsetof(struct type, number),                            \
     sizeof(((struct type *)0)->name[0]), (layout)}

/* Parts of a layout: the size of a struct without arrays or up to its first pointer, and tables. */
#define SIZE(type)         .bytes = sizeof(struct type)
#define UP_TO(type, first) .bytes = offsetof(struct type, first)
#define LENGTH(table)      (sizeof(table) / sizeof((table)[0]))
#define RULES(table)       .rules = (table), .rule_count = LENGTH(table)
#define ARRAYS(table)      .arrays = (table), .array_count = LENGTH(table)

/* Layouts of structs that messages of both kinds contain. */
extern const struct message_layout message_stage_layout;
extern const struct message_layout message_staged_layout;

/* The layout of a kind; NULL = the kind is unknown. */
const struct message_layout *message_layout(uint32_t kind);
const struct message_layout *stage_message_layout(uint32_t kind);

/* Appends `bytes` bytes to the buffer and returns their address, or NULL if there is no memory.
 * malloc's alignment is enough for the decoders. */
void *message_buffer_add(struct message_buffer *buffer, size_t bytes);

/* Returns the next `bytes` bytes, or NULL with the error set; the caller then returns
 * ST_INVALID. */
const void *message_take(struct message_reader *reader, size_t bytes, const char *what);

enum status message_range_check(const struct message_reader *reader, const char *field,
                                int64_t value, int64_t low, int64_t high);

/* Checks the rules of one struct. */
enum status message_rules_check(struct message_reader *reader, const struct message_layout *layout,
                                const void *from);

/* Checks a message that is to be sent: rules, elements of arrays, relations. */
enum status message_check(const struct message_layout *layout, const void *message);

/* Replaces the buffer's content with a message. Checks only its size (ST_TOO_LARGE). */
enum status message_write(const struct message_layout *layout, uint32_t kind, const void *message,
                          struct message_buffer *buffer);

/* Reads and checks a message of any kind that `layout_of` knows. `message` receives the struct,
 * with arrays that point into `data`. */
enum status message_read(const struct message_layout *(*layout_of)(uint32_t kind),
                         const uint8_t *data, size_t bytes, void *message, struct error *error);

#endif
