/* Goal: clients get reasoning, content and tool calls in fields of their own; with streaming, the
 * deltas make the same message. Wrong fields are refused by name. Method: the scripted gateway
 * answers with the texts of models of each family, one byte a token; each chat is asked for with
 * and without streaming, and the deltas are joined as OpenAI's clients join them. */
#include "tests/check.h"
#include "tests/server/http/http_fixture.h"

#include <jansson.h>
#include <string.h>

#define TOOLS                                                                                      \
    "\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\", \"description\": \"x\"," \
    " \"parameters\": {\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"integer\"}}}}}," \
    " {\"type\": \"function\", \"function\": {\"name\": \"g\"}}]"
#define HERMES                                                                                     \
    {                                                                                              \
        ANSWER_TOOLS_HERMES, ANSWER_REASONING_THINK, false, 0                                      \
    }
#define MISTRAL                                                                                    \
    {                                                                                              \
        ANSWER_TOOLS_MISTRAL, ANSWER_REASONING_NONE, false, 0                                      \
    }
#define JSON                                                                                       \
    {                                                                                              \
        ANSWER_TOOLS_JSON, ANSWER_REASONING_NONE, false, 0                                         \
    }

static const struct {
    struct answer_format format;
    const char *answer;  /* As it stands in a JSON string. */
    const char *fields;  /* More fields of the body. */
    const char *message; /* The message without ids: content, reasoning, calls. */
    const char *finish;
} cases[] = {
    {HERMES, "Hello", TOOLS, "\"Hello\"", "stop"},
    {HERMES, "<tool_call>{\\\"name\\\": \\\"f\\\", \\\"arguments\\\": {\\\"a\\\": 1}}</tool_call>",
     TOOLS, "null f({\"a\": 1})", "tool_calls"},
    {HERMES,
     "<think>é…</think>\\n\\nSo.\\n<tool_call>\\n{\\\"name\\\": \\\"f\\\", \\\"arguments\\\": "
     "{}}\\n"
     "</tool_call>\\n<tool_call>{\\\"name\\\": \\\"g\\\", \\\"arguments\\\": {\\\"x\\\": "
     "\\\"日本\\\"}}"
     "</tool_call>",
     TOOLS, "\"So.\" reasoning \"é…\" f({}) g({\"x\": \"日本\"})", "tool_calls"},
    {HERMES, "<think>Well</think>Yes", "\"n\": 2", "\"Yes\" reasoning \"Well\"", "stop"},
    {HERMES, "<tool_call>{bad}</tool_call>", TOOLS, "\"<tool_call>{bad}</tool_call>\"", "stop"},
    {HERMES, "<tool_call>{\\\"name\\\": \\\"f\\\"}</tool_call>",
     "\"tool_choice\": \"none\", " TOOLS, "\"<tool_call>{\\\"name\\\": \\\"f\\\"}</tool_call>\"",
     "stop"},
    {HERMES, "<tool_call>{\\\"name\\\": \\\"f\\\", \\\"arguments\\\": {\\\"a\\\": 12345", TOOLS,
     "null f({\"a\": 12345)", "tool_calls"},
    {HERMES,
     "One <tool_call>{\\\"name\\\": \\\"f\\\", \\\"arguments\\\": {\\\"a\\\": 1}}</tool_call>",
     "\"stop\": \"1}\", " TOOLS, "\"One\" f({\"a\": )", "tool_calls"},
    {HERMES, "<think>x", TOOLS, "null reasoning \"x\"", "stop"},
    {HERMES, "Yes </", "\"logprobs\": true, \"return_token_ids\": true, " TOOLS, "\"Yes </\"",
     "stop"},
    {MISTRAL, "\\u0002[{\\\"name\\\": \\\"f\\\", \\\"arguments\\\": {\\\"a\\\": 1}}]", TOOLS,
     "null f({\"a\": 1})", "tool_calls"},
    {MISTRAL, "x\\u0002y", "\"n\": 1", "\"xy\"", "stop"},
    {JSON, "{\\\"name\\\": \\\"g\\\", \\\"arguments\\\": {}}",
     "\"tool_choice\": \"required\", " TOOLS, "null g({})", "tool_calls"},
    {{0},
     "{\\\"name\\\": \\\"g\\\", \\\"arguments\\\": {}}",
     "\"tool_choice\": {\"type\": \"function\", \"function\": {\"name\": \"g\"}}, " TOOLS,
     "null g({})",
     "tool_calls"},
    {{0},
     "{\\\"name\\\": \\\"g\\\", \\\"arguments\\\": {}}",
     TOOLS,
     "\"{\\\"name\\\": \\\"g\\\", \\\"arguments\\\": {}}\"",
     "stop"},
};

