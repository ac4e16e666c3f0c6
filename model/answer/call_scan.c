/* call_scan: reads the JSON object of a call byte by byte. Until the call's name is known, the text
 * is held; then the arguments are given as they arrive. */
#include "model/answer/internal.h"

#include <stdio.h>
#include <string.h>

/* Returns false if the text cannot be a name. */
static bool name_take(struct call_scan *c, const char *name, size_t bytes)
{
    if (bytes == 0 || bytes >= ANSWER_NAME_BYTES)
        return false;
    for (size_t i = 0; i < bytes; i++)
        if (name[i] == '\\' || (unsigned char)name[i] <= ' ')
            return false;
    memcpy(c->name, name, bytes);
    c->name[bytes] = 0;
    c->has_name = true;
    return true;
}

void parser_call_begin(struct answer_parser *p, size_t at, const char *name, size_t name_bytes,
                       bool listed_names_only)
{
    struct call_scan *c = &p->call;
    *c = (struct call_scan){
        .scanned = at, .arguments_only = name != NULL, .listed_names_only = listed_names_only};
    if (name != NULL)
        name_take(c, name, name_bytes);
}

/* True if the request has a tool of that name. */
static bool name_is_known(const struct answer_parser *p)
{
    char line[ANSWER_NAME_BYTES + 2];
    snprintf(line, sizeof(line), "\n%s\n", p->call.name);
    return p->options.tool_names != NULL && strstr(p->options.tool_names, line) != NULL;
}

/* Gives the name. Returns false if this is no call. */
static bool announce(struct answer_parser *p)
{
    struct call_scan *c = &p->call;
    if ((c->listed_names_only && !name_is_known(p)) || p->calls == ANSWER_CALLS_MAX)
        return false;
    p->options.on_part(p->options.self, ANSWER_PART_CALL, c->name, strlen(c->name));
    p->calls++;
    c->call_reported = true;
    parser_drop(p, c->arguments_offset);
    c->scanned -= c->arguments_offset;
    c->arguments_end -= c->arguments_done ? c->arguments_offset : 0;
    c->arguments_offset = 0;
    return true;
}

/* Gives the arguments that were read. */
static void flush(struct answer_parser *p)
{
    struct call_scan *c = &p->call;
    if (!c->call_reported)
        return;
    size_t bytes = c->arguments_done ? c->arguments_end : c->scanned;
    parser_report(p, ANSWER_PART_ARGUMENTS, bytes);
    c->scanned -= bytes;
    c->arguments_end = 0;
    if (c->arguments_done) { /* what follows in the object means nothing */
        parser_drop(p, c->scanned);
        c->scanned = 0;
    }
}

/* The latest byte begins a value at depth 1. Returns false if this is no call. */
static bool value_begin(struct call_scan *c, char byte)
{
    static const char *const names[] = {"name", "function"};
    c->key[c->key_bytes] = 0;
    c->field = FIELD_OTHER;
    c->value_offset = c->scanned;
    for (int i = 0; i < 2; i++)
        if (strcmp(c->key, names[i]) == 0 && byte == '"' && !c->has_name)
            c->field = FIELD_NAME;
    if (strcmp(c->key, "name") == 0 && byte != '"')
        return false;
    if ((strcmp(c->key, "arguments") == 0 || strcmp(c->key, "parameters") == 0) &&
        !c->has_arguments) {
        c->field = FIELD_ARGUMENTS;
        c->arguments_offset = c->value_offset;
        c->has_arguments = true;
        return byte == '{';
    }
    return true;
}

/* The latest byte ends a value at depth 1. Returns false if this is no call. */
static bool value_end(struct answer_parser *p)
{
    struct call_scan *c = &p->call;
    if (c->field == FIELD_ARGUMENTS) {
        c->arguments_done = true;
        c->arguments_end = c->scanned + 1;
    }
    return c->field != FIELD_NAME ||
           name_take(c, parser_text(p) + c->value_offset + 1, c->scanned - c->value_offset - 1);
}

