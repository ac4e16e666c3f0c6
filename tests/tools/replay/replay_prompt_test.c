/* Goal: a request asks for exactly the lengths of its row, and the same seed and line give the same
 * bytes. Method: bodies are read back as JSON; the command line is tested against the ranges of its
 * table. */
#include "tests/check.h"
#include "tests/scarce_memory.h"
#include "tools/replay/options.h"
#include "tools/replay/prompt.h"

#include <jansson.h>
#include <string.h>

static json_t *body_of_ask(const struct replay_prompt *prompt, const struct replay_request *request)
{
    char *body, *again;
    size_t size, size_again;
    CHECK(replay_prompt_body(prompt, request, &body, &size) == ST_OK);
    CHECK(replay_prompt_body(prompt, request, &again, &size_again) == ST_OK);
    CHECK(size == size_again && memcmp(body, again, size) == 0);
    json_error_t why;
    json_t *root = json_loadb(body, size, 0, &why);
    CHECKF(root != NULL, "%s", why.text);
    free(body);
    free(again);
    CHECK(json_integer_value(json_object_get(root, "max_tokens")) == request->output_tokens);
    CHECK(json_is_true(json_object_get(root, "stream")));
    CHECK(json_is_true(json_object_get(root, "ignore_eos")));
    CHECK(json_is_true(json_object_get(json_object_get(root, "stream_options"), "include_usage")));
    return root;
}

static json_t *body_of(const struct replay_prompt *prompt, uint64_t line, uint32_t context,
                       uint32_t generated)
{
    const struct replay_request request = {
        .line = line, .prompt_tokens = context, .output_tokens = generated};
    return body_of_ask(prompt, &request);
}

static void test_ids(void)
{
    struct replay_prompt_options options = {
        .model = "a \"b\"", .id_low = 99990, .id_high = 100010, .seed = 7};
    struct replay_prompt *prompt;
    CHECK(replay_prompt_open(&options, &prompt) == ST_OK);
    json_t *root = body_of(prompt, 3, 5000, 12), *other = body_of(prompt, 4, 5000, 12);
    CHECK(strcmp(json_string_value(json_object_get(root, "model")), "a \"b\"") == 0);
    json_t *ids = json_object_get(root, "prompt"), *others = json_object_get(other, "prompt");
    CHECK(json_array_size(ids) == 5000);
    CHECK(!json_equal(ids, others));
    json_int_t least = INT32_MAX, greatest = 0;
    for (size_t i = 0; i < 5000; i++) {
        json_int_t id = json_integer_value(json_array_get(ids, i));
        least = id < least ? id : least;
        greatest = id > greatest ? id : greatest;
    }
    CHECK(least == 99990 && greatest == 100010);
    json_decref(root);
    json_decref(other);
    replay_prompt_close(prompt);

    options.id_low = 100011;
    CHECK(replay_prompt_open(&options, &prompt) == ST_INVALID);
}

/* A name that is not UTF-8 and a lack of memory are different errors. */
static void test_model(void)
{
    struct replay_prompt *prompt;
    CHECK(replay_prompt_open(&(struct replay_prompt_options){.model = "a\xff"}, &prompt) ==
          ST_INVALID);
    json_set_alloc_funcs(scarce_malloc, free);
    enum status status = ST_NO_MEMORY;
    uint32_t count = 0;
    for (; status == ST_NO_MEMORY; count++) {
        scarce_allocations_left = count;
        status = replay_prompt_open(&(struct replay_prompt_options){.model = "a"}, &prompt);
    }
    json_set_alloc_funcs(malloc, free);
    CHECKF(status == ST_OK && count > 2, "%d after %u allocations", status, count - 1);
    replay_prompt_close(prompt);
}

static void test_text(void)
{
    struct replay_prompt_options options = {
        .model = "m", .kind = REPLAY_PROMPT_TEXT, .extra_tokens = 2, .seed = 7};
    struct replay_prompt *prompt;
    CHECK(replay_prompt_open(&options, &prompt) == ST_OK);
    json_t *root = body_of(prompt, 3, 302, 1);
    const char *text = json_string_value(json_object_get(root, "prompt"));
    int words = 0;
    for (const char *at = text; *at != 0; at++)
        words += *at == ' ';
    CHECKF(words == 300, "%d words", words);
    json_decref(root);
    replay_prompt_close(prompt);
}

/* A message has the wanted number of words, the first one without a space, and is sent in
 * `messages`. */
static void test_chat(void)
{
    struct replay_prompt_options options = {
        .model = "m", .kind = REPLAY_PROMPT_TEXT, .chat = true, .extra_tokens = 30, .seed = 7};
    struct replay_prompt *prompt;
    CHECK(replay_prompt_open(&options, &prompt) == ST_OK);
    json_t *root = body_of(prompt, 3, 130, 1);
    json_t *message = json_array_get(json_object_get(root, "messages"), 0);
    CHECK(strcmp(json_string_value(json_object_get(message, "role")), "user") == 0);
    const char *text = json_string_value(json_object_get(message, "content"));
    int words = 1;
    for (const char *at = text; *at != 0; at++)
        words += *at == ' ';
    CHECKF(words == 100 && text[0] != ' ', "%d words", words);
    CHECK(json_object_get(root, "prompt") == NULL);
    json_decref(root);
    const struct replay_request least = {.prompt_tokens = 30, .output_tokens = 1};
    char *body;
    size_t size;
    CHECK(replay_prompt_body(prompt, &least, &body, &size) == ST_INVALID);
    replay_prompt_close(prompt);
}

