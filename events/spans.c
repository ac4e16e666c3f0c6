/* spans: see the header. Two texts: the loop fills one while the thread sends the other. */
#include "events/spans.h"

#include "common/limits.h"
#include "common/text.h"

#include <curl/curl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BUFFER_BYTES (1u << 20)
#define GATHER_S     1
#define CLOSE_S      1
#define SEND_MS      10000 /* Time limit of one POST. */

static const char before[] = "{\"resourceSpans\":[{\"resource\":{\"attributes\":[{\"key\":"
                             "\"service.name\",\"value\":{\"stringValue\":\"cleave\"}}]},"
                             "\"scopeSpans\":[{\"scope\":{\"name\":\"cleave\"},\"spans\":[";
static const char after[] = "]}]}]}";

struct spans {
    char endpoint[LIMIT_PATH_BYTES];
    pthread_t thread;
    CURL *curl; /* Thread only. */
    struct curl_slist *headers;
    struct text sending;   /* Thread only. */
    pthread_mutex_t mutex; /* Guards everything below. */
    pthread_cond_t changed;
    pthread_cond_t ended;
    bool closing;
    bool has_ended;
    struct text filling;
    uint32_t filled; /* Spans in `filling`. */
    struct spans_counts counts;
};

/* ---- on the thread ---- */

static size_t on_answer(char *data, size_t size, size_t count, void *self)
{
    (void)data;
    (void)self; /* The status says enough. */
    return size * count;
}

/* Posts the body. Returns false with the reason in `why`. */
static bool post(struct spans *s, const struct text *body, char why[160])
{
    long status = 0;
    curl_easy_setopt(s->curl, CURLOPT_URL, s->endpoint);
    curl_easy_setopt(s->curl, CURLOPT_HTTPHEADER, s->headers);
    curl_easy_setopt(s->curl, CURLOPT_POSTFIELDS, body->data);
    curl_easy_setopt(s->curl, CURLOPT_POSTFIELDSIZE, (long)body->bytes);
    curl_easy_setopt(s->curl, CURLOPT_WRITEFUNCTION, on_answer);
    curl_easy_setopt(s->curl, CURLOPT_TIMEOUT_MS, (long)SEND_MS);
    curl_easy_setopt(s->curl, CURLOPT_NOSIGNAL, 1L);
    CURLcode code = curl_easy_perform(s->curl);
    curl_easy_getinfo(s->curl, CURLINFO_RESPONSE_CODE, &status);
    if (code == CURLE_OK && status / 100 == 2)
        return true;
    if (code != CURLE_OK)
        snprintf(why, 160, "%s", curl_easy_strerror(code));
    else
        snprintf(why, 160, "HTTP %ld", status);
    return false;
}

/* Counts spans that are not sent. The caller holds the mutex. */
static void drop(struct spans *s, uint32_t count, const char *why)
{
    s->counts.dropped += count;
    snprintf(s->counts.drop_reason, sizeof(s->counts.drop_reason), "%s", why);
}

/* Sends the gathered spans. The mutex is held before and after the call. */
static void batch_send(struct spans *s)
{
    char why[160] = "out of memory";
    uint32_t count = s->filled;
    text_clear(&s->sending);
    text_string_add(&s->sending, before);
    text_add(&s->sending, s->filling.data, s->filling.bytes);
    text_string_add(&s->sending, after);
    text_clear(&s->filling);
    s->filled = 0;
    pthread_mutex_unlock(&s->mutex);
    bool good = !s->sending.broken && post(s, &s->sending, why);
    pthread_mutex_lock(&s->mutex);
    s->counts.sent += good ? count : 0;
    if (!good)
        drop(s, count, why);
    if (s->sending.broken)
        text_done(&s->sending); /* A new text is not broken. */
}

static void *run(void *self)
{
    struct spans *s = self;
    struct timespec until;
    pthread_mutex_lock(&s->mutex);
    while (!s->closing || s->filled > 0) {
        if (s->filled == 0) {
            pthread_cond_wait(&s->changed, &s->mutex);
            continue;
        }
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += GATHER_S;
        while (!s->closing && s->filling.bytes < BUFFER_BYTES / 2 &&
               pthread_cond_timedwait(&s->changed, &s->mutex, &until) == 0) {
        }
        batch_send(s);
    }
    s->has_ended = true;
    pthread_cond_signal(&s->ended);
    pthread_mutex_unlock(&s->mutex);
    return NULL;
}

