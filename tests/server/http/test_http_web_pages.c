/* Goal: without API keys, a web page that a browser on this computer shows cannot use the server.
 * Method: the requests that a browser sends for such a page without asking first (CORS). */
#include "tests/check.h"
#include "tests/server/http/http_fixture.h"

#define PROMPT "{\"prompt\": \"ehi\"}"

static int post_as(const char *headers)
{
    return ask("POST", "/v1/completions", headers, PROMPT);
}

#define PAGE "Origin: https://chat.example\r\n"

static void origins_set(const char *origins)
{
    server_pause();
    snprintf(config.http.web_origins, sizeof(config.http.web_origins), "%s", origins);
    server_resume();
}

static int question(const char *path, const char *origin)
{
    char headers[512];
    snprintf(headers, sizeof(headers),
             "%sAccess-Control-Request-Method: POST\r\n"
             "Access-Control-Request-Headers: authorization, content-type, x-stainless-os\r\n",
             origin);
    return ask("OPTIONS", path, headers, "");
}

static void check_named_pages(void)
{
    origins_set("http://localhost:3000 https://chat.example");
    CHECK(question("/v1/completions", PAGE) == 204);
    expect("Access-Control-Allow-Origin: https://chat.example\r\n");
    expect("Access-Control-Allow-Methods: POST\r\n");
    expect("Access-Control-Allow-Headers: authorization, content-type, x-stainless-os\r\n");
    expect("Vary: Origin\r\n");
    CHECK(post_as(PAGE) == 200);
    expect("Access-Control-Allow-Origin: https://chat.example\r\n");
    expect("Access-Control-Expose-Headers: x-request-id, Retry-After, "
           "x-ratelimit-limit-requests, x-ratelimit-remaining-requests, "
           "x-ratelimit-reset-requests, x-ratelimit-limit-tokens, x-ratelimit-remaining-tokens, "
           "x-ratelimit-reset-tokens\r\n");
    CHECK(post_as("") == 200);
    expect("Vary: Origin\r\n");
    expect_not("Access-Control");
    /* A stream, and an error, can be read too. */
    CHECK(ask("POST", "/v1/completions", PAGE, "{\"prompt\": \"ehi\", \"stream\": true}") == 200);
    expect("Access-Control-Allow-Origin: https://chat.example\r\n");
    CHECK(ask("POST", "/v1/completions", PAGE, "{}") == 400);
    expect("Access-Control-Allow-Origin: https://chat.example\r\n");
    /* Other sites, parts of names, and /admin. */
    static const char *const others[] = {
        "Origin: https://evil.example\r\n", "Origin: https://chat.exampl\r\n",
        "Origin: https://chat.example.evil.example\r\n", "Origin: https\r\n", "Origin: *\r\n"};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        CHECK(post_as(others[i]) == 403);
        expect_not("Access-Control");
        CHECK(question("/v1/completions", others[i]) == 403);
        expect_not("Access-Control");
    }
    CHECK(question("/admin/state", PAGE) != 204 && question("/nothing", PAGE) != 204);
    CHECK(ask("OPTIONS", "/v1/completions", PAGE, "") == 405);
    origins_set("*"); /* without keys this names no site */
    CHECK(post_as(PAGE) == 403 && question("/v1/completions", PAGE) == 403);
    origins_set("");
    CHECK(post_as(PAGE) == 403 && question("/v1/completions", PAGE) == 403);
    expect_not("Vary");
}

static void check_all_pages(void)
{
    origins_set("*");
    CHECK(question("/v1/completions", PAGE) == 204);
    expect("Access-Control-Allow-Origin: https://chat.example\r\n");
    CHECK(post_as(PAGE) == 401);
    expect("Access-Control-Allow-Origin: https://chat.example\r\n");
    CHECK(post_as("Authorization: Bearer sk-user-0123456789\r\n" PAGE) == 200);
    expect("Access-Control-Allow-Origin: https://chat.example\r\n");
    CHECK(question("/admin/state", PAGE) == 401);
    expect_not("Access-Control");
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
    expect("there is no Content-Type: want application/json");
    CHECK(post_as("Content-Type: application/x-www-form-urlencoded\r\n") == 415);
    CHECK(post_as("Origin: https://evil.example\r\n") == 403);
    CHECK(post_as("Origin: null\r\n") == 403);
    /* A hostile name that leads to this computer. */
    CHECK(post_as("Host: evil.example:8080\r\nOrigin: http://evil.example:8080\r\n") == 403);
    CHECK(fake_submitted == before);
    /* A page of this server, and programs. */
    CHECK(post_as("Host: localhost:8080\r\nOrigin: http://localhost:8080\r\n") == 200);
    CHECK(post_as("Content-Type: Application/JSON; charset=utf-8\r\n") == 200);
    check_named_pages();
    keys_use("{\"keys\": [{\"name\": \"user\", \"key\": \"sk-user-0123456789\"}]}");
    CHECK(post_as("Authorization: Bearer sk-user-0123456789\r\nOrigin: http://a.example\r\n") ==
          200);
    check_all_pages();
    server_stop();
    return 0;
}
