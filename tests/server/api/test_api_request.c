/* Goal: every field of a request body is read as documented, and every wrong one gives a 400 that
 * names field and value. Method: a table of bodies with their results. */
#include "server/api/request.h"
#include "tests/check.h"
#include "tests/scarce_memory.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
size_t __sanitizer_get_current_allocated_bytes(void); /* gcc 12 has no header for it */
#endif

static struct api_request request;
static struct api_error error;

static bool parse(enum api_kind kind, const char *body)
{
    return api_request_parse(kind, body, strlen(body), &request, &error);
}

struct bad {
    enum api_kind kind;
    const char *body;
    const char *param; /* must be the error's param ("" for none) */
    const char *says;  /* must be part of its message */
};

static const struct bad bads[] = {
    {API_COMPLETION, "", "", "empty"},
    {API_COMPLETION, "{\"prompt\": \"a\"", "", "line 1"},
    {API_COMPLETION, "[1]", "", "a list"},
    {API_COMPLETION, "{\"prompt\": \"\xff\"}", "", "0xff at offset 12"},
    {API_COMPLETION, "{}", "prompt", "missing"},
    {API_COMPLETION, "{\"prompt\": 5}", "prompt", "not 5"},
    {API_COMPLETION, "{\"prompt\": []}", "prompt", "0 entries"},
    {API_COMPLETION, "{\"prompt\": [1, \"x\"]}", "prompt[1]", "\"x\""},
    {API_COMPLETION, "{\"prompt\": [1, -2]}", "prompt[1]", "-2"},
    {API_COMPLETION, "{\"prompt\": [\"a\", 3]}", "prompt[1]", "not 3"},
    {API_COMPLETION, "{\"prompt\": \"a\", \"model\": 7}", "model", "not 7"},
    {API_COMPLETION, "{\"prompt\": \"a\", \"n\": 0}", "n", "not 0"},
    {API_COMPLETION, "{\"prompt\": \"a\", \"n\": 17}", "n", "1 to 16"},
    {API_COMPLETION, "{\"prompt\": \"a\", \"max_tokens\": -1}", "max_tokens", "not -1"},
    {API_COMPLETION, "{\"prompt\": \"a\", \"max_tokens\": 1.5}", "max_tokens", "1.5"},
    {API_COMPLETION, "{\"prompt\": \"a\", \"max_tokens\": \"5\"}", "max_tokens", "\"5\""},
    {API_COMPLETION, "{\"prompt\": \"a\", \"temperature\": -1}", "temperature", "not -1"},
    {API_COMPLETION, "{\"prompt\": \"a\", \"temperature\": 2.5}", "temperature", "2.5"},
    {API_COMPLETION, "{\"prompt\": \"a\", \"temperature\": \"hot\"}", "temperature", "\"hot\""},
    {API_COMPLETION, "{\"prompt\": \"a\", \"top_p\": 0}", "top_p", "above 0"},
    {API_COMPLETION, "{\"prompt\": \"a\", \"top_p\": 1.1}", "top_p", "1.1"},
    {API_COMPLETION, "{\"prompt\": \"a\", \"min_p\": -0.1}", "min_p", "-0.1"},
    {API_COMPLETION, "{\"prompt\": \"a\", \"top_k\": -2}", "top_k", "-2"},
    {API_COMPLETION, "{\"prompt\": \"a\", \"seed\": 1.5}", "seed", "1.5"},
    {API_COMPLETION, "{\"prompt\": \"a\", \"seed\" : 18446744073709551616}", "seed",
     "seed is too large"},
    {API_COMPLETION, "{\"seed\": -18446744073709551616, \"prompt\": \"a\"}", "seed", "64 bits"},
    {API_COMPLETION, "{\"prompt\": [1, 18446744073709551616]}", "", "a number of the body"},
    {API_COMPLETION, "{\"prompt\": 1e999}", "prompt", "too large"},
    {API_COMPLETION, "18446744073709551616", "", "too large"},
    {API_COMPLETION, "{\"prompt\": \"a\", \"presence_penalty\": -2.1}", "presence_penalty", "-2.1"},
    {API_COMPLETION, "{\"prompt\": \"a\", \"presence_penalty\": \"x\"}", "presence_penalty",
     "\"x\""},
    {API_COMPLETION, "{\"prompt\": \"a\", \"frequency_penalty\": 3}", "frequency_penalty",
     "at most 2"},
    {API_COMPLETION, "{\"prompt\": \"a\", \"repetition_penalty\": 0}", "repetition_penalty",
     "above 0"},
    {API_COMPLETION, "{\"prompt\": \"a\", \"repetition_penalty\": 101}", "repetition_penalty",
     "not 101"},
    {API_COMPLETION, "{\"prompt\": \"a\", \"logit_bias\": [1]}", "logit_bias", "not a list"},
    {API_COMPLETION, "{\"prompt\": \"a\", \"logit_bias\": {\"x\": 1}}", "logit_bias",
     "a token id as the name"},
    {API_COMPLETION, "{\"prompt\": \"a\", \"logit_bias\": {\"-1\": 1}}", "logit_bias",
     "a token id as the name"},
    {API_COMPLETION, "{\"prompt\": \"a\", \"logit_bias\": {\"4294967296\": 1}}", "logit_bias",
     "a token id as the name"},
    {API_COMPLETION, "{\"prompt\": \"a\", \"logit_bias\": {\"1\": 100.5}}", "logit_bias[\"1\"]",
     "100.5"},
    {API_COMPLETION, "{\"prompt\": \"a\", \"allowed_token_ids\": 5}", "allowed_token_ids", "not 5"},
    {API_COMPLETION, "{\"prompt\": \"a\", \"allowed_token_ids\": [1, -5]}", "allowed_token_ids[1]",
     "-5"},
    {API_COMPLETION, "{\"prompt\": \"a\", \"bad_words\": \"x\"}", "bad_words", "a list"},
    {API_COMPLETION, "{\"prompt\": \"a\", \"bad_words\": [\"x\", \"\"]}", "bad_words[1]",
     "1 to 256 bytes"},
    {API_COMPLETION, "{\"prompt\": \"a\", \"bad_words\": [\"a\\u0000b\"]}", "bad_words[0]",
     "none of them 0"},
    {API_COMPLETION, "{\"prompt\": \"a\", \"n\": 3, \"best_of\": 2}", "best_of", "from 3 to 16"},
    {API_COMPLETION, "{\"prompt\": \"a\", \"best_of\": 17}", "best_of", "to 16"},
    {API_COMPLETION, "{\"prompt\": \"a\", \"best_of\": 2, \"stream\": true}", "best_of",
     "not with stream"},
    {API_CHAT, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"best_of\": 2}",
     "best_of", "not supported by this endpoint"},
    {API_COMPLETION, "{\"prompt\": \"a\", \"prompt_logprobs\": 21}", "prompt_logprobs",
     "from 0 to 20"},
    {API_COMPLETION, "{\"prompt\": \"a\", \"prompt_logprobs\": 1, \"stream\": true}",
     "prompt_logprobs", "not available with stream"},
    {API_COMPLETION, "{\"prompt\": \"a\", \"include_stop_str_in_output\": 1}",
     "include_stop_str_in_output", "true or false"},
    {API_COMPLETION, "{\"prompt\": \"a\", \"stop\": 5}", "stop", "not 5"},
    {API_COMPLETION, "{\"prompt\": \"a\", \"stop\": \"\"}", "stop", "0 bytes"},
    {API_COMPLETION, "{\"prompt\": \"a\", \"stop\": [\"a\", 1]}", "stop[1]", "not 1"},
    {API_COMPLETION, "{\"prompt\": \"a\", \"stop_token_ids\": 1}", "stop_token_ids", "not 1"},
    {API_COMPLETION, "{\"prompt\": \"a\", \"logprobs\": 21}", "logprobs", "21"},
    {API_COMPLETION, "{\"prompt\": \"a\", \"logprobs\": true}", "logprobs", "boolean"},
    {API_COMPLETION, "{\"prompt\": \"a\", \"echo\": 1}", "echo", "not 1"},
    {API_COMPLETION, "{\"prompt\": \"a\", \"stream\": \"yes\"}", "stream", "yes"},
    {API_COMPLETION, "{\"prompt\": \"a\", \"stream_options\": 1}", "stream_options", "not 1"},
    {API_COMPLETION, "{\"prompt\": \"a\", \"stream_options\": {\"include_usage\": 1}}",
     "include_usage", "not 1"},
    {API_COMPLETION, "{\"prompt\": \"a\", \"max_tokens\": 2, \"min_tokens\": 3}", "min_tokens",
     "above"},
    {API_COMPLETION, "{\"prompt\": \"a\", \"ignore_eos\": 1}", "ignore_eos", "not 1"},
    {API_COMPLETION, "{\"prompt\": \"a\", \"cleave\": {\"transfer\": \"x\"}}", "cleave.transfer",
     "\"x\""},
    {API_CHAT, "{}", "messages", "missing"},
    {API_CHAT, "{\"messages\": {}}", "messages", "an object"},
    {API_CHAT, "{\"messages\": []}", "messages", "0 entries"},
    {API_CHAT, "{\"messages\": [5]}", "messages[0].role", "missing"},
    {API_CHAT, "{\"messages\": [{\"role\": \"user\"}]}", "messages[0].content", "must be"},
    {API_CHAT, "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image_url\"}]}]}",
     "messages[0].content", "text only"},
    {API_CHAT, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"logprobs\": 5}",
     "logprobs", "not 5"},
    {API_CHAT, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"top_logprobs\": 5}",
     "top_logprobs", "needs logprobs"},
    {API_CHAT, "{\"messages\": [{\"role\": \"r\\u00f6b\", \"content\": \"a\"}]}", "messages",
     "messages[0]: role 'r??b': want system, developer, user, assistant or tool"},
    {API_CHAT, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"chat_template\": 5}",
     "chat_template", "not 5"},
    {API_CHAT,
     "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"chat_template_kwargs\": []}",
     "chat_template_kwargs", "an object"},
    {API_CHAT, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"documents\": [1]}",
     "documents[0]", "an object"},
    {API_CHAT,
     "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"add_generation_prompt\": true, "
     "\"continue_final_message\": true}",
     "continue_final_message", "both true"},
};

