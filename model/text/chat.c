/* chat: a template, what forms of content it takes, and rendering a request with it. */
#include "model/text/chat.h"

#include "common/json.h"
#include "common/text.h"
#include "model/file/vocabulary.h"
#include "model/template/template.h"

#include <stdlib.h>
#include <string.h>

/* For models without a template whose vocabulary has <|im_start|>. */
static const char chatml[] =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] "
    "+ '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
    "{% endif %}";

/* A compiled template, and what rendering short conversations with it has shown. */
struct form {
    struct template *template;
    bool wants_parts; /* It ignores contents that are texts. */
    bool wants_text;  /* It does not know contents that are lists of parts. */
    /* Calls of tools without a content need an empty text, because null is an error or "None". */
    bool wants_empty;
    bool has_developer;
};

struct chat_template {
    struct form form;  /* `template` NULL = there is none that can be used. */
    struct form tools; /* For requests with tools; `template` NULL = `form`. */
    struct error reason;
    json_t *settings; /* bos_token, eos_token, unk_token. */
    char *text;       /* Of the template, of that for tools if there is one; NULL = none. */
    size_t bytes;
};

/* ---- opening ---- */

/* Limits of a rendering of one short message. */
static const struct template_limits probe_limits = {
    .steps = 1000000, .depth = 400, .memory_bytes = 16 << 20, .output_bytes = 1 << 20};

/* Renders one user message with this content. Returns true if the text PROBE appears in the prompt,
 * and no other part of the content. Sets *scarce_out if memory ran out. */
static bool probe(const struct form *form, const json_t *settings, json_t *content,
                  bool *scarce_out)
{
    json_t *inputs =
        json_pack("{s:[{s:s, s:o}], s:n, s:n, s:b}", "messages", "role", "user", "content", content,
                  "tools", "documents", "add_generation_prompt", 0);
    struct template_output out = {0};
    struct error error = {""};
    enum status status = inputs == NULL ? ST_NO_MEMORY
                                        : template_render(form->template, inputs, settings, 0,
                                                          &probe_limits, &out, &error);
    *scarce_out = *scarce_out || status == ST_NO_MEMORY;
    bool good = status == ST_OK && strstr(out.text, "PROBE") != NULL &&
                strstr(out.text, "'type'") == NULL && strstr(out.text, "\"type\"") == NULL;
    template_output_done(&out);
    json_decref(inputs);
    return good;
}

/* Renders a question and a call of a tool with this content. Returns how often the prompt has the
 * text "None"; -1 = the template fails. Sets *scarce_out if memory ran out. */
static int probe_call(const struct form *form, const json_t *settings, json_t *content,
                      bool *scarce_out)
{
    json_t *inputs =
        json_pack("{s:[{s:s, s:s}, {s:s, s:o, s:[{s:s, s:s, s:{s:s, s:{}}}]}], s:n, s:n, s:b}",
                  "messages", "role", "user", "content", "x", "role", "assistant", "content",
                  content, "tool_calls", "id", "call00000", "type", "function", "function", "name",
                  "f", "arguments", "tools", "documents", "add_generation_prompt", 0);
    struct template_output out = {0};
    struct error error = {""};
    enum status status = inputs == NULL ? ST_NO_MEMORY
                                        : template_render(form->template, inputs, settings, 0,
                                                          &probe_limits, &out, &error);
    int count = -1;
    *scarce_out = *scarce_out || status == ST_NO_MEMORY;
    if (status == ST_OK) {
        count = 0;
        for (const char *at = out.text; (at = strstr(at, "None")) != NULL; at++)
            count++;
    }
    template_output_done(&out);
    json_decref(inputs);
    return count;
}

