/* config_locate: jansson knows no lines of values, so an error's line is found by walking the text
 * once more. The text is valid JSON by then (jansson has read it), which keeps this small; still it
 * never reads past the end. */
#include "common/config_table.h"

#include <stdlib.h>
#include <string.h>

struct cursor {
    const char *at;
    const char *end;
    unsigned line;
};

static void space_skip(struct cursor *cursor)
{
    for (; cursor->at < cursor->end && strchr(" \t\r\n", *cursor->at) != NULL; cursor->at++)
        cursor->line += *cursor->at == '\n' ? 1 : 0;
}

static char peek(struct cursor *cursor)
{
    space_skip(cursor);
    return cursor->at < cursor->end ? *cursor->at : 0;
}

/* Past a string; *begin and *length are what lies between the quotes, escapes as they are. */
static void string_skip(struct cursor *cursor, const char **begin, size_t *length)
{
    *begin = ++cursor->at;
    while (cursor->at < cursor->end && *cursor->at != '"')
        cursor->at += *cursor->at == '\\' ? 2 : 1;
    if (cursor->at > cursor->end)
        cursor->at = cursor->end;
    *length = (size_t)(cursor->at - *begin);
    if (cursor->at < cursor->end)
        cursor->at++;
}

static void value_skip(struct cursor *cursor)
{
    unsigned depth = 0;
    const char *begin;
    size_t length;
    do {
        char c = peek(cursor);
        if (c == 0)
            return;
        if (c == '"') {
            string_skip(cursor, &begin, &length);
            continue;
        }
        if (c == '{' || c == '[')
            depth++;
        if (c == '}' || c == ']')
            depth--;
        cursor->at++;
        if (strchr("{}[],:", c) == NULL) { /* a number or a word: to its end */
            while (cursor->at < cursor->end && strchr(" \t\r\n{}[],:\"", *cursor->at) == NULL)
                cursor->at++;
        }
    } while (depth > 0);
}

/* Moves into the object or array at the cursor, to the value of `part`. False: it has none. */
static bool enter(struct cursor *cursor, const char *part, size_t part_length)
{
    char open = peek(cursor);
    if (open != '{' && open != '[')
        return false;
    cursor->at++;
    for (unsigned long index = 0;; index++) {
        char c = peek(cursor);
        if (c == 0 || c == '}' || c == ']')
            return false;
        bool found = index == strtoul(part, NULL, 10);
        unsigned line = cursor->line;
        if (open == '{') {
            const char *name;
            size_t length;
            string_skip(cursor, &name, &length);
            found = length == part_length && memcmp(name, part, length) == 0;
            if (peek(cursor) == ':')
                cursor->at++;
        }
        if (found) {
            cursor->line = open == '{' ? line : cursor->line;
            return true;
        }
        value_skip(cursor);
        if (peek(cursor) == ',')
            cursor->at++;
    }
}

unsigned config_locate(const char *text, size_t bytes, const char *path)
{
    struct cursor cursor = {.at = text, .end = text + bytes, .line = 1};
    unsigned line = 1;
    peek(&cursor);
    while (*path != 0) {
        size_t length = strcspn(path, "/");
        if (!enter(&cursor, path, length))
            break;
        line = cursor.line;
        path += length;
        if (*path == '/')
            path++;
    }
    return line;
}
