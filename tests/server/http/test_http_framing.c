/* Goal: a request that a proxy in front could read differently is refused, so that no request can
 * hide in another one. Method: requests as raw bytes. */
#include "tests/check.h"
#include "tests/server/http/http_fixture.h"

#include <string.h>
#include <unistd.h>

static int ask_raw(const char *request)
{
    int fd = dial();
    send_bytes(fd, request, strlen(request));
    int status = read_reply(fd);
    if (status == 400)
        wait_closed(fd);
    else
        close(fd);
    return status;
}

#define POST_LINE "POST /v1/completions HTTP/1.1\r\n"
#define JSON_LINE "Content-Type: application/json\r\n"
#define BODY      "{\"prompt\":\"ehi\"}"

int main(void)
{
    server_config_default();
    server_start((struct http_options){0});
    CHECK(ask_raw(POST_LINE "Host: x\r\n" JSON_LINE "Content-Length: 16\r\n\r\n" BODY) == 200);
    CHECK(ask_raw(POST_LINE "Host: x\r\n" JSON_LINE "Content-Length: 16\r\nContent-Length: 17\r\n"
                            "\r\n" BODY) == 400);
    expect("more than one Content-Length");
    CHECK(ask_raw(POST_LINE "Host: x\r\n" JSON_LINE "Content-Length: 16\r\n"
                            "Transfer-Encoding: chunked\r\n\r\n10\r\n" BODY
                            "\r\n0\r\n\r\n") == 400);
    expect("both "); /* in words of ours, or of libmicrohttpd 1.0 */
    expect("Transfer-Encoding");
    CHECK(ask_raw(POST_LINE "Host: x\r\n" JSON_LINE "Transfer-Encoding: gzip, chunked\r\n\r\n") ==
          400);
    CHECK(ask_raw(POST_LINE "Host: x\r\n" JSON_LINE "Transfer-Encoding: chunked\r\n"
                            "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n") == 400);
    CHECK(ask_raw(POST_LINE JSON_LINE "Content-Length: 16\r\n\r\n" BODY) == 400);
    CHECK(ask_raw("GET /ping HTTP/1.1\r\n\r\n") == 400);
    CHECK(ask_raw("GET /ping HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n") == 400);
    /* libmicrohttpd takes "Content-Length " for another header, and the body for the next request. */
    CHECK(ask_raw(POST_LINE "Host: x\r\n" JSON_LINE "Content-Length : 16\r\n\r\n" BODY) == 400);
    CHECK(ask_raw("GET /ping HTTP/1.1\r\nHost: a\r\nX(y): b\r\n\r\n") == 400);
    CHECK(ask_raw("GET /ping HTTP/1.1\r\nHost: a\r\nX-y_z: b\r\n\r\n") == 200);
    CHECK(ask_raw("GET /ping HTTP/1.0\r\n\r\n") == 200);
    /* A server must accept a URL instead of a path (RFC 9112, section 3.2.2). */
    CHECK(ask_raw("GET http://a:80/v1/models HTTP/1.1\r\nHost: a:80\r\n\r\n") == 200);
    CHECK(ask_raw("GET HTTPS://A/ping?x=/y HTTP/1.1\r\nHost: a\r\n\r\n") == 200);
    CHECK(ask_raw("GET http://a HTTP/1.1\r\nHost: a\r\n\r\n") == 404);
    expect("there is no / here");
    CHECK(ask_raw("GET http://a/ping HTTP/1.1\r\nHost: b\r\n\r\n") == 400);
    expect("name different hosts");
    CHECK(ask_raw("GET http://localhost/ping HTTP/1.1\r\nHost: localhost.b\r\n\r\n") == 400);
    CHECK(ask_raw("GET /ping HTTP/1.1\r\nHost: a\r\n\r\n") == 200);
    server_stop();
    return 0;
}
