/* Goal: /v1/responses and /v1/messages answer as OpenAI and Anthropic do: reasoning, text and calls
 * are items of their own, and the events of a stream make the same answer as the body. Method: the
 * scripted gateway answers with texts of models, one byte a token; each is asked for with and
 * without streaming. The events are checked one by one (order, numbers, indices) and joined. */
#include "tests/check.h"
#include "tests/server/http/http_fixture.h"

#include "events/event_log.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CALL  "<tool_call>{\\\"name\\\": \\\"f\\\", \\\"arguments\\\": {\\\"a\\\": 1}}</tool_call>"
#define CALL2 "<tool_call>{\\\"name\\\": \\\"f\\\", \\\"arguments\\\": {}}</tool_call>"

static const struct answer_format hermes = {ANSWER_TOOLS_HERMES, ANSWER_REASONING_THINK, false, 0};
static const struct answer_format plain;

static const struct {
    const struct answer_format *format;
    const char *answer;  /* As it stands in a JSON string. */
    uint32_t tokens_max; /* Not 0: the answer is this many 'a'. */
    const char *stop;    /* A stop string. */
    const char *items;   /* Kinds and texts. */
    const char *status, *reason;
} cases[] = {
    {&plain, "Hi \xc3\xa9", 0, "", "text(Hi \xc3\xa9)", "completed", "end_turn"},
    {&plain, "", 3, "", "text(aaa)", "incomplete", "max_tokens"},
    {&plain, "Hello", 0, "lo", "text(Hel)", "completed", "stop_sequence"},
    {&hermes, "<think>Well</think>So", 0, "", "reasoning(Well) text(So)", "completed", "end_turn"},
    {&hermes, CALL, 0, "", "call f({\"a\": 1})", "completed", "tool_use"},
    {&hermes, "<think>x</think>One\\n" CALL "\\n" CALL2, 0, "",
     "reasoning(x) text(One) call f({\"a\": 1}) call f({})", "completed", "tool_use"},
    {&hermes, CALL " and then", 0, "", "call f({\"a\": 1}) text(and then)", "completed",
     "tool_use"},
    {&hermes, "", 0, "", "", "completed", "end_turn"},
};

static json_t *member(const json_t *object, const char *name)
{
    json_t *value = json_object_get(object, name);
    CHECKF(value != NULL, "no %s in %s", name, reply);
    return value;
}

static const char *string_of(const json_t *object, const char *name)
{
    const char *text = json_string_value(member(object, name));
    CHECKF(text != NULL, "%s is no text in %s", name, reply);
    return text;
}

static uint32_t number_of(const json_t *object, const char *name)
{
    return (uint32_t)json_integer_value(member(object, name));
}

/* ---- the events of the last reply ---- */

static json_t *events[4096];
static size_t event_count;

static void events_free(void)
{
    while (event_count > 0)
        json_decref(events[--event_count]);
}

/* Each event has a line with its type and a line with its data. */
static void events_read(void)
{
    char type[64];
    events_free();
    for (const char *at = reply_body; *at != 0; at = strstr(at, "\n\n") + 2) {
        CHECKF(sscanf(at, "event: %63s\n", type) == 1, "%s", at);
        const char *data = strchr(at, '\n') + 1;
        CHECKF(strncmp(data, "data: ", 6) == 0, "%s", at);
        json_t *event = json_loads(data + 6, JSON_DISABLE_EOF_CHECK, NULL);
        CHECKF(event != NULL && strcmp(string_of(event, "type"), type) == 0, "%s", at);
        CHECK(event_count < sizeof(events) / sizeof(events[0]));
        events[event_count++] = event;
    }
}

/* ---- /v1/responses ---- */

static void responses_print(const json_t *response, char *out)
{
    size_t i;
    const json_t *item;
    out[0] = 0;
    json_array_foreach(member(response, "output"), i, item)
    {
        const char *type = string_of(item, "type");
        const json_t *part = json_array_get(json_object_get(item, "content"), 0);
        sprintf(out + strlen(out), "%s", i > 0 ? " " : "");
        if (strcmp(type, "function_call") == 0) {
            CHECK(strncmp(string_of(item, "call_id"), "call_", 5) == 0);
            sprintf(out + strlen(out), "call %s(%s)", string_of(item, "name"),
                    string_of(item, "arguments"));
            continue;
        }
        bool text = strcmp(type, "message") == 0;
        CHECK(text ? strcmp(string_of(item, "role"), "assistant") == 0
                   : strcmp(type, "reasoning") == 0 && json_is_array(member(item, "summary")));
        CHECK(strcmp(string_of(part, "type"), text ? "output_text" : "reasoning_text") == 0);
        sprintf(out + strlen(out), "%s(%s)", text ? "text" : type, string_of(part, "text"));
    }
}

