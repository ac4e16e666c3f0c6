/* chat: turns messages into the prompt text of a model's chat template. The common families are
 * recognised in the template that the model's files carry (ChatML, SmolLM2's ChatML with its
 * default system message, Llama 2, Llama 3, Mistral, Qwen); it does not interpret Jinja. Any
 * thread. */
#ifndef MODEL_CHAT_H
#define MODEL_CHAT_H

#include "common/status.h"
#include "model/model_file.h"

#include <stddef.h>

struct chat_template;

struct chat_message {
    const char *role; /* "system", "user", "assistant" (also "developer": as system) */
    const char *content;
    size_t content_bytes;
};

/* A file without a template: ChatML when its vocabulary has <|im_start|>, else ST_UNSUPPORTED is
 * returned by chat_render, not here: completions still work. */
enum status chat_template_open(struct model_file *file, struct chat_template **out,
                               struct error *error);
void chat_template_close(struct chat_template *c);               /* NULL is fine */
const char *chat_template_family(const struct chat_template *c); /* "chatml", "llama3", …, "none" */

/* Renders with the generation prompt at the end, BOS not included (tokenizer_encode adds it). The
 * text is malloc'ed: free(*text_out). ST_INVALID names the message's index and what is wrong (an
 * unknown role, roles that do not alternate where the family wants it). */
enum status chat_render(const struct chat_template *c, const struct chat_message *messages,
                        size_t count, char **text_out, size_t *bytes_out, struct error *error);

#endif
