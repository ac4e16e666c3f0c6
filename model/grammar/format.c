/* format: expressions of the kind "format:" (grammar.h), with which the gateway describes whole
 * answers: reasoning, tool calls, and constraints among them. */
#include "model/grammar/internal.h"

#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX 16

/* A marker: a text, or a control token. The caller frees the bytes. Returns NULL if it is none, or
 * if there is no memory. */
static char *marker_bytes(struct builder *b, const json_t *marker, size_t *bytes_out)
{
    const json_t *token = json_object_get(marker, "token");
    const json_t *text = token != NULL ? token : marker;
    const size_t bytes = json_string_length(text);
    char *copy = json_is_string(text) ? malloc(bytes + 3) : NULL;
    if (!json_is_string(text))
        builder_fail(b, ST_INVALID, "format: want a text or a token");
    else if (copy == NULL)
        builder_fail(b, ST_NO_MEMORY, "out of memory");
    if (copy == NULL)
        return NULL;
    memcpy(copy + (token != NULL), json_string_value(text), bytes);
    if (token != NULL) {
        copy[0] = TOKEN_BEGIN;
        copy[bytes + 1] = TOKEN_END;
    }
    *bytes_out = bytes + (token != NULL ? 2 : 0);
    return copy;
}

static struct fragment literal(struct builder *b, const json_t *marker)
{
    size_t bytes = 0;
    char *text = marker_bytes(b, marker, &bytes);
    struct fragment result = text != NULL ? fragment_bytes(b, text, bytes) : fragment_never(b);
    free(text);
    return result;
}

/* ---- text without a marker ---- */

#define BYTE_MAX 0xFD /* The bytes above mark control tokens. */

/* How many bytes of the marker a text ends with, if it ended with `matched` before `byte`. */
static size_t marker_follow(const char *marker, size_t matched, uint8_t byte)
{
    for (;;) {
        if ((uint8_t)marker[matched] == byte)
            return matched + 1;
        if (matched == 0)
            return 0;
        size_t shorter = matched - 1; /* the longest end of marker[0..matched) that begins it */
        while (shorter > 0 && memcmp(marker, marker + matched - shorter, shorter) != 0)
            shorter--;
        matched = shorter;
    }
    return 0;
}

/* The branches of a state, chained through forks; `states` has the node of each state. */
static uint32_t state_branches(struct builder *b, const char *marker, size_t bytes, size_t matched,
                               const uint32_t *states, uint32_t end)
{
    uint32_t chain = end;
    for (uint32_t low = 0; low <= BYTE_MAX;) {
        const size_t next = marker_follow(marker, matched, (uint8_t)low);
        uint32_t high = low;
        while (high < BYTE_MAX && marker_follow(marker, matched, (uint8_t)(high + 1)) == next)
            high++;
        if (next < bytes) {
            uint32_t range = builder_node(b, (struct node){.kind = NODE_RANGE,
                                                           .low = (uint8_t)low,
                                                           .high = (uint8_t)high,
                                                           .next = states[next],
                                                           .target = NODE_NONE});
            chain =
                builder_node(b, (struct node){.kind = NODE_FORK, .next = range, .target = chain});
        }
        low = high + 1;
    }
    return chain;
}

/* Bytes of which no text is made: control tokens are left out, incomplete characters are not. */
static struct fragment any_text(struct builder *b)
{
    uint32_t end =
        builder_node(b, (struct node){.kind = NODE_FORK, .next = NODE_NONE, .target = NODE_NONE});
    uint32_t range = builder_node(
        b, (struct node){
               .kind = NODE_RANGE, .low = 0, .high = BYTE_MAX, .next = end, .target = NODE_NONE});
    return fragment_repeat(b, (struct fragment){range, end, false}, 0, COUNT_UNLIMITED);
}

static struct fragment text_without(struct builder *b, const json_t *marker)
{
    size_t bytes = 0;
    char *text = marker_bytes(b, marker, &bytes);
    struct fragment result = {0};
    if (text == NULL || bytes == 0 || bytes > GRAMMAR_TOKEN_BYTES || text[0] == TOKEN_BEGIN) {
        if (text != NULL && text[0] != TOKEN_BEGIN)
            builder_fail(b, ST_INVALID, "format: without: want a marker of 1 to 255 bytes");
        free(text);
        return any_text(b);
    }
    uint32_t states[GRAMMAR_TOKEN_BYTES];
    const struct node fork = {.kind = NODE_FORK, .next = NODE_NONE, .target = NODE_NONE};
    const uint32_t end = builder_node(b, fork);
    for (size_t i = 0; i < bytes; i++)
        states[i] = builder_node(b, fork);
    for (size_t i = 0; i < bytes; i++) {
        uint32_t branches = state_branches(b, text, bytes, i, states, end);
        if (b->status == ST_OK)
            b->nodes[states[i]].next = branches;
    }
    free(text);
    result.start = states[0];
    result.end = end;
    return result;
}