static void check_bad(void)
{
    for (size_t i = 0; i < sizeof(bads) / sizeof(bads[0]); i++) {
        const struct bad *bad = &bads[i];
        CHECKF(!parse(bad->kind, bad->body), "%s", bad->body);
        CHECKF(error.status == 400, "%s: %u", bad->body, error.status);
        CHECKF(strcmp(error.param, bad->param) == 0, "%s: param '%s'", bad->body, error.param);
        CHECKF(strstr(error.message, bad->says) != NULL, "%s: '%s'", bad->body, error.message);
    }
}

static void check_defaults(void)
{
    CHECK(parse(API_COMPLETION,
                "{\"prompt\": \"hi\", \"unknown\": [{}], \"stop\": null, \"n\": null}"));
    CHECK(request.prompt_count == 1 && strcmp(request.prompts[0].text, "hi") == 0);
    CHECK(request.max_tokens == -1 && request.sampling.temperature == 1 &&
          request.sampling.top_p == 1);
    CHECK(request.n == 1 && request.sampling.logprobs == -1 && !request.echo && !request.stream);
    CHECK(!request.has_seed && request.stops.count == 0 && request.model == NULL);
    CHECK(request.add_special_tokens && request.skip_special_tokens && request.sampling.top_k == 0);
    api_request_done(&request);
}

