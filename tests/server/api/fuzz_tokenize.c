/* fuzz_tokenize: no body of /tokenize or /detokenize does harm; an answer is JSON, and its token
 * ids are accepted again. Method: each body goes through both, with a byte-level and a
 * SentencePiece vocabulary, and with each treatment of control tokens. */
#include "server/api/tokenize.h"

#include "tests/check.h"
#include "tests/fuzz.h"
#include "tests/fuzz_input.h"
#include "tests/model/file/gguf_vocabulary.h"

#include <jansson.h>

static struct api_tokenize with[2];

static void models_open(void)
{
    static const char chat[] =
        "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}"
        "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant{% endif %}";
    for (int i = 0; i < 2; i++) {
        struct tokenizer *tokenizer;
        struct chat_template *template;
        struct error error;
        uint8_t *image;
        struct model_file *file = gguf_vocabulary_open(i == 0 ? "smollm" : NULL, chat, &image);
        CHECKF(tokenizer_open(file, &tokenizer, &error) == ST_OK, "%s", error.text);
        CHECKF(chat_template_open(file, NULL, &template, &error) == ST_OK, "%s", error.text);
        model_file_close(file);
        free(image);
        with[i].encode = (struct api_encode){.tokenizer = tokenizer, .chat = template};
        with[i].context_tokens = 100;
    }
}

/* The ids of an answer of /tokenize are a body of /detokenize. */
static void check_answer(const struct api_tokenize *model, const struct text *answer)
{
    struct text again = {0};
    struct api_error error;
    json_error_t wrong;
    json_t *root = json_loadb(answer->data, answer->bytes, JSON_ALLOW_NUL, &wrong);
    CHECKF(root != NULL, "%s in %.*s", wrong.text, (int)answer->bytes, answer->data);
    json_t *tokens = json_object_get(root, "tokens");
    CHECK((json_int_t)json_array_size(tokens) ==
          json_integer_value(json_object_get(root, "count")));
    char *body = json_dumps(json_object_get(root, "tokens") != NULL ? root : tokens, 0);
    CHECK(body != NULL);
    CHECKF(api_detokenize(model, body, strlen(body), &again, &error) ||
               json_array_size(tokens) == 0,
           "%s", error.message);
    free(body);
    text_done(&again);
    json_decref(root);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (with[0].context_tokens == 0)
        models_open();
    char *body = fuzz_copy(data, size);
    for (int i = 0; i < 6; i++) {
        struct text answer = {0};
        struct api_error error = {0};
        with[i % 2].encode.control = (enum api_control_tokens)(i / 2);
        if (api_tokenize(&with[i % 2], body, size, &answer, &error))
            check_answer(&with[i % 2], &answer);
        else
            CHECK(error.status >= 400 && error.status < 600 && error.message[0] != 0);
        text_done(&answer);
        if (!api_detokenize(&with[i % 2], body, size, &answer, &error))
            CHECK(error.status >= 400 && error.status < 600 && error.message[0] != 0);
        text_done(&answer);
    }
    free(body);
    return 0;
}

size_t fuzz_seed(unsigned index, uint8_t *buffer, size_t capacity)
{
    static const char *const seeds[] = {
        "{\"prompt\": \"abc <|im_start|> \\u00e9\\u0000\", \"add_special_tokens\": false, "
        "\"return_token_strs\": true, \"model\": \"m\"}",
        "{\"messages\": [{\"role\": \"system\", \"content\": \"s\"}, {\"role\": \"user\", "
        "\"content\": "
        "[{\"type\": \"text\", \"text\": \"<|endoftext|>\"}]}, {\"role\": \"assistant\", "
        "\"content\": "
        "\"a\"}]}",
        "{\"tokens\": [1, 200, 256, 259, 260, 128, 195, 169]}",
        "{\"tokens\": [261]}",
    };
    return fuzz_seed_text(seeds, sizeof(seeds) / sizeof(seeds[0]), index, buffer, capacity);
}
