/* chat: renders chat messages as the text of a prompt with the model's own chat template, which
 * model/template executes. The gateway opens one chat_template for each model; an open
 * chat_template does not change, so any thread may render. The limits of template_render bound a
 * rendering. It does not tokenize (tokenizer.h) and does not check messages of clients
 * (server/api/request.h). */
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
 * of them. NULL = none. */
struct chat_request {
    json_t
        *messages; /* List of objects with `role` and `content`: a text, a list of parts, null. */
    json_t *tools;
    json_t *documents;
    json_t *variables;           /* Object with more variables. */
    json_t *template_text;       /* A text that replaces the model's template. */
    bool add_generation_prompt;  /* The prompt ends with the beginning of an answer. */
    bool continue_final_message; /* The prompt ends with the text of the last message. */
    time_t now;                  /* Time for templates that write the date. */
};

/* Compiles the model's template (and that for requests with tools, "tool_use", if it has one), or
 * the text `instead`, of which nothing is kept. NULL = the model's. A model without a template gets ChatML if its vocabulary has <|im_start|>. If there is
 * no template, or it does not compile, this function returns ST_OK, and chat_render returns
 * ST_UNSUPPORTED with the reason; with `instead` it returns ST_INVALID. *out does not use `file`
 * after the call. */
enum status chat_template_open(struct model_file *file, const char *instead,
                               struct chat_template **out, struct error *error);
void chat_template_close(struct chat_template *c); /* NULL is fine. */
/* Returns the text of the template for requests with tools, which `c` owns; 0 bytes = there is none that can be used. */
const char *chat_template_text(const struct chat_template *c, size_t *bytes_out);

/* A prompt as text. All zeros = no prompt. */
struct chat_text {
    char *text; /* NUL-terminated. */
    size_t bytes;
    /* Where texts of the request are (contents, tools, variables; no usual roles). The template
     * wrote the rest. In ascending order, without overlaps. */
    struct tokenizer_range *contents;
    size_t content_count;
    bool begins_with_bos; /* The template wrote BOS first. */
};

/* Renders the messages. Texts of parts are joined, or texts made parts, if the template takes only
 * the other form; `developer` becomes `system` in templates without the word; arguments of tool
 * calls become objects; a result of a tool without a `name` gets that of its call; reasoning of
 * earlier answers is there under all names that templates use. The caller frees *out with chat_text_done. Returns ST_INVALID with the text
 * of the template's own error; ST_TOO_LARGE if a limit was exceeded. */
enum status chat_render(const struct chat_template *c, const struct chat_request *request,
                        struct chat_text *out, struct error *error);
void chat_text_done(struct chat_text *text);

#endif
