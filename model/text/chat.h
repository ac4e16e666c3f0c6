/* chat: renders chat messages as the text of a prompt, in the form of the model's chat template. It
 * does not interpret Jinja: it recognises the template's family (ChatML, with the default system
 * messages of SmolLM2 and Qwen; Llama 2; Llama 3; Mistral). The gateway opens one chat_template for
 * each model and renders on its text threads; an open chat_template does not change, so any thread
 * may render. It does not tokenize (tokenizer.h). */
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
 * has <|im_start|>. If no family matches, this function returns ST_OK, and chat_render returns
 * ST_UNSUPPORTED. *out does not use `file` after the call. */
enum status chat_template_open(struct model_file *file, struct chat_template **out,
                               struct error *error);
void chat_template_close(struct chat_template *c); /* NULL is fine. */

/* A prompt as text. All zeros = no prompt. */
struct chat_text {
    char *text; /* NUL-terminated. */
    size_t bytes;
    /* Where the contents of the messages are. The template wrote the rest. */
    struct tokenizer_range *contents;
    size_t content_count;
};

/* Renders the messages, followed by the beginning of the assistant's reply. BOS at the beginning is
 * not included (tokenizer_encode adds it). The caller frees *out with chat_text_done. Returns
 * ST_INVALID, with the message's index, for no messages, an unknown role, or roles that do not
 * alternate as the family requires. */
enum status chat_render(const struct chat_template *c, const struct chat_message *messages,
                        size_t count, struct chat_text *out, struct error *error);
void chat_text_done(struct chat_text *text);

#endif
