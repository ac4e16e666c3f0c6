/* fake_gateway: implements gateway.h, metrics.h, tokenizer.h and chat.h for the HTTP side, without
 * a cluster or a model. Tokens are bytes (id 256 ends, 257 begins). The first byte of a request's
 * prompt selects its script:
 *
 *   'e'  answers with the rest of the prompt, one byte per turn, then the end token
 *   'a'  answers with output_tokens_max times 'a'
 *   's'  answers with one 'a' per turn until it is released
 *   'h'  never answers
 *   'f'  fails after two tokens
 *   'x'  fails before the first token
 *   'r'  is refused: the queue is full
 *   'R'  is refused: too large */
#ifndef TESTS_SERVER_FAKE_GATEWAY_H
#define TESTS_SERVER_FAKE_GATEWAY_H

#include "server/gateway/gateway.h"

#include <stdatomic.h>

/* The test's thread reads these counters while the loop thread runs. */
extern atomic_uint fake_submitted;
extern atomic_uint fake_open;
extern atomic_uint fake_gone;    /* Released because the client had disconnected. */
extern atomic_uint fake_stopped; /* Released because of a stop string. */
extern atomic_uint fake_weight;  /* Of the request submitted last; also fake_priority. */
extern atomic_int fake_priority;
extern atomic_ullong fake_seed; /* Of the request submitted last; also fake_salt. */
extern atomic_ullong fake_salt;
extern atomic_size_t fake_metrics_bytes; /* Size of the page /metrics. */
extern atomic_uint fake_submits_left;    /* Submissions after these are refused. */
extern atomic_bool fake_ready;
extern atomic_uint fake_http_codes[600];

struct gateway *fake_gateway(void);
void fake_gateway_turn(void); /* Runs one step of every request. */
bool fake_gateway_busy(void); /* True if a request would do something in the next turn. */

#endif
