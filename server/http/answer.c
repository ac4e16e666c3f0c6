/* http_answer: responses. libmicrohttpd copies small responses. It reads large responses and
 * streams from the exchange piece by piece, so that bytes that a client has not read are counted
 * and can be freed. */
#include "server/http/internal.h"

#include "common/log.h"

#include <stdio.h>
#include <string.h>

#define PIECE_BYTES 16384
/* A stream's connection is closed when more bytes than this are unread. A large burst that was
 * written in one iteration of the event loop, such as the scores of a long prompt, does not count,
 * because no client could have read it in between. */
#define BACKLOG_BYTES_MAX (1u << 20)
#define BURST_BYTES_MIN   65536

static void number_add(struct MHD_Response *response, const char *name, uint64_t value)
{
    char text[24];
    snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
    MHD_add_response_header(response, name, text);
}

static void reset_add(struct MHD_Response *response, const char *name, uint64_t us)
{
    char seconds[32];
    snprintf(seconds, sizeof(seconds), "%.3fs", (double)us / 1e6);
    MHD_add_response_header(response, name, seconds);
}

/* Adds what is left of the key's limits, with the names that OpenAI uses. "Requests" are those of a
 * minute; for a key without that limit, answers in flight. */
static void limits_add(const struct exchange *x, struct MHD_Response *response)
{
    struct api_key_unused left;
    if (x->key_revoked || !api_keys_unused(x->http->options.keys, x->api_key_index,
                                           clock_now_us(x->http->options.clock), &left))
        return;
    if (left.requests_max > 0) {
        number_add(response, "x-ratelimit-limit-requests", left.requests_max);
        number_add(response, "x-ratelimit-remaining-requests", left.requests_left);
        reset_add(response, "x-ratelimit-reset-requests", left.requests_full_us);
    } else if (left.answers_max > 0) {
        number_add(response, "x-ratelimit-limit-requests", left.answers_max);
        number_add(response, "x-ratelimit-remaining-requests", left.answers_left);
    }
    if (left.tokens_max > 0) {
        number_add(response, "x-ratelimit-limit-tokens", left.tokens_max);
        number_add(response, "x-ratelimit-remaining-tokens", left.tokens_left);
        reset_add(response, "x-ratelimit-reset-tokens", left.tokens_full_us);
    }
}

enum MHD_Result http_answer_response(struct exchange *x, unsigned code,
                                     struct MHD_Response *response)
{
    MHD_add_response_header(response, "x-request-id", x->request_id);
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    if (x->route != NULL && x->route->access == HTTP_KEY)
        limits_add(x, response);
    http_web_headers_add(x, response);
    if (x->http->draining || x->closes_connection)
        MHD_add_response_header(response, "Connection", "close");
    x->status_code = code;
    http_audit_write(x, code);
    http_exchange_enter(x, HTTP_CLIENT_ANSWERING);
    enum MHD_Result result = MHD_queue_response(x->connection, code, response);
    MHD_destroy_response(response);
    return result;
}

void http_unread_count(struct exchange *x)
{
    size_t bytes = 0;
    if (x->completion != NULL)
        completion_output(x->completion, &bytes);
    bytes += x->answer.bytes;
    x->http->unread_bytes += bytes - x->unread_bytes; /* modulo 2^64 */
    x->unread_bytes = bytes;
}

void http_unread_drop(struct exchange *x)
{
    text_done(&x->answer);
    http_unread_count(x);
}

/* Counts the previous piece, which the client has read. The client now gets a piece of next_bytes
 * bytes. */
static void piece_taken(struct exchange *x, size_t next_bytes)
{
    if (x->client != NULL)
        http_client_bytes_add(x->client, x->piece_bytes, x->http->now_us);
    x->piece_bytes = next_bytes;
}

/* Callback of libmicrohttpd: gives it the next bytes of x->answer. */
static ssize_t answer_read(void *self, uint64_t position, char *buffer, size_t capacity)
{
    struct exchange *x = self;
    if (x->client_gone || position >= x->answer.bytes)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    size_t bytes = x->answer.bytes - (size_t)position;
    bytes = bytes < capacity ? bytes : capacity;
    memcpy(buffer, x->answer.data + position, bytes);
    piece_taken(x, bytes);
    return (ssize_t)bytes;
}

/* Queues a whole response from a text, which is emptied. */
static enum MHD_Result answer_text(struct exchange *x, unsigned code, const char *content_type,
                                   struct text *body)
{
    struct MHD_Response *response = NULL;
    if (body->broken) {
        text_done(body);
        return MHD_NO;
    }
    if (body->bytes <= PIECE_BYTES) {
        response = MHD_create_response_from_buffer(body->bytes, body->data, MHD_RESPMEM_MUST_COPY);
        text_done(body);
    } else {
        x->answer = *body;
        *body = (struct text){0};
        http_unread_count(x);
        response =
            MHD_create_response_from_callback(x->answer.bytes, PIECE_BYTES, answer_read, x, NULL);
    }
    if (response == NULL)
        return MHD_NO;
    MHD_add_response_header(response, "Content-Type", content_type);
    return http_answer_response(x, code, response);
}

