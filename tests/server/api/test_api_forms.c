/* Goal: bodies of /v1/responses and /v1/messages become the chat that they mean; what cleave cannot
 * do is refused with its place in the body that was sent. Method: each body of a table is
 * converted, and the chat compared with the one beside it, field by field. */
#include "server/api/forms.h"
#include "server/api/known_fields.h"
#include "server/api/request.h"
#include "tests/check.h"

#include <stdlib.h>
#include <string.h>

#define RESPONSES API_RESPONSES
#define MESSAGES  API_MESSAGES

/* Bodies with ' for ". */
static const struct {
    enum api_kind kind;
    const char *body, *chat;
} good[] = {
    {RESPONSES, "{'input': 'a'}", "{'messages': [{'role': 'user', 'content': 'a'}]}"},
    {RESPONSES, "{'input': 'a', 'instructions': 'be', 'max_output_tokens': 7, 'seed': 3, 'x': 1}",
     "{'messages': [{'role': 'system', 'content': 'be'}, {'role': 'user', 'content': 'a'}], "
     "'max_tokens': 7, 'seed': 3, 'x': 1}"},
    {RESPONSES,
     "{'input': [{'role': 'user', 'content': [{'type': 'input_text', 'text': 'a'}, {'type': "
     "'input_text', 'text': 'b'}]}, {'type': 'message', 'role': 'assistant', 'content': [{'type': "
     "'output_text', 'text': 'c'}]}, {'role': 'developer', 'content': 'd'}]}",
     "{'messages': [{'role': 'user', 'content': [{'type': 'text', 'text': 'a'}, {'type': 'text', "
     "'text': 'b'}]}, {'role': 'assistant', 'content': 'c'}, {'role': 'developer', 'content': "
     "'d'}]}"},
    /* Reasoning, text and calls of one turn are one message; results follow. */
    {RESPONSES,
     "{'input': [{'role': 'user', 'content': 'a'}, {'type': 'reasoning', 'summary': [], 'content': "
     "[{'type': 'reasoning_text', 'text': 'r'}, {'type': 'reasoning_text', 'text': 's'}]}, "
     "{'type': 'message', 'role': 'assistant', 'content': 'c'}, {'type': 'function_call', "
     "'call_id': '1', 'name': 'f', 'arguments': '{}'}, {'type': 'function_call', 'call_id': '2', "
     "'name': 'g', 'arguments': '{}'}, {'type': 'function_call_output', 'call_id': '1', 'output': "
     "'o'}, {'type': 'function_call_output', 'call_id': '2', 'output': [{'type': 'input_text', "
     "'text': 'p'}]}, {'role': 'assistant', 'content': 'e'}]}",
     "{'messages': [{'role': 'user', 'content': 'a'}, {'role': 'assistant', 'reasoning_content': "
     "'rs', 'content': 'c', 'tool_calls': [{'id': '1', 'type': 'function', 'function': {'name': "
     "'f', 'arguments': '{}'}}, {'id': '2', 'type': 'function', 'function': {'name': 'g', "
     "'arguments': '{}'}}]}, {'role': 'tool', 'tool_call_id': '1', 'content': 'o'}, {'role': "
     "'tool', 'tool_call_id': '2', 'content': 'p'}, {'role': 'assistant', 'content': 'e'}]}"},
    {RESPONSES,
     "{'input': [{'type': 'reasoning', 'encrypted_content': 'x', 'summary': []}, {'role': "
     "'user', 'content': 'a'}]}",
     "{'messages': [{'role': 'user', 'content': 'a'}]}"},
    {RESPONSES,
     "{'input': 'a', 'tools': [{'type': 'function', 'name': 'f', 'description': 'd', "
     "'parameters': {'type': 'object'}, 'strict': true}], 'tool_choice': {'type': 'function', "
     "'name': 'f'}, 'parallel_tool_calls': false}",
     "{'messages': [{'role': 'user', 'content': 'a'}], 'tools': [{'type': 'function', 'function': "
     "{'name': 'f', 'description': 'd', 'parameters': {'type': 'object'}, 'strict': true}}], "
     "'tool_choice': {'type': 'function', 'function': {'name': 'f'}}, 'parallel_tool_calls': "
     "false}"},
    {RESPONSES,
     "{'input': 'a', 'tool_choice': 'none', 'text': {'format': {'type': 'json_object'}}}",
     "{'messages': [{'role': 'user', 'content': 'a'}], 'tool_choice': 'none', 'response_format': "
     "{'type': 'json_object'}}"},
    {RESPONSES,
     "{'input': 'a', 'text': {'format': {'type': 'json_schema', 'name': 'n', 'schema': {'type': "
     "'object'}, 'strict': true}, 'verbosity': 'medium'}, 'reasoning': {'effort': 'low', "
     "'summary': 'auto'}}",
     "{'messages': [{'role': 'user', 'content': 'a'}], 'response_format': {'type': 'json_schema', "
     "'json_schema': {'schema': {'type': 'object'}}}, 'reasoning_effort': 'low'}"},
    {RESPONSES,
     "{'input': 'a', 'include': ['message.output_text.logprobs', 'reasoning.encrypted_content'], "
     "'top_logprobs': 3, 'store': false, 'metadata': {'k': 'v'}}",
     "{'messages': [{'role': 'user', 'content': 'a'}], 'logprobs': true, 'top_logprobs': 3, "
     "'store': false, 'metadata': {'k': 'v'}}"},
    {MESSAGES, "{'max_tokens': 5, 'messages': [{'role': 'user', 'content': 'a'}], 'top_k': 4}",
     "{'messages': [{'role': 'user', 'content': 'a'}], 'max_tokens': 5, 'top_k': 4}"},
    {MESSAGES,
     "{'max_tokens': 5, 'system': [{'type': 'text', 'text': 's', 'cache_control': {'type': "
     "'ephemeral'}}], 'messages': [{'role': 'user', 'content': [{'type': 'text', 'text': 'a'}]}], "
     "'stop_sequences': ['x'], 'metadata': {'user_id': 'u'}}",
     "{'messages': [{'role': 'system', 'content': 's'}, {'role': 'user', 'content': 'a'}], "
     "'max_tokens': 5, 'stop': ['x'], 'metadata': {'user_id': 'u'}}"},
    {MESSAGES,
     "{'max_tokens': 5, 'messages': [{'role': 'user', 'content': 'a'}, {'role': 'assistant', "
     "'content': [{'type': 'thinking', 'thinking': 't', 'signature': ''}, {'type': 'text', "
     "'text': 'b'}, {'type': 'tool_use', 'id': '1', 'name': 'f', 'input': {'k': 1}}]}, {'role': "
     "'user', 'content': [{'type': 'tool_result', 'tool_use_id': '1', 'content': [{'type': "
     "'text', 'text': 'r'}], 'is_error': false}, {'type': 'tool_result', 'tool_use_id': '2'}, "
     "{'type': 'text', 'text': 'c'}]}]}",
     "{'messages': [{'role': 'user', 'content': 'a'}, {'role': 'assistant', 'reasoning_content': "
     "'t', 'content': 'b', 'tool_calls': [{'id': '1', 'type': 'function', 'function': {'name': "
     "'f', 'arguments': {'k': 1}}}]}, {'role': 'tool', 'tool_call_id': '1', 'content': 'r'}, "
     "{'role': 'tool', 'tool_call_id': '2', 'content': ''}, {'role': 'user', 'content': 'c'}], "
     "'max_tokens': 5}"},
    {MESSAGES,
     "{'max_tokens': 5, 'messages': [{'role': 'user', 'content': 'a'}, {'role': 'assistant', "
     "'content': 'Yes,'}]}",
     "{'messages': [{'role': 'user', 'content': 'a'}, {'role': 'assistant', 'content': 'Yes,'}], "
     "'max_tokens': 5, 'continue_final_message': true}"},
    {MESSAGES,
     "{'max_tokens': 5, 'messages': [{'role': 'user', 'content': 'a'}], 'tools': [{'name': 'f', "
     "'description': 'd', 'input_schema': {'type': 'object'}}], 'tool_choice': {'type': 'any', "
     "'disable_parallel_tool_use': true}, 'thinking': {'type': 'disabled'}}",
     "{'messages': [{'role': 'user', 'content': 'a'}], 'max_tokens': 5, 'tools': [{'type': "
     "'function', 'function': {'name': 'f', 'description': 'd', 'parameters': {'type': "
     "'object'}}}], 'tool_choice': 'required', 'parallel_tool_calls': false, "
     "'chat_template_kwargs': {'enable_thinking': false}}"},
    {MESSAGES,
     "{'max_tokens': 5, 'messages': [{'role': 'user', 'content': 'a'}], 'tools': [{'type': "
     "'custom', 'name': 'f', 'input_schema': {}}], 'tool_choice': {'type': 'tool', 'name': 'f'}, "
     "'thinking': {'type': 'enabled', 'budget_tokens': 1024}, 'chat_template_kwargs': "
     "{'enable_thinking': false, 'y': 1}, 'output_config': {'effort': 'high', 'format': {'type': "
     "'json_schema', 'schema': {'type': 'array'}}}}",
     "{'messages': [{'role': 'user', 'content': 'a'}], 'max_tokens': 5, 'tools': [{'type': "
     "'function', 'function': {'name': 'f', 'parameters': {}}}], 'tool_choice': {'type': "
     "'function', 'function': {'name': 'f'}}, 'chat_template_kwargs': {'enable_thinking': false, "
     "'y': 1}, 'reasoning_effort': 'high', 'response_format': {'type': 'json_schema', "
     "'json_schema': {'schema': {'type': 'array'}}}}"},
};

