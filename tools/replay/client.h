/* replay_client: sends completion requests over HTTP/1.1 with libcurl, reads the event streams, and
 * records times. The client owns the open requests. `cleave replay` and bench-streams call the
 * functions on their main threads. The caller decides when to send. The client does not retry a
 * request, and computes no statistics.
 *
 * A request is done if the status is HTTP 200, all events except [DONE] are JSON objects without an
 * error, at least one token arrives, [DONE] arrives, and the answer ends within timeout_s.
 * Otherwise the request fails (enum replay_failure). */
#ifndef TOOLS_REPLAY_CLIENT_H
#define TOOLS_REPLAY_CLIENT_H

#include "common/status.h"
#include "tools/replay/prompt.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REPLAY_MESSAGE_BYTES 192 /* A message with its NUL. */

enum replay_failure {
    REPLAY_DONE,          /* The request did not fail. */
    REPLAY_NO_CONNECTION, /* No connection, or the connection ended before a status arrived. */
    REPLAY_HTTP_STATUS,   /* A status other than 200 (http_status). */
    REPLAY_ERROR_EVENT,   /* The server sent an error event in the stream. */
    REPLAY_BAD_EVENT,     /* An event is not a JSON object or is above 1 MiB, or no memory. */
    REPLAY_CUT,           /* The answer ended before [DONE]. */
    REPLAY_NO_TOKENS,     /* [DONE] arrived, but no token. */
    REPLAY_TIMED_OUT,     /* No connection within ten seconds, or no end within timeout_s. */
    REPLAY_INTERRUPTED,   /* The user stopped the replay (replay_client_interrupt). */
    REPLAY_FAILURE_COUNT,
};

/* Returns a few words, such as "timed out"; REPLAY_DONE is "done". */
const char *replay_failure_name(enum replay_failure failure);

/* The outcome of one request. The times from due_us to end_us are by clock_system. */
struct replay_result {
    uint64_t id;                       /* Id of the trace's row. */
    uint64_t line;                     /* Line of the trace's row. */
    int64_t after_us;                  /* Due time, from the beginning of the replay. */
    int64_t due_us;                    /* When the request was due. */
    int64_t sent_us;                   /* When the request was sent. */
    int64_t first_token_us;            /* Arrival of the first token event; 0 = none. */
    int64_t second_token_us;           /* Arrival of the second token event; 0 = none. */
    int64_t last_token_us;             /* Arrival of the last token event; 0 = none. */
    int64_t end_us;                    /* When the answer ended, or the request failed. */
    uint32_t wanted_prompt_tokens;     /* Length of the prompt that was sent. */
    uint32_t wanted_completion_tokens; /* Length of the answer that was asked for. */
    uint32_t prompt_tokens;            /* Length of the prompt, from the server's usage. */
    uint32_t completion_tokens;        /* Length of the answer, from the server's usage. */
    /* Events with an entry of `choices`. Not counted: an event that has only the role, and an event
     * after the first that has only a finish reason. */
    uint32_t token_events;
    int64_t gap_us_max; /* Longest time between two successive token events. */
    /* The server sent its usage; false = prompt_tokens and completion_tokens are 0. */
    bool has_usage;
    enum replay_failure failure;
    int http_status; /* Status of the answer; 0 = none, or the replay was interrupted. */
    /* Why the request failed, in ASCII; "" = not known, or the request is done. */
    char message[REPLAY_MESSAGE_BYTES];
};

struct replay_client_options {
    const char *url;     /* Base URL, such as http://127.0.0.1:8080; must outlive the client. */
    const char *api_key; /* Used only while the client is opened; NULL = none. */
    bool chat;           /* POST to /v1/chat/completions instead of /v1/completions. */
    double timeout_s;    /* Most seconds of a request, from sending to its end. */
    /* Called once for a request that was sent, when the request is done or has failed. *result is
     * valid during the call. */
    void (*on_result)(void *self, const struct replay_result *result);
    /* Called with the time between two successive token events of a request. */
    void (*on_gap)(void *self, int64_t gap_us);
    void *self; /* First argument of on_result and on_gap. */
};

struct replay_client;

/* Opens a client; replay_client_close frees it. Requires that curl_global_init was called.
 * ST_NO_MEMORY: memory runs out. ST_IO: the system gives no timer. */
enum status replay_client_open(const struct replay_client_options *options,
                               struct replay_client **client_out, struct error *error);

/* Frees the client. Open requests are dropped without a call of on_result. NULL is fine. */
void replay_client_close(struct replay_client *client);

/* Sends a request to the path below the base URL, and blocks until the whole answer has arrived, at
 * most ten seconds. body: JSON for a POST; NULL = GET. *answer_out: the answer, which the caller
 * releases with json_decref; NULL = the answer is not JSON. Errors name the URL. ST_UNREACHABLE: no
 * whole answer arrived in time, or the answer is larger than 1 MiB. ST_NOT_FOUND: HTTP 404 or 405.
 * ST_NO_RESOURCE: HTTP 429 or 503. ST_IO: any other status that is not 200, or an empty answer.
 * ST_TOO_LARGE: the URL has more than 1023 bytes. ST_NO_MEMORY: memory runs out. */
enum status replay_client_ask(struct replay_client *client, const char *path, const char *body,
                              json_t **answer_out, struct error *error);

/* Sends a request now. due_us: due time, for the result. Takes ownership of the body (allocated
 * with malloc), also on errors. ST_NO_MEMORY: memory runs out, and on_result is not called. */
enum status replay_client_send(struct replay_client *client, const struct replay_request *request,
                               int64_t due_us, char *body, size_t body_size);

/* Handles the bytes that have arrived, and waits for more until until_us (by clock_system). May
 * return earlier, for example after a signal. ST_IO: libcurl or the timer failed. ST_NO_MEMORY:
 * memory runs out. */
enum status replay_client_turn(struct replay_client *client, int64_t until_us);

/* Ends all open requests as REPLAY_INTERRUPTED, and calls on_result for each of them. */
void replay_client_interrupt(struct replay_client *client);

/* Returns the number of requests that were sent and have not ended. */
uint32_t replay_client_open_count(const struct replay_client *client);
/* Returns the number of token events that have arrived. */
uint64_t replay_client_token_count(const struct replay_client *client);

#endif
