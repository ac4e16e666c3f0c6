/* Goal: messages become the prompt that the model's own template makes of them. Method:
 * conversations that Jinja rendered beforehand (chat_renderings.inc), for templates in the form of
 * each family; the reference's prompts of the default model, down to token ids; wrong messages. */
#include "model/text/chat.h"
#include "model/text/tokenizer.h"
#include "tests/check.h"
#include "tests/model/file/gguf_writer.h"

#include <jansson.h>
#include <string.h>

#include "tests/model/text/chat_renderings.inc"

#define MESSAGES_MAX 16

static struct chat_template *open_template(const char *architecture, const char *template,
                                           bool with_marker)
{
    static const char *const tokens[] = {"<s>", "</s>", "<|im_start|>"};
    struct model_file *g = NULL;
    struct chat_template *c = NULL;
    struct error error = {""};
    size_t bytes;
    struct gguf_writer *w = gguf_writer_open(3, 0);
    gguf_writer_string(w, "general.architecture", architecture);
    gguf_writer_string(w, "tokenizer.ggml.model", "llama");
    gguf_writer_string_array(w, "tokenizer.ggml.tokens", tokens, with_marker ? 3 : 2);
    gguf_writer_f32_array(w, "tokenizer.ggml.scores", (const float[]){0, 0, 0},
                          with_marker ? 3 : 2);
    gguf_writer_u32(w, "tokenizer.ggml.bos_token_id", 0);
    gguf_writer_u32(w, "tokenizer.ggml.eos_token_id", 1);
    if (template != NULL)
        gguf_writer_string(w, "tokenizer.chat_template", template);
    uint8_t *file = gguf_writer_finish(w, &bytes);
    CHECKF(model_file_open_memory(file, bytes, "c.gguf", &g, &error) == ST_OK, "%s", error.text);
    CHECKF(chat_template_open(g, &c, &error) == ST_OK, "%s", error.text);
    model_file_close(g); /* it must have copied what it needs */
    free(file);
    return c;
}

static struct model_file *open_default(void)
{
    struct model_file *g = NULL;
    struct error error = {""};
    CHECKF(model_file_open(test_model_path(), &g, &error) == ST_OK, "%s", error.text);
    return g;
}

/* ROLE \x1f TEXT \x1e …, cut in place. */
static size_t read_messages(char *text, struct chat_message *messages)
{
    size_t count = 0;
    while (*text != 0) {
        char *content = strchr(text, 0x1f);
        CHECK(content != NULL && count < MESSAGES_MAX);
        *content++ = 0;
        char *end = strchr(content, 0x1e);
        CHECK(end != NULL);
        *end = 0;
        messages[count++] = (struct chat_message){text, content, (size_t)(end - content)};
        text = end + 1;
    }
    return count;
}

static void check_rendering(const struct chat_template *c, const char *name,
                            const char *conversation, const char *expected)
{
    struct chat_message messages[MESSAGES_MAX];
    struct error error = {""};
    char *text = NULL;
    size_t bytes = 0;
    char *copy = strdup(conversation);
    CHECK(copy != NULL);
    size_t count = read_messages(copy, messages);
    CHECKF(chat_render(c, messages, count, &text, &bytes, &error) == ST_OK, "%s", error.text);
    CHECKF(bytes == strlen(expected) && strcmp(text, expected) == 0, "%s:\n  got  %s\n  want %s",
           name, text, expected);
    free(text);
    free(copy);
}

static void test_renderings(unsigned first, unsigned last)
{
    for (unsigned i = first; i < last; i++) {
        struct chat_template *c = NULL;
        struct error error = {""};
        unsigned compared = 0;
        if (templates[i].template != NULL) {
            c = open_template(templates[i].architecture, templates[i].template, false);
        } else {
            struct model_file *g = open_default();
            CHECKF(chat_template_open(g, &c, &error) == ST_OK, "%s", error.text);
            model_file_close(g);
        }
        for (size_t k = 0; k < sizeof(conversations) / sizeof(conversations[0]); k++) {
            if (conversations[k].template != i)
                continue;
            check_rendering(c, templates[i].family, conversations[k].messages,
                            conversations[k].text);
            compared++;
        }
        CHECK(compared >= 4);
        chat_template_close(c);
    }
}

