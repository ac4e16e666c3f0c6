/* Goal: a call to etcd fails, and says why, if a part of its exchange cannot be set up; it neither
 * waits for ever nor runs without that part. Method: functions of libcurl and of the kernel that
 * fail, and an etcd that accepts connections and says nothing. */
#include "membership/etcd.h"
#include "tests/check.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#undef curl_easy_setopt /* A macro that checks types. */

/* ---- functions that fail (the linker's option --wrap) ---- */

static CURLoption failing_option; /* curl_easy_setopt fails for this option; 0 = for none. */
static bool adding_fails;         /* curl_multi_add_handle fails. */
static bool watching_fails;       /* epoll_ctl adds no descriptor. */

CURLcode __real_curl_easy_setopt(CURL *curl, CURLoption option, ...);
CURLcode __wrap_curl_easy_setopt(CURL *curl, CURLoption option, ...);
CURLMcode __real_curl_multi_add_handle(CURLM *multi, CURL *curl);
CURLMcode __wrap_curl_multi_add_handle(CURLM *multi, CURL *curl);
int __real_epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event);
int __wrap_epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event);

CURLcode __wrap_curl_easy_setopt(CURL *curl, CURLoption option, ...)
{
    va_list arguments;
    va_start(arguments, option);
    void *value = va_arg(arguments, void *); /* All values have this size (common/curl.c). */
    va_end(arguments);
    return option == failing_option ? CURLE_OUT_OF_MEMORY
                                    : __real_curl_easy_setopt(curl, option, value);
}

CURLMcode __wrap_curl_multi_add_handle(CURLM *multi, CURL *curl)
{
    return adding_fails ? CURLM_OUT_OF_MEMORY : __real_curl_multi_add_handle(multi, curl);
}

int __wrap_epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event)
{
    if (!watching_fails || operation != EPOLL_CTL_ADD)
        return __real_epoll_ctl(epoll, operation, fd, event);
    errno = ENOMEM;
    return -1;
}

/* ---- calls ---- */

static bool ended;
static char reason[512];

static void on_line(void *self, json_t *line)
{
    (void)self, (void)line;
    CHECKF(false, "etcd says nothing, but a line came");
}

static void on_done(void *self, json_t *reply, const char *why)
{
    (void)self;
    CHECK(reply == NULL && why != NULL);
    snprintf(reason, sizeof(reason), "%s", why);
    ended = true;
}

/* Begins a stream, which has no time limit, and waits for its end. */
static void check_fails(const struct config *config, const char *expected)
{
    struct etcd *etcd;
    struct error error;
    CHECKF(etcd_open(config, &clock_system, &etcd, &error) == ST_OK, "%s", error.text);
    ended = false;
    CHECK(etcd_call_begin(etcd, "/v3/watch", json_object(), on_line, on_done, NULL) != NULL);
    while (!ended) {
        int timeout_ms = etcd_turn(etcd);
        struct pollfd fd = {.fd = etcd_fd(etcd), .events = POLLIN};
        if (!ended)
            poll(&fd, 1, timeout_ms);
    }
    CHECKF(strstr(reason, expected) != NULL, "%s, want %s", reason, expected);
    etcd_close(etcd);
}

/* Listens on a free port. The kernel accepts the connections. */
static int silent_open(struct config *config)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(address);
    char text[64];
    struct error error;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&address, bytes) == 0 && listen(fd, 8) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)&address, &bytes) == 0);
    snprintf(text, sizeof(text), "127.0.0.1:%u", ntohs(address.sin_port));
    CHECK(config_set(config, "test", "cluster/etcd_endpoints", text, &error) == ST_OK);
    return fd;
}

int main(void)
{
    static struct config config;
    char ca[] = "/tmp/cleave-etcd-XXXXXX";
    struct error error;
    config_default(&config);
    int silent = silent_open(&config);
    adding_fails = true;
    check_fails(&config, "ut of memory");
    adding_fails = false;
    watching_fails = true;
    check_fails(&config, "epoll");
    watching_fails = false;
    static const CURLoption options[] = {CURLOPT_URL, CURLOPT_NOPROXY, CURLOPT_CAINFO};
    int fd = mkstemp(ca);
    CHECK(fd >= 0 && config_set(&config, "test", "cluster/etcd_ca_file", ca, &error) == ST_OK);
    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
        failing_option = options[i];
        check_fails(&config, "ut of memory");
    }
    CHECK(close(fd) == 0 && close(silent) == 0 && unlink(ca) == 0);
    return 0;
}
