/* chat: recognises a template's family by markers in the template's text. What varies within a
 * family (default system message, blanks around [INST], trimming) is read from the template's
 * string literals, so that a model's own variant is matched without interpreting Jinja. The
 * families:
 *
 *   chatml   <|im_start|>ROLE\nTEXT<|im_end|>\n     smollm2 and qwen2: chatml with a default system
 *                                                   message
 *   llama3   <|start_header_id|>ROLE<|end_header_id|>\n\nTEXT<|eot_id|>
 *   llama2   [INST] <<SYS>>\nSYSTEM\n<</SYS>>\n\nTEXT [/INST] TEXT </s><s>[INST] …
 *   mistral  [INST] SYSTEM\n\nTEXT[/INST] TEXT</s>[INST] … */
#include "model/text/chat.h"

#include "model/file/vocabulary.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LITERAL_BYTES 32 /* Bytes of a marker with the text around it. */

enum family { FAMILY_NONE, FAMILY_CHATML, FAMILY_LLAMA3, FAMILY_INST };

struct chat_template {
    enum family family;
    /* chatml: system message that is put first if the messages have none; NULL = none. */
    char *default_system;
    bool trim; /* White space around a text is removed. */
    /* llama3: 3.1's lines with dates begin the system message, even if there is none. */
    bool dated;
    /* Fields of the [INST] families. */
    bool sys_markers; /* llama2's <<SYS>>, and BOS before each turn. */
    bool system_last; /* The system message goes into the last user message instead of the first. */
    char turn_begin[LITERAL_BYTES];
    char turn_end[LITERAL_BYTES];
    char reply_begin[LITERAL_BYTES];
    char reply_end[LITERAL_BYTES];
    char bos[LITERAL_BYTES];
    char eos[LITERAL_BYTES];
};

/* ---- reading a template ---- */

static const char *text_find(struct mapped_text in, const char *what)
{
    return in.bytes > 0 ? memmem(in.text, in.bytes, what, strlen(what)) : NULL;
}

static struct mapped_text rest_of(struct mapped_text in, const char *from)
{
    return (struct mapped_text){from, (size_t)(in.text + in.bytes - from)};
}

/* Resolves Jinja's escapes. Returns the size; out has room for `bytes`. */
static size_t unescape(const char *text, size_t bytes, char *out)
{
    size_t used = 0;
    for (size_t i = 0; i < bytes; i++) {
        char c = text[i];
        if (c == '\\' && i + 1 < bytes) {
            c = text[++i];
            c = c == 'n' ? '\n' : c == 't' ? '\t' : c == 'r' ? '\r' : c;
        }
        out[used++] = c;
    }
    return used;
}

/* Reads the literal that starts at the opening quote. False: it does not end, or is too long. */
static bool read_literal(const char *quote, const char *end, char out[LITERAL_BYTES])
{
    const char *close = quote + 1;
    while (close < end && *close != *quote)
        close += *close == '\\' ? 2 : 1;
    if (close >= end || close - quote > LITERAL_BYTES)
        return false;
    out[unescape(quote + 1, (size_t)(close - quote) - 1, out)] = 0;
    return true;
}

/* Reads the literal that contains `marker`; out[] is unchanged if there is none. */
static void read_marker(struct mapped_text template, const char *marker, char out[LITERAL_BYTES])
{
    const char *at = text_find(template, marker);
    const char *quote = at;
    while (quote != NULL && quote > template.text && at - quote < LITERAL_BYTES)
        if (*--quote == '\'' || *quote == '"') {
            read_literal(quote, template.text + template.bytes, out);
            return;
        }
}

static const char *skip_blanks(const char *at, const char *end)
{
    while (at < end && (*at == ' ' || *at == '\n' || *at == '-'))
        at++;
    return at;
}

/* Reads the format of an assistant's message: {{ " " + message["content"]|trim + eos_token + " "
 * }}. */
