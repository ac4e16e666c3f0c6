/* Goal: without API keys, a web page that a browser on this computer shows cannot use the server.
 * Method: the requests that a browser sends for such a page without asking first (CORS). */
#include "tests/check.h"
#include "tests/server/http/http_fixture.h"

#define PROMPT "{\"prompt\": \"ehi\"}"

static int post_as(const char *headers)
{
    return ask("POST", "/v1/completions", headers, PROMPT);
}

int main(void)
{
    static const char *const paths[] = {"/v1/completions", "/v1/chat/completions", "/tokenize",
                                        "/v1/detokenize"};
    server_config_default();
    server_start((struct http_options){0});
    unsigned before = fake_submitted;
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        CHECK(ask("POST", paths[i], "Content-Type: text/plain\r\n", PROMPT) == 415);
        expect("Content-Type is 'text/plain': want application/json");
    }
    CHECK(post_as("Content-Type:\r\n") == 415); /* a body without a type */
    CHECK(post_as("Content-Type: application/x-www-form-urlencoded\r\n") == 415);
    CHECK(post_as("Origin: https://evil.example\r\n") == 403);
    CHECK(post_as("Origin: null\r\n") == 403);
    /* A hostile name that leads to this computer. */
    CHECK(post_as("Host: evil.example:8080\r\nOrigin: http://evil.example:8080\r\n") == 403);
    CHECK(fake_submitted == before);
    /* A page of this server, and programs. */
    CHECK(post_as("Host: localhost:8080\r\nOrigin: http://localhost:8080\r\n") == 200);
    CHECK(post_as("Content-Type: Application/JSON; charset=utf-8\r\n") == 200);
    keys_use("{\"keys\": [{\"name\": \"user\", \"key\": \"sk-user-0123456789\"}]}");
    CHECK(post_as("Authorization: Bearer sk-user-0123456789\r\nOrigin: http://a.example\r\n") ==
          200);
    server_stop();
    return 0;
}
