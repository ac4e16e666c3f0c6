/* builder: sets of characters as byte sequences, and the spelling of JSON strings. */
#include "model/grammar/builder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- sets ---- */

static void charset_normalize(struct charset *set)
{
    for (uint32_t i = 1; i < set->count; i++) /* At most 512 ranges, usually sorted. */
        for (uint32_t k = i; k > 0 && set->ranges[k].low < set->ranges[k - 1].low; k--) {
            uint32_t low = set->ranges[k].low, high = set->ranges[k].high;
            set->ranges[k] = set->ranges[k - 1];
            set->ranges[k - 1].low = low;
            set->ranges[k - 1].high = high;
        }
    uint32_t kept = 0;
    for (uint32_t i = 0; i < set->count; i++) {
        if (kept > 0 && set->ranges[i].low <= set->ranges[kept - 1].high + 1) {
            if (set->ranges[i].high > set->ranges[kept - 1].high)
                set->ranges[kept - 1].high = set->ranges[i].high;
        } else
            set->ranges[kept++] = set->ranges[i];
    }
    set->count = kept;
}

bool charset_add(struct charset *set, uint32_t low, uint32_t high)
{
    if (set->count == CHARSET_RANGES_MAX)
        charset_normalize(set);
    if (set->count == CHARSET_RANGES_MAX)
        return false;
    set->ranges[set->count].low = low;
    set->ranges[set->count].high = high;
    set->count++;
    return true;
}

bool charset_invert(struct charset *set)
{
    struct charset out = {0};
    uint32_t next = 0;
    charset_normalize(set);
    for (uint32_t i = 0; i < set->count; i++) {
        if (set->ranges[i].low > next && !charset_add(&out, next, set->ranges[i].low - 1))
            return false;
        next = set->ranges[i].high + 1;
    }
    if (next <= CHARACTER_MAX && !charset_add(&out, next, CHARACTER_MAX))
        return false;
    *set = out;
    return true;
}

/* ---- UTF-8 ---- */

static unsigned utf8_write(uint32_t c, uint8_t out[4])
{
    if (c < 0x80) {
        out[0] = (uint8_t)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (uint8_t)(0xC0 | c >> 6);
        out[1] = (uint8_t)(0x80 | (c & 63));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (uint8_t)(0xE0 | c >> 12);
        out[1] = (uint8_t)(0x80 | (c >> 6 & 63));
        out[2] = (uint8_t)(0x80 | (c & 63));
        return 3;
    }
    out[0] = (uint8_t)(0xF0 | c >> 18);
    out[1] = (uint8_t)(0x80 | (c >> 12 & 63));
    out[2] = (uint8_t)(0x80 | (c >> 6 & 63));
    out[3] = (uint8_t)(0x80 | (c & 63));
    return 4;
}

/* The alternatives of a set under construction. */
struct choices {
    struct builder *b;
    uint32_t end;
    uint32_t chain; /* The first node; NODE_NONE = none yet. */
};

static void choice_add(struct choices *to, uint32_t node)
{
    struct builder *b = to->b;
    to->chain =
        to->chain == NODE_NONE
            ? node
            : builder_node(b, (struct node){.kind = NODE_FORK, .next = node, .target = to->chain});
}

static void sequence_add(struct choices *to, const uint8_t *low, const uint8_t *high,
                         unsigned bytes)
{
    uint32_t next = to->end;
    for (unsigned i = bytes; i > 0; i--)
        next = builder_node(to->b, (struct node){.kind = NODE_RANGE,
                                                 .low = low[i - 1],
                                                 .high = high[i - 1],
                                                 .next = next,
                                                 .target = NODE_NONE});
    choice_add(to, next);
}

/* Adds the code points low to high, which have UTF-8 sequences of one length, as sequences of byte
 * ranges: a range is divided until all but its first differing byte take every value. */
static void utf8_range_add(struct choices *to, uint32_t low, uint32_t high)
{
    for (unsigned shift = 6; shift <= 18; shift += 6) {
        uint32_t mask = (1u << shift) - 1;
        if ((low & ~mask) == (high & ~mask))
            break;
        if ((low & mask) != 0 && low > 0x7F) {
            utf8_range_add(to, low, low | mask);
            utf8_range_add(to, (low | mask) + 1, high);
            return;
        }
        if ((high & mask) != mask && high > 0x7F) {
            utf8_range_add(to, low, (high & ~mask) - 1);
            utf8_range_add(to, high & ~mask, high);
            return;
        }
    }
    uint8_t first[4], last[4];
    unsigned bytes = utf8_write(low, first);
    utf8_write(high, last);
    sequence_add(to, first, last, bytes);
}

/* Adds code points as UTF-8, without surrogates. */
static void raw_add(struct choices *to, uint32_t low, uint32_t high)
{
    static const uint32_t parts[][2] = {
        {0, 0x7F}, {0x80, 0x7FF}, {0x800, 0xD7FF}, {0xE000, 0xFFFF}, {0x10000, CHARACTER_MAX}};
    for (unsigned i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        uint32_t from = low > parts[i][0] ? low : parts[i][0];
        uint32_t till = high < parts[i][1] ? high : parts[i][1];
        if (from <= till)
            utf8_range_add(to, from, till);
    }
}