static void read_reply(struct mapped_text template, struct chat_template *c)
{
    const char *end = template.text + template.bytes;
    const char *eos = template.text;
    while ((eos = text_find(rest_of(template, eos), "eos_token")) != NULL) {
        const char *begin = eos;
        while (begin - template.text >= 2 && memcmp(begin - 2, "{{", 2) != 0)
            begin--;
        struct mapped_text expression = {begin, (size_t)(eos - begin)};
        eos += strlen("eos_token");
        if (text_find(expression, "content") == NULL)
            continue;
        const char *first = skip_blanks(begin, end);
        c->reply_begin[0] = 0;
        if (*first == '\'' || *first == '"')
            read_literal(first, end, c->reply_begin);
        c->trim = text_find(expression, "trim") != NULL || text_find(expression, "strip") != NULL;
        const char *plus = skip_blanks(eos, end);
        const char *after = plus < end && *plus == '+' ? skip_blanks(plus + 1, end) : end;
        if (after < end && (*after == '\'' || *after == '"'))
            read_literal(after, end, c->reply_end);
        return;
    }
}

/* Reads the system message that a ChatML template writes if there is none: the literal in which
 * text follows the system marker directly. */
static enum status read_default_system(struct mapped_text template, struct chat_template *c)
{
    static const char marker[] = "<|im_start|>system";
    const char *at = template.text;
    while ((at = text_find(rest_of(template, at), marker)) != NULL) {
        at += sizeof(marker) - 1;
        struct mapped_text rest = rest_of(template, at);
        size_t line_end = rest.bytes > 0 && rest.text[0] == '\n'                          ? 1
                          : rest.bytes > 1 && rest.text[0] == '\\' && rest.text[1] == 'n' ? 2
                                                                                          : 0;
        const char *end = text_find(rest, "<|im_end|>");
        const char *text = at + line_end;
        if (line_end == 0 || end == NULL || text >= end || *text == '\'' || *text == '"' ||
            *text == '{')
            continue;
        struct mapped_text message = {text, (size_t)(end - text)};
        if (text_find(message, "{{") != NULL || text_find(message, "}}") != NULL)
            continue;
        c->default_system = malloc(message.bytes + 1);
        if (c->default_system == NULL)
            return ST_NO_MEMORY;
        c->default_system[unescape(message.text, message.bytes, c->default_system)] = 0;
        return ST_OK;
    }
    return ST_OK;
}

/* Reads the text of a token; out[] is unchanged if there is no token or its text is too long. */
static void read_token(const struct vocabulary *v, uint32_t id, char out[LITERAL_BYTES])
{
    if (id >= v->count || v->tokens[id].bytes >= LITERAL_BYTES)
        return;
    memcpy(out, v->tokens[id].text, v->tokens[id].bytes);
    out[v->tokens[id].bytes] = 0;
}

static bool has_token(const struct vocabulary *v, const char *text)
{
    for (uint32_t i = 0; i < v->count; i++)
        if (mapped_text_is(v->tokens[i], text))
            return true;
    return false;
}

static enum status recognise_chatml(struct chat_template *c, struct mapped_text template)
{
    static const char *const trims[] = {"['content'] | trim", "['content']|trim", ".content | trim",
                                        ".content|trim", "['content'].strip()"};
    enum status status = read_default_system(template, c);
    c->family = FAMILY_CHATML;
    for (size_t i = 0; i < sizeof(trims) / sizeof(trims[0]); i++)
        c->trim = c->trim || text_find(template, trims[i]) != NULL;
    return status;
}

static void recognise_inst(struct chat_template *c, const struct vocabulary *v,
                           struct mapped_text template)
{
    c->family = FAMILY_INST;
    c->sys_markers = text_find(template, "<<SYS>>") != NULL;
    strcpy(c->turn_begin, "[INST] ");
    strcpy(c->turn_end, " [/INST]");
    strcpy(c->reply_begin, " ");
    strcpy(c->bos, "<s>");
    strcpy(c->eos, "</s>");
    read_token(v, v->bos, c->bos);
    read_token(v, v->eos, c->eos);
    if (c->sys_markers) {
        strcpy(c->reply_end, "");
        c->trim = true;
        strcpy(c->reply_begin, " ");
        return;
    }
    read_marker(template, "[INST]", c->turn_begin);
    read_marker(template, "[/INST]", c->turn_end);
    read_reply(template, c);
    c->system_last = text_find(template, "loop.last and system_message") != NULL;
}

