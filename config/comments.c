/* config_comments: comments in config files, which jansson does not know. */
#include "config/table.h"

/* Returns the first byte behind a comment that begins at `at`; NULL = it has no end. */
static const char *comment_end(const char *at, const char *end)
{
    if (at[1] == '/') {
        while (at < end && *at != '\n')
            at++;
        return at;
    }
    for (at += 2; at + 1 < end; at++)
        if (at[0] == '*' && at[1] == '/')
            return at + 2;
    return NULL;
}

bool config_comments_blank(char *text, size_t text_bytes, unsigned *line_out)
{
    char *end = text + text_bytes;
    bool inside = false; /* Inside a string. */
    *line_out = 1;
    for (char *at = text; at < end; at++) {
        *line_out += *at == '\n' ? 1 : 0;
        if (inside && *at == '\\') {
            at++; /* The next byte belongs to the escape. */
        } else if (*at == '"') {
            inside = !inside;
        } else if (!inside && *at == '/' && at + 1 < end && (at[1] == '/' || at[1] == '*')) {
            const char *behind = comment_end(at, end);
            if (behind == NULL)
                return false;
            for (; at < behind; at++) {
                *line_out += *at == '\n' ? 1 : 0;
                *at = *at == '\n' ? '\n' : ' ';
            }
            at--;
        }
    }
    return true;
}
