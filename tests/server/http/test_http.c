/* Goal: the bytes that API clients receive are right, and a client that disconnects is noticed at
 * once. Method: the real HTTP side over loopback with a scripted gateway (fake_gateway.h) and plain
 * sockets as clients. */
#include "tests/check.h"
#include "tests/server/http/http_fixture.h"
#include "transport/address.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

static void check_small_endpoints(void)
{
    CHECK(ask("GET", "/v1/models", "", "") == 200);
    expect("\"id\":\"m\",\"object\":\"model\"");
    expect("\"max_model_len\":60000");
    CHECK(ask("GET", "/v1/models/m", "", "") == 200);
    CHECK(ask("GET", "/v1/models/m/", "", "") == 200);
    CHECK(ask("GET", "/v1/models/other", "", "") == 404);
    expect("there is no model 'other' here\",\"type\":\"not_found_error\",\"param\":\"model\"");
    expect("\"code\":\"model_not_found\"");
    CHECK(ask("GET", "/health", "", "") == 200 && ask("GET", "/ping", "", "") == 200);
    CHECK(ask("GET", "/version", "", "") == 200);
    CHECK(ask("GET", "/metrics", "", "") == 200);
    expect("text/plain; version=0.0.4");
    CHECK(ask("GET", "/nothing", "", "") == 404);
    expect("\"message\":\"there is no /nothing here\",\"type\":\"not_found_error\"");
    CHECK(ask("GET", "/v1/completions", "", "") == 405);
    expect("Allow: POST");
    CHECK(post("/health", "{}") == 405);
    CHECK(post("/tokenize", "{\"prompt\": \"ab\", \"return_token_strs\": true}") == 200);
    expect("{\"count\":2,\"max_model_len\":60000,\"tokens\":[97,98],\"token_strs\":[\"a\",\"b\"]}");
    CHECK(post("/tokenize", "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], "
                            "\"tools\": [{}]}") == 400);
    expect("\"param\":\"tools[0].function\"");
    CHECK(post("/v1/detokenize", "{\"tokens\": [104, 105]}") == 200);
    expect("{\"prompt\":\"hi\"}");
    CHECK(post("/detokenize", "{\"tokens\": [97, 240, 159, 152, 98, 240, 159]}") == 200);
    expect("{\"prompt\":\"a\xef\xbf\xbd"
           "b\xef\xbf\xbd\"}"); /* one for each cut character */
    CHECK(post("/detokenize", "{\"tokens\": [999]}") == 400);
    expect("tokens[0] is 999");
}

static void check_errors(void)
{
    CHECK(post("/v1/completions", "{") == 400);
    CHECK(post("/v1/completions", "{\"prompt\": \"a\", \"n\": 0}") == 400);
    expect("\"param\":\"n\"");
    CHECK(post("/v1/completions", "{\"prompt\": \"a\", \"model\": \"gpt\"}") == 404);
    expect("there is no model 'gpt' here: want 'm'");
    CHECK(post("/v1/completions", "{\"prompt\": [700]}") == 400);
    expect("prompt token 0 is 700");
    CHECK(post("/v1/embeddings", "{\"input\": [700]}") == 400);
    expect("input token 0 is 700");
    expect("\"param\":\"input\"");
    CHECK(post("/v1/completions", "{\"prompt\": \"a\", \"max_tokens\": 60000}") == 400);
    expect("context_length_exceeded");
    expect("This model's maximum context length is 60000 tokens"); /* clients look for it */
    fake_submits_left = 0;
    fake_submit_failure = ST_NO_MEMORY;
    CHECK(post("/v1/completions", "{\"prompt\": \"a\"}") == 503);
    expect("out of memory");
    fake_submit_failure = ST_NO_RESOURCE;
    fake_submits_left = UINT32_MAX;
    CHECK(post("/v1/completions", "{\"prompt\": \"r\"}") == 429);
    expect("Retry-After: 7");
    CHECK(post("/v1/completions", "{\"prompt\": \"R\"}") == 400);
    expect("larger than any machine");
    CHECK(post("/v1/completions", "{\"prompt\": \"x\"}") == 503);
    expect("machine \\\"token-0\\\" is lost");
    CHECK(post("/v1/completions", "{\"prompt\": \"x\", \"stream\": true}") == 503);
    CHECK(post("/v1/completions", "{\"prompt\": \"f\"}") == 503);
    CHECK(post("/v1/chat/completions",
               "{\"messages\": [{\"role\": \"robot\", \"content\": \"e\"}]}") == 400);
    expect("messages[0]: role 'robot'");
    CHECK(ask("POST", "/v1/completions", "Content-Encoding: gzip\r\n", "{\"prompt\": \"a\"}") ==
          415);
    expect("Content-Encoding is 'gzip'");
    /* Too large: by its Content-Length before the body, or by what comes in chunks. */
    int fd = dial();
    const char *large = "POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
                        "Content-Type: application/json\r\nContent-Length: 99999999\r\n\r\n";
    send_bytes(fd, large, strlen(large));
    CHECK(read_reply(fd) == 413);
    close(fd);
    fd = dial();
    const char *chunks = "POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
                         "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
    send_bytes(fd, chunks, strlen(chunks));
    static char chunk[70000];
    int head = snprintf(chunk, sizeof(chunk), "%x\r\n", 65536);
    memset(chunk + head, ' ', 65536);
    memcpy(chunk + head + 65536, "\r\n", 2);
    for (int i = 0; i < 3; i++)
        send_bytes(fd, chunk, (size_t)head + 65538);
    send_bytes(fd, "0\r\n\r\n", 5);
    CHECK(read_reply(fd) == 413);
    close(fd);
}

