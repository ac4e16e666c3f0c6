/* schema: numbers. Bounds become automata over decimal digits: a walk along the digits of both
 * bounds, which remembers whether the number is still equal to each. */
#include "model/grammar/schema.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MULTIPLE_MAX 1000u
#define DIGITS_MAX   40
#define EXACT_DIGITS 15 /* Doubles tell decimals of at most 15 digits apart. */

/* ---- bounds ---- */

struct bound {
    bool given, exclusive;
    double value;
    long long whole; /* Of integers: the same value. */
};

struct range {
    struct bound low, high;
    uint32_t multiple; /* 1 = any. */
};

static void bound_add(struct schema *s, struct bound *to, const struct facet *facet,
                      const char *key, bool exclusive, int sign)
{
    const json_t *value = json_object_get(facet->schema, key);
    if (value == NULL)
        return;
    if (!json_is_number(value)) {
        schema_refuse(s, json_is_boolean(value) ? ST_UNSUPPORTED : ST_INVALID, facet->place, key,
                      "want a number");
        return;
    }
    double number = json_number_value(value);
    if (fabs(number) > 9e18 || (json_is_real(value) && fabs(number) > 1e15)) {
        schema_refuse(s, ST_UNSUPPORTED, facet->place, key, "the number is too large");
        return;
    }
    long long whole = json_is_integer(value) ? json_integer_value(value) : (long long)number;
    bool closer = to->given && ((double)sign * number > (double)sign * to->value ||
                                (number == to->value && sign * (whole > to->whole) > 0));
    if (!to->given || closer || (number == to->value && whole == to->whole && exclusive))
        *to = (struct bound){true, exclusive, number, whole};
}

static uint32_t multiple_of(struct schema *s, const struct facet *facet, uint32_t before)
{
    const json_t *value = json_object_get(facet->schema, "multipleOf");
    double number = json_number_value(value);
    if (value == NULL)
        return before;
    if (!json_is_number(value) || number <= 0) {
        schema_refuse(s, ST_INVALID, facet->place, "multipleOf", "want a number above 0");
        return before;
    }
    if (number > MULTIPLE_MAX || number != floor(number)) {
        schema_refuse(s, ST_UNSUPPORTED, facet->place, "multipleOf",
                      "only whole numbers up to %u are supported", MULTIPLE_MAX);
        return before;
    }
    uint32_t a = before, b = (uint32_t)number;
    while (b != 0) {
        uint32_t rest = a % b;
        a = b;
        b = rest;
    }
    uint32_t common = before / a * (uint32_t)number;
    if (common > MULTIPLE_MAX)
        schema_refuse(s, ST_UNSUPPORTED, facet->place, "multipleOf",
                      "the least common multiple is above %u", MULTIPLE_MAX);
    return common;
}

static void range_find(struct schema *s, const struct facets *list, struct range *r)
{
    *r = (struct range){.multiple = 1};
    for (uint32_t i = 0; i < list->count; i++) {
        const struct facet *facet = &list->items[i];
        bound_add(s, &r->low, facet, "minimum", false, 1);
        bound_add(s, &r->low, facet, "exclusiveMinimum", true, 1);
        bound_add(s, &r->high, facet, "maximum", false, -1);
        bound_add(s, &r->high, facet, "exclusiveMaximum", true, -1);
        r->multiple = multiple_of(s, facet, r->multiple);
        const char *format = json_string_value(json_object_get(facet->schema, "format"));
        if (format == NULL || strncmp(format, "int", 3) != 0)
            continue;
        const struct facet limits = {strcmp(format, "int32") == 0
                                         ? json_pack("{s:I,s:I}", "minimum", (json_int_t)INT32_MIN,
                                                     "maximum", (json_int_t)INT32_MAX)
                                         : NULL,
                                     facet->place, 0};
        if (limits.schema != NULL) {
            bound_add(s, &r->low, &limits, "minimum", false, 1);
            bound_add(s, &r->high, &limits, "maximum", false, -1);
            json_decref((json_t *)(uintptr_t)limits.schema);
        }
    }
}

bool schema_number_matches(struct schema *s, const struct facets *list, double value)
{
    struct range r;
    range_find(s, list, &r);
    if (r.low.given && (r.low.exclusive ? value <= r.low.value : value < r.low.value))
        return false;
    if (r.high.given && (r.high.exclusive ? value >= r.high.value : value > r.high.value))
        return false;
    return r.multiple == 1 || fmod(value, (double)r.multiple) == 0;
}

