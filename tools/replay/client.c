/* replay_client: there is one struct exchange per open request. When it ends, it is kept on a free
 * list with its curl handle and its buffers. A timerfd among libcurl's descriptors wakes the loop
 * when the next request is due, because libcurl's own timeouts are whole milliseconds. */
#include "tools/replay/client.h"

#include "common/clock.h"
#include "common/json.h"
#include "common/text.h"
#include "tools/replay/sse.h"

#include <curl/curl.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define ANSWER_BYTES_MAX  (1u << 20)
#define ERROR_BODY_BYTES  2048
#define ASK_TIMEOUT_S     10L
#define CONNECT_TIMEOUT_S 10L
/* By default libcurl keeps four times the open connections and closes the others. */
#define CONNECTIONS_KEPT 4096L
#define POLL_MS_MAX      1000

struct exchange {
    struct replay_client *client;
    CURL *easy;
    char *body;
    struct replay_sse sse;
    struct replay_result result;
    bool seen_done;
    char error_body[ERROR_BODY_BYTES]; /* Begin of an answer with a status other than 200. */
    size_t error_size;
    /* Links in the list of open exchanges; `next` also in the free list. */
    struct exchange *next, *previous;
};

struct replay_client {
    struct replay_client_options options;
    char *completions_url;
    struct curl_slist *headers;
    CURLM *multi;
    int timer_fd;
    struct exchange *open;
    struct exchange *free;
    uint32_t open_count;
    uint64_t token_count;
};

const char *replay_failure_name(enum replay_failure failure)
{
    static const char *const names[REPLAY_FAILURE_COUNT] = {
        "done",      "no connection", "http status", "error event", "bad event",
        "cut short", "no tokens",     "timed out",   "interrupted",
    };
    return names[failure];
}

/* Records a failure. Only a request's first failure counts, because later ones are consequences.
 * The text can be anything that a server sent; it is turned into one line of plain ASCII. */
static void result_fail(struct replay_result *result, enum replay_failure failure, const char *text)
{
    if (result->failure != REPLAY_DONE)
        return;
    result->failure = failure;
    snprintf(result->message, sizeof(result->message), "%.*s", REPLAY_MESSAGE_BYTES - 1, text);
    for (char *at = result->message; *at != 0; at++)
        if (*at < ' ' || *at > '~')
            *at = '?';
}

/* Returns the message of an error body: {"error":{"message":…}}, {"error":"…"} or {"message":…};
 * else `otherwise`. */
static const char *error_message(json_t *root, const char *otherwise)
{
    json_t *error = json_object_get(root, "error");
    json_t *message = json_object_get(json_is_object(error) ? error : root, "message");
    if (json_is_string(message))
        return json_string_value(message);
    return json_is_string(error) ? json_string_value(error) : otherwise;
}

static void token_arrived(struct exchange *exchange, bool only_finish)
{
    struct replay_result *result = &exchange->result;
    int64_t now = clock_now_us(&clock_system);
    if (result->first_token_us == 0) {
        result->first_token_us = now;
    } else {
        if (only_finish) /* The event has the finish reason but no token. */
            return;
        int64_t gap = now - result->last_token_us;
        if (result->token_events == 1)
            result->second_token_us = now;
        if (gap > result->gap_us_max)
            result->gap_us_max = gap;
        exchange->client->options.on_gap(exchange->client->options.self, gap);
    }
    result->last_token_us = now;
    result->token_events++;
    exchange->client->token_count++;
}

static void choice_read(struct exchange *exchange, json_t *choice)
{
    json_t *delta = json_object_get(choice, "delta");
    json_t *text =
        json_is_object(delta) ? json_object_get(delta, "content") : json_object_get(choice, "text");
    bool finished = json_is_string(json_object_get(choice, "finish_reason"));
    if (json_object_get(delta, "role") != NULL && json_string_length(text) == 0 && !finished)
        return; /* The event has only the role, before the first token; vLLM sends it at once. */
    token_arrived(exchange, finished && json_string_length(text) == 0);
}

static void usage_read(struct replay_result *result, json_t *usage)
{
    json_t *prompt = json_object_get(usage, "prompt_tokens");
    json_t *completion = json_object_get(usage, "completion_tokens");
    if (!json_is_integer(prompt) || !json_is_integer(completion))
        return;
    result->has_usage = true;
    result->prompt_tokens = (uint32_t)json_integer_value(prompt);
    result->completion_tokens = (uint32_t)json_integer_value(completion);
}

