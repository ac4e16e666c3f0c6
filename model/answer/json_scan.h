/* json_scan: follows one JSON object byte by byte and says where it ends and whether it is right.
 * The parsers of this folder use it. No memory, no values: any thread. Strings may contain line
 * breaks and other control characters (the caller escapes them). Bounds: JSON_SCAN_DEPTH levels,
 * numbers of JSON_SCAN_WORD bytes. */
#ifndef MODEL_ANSWER_JSON_SCAN_H
#define MODEL_ANSWER_JSON_SCAN_H

#include <stdbool.h>
#include <stdint.h>

#define JSON_SCAN_DEPTH 128
#define JSON_SCAN_WORD  63

enum scan_state {
    SCAN_BEGIN,        /* Nothing but blanks yet. */
    SCAN_VALUE,        /* A value must follow. */
    SCAN_VALUE_OR_END, /* Behind "[". */
    SCAN_KEY,          /* A name must follow. */
    SCAN_KEY_OR_END,   /* Behind "{". */
    SCAN_IN_KEY,
    SCAN_COLON,
    SCAN_IN_STRING,
    SCAN_IN_WORD, /* A number, true, false, null. */
    SCAN_NEXT,    /* Behind a value. */
    SCAN_DONE,    /* The object is complete. */
    SCAN_WRONG,
};

/* All zeros = nothing read. */
struct json_scan {
    enum scan_state state;
    uint32_t depth; /* Open objects and lists. */
    uint8_t hex;    /* Digits that \u still needs. */
    bool escape;    /* Behind a backslash. */
    uint8_t word_bytes;
    char word[JSON_SCAN_WORD + 1];
    uint8_t is_object[JSON_SCAN_DEPTH / 8]; /* Bit per level. */
};

/* Reads one byte and returns the new state. */
enum scan_state json_scan_byte(struct json_scan *s, char byte);

static inline bool scan_is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

#endif