/* Reads one byte of an object {"name": …, "arguments": …}. */
static bool object_byte(struct answer_parser *p, char byte)
{
    struct call_scan *c = &p->call;
    const enum scan_state before = c->json.state;
    const uint32_t depth = c->json.depth;
    const enum scan_state state = json_scan_byte(&c->json, byte);
    bool good = state != SCAN_WRONG;
    if (depth != 1)
        return good && (state != SCAN_NEXT || c->json.depth != 1 || value_end(p));
    if (before == SCAN_KEY || before == SCAN_KEY_OR_END)
        c->key_bytes = 0;
    else if (before == SCAN_IN_KEY && state == SCAN_IN_KEY && c->key_bytes + 1 < sizeof(c->key))
        c->key[c->key_bytes++] = byte;
    else if (before == SCAN_VALUE && state != SCAN_VALUE)
        good = good && value_begin(c, byte);
    else if (before == SCAN_IN_STRING && state == SCAN_NEXT)
        good = good && value_end(p);
    return good;
}

static bool bare_byte(struct answer_parser *p, char byte)
{
    struct call_scan *c = &p->call;
    const bool first = c->json.state == SCAN_BEGIN;
    const enum scan_state state = json_scan_byte(&c->json, byte);
    if (first && state != SCAN_BEGIN) {
        c->has_arguments = true;
        c->arguments_offset = c->scanned;
    }
    if (state == SCAN_DONE) {
        c->arguments_done = true;
        c->arguments_end = c->scanned + 1;
    }
    return state != SCAN_WRONG && c->has_name;
}

/* Line breaks and other control characters may not stand in JSON strings, but models write them. */
static bool is_control_in_string(const struct call_scan *c, char byte)
{
    return (unsigned char)byte < ' ' && c->json.hex_digits_left == 0 &&
           (c->json.state == SCAN_IN_STRING || c->json.state == SCAN_IN_KEY);
}

static void control_escape(struct answer_parser *p)
{
    static const char names[] = "\bb\ff\nn\rr\tt";
    char escape[8];
    flush(p);
    const char byte = parser_text(p)[0];
    const char *known = byte != 0 ? strchr(names, byte) : NULL;
    if (known != NULL)
        snprintf(escape, sizeof(escape), "\\%c", known[1]);
    else
        snprintf(escape, sizeof(escape), "\\u%04x", (unsigned char)byte);
    p->options.on_part(p->options.self, ANSWER_PART_ARGUMENTS, escape, strlen(escape));
    parser_drop(p, 1);
}

/* The byte after those that were read is wrong. */
static enum call_step wrong(struct answer_parser *p)
{
    struct call_scan *c = &p->call;
    if (c->call_reported) {
        flush(p);
        return c->arguments_done ? CALL_DONE : CALL_WRONG;
    }
    parser_report(p, ANSWER_PART_CONTENT, c->scanned);
    return CALL_WRONG;
}

/* The object is complete. */
static enum call_step object_done(struct answer_parser *p)
{
    struct call_scan *c = &p->call;
    if (!c->call_reported) { /* without arguments */
        c->arguments_offset = c->scanned;
        if (!c->has_name || !announce(p))
            return wrong(p);
        p->options.on_part(p->options.self, ANSWER_PART_ARGUMENTS, "{}", 2);
        c->arguments_done = true;
    }
    flush(p);
    return CALL_DONE;
}

enum call_step parser_call_step(struct answer_parser *p)
{
    struct call_scan *c = &p->call;
    while (c->scanned < parser_text_bytes(p)) {
        const char byte = parser_text(p)[c->scanned];
        const bool control = is_control_in_string(c, byte);
        if (control && c->call_reported && !c->arguments_done && !c->json.escape) {
            control_escape(p);
            continue;
        }
        if ((control && !c->arguments_done) ||
            (!c->call_reported && c->scanned > ANSWER_HELD_BYTES))
            return wrong(p);
        if (!(c->arguments_only ? bare_byte(p, byte) : object_byte(p, byte)))
            return wrong(p);
        c->scanned++;
        if (!c->call_reported && c->has_name && c->has_arguments && !announce(p))
            return wrong(p);
        if (c->json.state == SCAN_DONE)
            return object_done(p);
    }
    flush(p);
    return CALL_WAIT;
}
