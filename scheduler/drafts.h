/* drafts: decides how many drafted tokens a decode step checks for an answer (speculative
 * decoding). A draft is a guess of the answer's next tokens. A step computes one row more for each
 * drafted token, and accepts drafted tokens up to the first one that differs from the token that
 * the step draws. This part knows what steps of how many rows take on this machine, and how often
 * an answer's drafts were right. token_pool/ and machine/ call it, on the machine's event loop
 * thread, with one struct sched_drafts per machine; the simulator calls it, too. It makes no drafts
 * (token_pool/ does) and checks none. Pure: no clock, no I/O, no allocation.
 *
 * If each of B answers gets j drafted tokens, each of which is right with probability p if those
 * before it are, a step of B (1 + j) rows gives B (1 + p + … + p^j) tokens. The length is the j
 * with the most tokens per time; 0 if no j is better than no draft by SCHED_DRAFT_GAIN. So a
 * machine whose steps are bound by arithmetic, or whose batch is large, checks no drafts. */
#ifndef SCHEDULER_DRAFTS_H
#define SCHEDULER_DRAFTS_H

#include <stdbool.h>
#include <stdint.h>

/* Drafts are checked only if the expected tokens per time are more than this number times those
 * without drafts, because times and probabilities are estimates. Drafts of text that repeats
 * promise much more; those of prose promise less, and are wrong more often than they promise. */
#define SCHED_DRAFT_GAIN 1.2

/* Number of classes of drafted tokens. A token on which all sources agree
 * (sched_draft_trust.agreed) has a class of its own. The class of any other token follows from
 * `matched` of its draft: the number of tokens before the draft that equal the tokens before the
 * draft's source, or SCHED_DRAFT_FORCED, or SCHED_DRAFT_MODEL. */
#define SCHED_DRAFT_CLASSES 7
/* `matched` of a draft that a constraint dictates. Its text is right, but the model may divide the
 * text into other tokens. */
#define SCHED_DRAFT_FORCED UINT32_MAX
/* `matched` of a draft that a draft model generates. Unlike the others, it takes time to make. */
#define SCHED_DRAFT_MODEL (UINT32_MAX - 1)

/* Steps are counted by their rows: each number up to 16, then 8 ranges; the last one has all steps
 * of more than 192 rows. */
#define SCHED_DRAFT_SIZES 24

/* Times of the steps of a model by their rows. All zeros = nothing is known. */
struct sched_step_times {
    uint64_t steps; /* Steps recorded so far. */
    struct {
        double rows;    /* Mean. */
        double us;      /* Usual time. */
        uint64_t at;    /* `steps` at the latest step of this size; 0 = none. */
        uint64_t steps; /* Steps of this size since the size was last unknown. */
    } sizes[SCHED_DRAFT_SIZES];
};

/* What is known of this machine. All zeros = nothing is known. */
struct sched_drafts {
    bool always; /* Every draft is checked as a whole, even at a loss (for tests). */
    struct sched_step_times steps; /* Steps without prompts. */
    /* Steps of the draft model, each for one token of each answer. */
    struct sched_step_times model;
};

/* How often the drafts of one answer were right. All zeros = no draft was checked. */
struct sched_draft_trust {
    /* Number of first tokens of the present draft that also follow all other places with equal
     * tokens before them; 0 = there is no other place. The caller sets it for each draft; no effect
     * on forced drafts. */
    uint32_t agreed;
    struct {
        float accepted; /* Drafted tokens that were right. Older ones count less. */
        float rejected; /* Drafted tokens that were the first wrong one. Older ones count less. */
    } classes[SCHED_DRAFT_CLASSES];
};

/* Records a step: its rows (≥ 1) and its time. */
void sched_drafts_step_add(struct sched_step_times *times, uint32_t rows, uint64_t us);

/* Returns how many tokens of a draft, ≤ most, a step should check for an answer. answers = answers
 * in the step (≥ 1). */
uint32_t sched_drafts_length(const struct sched_drafts *drafts,
                             const struct sched_draft_trust *trust, uint32_t answers,
                             uint32_t matched, uint32_t most);

/* Returns how many tokens, ≤ most, a draft model should generate for an answer; 0 = the other
 * draft, of which a step would check up to other_most tokens, promises at least as many tokens per
 * time. other_matched is the other draft's `matched`; it has no effect if other_most = 0 (there is
 * none). */
uint32_t sched_drafts_model_length(const struct sched_drafts *drafts,
                                   const struct sched_draft_trust *trust, uint32_t answers,
                                   uint32_t most, uint32_t other_matched, uint32_t other_most);

/* Records that the first `accepted` of `checked` drafted tokens were right. checked = 0: there was
 * a draft, but sched_drafts_length returned 0; after many such steps a draft is tried again. */
void sched_draft_trust_add(struct sched_draft_trust *trust, uint32_t matched, uint32_t checked,
                           uint32_t accepted);

#endif
