/* answer: converts a request's sampling rules (message.h) into what the sampler takes, and a
 * sampled token into a message. batch.c calls it on the machine's event loop thread, for the
 * requests of both pools (prompt_pool, token_pool). No state. It neither samples (the engine does)
 * nor sends. */
#ifndef MACHINE_ANSWER_H
#define MACHINE_ANSWER_H

#include "machine/executor/engine.h"
#include "transport/message.h"

/* Fills *out for the answer's token `index` (0, 1, …) at context position `position`, sampled from
 * row `row` of the batch. End tokens are masked while the answer is shorter than output_tokens_min.
 * vocab = size of the vocabulary. */
void answer_sample(const struct sampling *rules, uint32_t vocab, uint32_t index, uint32_t row,
                   uint32_t position, struct engine_sample *out);

/* Fills the token's id, log-probabilities and finish reason. output_limit = most tokens of the
 * answer. The caller fills in request, generation and times. */
void answer_token(const struct sampling *rules, uint32_t output_limit, uint32_t index,
                  const struct sampled *sampled, struct message_token *out);

/* Fills the score (log-probabilities) of prompt token `index`. */
void answer_score(uint32_t index, const struct sampled *sampled, struct message_token *out);

#endif