static void text_join(char *text, size_t capacity, const char *more)
{
    CHECK(strlen(text) + strlen(more) < capacity);
    strcat(text, more);
}

/* Checks the events of an item from events[at]; returns the number of the event behind them. */
static size_t item_check(size_t at, uint32_t index, const json_t *final)
{
    char text[4096] = "", prefix[64];
    const json_t *item = member(events[at], "item");
    const char *type = string_of(item, "type");
    bool call = strcmp(type, "function_call") == 0;
    snprintf(prefix, sizeof(prefix), "response.%s",
             call                           ? "function_call_arguments"
             : strcmp(type, "message") == 0 ? "output_text"
                                            : "reasoning_text");
    CHECK(strcmp(string_of(events[at], "type"), "response.output_item.added") == 0);
    CHECK(number_of(events[at], "output_index") == index);
    CHECK(strcmp(string_of(item, "status"), "in_progress") == 0);
    at++;
    if (!call)
        CHECK(strcmp(string_of(events[at++], "type"), "response.content_part.added") == 0);
    for (; strstr(string_of(events[at], "type"), ".delta") != NULL; at++) {
        CHECK(strncmp(string_of(events[at], "type"), prefix, strlen(prefix)) == 0);
        CHECK(strcmp(string_of(events[at], "item_id"), string_of(item, "id")) == 0);
        CHECK(number_of(events[at], "output_index") == index);
        text_join(text, sizeof(text), string_of(events[at], "delta"));
    }
    CHECK(strncmp(string_of(events[at], "type"), prefix, strlen(prefix)) == 0);
    CHECK(strcmp(string_of(events[at], call ? "arguments" : "text"), text) == 0);
    at++;
    if (!call) {
        CHECK(strcmp(string_of(events[at], "type"), "response.content_part.done") == 0);
        CHECK(strcmp(string_of(member(events[at], "part"), "text"), text) == 0);
        at++;
    }
    CHECK(strcmp(string_of(events[at], "type"), "response.output_item.done") == 0);
    CHECK(json_equal(member(events[at], "item"), final));
    return at + 1;
}

static json_t *responses_join(const char *status)
{
    char last[64];
    snprintf(last, sizeof(last), "response.%s", status);
    events_read();
    for (size_t i = 0; i < event_count; i++)
        CHECK(number_of(events[i], "sequence_number") == i);
    CHECK(strcmp(string_of(events[0], "type"), "response.created") == 0);
    CHECK(strcmp(string_of(events[1], "type"), "response.in_progress") == 0);
    json_t *response = member(events[event_count - 1], "response");
    CHECK(strcmp(string_of(events[event_count - 1], "type"), last) == 0);
    CHECK(strcmp(string_of(member(events[0], "response"), "id"), string_of(response, "id")) == 0);
    size_t at = 2, i;
    const json_t *item;
    json_array_foreach(member(response, "output"), i, item) at = item_check(at, (uint32_t)i, item);
    CHECK(at == event_count - 1);
    return json_incref(response);
}

