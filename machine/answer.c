/* answer: see the header. */
#include "machine/answer.h"

#include <float.h>
#include <math.h>

bool answer_token_ends(const struct sampling *sampling, uint32_t id)
{
    for (uint32_t i = 0; i < sampling->end_count; i++)
        if (sampling->end_tokens[i] == id)
            return true;
    return false;
}

void answer_sample_fill(const struct sampling *sampling, uint32_t vocab_tokens,
                        uint32_t answer_index, uint32_t row, uint32_t position,
                        struct engine_sample *out)
{
    *out = (struct engine_sample){
        .row = row,
        .choice = {.sampling = *sampling,
                   .position = position,
                   .forced_token = COMPUTE_SAMPLE_DRAW},
    };
    if (answer_index >= sampling->output_tokens_min)
        return;
    for (uint32_t i = 0; i < sampling->end_count; i++)
        if (sampling->end_tokens[i] < vocab_tokens)
            out->choice.masked[out->choice.masked_count++] = sampling->end_tokens[i];
}

/* Broken weights can give infinite logits; a message (and JSON) can hold only finite numbers. */
static float finite_or_least(float logprob)
{
    return isfinite(logprob) ? logprob : -FLT_MAX;
}

static void logprobs_copy(const struct sampled *sampled, struct message_token *out)
{
    out->has_logprob = true;
    out->logprob = finite_or_least(sampled->logprob);
    out->top_count = (uint8_t)sampled->top_count;
    for (uint32_t i = 0; i < sampled->top_count; i++) {
        out->top_ids[i] = sampled->top_ids[i];
        out->top_logprobs[i] = finite_or_least(sampled->top_logprobs[i]);
    }
}

void answer_token_fill(const struct sampling *sampling, uint32_t output_tokens_max,
                       uint32_t answer_index, const struct sampled *sampled,
                       struct message_token *out)
{
    *out = (struct message_token){.index = answer_index, .id = sampled->id, .finish = FINISH_NONE};
    if (sampling->logprobs >= 0)
        logprobs_copy(sampled, out);
    if (answer_token_ends(sampling, sampled->id))
        out->finish = FINISH_STOP;
    else if (answer_index + 1 >= output_tokens_max)
        out->finish = FINISH_LENGTH;
}

void answer_score_fill(uint32_t prompt_index, const struct sampled *sampled,
                       struct message_token *out)
{
    *out = (struct message_token){.index = prompt_index, .id = sampled->id, .scored = true};
    logprobs_copy(sampled, out);
}