static void check_whole_answers(void)
{
    CHECK(ask("POST", "/v1/completions", "x-request-id: my-id\r\n",
              "{\"prompt\": \"ehello \\u00e9!\", \"max_tokens\": 50}") == 200);
    expect("x-request-id: my-id");
    expect("{\"id\":\"cmpl-my-id\",\"object\"");
    CHECK(strcmp(fake_name, "my-id") == 0);
    expect("\"object\":\"text_completion\"");
    expect("\"choices\":[{\"index\":0,\"text\":\"hello \xc3\xa9!\",\"logprobs\":null,"
           "\"finish_reason\":\"stop\",\"stop_reason\":null}]");
    expect("\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":10,\"total_tokens\":20,"
           "\"prompt_tokens_details\":{\"cached_tokens\":0}}");
    CHECK(post("/v1/chat/completions",
               "{\"messages\": [{\"role\": \"user\", \"content\": \"ehi\"}], \"model\": \"m\"}") ==
          200);
    expect("\"object\":\"chat.completion\"");
    expect("\"message\":{\"role\":\"assistant\",\"content\":\"hi\"}");
    CHECK(post("/v1/completions", "{\"prompt\": [\"ex\", \"ey\"], \"n\": 2}") == 200);
    expect("{\"index\":1,\"text\":\"x\"");
    expect("{\"index\":2,\"text\":\"y\"");
    expect("\"prompt_tokens\":4,\"completion_tokens\":8");
    CHECK(post("/v1/completions",
               "{\"prompt\": \"a\", \"max_tokens\": 3, \"return_token_ids\": true}") == 200);
    expect("\"text\":\"aaa\",\"logprobs\":null,\"finish_reason\":\"length\","
           "\"stop_reason\":null,\"token_ids\":[97,97,97],\"prompt_token_ids\":[97]");
}

static void check_stops(void)
{
    unsigned before = fake_stopped;
    CHECK(post("/v1/completions", "{\"prompt\": \"ehello world\", \"stop\": [\"o w\", \"zz\"]}") ==
          200);
    expect("\"text\":\"hell\"");
    expect("\"finish_reason\":\"stop\",\"stop_reason\":\"o w\"}");
    wait_for_counter(&fake_stopped, before + 1, "released by a stop string");
    CHECK(post("/v1/completions",
               "{\"prompt\": \"ehello\", \"stop\": \"lox\", \"stream\": true}") == 200);
    CHECK(count_in_body("\"finish_reason\":\"stop\"") == 1);
    expect(
        "\"text\":\"lo\",\"logprobs\":null,\"finish_reason\":\"stop\""); /* held back, then shown */
    /* The first min_tokens tokens contain no stop strings. */
    CHECK(post("/v1/completions",
               "{\"prompt\": \"ehello world\", \"stop\": \"l\", \"min_tokens\": 4}") == 200);
    expect("\"text\":\"hello wor\"");
    CHECK(post("/v1/completions", "{\"prompt\": \"ehello world\", \"stop\": [\"zz\", \"lo\"], "
                                  "\"include_stop_str_in_output\": true}") == 200);
    expect("\"text\":\"hello\"");
    expect("\"stop_reason\":\"lo\"}");
    /* 256 ends the script 'e': as a stop token of the client, it is the reason. */
    CHECK(post("/v1/completions", "{\"prompt\": \"ehi\", \"stop_token_ids\": [256]}") == 200);
    expect("\"text\":\"hi\"");
    expect("\"finish_reason\":\"stop\",\"stop_reason\":256}");
}