/* ---- digits ---- */

/* Magnitudes from `low` to `high`. Both are digits of a whole part without leading zeros, and
 * `places` digits after the point. */
struct digits {
    struct builder *b;
    char low[DIGITS_MAX], high[DIGITS_MAX];
    unsigned low_whole, high_whole; /* Digits of the whole parts; high_whole 0 = unlimited. */
    unsigned places;
    bool low_exclusive, high_exclusive;
    uint32_t multiple; /* Only with places 0. */
    uint32_t end;
    uint32_t free_nodes; /* See digits_free; NODE_NONE = the number ends. */
    /* For one length of the whole part: the bounds that apply, NULL = none, and the nodes by
     * position, tightness (2 bits) and remainder. */
    const char *from, *till;
    unsigned whole;
    uint32_t *nodes;
};

static bool zeros(const char *digits, unsigned from, unsigned till)
{
    for (unsigned i = from; i < till; i++)
        if (digits[i] != '0')
            return false;
    return true;
}

/* Whether the number may end after `at` digits of the whole part and the fraction. */
static bool may_end(const struct digits *d, unsigned at, bool low, bool high, uint32_t rest)
{
    unsigned all = d->whole + d->places;
    if (rest != 0)
        return false;
    if (low && (!zeros(d->from, at, all) || d->low_exclusive))
        return false;
    return !(high && d->high_exclusive && zeros(d->till, at, all));
}

static uint32_t fork_of(struct builder *b, uint32_t one, uint32_t other)
{
    if (one == NODE_NONE || other == NODE_NONE)
        return one == NODE_NONE ? other : one;
    return builder_node(b, (struct node){.kind = NODE_FORK, .next = one, .target = other});
}

static uint32_t digit_of(struct builder *b, char low, char high, uint32_t next)
{
    return next == NODE_NONE ? NODE_NONE
                             : builder_node(b, (struct node){.kind = NODE_RANGE,
                                                             .low = (uint8_t)low,
                                                             .high = (uint8_t)high,
                                                             .next = next,
                                                             .target = NODE_NONE});
}

static uint32_t digits_node(struct digits *d, unsigned at, bool low, bool high, uint32_t rest);

/* What may follow digit number at - 1: an end, a point, a further digit. */
static uint32_t digits_after(struct digits *d, unsigned at, bool low, bool high, uint32_t rest)
{
    uint32_t end = at >= d->whole && may_end(d, at, low, high, rest) ? d->end : NODE_NONE;
    if (at == d->whole && d->free_nodes != NODE_NONE)
        return d->free_nodes + rest;
    if (at == d->whole + d->places)
        return end;
    uint32_t more = digits_node(d, at, low, high, rest);
    if (at == d->whole)
        more = digit_of(d->b, '.', '.', more);
    return at < d->whole ? more : fork_of(d->b, end, more);
}

/* The node before digit number `at`. */
static uint32_t digits_node(struct digits *d, unsigned at, bool low, bool high, uint32_t rest)
{
    uint32_t *node = &d->nodes[((at * 2 + low) * 2 + high) * d->multiple + rest];
    if (*node != 0)
        return *node - 1;
    uint32_t chain = NODE_NONE;
    char first = low ? d->from[at] : '0', last = high ? d->till[at] : '9';
    if (at == 0 && d->whole > 1 && first == '0')
        first = '1';
    for (char c = first; c <= last && d->b->status == ST_OK;) {
        char end = c; /* Digits that lead to the same place go together. */
        bool edge = (low && c == d->from[at]) || (high && c == d->till[at]);
        if (!edge && d->multiple == 1)
            while (end < last && !(high && end + 1 == d->till[at]))
                end++;
        uint32_t next = digits_after(d, at + 1, low && c == d->from[at], high && c == d->till[at],
                                     (rest * 10 + (uint32_t)(c - '0')) % d->multiple);
        chain = fork_of(d->b, digit_of(d->b, c, end, next), chain);
        c = (char)(end + 1);
    }
    *node = chain + 1; /* NODE_NONE is kept as 0: it is found again quickly. */
    return chain;
}

