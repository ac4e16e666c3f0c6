/* drafts: see the header. */
#include "scheduler/drafts.h"

#include <assert.h>
#include <string.h>

/* How far one step moves the time of its size. Other processes can make a step longer, and nothing
 * makes it shorter, so a shorter step counts more. */
#define STEP_WEIGHT_LONGER  (1.0 / 16)
#define STEP_WEIGHT_SHORTER (1.0 / 4)
/* A size is not known after this many later steps: the machine may have changed. A size of few
 * steps is forgotten earlier, because a few long steps would end all further steps of this size. */
#define STEP_AGE_MAX 1024
#define STEP_AGE     128 /* For each step of the size. */
/* An older result counts less by this factor for each later draft, and for each step in which a
 * draft was not checked. */
#define TRUST_KEEP           0.9f
#define TRUST_KEEP_UNCHECKED 0.985f
/* Before its first draft, an answer is treated as if it had had this many results with the
 * probability `prior` of the class. A wrong assumption costs some rows of a few steps. */
#define TRUST_PRIOR 2.0f

/* Before its first step, a draft model is assumed to take this part of the time of a step. */
#define MODEL_PART 0.25

/* Probabilities that are assumed before the first check. */
static const float prior[SCHED_DRAFT_CLASSES] = {
    [SCHED_DRAFT_FEW] = 0.3f,    [SCHED_DRAFT_SOME] = 0.3f,   [SCHED_DRAFT_MANY] = 0.5f,
    [SCHED_DRAFT_MOST] = 0.7f,   [SCHED_DRAFT_AGREED] = 0.9f, [SCHED_DRAFT_SHAPE] = 0.8f,
    [SCHED_DRAFT_FORCED] = 0.8f, [SCHED_DRAFT_MODEL] = 0.6f,  [SCHED_DRAFT_CERTAIN] = 1,
};

static uint32_t size_of(uint32_t rows)
{
    uint32_t size = 16, end = 24, step = 8;
    if (rows <= 16)
        return rows - 1;
    for (; size + 1 < SCHED_DRAFT_SIZES && rows > end; size++) { /* 24, 32, 48, 64, 96, 128, … */
        end += step;
        step = (size & 1) == 0 ? step * 2 : step;
    }
    return size;
}

static bool size_known(const struct sched_step_times *times, uint32_t size)
{
    const uint64_t at = times->sizes[size].latest_step, seen = times->sizes[size].steps;
    const uint64_t most = seen < STEP_AGE_MAX / STEP_AGE ? seen * STEP_AGE : STEP_AGE_MAX;
    return at > 0 && times->steps - at <= most;
}

void sched_drafts_step_add(struct sched_step_times *times, uint32_t rows, uint64_t us)
{
    assert(rows >= 1);
    uint32_t size = size_of(rows);
    const bool known = size_known(times, size);
    const double longer = (double)us - times->sizes[size].us;
    const double weight = !known ? 1 : longer > 0 ? STEP_WEIGHT_LONGER : STEP_WEIGHT_SHORTER;
    times->steps++;
    times->sizes[size].rows += weight * (rows - times->sizes[size].rows);
    times->sizes[size].us += weight * longer;
    times->sizes[size].latest_step = times->steps;
    times->sizes[size].steps = known ? times->sizes[size].steps + 1 : 1;
}

/* Returns the time of a step; 0 = nothing is known. Between two known sizes the time is
 * interpolated, and beyond the largest one the line through the two largest is continued. If only
 * one size is known, a step of up to twice its rows is assumed to take the same time, so that it is
 * tried and then known; a larger one is assumed to take longer in proportion, because a trial would
 * be expensive. */
static double step_us(const struct sched_step_times *times, double rows)
{
    double below_rows = 0, below_us = 0, slope = 0;
    uint32_t known = 0;
    for (uint32_t i = 0; i < SCHED_DRAFT_SIZES; i++) {
        double at_rows = times->sizes[i].rows, at_us = times->sizes[i].us;
        if (!size_known(times, i))
            continue;
        if (at_rows >= rows) {
            if (below_us == 0)
                return at_us;
            return below_us + (at_us - below_us) * (rows - below_rows) / (at_rows - below_rows);
        }
        if (known++ > 0)
            slope = (at_us - below_us) / (at_rows - below_rows);
        below_rows = at_rows;
        below_us = at_us;
    }
    if (known > 1)
        return below_us + (slope > 0 ? slope : 0) * (rows - below_rows);
    return rows > 2 * below_rows ? below_us * rows / (2 * below_rows) : below_us;
}

/* Returns the probability that a token of the class is right if those before it are. */
static double right_of(const struct sched_draft_trust *trust, enum sched_draft_class class)
{
    double accepted = (double)trust->classes[class].accepted,
           rejected = (double)trust->classes[class].rejected;
    if (class == SCHED_DRAFT_CERTAIN)
        return 1;
    return (accepted + (double)(TRUST_PRIOR * prior[class])) /
           (accepted + rejected + (double)TRUST_PRIOR);
}

