/* message_layout: tables that describe the structs of messages, and the functions that encode,
 * decode and check messages by these tables. message.c and stage_message.c call the functions;
 * other parts use message.h and stage_message.h. This part keeps no state and does no I/O: any
 * thread may call the functions.
 *
 * The functions encode all messages except TOKENS (message_tokens_add), and decode and check all
 * messages.
 *
 * The bytes of a message are a struct wire_header, the struct of its kind up to the first pointer,
 * then its arrays in the order of the table. Each array that is not empty begins at a multiple of 8
 * bytes, so that the pointers of a decoded message can point into the received bytes.
 *
 * Versions of the protocol (protocol.h): a later version may have more fields at the end of the
 * struct, and more arrays after the others. The sender leaves out what the receiver's version does
 * not have (struct message_growth). The decoder sets missing fields to 0 before it checks the
 * rules, and ignores fields and arrays that it does not know. The decoder refuses a message that is
 * shorter than in TRANSPORT_PROTOCOL_LOWEST. Nested structs and elements of arrays are the same in
 * all versions from TRANSPORT_PROTOCOL_LOWEST on; only the tokens of TOKENS may have more or fewer
 * fields.
 *
 * A table has rules for fields of which some values are invalid: numbers with a range, bools,
 * texts, padding, nested structs with rules. A field without a rule is sent and received as it is.
 * Every bool needs a rule, because a peer could send a byte that is neither true nor false. */
#ifndef TRANSPORT_MESSAGE_LAYOUT_H
#define TRANSPORT_MESSAGE_LAYOUT_H

#include "transport/message.h"

/* The first bytes of every message. */
struct wire_header {
    uint16_t kind; /* enum message_kind or enum stage_message_kind. */
    /* Size of the struct that follows, in the version for which the message was encoded: a multiple
     * of 8. */
    uint16_t struct_bytes;
    /* Size of the whole message with this header. */
    uint32_t bytes;
};

/* What a rule requires of a field. */
enum message_rule_kind {
    /* RULE_U8 to RULE_FLOAT: a number of this type from `low` to `high`. */
    RULE_U8,
    RULE_U32,
    RULE_I32,
    RULE_FLOAT,
    RULE_FINITE,  /* A float that is neither infinite nor NaN. */
    RULE_BELOW,   /* A uint32_t that is less than the uint32_t at `limit_offset`. */
    RULE_TEXT,    /* A text with a NUL within `bytes`. The bytes after the NUL are sent as 0. */
    RULE_PADDING, /* `bytes` bytes that are sent as 0. */
    /* An array of uint32_t inside the struct, `bytes` bytes long. The uint32_t at `limit_offset` is
     * the number of elements in use; the other elements are sent as 0. */
    RULE_COUNTED,
    RULE_STRUCT, /* A nested struct, described by `inner`. */
};

/* The rule for one field of a struct. Of the members after `offset`, each kind of rule uses only
 * those that its comment in enum message_rule_kind names. */
struct message_rule {
    const char *field; /* Name of the field, for error texts. */
    enum message_rule_kind kind;
    uint16_t offset;       /* Offset of the field in the struct. */
    uint16_t bytes;        /* Size of the field; for RULE_TEXT, RULE_PADDING, RULE_COUNTED. */
    uint16_t limit_offset; /* Offset of the field that limits this field. */
    int64_t low;           /* Lowest valid value. */
    int64_t high;          /* Highest valid value. */
    const struct message_layout *inner; /* Rules of the nested struct. */
};

/* An array of a message: the struct of the message has its address and its number of elements. */
struct message_array {
    const char *field;                    /* Name of the pointer, for error texts. */
    uint16_t pointer;                     /* Offset of the pointer to the elements. */
    uint16_t count;                       /* Offset of the number of elements, a uint32_t. */
    uint16_t element_bytes;               /* Size of an element. */
    const struct message_layout *element; /* Rules of each element; NULL = none. */
};

/* The state of reading and checking one message. */
struct message_reader {
    const uint8_t *next; /* The first byte that is not read yet. */
    const uint8_t *end;  /* End of the message. */
    const char *message; /* Name of the kind of message. */
    const char *array;   /* Name of the array that is checked; NULL = the struct of the message. */
    uint32_t index;      /* Index of the element of the array that is checked. */
    struct error *error; /* NULL = no error text is wanted. */
};

/* An older form of a message: before protocol version `version`, the message had only the first
 * `bytes` bytes of its struct, and only the first `array_count` arrays. */
struct message_growth {
    uint16_t version;
    uint16_t bytes;
    uint8_t array_count;
};

