/* lex: splits a template into tokens and removes white space as jinja2 does with trim_blocks and
 * lstrip_blocks. */
#include "model/template/tree.h"

#include <stdlib.h>
#include <string.h>

struct lexer {
    struct run *run;
    struct tokens *out;
    const char *text;
    size_t bytes;
    size_t at;
    bool line_starts; /* What was read before ended with a newline. */
};

static bool looking_at(const struct lexer *l, size_t at, const char *what)
{
    size_t bytes = strlen(what);
    return at <= l->bytes && l->bytes - at >= bytes && memcmp(l->text + at, what, bytes) == 0;
}

static void token_add(struct lexer *l, enum token_kind kind, struct value value)
{
    struct tokens *t = l->out;
    if (t->count == t->capacity) {
        size_t capacity = t->capacity * 2 + 64;
        struct token *items = run_alloc(l->run, capacity * sizeof(*items));
        if (t->count > 0)
            memcpy(items, t->items, t->count * sizeof(*items));
        t->items = items;
        t->capacity = capacity;
    }
    t->items[t->count++] = (struct token){kind, l->run->line, value};
}

static void move_to(struct lexer *l, size_t to)
{
    for (; l->at < to; l->at++)
        l->run->line += l->text[l->at] == '\n';
}

static struct value part(const struct lexer *l, size_t from, size_t to)
{
    return (struct value){.kind = STRING, .size = (uint32_t)(to - from), .text = l->text + from};
}

static size_t skip_space(const struct lexer *l, size_t at)
{
    while (at < l->bytes) {
        uint32_t c;
        size_t bytes = character_read(l->text + at, l->bytes - at, &c);
        if (!unicode_is_space(c))
            break;
        at += bytes;
    }
    return at;
}

/* Adds the text before a "{%", "{#" or "{{" with the given sign. */
static void data_add(struct lexer *l, size_t from, size_t to, char sign, bool is_block)
{
    struct value v = part(l, from, to);
    if (sign == '-') {
        v = string_strip(l->run, v, SIDES_RIGHT, NULL);
    } else if (sign != '+' && is_block) {
        size_t line = to;
        while (line > from && l->text[line - 1] != '\n')
            line--;
        if ((line > from || l->line_starts) &&
            string_strip(l->run, part(l, line, to), SIDES_LEFT, NULL).size == 0)
            v = part(l, from, line);
    }
    if (v.size > 0)
        token_add(l, TOKEN_DATA, v);
}

/* Moves after an end mark of `mark` bytes with its sign, and the white space that it removes. */
static void pass_end(struct lexer *l, size_t mark, char sign, bool trims)
{
    size_t end = l->at + mark;
    if (sign == '-')
        end = skip_space(l, end);
    else if (sign != '+' && trims && end < l->bytes && l->text[end] == '\n')
        end++;
    move_to(l, end);
    l->line_starts = l->text[end - 1] == '\n';
}

static void lex_comment(struct lexer *l)
{
    const char *close = memmem(l->text + l->at, l->bytes - l->at, "#}", 2);
    if (close == NULL)
        run_fail(l->run, ST_INVALID, "missing end of comment");
    size_t end = (size_t)(close - l->text);
    char sign = end > l->at && (close[-1] == '-' || close[-1] == '+') ? close[-1] : 0;
    move_to(l, end);
    pass_end(l, 2, sign, true);
}

static bool is_name_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           (unsigned char)c >= 0x80;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Copies digits without '_' from *at. */
static void copy_digits(const struct lexer *l, size_t *at, char *out, size_t *used)
{
    while (*at < l->bytes && (is_digit(l->text[*at]) || l->text[*at] == '_')) {
        if (l->text[*at] != '_' && *used < 60)
            out[(*used)++] = l->text[*at];
        (*at)++;
    }
}

static void lex_number(struct lexer *l)
{
    char digits[80];
    size_t used = 0, at = l->at;
    bool is_float = false;
    char kind = at + 1 < l->bytes && l->text[at] == '0' ? (char)(l->text[at + 1] | 32) : 0;
    int base = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 10;
    if (base != 10) {
        for (at += 2; at < l->bytes && is_name_byte(l->text[at]) && used < 60; at++)
            if (l->text[at] != '_')
                digits[used++] = l->text[at];
    } else {
        copy_digits(l, &at, digits, &used);
        if (at + 1 < l->bytes && l->text[at] == '.' && is_digit(l->text[at + 1])) {
            is_float = true;
            digits[used++] = '.';
            at++;
            copy_digits(l, &at, digits, &used);
        }
        size_t e = at + 1;
        if (at < l->bytes && (l->text[at] | 32) == 'e') {
            char sign = e < l->bytes && (l->text[e] == '-' || l->text[e] == '+') ? l->text[e++] : 0;
            if (e < l->bytes && is_digit(l->text[e])) {
                is_float = true;
                digits[used++] = 'e';
                if (sign != 0)
                    digits[used++] = sign;
                at = e;
                copy_digits(l, &at, digits, &used);
            }
        }
    }
    digits[used] = 0;
    char *end = digits;
    struct value v =
        is_float ? value_float(strtod(digits, &end)) : value_int(strtoll(digits, &end, base));
    if (*end != 0 || used == 0 || used >= 60 || (!is_float && v.integer == INT64_MAX))
        run_fail(l->run, ST_INVALID, "a number that is not supported");
    token_add(l, TOKEN_NUMBER, v);
    move_to(l, at);
}