static const struct {
    enum api_kind kind;
    const char *body, *param, *part;
} bad[] = {
    {RESPONSES, "{}", "input", "missing"},
    {RESPONSES, "{'input': []}", "input", "a list"},
    {RESPONSES, "{'input': 5}", "input", "not 5"},
    {RESPONSES, "{'input': [5]}", "input[0]", "an object"},
    {RESPONSES, "{'input': [{'type': 'item_reference', 'id': 'x'}]}", "input[0].type",
     "function_call"},
    {RESPONSES, "{'input': [{'role': 'user'}]}", "input[0].content", "missing"},
    {RESPONSES, "{'input': [{'content': 'a'}]}", "input[0].role", "missing"},
    {RESPONSES, "{'input': [{'role': 'user', 'content': [{'type': 'input_image'}]}]}",
     "input[0].content[0].type", "text only"},
    {RESPONSES, "{'input': [{'role': 'user', 'content': [{'type': 'input_text'}]}]}",
     "input[0].content[0].text", "missing"},
    {RESPONSES, "{'input': [{'type': 'function_call', 'name': 'f', 'arguments': '{}'}]}",
     "input[0].call_id", "missing"},
    {RESPONSES, "{'input': [{'type': 'function_call_output', 'call_id': 'f', 'output': 7}]}",
     "input[0].output", "not 7"},
    {RESPONSES, "{'input': 'a', 'instructions': 7}", "instructions", "not 7"},
    {RESPONSES, "{'input': 'a', 'tools': [{'type': 'web_search'}]}", "tools[0].type", "no tools"},
    {RESPONSES, "{'input': 'a', 'tools': [{'type': 'function'}]}", "tools[0].name", "missing"},
    {RESPONSES, "{'input': 'a', 'tool_choice': {'type': 'allowed_tools'}}", "tool_choice.type",
     "function"},
    {RESPONSES, "{'input': 'a', 'text': {'verbosity': 'low'}}", "text.verbosity", "medium"},
    {RESPONSES, "{'input': 'a', 'text': {'format': {'type': 'xml'}}}", "text.format.type", "xml"},
    {RESPONSES, "{'input': 'a', 'text': {'format': {'type': 'json_schema'}}}", "text.format.schema",
     "missing"},
    {RESPONSES, "{'input': 'a', 'include': ['file_search_call.results']}", "include",
     "file_search"},
    {RESPONSES, "{'input': 'a', 'top_logprobs': 2}", "top_logprobs", "needs include"},
    {RESPONSES, "{'input': 'a', 'max_output_tokens': 0}", "max_output_tokens", "not 0"},
    {RESPONSES, "{'input': 'a', 'stream_options': {'include_obfuscation': 1}}",
     "include_obfuscation", "not 1"},
    {MESSAGES, "{'messages': []}", "messages", "a list"},
    {MESSAGES, "{'messages': 'a'}", "messages", "a list"},
    {MESSAGES, "{'messages': [1]}", "messages[0]", "an object"},
    {MESSAGES, "{'messages': [{'role': 'tool', 'content': 'a'}]}", "messages[0].role", "tool"},
    {MESSAGES, "{'messages': [{'role': 'user'}]}", "messages[0].content", "missing"},
    {MESSAGES, "{'messages': [{'role': 'user', 'content': [{'type': 'image'}]}]}",
     "messages[0].content[0].type", "text only"},
    {MESSAGES, "{'messages': [{'role': 'user', 'content': [5]}]}", "messages[0].content[0]",
     "an object"},
    {MESSAGES,
     "{'messages': [{'role': 'assistant', 'content': [{'type': 'tool_use', 'id': 'a', "
     "'name': 'f', 'input': '{}'}]}]}",
     "messages[0].content[0].input", "an object"},
    {MESSAGES,
     "{'messages': [{'role': 'assistant', 'content': [{'type': 'tool_result', "
     "'tool_use_id': 'a'}]}]}",
     "messages[0].content[0].type", "tool_use"},
    {MESSAGES, "{'messages': [{'role': 'user', 'content': 'a'}], 'system': 5}", "system", "not 5"},
    {MESSAGES,
     "{'messages': [{'role': 'user', 'content': 'a'}], 'tools': [{'type': "
     "'bash_20250124', 'name': 'bash'}]}",
     "tools[0].type", "no tools"},
    {MESSAGES, "{'messages': [{'role': 'user', 'content': 'a'}], 'tool_choice': 'any'}",
     "tool_choice", "an object"},
    {MESSAGES, "{'messages': [{'role': 'user', 'content': 'a'}], 'thinking': {'type': 'much'}}",
     "thinking.type", "much"},
    {MESSAGES, "{'messages': [{'role': 'user', 'content': 'a'}], 'stop_sequences': 'x'}",
     "stop_sequences", "a list"},
    {MESSAGES,
     "{'messages': [{'role': 'user', 'content': 'a'}], 'output_config': {'format': "
     "{'type': 'json'}}}",
     "output_config.format.type", "json_schema"},
};

