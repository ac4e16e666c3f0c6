/* fake_gateway: gateway.h, metrics.h, tokenizer.h and chat.h as the HTTP side needs them, without a
 * cluster or a model. Tokens are bytes (id 256 ends, 257 begins). What a request does is scripted
 * by its prompt's first byte: 'e' answers with the rest of the prompt, a byte per turn, then the
 * end token 'a' answers with output_tokens_max times 'a' 'h' never answers          's' answers one
 * 'a' per turn for ever (until released) 'f' fails after two tokens 'x' fails before the first 'r'
 * refused: full    'R' refused: too large */
#ifndef TESTS_SERVER_FAKE_GATEWAY_H
#define TESTS_SERVER_FAKE_GATEWAY_H

#include "server/gateway.h"

#include <stdatomic.h>

/* Read by the test's thread while the loop thread runs. */
extern atomic_uint fake_submitted;
extern atomic_uint fake_open;
extern atomic_uint fake_gone;    /* released because the client had gone */
extern atomic_uint fake_stopped; /* released because of a stop string */
extern atomic_uint fake_weight;  /* of the last one submitted */
extern atomic_int fake_priority;
extern atomic_bool fake_ready;
extern atomic_uint fake_http_codes[600];

struct gateway *fake_gateway(void);
void fake_gateway_turn(void); /* one step of every request */
bool fake_gateway_busy(void); /* some request would do something in the next turn */

#endif
