/* etcd: a curl multi handle with its own epoll descriptor. curl says which sockets it waits for.
 * Received data is kept until etcd_turn has left curl's functions, so a callback may begin and
 * cancel calls. */
#include "membership/etcd.h"

#include "common/json.h"
#include "common/secret.h"
#include "membership/etcd_access.h"

#include <curl/curl.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define CONNECT_MS 2000
#define CALL_MS    5000
/* A watch may receive nothing for hours, and its other end may be gone without notice. */
#define KEEPALIVE_S     20
#define KEEPALIVE_GAP_S 5
#define REPLY_BYTES_MAX (4u << 20) /* Entries of 4096 machines have half of this. */
#define WHY_BYTES       512
#define EVENTS_MAX      8

struct etcd_call {
    struct etcd *etcd;
    struct etcd_call *next;
    CURL *curl;
    char *body;
    char *data; /* Received data that was not passed on yet. */
    size_t bytes;
    size_t capacity;
    const char *path;
    struct curl_slist *headers;
    int key_fd;        /* See etcd_access_tls_set. */
    bool awaits_login; /* The call waits for a login; `curl` is NULL. */
    bool login;
    bool again;     /* etcd did not take the token; this is the second try. */
    uint64_t token; /* Serial of the token that the call carries. */
    bool over;
    bool cancelled;
    CURLcode code;
    uint32_t endpoint;
    etcd_line line;
    etcd_done done;
    void *self;
    char error[CURL_ERROR_SIZE];
};

struct etcd {
    const struct clock *clock;
    CURLM *multi;
    int epoll;
    int64_t timer_us; /* When curl wants to be called; -1 = never. */
    struct etcd_call *calls;
    struct etcd_access access;
    char *token; /* The header that carries it; NULL = none. */
    uint64_t token_serial;
    bool login; /* A login is under way. */
    uint32_t endpoint;
    uint32_t endpoint_count;
    char endpoints[ETCD_ENDPOINTS_MAX][256];
};

/* Makes the call fail in the next turn. */
static void call_fail(struct etcd_call *call, const char *text)
{
    snprintf(call->error, sizeof(call->error), "%.255s", text);
    call->code = CURLE_FAILED_INIT;
    call->over = true;
    call->etcd->timer_us = clock_now_us(call->etcd->clock);
}

/* ---- what curl asks for ---- */

/* If a socket cannot be watched, only its call fails: a failure that is returned to curl would end
 * all calls. */
static int on_socket(CURL *curl, curl_socket_t fd, int what, void *self, void *socket)
{
    (void)socket;
    struct etcd *e = self;
    struct epoll_event event = {.data.fd = fd};
    if (what == CURL_POLL_REMOVE) {
        epoll_ctl(e->epoll, EPOLL_CTL_DEL, fd, &event);
        return 0;
    }
    event.events = (what != CURL_POLL_OUT ? EPOLLIN : 0u) | (what != CURL_POLL_IN ? EPOLLOUT : 0u);
    if (epoll_ctl(e->epoll, EPOLL_CTL_MOD, fd, &event) == 0 ||
        (errno == ENOENT && epoll_ctl(e->epoll, EPOLL_CTL_ADD, fd, &event) == 0))
        return 0;
    char why[128];
    void *call = NULL;
    snprintf(why, sizeof(why), "epoll: %s", strerror(errno));
    curl_easy_getinfo(curl, CURLINFO_PRIVATE, &call);
    if (call != NULL)
        call_fail(call, why);
    return 0;
}

static int on_timer(CURLM *multi, long timeout_ms, void *self)
{
    (void)multi;
    struct etcd *e = self;
    e->timer_us = timeout_ms < 0 ? -1 : clock_now_us(e->clock) + timeout_ms * 1000;
    return 0;
}

static size_t on_data(char *data, size_t size, size_t count, void *self)
{
    struct etcd_call *call = self;
    size_t bytes = size * count;
    if (call->bytes + bytes > REPLY_BYTES_MAX)
        return 0;
    if (call->bytes + bytes > call->capacity) {
        size_t capacity = 2 * (call->bytes + bytes);
        char *grown = realloc(call->data, capacity);
        if (grown == NULL)
            return 0;
        call->data = grown;
        call->capacity = capacity;
    }
    memcpy(call->data + call->bytes, data, bytes);
    call->bytes += bytes;
    return bytes;
}

/* ---- opening and closing ---- */

static bool endpoints_read(struct etcd *e, const char *text)
{
    while (*text != 0 && e->endpoint_count < ETCD_ENDPOINTS_MAX) {
        size_t length = strcspn(text, ",");
        size_t used = length;
        while (used > 0 && (text[used - 1] == '/' || text[used - 1] == ' '))
            used--;
        snprintf(e->endpoints[e->endpoint_count++], sizeof(e->endpoints[0]), "%.*s", (int)used,
                 text);
        text += length;
        text += strspn(text, ", ");
    }
    return e->endpoint_count > 0;
}