static json_t *read_json(const char *text)
{
    char copy[4096];
    snprintf(copy, sizeof(copy), "%s", text);
    for (char *c = copy; *c != 0; c++)
        *c = *c == '\'' ? '"' : *c;
    json_t *value = json_loads(copy, 0, NULL);
    CHECKF(value != NULL, "%s", copy);
    return value;
}

static void check_good(void)
{
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        struct api_error error = {0};
        json_t *body = read_json(good[i].body), *want = read_json(good[i].chat), *chat;
        json_t *before = json_deep_copy(body);
        char *echo = NULL;
        uint32_t unknown;
        CHECK(api_known_fields_check(body, good[i].kind, &unknown, &error));
        CHECKF(api_form_convert(good[i].kind, body, &chat, &echo, &error), "%s: %s", good[i].body,
               error.message);
        char *shown = json_dumps(chat, JSON_SORT_KEYS);
        CHECKF(json_equal(chat, want), "%s: %s", good[i].body, shown);
        CHECKF(json_equal(body, before), "%s was changed", good[i].body);
        CHECK((echo != NULL) == (good[i].kind == RESPONSES));
        free(shown);
        free(echo);
        json_decref(before);
        json_decref(chat);
        json_decref(want);
        json_decref(body);
    }
}

static void check_bad(void)
{
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct api_error error = {0};
        json_t *body = read_json(bad[i].body), *chat = NULL;
        char *echo = NULL;
        CHECKF(!api_form_convert(bad[i].kind, body, &chat, &echo, &error), "%s", bad[i].body);
        CHECKF(error.status == 400 && strcmp(error.param, bad[i].param) == 0 &&
                   strstr(error.message, bad[i].part) != NULL,
               "%s: %s: %s", bad[i].body, error.param, error.message);
        json_decref(body);
    }
}

