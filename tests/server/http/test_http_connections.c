/* Goal: connections that do nothing, or send slowly, do not lock others out of the server, and end
 * in time. Method: more connections than the server has places; the test sets the clock. */
#include "common/log.h"
#include "common/text.h"
#include "tests/check.h"
#include "tests/server/http/http_fixture.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define PLACES 32 /* http/connections_max */

static atomic_bool watching_fails; /* No connection can be watched. */

int __real_epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event);
int __wrap_epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event);

int __wrap_epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event)
{
    if (!watching_fails || operation != EPOLL_CTL_ADD || event->events != EPOLLRDHUP)
        return __real_epoll_ctl(epoll, operation, fd, event);
    errno = ENOMEM;
    return -1;
}

static uint32_t open_count(void)
{
    server_pause();
    uint32_t count = http_clients_count(http->clients);
    server_resume();
    return count;
}

static void wait_open(uint32_t want)
{
    for (int i = 0; i < 60000 && open_count() != want; i++)
        usleep(1000);
    CHECKF(open_count() == want, "%u connections, want %u", open_count(), want);
}

static void headers_ms_set(uint32_t ms)
{
    server_pause();
    config.http.headers_ms = ms;
    server_resume();
}

/* Sends a request, and lets time pass until it is answered: with all places taken, the connection
 * is accepted when other ones are no longer young. */
static void ask_patiently(const char *method, const char *path, const char *body)
{
    struct pollfd answer = {.fd = dial(), .events = POLLIN};
    send_request(answer.fd, method, path, "", body);
    for (int i = 0; poll(&answer, 1, 10) == 0; i++) {
        CHECKF(i < 6000, "%s is not answered", path);
        clock_advance(HTTP_CLIENT_YOUNG_US);
    }
    CHECK(read_reply(answer.fd) == 200);
    close(answer.fd);
}

/* F-18 of the security review. */
static void check_silent_connections_lock_nobody_out(void)
{
    int silent[4 * PLACES];
    headers_ms_set(3600000); /* Only new connections make others end. */
    for (int i = 0; i < 4 * PLACES; i++) {
        silent[i] = dial();
        if (i % 2)
            send_bytes(silent[i], "POST /v1/comp", 13);
    }
    ask_patiently("GET", "/health", "");
    ask_patiently("POST", "/v1/completions", "{\"prompt\": \"ehi\"}");
    CHECK(open_count() <= PLACES);
    for (int i = 0; i < 4 * PLACES; i++)
        close(silent[i]);
    wait_open(0);
    headers_ms_set(30000);
}

/* Each of many clients at the same time gets an answer, not a closed connection. */
static void check_many_are_refused(void)
{
    int fds[3 * PLACES];
    for (int i = 0; i < 3 * PLACES; i++)
        fds[i] = dial();
    for (int i = 0; i < 3 * PLACES; i++)
        send_request(fds[i], "POST", "/v1/completions", "", "{\"prompt\": \"h\"}");
    for (int i = 0; i < 3 * PLACES; i++) {
        CHECK(read_reply(fds[i]) == 503);
        expect("http/connections_max");
        close(fds[i]);
    }
}

/* All places have work: /health and the administrator still get in, others get 503. */
static void check_work_leaves_places(void)
{
    int fds[PLACES];
    uint32_t refused = 0, works = 0;
    for (int i = 0; i < PLACES; i++) {
        unsigned before = fake_submitted;
        unsigned codes = fake_http_codes[503];
        fds[i] = dial();
        send_request(fds[i], "POST", "/v1/completions", "", "{\"prompt\": \"h\"}");
        while (fake_submitted == before && fake_http_codes[503] == codes)
            usleep(1000);
        works += fake_submitted != before;
        if (fake_submitted != before)
            continue;
        refused++;
        CHECK(read_reply(fds[i]) == 503);
        expect("Retry-After: 1");
        expect("http/connections_max");
    }
    CHECKF(refused > 0 && works > PLACES / 2, "%u refused, %u work", refused, works);
    check_many_are_refused();
    CHECK(ask("GET", "/health", "", "") == 200);
    CHECK(ask("GET", "/admin/state", "", "") == 200);
    CHECK(ask("GET", "/metrics", "", "") == 200);
    for (int i = 0; i < PLACES; i++)
        close(fds[i]);
    wait_for_counter(&fake_open, 0, "open");
    wait_open(0);
}

static void check_connections_end_in_time(void)
{
    static const char head[] = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                               "Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{";
    int silent = dial();
    int headers = dial();
    send_bytes(headers, "GET /ping HTTP/1.1\r\n", 20);
    int body = dial();
    send_bytes(body, head, sizeof(head) - 1);
    int idle = dial();
    send_request(idle, "GET", "/ping", "", "");
    CHECK(read_reply(idle) == 200);
    wait_open(4);
    while (http->bodies_bytes != 1) /* the three others need no more than their places */
        usleep(1000);
    clock_advance(31000000);
    wait_closed(silent);
    wait_closed(headers);
    wait_closed(body);
    wait_open(1);
    unsigned ended = fake_http_codes[200];
    send_request(idle, "GET", "/ping", "", "");
    CHECK(read_reply(idle) == 200);
    wait_for_counter(&fake_http_codes[200], ended + 1, "ended");
    clock_advance(121000000);
    wait_closed(idle);
    wait_open(0);
}

/* A request whose connection cannot be watched is answered, and the log has the reason. */
static void check_not_watched(void)
{
    struct text logged = {0};
    watching_fails = true;
    CHECK(ask("POST", "/v1/completions", "", "{\"prompt\": \"ehi\"}") == 200);
    watching_fails = false;
    log_kept_write(&logged);
    text_add(&logged, "", 1);
    CHECKF(strstr(logged.data, "cannot be watched: Cannot allocate memory") != NULL, "%s",
           logged.data);
    text_done(&logged);
}

static void admin_state(void *self, struct text *answer)
{
    (void)self;
    text_string_add(answer, "{}");
}

int main(void)
{
    log_keep(4096);
    server_config_default();
    config.http.connections_max = PLACES;
    server_start((struct http_options){.admin = {.state = admin_state}});
    check_silent_connections_lock_nobody_out();
    check_work_leaves_places();
    check_connections_end_in_time();
    check_not_watched();
    server_stop();
    return 0;
}