/* Reads one event of the stream. False: end the transfer. */
static bool event_read(void *self, const char *data, size_t size)
{
    struct exchange *exchange = self;
    if (strcmp(data, "[DONE]") == 0) {
        exchange->seen_done = true;
        return true;
    }
    json_error_t why;
    json_t *root;
    enum status status = json_text_load(data, size, 0, &root, &why);
    if (!json_is_object(root)) {
        json_decref(root);
        result_fail(&exchange->result, REPLAY_BAD_EVENT,
                    status == ST_NO_MEMORY ? "no memory for an event" : data);
        return false;
    }
    json_t *error = json_object_get(root, "error");
    if (error != NULL && !json_is_null(error))
        result_fail(&exchange->result, REPLAY_ERROR_EVENT, error_message(root, data));
    json_t *choices = json_object_get(root, "choices");
    if (json_array_size(choices) > 0)
        choice_read(exchange, json_array_get(choices, 0));
    usage_read(&exchange->result, json_object_get(root, "usage"));
    json_decref(root);
    return true;
}

static size_t body_arrived(char *bytes, size_t one, size_t size, void *self)
{
    struct exchange *exchange = self;
    long http_status = 0;
    (void)one; /* Always 1. */
    curl_easy_getinfo(exchange->easy, CURLINFO_RESPONSE_CODE, &http_status);
    if (http_status != 200) {
        size_t room = sizeof(exchange->error_body) - 1 - exchange->error_size;
        size_t kept = size < room ? size : room;
        memcpy(exchange->error_body + exchange->error_size, bytes, kept);
        exchange->error_size += kept;
        return size;
    }
    enum status status = replay_sse_feed(&exchange->sse, bytes, size);
    if (status == ST_OK)
        return size;
    result_fail(&exchange->result, REPLAY_BAD_EVENT,
                status == ST_NO_MEMORY ? "no memory for an event"
                                       : "an event over the limit of 1 MiB");
    return 0; /* Makes libcurl end the transfer. */
}

static size_t answer_arrived(char *bytes, size_t one, size_t size, void *self)
{
    struct text *answer = self;
    (void)one; /* Always 1. */
    if (size > ANSWER_BYTES_MAX - answer->bytes)
        return 0;
    text_add(answer, bytes, size);
    return answer->broken ? 0 : size;
}

static void http_failed(struct exchange *exchange)
{
    exchange->error_body[exchange->error_size] = 0;
    json_error_t why; /* error_message shows a body that is not JSON as it is. */
    json_t *root;
    json_text_load(exchange->error_body, exchange->error_size, 0, &root, &why);
    result_fail(&exchange->result, REPLAY_HTTP_STATUS, error_message(root, exchange->error_body));
    json_decref(root);
}

/* Sets the result at the end of a transfer. */
static void exchange_judge(struct exchange *exchange, CURLcode code)
{
    struct replay_result *result = &exchange->result;
    long http_status = 0;
    curl_easy_getinfo(exchange->easy, CURLINFO_RESPONSE_CODE, &http_status);
    result->http_status = (int)http_status;
    if (code == CURLE_OPERATION_TIMEDOUT)
        result_fail(result, REPLAY_TIMED_OUT, "the stream did not end in time");
    else if (http_status == 0)
        result_fail(result, REPLAY_NO_CONNECTION, curl_easy_strerror(code));
    else if (http_status != 200)
        http_failed(exchange);
    if (code == CURLE_OK)
        replay_sse_finish(&exchange->sse);
    if (!exchange->seen_done)
        result_fail(result, REPLAY_CUT,
                    code != CURLE_OK ? curl_easy_strerror(code)
                                     : "the stream ended without [DONE]");
    if (result->first_token_us == 0)
        result_fail(result, REPLAY_NO_TOKENS, "the stream had no token");
}

static void exchange_close(struct exchange *exchange)
{
    if (exchange == NULL)
        return;
    curl_easy_cleanup(exchange->easy);
    replay_sse_done(&exchange->sse);
    free(exchange->body);
    free(exchange);
}

/* Reports the result and puts the exchange on the free list. */
static void exchange_end(struct exchange *exchange)
{
    struct replay_client *client = exchange->client;
    curl_multi_remove_handle(client->multi, exchange->easy);
    exchange->result.end_us = clock_now_us(&clock_system);
    client->options.on_result(client->options.self, &exchange->result);

    if (exchange->previous != NULL)
        exchange->previous->next = exchange->next;
    else
        client->open = exchange->next;
    if (exchange->next != NULL)
        exchange->next->previous = exchange->previous;
    client->open_count--;
    free(exchange->body);
    exchange->body = NULL;
    exchange->next = client->free;
    client->free = exchange;
}

static void easy_set_up(CURL *easy, const struct replay_client *client)
{
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, client->headers);
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT, CONNECT_TIMEOUT_S);
}

