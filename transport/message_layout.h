/* message_layout: tables that describe the structs of messages, and the functions that work from
 * them. They encode all messages except TOKENS (message_tokens_add), and decode and check all
 * messages. message.c also checks messages before they are sent; stage_message.c does not. Only
 * these two files and tests call the functions; other files use message.h and stage_message.h.
 *
 * The bytes of a message are a struct wire_header, the struct of its kind up to the first pointer,
 * then its arrays in the order of the table. Each array begins at a multiple of 8 bytes, so that a
 * decoded message can point into the received bytes.
 *
 * Versions of the protocol (protocol.h): a later version may have more fields at the end of the
 * struct, and more arrays after the others. The sender leaves out what the receiver's version does
 * not have (struct message_growth). The decoder sets missing fields to 0, before it checks the
 * rules, and ignores further ones; it refuses a message that is shorter than in the lowest version
 * of this program. Nested structs and elements of arrays are the same in all these versions.
 *
 * A table has a rule for each field for which some values are invalid: numbers with a range, bools,
 * texts, padding, nested structs with rules. A field without a rule is sent and received as it is.
 * Every bool needs a rule, because a peer could send a byte that is neither true nor false.
 *
 * No state: any thread may call these functions. They send and receive nothing. */
#ifndef TRANSPORT_MESSAGE_LAYOUT_H
#define TRANSPORT_MESSAGE_LAYOUT_H

#include "transport/message.h"

struct wire_header {
    uint16_t kind;
    uint16_t struct_bytes; /* Size of the struct that follows, in the sender's version. */
    /* Size of the whole message with this header. A message of another size is refused. */
    uint32_t bytes;
};

enum message_rule_kind {
    /* RULE_U8 to RULE_FLOAT: a number from `low` to `high`. */
    RULE_U8,
    RULE_U32,
    RULE_I32,
    RULE_FLOAT,
    RULE_FINITE,  /* A float that is neither infinite nor NaN. */
    RULE_BELOW,   /* A uint32_t that is less than the uint32_t at `limit_offset`. */
    RULE_TEXT,    /* A text with a NUL within `bytes`. The bytes after the NUL are sent as 0. */
    RULE_PADDING, /* Bytes that are sent as 0. */
    /* An array of uint32_t. The uint32_t at `limit_offset` is the number of elements in use; the
     * others are sent as 0. */
    RULE_COUNTED,
    RULE_STRUCT, /* A nested struct, described by `inner`. */
};