static void check_fields(void)
{
    CHECK(
        parse(API_COMPLETION,
              "{\"prompt\": [[1, 2], \"b\", [3]], \"model\": \"m\", \"max_tokens\": 7.0, \"n\": 2,"
              "\"temperature\": 0, \"top_p\": 0.5, \"top_k\": -1, \"min_p\": 0.1, \"seed\": -3,"
              "\"stop\": [\"x\", \"yy\"], \"stop_token_ids\": [4, 5], \"min_tokens\": 2,"
              "\"ignore_eos\": true, \"logprobs\": 20, \"echo\": true, \"stream\": true,"
              "\"stream_options\": {\"include_usage\": true, \"continuous_usage_stats\": true},"
              "\"return_token_ids\": true, \"cleave\": {\"transfer\": \"layerwise\"}}"));
    CHECK(request.prompt_count == 3 && request.prompts[0].count == 2 &&
          request.prompts[0].ids[1] == 2);
    CHECK(request.prompts[1].bytes == 1 && request.prompts[2].ids[0] == 3);
    CHECK(strcmp(request.model, "m") == 0 && request.max_tokens == 7 && request.n == 2);
    CHECK(request.sampling.temperature == 0 && request.sampling.top_p == 0.5f &&
          request.sampling.top_k == 0);
    CHECK(request.has_seed && request.sampling.seed == (uint64_t)-3 &&
          request.sampling.output_tokens_min == 2);
    CHECK(request.stops.count == 2 && request.stops.lengths[1] == 2 &&
          request.sampling.end_count == 2);
    CHECK(request.ignore_eos && request.sampling.logprobs == 20 && request.echo && request.stream);
    CHECK(request.include_usage && request.continuous_usage && request.return_token_ids);
    CHECK(request.transfer == API_TRANSFER_LAYERWISE);
    api_request_done(&request);
}