/* Nodes, one for each remainder, that take any further digits of a whole number. */
static uint32_t digits_free(struct digits *d)
{
    struct builder *b = d->b;
    uint32_t first = b->node_count;
    for (uint32_t rest = 0; rest < d->multiple; rest++)
        builder_node(b, (struct node){.kind = NODE_FORK, .next = NODE_NONE, .target = NODE_NONE});
    for (uint32_t rest = 0; rest < d->multiple && b->status == ST_OK; rest++) {
        uint32_t chain = NODE_NONE;
        for (char c = '0'; c <= '9';) {
            char end = d->multiple == 1 ? '9' : c;
            uint32_t next = first + (rest * 10 + (uint32_t)(c - '0')) % d->multiple;
            chain = fork_of(b, digit_of(b, c, end, next), chain);
            c = (char)(end + 1);
        }
        if (b->status == ST_OK) {
            b->nodes[first + rest].next = chain;
            b->nodes[first + rest].target = rest == 0 ? d->end : NODE_NONE;
        }
    }
    return first;
}

/* Numbers whose whole part has `whole` digits. longer = any digits may follow. */
static uint32_t digits_length(struct schema *s, struct digits *d, unsigned whole, bool longer)
{
    d->whole = whole;
    d->from = !longer && whole == d->low_whole ? d->low : NULL;
    d->till = !longer && whole == d->high_whole ? d->high : NULL;
    d->places = longer ? 0 : d->places;
    d->free_nodes = longer ? digits_free(d) : NODE_NONE;
    d->nodes = schema_allocate(s, (whole + d->places + 1) * 4 * d->multiple * sizeof(uint32_t));
    if (d->nodes == NULL)
        return NODE_NONE;
    return digits_node(d, 0, d->from != NULL, d->till != NULL, 0);
}

static struct fragment digits_fragment(struct schema *s, struct digits *d, bool unlimited)
{
    struct fragment result = fragment_never(s->b);
    d->end = result.end;
    d->b = s->b;
    for (unsigned whole = d->low_whole; whole <= d->high_whole && s->b->status == ST_OK; whole++)
        result.start = fork_of(s->b, digits_length(s, d, whole, false), result.start);
    if (unlimited)
        result.start = fork_of(s->b, digits_length(s, d, d->high_whole + 1, true), result.start);
    return result;
}

/* ---- numbers ---- */

static struct fragment sign(struct builder *b, bool minus, struct fragment digits)
{
    return minus ? fragment_join(b, fragment_text(b, "-"), digits) : digits;
}

/* Whole numbers with magnitudes from `low` to `high`. */
static struct fragment whole_side(struct schema *s, const struct range *r, bool minus,
                                  unsigned long long low, unsigned long long high, bool unlimited)
{
    struct digits d = {.multiple = r->multiple};
    if (!unlimited && low > high)
        return fragment_never(s->b);
    d.low_whole = (unsigned)snprintf(d.low, sizeof(d.low), "%llu", low);
    if (unlimited) /* All numbers of the lower bound's length, then the longer ones. */
        memset(d.high, '9', d.high_whole = d.low_whole);
    else
        d.high_whole = (unsigned)snprintf(d.high, sizeof(d.high), "%llu", high);
    return sign(s->b, minus, digits_fragment(s, &d, unlimited));
}

static struct fragment whole_range(struct schema *s, const struct range *r)
{
    struct builder *b = s->b;
    struct fragment result = fragment_never(b);
    long long low = r->low.whole, high = r->high.whole;
    if (r->low.given)
        low += (double)low < r->low.value || (r->low.exclusive && (double)low <= r->low.value);
    if (r->high.given)
        high -=
            (double)high > r->high.value || (r->high.exclusive && (double)high >= r->high.value);
    if (!r->high.given || high >= 0)
        result = fragment_either(b, result,
                                 whole_side(s, r, false,
                                            r->low.given && low > 0 ? (unsigned long long)low : 0,
                                            (unsigned long long)high, !r->high.given));
    if (!r->low.given || low < 0)
        result = fragment_either(
            b, result,
            whole_side(s, r, true, r->high.given && high < 0 ? 0ull - (unsigned long long)high : 1,
                       0ull - (unsigned long long)low, !r->low.given));
    return result;
}

/* The digits after the point that the number needs; more than EXACT_DIGITS = it has no short
 * decimal. */