static void format_set(struct answer_format format)
{
    server_pause();
    http->completions.model->format = format;
    server_resume();
}

/* ---- messages ---- */

static void value_print(char *out, const char *before, const json_t *value)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY);
    sprintf(out + strlen(out), "%s%s", before, text);
    free(text);
}

/* Prints content, reasoning and calls; checks the ids. */
static void message_print(const json_t *message, bool mistral, char *out)
{
    static char seen[64];
    size_t index;
    const json_t *call, *reasoning = json_object_get(message, "reasoning_content");
    out[0] = 0;
    CHECK(strcmp(json_string_value(json_object_get(message, "role")), "assistant") == 0);
    CHECK(json_object_get(message, "content") != NULL);
    value_print(out, "", json_object_get(message, "content"));
    if (reasoning != NULL) {
        CHECK(json_equal(reasoning, json_object_get(message, "reasoning")));
        value_print(out, " reasoning ", reasoning);
    }
    json_array_foreach(json_object_get(message, "tool_calls"), index, call)
    {
        const json_t *function = json_object_get(call, "function");
        const char *id = json_string_value(json_object_get(call, "id"));
        CHECK(strcmp(json_string_value(json_object_get(call, "type")), "function") == 0);
        CHECKF(mistral ? strlen(id) == 9 : strncmp(id, "call_", 5) == 0 && strlen(id) == 29, "%s",
               id);
        CHECK(strcmp(seen, id) != 0);
        snprintf(seen, sizeof(seen), "%s", id);
        sprintf(out + strlen(out), " %s(%s)", json_string_value(json_object_get(function, "name")),
                json_string_value(json_object_get(function, "arguments")));
    }
}

static void string_join(json_t *object, const char *field, const json_t *more)
{
    const char *old = json_string_value(json_object_get(object, field));
    char text[4096];
    if (!json_is_string(more)) {
        if (more != NULL && old == NULL)
            json_object_set_new(object, field, json_null());
        return;
    }
    snprintf(text, sizeof(text), "%s%s", old != NULL ? old : "", json_string_value(more));
    json_object_set_new(object, field, json_string(text));
}

/* Adds a delta to a message. A call's id and name come once. */
static void delta_join(json_t *message, const json_t *delta)
{
    static const char *const fields[] = {"content", "reasoning_content", "reasoning"};
    size_t i;
    const json_t *piece;
    if (json_object_get(delta, "role") != NULL)
        json_object_set(message, "role", json_object_get(delta, "role"));
    for (int k = 0; k < 3; k++)
        string_join(message, fields[k], json_object_get(delta, fields[k]));
    json_array_foreach(json_object_get(delta, "tool_calls"), i, piece)
    {
        json_t *calls = json_object_get(message, "tool_calls");
        size_t index = (size_t)json_integer_value(json_object_get(piece, "index"));
        const json_t *function = json_object_get(piece, "function");
        if (calls == NULL)
            json_object_set_new(message, "tool_calls", calls = json_array());
        if (json_object_get(piece, "id") != NULL) {
            CHECK(index == json_array_size(calls));
            json_array_append_new(calls, json_deep_copy(piece));
            continue;
        }
        CHECK(index + 1 == json_array_size(calls) && json_object_get(function, "name") == NULL);
        string_join(json_object_get(json_array_get(calls, index), "function"), "arguments",
                    json_object_get(function, "arguments"));
    }
}