static void check_chat(void)
{
    CHECK(parse(API_CHAT,
                "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\", "
                "\"text\": \"a\\u0000\"}, {\"type\": \"text\", \"text\": \"b\"}]}], \"logprobs\": "
                "true, \"top_logprobs\": 3, \"max_completion_tokens\": 5, \"max_tokens\": 9}"));
    const json_t *content = json_object_get(json_array_get(request.chat.messages, 0), "content");
    CHECK(json_array_size(request.chat.messages) == 1 && json_array_size(content) == 2);
    CHECK(json_string_length(json_object_get(json_array_get(content, 0), "text")) == 2);
    CHECK(request.chat.add_generation_prompt && !request.chat.continue_final_message);
    CHECK(request.sampling.logprobs == 3 && request.max_tokens == 5);
    api_request_done(&request);
    CHECK(parse(API_CHAT, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, "
                          "{\"role\": \"assistant\", \"content\": null, \"tool_calls\": []}]}"));
    CHECK(json_array_size(request.chat.messages) == 2);
    api_request_done(&request);
    CHECK(request.chat.messages == NULL);
    CHECK(parse(API_CHAT, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], "
                          "\"chat_template\": \"x\", \"chat_template_kwargs\": {\"k\": 1}, "
                          "\"continue_final_message\": true, \"documents\": [{\"text\": \"d\"}]}"));
    CHECK(strcmp(json_string_value(request.chat.template_text), "x") == 0);
    CHECK(json_integer_value(json_object_get(request.chat.variables, "k")) == 1);
    CHECK(!request.chat.add_generation_prompt && request.chat.continue_final_message);
    CHECK(json_array_size(request.chat.documents) == 1 && request.chat.tools == NULL);
    api_request_done(&request);
    CHECK(parse(API_CHAT, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], "
                          "\"chat_template\": \"\", \"chat_template_kwargs\": {}, "
                          "\"add_generation_prompt\": false, \"documents\": []}"));
    CHECK(request.chat.template_text == NULL && request.chat.documents == NULL);
    CHECK(!request.chat.add_generation_prompt && !request.chat.continue_final_message);
    api_request_done(&request);
}

static size_t memory_used(void)
{
#if defined(__SANITIZE_ADDRESS__)
    return __sanitizer_get_current_allocated_bytes();
#else
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
#endif
}

/* Returns `head`, then `piece` as often as given, then `tail`. */
static char *repeated(const char *head, const char *piece, size_t count, const char *tail)
{
    struct text text = {0};
    text_string_add(&text, head);
    for (size_t i = 0; i < count; i++)
        text_string_add(&text, piece);
    text_string_add(&text, tail);
    text_add(&text, "", 1);
    CHECK(!text.broken);
    return text.data;
}

/* F-2 of the security review: a parsed request kept the whole JSON tree, which took 70 times the
 * memory of its body, for as long as its answer was computed. */
