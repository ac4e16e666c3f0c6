/* file_exercise: see the header. */
#include "tests/model/file/file_exercise.h"

#include "model/forward/model.h"
#include "model/template/template.h"
#include "model/text/chat.h"
#include "model/text/tokenizer.h"

#include <stdlib.h>
#include <string.h>

static volatile uint64_t sink;

static void use_tokenizer(const struct tokenizer *t)
{
    static const char text[] = "abc ab <|endoftext|> \xc3\xa9 12  \n<|im_start|>";
    struct tokenizer_encode_options options = {.parse_special = true, .add_bos = true};
    struct detokenizer d = {0};
    uint32_t *ids = NULL;
    size_t capacity = 0;
    size_t count = 0;
    struct error error = {""};
    enum status status =
        tokenizer_encode(t, text, sizeof(text) - 1, &options, &ids, &capacity, &count, &error);
    if (status != ST_OK && error.text[0] == 0)
        abort();
    for (size_t i = 0; i < count && status == ST_OK; i++) {
        size_t bytes = 0;
        if (tokenizer_piece(t, ids[i], &bytes) == NULL)
            abort(); /* an id out of range */
        char *out = malloc(DETOKENIZER_OUT_BYTES(bytes));
        if (out == NULL ||
            detokenizer_feed(&d, t, ids[i], false, out) > DETOKENIZER_OUT_BYTES(bytes))
            abort();
        free(out);
    }
    free(ids);
}

/* ---- chat templates ---- */

enum status __real_template_compile(const char *text, size_t bytes, struct template **out,
                                    struct error *error);
enum status __wrap_template_compile(const char *text, size_t bytes, struct template **out,
                                    struct error *error);

/* Replaces the template of a file by one of a few, which its length chooses. Else the targets would
 * look for the words of the template language, which fuzz_template does. */
enum status __wrap_template_compile(const char *text, size_t bytes, struct template **out,
                                    struct error *error)
{
    static const char *const few[] = {
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
        "{{ bos_token }}{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}"
        "[{{ m.role }}]{{ m.content }}{% if m.tool_calls %}{{ m.tool_calls | tojson }}{% endif %}"
        "{{ eos_token }}{% endfor %}",
        "{{ messages[1].content }}",
        "{{ raise_exception('no') }}",
        "{{",
    };
    (void)text;
    const char *chosen = few[bytes % (sizeof(few) / sizeof(few[0]))];
    return __real_template_compile(chosen, strlen(chosen), out, error);
}

static void use_chat(const struct chat_template *c)
{
    json_t *messages =
        json_pack("[{s:s, s:s}, {s:s, s:s}, {s:s, s:s}]", "role", "system", "content", "s", "role",
                  "user", "content", " u ", "role", "assistant", "content", "a");
    const struct chat_request request = {.messages = messages, .add_generation_prompt = true};
    struct error error = {""};
    struct chat_text chat = {0};
    if (chat_render(c, &request, &chat, &error) == ST_OK && chat.bytes > 0)
        sink += (unsigned char)chat.text[chat.bytes - 1];
    else if (error.text[0] == 0)
        abort();
    chat_text_done(&chat);
    json_decref(messages);
}

void file_exercise(struct model_file *file)
{
    struct error error = {""};
    struct tokenizer *t = NULL;
    struct chat_template *c = NULL;
    struct model_hyper hyper;
    if (tokenizer_open(file, &t, &error) == ST_OK)
        use_tokenizer(t);
    else if (error.text[0] == 0)
        abort();
    tokenizer_close(t);
    error.text[0] = 0;
    if (chat_template_open(file, NULL, &c, &error) == ST_OK)
        use_chat(c);
    else if (error.text[0] == 0)
        abort();
    chat_template_close(c);
    error.text[0] = 0;
    if (model_hyper_read(file, &hyper, &error) != ST_OK && error.text[0] == 0)
        abort();
}
