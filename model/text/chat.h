/* chat: renders chat messages as the text of a prompt, with a chat template: the model's own, the
 * operator's or the request's. A struct chat_template owns a model's compiled templates
 * (model/template/). The gateway opens a chat_template for each model, and renders on its text
 * threads. An open chat_template does not change, so any thread may render. This part does not
 * tokenize (tokenizer.h) and does not check the messages of clients. */
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

/* A conversation to render. The caller owns all values; chat_render changes none of them. */
struct chat_request {
    /* List of objects with `role` and `content`: a text, a list of parts, or null. */
    json_t *messages;
    json_t *tools;     /* List of the tools that the model may call; NULL = none. */
    json_t *documents; /* List of documents, for templates that use them; NULL = none. */
    json_t *variables; /* Object with more variables of the template; NULL = none. */
    /* String: the request's own template; NULL = the template of the struct chat_template. */
    json_t *template_text;
    bool add_generation_prompt;  /* The prompt ends with the beginning of an answer. */
    bool continue_final_message; /* The prompt ends with the text of the last message. */
    time_t now;                  /* Time for templates that write the date. */
};

/* Compiles the template `replacement`, a text that is used only during the call. NULL = compiles
 * the model's own template, and the model's template for requests with tools, if there is one. A
 * model without a template gets the template ChatML if its vocabulary has <|im_start|>. *out does
 * not use `file` after the call.
 *
 * Returns the errors of model_file_vocabulary; the errors of template_compile for `replacement`;
 * ST_NO_MEMORY. If the model has no template, or one of the model's two templates does not compile,
 * the function returns ST_OK, and chat_render returns ST_UNSUPPORTED with the reason for requests
 * without template_text. */
enum status chat_template_open(struct model_file *file, const char *replacement,
                               struct chat_template **out, struct error *error);
void chat_template_close(struct chat_template *c); /* NULL is fine. */
/* Returns the text of the template for requests with tools, or of the only template. `c` owns the
 * text. NULL, with *bytes_out 0 = no template can be used. */
const char *chat_template_text(const struct chat_template *c, size_t *bytes_out);

/* A prompt as text. All zeros = no prompt. */
struct chat_text {
    char *text;   /* NUL-terminated. */
    size_t bytes; /* Bytes of `text` without the NUL. */
    /* [content_count] ranges of `text`, in ascending order, without overlaps. They hold two kinds
     * of bytes: bytes from strings of the request (except the usual role names, such as "user"),
     * and bytes that the template's escaping has added (template_output.inputs). */
    struct tokenizer_range *contents;
    size_t content_count;
    bool begins_with_bos; /* The template wrote the text of the token BOS first. */
};

/* Renders the messages, within the limits template_limits_default, after these changes to a copy:
 * - If the template reads only texts, the text parts of a content are joined. If the template reads
 *   only parts, a text becomes a part.
 * - A missing or null content becomes "". Exception: a message with tool calls stays without
 *   content if the template accepts that.
 * - The role `developer` becomes `system` if the template does not have the word `developer`.
 * - Arguments of tool calls that are the text of a JSON object become the object; an empty text
 *   becomes an empty object. A tool's result without `name` gets the name of its call.
 * - Reasoning of earlier answers is stored under all names that templates use for it, except
 *   `thinking` in a message with content and tool calls.
 * The caller frees *out with chat_text_done. Returns ST_INVALID if the template fails or the last
 * message cannot be continued; ST_TOO_LARGE if a limit is exceeded; ST_UNSUPPORTED if the model has
 * no template that can be used; ST_NO_MEMORY; an error of template_compile for template_text. After
 * an error, *out is unchanged or all zeros. */
enum status chat_render(const struct chat_template *c, const struct chat_request *request,
                        struct chat_text *out, struct error *error);
void chat_text_done(struct chat_text *text); /* Frees the text and the ranges. */

#endif
