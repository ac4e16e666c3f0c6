/* Goal: only the administrator of this host uses /admin and learns the names of machines: no proxy
 * and no web page that runs on this host. Method: the requests of such clients, over TCP and over a
 * Unix socket. */
#include "tests/check.h"
#include "tests/server/http/http_fixture.h"

#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define ROOT "Authorization: Bearer sk-root-0123456789\r\n"
#define USER "Authorization: Bearer sk-user-0123456789\r\n"

static const char key_file[] =
    "{\"keys\": [{\"name\": \"user\", \"key\": \"sk-user-0123456789\"},"
    "{\"name\": \"root\", \"key\": \"sk-root-0123456789\", \"admin\": true}]}";

static struct sockaddr_un address = {.sun_family = AF_UNIX};

static void admin_state(void *self, struct text *answer)
{
    (void)self;
    text_string_add(answer, "{\"state\":1}");
}

static bool admin_machine(void *self, enum http_admin_verb verb, const char *name, const char *body,
                          size_t bytes, struct text *answer, struct api_error *error)
{
    (void)self;
    (void)verb;
    (void)name;
    (void)body;
    (void)bytes;
    (void)error;
    text_string_add(answer, "{\"machine\":1}");
    return true;
}

static int socket_listen(void)
{
    char folder[] = "/tmp/cleave-admin-XXXXXX";
    CHECK(mkdtemp(folder) != NULL);
    snprintf(address.sun_path, sizeof(address.sun_path), "%s/s", folder);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
    CHECK(listen(fd, 8) == 0);
    return fd;
}

static int ask_socket(const char *method, const char *path, const char *body)
{
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
    send_request(fd, method, path, "", body);
    int status = read_reply(fd);
    close(fd);
    return status;
}

/* F-15 of the security review: a proxy on this host made everybody an administrator. */
static void check_proxies_are_not_administrators(void)
{
    static const char *const refused[] = {
        "Host: cleave.example\r\n",
        "Host: 10.1.2.3:8080\r\n",
        "X-Forwarded-For: 10.1.2.3\r\n",
        "X-Forwarded-Proto: https\r\n",
        "X-Real-IP: 10.1.2.3\r\n",
        "Forwarded: for=10.1.2.3\r\n",
        "Via: 1.1 proxy\r\n",
        "Origin: http://localhost\r\n",
        "Sec-Fetch-Site: cross-site\r\n",
    };
    static const char *const good[] = {"Host: localhost\r\n", "Host: 127.0.0.1:8080\r\n",
                                       "Host: [::1]\r\n", "Host: [::1]:8080\r\n"};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        CHECKF(ask("GET", "/admin/state", good[i], "") == 200, "%s", good[i]);
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
        CHECKF(ask("GET", "/admin/state", refused[i], "") == 403, "%s", refused[i]);
    int fd = dial(); /* as nginx speaks to servers behind it */
    static const char old[] = "GET /admin/state HTTP/1.0\r\nHost: localhost\r\n\r\n";
    send_bytes(fd, old, sizeof(old) - 1);
    CHECK(read_reply(fd) == 403);
    close(fd);
    CHECK(ask("POST", "/admin/machines", "Content-Type: text/plain\r\n", "{}") == 415);
    CHECK(ask("POST", "/admin/machines", "", "{}") == 202);
    CHECK(ask("POST", "/admin/drain/a", "", "") == 200);
    /* With keys the key decides, through a proxy as well. */
    keys_use(key_file);
    CHECK(ask("GET", "/admin/state", ROOT "X-Forwarded-For: 10.1.2.3\r\n", "") == 200);
    CHECK(ask("GET", "/admin/state", USER, "") == 403);
    CHECK(ask("GET", "/admin/state", "", "") == 401);
}

/* A right that is taken away while the body arrives is gone. */
static void check_right_is_checked_after_the_body(void)
{
    static const char head[] = "POST /admin/machines HTTP/1.1\r\nHost: localhost\r\n" ROOT
                               "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{";
    int fd = dial();
    send_bytes(fd, head, sizeof(head) - 1);
    wait_for_body_bytes(1);
    keys_use("{\"keys\": [{\"name\": \"root\", \"key\": \"sk-root-0123456789\"}]}");
    send_bytes(fd, "}", 1);
    CHECK(read_reply(fd) == 403);
    close(fd);
    keys_use(key_file);
}

/* F-23: /health named machines and addresses to everybody. */
static void check_health_names_no_machines(void)
{
    fake_ready = false;
    CHECK(ask("GET", "/health", ROOT, "") == 503);
    expect("machine token-0");
    CHECK(ask("GET", "/health", "", "") == 503);
    expect("0 of 1 machines serve");
    expect_not("token-0");
    CHECK(ask("GET", "/health", USER, "") == 503);
    expect_not("token-0");
    CHECK(ask("POST", "/v1/completions", USER, "{\"prompt\": \"a\"}") == 503);
    expect_not("token-0");
    fake_ready = true;
}

static void check_health_through_a_proxy(void)
{
    fake_ready = false;
    CHECK(ask("GET", "/health", "X-Forwarded-For: 10.1.2.3\r\n", "") == 503);
    expect_not("token-0");
    CHECK(ask("GET", "/health", "", "") == 503);
    expect("token-0");
    fake_ready = true;
}

static void check_socket(void)
{
    CHECK(ask("GET", "/admin/state", "", "") == 403);
    expect("http/admin_socket only");
    for (int keys_too = 0; keys_too < 2; keys_too++) {
        CHECK(ask_socket("GET", "/admin/state", "") == 200);
        expect("{\"state\":1}");
        CHECK(ask_socket("POST", "/admin/machines", "{}") == 202);
        CHECK(ask_socket("GET", "/metrics", "") == 200);
        CHECK(ask_socket("GET", "/health", "") == 200);
        CHECK(ask_socket("POST", "/v1/completions", "{\"prompt\": \"ehi\"}") == 403);
        CHECK(ask_socket("GET", "/nothing", "") == 404);
        keys_use(key_file);
    }
    CHECK(ask("GET", "/admin/state", ROOT, "") == 200);
    fake_ready = false;
    CHECK(ask_socket("GET", "/health", "") == 503);
    expect("token-0");
    fake_ready = true;
}

int main(void)
{
    struct http_options options = {.admin = {.state = admin_state, .machine = admin_machine}};
    server_config_default();
    server_start(options);
    check_health_through_a_proxy();
    check_proxies_are_not_administrators();
    check_right_is_checked_after_the_body();
    check_health_names_no_machines();
    server_stop();
    options.admin_fd = socket_listen();
    server_start(options);
    check_socket();
    server_stop();
    CHECK(unlink(address.sun_path) == 0);
    *strrchr(address.sun_path, '/') = 0;
    CHECK(rmdir(address.sun_path) == 0);
    return 0;
}