static void token_drop(struct etcd *e)
{
    if (e->token != NULL)
        secret_wipe(e->token, strlen(e->token));
    free(e->token);
    e->token = NULL;
}

enum status etcd_open(const struct config *config, const struct clock *clock, struct etcd **out,
                      struct error *error)
{
    struct etcd_access access;
    enum status status = etcd_access_open(config, &access, error);
    if (status != ST_OK) {
        error_prefix(error, "etcd");
        return status;
    }
    if (curl_global_init(CURL_GLOBAL_ALL) != CURLE_OK)
        return error_set(error, ST_UNSUPPORTED,
                         "etcd: libcurl.so.4 (or libcurl-gnutls.so.4) is "
                         "not there");
    struct etcd *e = calloc(1, sizeof(*e));
    if (e == NULL)
        return error_set(error, ST_NO_MEMORY, "etcd: out of memory");
    e->clock = clock;
    e->access = access;
    e->timer_us = -1;
    e->multi = curl_multi_init();
    e->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (e->epoll < 0)
        status = error_set(error, ST_NO_RESOURCE, "etcd: epoll_create1: %s", strerror(errno));
    else if (e->multi == NULL)
        status = error_set(error, ST_NO_MEMORY, "etcd: out of memory");
    else if (!endpoints_read(e, config->cluster.etcd_endpoints))
        status = error_set(error, ST_INVALID, "etcd: cluster/etcd_endpoints has no endpoint");
    if (status != ST_OK) {
        etcd_close(e);
        return status;
    }
    curl_multi_setopt(e->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    curl_multi_setopt(e->multi, CURLMOPT_SOCKETDATA, e);
    curl_multi_setopt(e->multi, CURLMOPT_TIMERFUNCTION, on_timer);
    curl_multi_setopt(e->multi, CURLMOPT_TIMERDATA, e);
    *out = e;
    return ST_OK;
}

static void texts_free(struct curl_slist *list)
{
    for (const struct curl_slist *at = list; at != NULL; at = at->next)
        secret_wipe(at->data, strlen(at->data));
    curl_slist_free_all(list);
}

/* Ends the exchange; the call itself stays. */
static void exchange_end(struct etcd_call *call)
{
    if (call->curl != NULL) {
        curl_multi_remove_handle(call->etcd->multi, call->curl);
        curl_easy_cleanup(call->curl);
    }
    texts_free(call->headers);
    if (call->key_fd >= 0)
        close(call->key_fd);
    secret_wipe(call->data, call->bytes); /* It may have a token. */
    call->curl = NULL;
    call->headers = NULL;
    call->key_fd = -1;
    call->bytes = 0;
    call->over = false;
    call->error[0] = 0;
}

static void call_free(struct etcd_call *call)
{
    exchange_end(call);
    secret_wipe(call->body, strlen(call->body)); /* It may have a password. */
    free(call->body);
    free(call->data);
    free(call);
}

void etcd_close(struct etcd *e)
{
    if (e == NULL)
        return;
    while (e->calls != NULL) {
        struct etcd_call *call = e->calls;
        e->calls = call->next;
        call_free(call);
    }
    if (e->multi != NULL)
        curl_multi_cleanup(e->multi);
    if (e->epoll >= 0)
        close(e->epoll);
    token_drop(e);
    free(e);
}

/* ---- calls ---- */

/* Returns false if memory runs out: curl copies the texts of URL and NOPROXY. */
static bool call_options(struct etcd_call *call, const char *url)
{
    CURL *curl = call->curl;
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, call->body);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_data);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, call);
    curl_easy_setopt(curl, CURLOPT_PRIVATE, call);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, call->error);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
    curl_easy_setopt(curl, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(curl, CURLOPT_TCP_KEEPIDLE, (long)KEEPALIVE_S);
    curl_easy_setopt(curl, CURLOPT_TCP_KEEPINTVL, (long)KEEPALIVE_GAP_S);
    if (call->line == NULL)
        curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)CALL_MS);
    /* No proxy, because etcd is near. */
    return curl_easy_setopt(curl, CURLOPT_URL, url) == CURLE_OK &&
           curl_easy_setopt(curl, CURLOPT_NOPROXY, "*") == CURLE_OK;
}