/* The rules of a request reach the gateway. */
static void check_rules(void)
{
    CHECK(post("/v1/completions",
               "{\"prompt\": \"a\", \"max_tokens\": 1, \"presence_penalty\": 1.5, "
               "\"frequency_penalty\": -2, \"repetition_penalty\": 1.25, "
               "\"logit_bias\": {\"98\": 100, \"5\": -1.5}, \"allowed_token_ids\": [99, 3, 99], "
               "\"bad_words\": [\"xy\"]}") == 200);
    CHECK(fake_sampling.presence_penalty == 1.5f && fake_sampling.frequency_penalty == -2.0f &&
          fake_sampling.repetition_penalty == 1.25f);
    struct token_rules rules;
    struct error error;
    uint32_t id;
    CHECK(token_rules_check(fake_rules, fake_rule_count, &rules, &error) == ST_OK);
    CHECK(rules.bias_count == 2 && token_rules_bias(&rules, 0, &id) == 100.0f && id == 98);
    CHECK(token_rules_bias(&rules, 1, &id) == -1.5f && id == 5);
    CHECK(rules.allowed_count == 2 && rules.allowed[0] == 3 && rules.allowed[1] == 99);
    /* Bytes are tokens here: " xy" has more tokens than "xy", so only "xy" is forbidden. */
    CHECK(rules.forbidden_words == 3 && rules.forbidden[0] == 2 && rules.forbidden[1] == 'x' &&
          rules.forbidden[2] == 'y');
    CHECK(post("/v1/completions", "{\"prompt\": \"a\", \"max_tokens\": 1}") == 200);
    CHECK(fake_rule_count == 0 && fake_sampling.presence_penalty == 0);
    CHECK(post("/v1/completions", "{\"prompt\": \"a\", \"logit_bias\": {\"258\": 1}}") == 400);
    expect("logit_bias names token 258: the model's vocabulary has ids 0 to 257");
    CHECK(post("/v1/completions", "{\"prompt\": \"a\", \"allowed_token_ids\": [999]}") == 400);
    expect("\"param\":\"allowed_token_ids\"");
}

/* Sends `count` bad words of 255 bytes, each of which takes 256 words of LIMIT_FORBIDDEN_WORDS. */
static int post_bad_words(uint32_t count)
{
    char body[8192];
    size_t at = (size_t)snprintf(body, sizeof(body), "{\"prompt\": \"a\", \"bad_words\": [");
    for (uint32_t i = 0; i < count; i++) {
        at += (size_t)snprintf(body + at, sizeof(body) - at, "%s\"", i > 0 ? ", " : "");
        memset(body + at, 'a' + (int)i, 255);
        at += 255;
        body[at++] = '"';
    }
    snprintf(body + at, sizeof(body) - at, "]}");
    return post("/v1/completions", body);
}

/* Bytes are tokens here: with a space in front, a word has one token more and is not forbidden, so
 * this form needs no room. */
static void check_bad_words_limit(void)
{
    struct token_rules rules;
    struct error error;
    CHECK(post_bad_words(LIMIT_FORBIDDEN_WORDS / 256) == 200);
    CHECK(token_rules_check(fake_rules, fake_rule_count, &rules, &error) == ST_OK &&
          rules.forbidden_words == LIMIT_FORBIDDEN_WORDS);
    CHECK(post_bad_words(LIMIT_FORBIDDEN_WORDS / 256 + 1) == 400);
    expect("bad_words have too many tokens: want 4096");
}

static void check_best_of(void)
{
    /* The script 'a' is equally likely each time: the first ones are returned. */
    unsigned before = fake_submitted;
    CHECK(post("/v1/completions",
               "{\"prompt\": [\"a\", \"eb\"], \"n\": 1, \"best_of\": 3, \"max_tokens\": 2}") ==
          200);
    CHECK(fake_submitted == before + 6 && fake_sampling.logprobs == 0);
    CHECK(count_in_body("\"index\":") == 2 && count_in_body("\"text\":\"aa\"") == 1);
    expect("{\"index\":1,\"text\":\"b\",\"logprobs\":null");
    expect("\"completion_tokens\":12"); /* all answers were generated */
    /* The script 'l' is more likely with each request. */
    CHECK(post("/v1/completions",
               "{\"prompt\": \"l\", \"n\": 2, \"best_of\": 3, \"max_tokens\": 1, \"seed\": 65}") ==
          200);
    expect("\"choices\":[{\"index\":0,\"text\":\"C\"");
    expect("{\"index\":1,\"text\":\"B\"");
    expect_not("\"A\"");
}

