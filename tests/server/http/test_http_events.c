/* Goal: a client learns what happens to its own request, if it asks for that, and nothing about
 * other machines and requests. Method: streams with "cleave": {"events": true} from clients with
 * and without rights; a request with more events and machines than are kept. */
#include "tests/check.h"
#include "tests/server/http/http_fixture.h"

#define KEYS                                                                                       \
    "{\"keys\": [{\"name\": \"user\", \"key\": \"sk-user-0123456789\"},"                           \
    "{\"name\": \"ops\", \"key\": \"sk-ops-0123456789\", \"metrics\": true}]}"
#define USER "Authorization: Bearer sk-user-0123456789\r\n"
#define OPS  "Authorization: Bearer sk-ops-0123456789\r\n"

static int stream(const char *headers, const char *prompt, const char *more)
{
    char body[256];
    snprintf(body, sizeof(body), "{\"prompt\": \"%s\", \"max_tokens\": 3, \"stream\": true%s}",
             prompt, more);
    return ask("POST", "/v1/completions", headers, body);
}

#define WANTED ", \"cleave\": {\"events\": true}"
#define NAMED                                                                                      \
    "event: cleave\ndata: {\"type\":\"routed\",\"choice\":0,\"after_us\":1234,"                    \
    "\"generation\":0,\"tokens\":0,\"prompt_machine\":\"prompt-0\","                               \
    "\"token_machine\":\"token-0\"}\n\n"

static void check_wanted(void)
{
    CHECK(stream("", "ehi", WANTED) == 200);
    CHECK(count_in_body(NAMED) == 1 && count_in_body("event:") == 1 &&
          count_in_body("[DONE]") == 1);
    CHECK(strstr(reply_body, "event: cleave") == reply_body); /* before the first token */
    static const char *const unwanted[] = {"", ", \"cleave\": {\"events\": false}",
                                           ", \"cleave\": {}"};
    for (size_t i = 0; i < 3; i++) {
        CHECK(stream("", "ehi", unwanted[i]) == 200);
        CHECK(count_in_body("event:") == 0 && count_in_body("prompt-0") == 0);
    }
    CHECK(stream("", "ehi", ", \"cleave\": {\"events\": 1}") == 400);
    CHECK(post("/v1/completions", "{\"prompt\": \"ehi\" " WANTED "}") == 400);
    expect("cleave.events needs stream: true");
}

/* An error before any event has its own status; after an event it is part of the stream. */
static void check_errors(void)
{
    CHECK(stream("", "r", WANTED) == 429);
    CHECK(stream("", "R", WANTED) == 400);
    CHECK(stream("", "x", "") == 503);
    CHECK(stream("", "x", WANTED) == 200);
    expect("data: {\"error\":");
    CHECK(count_in_body(NAMED) == 1 && count_in_body("[DONE]") == 1);
}

/* Two streams at a time: each has its own events only. */
static void check_owners(void)
{
    int first = dial();
    send_request(first, "POST", "/v1/completions", USER,
                 "{\"prompt\": \"ehello\", \"stream\": true" WANTED "}");
    CHECK(stream(USER, "ehi", "") == 200);
    CHECK(count_in_body("event:") == 0 && count_in_body("machine") == 0);
    CHECK(read_reply(first) == 200 && count_in_body("event:") == 1);
    /* This key may not read /metrics, which has the names of machines. */
    expect("\"prompt_machine\":\"machine 1\",\"token_machine\":\"machine 2\"");
    expect_not("prompt-0");
    close(first);
    CHECK(stream(OPS, "ehi", WANTED) == 200);
    CHECK(count_in_body(NAMED) == 1);
    CHECK(stream("", "ehi", WANTED) == 401);
    /* No path leads to a request of another client. */
    CHECK(ask("GET", "/v1/requests/req-1/events", USER, "") == 404);
}

/* 301 events and 22 machines: 256 events and 16 machines are told. */
static void check_bounds(void)
{
    CHECK(stream(USER, "v", WANTED) == 200);
    CHECK(count_in_body("event: cleave\n") == 256 && count_in_body("[DONE]") == 1);
    CHECK(count_in_body("\"machine 16\"") > 0 && count_in_body("\"machine 17\"") == 0);
    CHECK(count_in_body("\"another machine\"") > 0);
    expect_not("machine-of-others");
    CHECK(stream(OPS, "v", WANTED) == 200);
    CHECK(count_in_body("event: cleave\n") == 256 && count_in_body("machine-of-others-3\"") > 0);
}

/* The release of one choice can cause an event of another one. */
static void check_gone(void)
{
    int fd = dial();
    unsigned before = fake_clients_gone;
    send_request(fd, "POST", "/v1/completions", USER,
                 "{\"prompt\": \"hold\", \"n\": 3, \"stream\": true" WANTED "}");
    wait_for_counter(&fake_open, 3, "open");
    close(fd);
    wait_for_counter(&fake_clients_gone, before + 3, "released because the client has gone");
    CHECK(stream(USER, "ehi", WANTED) == 200);
}

int main(void)
{
    server_config_default();
    server_start((struct http_options){0});
    check_wanted();
    check_errors();
    keys_use(KEYS);
    check_owners();
    check_bounds();
    check_gone();
    server_stop();
    return 0;
}
