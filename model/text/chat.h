/* chat: turns chat messages into the prompt text of a model's chat template. It does not interpret
 * Jinja: it recognises the common families (ChatML, SmolLM2's ChatML with its default system
 * message, Llama 2, Llama 3, Mistral, Qwen) in the template that the model's files carry. The
 * gateway opens one for each model; any thread may render. It does not tokenize (tokenizer.h). */
#ifndef MODEL_TEXT_CHAT_H
#define MODEL_TEXT_CHAT_H

#include "common/status.h"
#include "model/file/model_file.h"
#include "model/text/tokenizer.h"

#include <stddef.h>

struct chat_template;

struct chat_message {
    const char *role; /* "system", "user" or "assistant"; "developer" is treated as "system". */
    const char *content;
    size_t content_bytes;
};

/* Finds the family of the model's template. A model without a template is ChatML if its vocabulary
 * has <|im_start|>. If no family matches, opening succeeds and chat_render returns ST_UNSUPPORTED,
 * so completions still work. */
enum status chat_template_open(struct model_file *file, struct chat_template **out,
                               struct error *error);
void chat_template_close(struct chat_template *c); /* NULL is fine. */

/* A prompt as text. All zeros = none. */
struct chat_text {
    char *text; /* NUL-terminated. */
    size_t bytes;
    /* Where the contents of the messages are. The rest was written by the template. */
    struct tokenizer_range *contents;
    size_t content_count;
};

/* Renders the messages, followed by the generation prompt. BOS is not included (tokenizer_encode
 * adds it). The caller calls chat_text_done. ST_INVALID: an unknown role, or roles that do not
 * alternate where the family demands it; the error names the message's index. */
enum status chat_render(const struct chat_template *c, const struct chat_message *messages,
                        size_t count, struct chat_text *out, struct error *error);
void chat_text_done(struct chat_text *text);

#endif
