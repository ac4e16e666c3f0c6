/* gateway_streams: the clients of bench-gateway (gateway.c): many streamed completions at once over
 * plain sockets. The caller's one thread reads them with as little work as possible, so that the
 * figures show the cost of the gateway and not of the clients. A stream can ask for token ids and
 * check that they are those of gateway_machine.h, in order and each once, and that [DONE] ends it.
 * It measures no times and does not parse JSON. */
#ifndef BENCH_GATEWAY_STREAMS_H
#define BENCH_GATEWAY_STREAMS_H

#include "common/status.h"

#include <stdbool.h>
#include <stdint.h>

struct gateway_streams;

struct gateway_streams_options {
    uint16_t port; /* Port on 127.0.0.1. */
    uint32_t count;
    uint32_t prompt_tokens;
    uint32_t answer_tokens;
    bool check; /* True: check every token. False: check only that each stream ends with [DONE]. */
    int epoll;  /* Receives the sockets, with data.u64 = index | GATEWAY_STREAMS_TAG. */
};

#define GATEWAY_STREAMS_TAG (1ull << 32)

/* Opens all streams and sends their requests. */
enum status gateway_streams_open(const struct gateway_streams_options *options,
                                 struct gateway_streams **out, struct error *error);
void gateway_streams_close(struct gateway_streams *s); /* NULL is fine */

/* Call when the socket of the stream is readable. */
void gateway_streams_turn(struct gateway_streams *s, uint32_t index);

/* Streams that have received an event. */
uint32_t gateway_streams_begun(const struct gateway_streams *s);
/* Streams that have ended, with or without a failure. */
uint32_t gateway_streams_ended(const struct gateway_streams *s);
/* Returns the first failure; NULL = none. */
const char *gateway_streams_failure(const struct gateway_streams *s);

#endif