static enum status form_open(const char *text, size_t bytes, const json_t *settings,
                             struct form *out, struct error *error)
{
    struct form form = {.has_developer = memmem(text, bytes, "developer", 9) != NULL};
    enum status status = template_compile(text, bytes, &form.template, error);
    if (status != ST_OK)
        return status;
    bool scarce = false;
    bool text_works = probe(&form, settings, json_string("PROBE"), &scarce);
    bool parts_work =
        probe(&form, settings, json_pack("[{s:s, s:s}]", "type", "text", "text", "PROBE"), &scarce);
    form.wants_parts = parts_work && !text_works;
    form.wants_text = !parts_work;
    int null = probe_call(&form, settings, json_null(), &scarce);
    int empty = probe_call(&form, settings, json_string(""), &scarce);
    form.wants_empty = empty >= 0 && (null < 0 || null > empty);
    if (scarce) { /* The probes do not say what the template takes. */
        template_close(form.template);
        return error_set(error, ST_NO_MEMORY, "no memory for the chat template");
    }
    *out = form;
    return ST_OK;
}

static bool has_token(const struct vocabulary *v, const char *text)
{
    for (uint32_t i = 0; i < v->count; i++)
        if (mapped_text_equals(v->tokens[i], text))
            return true;
    return false;
}

/* Adds the text of a token, if the vocabulary has the token and its text is UTF-8. Returns false if
 * memory runs out. */
static bool setting_add(json_t *settings, const struct vocabulary *v, const char *name, uint32_t id)
{
    const struct mapped_text text = id < v->count ? v->tokens[id] : (struct mapped_text){0};
    return id >= v->count || text_utf8_check(text.text, text.bytes) < text.bytes ||
           json_object_set_new(settings, name, json_stringn(text.text, text.bytes)) == 0;
}

static enum status text_keep(struct chat_template *c, const char *text, size_t bytes,
                             struct error *error)
{
    c->text = malloc(bytes + 1);
    if (c->text == NULL)
        return error_set(error, ST_NO_MEMORY, "no memory for the chat template");
    memcpy(c->text, text, bytes);
    c->bytes = bytes;
    return ST_OK;
}

/* Keeps the reason why the model's template cannot be used, for the requests that want it. */
static enum status refuse_later(struct chat_template *c, enum status status,
                                const struct error *why, struct error *error)
{
    if (status == ST_NO_MEMORY)
        return error_set(error, status, "%s", why->text);
    (void)error_set(&c->reason, ST_UNSUPPORTED,
                    "the model's template cannot be used: %.300s: use /v1/completions", why->text);
    return ST_OK;
}

static enum status chat_open(struct chat_template *c, const struct vocabulary *v,
                             const char *replacement, struct error *error)
{
    struct mapped_text text = v->template;
    c->settings = json_object();
    if (c->settings == NULL || !setting_add(c->settings, v, "bos_token", v->bos) ||
        !setting_add(c->settings, v, "eos_token", v->eos) ||
        !setting_add(c->settings, v, "unk_token", v->unknown))
        return error_set(error, ST_NO_MEMORY, "no memory for the chat template");
    if (replacement != NULL) {
        enum status opened =
            form_open(replacement, strlen(replacement), c->settings, &c->form, error);
        return opened == ST_OK ? text_keep(c, replacement, strlen(replacement), error) : opened;
    }
    if (text.text == NULL && has_token(v, "<|im_start|>"))
        text = mapped_text_of(chatml);
    if (text.text == NULL || text.bytes == 0) {
        (void)error_set(&c->reason, ST_UNSUPPORTED,
                        "the model has no chat template: use /v1/completions");
        return ST_OK;
    }
    struct error why = {""};
    enum status status = form_open(text.text, text.bytes, c->settings, &c->form, &why);
    if (status == ST_OK && v->template_tools.text != NULL)
        status = form_open(v->template_tools.text, v->template_tools.bytes, c->settings, &c->tools,
                           &why);
    if (status == ST_OK && c->tools.template != NULL)
        text = v->template_tools;
    if (status == ST_OK)
        return text_keep(c, text.text, text.bytes, error);
    template_close(c->form.template);
    c->form.template = NULL;
    return refuse_later(c, status, &why, error);
}

enum status chat_template_open(struct model_file *file, const char *replacement,
                               struct chat_template **out, struct error *error)
{
    const struct vocabulary *v = NULL;
    enum status status = model_file_vocabulary(file, &v, error);
    if (status != ST_OK)
        return status;
    struct chat_template *c = calloc(1, sizeof(*c));
    if (c == NULL)
        return error_set(error, ST_NO_MEMORY, "no memory for the chat template");
    status = chat_open(c, v, replacement, error);
    if (status != ST_OK) {
        chat_template_close(c);
        return status;
    }
    *out = c;
    return ST_OK;
}