static size_t hex_read(const struct lexer *l, size_t at, size_t digits, uint32_t *code)
{
    *code = 0;
    for (size_t i = 0; i < digits; i++) {
        char c = at + i < l->bytes ? l->text[at + i] : 0;
        int digit = is_digit(c)                          ? c - '0'
                    : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                         : -1;
        if (digit < 0)
            run_fail(l->run, ST_INVALID, "a wrong escape in a string");
        *code = *code << 4 | (uint32_t)digit;
    }
    return at + digits;
}

/* Reads the escape at the backslash and returns the place after it. */
static size_t lex_escape(struct lexer *l, size_t at, struct buffer *b)
{
    static const char letters[] = "abfnrtv\\'\"";
    static const char plain[] = "\a\b\f\n\r\t\v\\'\"";
    char c = l->text[at + 1], text[4];
    uint32_t code = 0;
    const char *letter = c != 0 ? strchr(letters, c) : NULL;
    if (letter != NULL) {
        buffer_add(l->run, b, &plain[letter - letters], 1, false);
        return at + 2;
    }
    if (c == '\n')
        return at + 2;
    if (c == 'x' || c == 'u' || c == 'U') {
        size_t end = hex_read(l, at + 2, c == 'x' ? 2 : c == 'u' ? 4 : 8, &code);
        if (code > 0x10ffff)
            run_fail(l->run, ST_INVALID, "a wrong escape in a string");
        buffer_add(l->run, b, text, character_write(code, text), false);
        return end;
    }
    if (c >= '0' && c <= '7') {
        for (at++; code < 64 && at < l->bytes && l->text[at] >= '0' && l->text[at] <= '7'; at++)
            code = code * 8 + (uint32_t)(l->text[at] - '0');
        buffer_add(l->run, b, text, character_write(code, text), false);
        return at;
    }
    buffer_add(l->run, b, l->text + at, 2, false);
    return at + 2;
}

static void lex_string(struct lexer *l)
{
    struct buffer *b = buffer_new(l->run);
    char quote = l->text[l->at];
    size_t at = l->at + 1;
    while (at < l->bytes && l->text[at] != quote) {
        if (l->text[at] == '\\' && at + 1 < l->bytes)
            at = lex_escape(l, at, b);
        else
            buffer_add(l->run, b, l->text + at++, 1, false);
    }
    if (at >= l->bytes)
        run_fail(l->run, ST_INVALID, "a string does not end");
    struct value v = buffer_value(b);
    v.buffer = NULL; /* Renderings may not write after the tree's texts. */
    token_add(l, TOKEN_STRING, v);
    move_to(l, at + 1);
}

static void lex_operator(struct lexer *l, char *stack, size_t *depth)
{
    static const char *const operators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                            "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                            ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    for (size_t i = 0; i < sizeof(operators) / sizeof(operators[0]); i++) {
        if (!looking_at(l, l->at, operators[i]))
            continue;
        char c = operators[i][0];
        if (c == '(' || c == '[' || c == '{') {
            if (*depth == 256)
                run_fail(l->run, ST_TOO_LARGE, "more than 256 nested brackets");
            stack[(*depth)++] = c == '(' ? ')' : c == '[' ? ']' : '}';
        } else if (c == ')' || c == ']' || c == '}') {
            if (*depth == 0 || stack[--*depth] != c)
                run_fail(l->run, ST_INVALID, "unexpected '%c'", c);
        }
        token_add(l, TOKEN_OPERATOR, value_text(operators[i]));
        move_to(l, l->at + strlen(operators[i]));
        return;
    }
    run_fail(l->run, ST_INVALID, "unexpected character '%c'", l->text[l->at]);
}

