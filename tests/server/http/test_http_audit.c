/* Goal: each request to /admin, accepted or refused, gives exactly one audit line, which says what
 * was done, by which party, from where, and with which result, and contains no secret. Method:
 * every endpoint under /admin as every kind of client, while the log goes into a pipe. */
#include "tests/check.h"
#include "tests/server/http/http_fixture.h"

#include "common/log.h"

#include <fcntl.h>
#include <jansson.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define ROOT "Authorization: Bearer sk-root-0123456789\r\n"
#define USER "Authorization: Bearer sk-user-0123456789\r\n"
#define LIAR "Authorization: Bearer sk-liar-0123456789\r\n"

static const char key_file[] =
    "{\"keys\": [{\"name\": \"user\", \"key\": \"sk-user-0123456789\"},"
    "{\"name\": \"root\", \"key\": \"sk-root-0123456789\", \"admin\": true}]}";

static struct sockaddr_un address = {.sun_family = AF_UNIX};
static int log_fd;
static char said[1 << 16];

/* --- the actions --- */

static void admin_state(void *self, struct text *answer)
{
    (void)self;
    text_string_add(answer, "{\"state\":1}");
}

static void admin_view(void *self, const struct http_admin_view *view, struct text *answer)
{
    (void)self;
    text_format_add(answer, "{\"what\":%d,\"count\":%u,\"events\":%d,\"id\":", (int)view->kind,
                    view->requests_max, view->with_events);
    text_add_json_string(answer, view->id != NULL ? view->id : "",
                         view->id != NULL ? strlen(view->id) : 0);
    text_string_add(answer, "}");
}

static bool admin_reload(void *self, bool dry, const struct audit_actor *actor, struct text *answer,
                         struct api_error *error)
{
    (void)dry;
    (void)self;
    (void)error;
    text_format_add(answer, "{\"who\":\"%s\"}", actor->name);
    return true;
}

static bool admin_machine(void *self, enum http_admin_verb verb, const char *name, const char *body,
                          size_t bytes, struct text *answer, struct api_error *error)
{
    (void)self;
    (void)verb;
    (void)body;
    (void)bytes;
    if (strcmp(name, "none") == 0)
        return api_error_set(error, 404, NULL, "there is no machine \"none\" here");
    text_string_add(answer, "{\"machine\":1}");
    return true;
}

/* --- the log --- */

/* Lets the log write into a pipe, and this test's own messages to stderr as before. */
static void log_capture(void)
{
    int ends[2], real = dup(STDERR_FILENO);
    CHECK(real >= 0 && pipe(ends) == 0 && dup2(ends[1], STDERR_FILENO) >= 0);
    log_open("gateway", LOG_INFO);
    CHECK(dup2(real, STDERR_FILENO) >= 0 && close(ends[1]) == 0 && close(real) == 0);
    log_fd = ends[0];
    CHECK(fcntl(log_fd, F_SETFL, O_NONBLOCK) == 0);
}

static const char *text_of(const json_t *line, const char *member)
{
    const char *text = json_string_value(json_object_get(line, member));
    CHECKF(text != NULL, "no %s in %s", member, said);
    return text;
}

struct want {
    const char *act;
    const char *target;
    const char *who;
    int status;
    bool stranger;
};