/* ---- text that begins in a certain way ---- */

/* Blanks, then nothing, or a character that is none of `set` and any text. */
static struct fragment text_plain(struct builder *b, const json_t *set)
{
    static const char blanks[] = " \t\r\n";
    const char *not_these = json_string_value(set);
    struct fragment first = fragment_never(b), blank = fragment_never(b);
    if (not_these == NULL) {
        builder_fail(b, ST_INVALID, "format: plain: want a text");
        return first;
    }
    for (int i = 0; i < 4; i++)
        blank = fragment_either(b, blank, fragment_bytes(b, &blanks[i], 1));
    for (uint32_t byte = 1; byte <= BYTE_MAX; byte++) {
        const char c = (char)byte;
        if (strchr(blanks, c) == NULL && strchr(not_these, c) == NULL)
            first = fragment_either(b, first, fragment_bytes(b, &c, 1));
    }
    return fragment_join(b, fragment_repeat(b, blank, 0, COUNT_UNLIMITED),
                         fragment_optional(b, fragment_join(b, first, any_text(b))));
}

/* ---- expressions ---- */

static struct fragment parse(struct builder *b, const json_t *e, uint32_t depth);

static struct fragment parse_list(struct builder *b, const json_t *list, bool any, uint32_t depth)
{
    struct fragment all = any ? fragment_never(b) : fragment_empty(b);
    if (!json_is_array(list))
        builder_fail(b, ST_INVALID, "format: want a list of expressions");
    for (size_t i = 0; i < json_array_size(list); i++) {
        struct fragment one = parse(b, json_array_get(list, i), depth + 1);
        all = any ? fragment_either(b, all, one) : fragment_join(b, all, one);
    }
    return all;
}

static struct fragment parse_repeat(struct builder *b, const json_t *e, uint32_t depth)
{
    const json_t *between = json_object_get(e, "between");
    const json_int_t most = json_integer_value(json_object_get(e, "most"));
    uint32_t rule = grammar_rule_of(b, parse(b, json_object_get(e, "repeat"), depth + 1));
    if (most < 1 || most > UINT16_MAX)
        builder_fail(b, ST_INVALID, "format: most: want 1 to 65535");
    struct fragment first = fragment_call(b, rule);
    if (most <= 1 || b->status != ST_OK)
        return first;
    struct fragment more = fragment_join(b, parse(b, between, depth + 1), fragment_call(b, rule));
    return fragment_join(b, first, fragment_repeat(b, more, 0, (uint32_t)most - 1));
}

static struct fragment parse_schema(struct builder *b, const json_t *e)
{
    const char *place = json_string_value(json_object_get(e, "place"));
    const json_t *schema = json_object_get(e, "schema");
    return fragment_call(b, schema_parse(b, schema, place != NULL ? place : "#"));
}

static struct fragment parse_constraint(struct builder *b, const json_t *constraint)
{
    static const char own[] = "format:";
    const char *text = json_string_value(constraint);
    if (text == NULL || strncmp(text, own, sizeof(own) - 1) == 0) {
        builder_fail(b, ST_INVALID, "format: constraint: want a constraint of another kind");
        return fragment_never(b);
    }
    return fragment_call(b, grammar_parse(b, text, json_string_length(constraint)));
}

static struct fragment parse(struct builder *b, const json_t *e, uint32_t depth)
{
    const json_t *value;
    if (depth > DEPTH_MAX) {
        builder_fail(b, ST_TOO_LARGE, "format: more than %d levels", DEPTH_MAX);
        return fragment_never(b);
    }
    if (json_is_array(e))
        return parse_list(b, e, false, depth);
    if ((value = json_object_get(e, "any")) != NULL)
        return parse_list(b, value, true, depth);
    if ((value = json_object_get(e, "optional")) != NULL)
        return fragment_optional(b, parse(b, value, depth + 1));
    if (json_object_get(e, "repeat") != NULL)
        return parse_repeat(b, e, depth);
    if (json_object_get(e, "schema") != NULL)
        return parse_schema(b, e);
    if ((value = json_object_get(e, "constraint")) != NULL)
        return parse_constraint(b, value);
    if ((value = json_object_get(e, "without")) != NULL)
        return text_without(b, value);
    if ((value = json_object_get(e, "plain")) != NULL)
        return text_plain(b, value);
    return literal(b, e);
}

uint32_t format_parse(struct builder *b, const json_t *expression)
{
    return grammar_rule_of(b, parse(b, expression, 0));
}