/* Joins the events of the reply for choice `wanted`. Returns a choice. */
static json_t *stream_join(uint32_t wanted)
{
    json_t *message = json_object(), *choice = json_pack("{s:o}", "message", message);
    const char *finish = NULL;
    for (char *at = strstr(reply_body, "data: "); at != NULL; at = strstr(at + 1, "\ndata: ")) {
        at += *at == '\n';
        json_t *event = json_loads(at + 6, JSON_DISABLE_EOF_CHECK, NULL);
        const json_t *one = json_array_get(json_object_get(event, "choices"), 0);
        if (one != NULL && json_integer_value(json_object_get(one, "index")) == wanted) {
            CHECK(json_is_object(json_object_get(one, "delta")) && finish == NULL);
            delta_join(message, json_object_get(one, "delta"));
            finish = json_string_value(json_object_get(one, "finish_reason"));
            if (finish != NULL)
                json_object_set_new(choice, "finish_reason", json_string(finish));
        }
        json_decref(event);
    }
    expect("data: [DONE]");
    return choice;
}

static void choice_check(size_t i, const json_t *choice, const char *what)
{
    char shown[4096];
    message_print(json_object_get(choice, "message"), cases[i].format.tools == ANSWER_TOOLS_MISTRAL,
                  shown);
    CHECKF(strcmp(shown, cases[i].message) == 0, "%s, %s: %s, want %s", cases[i].answer, what,
           shown, cases[i].message);
    const char *finish = json_string_value(json_object_get(choice, "finish_reason"));
    CHECKF(finish != NULL && strcmp(finish, cases[i].finish) == 0, "%s, %s: %s", cases[i].answer,
           what, finish);
}

static void check_case(size_t i)
{
    char body[4096];
    format_set(cases[i].format);
    for (int stream = 0; stream < 2; stream++) {
        uint32_t n = strstr(cases[i].fields, "\"n\": 2") != NULL ? 2 : 1;
        snprintf(body, sizeof(body),
                 "{\"messages\": [{\"role\": \"user\", \"content\": \"e%s\"}], \"stream\": %s, %s}",
                 cases[i].answer, stream ? "true" : "false", cases[i].fields);
        CHECKF(post("/v1/chat/completions", body) == 200, "%s", reply);
        json_t *root = stream ? NULL : json_loads(reply_body, 0, NULL);
        for (uint32_t k = 0; k < n; k++) {
            json_t *choice =
                stream ? stream_join(k) : json_array_get(json_object_get(root, "choices"), k);
            choice_check(i, choice, stream ? "stream" : "body");
            if (stream)
                json_decref(choice);
        }
        json_decref(root);
    }
}

/* ---- usage and refusals ---- */

static void check_usage(void)
{
    format_set((struct answer_format)HERMES);
    CHECK(post("/v1/chat/completions",
               "{\"messages\": [{\"role\": \"user\", \"content\": \"e<think>abc</think>x\"}]}") ==
          200);
    /* The bytes from the last one of <think> to that of </think>. */
    expect("\"completion_tokens_details\":{\"reasoning_tokens\":12}");
    CHECK(post("/v1/chat/completions",
               "{\"messages\": [{\"role\": \"user\", \"content\": \"eabc\"}], \"stream\": true, "
               "\"stream_options\": {\"include_usage\": true}}") == 200);
    expect("\"completion_tokens_details\":{\"reasoning_tokens\":0}");
    format_set((struct answer_format){0});
    CHECK(post("/v1/chat/completions",
               "{\"messages\": [{\"role\": \"user\", \"content\": \"e<think>abc</think>x\"}]}") ==
          200);
    expect("\"content\":\"<think>abc</think>x\"");
    expect_not("completion_tokens_details");
}