/* Further choices of a prompt are submitted when the first one has a token. */
static void check_shared_prompts(void)
{
    fake_prompts_shared = true;
    for (int shared = 0; shared < 2; shared++) {
        /* 'h' gives no token. Choices of a short prompt do not wait. */
        unsigned before = fake_submitted;
        int fd = dial();
        send_request(fd, "POST", "/v1/completions", "",
                     shared ? "{\"prompt\": \"h2345678901234567890\", \"n\": 3}"
                            : "{\"prompt\": \"h\", \"n\": 3}");
        wait_for_counter(&fake_submitted, before + (shared ? 1 : 3), "submitted");
        CHECK(fake_open == (shared ? 1 : 3));
        close(fd);
        wait_for_counter(&fake_open, 0, "open");
    }
    unsigned before = fake_submitted;
    CHECK(post("/v1/completions", "{\"prompt\": [\"e2345678901234567890\", \"a\"], \"n\": 3, "
                                  "\"max_tokens\": 4, \"seed\": 5}") == 200);
    CHECK(fake_submitted == before + 6);
    CHECK(count_in_body("\"text\":\"2345678901234567890\"") == 3 &&
          count_in_body("\"text\":\"aaaa\"") == 3);
    /* The gateway has no place for a further choice. */
    fake_submits_left = 1;
    CHECK(post("/v1/completions", "{\"prompt\": \"a2345678901234567890\", \"n\": 2, "
                                  "\"max_tokens\": 4}") == 429);
    fake_submits_left = UINT32_MAX;
    wait_for_counter(&fake_open, 0, "open");
    fake_prompts_shared = false;
}

static void check_prompt_logprobs(void)
{
    CHECK(post("/v1/completions",
               "{\"prompt\": \"ab\", \"prompt_logprobs\": 1, \"max_tokens\": 1}") == 200);
    expect("\"text\":\"a\",\"logprobs\":null");
    expect("\"prompt_logprobs\":[null,{\"98\":{\"logprob\":-0.25,\"rank\":null,"
           "\"decoded_token\":\"b\"}}]");
    CHECK(post("/v1/chat/completions",
               "{\"messages\": [{\"role\": \"user\", \"content\": \"ab\"}], \"max_tokens\": 1, "
               "\"prompt_logprobs\": 0}") == 200);
    expect("],\"prompt_logprobs\":[null,{\"98\":");
    CHECK(post("/v1/completions",
               "{\"prompt\": \"ab\", \"prompt_logprobs\": 1, \"stream\": true}") == 400);
}

static void check_end_tokens(void)
{
    const char *both = "{\"prompt\": \"a\", \"max_tokens\": 1, \"stop_token_ids\": [1, 2], "
                       "\"ignore_eos\": true}";
    CHECK(post("/v1/completions", "{\"prompt\": \"a\", \"max_tokens\": 1}") == 200);
    CHECK(fake_end_count == 1);
    CHECK(post("/v1/completions", both) == 200 && fake_end_count == 2);
    CHECK(post("/v1/completions", "{\"prompt\": \"a\", \"max_tokens\": 1, \"ignore_eos\": true}") ==
              200 &&
          fake_end_count == 0);
    fake_model_ends = 15;
    CHECK(post("/v1/completions",
               "{\"prompt\": \"a\", \"max_tokens\": 1, \"stop_token_ids\": [1]}") == 200 &&
          fake_end_count == 16);
    CHECK(post("/v1/completions",
               "{\"prompt\": \"a\", \"max_tokens\": 1, \"stop_token_ids\": [1, 2]}") == 400);
    expect("stop_token_ids has 2 ids: want at most 1 beside the 15");
    CHECK(post("/v1/completions", both) == 200 && fake_end_count == 2);
    fake_model_ends = 1;
}

