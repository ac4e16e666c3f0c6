/* drafts: decides how many drafted tokens a decode step checks for an answer (speculative
 * decoding). It learns how long steps take on this machine, by their rows, and how often an
 * answer's drafts were right. token_pool/ and machine/ call it, on the machine's event loop thread,
 * with one struct sched_drafts per machine; the simulator calls it, too. It makes no drafts and
 * checks none. Pure: no clock, no I/O, no allocation.
 *
 * A step computes one row more for each drafted token. Let p be the probability that a drafted
 * token is right if the tokens before it are. If each of B answers gets j drafted tokens, a step of
 * B (1 + j) rows gives B (1 + p + … + p^j) tokens. The length is the j with the most tokens per
 * time; 0 if no j gives SCHED_DRAFT_GAIN times the tokens per time without drafts. */
#ifndef SCHEDULER_DRAFTS_H
#define SCHEDULER_DRAFTS_H

#include <stdbool.h>
#include <stdint.h>

/* Drafts are checked only if the expected tokens per time are more than this number times the
 * tokens per time without drafts, because times and probabilities are estimates. */
#define SCHED_DRAFT_GAIN 1.2

/* Number of classes of drafted tokens. Tokens of one class count as right with one probability. A
 * draft is usually copied from an earlier place of the context. `matched` of such a draft is the
 * number of tokens before the draft that equal the tokens before that place. `matched` decides the
 * class; only tokens on which all such places agree (sched_draft_trust.agreed) have a class of
 * their own. */
#define SCHED_DRAFT_CLASSES 7
/* `matched` of a draft that a constraint dictates. Its text is right, but the model may divide the
 * text into other tokens. */
#define SCHED_DRAFT_FORCED UINT32_MAX
/* `matched` of a draft that a draft model generates, which takes time. */
#define SCHED_DRAFT_MODEL (UINT32_MAX - 1)

/* Steps are put into sizes by their rows: a size for each number up to 16, then 8 ranges; the last
 * size has all steps of more than 192 rows. */
#define SCHED_DRAFT_SIZES 24

/* Times of the steps of a model, by size. All zeros = nothing is known. */
struct sched_step_times {
    uint64_t steps; /* Steps recorded so far. */
    struct {
        double rows; /* Mean number of rows. */
        double us;   /* Mean time; shorter steps count more. */
        /* sched_step_times.steps at the latest step of this size; 0 = none. */
        uint64_t latest_step;
        /* Steps of this size since the size became known. A size that has had no step for long
         * becomes unknown. */
        uint64_t steps;
    } sizes[SCHED_DRAFT_SIZES];
};

/* What is known of this machine. All zeros = nothing is known. */
struct sched_drafts {
    bool always; /* Every draft is checked as a whole, even if that takes more time (for tests). */
    struct sched_step_times steps; /* Decode steps. */
    /* Steps of the draft model, each of which generates one token for each of its answers. Rows =
     * answers. */
    struct sched_step_times model;
};

/* How often drafts were right: those of one answer, or those of a machine's draft model. All zeros
 * = no draft was checked. */
struct sched_draft_trust {
    /* Number of first tokens of the present draft that also follow all other places with `matched`
     * equal tokens before them; 0 = there is no other place. The caller sets it for each draft that
     * is copied from the context; no effect on other drafts. */
    uint32_t agreed;
    struct {
        float accepted; /* Drafted tokens that were right. Older ones count less. */
        float rejected; /* Drafted tokens that were the first wrong one. Older ones count less. */
    } classes[SCHED_DRAFT_CLASSES];
};

/* Records a step of `rows` rows (≥ 1) that took `us` microseconds. */
void sched_drafts_step_add(struct sched_step_times *times, uint32_t rows, uint64_t us);

/* Returns how many tokens of a draft, ≤ most, a step should check for an answer; 0 while no step
 * time is known; `most` with drafts->always. answers = answers in the step (≥ 1). */
uint32_t sched_drafts_length(const struct sched_drafts *drafts,
                             const struct sched_draft_trust *trust, uint32_t answers,
                             uint32_t matched, uint32_t most);

/* Returns how many tokens, ≤ most, a draft model should generate for an answer that has another
 * draft of other_most tokens (0 = no other draft) with `matched` = other_matched. Returns 0 if no
 * draft of the model pays, or if the other draft promises at least as many tokens per time. With
 * drafts->always, only a long match of the other draft gives 0. */
uint32_t sched_drafts_model_length(const struct sched_drafts *drafts,
                                   const struct sched_draft_trust *trust, uint32_t answers,
                                   uint32_t most, uint32_t other_matched, uint32_t other_most);

/* Records that the first `accepted` of `checked` drafted tokens were right (accepted ≤ checked).
 * checked = 0: sched_drafts_length or sched_drafts_model_length returned 0; after many such calls a
 * draft is tried again. */
void sched_draft_trust_add(struct sched_draft_trust *trust, uint32_t matched, uint32_t checked,
                           uint32_t accepted);

#endif