static void check_responses(size_t i, bool stream)
{
    char body[4096], shown[4096];
    snprintf(body, sizeof(body),
             "{\"input\": \"%c%s\", \"stream\": %s, \"metadata\": {\"k\": \"v\"}%s, \"tools\": "
             "[{\"type\": \"function\", \"name\": \"f\"}], \"stop\": [\"%s\"]}",
             cases[i].tokens_max != 0 ? 'a' : 'e', cases[i].answer, stream ? "true" : "false",
             cases[i].tokens_max == 3 ? ", \"max_output_tokens\": 3" : "",
             cases[i].stop[0] != 0 ? cases[i].stop : "\\u0001");
    CHECKF(post("/v1/responses", body) == 200, "%s", reply);
    json_t *response = stream ? responses_join(cases[i].status) : json_loads(reply_body, 0, NULL);
    responses_print(response, shown);
    CHECKF(strcmp(shown, cases[i].items) == 0, "%s: %s, want %s", cases[i].answer, shown,
           cases[i].items);
    CHECK(strncmp(string_of(response, "id"), "resp_", 5) == 0);
    CHECK(strcmp(string_of(response, "status"), cases[i].status) == 0);
    CHECK(strcmp(string_of(response, "object"), "response") == 0);
    CHECK(json_object_get(member(response, "metadata"), "k") != NULL);
    CHECK(json_is_null(member(response, "error")));
    CHECK(number_of(member(response, "usage"), "output_tokens") > 0);
    CHECK(number_of(member(response, "usage"), "total_tokens") ==
          number_of(member(response, "usage"), "input_tokens") +
              number_of(member(response, "usage"), "output_tokens"));
    json_decref(response);
}

/* Log-probabilities of the text's tokens. */
static void check_logprobs(void)
{
    static const char body[] = "{\"input\": \"eHi\", \"stream\": %s, \"top_logprobs\": 1, "
                               "\"include\": [\"message.output_text.logprobs\"]}";
    char text[512];
    for (int stream = 0; stream < 2; stream++) {
        snprintf(text, sizeof(text), body, stream ? "true" : "false");
        CHECK(post("/v1/responses", text) == 200);
        json_t *response = stream ? responses_join("completed") : json_loads(reply_body, 0, NULL);
        json_t *content = member(json_array_get(member(response, "output"), 0), "content");
        json_t *entries = member(json_array_get(content, 0), "logprobs");
        CHECKF(json_array_size(entries) >= 2, "%s", reply);
        CHECK(strcmp(string_of(json_array_get(entries, 0), "token"), "H") == 0);
        json_decref(response);
    }
    expect("\"delta\":\"H\",\"logprobs\":[{");
}

/* ---- /v1/messages ---- */

static void message_print(const json_t *message, char *out)
{
    size_t i;
    const json_t *block;
    out[0] = 0;
    json_array_foreach(member(message, "content"), i, block)
    {
        const char *type = string_of(block, "type");
        sprintf(out + strlen(out), "%s", i > 0 ? " " : "");
        if (strcmp(type, "tool_use") == 0) {
            char *input = json_dumps(member(block, "input"), 0);
            sprintf(out + strlen(out), "call %s(%s)", string_of(block, "name"), input);
            free(input);
        } else if (strcmp(type, "thinking") == 0) {
            sprintf(out + strlen(out), "reasoning(%s)", string_of(block, "thinking"));
        } else {
            sprintf(out + strlen(out), "text(%s)", string_of(block, "text"));
        }
    }
}

/* Adds the text of a delta to a block, as Anthropic's clients do. */
static void delta_join(json_t *block, const json_t *delta)
{
    static const char *const fields[][3] = {{"text_delta", "text", "text"},
                                            {"thinking_delta", "thinking", "thinking"},
                                            {"input_json_delta", "partial_json", "json"}};
    char text[4096] = "";
    for (int i = 0; i < 3; i++) {
        if (strcmp(string_of(delta, "type"), fields[i][0]) != 0)
            continue;
        const char *had = json_string_value(json_object_get(block, fields[i][2]));
        text_join(text, sizeof(text), had != NULL ? had : "");
        text_join(text, sizeof(text), string_of(delta, fields[i][1]));
        json_object_set_new(block, fields[i][2], json_string(text));
        return;
    }
    CHECKF(false, "%s", reply);
}

static json_t *message_join(void)
{
    events_read();
    CHECK(strcmp(string_of(events[0], "type"), "message_start") == 0);
    json_t *message = json_deep_copy(member(events[0], "message")), *block = NULL;
    json_t *content = member(message, "content");
    CHECK(json_array_size(content) == 0 && json_is_null(member(message, "stop_reason")));
    for (size_t i = 1; i < event_count; i++) {
        const char *type = string_of(events[i], "type");
        if (strcmp(type, "content_block_start") == 0) {
            CHECK(block == NULL && number_of(events[i], "index") == json_array_size(content));
            block = json_deep_copy(member(events[i], "content_block"));
            json_array_append_new(content, block);
        } else if (strcmp(type, "content_block_delta") == 0) {
            CHECK(number_of(events[i], "index") == json_array_size(content) - 1);
            delta_join(block, member(events[i], "delta"));
        } else if (strcmp(type, "content_block_stop") == 0) {
            const char *input = json_string_value(json_object_get(block, "json"));
            if (input != NULL)
                json_object_set_new(block, "input", json_loads(input, 0, NULL));
            block = NULL;
        } else if (strcmp(type, "message_delta") == 0) {
            CHECK(i == event_count - 2 && block == NULL);
            json_object_update(message, member(events[i], "delta"));
            json_object_set(message, "usage", member(events[i], "usage"));
        } else {
            CHECKF(strcmp(type, "message_stop") == 0 && i == event_count - 1, "%s", type);
        }
    }
    return message;
}