static void exchange_begin(struct etcd_call *call)
{
    char url[512];
    struct etcd *e = call->etcd;
    struct error error;
    call->awaits_login = false;
    call->endpoint = e->endpoint;
    call->curl = curl_easy_init();
    snprintf(url, sizeof(url), "%s%s", e->endpoints[e->endpoint], call->path);
    if (call->curl == NULL || !call_options(call, url)) {
        call_fail(call, "out of memory");
        return;
    }
    if (etcd_access_tls_set(&e->access, call->curl, &call->key_fd, &error) != ST_OK) {
        call_fail(call, error.text);
        return;
    }
    if (e->token != NULL && !call->login) {
        call->token = e->token_serial;
        call->headers = curl_slist_append(NULL, e->token);
        curl_easy_setopt(call->curl, CURLOPT_HTTPHEADER, call->headers);
        if (call->headers == NULL) {
            call_fail(call, "out of memory");
            return;
        }
    }
    if (curl_multi_add_handle(e->multi, call->curl) != CURLM_OK)
        call_fail(call, "out of memory");
}

static struct etcd_call *call_add(struct etcd *e, const char *path, json_t *body)
{
    struct etcd_call *call = calloc(1, sizeof(*call));
    char *text = body != NULL ? json_dumps(body, JSON_COMPACT) : NULL;
    json_decref(body);
    if (call == NULL || text == NULL) {
        free(call);
        free(text);
        return NULL;
    }
    *call = (struct etcd_call){.etcd = e,
                               .next = e->calls,
                               .path = path,
                               .body = text,
                               .key_fd = -1,
                               .endpoint = e->endpoint};
    e->calls = call;
    return call;
}

static void waiting_fail(struct etcd *e, const char *text)
{
    for (struct etcd_call *call = e->calls; call != NULL; call = call->next)
        if (call->awaits_login && !call->cancelled)
            call_fail(call, text);
}

static void login_begin(struct etcd *e)
{
    struct error error;
    json_t *body = etcd_access_login_body(&e->access, &error);
    struct etcd_call *call = body != NULL ? call_add(e, "/v3/auth/authenticate", body) : NULL;
    if (call == NULL) {
        waiting_fail(e, body != NULL ? "out of memory" : error.text);
        return;
    }
    e->login = call->login = true;
    exchange_begin(call);
}

/* Begins the exchange, after a login if one is needed. */
static void call_begin(struct etcd_call *call)
{
    struct etcd *e = call->etcd;
    call->awaits_login = e->access.user[0] != 0 && e->token == NULL;
    if (!call->awaits_login)
        exchange_begin(call);
    else if (!e->login)
        login_begin(e);
}

struct etcd_call *etcd_call_begin(struct etcd *e, const char *path, json_t *body, etcd_line line,
                                  etcd_done done, void *self)
{
    struct etcd_call *call = call_add(e, path, body);
    if (call == NULL)
        return NULL;
    call->line = line;
    call->done = done;
    call->self = self;
    call_begin(call);
    return call;
}

void etcd_call_cancel(struct etcd_call *call)
{
    if (call != NULL)
        call->cancelled = true;
}

/* ---- the turn ---- */

static void call_failed(struct etcd_call *call, const char *text)
{
    char why[WHY_BYTES];
    struct etcd *e = call->etcd;
    snprintf(why, sizeof(why), "etcd at %s: %.300s", e->endpoints[call->endpoint], text);
    if (e->endpoint == call->endpoint)
        e->endpoint = (e->endpoint + 1) % e->endpoint_count;
    call->done(call->self, NULL, why);
}

/* Returns the text of an error: `error`, `message` (all that some releases since 3.5 have), or in a
 * stream the `message` of the object `error`. */
static const char *error_text(const json_t *reply)
{
    const json_t *error = json_object_get(reply, "error");
    if (error == NULL)
        error = json_object_get(reply, "message");
    const char *text =
        json_string_value(json_is_object(error) ? json_object_get(error, "message") : error);
    return text != NULL ? text : "it answers with an error";
}

/* Returns the reason why the exchange has failed; NULL = it has not. */
static const char *failure_of(const struct etcd_call *call, long code, const json_t *reply)
{
    if (call->code != CURLE_OK)
        return call->error[0] != 0 ? call->error : curl_easy_strerror(call->code);
    if (code == 200 && call->line != NULL)
        return "the watch has ended";
    if (code == 200 && json_is_object(reply) && json_object_get(reply, "error") == NULL)
        return NULL;
    if (json_is_object(reply))
        return error_text(reply);
    return code == 200 ? "its answer is not JSON" : "it does not speak /v3";
}

static void login_over(struct etcd_call *login, const json_t *reply, const char *failure)
{
    char why[WHY_BYTES];
    struct etcd *e = login->etcd;
    e->login = false;
    token_drop(e);
    if (failure == NULL)
        e->token = etcd_access_token_header(reply);
    if (e->token != NULL) {
        e->token_serial++;
        for (struct etcd_call *call = e->calls; call != NULL; call = call->next)
            if (call->awaits_login && !call->cancelled)
                exchange_begin(call);
        return;
    }
    snprintf(why, sizeof(why), "user %s: %.200s", e->access.user,
             failure != NULL ? failure : "the login has no token");
    waiting_fail(e, why);
}