enum MHD_Result http_answer(struct exchange *x, unsigned code, const char *content_type,
                            const char *body, size_t bytes)
{
    struct text copy = {0};
    text_add(&copy, body, bytes);
    return answer_text(x, code, content_type, &copy);
}

enum MHD_Result http_answer_json(struct exchange *x, unsigned code, struct text *body)
{
    return answer_text(x, code, "application/json", body);
}

/* Returns true if errors have the form of Anthropic's API. */
static bool is_anthropic(const struct exchange *x)
{
    static const char path[] = "/v1/messages";
    return x->route != NULL && strncmp(x->route->path, path, sizeof(path) - 1) == 0;
}

enum MHD_Result http_answer_error(struct exchange *x, const struct api_error *error)
{
    struct text body = {0};
    snprintf(x->error_text, sizeof(x->error_text), "%.127s", error->message);
    if (is_anthropic(x))
        api_error_write_anthropic(error, x->request_id, &body);
    else
        api_error_write(error, &body);
    text_string_add(&body, "\n");
    struct MHD_Response *response =
        body.broken ? NULL
                    : MHD_create_response_from_buffer(body.bytes, body.data, MHD_RESPMEM_MUST_COPY);
    text_done(&body);
    if (response == NULL)
        return MHD_NO;
    MHD_add_response_header(response, "Content-Type", "application/json");
    if (error->final)
        MHD_add_response_header(response, "x-should-retry", "false");
    if (error->retry_after_s > 0) {
        char seconds[16];
        snprintf(seconds, sizeof(seconds), "%u", error->retry_after_s);
        MHD_add_response_header(response, "Retry-After", seconds);
    }
    if (error->status == 405 && x->route != NULL)
        MHD_add_response_header(response, "Allow", x->route->allow);
    if (error->status == 401)
        MHD_add_response_header(response, "WWW-Authenticate", "Bearer");
    if (error->status == 413 || error->status == 401 || error->status == 403)
        MHD_add_response_header(response, "Connection", "close");
    return http_answer_response(x, error->status, response);
}

enum MHD_Result http_answer_preflight(struct exchange *x)
{
    static char nothing[1];
    struct MHD_Response *response =
        MHD_create_response_from_buffer(0, nothing, MHD_RESPMEM_PERSISTENT);
    if (response == NULL)
        return MHD_NO;
    http_web_answer_add(x, response);
    return http_answer_response(x, 204, response);
}

/* Callback of libmicrohttpd: gives it the next bytes of a stream. */
static ssize_t stream_read(void *self, uint64_t position, char *buffer, size_t capacity)
{
    (void)position;
    struct exchange *x = self;
    if (x->client_gone || x->completion == NULL)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    size_t bytes = 0;
    const char *data = completion_output(x->completion, &bytes);
    if (bytes > 0) {
        bytes = bytes < capacity ? bytes : capacity;
        memcpy(buffer, data, bytes);
        completion_output_remove(x->completion, bytes);
        http_unread_count(x);
        piece_taken(x, bytes);
        return (ssize_t)bytes;
    }
    if (completion_finished(x->completion))
        return MHD_CONTENT_READER_END_OF_STREAM;
    piece_taken(x, 0);
    http_exchange_suspend(x);
    return 0;
}

static enum MHD_Result answer_stream(struct exchange *x)
{
    struct MHD_Response *response =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, PIECE_BYTES, stream_read, x, NULL);
    if (response == NULL)
        return MHD_NO;
    MHD_add_response_header(response, "Content-Type", "text/event-stream");
    MHD_add_response_header(response, "Cache-Control", "no-cache");
    MHD_add_response_header(response, "X-Accel-Buffering",
                            "no"); /* proxies forward events at once */
    return http_answer_response(x, 200, response);
}

enum MHD_Result http_answer_begun(struct exchange *x)
{
    const struct api_error *error = completion_error(x->completion);
    if (error != NULL)
        return http_answer_error(x, error);
    if (completion_is_stream(x->completion))
        return answer_stream(x);
    struct text body = completion_body_take(x->completion);
    completion_close(x->completion);
    x->completion = NULL;
    http_unread_count(x);
    return http_answer_json(x, 200, &body);
}

/* --- clients that do not read --- */

void http_answer_backlog_check(struct exchange *x)
{
    size_t unread = 0;
    completion_output(x->completion, &unread);
    uint64_t written = completion_output_bytes(x->completion);
    if (written - x->backlog_checked_bytes > BURST_BYTES_MIN)
        x->burst_end_bytes = written;
    x->backlog_checked_bytes = written;
    uint64_t later = written > x->burst_end_bytes ? written - x->burst_end_bytes : 0;
    if ((unread < later ? unread : later) > BACKLOG_BYTES_MAX && x->client != NULL)
        http_client_close(x->client, "it reads its stream too slowly");
}

void http_answers_check(struct http *h)
{
    struct http_client *client;
    uint64_t max = h->options.config->http.answers_bytes_max;
    while (h->unread_bytes > max && (client = http_clients_stalled(h->clients)) != NULL) {
        const struct exchange *x = http_client_request(client);
        if (x != NULL && x->unread_bytes == h->unread_bytes)
            return; /* One answer may always exceed the limit. */
        http_client_close(client, "answers that are not read take too much memory");
    }
}