static int equal_ids(json_t *a, json_t *b, int from, int count)
{
    int equal = 0;
    for (int i = from; i < from + count; i++)
        equal += json_integer_value(json_array_get(a, (size_t)i)) ==
                 json_integer_value(json_array_get(b, (size_t)i));
    return equal;
}

/* Two requests share blocks 1 and 2. Their third blocks and the tokens after the last block
 * differ. */
static void test_blocks(void)
{
    static const int64_t one[] = {11, 12, 13}, other[] = {11, 12, 14};
    struct replay_prompt_options options = {.model = "m", .id_high = 1000000, .seed = 7};
    struct replay_prompt *prompt;
    CHECK(replay_prompt_open(&options, &prompt) == ST_OK);
    struct replay_request request = {.line = 1,
                                     .prompt_tokens = 400,
                                     .output_tokens = 1,
                                     .blocks = one,
                                     .block_count = 3,
                                     .block_tokens = 100};
    json_t *first = body_of_ask(prompt, &request);
    request = (struct replay_request){.line = 2,
                                      .prompt_tokens = 380,
                                      .output_tokens = 1,
                                      .blocks = other,
                                      .block_count = 3,
                                      .block_tokens = 100};
    json_t *second = body_of_ask(prompt, &request);
    json_t *a = json_object_get(first, "prompt"), *b = json_object_get(second, "prompt");
    CHECK(json_array_size(a) == 400 && json_array_size(b) == 380);
    CHECK(equal_ids(a, b, 0, 200) == 200);
    CHECK(equal_ids(a, b, 200, 100) < 5 && equal_ids(a, b, 300, 80) < 5);
    json_decref(first);
    json_decref(second);
    replay_prompt_close(prompt);
}

static void option_refused(const char *first, const char *second, const char *wanted)
{
    char *argv[] = {"replay", "t.csv", (char *)first, (char *)second, NULL};
    struct replay_options options = {.trace = NULL};
    struct error error = {0};
    CHECK(options_read(&replay_options_table, second != NULL ? 4 : 3, argv, &options, &error) ==
          ST_USAGE);
    CHECKF(strcmp(error.text, wanted) == 0, "\ngot  %s\nwant %s", error.text, wanted);
}

static void test_options(void)
{
    char *argv[] = {"replay", "--start", "1.5", "t.csv", "--fit=clip", "--seed=9", NULL};
    struct replay_options options = {.trace = NULL};
    struct error error = {0};
    CHECKF(options_read(&replay_options_table, 6, argv, &options, &error) == ST_OK, "%s",
           error.text);
    CHECK(strcmp(options.trace, "t.csv") == 0 && options.start_s > 1.4 && options.start_s < 1.6);
    CHECK(options.fit == TRACE_FIT_CLIP && options.prompt == REPLAY_PROMPT_AUTO);
    CHECK(options.seed == 9 && options.id_low == 1000 && options.rate_scale > 0.9);
    CHECK(strcmp(options.url, "http://127.0.0.1:8080") == 0);

    option_refused("--rate-scale", "0",
                   "--rate-scale = \"0\": want a number from 1e-06 to 1000000");
    option_refused("--start", "nan", "--start = \"nan\": want a number from 0 to 1000000000");
    option_refused("--requests", "1.5",
                   "--requests = \"1.5\": want a whole number from 0 to 1e+15");
    option_refused("--fit", "squeeze", "--fit = \"squeeze\": want scale or clip");
    option_refused("--format", "csv",
                   "--format = \"csv\": want auto, azure, burstgpt, splitwise "
                   "or mooncake");
    option_refused("--out", NULL, "--out wants a value: --out FILE");
    option_refused("--fat", "1", "unknown option --fat");
    option_refused("u.csv", NULL, "\"u.csv\": want no argument after TRACE \"t.csv\"");
    options = (struct replay_options){.trace = NULL};
    CHECK(options_read(&replay_options_table, 1, argv, &options, &error) == ST_USAGE);
    char *chat[] = {"replay", "t.csv", "--api=chat", "--prompt=ids", NULL};
    CHECK(options_read(&replay_options_table, 4, chat, &options, &error) == ST_USAGE);
    char *speed[] = {"replay", "t.csv", "--speed", "3", "--on-bad-row", "skip", NULL};
    options = (struct replay_options){.trace = NULL};
    CHECK(options_read(&replay_options_table, 6, speed, &options, &error) == ST_OK);
    CHECK(options.rate_scale > 2.9 && options.on_bad_row == REPLAY_BAD_ROW_SKIP);
}

int main(void)
{
    test_ids();
    test_model();
    test_text();
    test_chat();
    test_blocks();
    test_options();
    return 0;
}