/* Describes a kind of message, or a struct that messages contain. */
struct message_layout {
    const char *name; /* Name of the kind of message; NULL for a struct that messages contain. */
    uint16_t bytes;   /* Size of the message's struct up to its first pointer. */
    uint8_t rule_count;
    uint8_t array_count;
    uint8_t growth_count;
    const struct message_rule *rules;
    const struct message_array *arrays;
    const struct message_growth *growth; /* In ascending order of the versions. */
    /* Checks relations between fields of `message`, after all rules. Returns ST_OK or ST_INVALID.
     * NULL = there are no relations. */
    enum status (*check)(const struct message_reader *reader, const void *message);
    /* Reads and checks the bytes after the arrays. Returns ST_OK or ST_INVALID. NULL = none. */
    enum status (*read_rest)(struct message_reader *reader, void *message);
};

/* Initialisers of a message_rule for the field `name` of a struct: RANGE, BOOL, FINITE, BELOW,
 * TEXT, PADDING, COUNTED and STRUCT. RULE_AT and FIELD_BYTES are parts of these initialisers. */
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

/* Initialiser of a message_array: the fields with the pointer and with the number of elements, and
 * the layout of an element or NULL. */
#define ARRAY(type, name, number, layout)                                                          \
    {#name, offsetof(struct type, name), offsetof(struct type, number),                            \
     sizeof(((struct type *)0)->name[0]), (layout)}

/* Initialisers for a struct message_layout. SIZE: the size of a struct without pointers. UP_TO: the
 * size of the part of a struct before its first pointer. RULES, ARRAYS and GROWTH: a table and its
 * length. */
#define SIZE(type)         .bytes = sizeof(struct type)
#define UP_TO(type, first) .bytes = offsetof(struct type, first)
#define LENGTH(table)      (sizeof(table) / sizeof((table)[0]))
#define RULES(table)       .rules = (table), .rule_count = LENGTH(table)
#define ARRAYS(table)      .arrays = (table), .array_count = LENGTH(table)
#define GROWTH(table)      .growth = (table), .growth_count = LENGTH(table)

/* Initialiser of a message_growth: `version` has added the field `first` and all fields after it,
 * and all arrays except the first N, where the number N is `arrays`. */
#define SINCE(version, type, first, arrays) {(version), offsetof(struct type, first), (arrays)}

/* Layouts of structs that messages of message.h and of stage_message.h contain. */
extern const struct message_layout layout_of_message_stage;
extern const struct message_layout layout_of_message_copies;

/* Returns the layout of an enum message_kind; NULL = unknown kind. */
const struct message_layout *message_layout_of_kind(uint32_t kind);
/* Returns the layout of an enum stage_message_kind; NULL = unknown kind. */
const struct message_layout *stage_message_layout_of_kind(uint32_t kind);

/* Appends `bytes` bytes, which the caller then sets, to the buffer. Returns their address, valid
 * until the buffer grows again, or NULL if there is no memory. */
void *message_buffer_add(struct message_buffer *buffer, size_t bytes);

/* Takes the next `bytes` bytes of the message. Returns their address, or NULL with an error text
 * that names `what` if fewer bytes are left; the caller then returns ST_INVALID. */
const void *message_take(struct message_reader *reader, size_t bytes, const char *what);

/* Checks low <= value <= high. Returns ST_OK, or ST_INVALID with an error that names `field`. */
enum status message_range_check(const struct message_reader *reader, const char *field,
                                int64_t value, int64_t low, int64_t high);

/* Checks one struct, at `from`, by the rules of its layout; arrays are not checked. Returns ST_OK,
 * or ST_INVALID with an error text that names the field. */
enum status message_rules_check(struct message_reader *reader, const struct message_layout *layout,
                                const void *from);

/* Checks a message before it is sent: rules, elements of arrays, relations. Returns ST_OK, or
 * ST_INVALID without an error text. */
enum status message_check(const struct message_layout *layout, const void *message);

/* Returns the size of a message's struct, up to its first pointer, in a version of the protocol.
 * *array_count_out receives the number of the message's arrays in this version. */
size_t message_bytes_in(const struct message_layout *layout, uint32_t version,
                        uint32_t *array_count_out);

/* Replaces the buffer's content with a message, encoded for a version of the protocol. `message`:
 * the struct of the kind. Does not check the fields. Returns ST_OK, ST_TOO_LARGE if the encoded
 * message would have more than LIMIT_MESSAGE_BYTES bytes, or ST_NO_MEMORY. */
enum status message_write(const struct message_layout *layout, uint32_t kind, uint32_t version,
                          const void *message, struct message_buffer *buffer);

/* Decodes and checks a message of any kind for which `layout_of` returns a layout. Requires that
 * `data` is aligned to 8 bytes. `message` receives the struct of the kind; its pointers point into
 * `data`. Returns ST_OK, or ST_INVALID if the message is not valid; the content of `message` is
 * then undefined. */
enum status message_read(const struct message_layout *(*layout_of)(uint32_t kind),
                         const uint8_t *data, size_t bytes, void *message, struct error *error);

#endif
