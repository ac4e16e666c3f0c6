/* logit_edits: the part of a request's sampling rules that changes logits before a token is drawn.
 * The edits depend on the request's rules and tokens, and not on earlier calls. A machine's engine
 * calls the functions; machine/ calls logit_edits_wanted, too. Only one thread at a time may use a
 * struct logit_editor. This part draws no tokens (sampler.h).
 *
 * The sampling rules are applied in this order. This part does steps 1 and 2:
 *   1. Tokens that are not allowed are excluded. If the answer ends with all tokens of a forbidden
 *      sequence except the last one, this last token is excluded. Biases are added.
 *   2. repetition_penalty, frequency_penalty and presence_penalty are applied.
 *   3. Tokens that the request's grammar forbids are excluded, and end tokens while the answer is
 *      shorter than output_tokens_min.
 *   4. temperature, min_p, top_k and top_p are applied, and a token is drawn (sampler.h).
 * Log-probabilities are computed from the logits before step 1. */
#ifndef MODEL_FORWARD_LOGIT_EDITS_H
#define MODEL_FORWARD_LOGIT_EDITS_H

#include "compute/sampling.h"

struct logit_editor;

/* Opens an editor for logits of a vocabulary of `vocab` tokens. The editor takes 20 bytes of memory
 * for each token. The caller closes the editor with logit_editor_close. Returns NULL if there is no
 * memory. */
struct logit_editor *logit_editor_open(uint32_t vocab);
void logit_editor_close(struct logit_editor *editor); /* NULL is fine. */

/* The edits of one row of logits. The editor owns `edits`, which is valid until the editor's next
 * use. `allowed` points into sample_context.rules. */
struct logit_edits {
    /* [count] edits with different ids, all below the size of the vocabulary. */
    const struct compute_edit *edits;
    uint32_t count;
    const uint32_t *allowed; /* [allowed_count] ids; other tokens are excluded. */
    uint32_t allowed_count;  /* 0 = all tokens are allowed. */
};

/* Returns true if the context has rules or tokens; otherwise no edits are needed. */
static inline bool logit_edits_wanted(const struct sample_context *context)
{
    return context->rule_count + context->token_count > 0;
}

/* Computes the edits of one row. masked[0..masked_count) are the end tokens that step 3 will
 * exclude; the edits do not exclude them. If the rules and `masked` together would exclude all
 * tokens, the function ignores allowed tokens and forbidden sequences. Requires valid rules
 * (token_rules_check). */
void logit_edits_make(struct logit_editor *editor, const struct sampling *sampling,
                      const struct sample_context *context, const uint32_t *masked,
                      uint32_t masked_count, struct logit_edits *out);

/* Writes the edited logits to edited_out[0..vocab). An excluded token gets the logit -INFINITY. */
void logit_edits_apply(const struct logit_edits *edits, const float *logits, uint32_t vocab,
                       float *edited_out);

#endif