/* Reads what was logged since the last call: it must be one audit line with these members. */
static void check_line(const struct want *want)
{
    ssize_t bytes = 0;
    for (int i = 0; i < 60000 && (bytes = read(log_fd, said, sizeof(said) - 1)) <= 0; i++)
        usleep(1000);
    CHECKF(bytes > 0, "no line for %s", want->act);
    said[bytes] = 0;
    CHECKF(strchr(said, '\n') == said + bytes - 1, "want one line: %s", said);
    CHECKF(strstr(said, "sk-") == NULL && strstr(said, "0123456789") == NULL, "%s", said);
    CHECKF(strstr(said, want->stranger ? "warn  gateway: audit: {" : "info  gateway: audit: {") !=
               NULL,
           "%s", said);
    json_t *line = json_loads(strchr(said, '{'), 0, NULL);
    CHECKF(line != NULL && json_object_size(line) == 5, "%s", said);
    CHECKF(strcmp(text_of(line, "act"), want->act) == 0, "want %s: %s", want->act, said);
    CHECKF(strcmp(text_of(line, "target"), want->target) == 0, "want %s: %s", want->target, said);
    CHECKF(strcmp(text_of(line, "who"), want->who) == 0, "want %s: %s", want->who, said);
    const char *from = text_of(line, "from");
    CHECKF(strncmp(want->who, "admin socket", 12) == 0 ? strcmp(from, "admin socket") == 0
                                                       : strncmp(from, "127.0.0.1:", 10) == 0,
           "%s", said);
    CHECKF(json_integer_value(json_object_get(line, "status")) == want->status, "want %d: %s",
           want->status, said);
    json_decref(line);
}

/* --- clients --- */

static int ask_socket(const char *method, const char *path, const char *body)
{
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
    send_request(fd, method, path, "", body);
    int status = read_reply(fd);
    close(fd);
    return status;
}

/* Every endpoint under /admin, and requests that no endpoint takes. The status is that for an
 * administrator. */
static const struct {
    const char *method, *path, *body, *act, *target;
    int status;
} requests[] = {
    {"GET", "/admin/state", "", "GET /admin/state", "", 200},
    {"HEAD", "/admin/state", "", "HEAD /admin/state", "", 200},
    {"GET", "/admin/requests?id=a%2Fb&count=7", "", "GET /admin/requests", "", 200},
    {"GET", "/admin/decisions", "", "GET /admin/decisions", "", 200},
    {"GET", "/admin/config", "", "GET /admin/config", "", 200},
    {"GET", "/admin/log", "", "GET /admin/log", "", 200},
    {"POST", "/admin/reload", "", "POST /admin/reload", "", 200},
    {"POST", "/admin/machines", "{\"name\": \"token-7\"}", "POST /admin/machines", "token-7", 202},
    {"POST", "/admin/machines", "{\"name\": 7}", "POST /admin/machines", "", 202},
    {"DELETE", "/admin/machines/token-0", "", "DELETE /admin/machines/", "token-0", 202},
    {"POST", "/admin/drain/token-0", "", "POST /admin/drain/", "token-0", 200},
    {"POST", "/admin/drain/none", "", "POST /admin/drain/", "none", 404},
    {"POST", "/admin/undrain/a%22%0Ab", "", "POST /admin/undrain/", "a\"\nb", 200},
    {"GET", "/admin/reload", "", "GET /admin/reload", "", 405},
};

/* Sends all requests, as a client with these headers (NULL = over the administrator's socket). An
 * administrator has refused = 0; others get this status. */
