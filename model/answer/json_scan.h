/* json_scan: reads one JSON object byte by byte, and says where the object ends and whether its
 * syntax is right. The parser of answers (answer_parser.h) reads tool calls with this part. The
 * caller owns struct json_scan, which is the only state. The functions run on any thread. This part
 * stores no values.
 *
 * Strings may contain line breaks and other control characters, although JSON does not allow them.
 * An object with more than JSON_SCAN_DEPTH open levels, or with a number of more than
 * JSON_SCAN_WORD_BYTES bytes, counts as wrong. */
#ifndef MODEL_ANSWER_JSON_SCAN_H
#define MODEL_ANSWER_JSON_SCAN_H

#include <stdbool.h>
#include <stdint.h>

#define JSON_SCAN_DEPTH      128 /* Most objects and lists that are open at the same time. */
#define JSON_SCAN_WORD_BYTES 63  /* Most bytes of a number. */

enum scan_state {
    SCAN_BEGIN,        /* Nothing, or only white space, was read. */
    SCAN_VALUE,        /* A value must follow. */
    SCAN_VALUE_OR_END, /* After "[": a value or "]" must follow. */
    SCAN_KEY,          /* A name must follow. */
    SCAN_KEY_OR_END,   /* After "{": a name or "}" must follow. */
    SCAN_IN_KEY,       /* Inside a name. */
    SCAN_COLON,        /* After a name: ":" must follow. */
    SCAN_IN_STRING,    /* Inside a value that is a string. */
    SCAN_IN_WORD,      /* Inside a number, true, false or null. */
    SCAN_NEXT,         /* After a value: "," or the end of the object or list must follow. */
    SCAN_DONE,         /* The object is complete. */
    SCAN_WRONG,        /* The bytes are no JSON object, or a byte follows the object. */
};

/* All zeros = no byte was read. */
struct json_scan {
    enum scan_state state;
    uint32_t depth;                         /* Number of open objects and lists. */
    uint8_t hex_digits_left;                /* Digits that an escape \u still needs. */
    bool escape;                            /* The previous byte began an escape in a string. */
    uint8_t word_bytes;                     /* Bytes in `word`. */
    char word[JSON_SCAN_WORD_BYTES + 1];    /* The beginning of a number, true, false or null. */
    uint8_t is_object[JSON_SCAN_DEPTH / 8]; /* Bit i: 1 = level i is an object; 0 = a list. */
};

/* Reads one byte and returns the new state (s->state). */
enum scan_state json_scan_byte(struct json_scan *s, char byte);

/* Returns true for the characters that JSON allows between tokens. */
static inline bool scan_is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

#endif