void chat_template_close(struct chat_template *c)
{
    if (c == NULL)
        return;
    template_close(c->form.template);
    template_close(c->tools.template);
    json_decref(c->settings);
    free(c->text);
    free(c);
}

const char *chat_template_text(const struct chat_template *c, size_t *bytes_out)
{
    *bytes_out = c->bytes;
    return c->text;
}

/* ---- messages ---- */

/* Joins the texts of parts. Parts that are not text are left out. */
static json_t *parts_join(const json_t *parts)
{
    size_t used = 0, bytes = 1;
    for (size_t i = 0; i < json_array_size(parts); i++)
        bytes += json_string_length(json_object_get(json_array_get(parts, i), "text"));
    char *joined = malloc(bytes);
    for (size_t i = 0; joined != NULL && i < json_array_size(parts); i++) {
        const json_t *text = json_object_get(json_array_get(parts, i), "text");
        if (json_string_length(text) > 0)
            memcpy(joined + used, json_string_value(text), json_string_length(text));
        used += json_string_length(text);
    }
    json_t *result = joined != NULL ? json_stringn_nocheck(joined, used) : NULL;
    free(joined);
    return result;
}

/* The functions below that return bool return false if memory runs out. */

/* Gives the content the form that the template takes. */
static bool content_convert(json_t *message, const struct form *form)
{
    json_t *content = json_object_get(message, "content"), *value;
    bool calls = json_array_size(json_object_get(message, "tool_calls")) > 0;
    if ((content == NULL || json_is_null(content)) && (!calls || form->wants_empty))
        value = json_string("");
    else if (json_is_array(content) && form->wants_text)
        value = parts_join(content);
    else if (json_is_string(content) && form->wants_parts)
        value = json_pack("[{s:s, s:O}]", "type", "text", "text", content);
    else
        return true;
    return json_object_set_new(message, "content", value) == 0;
}

/* Clients send arguments as the text of a JSON object; templates want the object. Another text
 * stays as it is. */
static bool arguments_convert(json_t *calls)
{
    json_error_t why;
    for (size_t i = 0; i < json_array_size(calls); i++) {
        json_t *function = json_object_get(json_array_get(calls, i), "function");
        const json_t *given = json_object_get(function, "arguments");
        if (!json_is_string(given))
            continue;
        const size_t bytes = json_string_length(given);
        json_t *arguments;
        bool good =
            json_text_load(bytes > 0 ? json_string_value(given) : "{}", bytes > 0 ? bytes : 2,
                           JSON_ALLOW_NUL, &arguments, &why) != ST_NO_MEMORY;
        if (json_is_object(arguments))
            good = json_object_set(function, "arguments", arguments) == 0;
        json_decref(arguments);
        if (!good)
            return false;
    }
    return true;
}

/* Gives the result of a tool the name of its call, which some templates write. `calls` are those of
 * the latest message that has any. */
static bool name_fill(json_t *message, const json_t *calls)
{
    const char *id = json_string_value(json_object_get(message, "tool_call_id"));
    if (id == NULL || json_is_string(json_object_get(message, "name")))
        return true;
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const json_t *call = json_array_get(calls, i);
        const char *its = json_string_value(json_object_get(call, "id"));
        json_t *name = json_object_get(json_object_get(call, "function"), "name");
        if (its != NULL && strcmp(its, id) == 0 && name != NULL &&
            json_object_set(message, "name", name) != 0)
            return false;
    }
    return true;
}

/* Reasoning of an earlier answer: clients and templates have several names for it. gpt-oss's
 * template refuses `thinking` beside content and calls. */