/* Takes an exchange from the free list, or makes one. NULL: out of memory. */
static struct exchange *exchange_take(struct replay_client *client)
{
    struct exchange *exchange = client->free;
    if (exchange != NULL) {
        client->free = exchange->next;
        return exchange;
    }
    exchange = calloc(1, sizeof(*exchange));
    if (exchange == NULL)
        return NULL;
    exchange->client = client;
    exchange->easy = curl_easy_init();
    if (exchange->easy == NULL) {
        free(exchange);
        return NULL;
    }
    easy_set_up(exchange->easy, client);
    curl_easy_setopt(exchange->easy, CURLOPT_URL, client->completions_url);
    curl_easy_setopt(exchange->easy, CURLOPT_TIMEOUT_MS, (long)(client->options.timeout_s * 1000));
    curl_easy_setopt(exchange->easy, CURLOPT_WRITEFUNCTION, body_arrived);
    curl_easy_setopt(exchange->easy, CURLOPT_WRITEDATA, exchange);
    curl_easy_setopt(exchange->easy, CURLOPT_PRIVATE, exchange);
    replay_sse_init(&exchange->sse, event_read, exchange);
    return exchange;
}

enum status replay_client_send(struct replay_client *client, const struct replay_request *request,
                               int64_t due_us, char *body, size_t body_size)
{
    struct exchange *exchange = exchange_take(client);
    if (exchange == NULL) {
        free(body);
        return ST_NO_MEMORY;
    }
    exchange->body = body;
    exchange->seen_done = false;
    exchange->error_size = 0;
    replay_sse_reset(&exchange->sse);
    exchange->result = (struct replay_result){
        .id = request->id,
        .line = request->line,
        .after_us = request->after_us,
        .due_us = due_us,
        .sent_us = clock_now_us(&clock_system),
        .wanted_prompt_tokens = request->prompt_tokens,
        .wanted_completion_tokens = request->output_tokens,
    };
    curl_easy_setopt(exchange->easy, CURLOPT_POSTFIELDS, body);
    curl_easy_setopt(exchange->easy, CURLOPT_POSTFIELDSIZE, (long)body_size);
    if (curl_multi_add_handle(client->multi, exchange->easy) != CURLM_OK) {
        free(body);
        exchange->body = NULL;
        exchange->next = client->free;
        client->free = exchange;
        return ST_NO_MEMORY;
    }

    exchange->previous = NULL;
    exchange->next = client->open;
    if (client->open != NULL)
        client->open->previous = exchange;
    client->open = exchange;
    client->open_count++;
    int running;
    curl_multi_perform(client->multi, &running); /* Send now, not in the next iteration. */
    return ST_OK;
}

/* Returns whether a request has ended. */
static bool transfers_collect(struct replay_client *client)
{
    CURLMsg *message;
    bool any = false;
    int left;
    while ((message = curl_multi_info_read(client->multi, &left)) != NULL) {
        char *private = NULL;
        if (message->msg != CURLMSG_DONE)
            continue;
        CURLcode code = message->data.result;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &private);
        struct exchange *exchange = (struct exchange *)private;
        exchange_judge(exchange, code);
        exchange_end(exchange);
        any = true;
    }
    return any;
}

static enum status multi_status(CURLMcode code)
{
    return code == CURLM_OK ? ST_OK : code == CURLM_OUT_OF_MEMORY ? ST_NO_MEMORY : ST_IO;
}

enum status replay_client_turn(struct replay_client *client, int64_t until_us)
{
    int running;
    CURLMcode code = curl_multi_perform(client->multi, &running);
    if (code != CURLM_OK)
        return multi_status(code);
    if (transfers_collect(client) || clock_now_us(&clock_system) >= until_us)
        return ST_OK; /* The caller may have nothing more to wait for. */

    struct itimerspec at = {
        .it_value = {.tv_sec = until_us / 1000000, .tv_nsec = until_us % 1000000 * 1000}};
    if (timerfd_settime(client->timer_fd, TFD_TIMER_ABSTIME, &at, NULL) != 0)
        return ST_IO;
    struct curl_waitfd timer = {.fd = client->timer_fd, .events = CURL_WAIT_POLLIN};
    /* libcurl returns CURLM_OK for a signal. */
    return multi_status(curl_multi_poll(client->multi, &timer, 1, POLL_MS_MAX, NULL));
}

void replay_client_interrupt(struct replay_client *client)
{
    while (client->open != NULL) {
        struct exchange *exchange = client->open;
        result_fail(&exchange->result, REPLAY_INTERRUPTED, "stopped by the user");
        exchange_end(exchange);
    }
}