/* Returns the time in which the draft model adds a token to the drafts of all answers. */
static double model_us(const struct sched_drafts *drafts, uint32_t answers)
{
    const double us = step_us(&drafts->model, answers);
    return us > 0 ? us : MODEL_PART * step_us(&drafts->steps, answers);
}

double sched_drafts_cost(const struct sched_drafts *drafts, uint32_t answers,
                         const struct sched_draft *draft, uint32_t checked)
{
    const double without_us = checked > 0 ? step_us(&drafts->steps, answers) : 0;
    if (without_us == 0)
        return 0;
    double us = step_us(&drafts->steps, (double)answers * (1 + checked)) - without_us;
    if (draft->classes[0] == SCHED_DRAFT_MODEL)
        us += checked * model_us(drafts, answers);
    return us / without_us;
}

/* Returns the length with the most tokens per time, and the factor by which it is more than without
 * a draft; 0 and 1 if no length is better by SCHED_DRAFT_GAIN. */
static uint32_t best_length(const struct sched_drafts *drafts,
                            const struct sched_draft_trust *trust, uint32_t answers,
                            const struct sched_draft *draft, double *gain_out)
{
    double tokens = 1, probability = 1, best = SCHED_DRAFT_GAIN;
    uint32_t length = 0;
    for (uint32_t j = 1; j <= draft->count && step_us(&drafts->steps, answers) > 0; j++) {
        probability *= right_of(trust, draft->classes[j - 1]);
        tokens += probability;
        const double cost = sched_drafts_cost(drafts, answers, draft, j);
        if (tokens / (1 + cost) > best && trust->lost_steps + cost <= SCHED_DRAFT_LOSS_STEPS) {
            best = tokens / (1 + cost);
            length = j;
        }
    }
    *gain_out = length > 0 ? best : 1;
    return length;
}

uint32_t sched_drafts_length(const struct sched_drafts *drafts,
                             const struct sched_draft_trust *trust, uint32_t answers,
                             const struct sched_draft *draft)
{
    double gain;
    assert(answers >= 1);
    return drafts->always ? draft->count : best_length(drafts, trust, answers, draft, &gain);
}

uint32_t sched_drafts_model_length(const struct sched_drafts *drafts,
                                   const struct sched_draft_trust *trust, uint32_t answers,
                                   uint32_t most, const struct sched_draft *other)
{
    struct sched_draft draft = {.count = most};
    double gain, other_gain = 1;
    assert(answers >= 1);
    memset(draft.classes, SCHED_DRAFT_MODEL, most);
    if (drafts->always) /* Tests see both: drafts of long matches, and of the model. */
        return other != NULL && other->count > 0 && other->classes[0] == SCHED_DRAFT_MOST ? 0
                                                                                          : most;
    uint32_t length = best_length(drafts, trust, answers, &draft, &gain);
    if (other != NULL)
        best_length(drafts, trust, answers, other, &other_gain);
    return gain > other_gain ? length : 0;
}

/* Counts the tokens of one class among the draft's first `count` tokens. */
static uint32_t class_count(const struct sched_draft *draft, enum sched_draft_class class,
                            uint32_t count)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < count; i++)
        found += draft->classes[i] == class ? 1 : 0;
    return found;
}

/* Adds the results of a class: older ones count less. */
static void class_add(struct sched_draft_trust *trust, uint32_t class, float keep, uint32_t right,
                      bool wrong)
{
    trust->classes[class].accepted = trust->classes[class].accepted * keep + (float)right;
    trust->classes[class].rejected = trust->classes[class].rejected * keep + (wrong ? 1.0f : 0.0f);
}

void sched_draft_trust_skip(struct sched_draft_trust *trust, const struct sched_draft *draft)
{
    for (uint32_t class = 0; class < SCHED_DRAFT_CLASSES; class ++)
        if (class_count(draft, class, draft->count) > 0)
            class_add(trust, class, TRUST_KEEP_UNCHECKED, 0, false);
}

void sched_draft_trust_add(struct sched_draft_trust *trust, const struct sched_draft *draft,
                           uint32_t checked, uint32_t accepted, double cost)
{
    assert(accepted <= checked && checked <= draft->count);
    const uint32_t known = accepted < checked ? accepted + 1 : checked; /* Right, or wrong. */
    if (checked == 0)
        sched_draft_trust_skip(trust, draft);
    for (uint32_t class = 0; class < SCHED_DRAFT_CLASSES; class ++)
        if (class_count(draft, class, known) > 0)
            class_add(trust, class, TRUST_KEEP, class_count(draft, class, accepted),
                      known > accepted && draft->classes[accepted] == class);
    trust->lost_steps += cost - accepted - SCHED_DRAFT_LOSS * (1 + accepted);
    if (trust->lost_steps < -SCHED_DRAFT_WON_STEPS)
        trust->lost_steps = -SCHED_DRAFT_WON_STEPS;
}