/* True if etcd has forgotten the token, or what it allows. */
static bool token_refused(const struct etcd_call *call, long code, const json_t *reply)
{
    return call->code == CURLE_OK && call->headers != NULL && code != 200 &&
           (code == 401 || json_integer_value(json_object_get(reply, "code")) == 16 ||
            strcmp(error_text(reply), "etcdserver: revision of auth store is old") == 0);
}

static void login_again(struct etcd_call *call)
{
    struct etcd *e = call->etcd;
    if (call->token == e->token_serial)
        token_drop(e);
    exchange_end(call);
    call->again = true;
    call_begin(call);
}

static void call_over(struct etcd_call *call)
{
    long code = 0;
    json_error_t json_error;
    json_t *reply = NULL;
    bool short_of_memory = false;
    if (call->code == CURLE_OK) {
        curl_easy_getinfo(call->curl, CURLINFO_RESPONSE_CODE, &code);
        short_of_memory = json_text_load(call->data, call->bytes, JSON_DISABLE_EOF_CHECK, &reply,
                                         &json_error) == ST_NO_MEMORY;
    }
    if (!call->again && token_refused(call, code, reply)) {
        login_again(call);
        json_decref(reply);
        return;
    }
    const char *failure =
        short_of_memory ? "no memory for its answer" : failure_of(call, code, reply);
    call->cancelled = true;
    if (call->login)
        login_over(call, reply, failure);
    else if (failure != NULL)
        call_failed(call, failure);
    else
        call->done(call->self, reply, NULL);
    json_decref(reply);
}

static void lines_give(struct etcd_call *call)
{
    size_t given = 0;
    long code = 0;
    if (call->curl == NULL)
        return;
    curl_easy_getinfo(call->curl, CURLINFO_RESPONSE_CODE, &code);
    /* call_over reports the error. */
    if (code != 200)
        return;
    while (!call->cancelled && given < call->bytes) {
        json_error_t json_error;
        const char *begin = call->data + given;
        const char *end = memchr(begin, '\n', call->bytes - given);
        if (end == NULL)
            break;
        json_t *line;
        json_text_load(begin, (size_t)(end - begin), 0, &line, &json_error);
        given += (size_t)(end - begin) + 1;
        call->line(call->self, line);
        json_decref(line);
    }
    call->bytes -= given;
    if (given > 0)
        memmove(call->data, call->data + given, call->bytes);
}

static void finished_mark(struct etcd *e)
{
    int left;
    for (CURLMsg *message; (message = curl_multi_info_read(e->multi, &left)) != NULL;) {
        void *call = NULL;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &call);
        ((struct etcd_call *)call)->over = true;
        ((struct etcd_call *)call)->code = message->data.result;
    }
}

/* Calls that callbacks begin are put before the current one, so this loop does not reach them. */
static void calls_report(struct etcd *e)
{
    for (struct etcd_call *call = e->calls; call != NULL; call = call->next) {
        if (call->line != NULL)
            lines_give(call);
        if (call->over && !call->cancelled)
            call_over(call);
    }
    for (struct etcd_call **at = &e->calls; *at != NULL;) {
        struct etcd_call *call = *at;
        if (call->cancelled) {
            *at = call->next;
            call_free(call);
        } else {
            at = &call->next;
        }
    }
}

int etcd_turn(struct etcd *e)
{
    struct epoll_event events[EVENTS_MAX];
    int running;
    int count = epoll_wait(e->epoll, events, EVENTS_MAX, 0);
    for (int i = 0; i < count; i++) {
        int what = ((events[i].events & EPOLLIN) != 0 ? CURL_CSELECT_IN : 0) |
                   ((events[i].events & EPOLLOUT) != 0 ? CURL_CSELECT_OUT : 0) |
                   ((events[i].events & (EPOLLERR | EPOLLHUP)) != 0 ? CURL_CSELECT_ERR : 0);
        curl_multi_socket_action(e->multi, events[i].data.fd, what, &running);
    }
    if (e->timer_us >= 0 && clock_now_us(e->clock) >= e->timer_us) {
        e->timer_us = -1;
        curl_multi_socket_action(e->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    }
    finished_mark(e);
    calls_report(e);
    if (e->timer_us < 0)
        return -1;
    int64_t left_us = e->timer_us - clock_now_us(e->clock);
    return left_us <= 0 ? 0 : (int)((left_us + 999) / 1000);
}

int etcd_fd(const struct etcd *e)
{
    return e->epoll;
}

const char *etcd_endpoint(const struct etcd *e)
{
    return e->endpoints[e->endpoint];
}
