/* Goal: GET / serves one page that a browser can only use as it was built: its headers allow
 * nothing but its own script and style and this server. Method: the headers, the SHA-256 of what
 * stands in the page, and the config key http/page. */
#include "tests/check.h"
#include "tests/server/http/http_fixture.h"

#include "server/web/page.h"

#include <gnutls/crypto.h>

static void page_set(const char *page, const char *listen)
{
    server_pause();
    snprintf(config.http.page, sizeof(config.http.page), "%s", page);
    snprintf(config.http.listen, sizeof(config.http.listen), "%s", listen);
    server_resume();
}

/* Checks that the policy names the SHA-256 of the only element of that name. */
static void check_digest(const char *name, const char *directive)
{
    char begin[32], end[32], want[128] = "";
    uint8_t digest[32];
    gnutls_datum_t data = {digest, sizeof(digest)}, text;
    snprintf(begin, sizeof(begin), "<%s>", name);
    snprintf(end, sizeof(end), "</%s>", name);
    const char *from = strstr(reply_body, begin);
    CHECK(from != NULL && strstr(from + 1, begin) == NULL);
    from += strlen(begin);
    size_t bytes = (size_t)(strstr(from, end) - from);
    CHECK(gnutls_hash_fast(GNUTLS_DIG_SHA256, from, bytes, digest) == 0);
    CHECK(gnutls_base64_encode2(&data, &text) == 0);
    snprintf(want, sizeof(want), "%s 'sha256-%s';", directive, (char *)text.data);
    gnutls_free(text.data);
    CHECKF(strstr(web_page_policy, want) != NULL, "%s", want);
}

static void check_page(void)
{
    static const char *const headers[] = {"Content-Type: text/html; charset=utf-8\r\n",
                                          "X-Content-Type-Options: nosniff\r\n",
                                          "X-Frame-Options: DENY\r\n",
                                          "Referrer-Policy: no-referrer\r\n",
                                          "Cross-Origin-Opener-Policy: same-origin\r\n",
                                          "Content-Security-Policy: default-src 'none'; "};
    static const char *const rules[] = {"connect-src 'self'", "base-uri 'none'",
                                        "form-action 'none'", "frame-ancestors 'none'",
                                        "require-trusted-types-for 'script'"};
    static const char *const forbidden[] = {"http:", "https:",    "src=\"",        "@import",
                                            "url(",  "innerHTML", "document.write"};
    CHECK(ask("GET", "/", "", "") == 200 && reply_body_bytes == web_page_bytes);
    CHECK(memcmp(reply_body, web_page, web_page_bytes) == 0);
    for (size_t i = 0; i < sizeof(headers) / sizeof(headers[0]); i++)
        expect(headers[i]);
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++)
        CHECKF(strstr(web_page_policy, rules[i]) != NULL, "%s", rules[i]);
    CHECK(strstr(web_page_policy, "unsafe") == NULL && strstr(web_page_policy, "http") == NULL);
    for (size_t i = 0; i < sizeof(forbidden) / sizeof(forbidden[0]); i++)
        CHECKF(strstr(reply_body, forbidden[i]) == NULL, "%s", forbidden[i]);
    check_digest("script", "script-src");
    check_digest("style", "style-src");
}

static void check_methods(void)
{
    int fd = dial();
    char text[64];
    static const char head[] = "HEAD / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    send_bytes(fd, head, sizeof(head) - 1);
    size_t count = 0;
    ssize_t got;
    while ((got = recv(fd, reply + count, REPLY_BYTES_MAX - 1 - count, 0)) > 0)
        count += (size_t)got;
    reply[count] = 0;
    close(fd);
    expect("HTTP/1.1 200 OK\r\n");
    snprintf(text, sizeof(text), "Content-Length: %zu\r\n", web_page_bytes);
    expect(text);
    expect_not("<html");
    CHECK(ask("POST", "/", "", "{}") == 405);
    expect("Allow: GET, HEAD\r\n");
}

#define KEY "Authorization: Bearer sk-user-0123456789\r\n"

static void check_config(void)
{
    page_set("off", "127.0.0.1:0");
    CHECK(ask("GET", "/", KEY, "") == 404);
    expect_not("<html");
    page_set("auto", "0.0.0.0:8080");
    CHECK(ask("GET", "/", KEY, "") == 404);
    page_set("on", "0.0.0.0:8080");
    CHECK(ask("GET", "/", KEY, "") == 200);
    page_set("auto", "[::1]:8080");
    CHECK(ask("GET", "/", KEY, "") == 200);
}

int main(void)
{
    server_config_default();
    server_start((struct http_options){0});
    page_set("auto", "127.0.0.1:0");
    check_page();
    check_methods();
    /* With keys too: the page asks for one, and its user's requests need it. */
    keys_use("{\"keys\": [{\"name\": \"user\", \"key\": \"sk-user-0123456789\"}]}");
    check_page();
    CHECK(ask("GET", "/v1/models", "", "") == 401);
    expect("X-Content-Type-Options: nosniff\r\n");
    check_config();
    server_stop();
    return 0;
}