enum status replay_client_ask(struct replay_client *client, const char *path, const char *body,
                              json_t **answer_out, struct error *error)
{
    char url[1024];
    struct text answer = {0};
    long http_status = 0;
    if (snprintf(url, sizeof(url), "%s%s", client->options.url, path) >= (int)sizeof(url))
        return error_set(error, ST_TOO_LARGE, "%.60s…: the URL is too long", client->options.url);
    CURL *easy = curl_easy_init();
    if (easy == NULL)
        return error_set(error, ST_NO_MEMORY, "%s: out of memory", url);
    easy_set_up(easy, client);
    curl_easy_setopt(easy, CURLOPT_URL, url);
    curl_easy_setopt(easy, CURLOPT_TIMEOUT, ASK_TIMEOUT_S);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, answer_arrived);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, &answer);
    if (body != NULL)
        curl_easy_setopt(easy, CURLOPT_POSTFIELDS, body);
    CURLcode code = curl_easy_perform(easy);
    curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &http_status);
    curl_easy_cleanup(easy);

    const bool empty = answer.bytes == 0;
    const bool good = code == CURLE_OK && http_status == 200 && !empty && !answer.broken;
    json_error_t why;
    json_t *root = NULL;
    const bool short_of_memory =
        answer.broken || code == CURLE_OUT_OF_MEMORY ||
        (good && json_text_load(answer.data, answer.bytes, 0, &root, &why) == ST_NO_MEMORY);
    text_done(&answer);
    if (short_of_memory)
        return error_set(error, ST_NO_MEMORY, "%s: out of memory", url);
    if (good) {
        *answer_out = root;
        return ST_OK;
    }
    if (code != CURLE_OK)
        return error_set(error, ST_UNREACHABLE, "%s: %s", url, curl_easy_strerror(code));
    if (http_status == 200 && empty)
        return error_set(error, ST_IO, "%s: the answer is empty", url);
    enum status status = http_status == 404 || http_status == 405   ? ST_NOT_FOUND
                         : http_status == 429 || http_status == 503 ? ST_NO_RESOURCE
                                                                    : ST_IO;
    return error_set(error, status, "%s: HTTP %ld, want 200", url, http_status);
}

static enum status headers_open(struct replay_client *client)
{
    char *line; /* API keys can have any length. */
    struct curl_slist *more = curl_slist_append(NULL, "Content-Type: application/json");
    if (more == NULL)
        return ST_NO_MEMORY;
    client->headers = more;
    /* Do not wait for 100-continue before a large body. */
    more = curl_slist_append(client->headers, "Expect:");
    if (more == NULL)
        return ST_NO_MEMORY;
    if (client->options.api_key == NULL)
        return ST_OK;
    if (asprintf(&line, "Authorization: Bearer %s", client->options.api_key) < 0)
        return ST_NO_MEMORY;
    more = curl_slist_append(client->headers, line);
    free(line);
    return more != NULL ? ST_OK : ST_NO_MEMORY;
}

enum status replay_client_open(const struct replay_client_options *options,
                               struct replay_client **client_out, struct error *error)
{
    enum status status = error_set(error, ST_NO_MEMORY, "out of memory");
    struct replay_client *client = calloc(1, sizeof(*client));
    if (client == NULL)
        return status;
    client->options = *options;
    client->timer_fd = -1;
    if (asprintf(&client->completions_url, "%s/v1/%scompletions", options->url,
                 options->chat ? "chat/" : "") < 0) {
        client->completions_url = NULL;
        goto undo_client;
    }
    client->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (client->timer_fd < 0) {
        status = error_set(error, ST_IO, "timerfd: %s", strerror(errno));
        goto undo_client;
    }
    status = error_set(error, ST_NO_MEMORY, "out of memory");
    if (headers_open(client) != ST_OK)
        goto undo_client;
    client->multi = curl_multi_init();
    if (client->multi == NULL)
        goto undo_client;
    curl_multi_setopt(client->multi, CURLMOPT_MAXCONNECTS, CONNECTIONS_KEPT);
    *client_out = client;
    return ST_OK;

undo_client:
    replay_client_close(client);
    return status;
}

void replay_client_close(struct replay_client *client)
{
    if (client == NULL)
        return;
    struct exchange *lists[] = {client->open, client->free};
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        for (struct exchange *exchange = lists[i], *next; exchange != NULL; exchange = next) {
            next = exchange->next;
            if (lists[i] == client->open)
                curl_multi_remove_handle(client->multi, exchange->easy);
            exchange_close(exchange);
        }
    }
    if (client->multi != NULL)
        curl_multi_cleanup(client->multi);
    curl_slist_free_all(client->headers);
    if (client->timer_fd >= 0)
        close(client->timer_fd);
    free(client->completions_url);
    free(client);
}

uint32_t replay_client_open_count(const struct replay_client *client)
{
    return client->open_count;
}

uint64_t replay_client_token_count(const struct replay_client *client)
{
    return client->token_count;
}