static bool reasoning_fill(json_t *message)
{
    static const char *const names[] = {"reasoning_content", "reasoning", "thinking"};
    const bool calls = json_array_size(json_object_get(message, "tool_calls")) > 0;
    const int count = calls && json_string_length(json_object_get(message, "content")) > 0 ? 2 : 3;
    json_t *text = NULL;
    for (int i = 0; i < 3 && text == NULL; i++) {
        json_t *value = json_object_get(message, names[i]);
        text = json_string_length(value) > 0 ? value : NULL;
    }
    for (int i = 0; i < count && text != NULL; i++)
        if (json_string_length(json_object_get(message, names[i])) == 0 &&
            json_object_set(message, names[i], text) != 0)
            return false;
    return true;
}

/* Changes the message, a copy that shares its members with the caller's message. `calls`: those of
 * this message, or of the latest message before it that has any. */
static bool message_convert(json_t *message, const json_t *calls, const struct form *form)
{
    const char *given = json_string_value(json_object_get(message, "role"));
    const char *role = given != NULL ? given : "";
    if (json_is_array(json_object_get(message, "tool_calls")) &&
        (json_object_set_new(message, "tool_calls", json_deep_copy(calls)) != 0 ||
         !arguments_convert(json_object_get(message, "tool_calls"))))
        return false;
    if (strcmp(role, "tool") == 0 && !name_fill(message, calls))
        return false;
    if (strcmp(role, "assistant") == 0 && !reasoning_fill(message))
        return false;
    if (strcmp(role, "developer") == 0 && !form->has_developer &&
        json_object_set_new(message, "role", json_string("system")) != 0)
        return false;
    return content_convert(message, form);
}

/* Returns a copy of the messages, as the template takes them; NULL if memory runs out. */
static json_t *messages_convert(const struct form *form, const json_t *messages)
{
    json_t *list = json_array();
    const json_t *calls = NULL;
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *given = json_array_get(messages, i);
        json_t *message = json_value_copy(given);
        if (json_is_array(json_object_get(given, "tool_calls")))
            calls = json_object_get(given, "tool_calls");
        if (message == NULL || !message_convert(message, calls, form) ||
            json_array_append(list, message) != 0) {
            json_decref(message);
            json_decref(list);
            return NULL;
        }
        json_decref(message);
    }
    return list;
}

/* ---- the end of a prompt that continues the last message ---- */

static const char mark[] = "CONTINUE_FINAL_MESSAGE "; /* As in transformers, with a blank. */

static enum status no_memory(struct error *error)
{
    return error_set(error, ST_NO_MEMORY, "no memory to render the messages");
}

/* Adds the mark to the text of the last message. Returns ST_INVALID if the message has no text. */
static enum status mark_add(json_t *messages, struct error *error)
{
    json_t *message = json_array_get(messages, json_array_size(messages) - 1);
    json_t *content = json_object_get(message, "content");
    const char *key = "content";
    if (json_is_array(content)) { /* The caller's parts must not change. */
        content = json_deep_copy(content);
        if (json_object_set_new(message, key, content) != 0)
            return no_memory(error);
        message = json_array_get(content, json_array_size(content) - 1);
        key = "text";
        content = json_object_get(message, key);
    }
    if (!json_is_string(content))
        return error_set(error, ST_INVALID,
                         "continue_final_message: the last message has no text to continue");
    size_t bytes = json_string_length(content);
    char *text = malloc(bytes + sizeof(mark));
    if (text == NULL)
        return no_memory(error);
    memcpy(text, json_string_value(content), bytes);
    memcpy(text + bytes, mark, sizeof(mark));
    int failed =
        json_object_set_new(message, key, json_stringn_nocheck(text, bytes + sizeof(mark) - 1));
    free(text);
    return failed == 0 ? ST_OK : no_memory(error);
}

static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Cuts the prompt at its last mark. If the template removed the blank of the mark, it also removes
 * blanks of the message. */
static bool mark_cut(struct chat_text *t)
{
    size_t at = t->bytes, bytes = sizeof(mark) - 2;
    while (at > 0 && (t->bytes - at < bytes || memcmp(t->text + at, mark, bytes) != 0))
        at--;
    if (t->bytes < bytes || memcmp(t->text + at, mark, bytes) != 0)
        return false;
    if (t->text[at + bytes] != ' ')
        while (at > 0 && is_blank(t->text[at - 1]))
            at--;
    t->text[at] = 0;
    t->bytes = at;
    while (t->content_count > 0 && t->contents[t->content_count - 1].begin >= at)
        t->content_count--;
    if (t->content_count > 0 && t->contents[t->content_count - 1].end > at)
        t->contents[t->content_count - 1].end = at;
    return true;
}

