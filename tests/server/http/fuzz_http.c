/* fuzz_http: whatever clients send, in pieces of any size, over several connections, the HTTP side
 * answers or closes, and when all clients have gone, nothing is left of them. Method: the real HTTP
 * side over loopback with the scripted gateway of fake_gateway.h, all on one thread: the threads
 * for texts are replaced by a list. An input is what clients send; the bytes 1 to 6, which no
 * request needs, are events (see take_event). */
#include "common/log.h"
#include "server/http/internal.h"
#include "tests/check.h"
#include "tests/fuzz.h"
#include "tests/fuzz_input.h"
#include "tests/server/http/fake_gateway.h"
#include "transport/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define CLIENTS     3
#define TURNS_MAX   64    /* After each piece. */
#define TURNS_LEFT  20000 /* Until all connections have gone. */
#define REPLY_BYTES ((size_t)64 << 10)

/* ---- jobs, instead of threads ---- */

struct text_jobs {
    struct text_job *first;
    int fd;
};

enum status text_jobs_open(uint32_t threads, struct text_jobs **out, struct error *error)
{
    static struct text_jobs jobs;
    (void)threads, (void)error;
    jobs = (struct text_jobs){.fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
    *out = &jobs;
    return ST_OK;
}

void text_jobs_stop(struct text_jobs *jobs)
{
    (void)jobs;
}

void text_jobs_close(struct text_jobs *jobs)
{
    close(jobs->fd);
}

int text_jobs_fd(const struct text_jobs *jobs)
{
    return jobs->fd;
}

bool text_jobs_add(struct text_jobs *jobs, struct text_job *job)
{
    struct text_job **at = &jobs->first;
    while (*at != NULL)
        at = &(*at)->next;
    job->next = NULL;
    *at = job;
    return eventfd_write(jobs->fd, 1) == 0;
}

bool text_jobs_cancel(struct text_jobs *jobs, struct text_job *job)
{
    for (struct text_job **at = &jobs->first; *at != NULL; at = &(*at)->next)
        if (*at == job) {
            *at = job->next;
            return true;
        }
    return false;
}

struct text_job *text_jobs_done(struct text_jobs *jobs)
{
    struct text_job *job = jobs->first;
    uint64_t ignored;
    if (job == NULL) {
        (void)eventfd_read(jobs->fd, &ignored);
        return NULL;
    }
    jobs->first = job->next;
    job->run(job);
    return job;
}

/* ---- the server ---- */

static struct http *http;
static struct api_keys *keys;
static struct config config;
static struct served_model model = {
    .references = 1,
    .name = "m",
    .format = {.tools = ANSWER_TOOLS_HERMES, .reasoning = ANSWER_REASONING_THINK},
};
static uint16_t port;
static int64_t ahead_us;

static int64_t read_clock(void *self)
{
    (void)self;
    return clock_now_us(&clock_system) + ahead_us;
}

static void admin_state(void *self, struct text *answer)
{
    (void)self;
    text_string_add(answer, "{}\n");
}

static void admin_view(void *self, const struct http_admin_view *view, struct text *answer)
{
    (void)self;
    if (view->id != NULL)
        text_add_json_string(answer, view->id, strlen(view->id));
    text_format_add(answer, "%u\n", view->requests_max);
}

static bool admin_reload(void *self, bool dry, const struct audit_actor *actor, struct text *answer,
                         struct api_error *error)
{
    (void)dry;
    (void)self, (void)actor, (void)error;
    text_string_add(answer, "{}\n");
    return true;
}

static bool admin_machine(void *self, enum http_admin_verb verb, const char *name, const char *body,
                          size_t bytes, struct text *answer, struct api_error *error)
{
    (void)self, (void)answer;
    CHECK(verb == HTTP_ADMIN_ADD || name[0] != 0);
    for (size_t i = 0; i < bytes; i++) /* The whole body can be read. */
        if (body[i] == 0)
            break;
    return api_error_set(error, 404, NULL, "no machine %s", name != NULL ? name : "");
}

/* The defaults, with small limits. */
static void config_make(void)
{
    config_default(&config);
    config.http.body_bytes_max = 4096;
    config.http.bodies_bytes_max = 8192;
    config.http.answers_bytes_max = 1 << 20;
    config.http.connections_max = 100;
    config.http.connections_per_address_max = 100;
}

static void server_open(void)
{
    static const struct clock clock = {read_clock, NULL};
    struct http_options options = {
        .config = &config,
        .gateway = fake_gateway(),
        .clock = &clock,
        .model = &model,
        .admin = {admin_state, admin_view, admin_reload, admin_machine, NULL}};
    struct error error = {""};
    char bound[LIMIT_ADDRESS_BYTES];
    config_make();
    log_open("fuzz", LOG_ERROR);
    CHECK(api_keys_open(&keys) == ST_OK);
    options.keys = keys;
    CHECKF(address_listen("127.0.0.1:0", &options.listen_fd, bound, &error) == ST_OK, "%s",
           error.text);
    port = (uint16_t)atoi(strrchr(bound, ':') + 1);
    CHECKF(http_open(&options, &http, &error) == ST_OK, "%s", error.text);
}

/* Iterations of the event loop until nothing is to be done, or too many. */
static void turn(int most)
{
    for (int i = 0; i < most; i++) {
        struct pollfd fd = {http_fd(http), POLLIN, 0};
        bool busy = fake_gateway_busy();
        if (!busy && poll(&fd, 1, 0) == 0 && i > 1)
            return;
        fake_gateway_turn();
        (void)http_turn(http);
    }
}

/* ---- clients ---- */

static int clients[CLIENTS]; /* -1 = not connected. */

static int dial(void)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    const struct linger reset = {.l_onoff = 1}; /* No TIME_WAIT. */
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset)) == 0);
    return fd;
}

