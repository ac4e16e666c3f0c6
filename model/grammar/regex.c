/* regex: regular expressions as ECMAScript writes them, without what a finite automaton cannot do
 * or what depends on its surroundings: references back, looking around, word borders, and anchors
 * that are not at the ends of a top-level alternative. */
#include "model/grammar/internal.h"

#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX  100
#define REPEAT_MAX 100000u

struct regex {
    struct builder *b;
    const char *begin, *at, *end;
    enum spelling spelling;
    const char *place;
    struct charset *set; /* Work. */
    unsigned depth;
};

static struct fragment refuse(struct regex *r, enum status status, const char *why)
{
    builder_fail(r->b, status, "%s: byte %zu of the pattern: %s", r->place,
                 (size_t)(r->at - r->begin), why);
    r->at = r->end;
    return fragment_never(r->b);
}

bool grammar_utf8_read(const char **at, const char *end, uint32_t *out)
{
    static const uint32_t least[] = {0, 0x80, 0x800, 0x10000};
    const uint8_t *p = (const uint8_t *)*at;
    size_t left = (size_t)(end - *at);
    if (left == 0)
        return false;
    unsigned more = p[0] < 0x80 ? 0 : p[0] < 0xC2 ? 9 : p[0] < 0xE0 ? 1 : p[0] < 0xF0 ? 2 : 3;
    if (more == 9 || p[0] > 0xF4 || more >= left)
        return false;
    uint32_t c = more == 0 ? p[0] : p[0] & (0x3Fu >> more);
    for (unsigned i = 1; i <= more; i++) {
        if ((p[i] & 0xC0) != 0x80)
            return false;
        c = c << 6 | (p[i] & 0x3F);
    }
    if (c < least[more] || c > CHARACTER_MAX || (c >= 0xD800 && c <= 0xDFFF))
        return false;
    *at += more + 1;
    *out = c;
    return true;
}

/* ---- sets ---- */

static void set_add(struct regex *r, struct charset *set, uint32_t low, uint32_t high)
{
    if (!charset_add(set, low, high))
        builder_fail(r->b, ST_TOO_LARGE, "%s: a class of the pattern has more than %d ranges",
                     r->place, CHARSET_RANGES_MAX);
}

