/* gateway_request_messages: makes the messages to machines about a request, and counts the tokens
 * that are still to be generated. The files of server/gateway/ call it on the gateway's event loop
 * thread. The messages point into the request. It sends nothing and changes nothing: requests.c and
 * checkpoints.c send the messages. */
#ifndef SERVER_GATEWAY_REQUEST_MESSAGES_H
#define SERVER_GATEWAY_REQUEST_MESSAGES_H

#include "server/gateway/table.h"

/* Returns the id and the generation of the request, as messages name them. */
struct message_request request_attempt(const struct gateway_request *r);

/* Returns the most tokens that are still to be generated. */
uint32_t request_tokens_left(const struct gateway_request *r);
/* Returns the most tokens that are still to be generated; 0 if that is at most one token, because
 * the prompt machine generates the first token and no token machine is needed. */
uint32_t request_decode_tokens(const struct gateway_request *r);

/* Returns true if the whole prompt must be computed, because scores or an embedding are wanted. */
bool request_wants_whole_prompt(const struct gateway_request *r);

/* Returns MESSAGE_PREFILL. reserved: the token machine's answer to RESERVE; all zeros without a
 * token machine. now_us: time of the gateway's clock. */
struct message request_prefill_message(const struct gateway_request *r,
                                       const struct message_reserved *reserved, int64_t now_us);
/* Returns MESSAGE_RESERVE. prefix: the token machine looks the prompt up in its prefix cache,
 * unless the whole prompt must be computed. */
struct message request_reserve_message(const struct gateway_request *r, bool prefix,
                                       int64_t now_us);

#endif
