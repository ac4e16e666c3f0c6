/* answer: what the answer's next token may be, and whether it is the last: the rules of a request
 * (message.h) turned into what the sampler takes, in one place for both pools. Pure. */
#ifndef MACHINE_ANSWER_H
#define MACHINE_ANSWER_H

#include "machine/engine.h"
#include "transport/message.h"

/* The answer's token `index` (0, 1, …) at `position`, from `row` of the batch. End tokens are
 * masked as long as the answer is shorter than output_tokens_min. */
void answer_sample(const struct message_sampling *rules, uint32_t vocab, uint32_t index,
                   uint32_t row, uint32_t position, struct engine_sample *out);

/* What was drawn, as the gateway gets it: id, log-probabilities, and finish. output_limit: tokens
 * that the answer has at most. Request, generation and times are the pools'. */
void answer_token(const struct message_sampling *rules, uint32_t output_limit, uint32_t index,
                  const struct sampled *sampled, struct message_token *out);

/* The score of prompt token `index`. */
void answer_score(uint32_t index, const struct sampled *sampled, struct message_token *out);

#endif
