/* etcd: a curl multi handle with its own epoll descriptor. curl says which sockets it waits for.
 * Received data is kept until etcd_turn has left curl's functions, so a callback may begin and
 * cancel calls. */
#include "membership/etcd.h"

#include <curl/curl.h>
#include <errno.h>
#include <gnutls/gnutls.h>
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
#define REPLY_BYTES_MAX (16u << 20)
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
    uint32_t endpoint;
    uint32_t endpoint_count;
    char endpoints[ETCD_ENDPOINTS_MAX][256];
};

/* ---- what curl asks for ---- */

static int on_socket(CURL *curl, curl_socket_t fd, int what, void *self, void *socket)
{
    (void)curl, (void)socket;
    struct etcd *e = self;
    struct epoll_event event = {.data.fd = fd};
    if (what == CURL_POLL_REMOVE) {
        epoll_ctl(e->epoll, EPOLL_CTL_DEL, fd, &event);
        return 0;
    }
    event.events = (what != CURL_POLL_OUT ? EPOLLIN : 0u) | (what != CURL_POLL_IN ? EPOLLOUT : 0u);
    if (epoll_ctl(e->epoll, EPOLL_CTL_MOD, fd, &event) != 0 && errno == ENOENT)
        epoll_ctl(e->epoll, EPOLL_CTL_ADD, fd, &event);
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

enum status etcd_open(const char *endpoints, const struct clock *clock, struct etcd **out,
                      struct error *error)
{
    if (curl_global_init(CURL_GLOBAL_ALL) != CURLE_OK)
        return error_set(error, ST_UNSUPPORTED,
                         "etcd: libcurl.so.4 (or libcurl-gnutls.so.4) is "
                         "not there");
    struct etcd *e = calloc(1, sizeof(*e));
    if (e == NULL)
        return error_set(error, ST_NO_MEMORY, "etcd: out of memory");
    e->clock = clock;
    e->timer_us = -1;
    e->epoll = epoll_create1(EPOLL_CLOEXEC);
    e->multi = curl_multi_init();
    if (e->epoll < 0 || e->multi == NULL || !endpoints_read(e, endpoints)) {
        etcd_close(e);
        return error_set(error, ST_INVALID, "etcd: no endpoint, or out of memory");
    }
    curl_multi_setopt(e->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    curl_multi_setopt(e->multi, CURLMOPT_SOCKETDATA, e);
    curl_multi_setopt(e->multi, CURLMOPT_TIMERFUNCTION, on_timer);
    curl_multi_setopt(e->multi, CURLMOPT_TIMERDATA, e);
    *out = e;
    return ST_OK;
}

static void call_free(struct etcd_call *call)
{
    curl_multi_remove_handle(call->etcd->multi, call->curl);
    curl_easy_cleanup(call->curl);
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
    free(e);
}

/* ---- calls ---- */

static void call_options(struct etcd_call *call, const char *url)
{
    CURL *curl = call->curl;
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, call->body);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_data);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, call);
    curl_easy_setopt(curl, CURLOPT_PRIVATE, call);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, call->error);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_NOPROXY, "*"); /* No proxy, because etcd is near. */
    curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
    curl_easy_setopt(curl, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(curl, CURLOPT_TCP_KEEPIDLE, (long)KEEPALIVE_S);
    curl_easy_setopt(curl, CURLOPT_TCP_KEEPINTVL, (long)KEEPALIVE_GAP_S);
    if (call->line == NULL)
        curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)CALL_MS);
}

struct etcd_call *etcd_begin(struct etcd *e, const char *path, json_t *body, etcd_line line,
                             etcd_done done, void *self)
{
    char url[512];
    struct etcd_call *call = calloc(1, sizeof(*call));
    char *text = body != NULL ? json_dumps(body, JSON_COMPACT) : NULL;
    CURL *curl = curl_easy_init();
    json_decref(body);
    if (call == NULL || text == NULL || curl == NULL) {
        free(call);
        free(text);
        curl_easy_cleanup(curl);
        return NULL;
    }
    *call = (struct etcd_call){.etcd = e,
                               .next = e->calls,
                               .curl = curl,
                               .body = text,
                               .endpoint = e->endpoint,
                               .line = line,
                               .done = done,
                               .self = self};
    e->calls = call;
    snprintf(url, sizeof(url), "%s%s", e->endpoints[e->endpoint], path);
    call_options(call, url);
    curl_multi_add_handle(e->multi, curl);
    return call;
}

void etcd_cancel(struct etcd_call *call)
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

/* Returns the text of an error object. In a stream the text is one level deeper. */
static const char *error_text(const json_t *reply)
{
    const json_t *error = json_object_get(reply, "error");
    const char *text =
        json_string_value(json_is_object(error) ? json_object_get(error, "message") : error);
    return text != NULL ? text : "it answers with an error";
}

static void call_over(struct etcd_call *call)
{
    long code = 0;
    json_error_t json_error;
    if (call->code != CURLE_OK) {
        call_failed(call, call->error[0] != 0 ? call->error : curl_easy_strerror(call->code));
        return;
    }
    curl_easy_getinfo(call->curl, CURLINFO_RESPONSE_CODE, &code);
    json_t *reply = json_loadb(call->data != NULL ? call->data : "", call->bytes,
                               JSON_DISABLE_EOF_CHECK, &json_error);
    if (code == 200 && call->line != NULL)
        call_failed(call, "the watch has ended");
    else if (code == 200 && json_is_object(reply) && json_object_get(reply, "error") == NULL)
        call->done(call->self, reply, NULL);
    else if (json_is_object(reply))
        call_failed(call, error_text(reply));
    else
        call_failed(call, code == 200 ? "its answer is not JSON" : "it does not speak /v3");
    json_decref(reply);
}

static void lines_give(struct etcd_call *call)
{
    size_t given = 0;
    long code = 0;
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
        json_t *line = json_loadb(begin, (size_t)(end - begin), 0, &json_error);
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
        if (call->over && !call->cancelled) {
            call->cancelled = true;
            call_over(call);
        }
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

/* ---- texts ---- */

json_t *etcd_bytes(const char *text, size_t bytes)
{
    gnutls_datum_t from = {.data = (unsigned char *)text, .size = (unsigned)bytes};
    gnutls_datum_t to;
    if (gnutls_base64_encode2(&from, &to) != 0)
        return NULL;
    json_t *value = json_stringn((const char *)to.data, to.size);
    gnutls_free(to.data);
    return value;
}

char *etcd_text(const json_t *value)
{
    if (!json_is_string(value))
        return NULL;
    gnutls_datum_t from = {.data = (unsigned char *)json_string_value(value),
                           .size = (unsigned)json_string_length(value)};
    gnutls_datum_t to = {0};
    if (from.size > 0 && gnutls_base64_decode2(&from, &to) != 0)
        return NULL;
    char *text = malloc(to.size + 1u);
    if (text != NULL && to.size > 0)
        memcpy(text, to.data, to.size);
    if (text != NULL)
        text[to.size] = 0;
    gnutls_free(to.data);
    return text;
}

int64_t etcd_number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (json_is_integer(value))
        return json_integer_value(value);
    return json_is_string(value) ? strtoll(json_string_value(value), NULL, 10) : 0;
}
