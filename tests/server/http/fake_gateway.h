/* fake_gateway: implements gateway.h, metrics.h, tokenizer.h and chat.h for the tests of
 * server/http, without a cluster or a model. The server's thread calls all functions of those
 * headers and of this one, and the text threads those of tokenizer.h and chat.h; the test's main
 * thread reads the counters and sets the variables that change the fake's behaviour. It checks no
 * tokens: fake_cluster.h does.
 *
 * Tokens are bytes; id 256 ends an answer, 257 begins a prompt, and FAKE_CONTROL_TOKEN is a control
 * token. The prompt of a chat is the content of its last message. The first byte of a request's
 * prompt selects its script:
 *
 *   'e'  answers with the rest of the prompt, one byte per turn, then the end token
 *   'a'  answers with output_tokens_max times 'a'
 *   'l'  answers with one token, the seed, whose log-probability is the seed - 100
 *   'v'  answers with 'a' after 300 events that name 20 machines
 *   's'  answers with one 'a' per turn until it is released: a client that does not read is soon
 *        dropped
 *   'p'  answers with one 'a' per 5 ms until it is released: a client may read it late
 *   'h'  never answers; fails before the first token while fake_hold_fails is set
 *   'f'  fails after two tokens
 *   'x'  fails before the first token
 *   'r'  is refused: the queue is full
 *   'R'  is refused: too large
 *
 * All others report the event ROUTED, with the machines prompt-0 and token-0, before their first
 * token, if the client wants events, and QUEUED when another request is released. */
#ifndef TESTS_SERVER_HTTP_FAKE_GATEWAY_H
#define TESTS_SERVER_HTTP_FAKE_GATEWAY_H

#include "server/gateway/gateway.h"

#include <stdatomic.h>

#define FAKE_CONTROL_TOKEN 2u
#define FAKE_CONTROL_TEXT  "[TOOL_CALLS]"

/* Counters are atomic, because the test's main thread reads them while the loop thread runs. */
extern atomic_uint fake_submitted;    /* Requests submitted so far. */
extern atomic_uint fake_open;         /* Requests that are not released. */
extern atomic_uint fake_clients_gone; /* Requests released because the client had disconnected. */
extern atomic_uint fake_stopped;      /* Requests released because of a stop string. */
/* Weight, priority, seed and prefix salt of the request that was submitted last. */
extern atomic_uint fake_weight;
extern atomic_int fake_priority;
extern atomic_ullong fake_seed;
extern atomic_ullong fake_salt;
extern atomic_uint fake_end_count;  /* Tokens that end the answer of the request submitted last. */
extern atomic_uint fake_model_ends; /* Number of the model's end tokens: 256 and following ids. */
/* Bytes of the text that was tokenised last in which control tokens are recognised. */
extern atomic_size_t fake_control_bytes;
/* While this is true, the encoding of texts that begin with 'W' waits. */
extern atomic_bool fake_encode_holds;
extern atomic_uint fake_encode_held;     /* Number of texts whose encoding waits. */
extern atomic_size_t fake_metrics_bytes; /* Size of the page /metrics. */
extern atomic_uint fake_submits_left;    /* Submissions after these fail. */
extern atomic_int fake_submit_failure;   /* Status (enum status) of submissions that fail. */
extern atomic_bool fake_hold_fails;      /* Requests with the script 'h' fail. */
extern atomic_bool fake_prompts_shared;  /* The answer of gateway_prompts_shared. */
extern atomic_bool fake_ready;           /* The gateway's answer when asked whether it is ready. */
/* Sampling, id and token rules of the request submitted last. Read them when its answer has
 * arrived. */
extern struct sampling fake_sampling;
extern char fake_name[GATEWAY_CLIENT_ID_BYTES];
extern uint32_t fake_rules[LIMIT_RULE_WORDS], fake_rule_count;
extern atomic_uint fake_http_codes[600]; /* Answers with each HTTP status. */

extern atomic_uint fake_access_dropped; /* Lines that the access log has dropped. */

/* Returns the one fake gateway of the process. */
struct gateway *fake_gateway(void);
void fake_gateway_turn(void); /* Runs one step of every request. */
bool fake_gateway_busy(void); /* Returns true if the next turn has something to do. */

#endif