static void check_json_tree_is_freed(void)
{
    char *body =
        repeated("{\"prompt\": \"hi\", \"stop\": \"x\", \"unknown\": [{}", ",{}", 100000, "]}");
    size_t before = memory_used();
    CHECK(parse(API_COMPLETION, body));
    size_t kept = memory_used() - before;
    CHECKF(kept < 100000, "%zu bytes are kept", kept);
    CHECK(strcmp(request.prompts[0].text, "hi") == 0 && strcmp(request.stops.strings[0], "x") == 0);
    api_request_input_free(&request);
    CHECK(request.prompts[0].text == NULL && strcmp(request.stops.strings[0], "x") == 0);
    api_request_done(&request);
    free(body);
}

static void check_too_many_values(const char *head, const char *piece, size_t count,
                                  const char *tail)
{
    char *body = repeated(head, piece, count, tail);
    CHECK(!parse(API_COMPLETION, body) && error.status == 400);
    CHECKF(strstr(error.message, "too many JSON values") != NULL, "%s", error.message);
    free(body);
}

static void check_number_of_json_values(void)
{
    check_too_many_values("{\"prompt\": \"hi\", \"unknown\": [1", ",1", LIMIT_JSON_VALUES, "]}");
    check_too_many_values("{\"prompt\": \"hi\", \"unknown\": [{}", ",{}", LIMIT_JSON_CONTAINERS,
                          "]}");
    check_too_many_values("{\"prompt\": [1", ",1", LIMIT_JSON_VALUES, ""); /* and not even JSON */
    /* Within strings nothing counts. */
    char *body = repeated("{\"prompt\": \"\\\"", ",[{:\\\"", LIMIT_JSON_VALUES / 4, "\"}");
    CHECK(parse(API_COMPLETION, body));
    CHECK(request.prompts[0].bytes == 1 + 5 * (size_t)(LIMIT_JSON_VALUES / 4));
    api_request_done(&request);
    free(body);
}

/* A request is refused if there is no memory for one of its fields: the field is not left out. */
static void check_no_memory_for_fields(void)
{
    static const char chat[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}], \"reasoning_effort\": "
        "\"none\", \"chat_template_kwargs\": {\"a\": 1, \"b\": 2}}";
    static const char responses[] = "{\"input\": \"hi\", \"tools\": [{\"type\": \"function\", "
                                    "\"name\": \"f\", \"parameters\": {\"type\": \"object\", "
                                    "\"properties\": {\"x\": {}}, \"required\": [\"x\"]}}]}";
    json_set_alloc_funcs(scarce_malloc, free);
    for (size_t count = 0; scarce_allocations_left = count, !parse(API_CHAT, chat); count++)
        CHECKF(error.status == 503, "%zu: %s", count, error.message);
    CHECK(json_object_size(request.chat.variables) == 4);
    api_request_done(&request);
    for (size_t count = 0; scarce_allocations_left = count, !parse(API_RESPONSES, responses);
         count++)
        CHECKF(error.status == 503, "%zu: %s", count, error.message);
    json_set_alloc_funcs(malloc, free);
    const json_t *tool = json_array_get(request.chat.tools, 0);
    CHECK(json_object_size(json_object_get(json_object_get(tool, "function"), "parameters")) == 3);
    api_request_done(&request);
}

/* The client is not to blame if there is no memory for the JSON tree. */
static void check_no_memory(void)
{
    uint32_t count = 0;
    json_set_alloc_funcs(scarce_malloc, free);
    for (; scarce_allocations_left = count, !parse(API_COMPLETION, "{\"prompt\": \"hi\"}"); count++)
        CHECKF(error.status == 503 && strcmp(error.message, "out of memory") == 0, "%u: %s", count,
               error.message);
    json_set_alloc_funcs(malloc, free);
    CHECK(count > 5);
    api_request_done(&request);
}

int main(void)
{
    check_no_memory();
    check_no_memory_for_fields();
    check_bad();
    check_json_tree_is_freed();
    check_number_of_json_values();
    check_defaults();
    check_fields();
    check_chat();
    printf("%zu bad bodies, each with its own error\n", sizeof(bads) / sizeof(bads[0]));
    return 0;
}