enum status chat_template_open(struct model_file *file, struct chat_template **out,
                               struct error *error)
{
    const struct vocabulary *v = NULL;
    enum status status = model_file_vocabulary(file, &v, error);
    if (status != ST_OK)
        return status;
    bool absent = v->template.text == NULL;
    struct mapped_text template = absent ? mapped_text_of("") : v->template;
    struct chat_template *c = calloc(1, sizeof(*c));
    if (c == NULL)
        return error_set(error, ST_NO_MEMORY, "no memory for the chat template");
    status = ST_OK;
    if (text_find(template, "<|im_start|>") != NULL || (absent && has_token(v, "<|im_start|>"))) {
        status = recognise_chatml(c, template);
    } else if (text_find(template, "<|start_header_id|>") != NULL) {
        c->family = FAMILY_LLAMA3;
        c->trim = true;
        c->dated = text_find(template, "Cutting Knowledge Date") != NULL;
    } else if (text_find(template, "[INST]") != NULL &&
               text_find(template, "[SYSTEM_PROMPT]") == NULL) {
        recognise_inst(c, v, template);
    }
    if (status != ST_OK) {
        chat_template_close(c);
        return error_set(error, status, "no memory for the chat template");
    }
    *out = c;
    return ST_OK;
}

void chat_template_close(struct chat_template *c)
{
    if (c == NULL)
        return;
    free(c->default_system);
    free(c);
}

/* ---- rendering ---- */

struct text {
    char *bytes;
    size_t used;
    size_t room;
    struct tokenizer_range *contents; /* Room for one per message. */
    size_t content_count;
    bool failed;
};

static void bytes_put(struct text *t, const char *bytes, size_t count)
{
    if (t->used + count + 1 > t->room && !t->failed) {
        size_t room = (t->used + count) * 2 + 256;
        char *more = realloc(t->bytes, room);
        t->failed = more == NULL;
        t->bytes = more != NULL ? more : t->bytes;
        t->room = more != NULL ? room : t->room;
    }
    if (t->failed || count == 0)
        return;
    memcpy(t->bytes + t->used, bytes, count);
    t->used += count;
}

static void string_put(struct text *t, const char *string)
{
    bytes_put(t, string, strlen(string));
}

static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

enum trim { TRIM_NONE, TRIM_END, TRIM_BOTH };

static void put_content(struct text *t, const struct chat_message *m, enum trim trim)
{
    const char *start = m->content;
    size_t bytes = m->content_bytes;
    for (; trim == TRIM_BOTH && bytes > 0 && is_blank(start[0]); start++)
        bytes--;
    while (trim != TRIM_NONE && bytes > 0 && is_blank(start[bytes - 1]))
        bytes--;
    size_t begin = t->used;
    bytes_put(t, start, bytes);
    if (t->used > begin)
        t->contents[t->content_count++] = (struct tokenizer_range){begin, t->used};
}

/* "developer" is a newer name of "system". NULL = an unknown role. */
static const char *role_of(const struct chat_message *m)
{
    static const char *const roles[] = {"system", "user", "assistant"};
    if (strcmp(m->role, "developer") == 0)
        return roles[0];
    for (size_t i = 0; i < 3; i++)
        if (strcmp(m->role, roles[i]) == 0)
            return roles[i];
    return NULL;
}

static bool is_role(const struct chat_message *m, const char *role)
{
    return strcmp(role_of(m), role) == 0;
}

static void render_chatml(const struct chat_template *c, const struct chat_message *messages,
                          size_t count, struct text *t)
{
    if (c->default_system != NULL && !is_role(&messages[0], "system")) {
        string_put(t, "<|im_start|>system\n");
        string_put(t, c->default_system);
        string_put(t, "<|im_end|>\n");
    }
    for (size_t i = 0; i < count; i++) {
        string_put(t, "<|im_start|>");
        string_put(t, role_of(&messages[i]));
        string_put(t, "\n");
        put_content(t, &messages[i], c->trim ? TRIM_BOTH : TRIM_NONE);
        string_put(t, "<|im_end|>\n");
    }
    string_put(t, "<|im_start|>assistant\n");
}

static void put_llama3(struct text *t, const char *role)
{
    string_put(t, "<|start_header_id|>");
    string_put(t, role);
    string_put(t, "<|end_header_id|>\n\n");
}

/* The date is the one that the templates use by default: a prompt must not depend on the day. */
static void render_llama3(const struct chat_template *c, const struct chat_message *messages,
                          size_t count, struct text *t)
{
    size_t first = 0;
    if (c->dated) {
        put_llama3(t, "system");
        string_put(t, "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n");
        if (is_role(&messages[0], "system"))
            put_content(t, &messages[first++], TRIM_BOTH);
        string_put(t, "<|eot_id|>");
    }
    for (size_t i = first; i < count; i++) {
        put_llama3(t, role_of(&messages[i]));
        put_content(t, &messages[i], TRIM_BOTH);
        string_put(t, "<|eot_id|>");
    }
    put_llama3(t, "assistant");
}

