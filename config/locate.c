/* config_locate: finds the line of a key, because jansson does not store lines of values: it walks
 * the text once more. jansson has already accepted the text as valid JSON, which keeps this small.
 * Nevertheless it never reads past the end. */
#include "config/table.h"

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

/* Skips a string. *begin and *length are the text between the quotes, with escapes unchanged. */
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
        if (strchr("{}[],:", c) == NULL) { /* A number or a word: skip it. */
            while (cursor->at < cursor->end && strchr(" \t\r\n{}[],:\"", *cursor->at) == NULL)
                cursor->at++;
        }
    } while (depth > 0);
}

/* Enters the object or array at the cursor, up to the value of `part`. Returns false if it has
 * none. */
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

unsigned config_locate(const char *text, size_t text_bytes, const char *path)
{
    struct cursor cursor = {.at = text, .end = text + text_bytes, .line = 1};
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