static void check_logprobs(void)
{
    CHECK(post("/v1/completions",
               "{\"prompt\": \"ab\", \"echo\": true, \"logprobs\": 1, \"max_tokens\": 0}") == 200);
    expect("\"text\":\"ab\",\"logprobs\":{\"tokens\":[\"a\",\"b\"],\"token_logprobs\":[null,-0.25],"
           "\"top_logprobs\":[null,{\"b\":-0.25}],\"text_offset\":[0,1]}");
    CHECK(post("/v1/completions", "{\"prompt\": \"a\", \"logprobs\": 2, \"max_tokens\": 2}") ==
          200);
    expect("\"token_logprobs\":[-0.5,-0.5],\"top_logprobs\":[{\"a\":-0.5,\"z\":-1.5},"
           "{\"a\":-0.5,\"z\":-1.5}]");
    CHECK(post("/v1/chat/completions",
               "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], "
               "\"logprobs\": true, \"top_logprobs\": 1, \"max_tokens\": 1}") == 200);
    expect("\"logprobs\":{\"content\":[{\"token\":\"a\",\"logprob\":-0.5,\"bytes\":[97],"
           "\"top_logprobs\":[{\"token\":\"a\",\"logprob\":-0.5,\"bytes\":[97]}]}]}");
}

static void check_streams(void)
{
    CHECK(post("/v1/completions", "{\"prompt\": \"ehi\", \"stream\": true, "
                                  "\"stream_options\": {\"include_usage\": true}}") == 200);
    expect("Content-Type: text/event-stream");
    CHECK(count_in_body("data: ") == 5); /* h, i, end, usage, [DONE] */
    expect("\"text\":\"h\",\"logprobs\":null,\"finish_reason\":null}],\"usage\":null}\n\n");
    expect("\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":3");
    CHECK(strcmp(reply_body + reply_body_bytes - 14, "data: [DONE]\n\n") == 0);
    CHECK(post("/v1/chat/completions",
               "{\"messages\": [{\"role\": \"user\", \"content\": \"ehi\"}], "
               "\"stream\": true}") == 200);
    CHECK(count_in_body("\"delta\":{\"role\":\"assistant\",\"content\":\"h\"}") == 1);
    CHECK(count_in_body("\"role\"") == 1 && count_in_body("\"delta\"") == 3);
    expect("\"object\":\"chat.completion.chunk\"");
    expect_not("\"usage\"");
    /* A failure in mid-stream: two tokens, the error, [DONE]. */
    CHECK(post("/v1/completions", "{\"prompt\": \"f\", \"stream\": true}") == 200);
    CHECK(count_in_body("data: ") == 4);
    expect("data: {\"error\":{\"message\":\"machine \\\"token-0\\\" is lost\"");
    CHECK(strcmp(reply_body + reply_body_bytes - 14, "data: [DONE]\n\n") == 0);
    /* A character that comes in two tokens is never split. */
    CHECK(post("/v1/completions", "{\"prompt\": \"e\xc3\xa9\", \"stream\": true}") == 200);
    expect("\"text\":\"\xc3\xa9\"");
}

static void check_disconnects(void)
{
    static const char *const bodies[] = {
        "{\"prompt\": \"h\"}",                   /* waits, not streamed */
        "{\"prompt\": \"h\", \"stream\": true}", /* waits for its first token */
        "{\"prompt\": \"s\", \"stream\": true, \"max_tokens\": 50000}", /* in the middle of a stream
                                                                         */
        "{\"prompt\": \"h\", \"n\": 3}",
    };
    for (int how = 0; how < 3; how++)
        for (size_t i = 0; i < 4; i++) {
            unsigned gone = fake_clients_gone, submitted = fake_submitted, choices = i == 3 ? 3 : 1;
            int fd = dial();
            send_request(fd, "POST", "/v1/completions", "", bodies[i]);
            wait_for_counter(&fake_submitted, submitted + choices, "submitted");
            char some[64];
            if (i == 2)
                CHECK(recv(fd, some, sizeof(some), 0) > 0);
            struct linger reset = {1, 0};
            if (how == 1)
                setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
            if (how == 2)
                shutdown(fd, SHUT_WR);
            else
                close(fd);
            wait_for_counter(&fake_clients_gone, gone + choices, "released");
            if (how == 2)
                close(fd);
        }
    wait_for_counter(&fake_open, 0, "open");
}

/* The client leaves in the iteration in which one of its two answers fails: the other answer is not
 * wanted, so it has not stopped. */
static void check_disconnect_at_failure(void)
{
    unsigned gone = fake_clients_gone, stopped = fake_stopped;
    int fd = dial();
    send_request(fd, "POST", "/v1/completions", "",
                 "{\"prompt\": [\"h\", \"p\"], \"max_tokens\": 50000}");
    wait_for_counter(&fake_open, 2, "open");
    server_pause();
    fake_hold_fails = true;
    close(fd);
    server_resume();
    wait_for_counter(&fake_open, 0, "open");
    fake_hold_fails = false;
    CHECK(fake_clients_gone == gone + 1 && fake_stopped == stopped);
}

/* A stop string ends one answer in the iteration in which the other one fails: the client gets no
 * answer, so none has stopped. */
static void check_stop_at_failure(void)
{
    static const char *const bodies[] = {"{\"prompt\": [\"ehello\", \"x\"], \"stop\": \"h\"}",
                                         "{\"prompt\": [\"x\", \"ehello\"], \"stop\": \"h\"}"};
    for (int i = 0; i < 2; i++) {
        unsigned gone = fake_clients_gone, stopped = fake_stopped;
        CHECK(post("/v1/completions", bodies[i]) == 503);
        wait_for_counter(&fake_open, 0, "open");
        CHECK(fake_clients_gone == gone + 1 && fake_stopped == stopped);
    }
}

static void check_slow_reader(void)
{
    unsigned gone = fake_clients_gone;
    int fd = dial();
    send_request(fd, "POST", "/v1/completions", "",
                 "{\"prompt\": \"s\", \"stream\": true, \"max_tokens\": 50000}");
    wait_for_counter(&fake_clients_gone, gone + 1, "a client that never reads is dropped");
    close(fd);
}

/* A limited key, one that may see, and one that may do everything. The rest of this program has no
 * keys: what needs none there needs none here only if it says whether we live. */
#define USER "Authorization: Bearer sk-user-0123456789\r\n"
#define SEER "Authorization: Bearer sk-seer-0123456789\r\n"
#define ROOT "Authorization: Bearer sk-root-0123456789\r\n"

static const char key_file[] =
    "{\"keys\": [{\"name\": \"user\", \"key\": \"sk-user-0123456789\", \"weight\": 3,"
    " \"requests_max\": 2, \"priority_best\": -1},"
    "{\"name\": \"seer\", \"key\": \"sk-seer-0123456789\", \"metrics\": true},"
    "{\"name\": \"root\", \"key\": \"sk-root-0123456789\", \"admin\": true}]}";

static int complete_as(const char *who, const char *body)
{
    return ask("POST", "/v1/completions", who, body);
}

static void check_keys(void)
{
    CHECK(complete_as("", "{\"prompt\": \"ehi\"}") == 401);
    expect("WWW-Authenticate: Bearer");
    expect("{\"error\":{\"message\":\"an API key is wanted: Authorization: Bearer KEY\","
           "\"type\":\"invalid_request_error\",\"param\":null,\"code\":\"invalid_api_key\"}}");
    CHECK(complete_as("Authorization: Bearer sk-user-012345678\r\n", "{\"prompt\": \"e\"}") == 401);
    expect("not known here");
    CHECK(ask("GET", "/health", "", "") == 200 && ask("GET", "/ping", "", "") == 200);
    CHECK(ask("GET", "/v1/models", "", "") == 401 && ask("GET", "/v1/models", SEER, "") == 200);
    CHECK(ask("GET", "/nothing", "", "") == 401 && ask("GET", "/nothing", USER, "") == 404);
    CHECK(ask("GET", "/openapi.json", "", "") == 200);
    expect("\"/v1/chat/completions\":{\"post\":{\"requestBody\"");
    expect_not("/admin");
    CHECK(ask("GET", "/metrics", USER, "") == 403);
    expect("\"type\":\"permission_error\"");
    CHECK(ask("GET", "/metrics", SEER, "") == 200 && ask("GET", "/metrics", ROOT, "") == 200);
    CHECK(complete_as(USER, "{\"prompt\": \"ehi\"}") == 200);
    CHECK(fake_weight == 3 && fake_priority == 0);
    CHECK(complete_as(USER, "{\"prompt\": \"ehi\", \"priority\": -1}") == 200);
    CHECK(fake_priority == -1);
    CHECK(complete_as(USER, "{\"prompt\": \"ehi\", \"priority\": -2}") == 400);
    expect("priority is -2: key user may ask for -1 (lower is earlier) at best");
    CHECK(complete_as(USER, "{\"prompt\": \"ehi\", \"n\": 3}") == 400);
    expect("the request wants 3 answers (prompts × n): key user may have 2 in flight");
    /* However answers end, their key has none in flight afterwards. */
    static const char *const bodies[] = {"{\"prompt\": \"x\"}", "{\"prompt\": \"r\"}",
                                         "{\"prompt\": \"f\", \"stream\": true}",
                                         "{\"prompt\": \"ehello\", \"stop\": \"l\", \"n\": 2}",
                                         "{\"prompt\": \"a\", \"max_tokens\": 0}"};
    for (int i = 0; i < 15; i++)
        CHECK(complete_as(USER, bodies[i % 5]) != 429 || i % 5 == 1);
    unsigned gone = fake_clients_gone;
    int fd = dial();
    send_request(fd, "POST", "/v1/completions", USER, "{\"prompt\": \"h\", \"n\": 2}");
    wait_for_counter(&fake_open, 2, "both answers are in flight");
    CHECK(ask("GET", "/v1/models", USER, "") == 200);
    expect("x-ratelimit-limit-requests: 2\r\nx-ratelimit-remaining-requests: 0\r\n");
    expect_not("-tokens:");
    CHECK(ask("GET", "/v1/models", SEER, "") == 200);
    expect_not("x-ratelimit");
    CHECK(complete_as(USER, "{\"prompt\": \"ehi\"}") == 429);
    close(fd);
    wait_for_counter(&fake_clients_gone, gone + 2, "released");
    CHECK(complete_as(USER, "{\"prompt\": \"ehi\", \"n\": 2}") == 200);
}

/* A stream that waits for its first token gets comments; a failure is then an event. */
static void check_pings(void)
{
    static const char body[] = "{\"prompt\": \"h\", \"stream\": true}";
    static const char whole[] = "{\"prompt\": \"h\"}";
    char got[4096];
    size_t bytes = 0;
    int fd = dial(), other = dial();
    unsigned before = fake_submitted;
    send_request(fd, "POST", "/v1/completions", "", body);
    send_request(other, "POST", "/v1/completions", "", whole);
    wait_for_counter(&fake_submitted, before + 2, "both are waiting");
    for (uint32_t pings = 1; pings <= 3; pings++) {
        const char *at = got;
        clock_advance(15000000);
        for (uint32_t seen = 0; seen < pings;) {
            ssize_t more = recv(fd, got + bytes, sizeof(got) - 1 - bytes, 0);
            CHECK(more > 0);
            bytes += (size_t)more;
            got[bytes] = 0;
            for (at = got, seen = 0; (at = strstr(at, ": ping\n\n")) != NULL; at++)
                seen++;
            CHECK(seen <= pings);
        }
    }
    CHECK(strncmp(got, "HTTP/1.1 200", 12) == 0 && strstr(got, "data:") == NULL);
    fake_hold_fails = true;
    wait_for_counter(&fake_open, 0, "both have failed");
    while (strstr(got, "[DONE]") == NULL) {
        ssize_t more = recv(fd, got + bytes, sizeof(got) - 1 - bytes, 0);
        CHECKF(more > 0, "%s", got);
        bytes += (size_t)more;
        got[bytes] = 0;
    }
    CHECKF(strstr(got, "data: {\"error\":") != NULL, "%s", got);
    CHECK(read_reply(other) == 503); /* without a stream there is still a status */
    fake_hold_fails = false;
    close(fd);
    close(other);
}

static void check_connections(void)
{
    /* Keep-alive, a body in single bytes, and two requests at once on one connection. */
    int fd = dial();
    const char *slow = "POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
                       "Content-Type: application/json\r\nContent-Length: "
                       "16\r\n\r\n{\"prompt\":\"ehi\"}";
    for (size_t i = 0; i < strlen(slow); i++)
        send_bytes(fd, slow + i, 1);
    CHECK(read_reply(fd) == 200);
    expect("\"text\":\"hi\"");
    send_request(fd, "POST", "/v1/completions", "", "{\"prompt\":\"ey\"}");
    CHECK(read_reply(fd) == 200);
    expect("\"text\":\"y\"");
    close(fd);
    /* Many streams at once. */
    enum { STREAMS = 200 };
    int fds[STREAMS];
    for (int i = 0; i < STREAMS; i++) {
        fds[i] = dial();
        char body[128];
        snprintf(body, sizeof(body),
                 "{\"prompt\":\"estream %d\",\"stream\":true,\"max_tokens\":99}", i);
        send_request(fds[i], "POST", "/v1/completions", "", body);
    }
    for (int i = 0; i < STREAMS; i++) {
        CHECK(read_reply(fds[i]) == 200);
        char number[32];
        snprintf(number, sizeof(number), "estream %d", i);
        CHECKF(count_in_body("data: ") == strlen(number) + 1, "stream %d: %u events", i,
               count_in_body("data: "));
        close(fds[i]);
    }
}

static void check_not_ready(void)
{
    fake_ready = false;
    CHECK(ask("GET", "/health", "", "") == 503);
    expect("machine token-0 is \\\"down\\\"");
    CHECK(post("/v1/completions", "{\"prompt\": \"ehi\"}") == 503);
    expect("Retry-After: 1");
    fake_ready = true;
}

static void check_addresses(void)
{
    char bound[LIMIT_ADDRESS_BYTES], again[LIMIT_ADDRESS_BYTES];
    struct error error = {0};
    int fd = -1;
    snprintf(bound, sizeof(bound), "127.0.0.1:%u", server_port());
    CHECK(address_listen(bound, &fd, again, &error) == ST_IO);
    CHECKF(strstr(error.text, bound) != NULL && strstr(error.text, "in use") != NULL, "%s",
           error.text);
    CHECK(address_listen("nowhere", &fd, again, &error) == ST_INVALID);
}

/* server/control_tokens_in_text: the bytes of prompts and messages in which control tokens act. */
static void check_control_tokens(void)
{
    static const char prompt[] = "{\"prompt\": \"ehi\"}";
    static const char chat[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"ehi\"}]}";
    static const struct {
        const char *value;
        size_t in_prompt, in_chat;
    } cases[] = {{"allow", 3, 3}, {"as_text", 0, 0}, {"prompts", 3, 0}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        server_pause();
        strcpy(config.server.control_tokens_in_text, cases[i].value);
        server_resume();
        CHECK(post("/v1/completions", prompt) == 200);
        CHECK(fake_control_bytes == cases[i].in_prompt);
        CHECK(post("/v1/chat/completions", chat) == 200);
        CHECK(fake_control_bytes == cases[i].in_chat);
        CHECK(post("/tokenize", prompt) == 200 && fake_control_bytes == cases[i].in_prompt);
        CHECK(post("/tokenize", chat) == 200 && fake_control_bytes == cases[i].in_chat);
    }
}

/* A template of a request is refused unless the operator allows it. */
static void check_templates(void)
{
    static const char body[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"ehi\"}], "
                               "\"chat_template\": \"{{ x }}\"}";
    CHECK(post("/v1/chat/completions", body) == 400);
    expect("chat_template is not allowed by this server (server/chat_template_in_requests)");
    expect("\"param\":\"chat_template\"");
    CHECK(post("/tokenize", body) == 400);
    expect("chat_template is not allowed");
    server_pause();
    config.server.chat_template_in_requests = true;
    server_resume();
    CHECK(post("/v1/chat/completions", body) == 200 && post("/tokenize", body) == 200);
}

/* http_open fails after the main daemon has started: the listening sockets stay the caller's. */
static void check_open_fails(void)
{
    struct http_options options = {.admin_fd = memfd_create("no socket", 0)};
    CHECK(options.admin_fd > 0);
    CHECK(server_open_fails(&options));
    CHECK(fcntl(options.listen_fd, F_GETFD) >= 0 && fcntl(options.admin_fd, F_GETFD) >= 0);
    close(options.listen_fd);
    close(options.admin_fd);
}

int main(void)
{
    server_config_default();
    check_open_fails();
    server_start((struct http_options){0});
    check_addresses();
    check_not_ready();
    check_small_endpoints();
    check_errors();
    check_control_tokens();
    check_templates();
    check_whole_answers();
    check_stops();
    check_rules();
    check_bad_words_limit();
    check_best_of();
    check_prompt_logprobs();
    check_shared_prompts();
    check_end_tokens();
    check_logprobs();
    check_streams();
    check_disconnects();
    check_disconnect_at_failure();
    check_stop_at_failure();
    check_slow_reader();
    check_connections();
    server_pause();
    config.http.ping_ms = 15000;
    server_resume();
    check_pings();
    CHECK(fake_http_codes[429] == 2);
    keys_use(key_file);
    check_keys();
    server_stop();
    CHECK(fake_http_codes[413] == 2);
    printf("all answers as documented; %u requests submitted\n", fake_submitted);
    return 0;
}
