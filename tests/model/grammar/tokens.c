/* tokens: see the header. */
#include "tests/model/grammar/tokens.h"

#include <string.h>

static const char *const pieces[] = {
    "{\"",          "\":",      "\",\"",
    "\": \"",       "\"}",      "\"},",
    "},{\"",        "\"]",      "[\"",
    "[]",           "{}",       "]}",
    "}}",           "[[",       "]]",
    ", ",           ",\n",      "\n    ",
    " {",           " [",       " \"",
    "null",         "true",     "false",
    "tr",           "als",      "10",
    "100",          "-1",       ".5",
    "0.",           "e+1",      "2024-0",
    "-02-2",        "the",      " the",
    "name",         "\"name\"", "na",
    "foo",          "bar",      "foobar",
    "baz\":",       "\\\"",     "\\n",
    "\\u00",        "\\u00e9",  "\\ud83d",
    "\\",           "\\\\",     "\xC3",
    "\xC3\xA9",     "\xE2\x82", "\xE2\x82\xAC",
    "\xF0\x9F",     "\x98\x80", "\xF0\x9F\x98\x80",
    "a\xC3",        "\xA9\"",   "aaaa",
    "bbbbbbbb",     "ab",       "cd",
    "x\"",          "\"a",      "\"b\":",
    "type",         "value",    "1,",
    "1]",           "2}",       "      ",
    "\t",           "\n\n",     "123456",
    "000",          "999",      "\": {\"",
    "\": [",        "null}",    "true,",
    "@example.com", "http://",  "::",
    "127.0.",       "12:3",     "T0",
};

uint32_t tokens_count(void)
{
    return 257 + sizeof(pieces) / sizeof(pieces[0]);
}

const char *tokens_piece(const void *self, uint32_t id, size_t *bytes_out)
{
    static char bytes[256];
    (void)self;
    if (id == 256 || id >= tokens_count())
        return NULL;
    if (id < 256) {
        bytes[id] = (char)id;
        *bytes_out = 1;
        return &bytes[id];
    }
    *bytes_out = strlen(pieces[id - 257]);
    return pieces[id - 257];
}