/* The rule for one field of a struct; `kind` says which members are used. */
struct message_rule {
    const char *field; /* Name of the field, for error texts. */
    enum message_rule_kind kind;
    uint16_t offset;       /* Offset of the field in the struct. */
    uint16_t bytes;        /* Size of the field. */
    uint16_t limit_offset; /* Offset of another field, which limits this one. */
    int64_t low;           /* Lowest and highest valid value. */
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

/* The state of reading and checking one message: the bytes that are left, and the names for error
 * texts. */
struct message_reader {
    const uint8_t *next; /* The bytes from `next` to `end` are not read yet. */
    const uint8_t *end;
    const char *message; /* Name of the kind of message. */
    const char *array; /* The checked field is in element `index` of this array; NULL = in none. */
    uint32_t index;
    struct error *error;
};

/* An older form of a message: before `version`, the message had only the first `bytes` bytes of its
 * struct, and only the first `array_count` arrays. */
struct message_growth {
    uint16_t version;
    uint16_t bytes;
    uint8_t array_count;
};

/* Describes a kind of message, or a struct that messages contain. */
struct message_layout {
    const char *name; /* Name of the kind of message; NULL for a struct that messages contain. */
    uint16_t bytes;   /* Size of the struct up to its first pointer. */
    uint8_t rule_count;
    uint8_t array_count;
    uint8_t growth_count;
    const struct message_rule *rules;
    const struct message_array *arrays;
    const struct message_growth *growth; /* In ascending order of the versions. */
    /* Checks relations between fields, after all rules. NULL = none. */
    enum status (*check)(const struct message_reader *reader, const void *message);
    /* Reads the bytes that follow the arrays. NULL = no bytes follow. */
    enum status (*read_rest)(struct message_reader *reader, void *message);
};

/* Initialisers for entries of the tables. */
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
    {RULE_AT(type, name), .kind = RULE_BELOW, .limit_offset = offsetof(struct type, limit)}
#define TEXT(type, name)   {RULE_AT(type, name), .kind = RULE_TEXT, FIELD_BYTES(type, name)}
#define PADDING(type, name) {RULE_AT(type, name), .kind = RULE_PADDING, FIELD_BYTES(type, name)}
#define COUNTED(type, name, number)                                                                \
    {RULE_AT(type, name), .kind = RULE_COUNTED, FIELD_BYTES(type, name),                           \
     .limit_offset = offsetof(struct type, number)}
#define STRUCT(type, name, layout) {RULE_AT(type, name), .kind = RULE_STRUCT, .inner = &(layout)}

/* Initialiser of a message_array: the pointer, the number of elements, and the layout of an element
 * or NULL. */
#define ARRAY(type, name, number, layout)                                                          \
    {#name, offsetof(struct type, name), offsetof(struct type, number),                            \
     sizeof(((struct type *)0)->name[0]), (layout)}

/* Initialisers for a struct message_layout. SIZE = a struct without pointers; UP_TO = the part of a
 * struct before its first pointer; RULES and ARRAYS = the tables. */
#define SIZE(type)         .bytes = sizeof(struct type)
#define UP_TO(type, first) .bytes = offsetof(struct type, first)
#define LENGTH(table)      (sizeof(table) / sizeof((table)[0]))
#define RULES(table)       .rules = (table), .rule_count = LENGTH(table)
#define ARRAYS(table)      .arrays = (table), .array_count = LENGTH(table)
#define GROWTH(table)      .growth = (table), .growth_count = LENGTH(table)

/* Initialiser of a message_growth: `version` has added the fields from `first` on, and the arrays
 * after the first `arrays`. */
#define SINCE(version, type, first, arrays) {(version), offsetof(struct type, first), (arrays)}

/* Layouts of structs that messages of message.h and of stage_message.h contain. */
extern const struct message_layout layout_of_message_stage;
extern const struct message_layout layout_of_message_copies;

/* Return the layout of a kind of message.h or stage_message.h; NULL = unknown kind. */
const struct message_layout *message_layout_of_kind(uint32_t kind);
const struct message_layout *stage_message_layout_of_kind(uint32_t kind);

/* Appends `bytes` bytes to the buffer and returns their address, or NULL if there is no memory. */
void *message_buffer_add(struct message_buffer *buffer, size_t bytes);

/* Takes the next `bytes` bytes of the message. Returns NULL with an error that names `what` if
 * fewer bytes are left; the caller then returns ST_INVALID. */
const void *message_take(struct message_reader *reader, size_t bytes, const char *what);

/* Checks that `value` is from `low` to `high`. Returns ST_INVALID with an error that names
 * `field`. */
enum status message_range_check(const struct message_reader *reader, const char *field,
                                int64_t value, int64_t low, int64_t high);

/* Checks one struct, at `from`, by the rules of its layout. Returns ST_INVALID with an error that
 * names the field. */
enum status message_rules_check(struct message_reader *reader, const struct message_layout *layout,
                                const void *from);

/* Checks a message before it is sent: rules, elements of arrays, relations. Returns ST_INVALID
 * without an error text. */
enum status message_check(const struct message_layout *layout, const void *message);

/* Returns the size of the struct in a version of the protocol, and in *array_count_out the number
 * of its arrays. */
size_t message_bytes_in(const struct message_layout *layout, uint32_t version,
                        uint32_t *array_count_out);

/* Replaces the buffer's content with a message, encoded for a version of the protocol. Does not
 * check the content. Returns ST_TOO_LARGE if the message has more than LIMIT_MESSAGE_BYTES,
 * ST_NO_MEMORY. */
enum status message_write(const struct message_layout *layout, uint32_t kind, uint32_t version,
                          const void *message, struct message_buffer *buffer);

/* Reads and checks a message of any kind for which `layout_of` returns a layout. Requires that
 * `data` is aligned to 8 bytes. `message` receives the struct of the kind; its arrays point into
 * `data`. Returns ST_INVALID for a message that is not valid. */
enum status message_read(const struct message_layout *(*layout_of)(uint32_t kind),
                         const uint8_t *data, size_t bytes, void *message, struct error *error);

#endif