/* Reads tokens up to the end mark, "}}" or "%}". */
static void lex_inside(struct lexer *l, const char *mark)
{
    char stack[256];
    size_t depth = 0;
    for (;;) {
        move_to(l, skip_space(l, l->at));
        if (l->at >= l->bytes)
            run_fail(l->run, ST_INVALID, "want '%s' before the end of the template", mark);
        char c = l->text[l->at];
        bool is_signed = c == '-' || (c == '+' && mark[0] == '%');
        if (depth == 0 &&
            (looking_at(l, l->at, mark) || (is_signed && looking_at(l, l->at + 1, mark)))) {
            token_add(l, TOKEN_OPERATOR, value_text(mark));
            pass_end(l, is_signed ? 3 : 2, is_signed ? c : 0, mark[0] == '%');
            return;
        }
        size_t end = l->at;
        while (end < l->bytes && is_name_byte(l->text[end]))
            end++;
        if (is_digit(c)) {
            lex_number(l);
        } else if (end > l->at) {
            token_add(l, TOKEN_NAME, part(l, l->at, end));
            move_to(l, end);
        } else if (c == '"' || c == '\'') {
            lex_string(l);
        } else {
            lex_operator(l, stack, &depth);
        }
    }
}

/* Returns true if `at`, after "{%" and its sign, has the word and "%}"; *end is the place of the
 * end mark. */
static bool is_tag(const struct lexer *l, size_t at, const char *word, size_t *end, char *sign)
{
    at = skip_space(l, at);
    if (!looking_at(l, at, word))
        return false;
    at = skip_space(l, at + strlen(word));
    *sign = at < l->bytes && (l->text[at] == '-' || l->text[at] == '+') ? l->text[at] : 0;
    *end = at;
    return looking_at(l, at + (*sign != 0), "%}");
}

static char sign_at(const struct lexer *l, size_t at)
{
    return at < l->bytes && (l->text[at] == '-' || l->text[at] == '+') ? l->text[at] : 0;
}

/* Adds the text of a raw block; l->at is its start tag's end mark. */
static void lex_raw(struct lexer *l, size_t start_end, char start_sign)
{
    move_to(l, start_end);
    pass_end(l, start_sign != 0 ? 3 : 2, start_sign, false);
    for (size_t at = l->at; at < l->bytes; at++) {
        size_t end;
        char sign;
        if (!looking_at(l, at, "{%"))
            continue;
        char begin = sign_at(l, at + 2);
        if (!is_tag(l, at + 2 + (begin != 0), "endraw", &end, &sign))
            continue;
        data_add(l, l->at, at, begin, true);
        move_to(l, end);
        pass_end(l, sign != 0 ? 3 : 2, sign, true);
        return;
    }
    run_fail(l->run, ST_INVALID, "missing end of raw block");
}

static void lex_tag(struct lexer *l, size_t from, size_t at)
{
    char kind = l->text[at + 1];
    char sign = sign_at(l, at + 2);
    size_t raw_end;
    char raw_sign;
    data_add(l, from, at, sign, kind != '{');
    move_to(l, at + 2 + (sign != 0));
    l->line_starts = false;
    if (kind == '#') {
        /* The sign of "{#-#}" may be the end's. */
        l->at -= sign != 0 && looking_at(l, l->at, "#}");
        lex_comment(l);
    } else if (kind == '%' && is_tag(l, l->at, "raw", &raw_end, &raw_sign)) {
        lex_raw(l, raw_end, raw_sign);
    } else {
        token_add(l, TOKEN_OPERATOR, value_text(kind == '{' ? "{{" : "{%"));
        lex_inside(l, kind == '{' ? "}}" : "%}");
    }
}

/* Copies the text with "\n" for every newline, and without the last newline. */
static void copy_text(struct lexer *l, const char *text, size_t bytes)
{
    char *copy = run_alloc(l->run, bytes + 1);
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] == '\r' && i + 1 < bytes && text[i + 1] == '\n')
            continue;
        copy[l->bytes++] = text[i] == '\r' ? '\n' : text[i];
    }
    if (l->bytes > 0 && copy[l->bytes - 1] == '\n')
        l->bytes--;
    copy[l->bytes] = 0;
    l->text = copy;
}

void template_lex(struct run *r, const char *text, size_t bytes, struct tokens *out)
{
    struct lexer l = {.run = r, .out = out, .line_starts = true};
    copy_text(&l, text, bytes);
    while (l.at < l.bytes) {
        size_t from = l.at, at = from;
        while (at < l.bytes &&
               !(l.text[at] == '{' && at + 1 < l.bytes &&
                 (l.text[at + 1] == '{' || l.text[at + 1] == '%' || l.text[at + 1] == '#')))
            at++;
        if (at < l.bytes) {
            lex_tag(&l, from, at);
            continue;
        }
        token_add(&l, TOKEN_DATA, part(&l, from, at));
        l.at = at;
    }
    token_add(&l, TOKEN_END, value_text("end of template"));
}