/* The prompts of the reference that are chats: ours has the same text and the same token ids. */
static void test_reference(void)
{
    struct model_file *g = open_default();
    struct tokenizer *t = NULL;
    struct chat_template *c = NULL;
    struct error error = {""};
    unsigned chats = 0;
    CHECKF(tokenizer_open(g, &t, &error) == ST_OK, "%s", error.text);
    CHECKF(chat_template_open(g, &c, &error) == ST_OK, "%s", error.text);
    json_t *greedy = json_load_file(test_data_path("model/greedy.json"), 0, NULL);
    CHECK(greedy != NULL);
    json_t *cases = json_object_get(greedy, "cases");
    for (size_t i = 0; i < json_array_size(cases); i++) {
        json_t *entry = json_array_get(cases, i);
        const char *prompt = json_string_value(json_object_get(entry, "prompt"));
        json_t *ids = json_object_get(entry, "prompt_ids");
        const char *user = strstr(prompt, "<|im_start|>user\n");
        struct tokenizer_encode_options options = {.parse_special = true, .add_bos = true};
        struct chat_message message = {.role = "user"};
        uint32_t *got = NULL;
        char *text = NULL;
        size_t bytes = 0;
        size_t capacity = 0;
        size_t count = 0;
        if (user == NULL)
            continue;
        message.content = user + strlen("<|im_start|>user\n");
        message.content_bytes = (size_t)(strstr(message.content, "<|im_end|>") - message.content);
        CHECKF(chat_render(c, &message, 1, &text, &bytes, &error) == ST_OK, "%s", error.text);
        CHECKF(strcmp(text, prompt) == 0, "got %s, want %s", text, prompt);
        CHECK(tokenizer_encode(t, text, bytes, &options, &got, &capacity, &count, &error) == ST_OK);
        CHECK(count == json_array_size(ids));
        for (size_t k = 0; k < count; k++)
            CHECK(got[k] == (uint32_t)json_integer_value(json_array_get(ids, k)));
        free(text);
        free(got);
        chats++;
    }
    CHECK(chats == 2);
    json_decref(greedy);
    chat_template_close(c);
    tokenizer_close(t);
    model_file_close(g);
}

static void expect_refused(const struct chat_template *c, const char *conversation,
                           enum status status, const char *expected)
{
    struct chat_message messages[MESSAGES_MAX];
    struct error error = {""};
    char *text = NULL;
    size_t bytes = 0;
    char *copy = strdup(conversation);
    CHECK(copy != NULL);
    size_t count = read_messages(copy, messages);
    CHECK(chat_render(c, messages, count, &text, &bytes, &error) == status && text == NULL);
    CHECKF(strstr(error.text, expected) != NULL, "\"%s\" lacks \"%s\"", error.text, expected);
    free(copy);
}

static void test_wrong_messages(void)
{
    struct chat_template *c = open_template("llama", "<|im_start|>", false);
    expect_refused(c, "", ST_INVALID, "messages: want at least one");
    expect_refused(c, "user\x1fhi\x1ero\xc3\xb6le\x1fx\x1e", ST_INVALID,
                   "messages[1]: role 'ro??le': want system, developer, user or assistant");
    check_rendering(c, "developer",
                    "developer\x1f"
                    "be brief\x1e"
                    "user\x1fhi\x1e",
                    "<|im_start|>system\nbe brief<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n"
                    "<|im_start|>assistant\n");
    chat_template_close(c);

    c = open_template("llama", "{{ '[INST] <<SYS>>' }}", false);
    expect_refused(c, "system\x1fx\x1e", ST_INVALID, "messages[0]: want a message of role user");
    expect_refused(c, "assistant\x1fx\x1e", ST_INVALID,
                   "messages[0]: role 'assistant': want 'user'");
    expect_refused(c, "system\x1fx\x1euser\x1fx\x1euser\x1fx\x1e", ST_INVALID,
                   "messages[2]: role 'user': want 'assistant'");
    expect_refused(c,
                   "user\x1fx\x1e"
                   "assistant\x1fx\x1esystem\x1fx\x1e",
                   ST_INVALID, "messages[2]: role 'system': want 'user'");
    chat_template_close(c);
}

static void test_without_template(void)
{
    struct chat_template *c = open_template("llama", NULL, true);
    check_rendering(c, "chatml", "user\x1fhi\x1e",
                    "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
    chat_template_close(c);
    static const char *const unknown[] = {NULL, "", "{{ '<|user|>' }}", "[INST] [SYSTEM_PROMPT]"};
    for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++) {
        c = open_template("llama", unknown[i], false);
        expect_refused(c, "user\x1fhi\x1e", ST_UNSUPPORTED, "no chat template of a known family");
        chat_template_close(c);
    }
    chat_template_close(NULL);
}

/* Templates that stop in the middle of anything must not be read beyond their end (ASan). */
static void test_cut_templates(void)
{
    for (size_t i = 0; i < sizeof(templates) / sizeof(templates[0]); i++) {
        char *cut = templates[i].template != NULL ? strdup(templates[i].template) : NULL;
        for (size_t bytes = cut != NULL ? strlen(cut) : 0; bytes > 0; bytes--) {
            cut[bytes] = 0;
            chat_template_close(open_template("llama", cut, false));
        }
        free(cut);
    }
}

int main(void)
{
    test_wrong_messages();
    test_without_template();
    test_cut_templates();
    test_renderings(1, sizeof(templates) / sizeof(templates[0]));
    test_renderings(0, 1); /* the default model's: skips where the file is not there */
    test_reference();
    return 0;
}