static void check_all(const char *headers, const char *who, int refused)
{
    for (size_t i = 0; i < sizeof(requests) / sizeof(requests[0]); i++) {
        const char *method = requests[i].method, *path = requests[i].path, *body = requests[i].body;
        if (strcmp(method, "HEAD") ==
            0) { /* its answer has no body, which read_reply() would wait for */
            int fd = headers != NULL ? dial() : socket(AF_UNIX, SOCK_STREAM, 0);
            char some[64];
            if (headers == NULL)
                CHECK(connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
            send_request(fd, method, path, headers != NULL ? headers : "", body);
            CHECK(recv(fd, some, sizeof(some), 0) > 0);
            close(fd);
        } else {
            int status =
                headers != NULL ? ask(method, path, headers, body) : ask_socket(method, path, body);
            CHECKF(status == (refused > 0 ? refused : requests[i].status), "%s %s: %d", method,
                   path, status);
        }
        /* The body of a refused request is not read. */
        bool known = refused == 0 || strcmp(path, "/admin/machines") != 0;
        check_line(&(struct want){requests[i].act, known ? requests[i].target : "", who,
                                  refused > 0 ? refused : requests[i].status, refused > 0});
    }
}

static void check_views(void)
{
    CHECK(ask_socket("GET", "/admin/requests?id=a%2Fb%22&count=7", "") == 200);
    expect("{\"what\":0,\"count\":7,\"events\":1,\"id\":\"a/b\\\"\"}");
    CHECK(ask_socket("GET", "/admin/requests?count=-1&events=1", "") == 200);
    expect("{\"what\":0,\"count\":4294967295,\"events\":1,\"id\":\"\"}");
    CHECK(ask_socket("GET", "/admin/requests?count=x", "") == 200);
    expect("{\"what\":0,\"count\":100,\"events\":0,\"id\":\"\"}");
    CHECK(ask_socket("GET", "/admin/log", "") == 200);
    expect("Content-Type: text/plain");
}

static void check_no_endpoint(void)
{
    CHECK(ask("GET", "/admin/no\x01thing", ROOT, "") == 404);
    check_line(&(struct want){"GET /admin/no\x01thing", "", "key root", 404, false});
    CHECK(ask("GET", "/admin", LIAR, "") == 401);
    check_line(&(struct want){"GET /admin", "", "no valid key", 401, true});
    CHECK(ask("POST", "/admin/reload", ROOT "Content-Type: text/plain\r\n", "{}") == 415);
    check_line(&(struct want){"POST /admin/reload", "", "key root", 415, false});
}

/* A client that leaves before its request is whole. */
static void check_client_leaves(void)
{
    static const char head[] = "POST /admin/machines HTTP/1.1\r\nHost: localhost\r\n" ROOT
                               "Content-Type: application/json\r\nContent-Length: 9\r\n\r\n{";
    int fd = dial();
    send_bytes(fd, head, sizeof(head) - 1);
    wait_for_body_bytes(1);
    close(fd);
    check_line(&(struct want){"POST /admin/machines", "", "key root", 0, false});
}

static void check_others_give_no_line(void)
{
    CHECK(ask("GET", "/health", "", "") == 200 && ask("GET", "/metrics", ROOT, "") == 200);
    CHECK(ask("GET", "/administrator", ROOT, "") == 404);
    CHECK(ask("POST", "/v1/completions", ROOT, "{\"prompt\": \"ehi\"}") == 200);
    CHECK(read(log_fd, said, sizeof(said)) < 0);
}

static void check_socket(void)
{
    char folder[] = "/tmp/cleave-audit-XXXXXX", who[64];
    CHECK(mkdtemp(folder) != NULL);
    snprintf(address.sun_path, sizeof(address.sun_path), "%s/s", folder);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
    CHECK(listen(fd, 8) == 0);
    struct http_options options = {.admin = {.state = admin_state,
                                             .view = admin_view,
                                             .reload = admin_reload,
                                             .machine = admin_machine},
                                   .admin_fd = fd};
    server_start(options);
    snprintf(who, sizeof(who), "admin socket uid %u", (unsigned)getuid());
    check_all(NULL, who, 0);
    keys_use(key_file);
    check_all(NULL, who, 0);
    check_views();
    server_stop();
    CHECK(unlink(address.sun_path) == 0 && rmdir(folder) == 0);
}

int main(void)
{
    struct http_options options = {.admin = {.state = admin_state,
                                             .view = admin_view,
                                             .reload = admin_reload,
                                             .machine = admin_machine}};
    log_capture();
    server_config_default();
    server_start(options);
    check_all("", "loopback client", 0);
    check_all("Host: cleave.example\r\n", "loopback client", 403);
    keys_use(key_file);
    check_all(ROOT, "key root", 0);
    check_all(USER, "key user", 403);
    check_all(LIAR, "no valid key", 401);
    check_all("", "no valid key", 401);
    check_no_endpoint();
    check_client_leaves();
    check_others_give_no_line();
    server_stop();
    check_socket();
    return 0;
}