/* Reads what has been answered. Returns false if the connection has ended. */
static bool read_reply(int fd)
{
    static char reply[REPLY_BYTES];
    ssize_t got;
    while ((got = recv(fd, reply, sizeof(reply), MSG_DONTWAIT)) > 0)
        ;
    return got < 0 && errno == EAGAIN;
}

static void put(uint32_t client, const uint8_t *data, size_t bytes)
{
    if (clients[client] < 0)
        clients[client] = dial();
    (void)!send(clients[client], data, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    turn(TURNS_MAX);
}

static void hang_up(uint32_t client)
{
    if (clients[client] >= 0)
        close(clients[client]);
    clients[client] = -1;
    turn(TURNS_MAX);
}

/* 1: nothing more than a new piece. 2: another client. 3: 20 s pass. 4: the client leaves. 5: it
 * sends no more. 6: it reads. */
static void take_event(uint8_t event, uint32_t *client)
{
    if (event == 2)
        *client = (*client + 1) % CLIENTS;
    if (event == 3)
        ahead_us += 20000000;
    if (event == 4)
        hang_up(*client);
    if (event == 5 && clients[*client] >= 0)
        shutdown(clients[*client], SHUT_WR);
    if (event == 6 && clients[*client] >= 0 && !read_reply(clients[*client]))
        hang_up(*client);
    turn(TURNS_MAX);
}

static void end_all(void)
{
    for (uint32_t i = 0; i < CLIENTS; i++) {
        if (clients[i] >= 0)
            (void)read_reply(clients[i]);
        hang_up(i);
    }
    for (int i = 0; i < TURNS_LEFT && (http->exchanges != NULL || fake_open > 0); i++) {
        struct pollfd fd = {http_fd(http), POLLIN, 0};
        poll(&fd, 1, 1);
        turn(1);
    }
    CHECK(http->exchanges == NULL && fake_open == 0 && http_open_answers(http) == 0);
    CHECKF(http->bodies_bytes == 0 && http->unread_bytes == 0, "%zu bytes of bodies, %zu unread",
           (size_t)http->bodies_bytes, (size_t)http->unread_bytes);
    CHECK(http->oldest_stream == NULL && http->newest_stream == NULL &&
          http->changed_exchanges == NULL);
    CHECK(model.references >= 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint32_t client = 0;
    if (http == NULL)
        server_open();
    for (int i = 0; i < CLIENTS; i++)
        clients[i] = -1;
    for (size_t at = 0; at < size;) {
        size_t end = at;
        while (end < size && (data[end] == 0 || data[end] > 6))
            end++;
        if (end > at)
            put(client, data + at, end - at);
        if (end < size)
            take_event(data[end], &client);
        at = end + 1;
    }
    end_all();
    return 0;
}

#define POST(path, headers, body)                                                                  \
    "POST " path " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" headers      \
    "\r\n" body
#define GET(path) "GET " path " HTTP/1.1\r\nHost: localhost\r\n\r\n"

size_t fuzz_seed(unsigned index, uint8_t *buffer, size_t capacity)
{
    static const char *const seeds[] = {
        GET("/ping") GET("/health") "HEAD /v1/models HTTP/1.1\r\nHost: a\r\n\r\n" GET("/metrics"),
        POST("/v1/completions", "Content-Length: 16\r\n", "{\"prompt\":\"ehi\"}") GET("/version"),
        POST("/v1/completions", "Transfer-Encoding: chunked\r\n",
             "5;x=y\r\n{\"pro\r\n\1b\r\nmpt\":\"ehi\"}\r\n\0010\r\nTrailer: 1\r\n\r\n"),
        POST("/v1/chat/completions", "Content-Length: 78\r\nExpect: 100-continue\r\n",
             "\1{\"messages\":[{\"role\":\"user\",\"content\":\"ehello\"}],\"stream\":true,\"max_"
             "tokens\":9}") "\6\5",
        POST("/v1/chat/completions", "Content-Length: 137\r\n",
             "{\"messages\":[{\"role\":\"user\",\"content\":\"e<think>a</"
             "think><tool_call>{\\\"name\\\":\\\"f\\\"}\"}],\"stream\":true,\"tools\":[{"
             "\"function\":{\"name\":\"f\"}}]}"),
        POST("/v1/completions", "Content-Length: 33\r\n",
             "{\"prompt\":\"hx\",\"stream\":true     }") "\2" POST("/tokenize",
                                                                   "Content-Length: 16\r\n",
                                                                   "{\"prompt\":\"ehi\"}") "\3\2\2"
                                                                                           "\4\2\6",
        POST("/admin/drain/t0", "Content-Length: 2\r\n", "{}")
            POST("/admin/machines", "Content-Length: 20\r\n", "{\"name\":\"t9\",\"x\":1 }")
                GET("/admin/state") "DELETE /admin/machines/t0 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET /ping HTTP/1.0\r\n\r\n\2GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n\2\1PO\1ST",
        POST("/v1/completions", "Content-Length: 9999\r\n", "{") "\3\3" GET("/ping"),
        POST("/detokenize", "Content-Length: 17\r\nConnection: close\r\n", "{\"tokens\":[1, 2]}"),
    };
    return fuzz_seed_text(seeds, sizeof(seeds) / sizeof(seeds[0]), index, buffer, capacity);
}
