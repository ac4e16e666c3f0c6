/* answer: converts a request's sampling rules (common/sampling.h) into the sampler's input, and a
 * sampled token into the fields of a message. machine/batch.c calls it for prompts and decodes,
 * machine/draft.c for the draft model, both on the machine's event loop thread. It keeps no state.
 * It does not sample (the engine does), and it sends nothing. */
#ifndef MACHINE_ANSWER_H
#define MACHINE_ANSWER_H

#include "machine/executor/engine.h"
#include "transport/message.h"

/* Fills *out for the answer's token `index` (0, 1, …) at context position `position`, sampled from
 * row `row` of the batch. The rules' end tokens are masked if `index` is below output_tokens_min.
 * vocab = size of the model's vocabulary. */
void answer_sample_fill(const struct sampling *sampling, uint32_t vocab, uint32_t index,
                        uint32_t row, uint32_t position, struct engine_sample *out);

/* Fills *out for the answer's token `index`: index, id, log-probabilities (if sampling->logprobs is
 * not negative) and finish reason; all other fields are 0. output_limit = most tokens of the
 * answer. */
void answer_token_fill(const struct sampling *sampling, uint32_t output_limit, uint32_t index,
                       const struct sampled *sampled, struct message_token *out);

/* Fills *out for the score (log-probabilities) of prompt token `index`. Afterwards the caller sets
 * out->id to the prompt token's id. */
void answer_score_fill(uint32_t index, const struct sampled *sampled, struct message_token *out);

#endif