/* ---- rendering ---- */

/* Returns the variables of the template; NULL if memory runs out. */
static json_t *inputs_new(const struct chat_request *request, json_t *messages)
{
    json_t *null = json_null();
    json_t *tools = request->tools != NULL ? request->tools : null;
    json_t *documents = request->documents != NULL ? request->documents : null;
    json_t *inputs =
        request->variables != NULL ? json_value_copy(request->variables) : json_object();
    if (json_object_set(inputs, "messages", messages) == 0 &&
        json_object_set(inputs, "tools", tools) == 0 &&
        json_object_set(inputs, "documents", documents) == 0 &&
        json_object_set(inputs, "add_generation_prompt",
                        json_boolean(request->add_generation_prompt)) == 0)
        return inputs;
    json_decref(inputs);
    return NULL;
}

/* Takes over the output's text. */
static enum status text_take(const struct chat_template *c, struct template_output *from,
                             struct chat_text *out, struct error *error)
{
    struct chat_text t = {.bytes = from->bytes};
    const json_t *bos = json_object_get(c->settings, "bos_token");
    size_t bos_bytes = json_string_length(bos);
    t.contents = malloc((from->input_count + 1) * sizeof(*t.contents));
    if (t.contents == NULL)
        return error_set(error, ST_NO_MEMORY, "no memory for a prompt of %zu bytes", from->bytes);
    for (size_t i = 0; i < from->input_count; i++)
        t.contents[i] = (struct tokenizer_range){from->inputs[i].begin, from->inputs[i].end};
    t.content_count = from->input_count;
    t.text = from->text;
    from->text = NULL;
    t.begins_with_bos = bos_bytes > 0 && t.bytes >= bos_bytes &&
                        memcmp(t.text, json_string_value(bos), bos_bytes) == 0 &&
                        (t.content_count == 0 || t.contents[0].begin >= bos_bytes);
    *out = t;
    return ST_OK;
}

static enum status render(const struct chat_template *c, const struct form *form,
                          const struct chat_request *request, json_t *messages,
                          struct chat_text *out, struct error *error)
{
    struct template_output text = {0};
    if (messages == NULL)
        return no_memory(error);
    enum status status = request->continue_final_message ? mark_add(messages, error) : ST_OK;
    if (status != ST_OK)
        return status;
    json_t *inputs = inputs_new(request, messages);
    if (inputs == NULL)
        return no_memory(error);
    status = template_render(form->template, inputs, c->settings, request->now,
                             &template_limits_default, &text, error);
    json_decref(inputs);
    if (status == ST_OK)
        status = text_take(c, &text, out, error);
    template_output_done(&text);
    if (status == ST_OK && request->continue_final_message && !mark_cut(out)) {
        chat_text_done(out);
        status = error_set(error, ST_INVALID,
                           "continue_final_message: the chat template leaves the last message out");
    }
    return status;
}

enum status chat_render(const struct chat_template *c, const struct chat_request *request,
                        struct chat_text *out, struct error *error)
{
    struct form own = {0};
    const bool tools = c->tools.template != NULL && json_array_size(request->tools) > 0;
    const struct form *form = tools ? &c->tools : &c->form;
    const json_t *text = request->template_text;
    if (text != NULL) {
        enum status status =
            form_open(json_string_value(text), json_string_length(text), c->settings, &own, error);
        if (status != ST_OK)
            return status;
        form = &own;
    }
    if (form->template == NULL)
        return error_set(error, ST_UNSUPPORTED, "%s", c->reason.text);
    json_t *messages = messages_convert(form, request->messages);
    enum status status = render(c, form, request, messages, out, error);
    json_decref(messages);
    template_close(own.template);
    return status;
}

void chat_text_done(struct chat_text *text)
{
    free(text->text);
    free(text->contents);
    *text = (struct chat_text){0};
}