/* Bodies that would take much memory or time. */
static void check_large(void)
{
    struct api_error error = {0};
    struct api_request request;
    struct text body = {0};
    text_string_add(&body, "{\"input\": [");
    for (int i = 0; i < 70000; i++)
        text_format_add(&body, "%s{\"role\": \"user\", \"content\": \"a\"}", i > 0 ? "," : "");
    text_string_add(&body, "]}");
    CHECK(!api_request_parse(API_RESPONSES, body.data, body.bytes, &request, &error));
    CHECK(error.status == 400 && strstr(error.message, "too many messages") != NULL);
    text_clear(&body);
    text_string_add(&body,
                    "{\"max_tokens\": 5, \"messages\": [{\"role\": \"user\", \"content\": \"a\"}, "
                    "{\"role\": \"assistant\", \"content\": [");
    for (int i = 0; i < 100000; i++)
        text_format_add(&body, "%s{\"type\": \"thinking\", \"thinking\": \"some words\"}",
                        i > 0 ? "," : "");
    text_string_add(&body, "]}]}");
    CHECKF(api_request_parse(API_MESSAGES, body.data, body.bytes, &request, &error), "%s",
           error.message);
    const json_t *last = json_array_get(request.chat.messages, 1);
    CHECK(json_string_length(json_object_get(last, "reasoning_content")) == 1000000);
    api_request_done(&request);
    text_done(&body);
}

