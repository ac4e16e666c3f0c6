/* replay_client: sends completion requests over HTTP/1.1 (libcurl, one thread, hundreds of streams
 * at a time), reads each event stream, and stamps what it sees. It decides nothing: when to send is
 * the caller's, and every request ends in exactly one call of on_result. Not thread-safe.
 *
 * A request is counted as failed when: no connection, no HTTP 200, an event that is not JSON or
 * carries an error, no token at all, a stream that ends without `data: [DONE]`, or its time is up.
 */
#ifndef BENCH_REPLAY_CLIENT_H
#define BENCH_REPLAY_CLIENT_H

#include "bench/replay_prompt.h"
#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REPLAY_MESSAGE_BYTES 192

enum replay_failure {
    REPLAY_DONE,
    REPLAY_NO_CONNECTION,
    REPLAY_HTTP_STATUS, /* http_status says which */
    REPLAY_ERROR_EVENT, /* the server failed in mid-stream and said so */
    REPLAY_BAD_EVENT,   /* not JSON, or not of the API's form */
    REPLAY_CUT,         /* the connection ended before [DONE] */
    REPLAY_NO_TOKENS,   /* [DONE] without a token */
    REPLAY_TIMED_OUT,
    REPLAY_INTERRUPTED, /* by our own user: not the server's fault */
    REPLAY_FAILURE_COUNT,
};

/* A few words, such as "timed out". */
const char *replay_failure_name(enum replay_failure failure);

struct replay_result {
    uint64_t id;      /* of the trace's row */
    uint64_t line;    /* where it stands */
    int64_t after_us; /* when it was due, from the beginning of the replay */
    int64_t due_us;   /* every time: the caller's clock (clock_system) */
    int64_t sent_us;
    int64_t first_token_us; /* 0: there was none */
    int64_t last_token_us;
    int64_t end_us;
    uint32_t wanted_prompt_tokens;
    uint32_t wanted_completion_tokens;
    uint32_t prompt_tokens; /* by the server's usage */
    uint32_t completion_tokens;
    uint32_t token_events; /* a server may put several tokens into one */
    int64_t gap_us_max;
    bool has_usage;
    enum replay_failure failure;
    int http_status;
    char message[REPLAY_MESSAGE_BYTES]; /* why it failed; empty when it did not */
};

struct replay_client_options {
    const char *url;     /* base, such as http://127.0.0.1:8080 */
    const char *api_key; /* NULL: none */
    bool chat;           /* requests go to /v1/chat/completions, else to /v1/completions */
    double timeout_s;    /* of one request, from when it is sent to its end */
    void (*on_result)(void *self, const struct replay_result *result);
    void (*on_gap)(void *self, int64_t gap_us); /* between two token events of one stream */
    void *self;
};

struct replay_client;

/* curl_global_init must have been called. */
enum status replay_client_open(const struct replay_client_options *options,
                               struct replay_client **client_out, struct error *error);

/* Open requests end without a call of on_result. NULL is fine. */
void replay_client_close(struct replay_client *client);

/* A GET (body NULL) or POST of JSON that waits for its answer, up to ten seconds. The text is freed
 * by the caller; error text names the URL. ST_NOT_FOUND: HTTP 404 or 405. */
enum status replay_client_ask(struct replay_client *client, const char *path, const char *body,
                              char **answer_out, struct error *error);

/* Sends now. The body becomes the client's (freed), whatever is returned. */
enum status replay_client_send(struct replay_client *client, const struct replay_ask *ask,
                               int64_t due_us, char *body, size_t body_size);

/* Works off what has arrived; returns at `until_us` at the latest (exactly then, if nothing happens
 * before), or earlier after some work or a signal. */
enum status replay_client_turn(struct replay_client *client, int64_t until_us);

/* Ends every open request as REPLAY_INTERRUPTED, each with its on_result. */
void replay_client_interrupt(struct replay_client *client);

uint32_t replay_client_open_count(const struct replay_client *client);
uint64_t replay_client_token_count(const struct replay_client *client); /* token events so far */

#endif
