/* Goal: a request that is refused costs no memory, and the bodies of all requests together stay
 * within their limit. Method: clients that announce a body and send only a part of it. */
#include "tests/check.h"
#include "tests/server/http/http_fixture.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LARGE 90000 /* Less than http/body_bytes_max. */

/* Sends the headers of a request and the first bytes of its body. Returns the connection. */
static int begin(const char *method, const char *path, const char *headers, size_t announced,
                 size_t sent)
{
    char head[512];
    static char body[LARGE];
    int fd = dial();
    int bytes = snprintf(head, sizeof(head),
                         "%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                         "%sContent-Length: %zu\r\n\r\n",
                         method, path, headers, announced);
    memset(body, ' ', sizeof(body));
    send_bytes(fd, head, (size_t)bytes);
    send_bytes(fd, body, sent);
    return fd;
}

static void refused_before_body(const char *method, const char *path, const char *headers, int want)
{
    int fd = begin(method, path, headers, LARGE, 1);
    int status = read_reply(fd); /* the rest of the body never arrives */
    CHECKF(status == want, "%s %s: %d, want %d", method, path, status, want);
    close(fd);
}

/* F-1 of the security review: method, route and key were checked after the body. */
static void check_refused_before_body(void)
{
    refused_before_body("POST", "/health", "", 405);
    refused_before_body("POST", "/ping", "", 405);
    refused_before_body("PUT", "/v1/completions", "", 405);
    refused_before_body("POST", "/nothing", "", 404);
    refused_before_body("POST", "/v1/completions", "Origin: http://other.example\r\n", 403);
}

/* A small refused body is dropped, and the connection continues. */
static void check_small_refused_body(void)
{
    int fd = begin("POST", "/nothing", "", 1000, 500);
    char rest[500];
    memset(rest, ' ', sizeof(rest));
    send_bytes(fd, rest, sizeof(rest));
    CHECK(read_reply(fd) == 404);
    send_request(fd, "GET", "/ping", "", "");
    CHECK(read_reply(fd) == 200);
    close(fd);
}

/* Completes the body of `begin` with a prompt. */
static void finish(int fd, size_t announced, size_t sent)
{
    static const char prompt[] = "{\"prompt\": \"ehi\"}";
    static char blanks[LARGE];
    memset(blanks, ' ', sizeof(blanks));
    send_bytes(fd, blanks, announced - sent - (sizeof(prompt) - 1));
    send_bytes(fd, prompt, sizeof(prompt) - 1);
    CHECK(read_reply(fd) == 200);
    close(fd);
}

static uint64_t bodies(void)
{
    server_pause();
    uint64_t bytes = http->bodies_bytes;
    server_resume();
    return bytes;
}

static void wait_bodies(uint64_t want)
{
    for (int i = 0; i < 60000 && bodies() != want; i++)
        usleep(1000);
    CHECKF(bodies() == want, "%llu bytes of bodies", (unsigned long long)bodies());
}

static void check_all_bodies_have_one_limit(void)
{
    server_pause();
    config.http.bodies_bytes_max = 2 * LARGE;
    server_resume();
    int first = begin("POST", "/v1/completions", "", LARGE, LARGE - 20);
    int second = begin("POST", "/v1/completions", "", LARGE, LARGE - 20);
    wait_bodies(2 * (LARGE - 20));
    int third = begin("POST", "/v1/completions", "", LARGE, 1);
    CHECK(read_reply(third) == 503);
    expect("Retry-After: 1");
    expect("http/bodies_bytes_max");
    close(third);
    /* One that does not announce its size. */
    third = dial();
    static const char head[] = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                               "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n"
                               "\r\n8000\r\n";
    char chunk[0x8000 + 8];
    memset(chunk, ' ', sizeof(chunk));
    memcpy(chunk + 0x8000, "\r\n0\r\n\r\n", 7);
    send_bytes(third, head, sizeof(head) - 1);
    send_bytes(third, chunk, 0x8000 + 7);
    CHECK(read_reply(third) == 503);
    close(third);
    /* A small body still fits. */
    char small[2000];
    snprintf(small, sizeof(small), "%1900s{\"prompt\": \"ehi\"}", "");
    CHECK(post("/v1/completions", small) == 200);
    finish(first, LARGE, LARGE - 20);
    finish(second, LARGE, LARGE - 20);
    wait_bodies(0);
    finish(begin("POST", "/v1/completions", "", LARGE, 0), LARGE, 0);
}

static char chunk[0x8000 + 8]; /* Of a chunked body: 0x8000 spaces, framed. */

/* Opens a connection and sends the headers of a chunked body. */
static int dial_chunked(void)
{
    static const char head[] = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                               "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n"
                               "\r\n";
    memset(chunk, ' ', sizeof(chunk));
    memcpy(chunk, "8000\r\n", 6);
    memcpy(chunk + 6 + 0x8000, "\r\n", 2);
    int fd = dial();
    send_bytes(fd, head, sizeof(head) - 1);
    return fd;
}

/* F-10: after a reload that lowered http/body_bytes_max, an upload in progress had no limit. */
static void check_lower_limit_during_upload(void)
{
    int fd = dial_chunked();
    send_bytes(fd, chunk, sizeof(chunk));
    wait_bodies(0x8000);
    server_pause();
    config.http.body_bytes_max = 2000;
    server_resume();
    for (int i = 0; i < 5; i++)
        send_bytes(fd, chunk, sizeof(chunk));
    send_bytes(fd, "0\r\n\r\n", 5);
    CHECK(read_reply(fd) == 413);
    close(fd);
}

/* After its refusal, a chunked body was read for as long as the client sent it. */
static void check_endless_body_is_cut(void)
{
    config.http.body_bytes_max = 100000;
    int fd = dial_chunked();
    size_t sent = 0;
    while (sent < (64u << 20) && send(fd, chunk, sizeof(chunk), MSG_NOSIGNAL) == sizeof(chunk))
        sent += sizeof(chunk);
    CHECKF(sent < (64u << 20), "%zu bytes were read", sent);
    close(fd);
    CHECK(ask("GET", "/ping", "", "") == 200);
}

int main(void)
{
    server_config_default();
    server_start((struct http_options){0});
    check_refused_before_body();
    check_small_refused_body();
    check_all_bodies_have_one_limit();
    check_lower_limit_during_upload();
    check_endless_body_is_cut();
    server_stop();
    return 0;
}
