/* http_fixture: see the header. */
#include "tests/server/http/http_fixture.h"

#include "tests/check.h"
#include "transport/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define POLL_MS_MAX 10 /* The test may have set the clock forward. */
#define WAIT_S      60 /* Only ends a test that hangs. */

struct http *http;
struct api_keys *keys;
struct config config;
char reply[REPLY_BYTES_MAX];
char *reply_body;
size_t reply_body_bytes;

static int stop_fd;
static uint16_t port;
static pthread_t loop;
static pthread_mutex_t turn =
    PTHREAD_MUTEX_INITIALIZER; /* Held during each iteration of the loop. */
/* Calls of server_pause that wait. A mutex alone is not fair: a busy loop would lock it again and
 * again before the waiting thread runs. */
static atomic_uint pauses_waiting;
static atomic_llong ahead_us, step_us;
static struct served_model model = {.references = 1,
                                    .name = "m"}; /* Its texts are fake_gateway's. */

/* --- the server --- */

static int64_t now_us(void *self)
{
    (void)self;
    return clock_now_us(&clock_system) + (ahead_us += step_us);
}

void clock_advance(int64_t us)
{
    ahead_us += us;
}

void clock_step(int64_t us)
{
    step_us = us;
}

void server_pause(void)
{
    pauses_waiting++;
    pthread_mutex_lock(&turn);
    pauses_waiting--;
}

void server_resume(void)
{
    pthread_mutex_unlock(&turn);
}

static void *run_loop(void *self)
{
    (void)self;
    int timeout_ms = 0;
    for (;;) {
        struct pollfd fds[2] = {{http_fd(http), POLLIN, 0}, {stop_fd, POLLIN, 0}};
        poll(fds, 2, timeout_ms);
        if (fds[1].revents != 0)
            return NULL;
        while (pauses_waiting > 0)
            usleep(50);
        pthread_mutex_lock(&turn);
        fake_gateway_turn();
        timeout_ms = http_turn(http);
        if (fake_gateway_busy())
            timeout_ms = 0;
        pthread_mutex_unlock(&turn);
        if (timeout_ms < 0 || timeout_ms > POLL_MS_MAX)
            timeout_ms = POLL_MS_MAX;
    }
}

void server_config_default(void)
{
    memset(&config, 0, sizeof(config));
    config.kv.block_tokens = 8;
    config.http.body_bytes_max = 100000;
    config.http.bodies_bytes_max = 1 << 20;
    snprintf(config.server.prefix_cache_scope, sizeof(config.server.prefix_cache_scope), "key");
    snprintf(config.server.control_tokens_in_text, sizeof(config.server.control_tokens_in_text),
             "prompts");
    config.http.answers_bytes_max = 64 << 20;
    config.http.connections_max = 1000;
    config.http.connections_per_address_max = 1000;
    config.http.headers_ms = 30000;
    config.http.bytes_per_second_min = 8192;
    config.http.text_threads = 2;
}

static void options_complete(struct http_options *options)
{
    static const struct clock clock = {now_us, NULL};
    struct error error = {0};
    char bound[LIMIT_ADDRESS_BYTES];
    CHECKF(address_listen("127.0.0.1:0", &options->listen_fd, bound, &error) == ST_OK, "%s",
           error.text);
    port = (uint16_t)atoi(strrchr(bound, ':') + 1);
    CHECK(api_keys_open(&keys) == ST_OK);
    options->config = &config;
    options->gateway = fake_gateway();
    options->keys = keys;
    options->clock = &clock;
    options->model = &model;
}

bool server_open_fails(struct http_options *options)
{
    struct error error = {0};
    options_complete(options);
    bool fails = http_open(options, &http, &error) != ST_OK;
    CHECK(model.references == 1);
    api_keys_close(keys);
    return fails;
}

void server_start(struct http_options options)
{
    struct error error = {0};
    options_complete(&options);
    CHECKF(http_open(&options, &http, &error) == ST_OK, "%s", error.text);
    stop_fd = eventfd(0, 0);
    CHECK(pthread_create(&loop, NULL, run_loop, NULL) == 0);
}

static void loop_stop(void)
{
    uint64_t one = 1;
    CHECK(write(stop_fd, &one, sizeof(one)) == sizeof(one));
    pthread_join(loop, NULL);
    close(stop_fd);
}

static void http_end(void)
{
    http_close(http);
    CHECK(model.references == 1);
    api_keys_close(keys);
}

void server_stop(void)
{
    loop_stop();
    /* The loop may have ended before it noticed that the last connections had been closed. */
    for (int i = 0; i < WAIT_S * 1000 && http_open_answers(http) > 0; i++) {
        http_turn(http);
        usleep(1000);
    }
    CHECK(fake_open == 0 && http_open_answers(http) == 0);
    http_end();
}

void server_stop_now(void)
{
    loop_stop();
    fake_encode_holds = false;
    http_end();
    CHECK(fake_open == 0);
}

void keys_use(const char *text)
{
    char path[] = "/tmp/cleave-http-XXXXXX";
    struct api_key_set *set;
    struct error error;
    int fd = mkstemp(path);
    CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) && close(fd) == 0);
    CHECKF(api_key_set_read(path, &set, &error) == ST_OK, "%s", error.text);
    unlink(path);
    server_pause();
    api_keys_apply(keys, set);
    http_keys_changed(http);
    server_resume();
}

