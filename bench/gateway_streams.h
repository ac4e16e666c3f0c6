/* gateway_streams: many streamed completions at once over plain sockets, read by one thread as
 * cheaply as can be: what is measured is the server. Each stream asks for token ids and checks that
 * they are the ones that gateway_machine.h gives, in order, once each, and that [DONE] ends it. */
#ifndef BENCH_GATEWAY_STREAMS_H
#define BENCH_GATEWAY_STREAMS_H

#include "common/status.h"

#include <stdbool.h>
#include <stdint.h>

struct gateway_streams;

struct gateway_streams_options {
    uint16_t port; /* on 127.0.0.1 */
    uint32_t count;
    uint32_t prompt_tokens;
    uint32_t answer_tokens;
    bool check; /* every token; else only that all of them end with [DONE] */
    int epoll;  /* sockets go there, with data.u64 = index | GATEWAY_STREAMS_TAG */
};

#define GATEWAY_STREAMS_TAG (1ull << 32)

/* Opens all of them, and sends their requests. */
enum status gateway_streams_open(const struct gateway_streams_options *options,
                                 struct gateway_streams **out, struct error *error);
void gateway_streams_close(struct gateway_streams *s); /* NULL is fine */

/* The socket of a stream is readable. */
void gateway_streams_turn(struct gateway_streams *s, uint32_t index);

uint32_t gateway_streams_begun(const struct gateway_streams *s); /* with a first event */
uint32_t gateway_streams_ended(const struct gateway_streams *s); /* well or not */
/* What went wrong first; NULL: nothing. */
const char *gateway_streams_failure(const struct gateway_streams *s);

#endif
