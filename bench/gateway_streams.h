/* gateway_streams: the clients of bench-gateway (gateway.c): many streamed completions at the same
 * time over plain sockets. The caller's one thread reads them with as little work as possible, so
 * that the figures show the cost of the gateway and not of the clients. A stream can ask for token
 * ids, and check that they are the ids of gateway_machine.h, in order and without repetition, and
 * that [DONE] ends the stream. The part does not wait for events, measures no times and does not
 * parse JSON: the caller waits with epoll and reads the clock. */
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
    bool check; /* True: check every token. False: check only that each stream ends with [DONE]. */
    /* The caller's epoll descriptor. Each stream's socket is added with data.u64 = index |
     * GATEWAY_STREAMS_TAG. */
    int epoll;
};

/* Marks the epoll events of streams among the caller's other events. */
#define GATEWAY_STREAMS_TAG (1ull << 32)

/* Connects all streams and sends their requests; blocks until all are sent. Stream i has a prompt
 * whose first token is 1000 + i. ST_NO_MEMORY. ST_IO: the error names the stream. */
enum status gateway_streams_open(const struct gateway_streams_options *options,
                                 struct gateway_streams **out, struct error *error);
void gateway_streams_close(struct gateway_streams *s); /* NULL is fine */

/* Reads once from the socket of stream `index`. Call it when the socket is readable. */
void gateway_streams_turn(struct gateway_streams *s, uint32_t index);

/* Returns the number of streams that have received at least one event. */
uint32_t gateway_streams_begun(const struct gateway_streams *s);
/* Returns the number of streams that have ended, with or without a failure. */
uint32_t gateway_streams_ended(const struct gateway_streams *s);
/* Returns the text of the first failure, valid until the streams are closed; NULL = none. */
const char *gateway_streams_failure(const struct gateway_streams *s);

#endif