/* ---- JSON ---- */

/* The letter after the backslash; 0 = the character has no short escape. */
static char short_escape(uint32_t c)
{
    switch (c) {
    case '"':
        return '"';
    case '\\':
        return '\\';
    case '\b':
        return 'b';
    case '\f':
        return 'f';
    case '\n':
        return 'n';
    case '\r':
        return 'r';
    case '\t':
        return 't';
    default:
        return 0;
    }
}

size_t json_spell(const char *bytes, size_t count, char *out)
{
    size_t used = 0;
    for (size_t i = 0; i < count; i++) {
        uint8_t c = (uint8_t)bytes[i];
        char letter = short_escape(c);
        if (letter != 0) {
            out[used++] = '\\';
            out[used++] = letter;
        } else if (c < 0x20) {
            static const char digits[] = "0123456789abcdef";
            memcpy(out + used, "\\u00", 4);
            out[used + 4] = digits[c >> 4];
            out[used + 5] = digits[c & 15];
            used += 6;
        } else
            out[used++] = (char)c;
    }
    return used;
}

struct fragment fragment_json_text(struct builder *b, const char *bytes, size_t count)
{
    char *spelled = malloc(6 * count + 1);
    if (spelled == NULL) {
        builder_fail(b, ST_NO_MEMORY, "out of memory");
        return fragment_never(b);
    }
    struct fragment result = fragment_bytes(b, spelled, json_spell(bytes, count, spelled));
    free(spelled);
    return result;
}

static void json_escapes_add(struct choices *to, uint32_t low, uint32_t high)
{
    for (uint32_t c = low; c <= high && c <= '\\'; c++) {
        char letter = short_escape(c);
        if (letter != 0) {
            const uint8_t pair[2] = {'\\', (uint8_t)letter};
            sequence_add(to, pair, pair, 2);
        } else if (c < 0x20) {
            char spelled[6], byte = (char)c;
            json_spell(&byte, 1, spelled);
            sequence_add(to, (const uint8_t *)spelled, (const uint8_t *)spelled, 6);
        }
    }
}

static void json_add(struct choices *to, uint32_t low, uint32_t high)
{
    static const uint32_t plain[][2] = {{0x20, 0x21}, {0x23, 0x5B}, {0x5D, CHARACTER_MAX}};
    json_escapes_add(to, low, high);
    for (unsigned i = 0; i < 3; i++) {
        uint32_t from = low > plain[i][0] ? low : plain[i][0];
        uint32_t till = high < plain[i][1] ? high : plain[i][1];
        if (from <= till)
            raw_add(to, from, till);
    }
}

static struct fragment choices_end(struct choices *to)
{
    if (to->chain == NODE_NONE)
        return fragment_never(to->b);
    return (struct fragment){to->chain, to->end, false};
}

static struct choices choices_begin(struct builder *b)
{
    return (struct choices){b, fragment_empty(b).end, NODE_NONE};
}

struct fragment fragment_characters(struct builder *b, struct charset *set, enum spelling spelling)
{
    struct choices to = choices_begin(b);
    charset_normalize(set);
    for (uint32_t i = 0; i < set->count && b->status == ST_OK; i++)
        (spelling == SPELLING_RAW ? raw_add : json_add)(&to, set->ranges[i].low,
                                                        set->ranges[i].high);
    return choices_end(&to);
}

/* A byte of one of the ranges "azAZ": a to z, A to Z. */
static struct fragment bytes_of(struct builder *b, const char *ranges)
{
    struct choices to = choices_begin(b);
    for (; *ranges != 0; ranges += 2)
        sequence_add(&to, (const uint8_t *)ranges, (const uint8_t *)ranges + 1, 1);
    return choices_end(&to);
}

/* Hexadecimal digits after "\u": each text is the ranges of one digit. */
static struct fragment unicode_escape(struct builder *b, const char *first, const char *second)
{
    struct fragment result = fragment_text(b, "\\u");
    result = fragment_join(b, result, bytes_of(b, first));
    result = fragment_join(b, result, bytes_of(b, second));
    result = fragment_join(b, result, bytes_of(b, "09afAF"));
    return fragment_join(b, result, bytes_of(b, "09afAF"));
}

struct fragment fragment_json_character(struct builder *b)
{
    struct choices to = choices_begin(b);
    raw_add(&to, 0x20, 0x21);
    raw_add(&to, 0x23, 0x5B);
    raw_add(&to, 0x5D, CHARACTER_MAX);
    struct fragment raw = choices_end(&to);
    struct fragment letters =
        fragment_join(b, fragment_text(b, "\\"), bytes_of(b, "\"\"\\\\//bbffnnrrtt"));
    struct fragment other = unicode_escape(b, "09acefACEF", "09afAF");
    struct fragment low_d = unicode_escape(b, "ddDD", "07");
    struct fragment pair =
        fragment_join(b, unicode_escape(b, "ddDD", "89abAB"), unicode_escape(b, "ddDD", "cfCF"));
    struct fragment escapes = fragment_either(b, fragment_either(b, other, low_d), pair);
    return fragment_either(b, raw, fragment_either(b, letters, escapes));
}