static void check_refused(void)
{
    static const char *const bodies[][2] = {
        {"\"tools\": {}", "tools"},
        {"\"tools\": [1]", "tools[0]"},
        {"\"tools\": [{\"type\": \"web\"}]", "tools[0].type"},
        {"\"tools\": [{\"function\": {}}]", "tools[0].function.name"},
        {"\"tools\": [{\"function\": {\"name\": \"a b\"}}]", "tools[0].function.name"},
        {"\"tools\": [{\"function\": {\"name\": \"a\", \"parameters\": []}}]",
         "tools[0].function.parameters"},
        {"\"tools\": [{\"function\": {\"name\": \"a\", \"parameters\": {\"type\": \"array\"}}}]",
         "tools[0].function.parameters.type"},
        {"\"tools\": [{\"function\": {\"name\": \"a\", \"strict\": 1}}]",
         "tools[0].function.strict"},
        {"\"tools\": [{\"function\": {\"name\": \"a\"}}, {\"function\": {\"name\": \"a\"}}]",
         "tools"},
        {"\"tool_choice\": \"required\"", "tool_choice"},
        {"\"tool_choice\": \"always\", " TOOLS, "tool_choice"},
        {"\"tool_choice\": {\"type\": \"function\", \"function\": {\"name\": \"h\"}}, " TOOLS,
         "tool_choice"},
        {"\"tool_choice\": {\"type\": \"allowed_tools\"}, " TOOLS, "tool_choice"},
        {"\"tool_choice\": \"required\", \"guided_regex\": \"a\", " TOOLS, "tool_choice"},
        {"\"tool_choice\": \"required\", \"min_tokens\": 3, " TOOLS, "min_tokens"},
        {"\"parallel_tool_calls\": 1", "parallel_tool_calls"},
        {"\"reasoning_effort\": \"much\"", "reasoning_effort"},
        {"\"tool_choice\": \"required\", \"tools\": [{\"function\": {\"name\": \"a\", "
         "\"parameters\": "
         "{\"properties\": {\"b\": {\"not\": {}}}}}}]",
         "tools[0].function.parameters#/properties/b/not"},
        {"\"functions\": [1]", "functions"},
    };
    static const char *const messages[][2] = {
        {"{\"role\": \"assistant\", \"tool_calls\": 1}", "messages[0].tool_calls"},
        {"{\"role\": \"assistant\", \"tool_calls\": [{\"function\": {}}]}",
         "messages[0].tool_calls[0].function.name"},
        {"{\"role\": \"assistant\", \"tool_calls\": [{\"function\": {\"name\": \"a\", "
         "\"arguments\": "
         "1}}]}",
         "messages[0].tool_calls[0].function.arguments"},
        {"{\"role\": \"tool\", \"content\": null}", "messages[0].content"},
        {"{\"role\": \"tool\", \"content\": \"x\", \"tool_call_id\": 1}",
         "messages[0].tool_call_id"},
        {"{\"role\": \"assistant\", \"function_call\": {}}", "messages[0].function_call"},
        {"{\"role\": \"function\", \"content\": \"x\"}", "messages[0]"},
    };
    char body[2048];
    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++) {
        snprintf(body, sizeof(body),
                 "{\"messages\": [{\"role\": \"user\", \"content\": \"ea\"}], %s}", bodies[i][0]);
        CHECKF(post("/v1/chat/completions", body) == 400, "%s: %s", body, reply);
        expect(bodies[i][1]);
    }
    for (size_t i = 0; i < sizeof(messages) / sizeof(messages[0]); i++) {
        snprintf(body, sizeof(body), "{\"messages\": [%s]}", messages[i][0]);
        CHECKF(post("/v1/chat/completions", body) == 400, "%s: %s", body, reply);
        expect(messages[i][1]);
    }
    CHECK(post("/v1/chat/completions",
               "{\"messages\": [{\"role\": \"assistant\", \"content\": null, \"tool_calls\": "
               "[{\"id\": "
               "\"c\", \"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": "
               "\"{}\"}}]}, {\"role\": \"tool\", \"tool_call_id\": \"c\", \"content\": \"eok\"}], "
               "\"reasoning_effort\": \"low\"}") == 200);
    expect("\"content\":\"ok\"");
}

int main(void)
{
    server_config_default();
    server_start((struct http_options){0});
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        check_case(i);
    check_usage();
    check_refused();
    server_stop();
    return 0;
}
