/* json_scan: see the header. */
#include "model/answer/json_scan.h"

#include <string.h>

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Returns the text after its digits. */
static const char *digits_skip(const char *c)
{
    while (is_digit(*c))
        c++;
    return c;
}

static bool is_number(const char *c)
{
    c += *c == '-';
    if (!is_digit(*c))
        return false;
    c = *c == '0' ? c + 1 : digits_skip(c);
    if (*c == '.') {
        if (!is_digit(c[1]))
            return false;
        c = digits_skip(c + 1);
    }
    if (*c == 'e' || *c == 'E') {
        c += c[1] == '+' || c[1] == '-' ? 2 : 1;
        if (!is_digit(*c))
            return false;
        c = digits_skip(c);
    }
    return *c == 0;
}

static bool is_word(const char *word)
{
    return strcmp(word, "true") == 0 || strcmp(word, "false") == 0 || strcmp(word, "null") == 0 ||
           is_number(word);
}

static bool in_object(const struct json_scan *s)
{
    const uint32_t level = s->depth - 1;
    return (s->is_object[level / 8] >> level % 8 & 1) != 0;
}

static enum scan_state open_level(struct json_scan *s, bool object)
{
    if (s->depth == JSON_SCAN_DEPTH)
        return SCAN_WRONG;
    const uint8_t bit = (uint8_t)(1u << s->depth % 8);
    uint8_t *bits = &s->is_object[s->depth++ / 8];
    *bits = object ? *bits | bit : *bits & (uint8_t)~bit;
    return object ? SCAN_KEY_OR_END : SCAN_VALUE_OR_END;
}

static enum scan_state close_level(struct json_scan *s, char byte)
{
    if ((byte == '}') != in_object(s))
        return SCAN_WRONG;
    return --s->depth == 0 ? SCAN_DONE : SCAN_NEXT;
}

static enum scan_state value_begin(struct json_scan *s, char byte)
{
    if (byte == '{' || byte == '[')
        return open_level(s, byte == '{');
    if (byte == '"')
        return SCAN_IN_STRING;
    if (byte != '-' && !is_digit(byte) && byte != 't' && byte != 'f' && byte != 'n')
        return SCAN_WRONG;
    s->word[0] = byte;
    s->word_bytes = 1;
    return SCAN_IN_WORD;
}

static enum scan_state string_byte(struct json_scan *s, char byte)
{
    const bool is_hex =
        is_digit(byte) || (byte >= 'a' && byte <= 'f') || (byte >= 'A' && byte <= 'F');
    if (s->hex_digits_left > 0) {
        s->hex_digits_left--;
        return is_hex ? s->state : SCAN_WRONG;
    }
    if (s->escape) {
        s->escape = false;
        s->hex_digits_left = byte == 'u' ? 4 : 0;
        return byte != 0 && strchr("\"\\/bfnrtu", byte) != NULL ? s->state : SCAN_WRONG;
    }
    s->escape = byte == '\\';
    if (byte == '"')
        return s->state == SCAN_IN_KEY ? SCAN_COLON : SCAN_NEXT;
    return s->state;
}

static enum scan_state next_byte(struct json_scan *s, char byte)
{
    if (byte == ',')
        return in_object(s) ? SCAN_KEY : SCAN_VALUE;
    return byte == '}' || byte == ']' ? close_level(s, byte) : SCAN_WRONG;
}

static enum scan_state word_byte(struct json_scan *s, char byte)
{
    if (!scan_is_blank(byte) && byte != ',' && byte != '}' && byte != ']') {
        if (s->word_bytes == JSON_SCAN_WORD_BYTES || byte == 0)
            return SCAN_WRONG;
        s->word[s->word_bytes++] = byte;
        return SCAN_IN_WORD;
    }
    s->word[s->word_bytes] = 0;
    if (!is_word(s->word))
        return SCAN_WRONG;
    return scan_is_blank(byte) ? SCAN_NEXT : next_byte(s, byte);
}

static enum scan_state scan(struct json_scan *s, char byte)
{
    switch (s->state) {
    case SCAN_IN_KEY:
    case SCAN_IN_STRING:
        return string_byte(s, byte);
    case SCAN_IN_WORD:
        return word_byte(s, byte);
    case SCAN_DONE:
    case SCAN_WRONG:
        return SCAN_WRONG;
    default:
        break;
    }
    if (scan_is_blank(byte))
        return s->state;
    switch (s->state) {
    case SCAN_BEGIN:
        return byte == '{' ? open_level(s, true) : SCAN_WRONG;
    case SCAN_VALUE_OR_END:
        return byte == ']' ? close_level(s, byte) : value_begin(s, byte);
    case SCAN_VALUE:
        return value_begin(s, byte);
    case SCAN_KEY_OR_END:
        if (byte == '}')
            return close_level(s, byte);
        return byte == '"' ? SCAN_IN_KEY : SCAN_WRONG;
    case SCAN_KEY:
        return byte == '"' ? SCAN_IN_KEY : SCAN_WRONG;
    case SCAN_COLON:
        return byte == ':' ? SCAN_VALUE : SCAN_WRONG;
    default:
        return next_byte(s, byte);
    }
}

enum scan_state json_scan_byte(struct json_scan *s, char byte)
{
    s->state = scan(s, byte);
    return s->state;
}