/* --- a client of plain sockets --- */

uint16_t server_port(void)
{
    return port;
}

int dial(void)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    struct timeval limit = {.tv_sec = WAIT_S};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    return fd;
}

void send_bytes(int fd, const char *data, size_t bytes)
{
    while (bytes > 0) {
        ssize_t sent = send(fd, data, bytes, MSG_NOSIGNAL);
        CHECKF(sent > 0, "send: %s", strerror(errno));
        data += sent;
        bytes -= (size_t)sent;
    }
}

void send_request(int fd, const char *method, const char *path, const char *headers,
                  const char *body)
{
    static char request[1 << 20];
    bool typed = body[0] == 0 || strcasestr(headers, "content-type:") != NULL;
    bool named = strcasestr(headers, "host:") != NULL;
    int bytes =
        snprintf(request, sizeof(request), "%s %s HTTP/1.1\r\n%s%s%sContent-Length: %zu\r\n\r\n%s",
                 method, path, named ? "" : "Host: localhost\r\n", headers,
                 typed ? "" : "Content-Type: application/json\r\n", strlen(body), body);
    send_bytes(fd, request, (size_t)bytes);
}

int read_reply(int fd)
{
    static char raw[REPLY_BYTES_MAX];
    size_t bytes = 0;
    char *head_end = NULL;
    while (head_end == NULL) {
        ssize_t got = recv(fd, raw + bytes, sizeof(raw) - 1 - bytes, 0);
        CHECKF(got > 0, "recv: %s after '%.*s'", strerror(errno), (int)bytes, raw);
        bytes += (size_t)got;
        raw[bytes] = 0;
        head_end = strstr(raw, "\r\n\r\n");
    }
    size_t head = (size_t)(head_end - raw) + 4;
    memcpy(reply, raw, head);
    reply_body = reply + head;
    reply_body_bytes = 0;
    reply[head] = 0;
    char *length = strcasestr(reply, "content-length:");
    bool chunked = strcasestr(reply, "transfer-encoding: chunked") != NULL;
    size_t at = head;
    size_t left = length != NULL ? strtoull(length + 15, NULL, 10) : 0;
    for (bool first = true;; first = false) {
        if (chunked) {
            char *line_end;
            char *from = raw + at + (first ? 0 : 2);
            while (bytes < at + 3 || (line_end = strstr(from, "\r\n")) == NULL) {
                ssize_t got = recv(fd, raw + bytes, sizeof(raw) - 1 - bytes, 0);
                CHECKF(got > 0, "recv chunk: %s", strerror(errno));
                bytes += (size_t)got;
                raw[bytes] = 0;
            }
            left = strtoull(from, NULL, 16);
            at = (size_t)(line_end - raw) + 2;
        }
        while (bytes - at < left) {
            ssize_t got = recv(fd, raw + bytes, sizeof(raw) - 1 - bytes, 0);
            CHECKF(got > 0, "recv body: %s", strerror(errno));
            bytes += (size_t)got;
            raw[bytes] = 0;
        }
        memcpy(reply_body + reply_body_bytes, raw + at, left);
        reply_body_bytes += left;
        reply_body[reply_body_bytes] = 0;
        at += left;
        if (!chunked || left == 0)
            break;
    }
    return atoi(reply + 9);
}

int ask(const char *method, const char *path, const char *headers, const char *body)
{
    int fd = dial();
    send_request(fd, method, path, headers, body);
    int status = read_reply(fd);
    close(fd);
    return status;
}

int post(const char *path, const char *body)
{
    return ask("POST", path, "", body);
}

void expect(const char *part)
{
    CHECKF(strstr(reply, part) != NULL, "no '%s' in:\n%s", part, reply);
}

void expect_not(const char *part)
{
    CHECKF(strstr(reply, part) == NULL, "'%s' in:\n%s", part, reply);
}

uint32_t count_in_body(const char *part)
{
    uint32_t count = 0;
    size_t bytes = strlen(part);
    /* Not strstr, which AddressSanitizer makes measure the whole text at each call. */
    for (size_t i = 0; i + bytes <= reply_body_bytes; i++)
        count += reply_body[i] == part[0] && memcmp(reply_body + i, part, bytes) == 0;
    return count;
}

void wait_for_counter(atomic_uint *counter, unsigned value, const char *what)
{
    for (int i = 0; i < WAIT_S * 1000 && *counter != value; i++)
        usleep(1000);
    CHECKF(*counter == value, "%s: %u, want %u", what, *counter, value);
}

void wait_for_body_bytes(uint64_t bytes)
{
    uint64_t got = UINT64_MAX;
    for (int i = 0; i < WAIT_S * 1000 && got != bytes; i++) {
        usleep(1000);
        server_pause();
        got = http->bodies_bytes;
        server_resume();
    }
    CHECKF(got == bytes, "%llu bytes of bodies, want %llu", (unsigned long long)got,
           (unsigned long long)bytes);
}

void wait_closed(int fd)
{
    char some[4096];
    ssize_t got;
    while ((got = recv(fd, some, sizeof(some), 0)) > 0)
        ;
    CHECKF(got == 0 || errno == ECONNRESET, "the server does not close: %s", strerror(errno));
    close(fd);
}
