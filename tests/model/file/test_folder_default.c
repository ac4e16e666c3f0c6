/* Goal: the default model as a folder of BF16 safetensors is the same model: the logits of its BF16
 * GGUF to the bit, the same tokens for every text of the reference, the same chats. Method: both
 * are written from the default file; prompts of tests/data/model. */
#include "tests/check.h"
#include "tests/model/file/file_gguf.h"
#include "tests/model/file/folder_writer.h"
#include "tests/model/forward/engine.h"
#include "tests/model/forward/greedy.h"

#include "model/text/chat.h"
#include "model/text/tokenizer.h"

#include <jansson.h>
#include <string.h>

#define ROWS_MAX 512
#define CASES    6

static void open_engine(struct model_file *file, struct engine *out)
{
    const struct engine_options options = {
        .threads = 2,
        .dtype = COMPUTE_KV_I16,
        .block_tokens = 16,
        .block_count = ROWS_MAX / 16,
        .rows_max = ROWS_MAX,
        .logits_max = 64,
    };
    engine_open(file, &options, out);
}

static void check_logits(struct model_file *gguf, struct model_file *folder)
{
    struct greedy_case *cases;
    uint32_t count = greedy_read(&cases), rows = 0;
    struct engine a, b;
    open_engine(gguf, &a);
    open_engine(folder, &b);
    CHECK(model_weight_bytes(a.models[0]) == model_weight_bytes(b.models[0]));
    for (uint32_t i = 0; i < count && i < CASES; i++) {
        uint32_t ids = cases[i].prompt_count + cases[i].step_count - 1;
        uint32_t from = cases[i].prompt_count - 1;
        const float *x = engine_run(&a, cases[i].ids, ids, 0, from);
        const float *y = engine_run(&b, cases[i].ids, ids, 0, from);
        CHECKF(memcmp(x, y, (size_t)(ids - from) * a.hyper->vocab * sizeof(float)) == 0, "case %u",
               i);
        rows += ids - from;
    }
    printf("%u rows of logits are the GGUF's to the bit\n", rows);
    CHECK(rows > 0);
    engine_close(&a);
    engine_close(&b);
    greedy_free(cases, count);
}

static size_t check_text(const struct tokenizer *t, const char *text, size_t bytes,
                         const json_t *wanted)
{
    const struct tokenizer_encode_options options = {.parse_special = true};
    struct error error = {""};
    uint32_t *ids = NULL;
    size_t capacity = 0, count = 0;
    CHECK(tokenizer_encode(t, text, bytes, &options, &ids, &capacity, &count, &error) == ST_OK);
    CHECKF(count == json_array_size(wanted), "'%s'", text);
    for (size_t i = 0; i < count; i++)
        CHECKF(ids[i] == json_integer_value(json_array_get(wanted, i)), "'%s'", text);
    free(ids);
    return count;
}

static void check_tokenizer(struct model_file *gguf, struct model_file *folder)
{
    FILE *lines = fopen(test_data_path("model/tokenizer.jsonl"), "r");
    struct tokenizer *a, *b;
    struct error error = {""};
    char *line = NULL;
    size_t room = 0, tokens = 0;
    uint32_t ends_a[16], ends_b[16];
    CHECK(lines != NULL);
    CHECKF(tokenizer_open(gguf, &a, &error) == ST_OK, "%s", error.text);
    CHECKF(tokenizer_open(folder, &b, &error) == ST_OK, "%s", error.text);
    while (getline(&line, &room, lines) > 0) {
        json_t *item = json_loads(line, JSON_ALLOW_NUL, NULL),
               *text = json_object_get(item, "text");
        CHECK(text != NULL);
        tokens += check_text(b, json_string_value(text), json_string_length(text),
                             json_object_get(item, "ids"));
        json_decref(item);
    }
    printf("%zu tokens of the reference's texts\n", tokens);
    CHECK(tokens > 1000);
    CHECK(tokenizer_token_count(a) == tokenizer_token_count(b));
    CHECK(tokenizer_bos(a) == tokenizer_bos(b) && tokenizer_eos(a) == tokenizer_eos(b));
    CHECK(tokenizer_end_tokens(a, ends_a) == tokenizer_end_tokens(b, ends_b) &&
          ends_a[0] == ends_b[0]);
    for (uint32_t id = 0; id < tokenizer_token_count(a); id++) {
        size_t bytes_a, bytes_b;
        const char *x = tokenizer_piece(a, id, &bytes_a), *y = tokenizer_piece(b, id, &bytes_b);
        CHECKF(bytes_a == bytes_b && memcmp(x, y, bytes_a) == 0, "token %u", id);
        CHECKF(tokenizer_is_special(a, id) == tokenizer_is_special(b, id), "token %u", id);
    }
    free(line);
    fclose(lines);
    tokenizer_close(a);
    tokenizer_close(b);
}

static char *render(struct model_file *file)
{
    json_t *messages = json_pack("[{s:s, s:s}]", "role", "user", "content", "What is gravity?");
    const struct chat_request request = {.messages = messages, .add_generation_prompt = true};
    struct chat_template *chat;
    struct error error = {""};
    struct chat_text text;
    CHECKF(chat_template_open(file, NULL, &chat, &error) == ST_OK, "%s", error.text);
    CHECKF(chat_render(chat, &request, &text, &error) == ST_OK, "%s", error.text);
    json_decref(messages);
    chat_template_close(chat);
    free(text.contents);
    return text.text;
}

int main(void)
{
    char path[] = "/tmp/cleave-default-XXXXXX";
    const struct folder_writer options = {.shards = 2, .merge_pairs = true};
    struct model_file *given, *gguf, *folder;
    struct error error = {""};
    size_t bytes;
    CHECKF(model_file_open(test_model_path(), &given, &error) == ST_OK, "%s", error.text);
    uint8_t *image = gguf_retype(file_gguf(given), COMPUTE_BF16, &bytes);
    model_file_close(given);
    CHECKF(model_file_open_memory(image, bytes, "twin", &gguf, &error) == ST_OK, "%s", error.text);
    CHECK(mkdtemp(path) != NULL);
    folder_write(gguf, &options, path);
    enum status status = model_file_open(path, &folder, &error);
    folder_remove(path); /* the mappings stay */
    CHECKF(status == ST_OK, "%s", error.text);
    check_logits(gguf, folder);
    check_tokenizer(gguf, folder);
    char *a = render(gguf), *b = render(folder);
    CHECKF(strcmp(a, b) == 0, "'%s' and '%s'", a, b);
    free(a);
    free(b);
    model_file_close(gguf);
    model_file_close(folder);
    free(image);
    return 0;
}