/* ---- on the loop ---- */

static void spans_free(struct spans *s)
{
    if (s->curl != NULL)
        curl_easy_cleanup(s->curl);
    curl_slist_free_all(s->headers);
    text_done(&s->sending);
    text_done(&s->filling);
    free(s);
}

static bool thread_start(struct spans *s)
{
    sigset_t all, mask;
    sigfillset(&all); /* Signals are for the loop thread. */
    pthread_sigmask(SIG_SETMASK, &all, &mask);
    int failed = pthread_create(&s->thread, NULL, run, s);
    pthread_sigmask(SIG_SETMASK, &mask, NULL);
    return failed == 0;
}

enum status spans_open(const char *endpoint, struct spans **out, struct error *error)
{
    pthread_condattr_t monotonic;
    bool is_http = strncmp(endpoint, "http://", 7) == 0 || strncmp(endpoint, "https://", 8) == 0;
    if (!is_http || strlen(endpoint) >= LIMIT_PATH_BYTES)
        return error_set(error, ST_INVALID,
                         "log/otlp_endpoint = \"%.60s\": want http://HOST:PORT/v1/traces",
                         endpoint);
    if (curl_global_init(CURL_GLOBAL_ALL) != CURLE_OK)
        return error_set(error, ST_UNSUPPORTED,
                         "log/otlp_endpoint: libcurl.so.4 (or libcurl-gnutls.so.4) is wanted");
    struct spans *s = calloc(1, sizeof(*s));
    if (s == NULL)
        return error_set(error, ST_NO_MEMORY, "log/otlp_endpoint: out of memory");
    snprintf(s->endpoint, sizeof(s->endpoint), "%s", endpoint);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&s->mutex, NULL);
    pthread_cond_init(&s->changed, &monotonic);
    pthread_cond_init(&s->ended, &monotonic);
    pthread_condattr_destroy(&monotonic);
    s->curl = curl_easy_init();
    s->headers = curl_slist_append(NULL, "Content-Type: application/json");
    if (s->curl == NULL || s->headers == NULL || !thread_start(s)) {
        spans_free(s);
        return error_set(error, ST_NO_MEMORY, "log/otlp_endpoint: out of memory");
    }
    *out = s;
    return ST_OK;
}

void spans_close(struct spans *s)
{
    struct timespec until;
    if (s == NULL)
        return;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += CLOSE_S;
    pthread_mutex_lock(&s->mutex);
    s->closing = true;
    pthread_cond_signal(&s->changed);
    int failed = 0;
    while (!s->has_ended && failed == 0)
        failed = pthread_cond_timedwait(&s->ended, &s->mutex, &until);
    bool ended = s->has_ended;
    pthread_mutex_unlock(&s->mutex);
    if (!ended) { /* The collector hangs, so the memory stays: the thread may still use it. */
        pthread_detach(s->thread);
        return;
    }
    pthread_join(s->thread, NULL);
    spans_free(s);
}

void spans_add(struct spans *s, const char *json, size_t json_bytes, uint32_t span_count)
{
    pthread_mutex_lock(&s->mutex);
    size_t bytes = s->filling.bytes;
    if (bytes + json_bytes + 1 > BUFFER_BYTES) {
        drop(s, span_count, "the collector takes spans too slowly");
    } else {
        text_string_add(&s->filling, s->filled > 0 ? "," : "");
        text_add(&s->filling, json, json_bytes);
        s->filled += s->filling.broken ? 0 : span_count;
    }
    if (s->filling.broken) {
        drop(s, span_count, "out of memory");
        s->filling.bytes = bytes; /* The earlier spans stay. */
        s->filling.broken = false;
    }
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->mutex);
}

struct spans_counts spans_counts(struct spans *s)
{
    pthread_mutex_lock(&s->mutex);
    struct spans_counts counts = s->counts;
    pthread_mutex_unlock(&s->mutex);
    return counts;
}
