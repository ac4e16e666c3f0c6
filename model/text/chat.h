/* chat: renders chat messages as the text of a prompt, with a chat template (the model's own, the
 * operator's or the request's), which model/template/ executes. server/api/served_model.c opens one
 * chat_template for each model; the gateway's text threads render. An open chat_template does not
 * change, so any thread may render. A rendering has the limits template_limits_default. It does not
 * tokenize (tokenizer.h) and does not check the messages of clients (server/api/request.h). */
#ifndef MODEL_TEXT_CHAT_H
#define MODEL_TEXT_CHAT_H

#include "common/status.h"
#include "model/file/model_file.h"
#include "model/text/tokenizer.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <time.h>

struct chat_template;

/* A conversation, as the template's variables. The caller owns all values; chat_render changes none
 * of them. `tools` and `documents` NULL = the template's variable is none (null). */
struct chat_request {
    /* List of objects with `role` and `content`: a text, a list of parts, or null. */
    json_t *messages;
    json_t *tools;               /* List of the tools that the model may call. */
    json_t *documents;           /* List of documents, for templates that use them. */
    json_t *variables;           /* Object with more variables; NULL = none. */
    json_t *template_text;       /* String that replaces the opened template; NULL = none. */
    bool add_generation_prompt;  /* The prompt ends with the beginning of an answer. */
    bool continue_final_message; /* The prompt ends with the text of the last message. */
    time_t now;                  /* Time for templates that write the date. */
};

/* Compiles the template text `replacement`, which is used only during the call. NULL = compiles the
 * model's own template, and its template "tool_use" for requests with tools, if it has one. A model
 * without a template gets ChatML if its vocabulary has <|im_start|>. If the model has no template,
 * or one that does not compile, the function nevertheless returns ST_OK, and chat_render returns
 * ST_UNSUPPORTED with the reason. Returns the errors of model_file_vocabulary; the errors of
 * template_compile for `replacement`; ST_NO_MEMORY. *out does not use `file` after the call. */
enum status chat_template_open(struct model_file *file, const char *replacement,
                               struct chat_template **out, struct error *error);
void chat_template_close(struct chat_template *c); /* NULL is fine. */
/* Returns the text of the template for requests with tools, or of the only template; `c` owns the
 * text. 0 bytes = no template can be used. */
const char *chat_template_text(const struct chat_template *c, size_t *bytes_out);

/* A prompt as text. All zeros = no prompt. */
struct chat_text {
    char *text; /* NUL-terminated. */
    size_t bytes;
    /* [content_count] ranges of `text` that come from the request (contents, tools, variables; not
     * the usual roles), in ascending order, without overlaps. The template wrote the rest. */
    struct tokenizer_range *contents;
    size_t content_count;
    bool begins_with_bos; /* The template wrote BOS first. */
};

/* Renders the messages, after these changes to a copy:
 * - If the template reads only texts, the parts of a content are joined; if it reads only parts, a
 *   text becomes a part. A missing content becomes "" unless the message has tool calls and the
 *   template takes them without content.
 * - The role `developer` becomes `system` if the template does not have the word.
 * - The arguments of tool calls become objects. A tool's result without `name` gets the name of its
 *   call.
 * - Reasoning of earlier answers is stored under the names that templates use.
 * The caller frees *out with chat_text_done. Returns ST_INVALID with the text of the template's own
 * error or if the last message cannot be continued, ST_TOO_LARGE if a limit is exceeded,
 * ST_UNSUPPORTED (chat_template_open), ST_NO_MEMORY, or an error of template_compile for
 * template_text. */
enum status chat_render(const struct chat_template *c, const struct chat_request *request,
                        struct chat_text *out, struct error *error);
void chat_text_done(struct chat_text *text);

#endif
