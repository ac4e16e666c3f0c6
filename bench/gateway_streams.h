/* gateway_streams: the clients of bench-gateway (gateway.c): many streamed completions at the same
 * time, over plain sockets. gateway.c makes all calls on its only thread. The clients do as little
 * work as possible, because they use cores that the gateway needs. With `check`, each stream asks
 * for token ids and compares them with gateway_machine_token, in order. This part does not wait for
 * events, measures no times and does not parse JSON: the caller waits with epoll and reads the
 * clock. */
#ifndef BENCH_GATEWAY_STREAMS_H
#define BENCH_GATEWAY_STREAMS_H

#include "common/status.h"

#include <stdbool.h>
#include <stdint.h>

struct gateway_streams;

struct gateway_streams_options {
    uint16_t port;          /* Port on 127.0.0.1. */
    uint32_t count;         /* Number of streams. */
    uint32_t prompt_tokens; /* Tokens of each prompt. */
    uint32_t answer_tokens; /* Tokens of each answer. */
    /* True: check every token. False: check only the HTTP status, and that [DONE] arrives. */
    bool check;
    /* The caller's epoll descriptor, to which the sockets are added. The events of stream i have
     * data.u64 = i | GATEWAY_STREAMS_TAG. */
    int epoll;
};

/* Distinguishes the epoll events of streams from the caller's other events. */
#define GATEWAY_STREAMS_TAG (1ull << 32)

/* Connects all streams and sends their requests; blocks until all are sent. The prompt of stream i
 * begins with token 1000 + i. Returns ST_NO_MEMORY, or ST_IO if a socket fails. */
enum status gateway_streams_open(const struct gateway_streams_options *options,
                                 struct gateway_streams **out, struct error *error);
void gateway_streams_close(struct gateway_streams *s); /* NULL is fine */

/* Reads once from the socket of stream `index`, and closes the socket when the stream ends. Must be
 * called when the socket is readable. */
void gateway_streams_turn(struct gateway_streams *s, uint32_t index);

/* Returns the number of streams that have received at least one event. */
uint32_t gateway_streams_begun(const struct gateway_streams *s);
/* Returns the number of streams that have ended, with or without a failure. */
uint32_t gateway_streams_ended(const struct gateway_streams *s);
/* Returns the text of the first failure, valid until the streams are closed; NULL = none. */
const char *gateway_streams_failure(const struct gateway_streams *s);

#endif