/* What an answer repeats of its request. */
static void check_echo(void)
{
    struct api_request request;
    struct api_error error = {0};
    static const char body[] = "{\"input\": \"a\", \"instructions\": \"\\u00e9\\\"\", \"tools\": "
                               "[{\"type\": \"function\", \"name\": \"f\"}], \"metadata\": "
                               "{\"k\": \"v\"}, \"max_output_tokens\": 9}";
    char text[2048];
    CHECKF(api_request_parse(API_RESPONSES, body, strlen(body), &request, &error), "%s",
           error.message);
    CHECK(request.max_tokens == 9 && request.kind == API_RESPONSES);
    snprintf(text, sizeof(text), "{%s}", request.repeated_members);
    json_t *echo = json_loads(text, 0, NULL);
    CHECKF(echo != NULL, "%s", text);
    CHECK(strcmp(json_string_value(json_object_get(echo, "instructions")), "\xc3\xa9\"") == 0);
    CHECK(json_array_size(json_object_get(echo, "tools")) == 1);
    CHECK(json_integer_value(json_object_get(echo, "max_output_tokens")) == 9);
    CHECK(json_object_get(json_object_get(echo, "metadata"), "k") != NULL);
    CHECK(strcmp(json_string_value(json_object_get(echo, "tool_choice")), "auto") == 0);
    json_decref(echo);
    api_request_done(&request);
    static const char without[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}";
    CHECK(!api_request_parse(API_MESSAGES, without, strlen(without), &request, &error));
    CHECK(strcmp(error.param, "max_tokens") == 0);
}

int main(void)
{
    check_good();
    check_bad();
    check_echo();
    check_large();
    printf("%zu bodies converted, %zu refused\n", sizeof(good) / sizeof(good[0]),
           sizeof(bad) / sizeof(bad[0]));
    return 0;
}
