/* gateway_request_messages: the messages to machines about a request, and what of the request is left
 * to do. It sends nothing and changes nothing: requests.c sends the messages. Both run on the
 * gateway's loop thread. The messages point into the request. */
#ifndef SERVER_GATEWAY_REQUEST_MESSAGES_H
#define SERVER_GATEWAY_REQUEST_MESSAGES_H

#include "server/gateway/table.h"

/* Returns the name of this generation of the request. */
struct message_request request_attempt(const struct gateway_request *r);

/* Returns the most tokens that are still to be generated. */
uint32_t request_tokens_left(const struct gateway_request *r);
/* Returns the tokens that a token machine has to generate; the first one comes from the prompt
 * machine. 0 = no token machine is needed. */
uint32_t request_decodes(const struct gateway_request *r);

/* Returns true if something of every prompt position is wanted: the whole prompt must be computed. */
bool request_wants_whole_prompt(const struct gateway_request *r);

/* Returns MESSAGE_PREFILL. reserved: the token machine's answer to RESERVE; all zeros without a
 * token machine. now_us: time of the gateway's clock. */
struct message request_prefill_message(const struct gateway_request *r,
                                       const struct message_reserved *reserved, int64_t now_us);
/* Returns MESSAGE_RESERVE. prefix: the token machine may have a prefix of the prompt. */
struct message request_reserve_message(const struct gateway_request *r, bool prefix,
                                       int64_t now_us);

#endif
