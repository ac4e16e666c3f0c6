/* logit_edits: the part of a request's sampling rules that changes logits before a token is drawn.
 * The engine (machine/executor/engine.c) calls it on its own thread and on the device's worker
 * threads, bench-engine on its main thread; a struct logit_editor is used by one thread at a time.
 * It draws no tokens (sampler.h). The edits depend only on the request's rules and tokens, never on
 * earlier calls, so that a request gets the same tokens on any machine.
 * tests/model/forward/test_logit_edits.c has a plain reference.
 *
 * The order of all sampling rules, as in vLLM:
 *   1. allowed tokens, forbidden sequences (their last token), and biases, which are added,
 *   2. repetition_penalty, frequency_penalty, presence_penalty,
 *   3. the constraint's mask, and end tokens while the answer is shorter than output_tokens_min,
 *   4. temperature, min_p, top_k, top_p, and the draw (sampler.h).
 * Log-probabilities are computed from the logits before all edits. */
#ifndef MODEL_FORWARD_LOGIT_EDITS_H
#define MODEL_FORWARD_LOGIT_EDITS_H

#include "compute/sampling.h"

struct logit_editor;

/* Opens an editor. Its memory, 20 bytes for each token of the vocabulary, is not touched before the
 * first use. Returns NULL if there is no memory. */
struct logit_editor *logit_editor_open(uint32_t vocab);
void logit_editor_close(struct logit_editor *editor); /* NULL is fine. */

/* Edits of one row. `edits` is valid until the editor's next use; `allowed` points into
 * sample_context.rules. */
struct logit_edits {
    const struct compute_edit *edits; /* Different ids, all below the vocabulary's size. */
    uint32_t count;
    const uint32_t *allowed; /* [allowed_count] tokens; all other tokens are forbidden. */
    uint32_t allowed_count;  /* 0 = all tokens are allowed. */
};

/* Returns true if the context has rules or tokens that may change logits. */
static inline bool logit_edits_wanted(const struct sample_context *context)
{
    return context->rule_count + context->token_count > 0;
}

/* Computes the edits of one row. masked[0..masked_count) are ids that sampler_draw will not draw
 * anyway: the function makes no edits for them, unless the rules name them. If the rules and
 * `masked` would leave no token, allowed tokens and forbidden sequences are ignored for this row.
 */
void logit_edits_make(struct logit_editor *editor, const struct sampling *sampling,
                      const struct sample_context *context, const uint32_t *masked,
                      uint32_t masked_count, struct logit_edits *out);

/* Writes the edited logits to edited_out[0..vocab). */
void logit_edits_apply(const struct logit_edits *edits, const float *logits, uint32_t vocab,
                       float *edited_out);

#endif