/* \d, \w, \s and their complements. Returns false for another letter. */
static bool class_letter(struct regex *r, char letter, struct charset *set)
{
    static const uint32_t digits[][2] = {{'0', '9'}};
    static const uint32_t words[][2] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
    static const uint32_t spaces[][2] = {
        {9, 13},          {32, 32},         {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
        {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
    const uint32_t(*ranges)[2] = spaces;
    unsigned count = 10;
    char lower = (char)(letter | 0x20);
    if (lower == 'd')
        ranges = digits, count = 1;
    else if (lower == 'w')
        ranges = words, count = 4;
    else if (lower != 's')
        return false;
    if (letter == lower) {
        for (unsigned i = 0; i < count; i++)
            set_add(r, set, ranges[i][0], ranges[i][1]);
        return true;
    }
    uint32_t next = 0;
    for (unsigned i = 0; i < count; i++) {
        if (ranges[i][0] > next)
            set_add(r, set, next, ranges[i][0] - 1);
        next = ranges[i][1] + 1;
    }
    set_add(r, set, next, CHARACTER_MAX);
    return true;
}

static bool hex_read(struct regex *r, unsigned digits, uint32_t *out)
{
    uint32_t value = 0;
    if ((size_t)(r->end - r->at) < digits)
        return false;
    for (unsigned i = 0; i < digits; i++) {
        char c = r->at[i];
        uint32_t digit = c >= '0' && c <= '9'   ? (uint32_t)(c - '0')
                         : c >= 'a' && c <= 'f' ? (uint32_t)(c - 'a' + 10)
                         : c >= 'A' && c <= 'F' ? (uint32_t)(c - 'A' + 10)
                                                : 16;
        if (digit == 16)
            return false;
        value = value * 16 + digit;
    }
    r->at += digits;
    *out = value;
    return true;
}

/* \u: four digits, two surrogates of four digits each, or digits in braces. */
static bool unicode_read(struct regex *r, uint32_t *out)
{
    uint32_t low;
    if (r->at < r->end && *r->at == '{') {
        const char *close = memchr(r->at, '}', (size_t)(r->end - r->at));
        if (close == NULL || close - r->at < 2 || close - r->at > 7)
            return false;
        unsigned digits = (unsigned)(close - r->at) - 1;
        r->at++;
        if (!hex_read(r, digits, out))
            return false;
        r->at++;
        return *out <= CHARACTER_MAX;
    }
    if (!hex_read(r, 4, out))
        return false;
    if (*out < 0xD800 || *out > 0xDBFF)
        return true;
    if (r->end - r->at < 6 || r->at[0] != '\\' || r->at[1] != 'u')
        return false;
    r->at += 2;
    if (!hex_read(r, 4, &low) || low < 0xDC00 || low > 0xDFFF)
        return false;
    *out = 0x10000 + ((*out - 0xD800) << 10) + (low - 0xDC00);
    return true;
}

/* Reads what follows a backslash: one character, in *out, or a class, which is added to the set
 * (then *out is UINT32_MAX). */
static bool escape_read(struct regex *r, bool in_class, struct charset *set, uint32_t *out)
{
    static const char plain[] = "n\nr\rt\tf\fv\v";
    if (r->at == r->end)
        return refuse(r, ST_INVALID, "a backslash at the end"), false;
    char c = *r->at;
    *out = UINT32_MAX;
    if (class_letter(r, c, set)) {
        r->at++;
        return true;
    }
    for (unsigned i = 0; i < sizeof(plain) - 1; i += 2)
        if (c == plain[i]) {
            r->at++;
            *out = (uint8_t)plain[i + 1];
            return true;
        }
    if (c == '0' && (r->end - r->at < 2 || r->at[1] < '0' || r->at[1] > '9')) {
        r->at++;
        *out = 0;
        return true;
    }
    if (c == 'b' && in_class) {
        r->at++;
        *out = '\b';
        return true;
    }
    if (c == 'x' || c == 'u') {
        r->at++;
        if (c == 'x' ? hex_read(r, 2, out) : unicode_read(r, out))
            return true;
        return refuse(r, ST_INVALID, "a wrong escape of a character"), false;
    }
    if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))
        return refuse(r, ST_UNSUPPORTED, "this escape is not supported"), false;
    if (!grammar_utf8_read(&r->at, r->end, out))
        return refuse(r, ST_INVALID, "not UTF-8"), false;
    return true;
}

static bool class_atom(struct regex *r, struct charset *set, uint32_t *out)
{
    if (*r->at == '\\') {
        r->at++;
        return escape_read(r, true, set, out);
    }
    if (*r->at == '[' && r->at + 1 < r->end && r->at[1] == ':')
        return refuse(r, ST_UNSUPPORTED, "named classes are not supported"), false;
    if (grammar_utf8_read(&r->at, r->end, out))
        return true;
    return refuse(r, ST_INVALID, "not UTF-8"), false;
}

static struct fragment class_parse(struct regex *r)
{
    struct charset *set = r->set;
    set->count = 0;
    bool invert = r->at < r->end && *r->at == '^';
    r->at += invert;
    while (r->at < r->end && *r->at != ']') {
        uint32_t low, high;
        if (!class_atom(r, set, &low))
            return fragment_never(r->b);
        high = low;
        if (r->end - r->at >= 2 && r->at[0] == '-' && r->at[1] != ']') {
            r->at++;
            if (!class_atom(r, set, &high))
                return fragment_never(r->b);
            if (low == UINT32_MAX || high == UINT32_MAX || high < low)
                return refuse(r, ST_INVALID, "a wrong range of characters");
        }
        if (low != UINT32_MAX)
            set_add(r, set, low, high);
    }
    if (r->at == r->end)
        return refuse(r, ST_INVALID, "a class without ]");
    r->at++;
    if (invert && !charset_invert(set))
        return refuse(r, ST_TOO_LARGE, "a class has too many ranges");
    return fragment_characters(r->b, set, r->spelling);
}

static struct fragment any_character(struct regex *r, bool newlines)
{
    static const uint32_t breaks[] = {'\n', '\r', 0x2028, 0x2029};
    r->set->count = 0;
    if (newlines)
        set_add(r, r->set, 0, CHARACTER_MAX);
    else {
        for (unsigned i = 0; i < 4; i++)
            set_add(r, r->set, breaks[i], breaks[i]);
        charset_invert(r->set);
    }
    return fragment_characters(r->b, r->set, r->spelling);
}

/* ---- structure ---- */

static struct fragment either_parse(struct regex *r, bool top, bool search);

static struct fragment group_parse(struct regex *r)
{
    if (r->end - r->at >= 2 && r->at[0] == '?') {
        const char *name = r->at + (r->at[1] == 'P' && r->end - r->at > 2 ? 2 : 1);
        if (r->at[1] == ':')
            r->at += 2;
        else if (*name == '<' && r->end - name > 1 && name[1] != '=' && name[1] != '!') {
            const char *close = memchr(name, '>', (size_t)(r->end - name));
            if (close == NULL)
                return refuse(r, ST_INVALID, "a group's name without >");
            r->at = close + 1;
        } else
            return refuse(r, ST_UNSUPPORTED, "looking around and flags are not supported");
    }
    if (r->depth == DEPTH_MAX)
        return refuse(r, ST_TOO_LARGE, "groups are nested too deep");
    r->depth++;
    struct fragment body = either_parse(r, false, false);
    r->depth--;
    if (r->at == r->end || *r->at != ')')
        return refuse(r, ST_INVALID, "a group without )");
    r->at++;
    return body;
}

static struct fragment atom_parse(struct regex *r)
{
    uint32_t c;
    switch (*r->at) {
    case '(':
        r->at++;
        return group_parse(r);
    case '[':
        r->at++;
        return class_parse(r);
    case '.':
        r->at++;
        return any_character(r, false);
    case '*':
    case '+':
    case '?':
        return refuse(r, ST_INVALID, "nothing to repeat");
    case '^':
    case '$':
        return refuse(r, ST_UNSUPPORTED,
                      "an anchor is supported only at the ends of a top-level alternative");
    case '\\':
        r->at++;
        r->set->count = 0;
        if (!escape_read(r, false, r->set, &c))
            return fragment_never(r->b);
        break;
    default:
        if (!grammar_utf8_read(&r->at, r->end, &c))
            return refuse(r, ST_INVALID, "not UTF-8");
        r->set->count = 0;
    }
    if (c != UINT32_MAX)
        set_add(r, r->set, c, c);
    return fragment_characters(r->b, r->set, r->spelling);
}

static bool number_read(const char **at, const char *end, uint32_t *out)
{
    const char *from = *at;
    uint64_t value = 0;
    while (*at < end && **at >= '0' && **at <= '9' && value <= REPEAT_MAX)
        value = value * 10 + (uint64_t)(*(*at)++ - '0');
    while (*at < end && **at >= '0' && **at <= '9')
        (*at)++;
    *out = value > REPEAT_MAX ? REPEAT_MAX + 1 : (uint32_t)value;
    return *at > from;
}

/* Reads {m}, {m,} or {m,n}. Returns false, without moving, if it is none of them. */
static bool braces_read(struct regex *r, uint32_t *least, uint32_t *most)
{
    const char *at = r->at + 1;
    if (!number_read(&at, r->end, least))
        return false;
    *most = *least;
    if (at < r->end && *at == ',') {
        at++;
        if (!number_read(&at, r->end, most))
            *most = COUNT_UNLIMITED;
    }
    if (at == r->end || *at != '}')
        return false;
    r->at = at + 1;
    return true;
}

static struct fragment repeat_parse(struct regex *r, struct fragment atom)
{
    uint32_t least, most;
    if (r->at == r->end)
        return atom;
    char c = *r->at;
    if (c == '*' || c == '+' || c == '?') {
        r->at++;
        least = c == '+';
        most = c == '?' ? 1 : COUNT_UNLIMITED;
    } else if (c != '{' || !braces_read(r, &least, &most))
        return atom;
    if (least > REPEAT_MAX || (most > REPEAT_MAX && most != COUNT_UNLIMITED))
        return refuse(r, ST_TOO_LARGE, "a repetition of more than 100000 times");
    if (most < least)
        return refuse(r, ST_INVALID, "a repetition with the larger number first");
    if (r->at < r->end && *r->at == '?')
        r->at++; /* Fewest first: the same texts. */
    if (r->at < r->end && (*r->at == '+' || *r->at == '*' || *r->at == '?'))
        return refuse(r, ST_UNSUPPORTED, "a repetition of a repetition needs a group");
    return fragment_repeat(r->b, atom, least, most);
}

/* One alternative. Anchors are taken off at the top level only. */
static struct fragment sequence_parse(struct regex *r, bool top, bool search)
{
    struct fragment result = fragment_empty(r->b);
    bool from_start = false, to_end = false;
    while (top && r->at < r->end && *r->at == '^') {
        from_start = true;
        r->at++;
    }
    while (r->at < r->end && *r->at != '|' && *r->at != ')' && r->b->status == ST_OK) {
        if (top && *r->at == '$' && (r->at + 1 == r->end || r->at[1] == '|')) {
            to_end = true;
            r->at++;
            break;
        }
        result = fragment_join(r->b, result, repeat_parse(r, atom_parse(r)));
    }
    if (search && !from_start)
        result = fragment_join(
            r->b, fragment_repeat(r->b, any_character(r, true), 0, COUNT_UNLIMITED), result);
    if (search && !to_end)
        result = fragment_join(r->b, result,
                               fragment_repeat(r->b, any_character(r, true), 0, COUNT_UNLIMITED));
    return result;
}

static struct fragment either_parse(struct regex *r, bool top, bool search)
{
    struct fragment result = sequence_parse(r, top, search);
    while (r->at < r->end && *r->at == '|' && r->b->status == ST_OK) {
        r->at++;
        result = fragment_either(r->b, result, sequence_parse(r, top, search));
    }
    return result;
}

struct fragment regex_parse(struct builder *b, const char *text, size_t bytes,
                            enum spelling spelling, bool search, const char *place)
{
    struct regex r = {.b = b,
                      .begin = text,
                      .at = text,
                      .end = text + bytes,
                      .spelling = spelling,
                      .place = place,
                      .set = malloc(sizeof(*r.set))};
    if (r.set == NULL) {
        builder_fail(b, ST_NO_MEMORY, "out of memory");
        return fragment_never(b);
    }
    struct fragment result = either_parse(&r, true, search);
    if (b->status == ST_OK && r.at < r.end)
        result = refuse(&r, ST_INVALID, "a ) without (");
    free(r.set);
    return result;
}
