/* answer: converts a request's sampling rules (common/sampling.h) into the sampler's input, and a
 * sampled token into the fields of a message. machine/ calls the functions on the machine's event
 * loop thread. This part owns nothing, does not sample (the engine does), and sends nothing. */
#ifndef MACHINE_ANSWER_H
#define MACHINE_ANSWER_H

#include "machine/executor/engine.h"
#include "transport/message.h"

/* Fills *out for one token of an answer. answer_index: number of the token in the answer, from 0.
 * The token is sampled from row `row` of the batch, and its position in the context is `position`.
 * End tokens are masked if answer_index is below sampling->output_tokens_min. vocab_tokens: size of
 * the model's vocabulary. */
void answer_sample_fill(const struct sampling *sampling, uint32_t vocab_tokens,
                        uint32_t answer_index, uint32_t row, uint32_t position,
                        struct engine_sample *out);

/* Returns true if the token `id` is one of sampling->end_tokens, each of which ends the answer. */
bool answer_token_ends(const struct sampling *sampling, uint32_t id);

/* Fills *out for one token of an answer: index, id, log-probabilities (if sampling->logprobs is not
 * negative) and `finish`; all other fields are 0. A log-probability that is not finite becomes
 * -FLT_MAX. `finish` becomes FINISH_STOP if the token is an end token, otherwise FINISH_LENGTH if
 * the token is number output_tokens_max of the answer, otherwise FINISH_NONE. The caller sets
 * FINISH_CONSTRAINT. output_tokens_max: most tokens of the answer. */
void answer_token_fill(const struct sampling *sampling, uint32_t output_tokens_max,
                       uint32_t answer_index, const struct sampled *sampled,
                       struct message_token *out);

/* Fills *out for the score (log-probabilities) of the prompt token at prompt_index. A
 * log-probability that is not finite becomes -FLT_MAX. The caller then sets out->id to the prompt
 * token's id. */
void answer_score_fill(uint32_t prompt_index, const struct sampled *sampled,
                       struct message_token *out);

#endif