static void check_messages(size_t i, bool stream)
{
    char body[4096], shown[4096];
    snprintf(body, sizeof(body),
             "{\"max_tokens\": %u, \"messages\": [{\"role\": \"user\", \"content\": \"%c%s\"}], "
             "\"stream\": %s, \"tools\": [{\"name\": \"f\", \"input_schema\": {}}], "
             "\"stop_sequences\": [\"%s\"]}",
             cases[i].tokens_max != 0 ? cases[i].tokens_max : 1000,
             cases[i].tokens_max != 0 ? 'a' : 'e', cases[i].answer, stream ? "true" : "false",
             cases[i].stop[0] != 0 ? cases[i].stop : "\\u0001");
    CHECKF(post("/v1/messages", body) == 200, "%s", reply);
    json_t *message = stream ? message_join() : json_loads(reply_body, 0, NULL);
    message_print(message, shown);
    CHECKF(strcmp(shown, cases[i].items) == 0, "%s: %s, want %s", cases[i].answer, shown,
           cases[i].items);
    CHECK(strncmp(string_of(message, "id"), "msg_", 4) == 0);
    CHECK(strcmp(string_of(message, "type"), "message") == 0);
    CHECK(strcmp(string_of(message, "role"), "assistant") == 0);
    CHECKF(strcmp(string_of(message, "stop_reason"), cases[i].reason) == 0, "%s", reply);
    if (cases[i].stop[0] != 0)
        CHECK(strcmp(string_of(message, "stop_sequence"), cases[i].stop) == 0);
    else
        CHECK(json_is_null(member(message, "stop_sequence")));
    CHECK(number_of(member(message, "usage"), "output_tokens") > 0);
    json_decref(message);
}

/* ---- errors, ids, counting ---- */

static void check_errors(void)
{
    CHECK(post("/v1/messages", "{\"messages\": [{\"role\": \"user\", \"content\": \"ea\"}]}") ==
          400);
    expect("{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"max_"
           "tokens "
           "is missing\"},\"request_id\":\"");
    CHECK(post("/v1/messages", "{") == 400);
    expect("{\"type\":\"error\"");
    CHECK(post("/v1/responses", "{}") == 400);
    expect(
        "{\"error\":{\"message\":\"input is missing\",\"type\":\"invalid_request_error\",\"param\":"
        "\"input\"");
    /* A prompt beyond the context, and one that does not leave room for the answer. */
    static char body[60100];
    static const char head[] = "{\"input\": \"", tail[] = "\"}";
    memset(body, 'a', sizeof(body));
    memcpy(body, head, sizeof(head) - 1);
    memcpy(body + sizeof(body) - sizeof(tail), tail, sizeof(tail));
    CHECK(post("/v1/responses", body) == 400);
    expect("\"param\":\"input\"");
    expect("context_length_exceeded");
    CHECK(post("/v1/responses", "{\"input\": \"ea\", \"max_output_tokens\": 60000}") == 400);
    expect("\"param\":\"max_output_tokens\"");
    expect("max_output_tokens is 60000");
    CHECK(post("/v1/responses", "{\"input\": \"ea\", \"previous_response_id\": \"resp_1\"}") ==
          400);
    expect("\"code\":\"unsupported_parameter\"");
    CHECK(post("/v1/messages", "{\"max_tokens\": 5, \"model\": \"nope\", \"messages\": [{\"role\": "
                               "\"user\", \"content\": \"ea\"}]}") == 404);
    expect("\"type\":\"not_found_error\"");
    CHECK(ask("GET", "/v1/responses", "", "") == 405);
    CHECK(post("/v1/responses/resp_1/cancel", "{}") == 404);
}

