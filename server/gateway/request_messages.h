/* gateway_request_messages: makes the messages RESERVE and PREFILL of a request, and counts the
 * tokens that are still to be generated. server/gateway/ calls it on the gateway's event loop
 * thread. The messages contain pointers into the request. The part has no state, sends
 * nothing, and makes no messages for copies of KV (checkpoints.c does). */
#ifndef SERVER_GATEWAY_REQUEST_MESSAGES_H
#define SERVER_GATEWAY_REQUEST_MESSAGES_H

#include "server/gateway/table.h"

/* Returns the id and the generation of the request: messages name a request by both numbers. */
struct message_request request_attempt(const struct gateway_request *r);

/* Returns the most tokens that are still to be generated. */
uint32_t request_tokens_left(const struct gateway_request *r);
/* Returns request_tokens_left if a token machine is needed. 0 = none is needed: at most one token
 * is left, which the prompt machine generates. */
uint32_t request_decode_tokens(const struct gateway_request *r);

/* Returns true if the request wants an embedding, or scores of prompt tokens that have not all
 * arrived. Cached KV must then not replace the computation of the prompt. */
bool request_wants_whole_prompt(const struct gateway_request *r);

/* Returns MESSAGE_PREFILL. reserved: the token machine's answer to RESERVE; all zeros without a
 * token machine. The message contains pointers into *reserved. */
struct message request_prefill_message(const struct gateway_request *r,
                                       const struct message_reserved *reserved, int64_t now_us);
/* Returns MESSAGE_RESERVE. Requires that the request has a prompt machine. prefix_cache: the token
 * machine may use its prefix cache, unless request_wants_whole_prompt returns true. */
struct message request_reserve_message(const struct gateway_request *r, bool prefix_cache,
                                       int64_t now_us);

#endif
