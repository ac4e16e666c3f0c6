/* tokenizer_regex: translates the regular expressions of tokenizer.json, which Oniguruma executes
 * in Hugging Face's library, into PCRE2's. Most of the two languages is equal. \s is spelled out,
 * because PCRE2 counts U+180E as white space. What the two read differently (^ and $, \w, \b, sets
 * within sets, possessive intervals) is refused. */
#include "model/text/tokenizer_internal.h"

#include <string.h>

struct translation {
    const char *at, *end;
    char *out;
    size_t written, capacity;
    struct error *error;
};

static enum status refuse(const struct translation *t, const char *what)
{
    return error_set(
        t->error, ST_UNSUPPORTED,
        "the pre-tokenizer's expression has %s, which is not supported, before '%.40s'", what,
        t->at);
}

static enum status put(struct translation *t, const char *text, size_t bytes)
{
    if (bytes >= t->capacity - t->written)
        return error_set(t->error, ST_TOO_LARGE,
                         "the pre-tokenizer's expression is longer than %d bytes", REGEX_BYTES_MAX);
    memcpy(t->out + t->written, text, bytes);
    t->written += bytes;
    t->out[t->written] = 0;
    return ST_OK;
}

static enum status put_text(struct translation *t, const char *text)
{
    return put(t, text, strlen(text));
}

static bool follows(const struct translation *t, const char *text)
{
    const size_t bytes = strlen(text);
    return (size_t)(t->end - t->at) >= bytes && memcmp(t->at, text, bytes) == 0;
}

/* Takes the braces of \p{…} or \x{…}; the letter before them is taken. */
static enum status braces(struct translation *t)
{
    const char *close = memchr(t->at, '}', (size_t)(t->end - t->at));
    if (close == NULL || memchr(t->at, '\\', (size_t)(close - t->at)) != NULL)
        return refuse(t, "a '{' without its end");
    const char *begin = t->at - 2;
    t->at = close + 1;
    return put(t, begin, (size_t)(t->at - begin));
}

/* Takes a backslash and what belongs to it. */
static enum status escape(struct translation *t, bool in_set)
{
    if (t->end - t->at < 2)
        return refuse(t, "a backslash at its end");
    const char c = t->at[1];
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (letter && strchr("sSdDpPrntfax0", c) == NULL)
        return refuse(
            t, "an escape other than \\s, \\S, \\d, \\D, \\p, \\P, \\r, \\n, \\t, \\f and \\x");
    if (c == 'S' && in_set)
        return refuse(t, "\\S within a set");
    t->at += 2;
    if (strchr("pPx", c) != NULL && t->at < t->end && *t->at == '{')
        return braces(t);
    if (c == 's')
        return put_text(t, in_set ? REGEX_SPACE : "[" REGEX_SPACE "]");
    if (c == 'S')
        return put_text(t, "[^" REGEX_SPACE "]");
    return put(t, t->at - 2, 2);
}

/* Takes a set from its '[' to its ']'. */
static enum status set(struct translation *t)
{
    const char *begin = t->at + 1;
    enum status status = put(t, t->at++, 1);
    while (status == ST_OK && t->at < t->end) {
        if (*t->at == '\\') {
            status = escape(t, true);
            begin = NULL;
            continue;
        }
        if (*t->at == '[' || follows(t, "&&"))
            return refuse(t, "a set within a set");
        const bool first =
            begin != NULL && (t->at == begin || (t->at == begin + 1 && *begin == '^'));
        const char c = *t->at;
        if (c == ']' && first)
            return refuse(t, "']' as the first of a set");
        status = put(t, t->at++, 1);
        if (c == ']')
            return status;
    }
    return status == ST_OK ? refuse(t, "a set without its end") : status;
}

/* Takes "(?" and what follows, up to where the group's content begins. */
static enum status group(struct translation *t)
{
    static const char *const known[] = {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?i)"};
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (follows(t, known[i])) {
            t->at += strlen(known[i]);
            return put_text(t, known[i]);
        }
    return refuse(t, "a group other than (?:…), (?=…), (?!…), (?<=…), (?<!…), (?>…) and (?i:…)");
}

/* Takes an interval such as {1,3}. */
static enum status interval(struct translation *t)
{
    const char *close = memchr(t->at, '}', (size_t)(t->end - t->at));
    if (close == NULL || t->at[1] < '0' || t->at[1] > '9')
        return refuse(t, "a '{' without a number");
    for (const char *p = t->at + 1; p < close; p++)
        if ((*p < '0' || *p > '9') && *p != ',')
            return refuse(t, "a '{' without numbers");
    if (close + 1 < t->end && close[1] == '+')
        return refuse(t, "a repeated interval");
    enum status status = put(t, t->at, (size_t)(close + 1 - t->at));
    t->at = close + 1;
    return status;
}

enum status regex_translate(struct mapped_text expression, char out[REGEX_BYTES_MAX],
                            struct error *error)
{
    struct translation t = {.at = expression.text,
                            .end = expression.text + expression.bytes,
                            .out = out,
                            .capacity = REGEX_BYTES_MAX,
                            .error = error};
    enum status status = put(&t, "", 0);
    while (status == ST_OK && t.at < t.end) {
        if (*t.at == '\\')
            status = escape(&t, false);
        else if (*t.at == '[')
            status = set(&t);
        else if (*t.at == '{')
            status = interval(&t);
        else if (follows(&t, "(?"))
            status = group(&t);
        else if (*t.at == '^' || *t.at == '$' || *t.at == 0)
            status = refuse(&t, "^, $ or a NUL");
        else
            status = put(&t, t.at++, 1);
    }
    return status;
}