static enum status check_turns(const struct chat_message *messages, size_t count,
                               struct error *error)
{
    size_t first = is_role(&messages[0], "system") ? 1 : 0;
    if (first == count)
        return error_set(error, ST_INVALID,
                         "messages[0]: want a message of role user after the system message");
    for (size_t i = first; i < count; i++) {
        const char *wanted = (i - first) % 2 == 0 ? "user" : "assistant";
        if (!is_role(&messages[i], wanted))
            return error_set(
                error, ST_INVALID,
                "messages[%zu]: role '%s': want '%s', for this model's template takes user and "
                "assistant in turn, after at most one system message",
                i, role_of(&messages[i]), wanted);
    }
    return ST_OK;
}

static void render_inst(const struct chat_template *c, const struct chat_message *messages,
                        size_t count, struct text *t)
{
    size_t first = is_role(&messages[0], "system") ? 1 : 0;
    size_t last_user = count - 1 - (is_role(&messages[count - 1], "assistant") ? 1 : 0);
    size_t system_at = c->system_last ? last_user : first;
    for (size_t i = first; i < count; i++) {
        if (is_role(&messages[i], "assistant")) {
            string_put(t, c->reply_begin);
            put_content(t, &messages[i], c->trim ? TRIM_BOTH : TRIM_NONE);
            string_put(t, c->sys_markers ? " " : "");
            string_put(t, c->eos);
            string_put(t, c->reply_end);
            continue;
        }
        if (c->sys_markers && i > first)
            string_put(t, c->bos);
        string_put(t, c->turn_begin);
        bool with_system = first == 1 && i == system_at;
        if (with_system) {
            string_put(t, c->sys_markers ? "<<SYS>>\n" : "");
            put_content(t, &messages[0], TRIM_NONE);
            string_put(t, c->sys_markers ? "\n<</SYS>>\n\n" : "\n\n");
        }
        /* Llama 2 trims system message and text as one text. */
        put_content(t, &messages[i],
                    !c->sys_markers ? TRIM_NONE
                    : with_system   ? TRIM_END
                                    : TRIM_BOTH);
        string_put(t, c->turn_end);
    }
}

static enum status check_roles(const struct chat_message *messages, size_t count,
                               struct error *error)
{
    if (count == 0)
        return error_set(error, ST_INVALID, "messages: want at least one");
    for (size_t i = 0; i < count; i++) {
        char shown[LITERAL_BYTES];
        size_t used = 0;
        if (role_of(&messages[i]) != NULL)
            continue;
        for (const char *c = messages[i].role; *c != 0 && used + 1 < sizeof(shown); c++)
            shown[used++] = *c >= ' ' && *c <= '~' ? *c : '?';
        shown[used] = 0;
        return error_set(error, ST_INVALID,
                         "messages[%zu]: role '%s': want system, developer, user or assistant", i,
                         shown);
    }
    return ST_OK;
}

enum status chat_render(const struct chat_template *c, const struct chat_message *messages,
                        size_t count, struct chat_text *out, struct error *error)
{
    struct text t = {0};
    if (c->family == FAMILY_NONE)
        return error_set(error, ST_UNSUPPORTED,
                         "the model has no chat template of a known family: use /v1/completions");
    enum status status = check_roles(messages, count, error);
    if (status == ST_OK && c->family == FAMILY_INST)
        status = check_turns(messages, count, error);
    if (status != ST_OK)
        return status;
    t.contents = calloc(count, sizeof(*t.contents));
    if (t.contents == NULL)
        return error_set(error, ST_NO_MEMORY, "no memory to render %zu messages", count);
    if (c->family == FAMILY_CHATML)
        render_chatml(c, messages, count, &t);
    else if (c->family == FAMILY_LLAMA3)
        render_llama3(c, messages, count, &t);
    else
        render_inst(c, messages, count, &t);
    if (t.failed) {
        free(t.bytes);
        free(t.contents);
        return error_set(error, ST_NO_MEMORY, "no memory to render %zu messages", count);
    }
    t.bytes[t.used] = 0;
    *out = (struct chat_text){t.bytes, t.used, t.contents, t.content_count};
    return ST_OK;
}

void chat_text_done(struct chat_text *text)
{
    free(text->text);
    free(text->contents);
    *text = (struct chat_text){0};
}