static unsigned places_of(double number)
{
    char text[64];
    for (unsigned places = 0; places <= EXACT_DIGITS; places++) {
        snprintf(text, sizeof(text), "%.*f", (int)places, number);
        if (strtod(text, NULL) == number)
            return places;
    }
    return EXACT_DIGITS + 1;
}

static unsigned whole_digits(double number)
{
    char text[64];
    return (unsigned)snprintf(text, sizeof(text), "%.0f", floor(fabs(number)));
}

/* Writes the digits of a magnitude without the point. Returns the digits of the whole part. */
static unsigned decimal_print(double number, unsigned places, char out[DIGITS_MAX])
{
    char text[64];
    int used = snprintf(text, sizeof(text), "%.*f", (int)places, number);
    unsigned kept = 0;
    for (int i = 0; i < used && kept < DIGITS_MAX; i++)
        if (text[i] != '.')
            out[kept++] = text[i];
    return kept - places;
}

struct side { /* Magnitudes of one sign. */
    double low, high;
    bool low_exclusive, high_exclusive, unlimited;
};

static struct fragment decimal_side(struct schema *s, bool minus, const struct side *side,
                                    unsigned whole, unsigned places)
{
    struct digits d = {.multiple = 1, .places = places};
    d.low_whole = decimal_print(side->low, places, d.low);
    d.low_exclusive = side->low_exclusive;
    d.high_exclusive = side->high_exclusive && !side->unlimited;
    if (side->unlimited)
        memset(d.high, '9', (d.high_whole = whole) + places);
    else
        d.high_whole = decimal_print(side->high, places, d.high);
    if (!side->unlimited && (side->low > side->high ||
                             (side->low == side->high && (d.low_exclusive || d.high_exclusive))))
        return fragment_never(s->b);
    return sign(s->b, minus, digits_fragment(s, &d, side->unlimited));
}

static struct fragment decimal_range(struct schema *s, const struct facets *list,
                                     const struct range *r)
{
    struct builder *b = s->b;
    struct fragment result = fragment_never(b);
    double low = r->low.given ? r->low.value : 0, high = r->high.given ? r->high.value : 0;
    unsigned whole =
        whole_digits(low) > whole_digits(high) ? whole_digits(low) : whole_digits(high);
    unsigned needed = places_of(low) > places_of(high) ? places_of(low) : places_of(high);
    if (whole < 9 && !(r->low.given && r->high.given))
        whole = 9;
    if (whole + needed > EXACT_DIGITS && needed <= EXACT_DIGITS && whole == 9)
        whole = EXACT_DIGITS - needed;
    if (whole_digits(low) > whole || whole_digits(high) > whole || whole + needed > EXACT_DIGITS) {
        schema_refuse(s, ST_UNSUPPORTED, list->items[0].place, NULL,
                      "minimum or maximum needs more than %d digits", EXACT_DIGITS);
        return result;
    }
    const unsigned places = EXACT_DIGITS - whole;
    if (!r->high.given || high >= 0) {
        struct side plus = {r->low.given && low > 0 ? low : 0, high,
                            r->low.given && low >= 0 && r->low.exclusive, r->high.exclusive,
                            !r->high.given};
        result = fragment_either(b, result, decimal_side(s, false, &plus, whole, places));
    }
    if (!r->low.given || low < 0) {
        struct side minus = {r->high.given && high < 0 ? -high : 0, -low,
                             !(r->high.given && high < 0) || r->high.exclusive, r->low.exclusive,
                             !r->low.given};
        result = fragment_either(b, result, decimal_side(s, true, &minus, whole, places));
    }
    return result;
}

#define INTEGER "-?(0|[1-9][0-9]*)"
#define NUMBER  INTEGER "(\\.[0-9]+)?([eE][+-]?[0-9][0-9]?[0-9]?)?"

struct fragment schema_number(struct schema *s, const struct facets *list, bool fractions)
{
    struct builder *b = s->b;
    struct range r;
    range_find(s, list, &r);
    if (b->status != ST_OK)
        return fragment_never(b);
    fractions = fractions && r.multiple == 1;
    if (!r.low.given && !r.high.given && r.multiple == 1)
        return regex_parse(b, fractions ? NUMBER : INTEGER, strlen(fractions ? NUMBER : INTEGER),
                           SPELLING_RAW, false, s->place);
    return fractions ? decimal_range(s, list, &r) : whole_range(s, &r);
}