static void check_ids(void)
{
    CHECK(ask("POST", "/v1/responses", "x-request-id: mine\r\n", "{\"input\": \"ea\"}") == 200);
    expect("\"id\":\"resp_mine\"");
    CHECK(ask("POST", "/v1/messages", "x-request-id: mine\r\n",
              "{\"max_tokens\": 5, \"messages\": [{\"role\": \"user\", \"content\": \"ea\"}]}") ==
          200);
    expect("\"id\":\"msg_mine\"");
}

static void check_count(void)
{
    CHECK(post("/v1/messages/count_tokens",
               "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}") == 200);
    json_t *root = json_loads(reply_body, 0, NULL);
    uint32_t one = number_of(root, "input_tokens");
    json_decref(root);
    CHECK(post("/v1/messages/count_tokens",
               "{\"messages\": [{\"role\": \"user\", \"content\": \"abcd\"}]}") == 200);
    root = json_loads(reply_body, 0, NULL);
    CHECK(one > 0 && number_of(root, "input_tokens") == one + 3);
    json_decref(root);
    CHECK(post("/v1/messages/count_tokens", "{}") == 400);
    expect("\"type\":\"error\"");
}

/* An answer that fails in the middle: the last event says so. One that fails before: a status. */
static void check_failures(void)
{
    CHECK(post("/v1/responses", "{\"input\": \"f\", \"stream\": true}") == 200);
    events_read();
    const json_t *last = events[event_count - 1];
    CHECK(strcmp(string_of(last, "type"), "response.failed") == 0);
    CHECK(strcmp(string_of(member(last, "response"), "status"), "failed") == 0);
    CHECK(strcmp(string_of(member(member(last, "response"), "error"), "code"), "server_error") ==
          0);
    CHECK(post("/v1/messages",
               "{\"max_tokens\": 9, \"messages\": [{\"role\": \"user\", \"content\": "
               "\"f\"}], \"stream\": true}") == 200);
    events_read();
    last = events[event_count - 1];
    CHECK(strcmp(string_of(last, "type"), "error") == 0);
    CHECK(strcmp(string_of(member(last, "error"), "type"), "overloaded_error") == 0);
    CHECK(post("/v1/responses", "{\"input\": \"x\", \"stream\": true}") == 503);
    CHECK(post("/v1/responses", "{\"input\": \"f\"}") == 503);
    expect("\"type\":\"server_error\"");
}

/* The access log says that an answer of another API ended with calls. The expected answers are
 * those of cases[4]. */
static void check_access_log(void)
{
    char path[] = "/tmp/cleave-forms-XXXXXX", line[4096];
    struct event_log *log = NULL;
    struct error error;
    int fd = mkstemp(path);
    CHECK(fd >= 0);
    CHECKF(event_log_open(path, &log, &error) == ST_OK, "%s", error.text);
    server_pause();
    http->completions.model->format = hermes;
    http_access_log_set(http, log, false);
    server_resume();
    check_responses(4, false);
    check_messages(4, true);
    for (int n = 0; n < 2; n++) {
        size_t bytes = 0;
        for (int i = 0; i < 60000 && (bytes == 0 || line[bytes - 1] != '\n'); i++) {
            ssize_t got = read(fd, line + bytes, 1);
            CHECK(got >= 0 && bytes + 1 < sizeof(line));
            bytes += (size_t)got;
            if (got == 0)
                usleep(1000); /* The line is written after the answer. */
        }
        line[bytes] = 0;
        CHECKF(strstr(line, " finish=tool_calls ") != NULL, "%s", line);
    }
    server_pause();
    http_access_log_set(http, NULL, false);
    server_resume();
    event_log_close(log);
    close(fd);
    unlink(path);
}

int main(void)
{
    server_config_default();
    server_start((struct http_options){0});
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        server_pause();
        http->completions.model->format = *cases[i].format;
        server_resume();
        for (int stream = 0; stream < 2; stream++) {
            check_responses(i, stream);
            check_messages(i, stream);
        }
    }
    check_logprobs();
    check_errors();
    check_ids();
    check_count();
    check_failures();
    check_access_log();
    events_free();
    server_stop();
    printf("%zu answers of two APIs, as bodies and as streams\n", sizeof(cases) / sizeof(cases[0]));
    return 0;
}
