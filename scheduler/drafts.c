/* drafts: see the header. */
#include "scheduler/drafts.h"

#include <assert.h>

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

/* The classes: fewer than 3 equal tokens, fewer than 5, fewer than 9, more; forced; agreed; of a
 * draft model. */
#define CLASS_LONG   3
#define CLASS_FORCED 4
#define CLASS_AGREED 5
#define CLASS_MODEL  6

static const float prior[SCHED_DRAFT_CLASSES] = {0.3f, 0.3f, 0.5f, 0.7f, 0.8f, 0.9f, 0.6f};

static uint32_t class_of(uint32_t matched)
{
    if (matched == SCHED_DRAFT_MODEL)
        return CLASS_MODEL;
    return matched == SCHED_DRAFT_FORCED ? CLASS_FORCED
           : matched < 3                 ? 0
           : matched < 5                 ? 1
           : matched < 9                 ? 2
                                         : CLASS_LONG;
}

/* Returns how many of the draft's first `count` tokens are of the class CLASS_AGREED. */
static uint32_t agreed_of(const struct sched_draft_trust *trust, uint32_t class, uint32_t count)
{
    const uint32_t agreed = class < CLASS_FORCED ? trust->agreed : 0;
    return agreed < count ? agreed : count;
}

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
static double right_of(const struct sched_draft_trust *trust, uint32_t class)
{
    double accepted = (double)trust->classes[class].accepted,
           rejected = (double)trust->classes[class].rejected;
    return (accepted + (double)(TRUST_PRIOR * prior[class])) /
           (accepted + rejected + (double)TRUST_PRIOR);
}

/* Returns the time in which the draft model adds a token to the drafts of all answers. */
static double model_us(const struct sched_drafts *drafts, uint32_t answers)
{
    const double us = step_us(&drafts->model, answers);
    return us > 0 ? us : MODEL_PART * step_us(&drafts->steps, answers);
}

/* Returns the length with the most tokens per time, and the factor by which it is more than without
 * a draft; 0 and 1 if no length is better by SCHED_DRAFT_GAIN. */
static uint32_t best_length(const struct sched_drafts *drafts,
                            const struct sched_draft_trust *trust, uint32_t answers,
                            uint32_t matched, uint32_t most, double *gain_out)
{
    uint32_t class = class_of(matched), length = 0, agreed = agreed_of(trust, class, most);
    double right = right_of(trust, class), right_agreed = right_of(trust, CLASS_AGREED);
    double without_us = step_us(&drafts->steps, answers);
    double make_us = class == CLASS_MODEL ? model_us(drafts, answers) : 0;
    double tokens = 1, probability = 1, best = SCHED_DRAFT_GAIN;
    for (uint32_t j = 1; j <= most && without_us > 0; j++) {
        probability *= j <= agreed && right_agreed > right ? right_agreed : right;
        tokens += probability;
        double us = step_us(&drafts->steps, (double)answers * (1 + j)) + j * make_us;
        if (tokens * without_us / us > best) {
            best = tokens * without_us / us;
            length = j;
        }
    }
    *gain_out = length > 0 ? best : 1;
    return length;
}

uint32_t sched_drafts_length(const struct sched_drafts *drafts,
                             const struct sched_draft_trust *trust, uint32_t answers,
                             uint32_t matched, uint32_t most)
{
    double gain;
    assert(answers >= 1);
    return drafts->always ? most : best_length(drafts, trust, answers, matched, most, &gain);
}

uint32_t sched_drafts_model_length(const struct sched_drafts *drafts,
                                   const struct sched_draft_trust *trust, uint32_t answers,
                                   uint32_t most, uint32_t other_matched, uint32_t other_most)
{
    double gain, other = 1;
    assert(answers >= 1);
    if (drafts->always) /* Tests see both: drafts of long matches, and of the model. */
        return other_most > 0 && class_of(other_matched) >= CLASS_LONG ? 0 : most;
    uint32_t length = best_length(drafts, trust, answers, SCHED_DRAFT_MODEL, most, &gain);
    if (other_most > 0)
        best_length(drafts, trust, answers, other_matched, other_most, &other);
    return gain > other ? length : 0;
}

/* Adds the results of tokens of one class: of `checked` ones the first `accepted` were right.
 * checked = 0: older results count less. */
static void class_add(struct sched_draft_trust *trust, uint32_t class, uint32_t checked,
                      uint32_t accepted)
{
    float keep = checked > 0 ? TRUST_KEEP : TRUST_KEEP_UNCHECKED;
    trust->classes[class].accepted = trust->classes[class].accepted * keep + (float)accepted;
    trust->classes[class].rejected =
        trust->classes[class].rejected * keep + (accepted < checked ? 1.0f : 0.0f);
}

void sched_draft_trust_add(struct sched_draft_trust *trust, uint32_t matched, uint32_t checked,
                           uint32_t accepted)
{
    assert(accepted <= checked);
    const uint32_t class = class_of(matched), agreed = agreed_of(trust, class, checked);
    if (checked == 0) {
        class_add(trust, class, 0, 0);
        if (agreed_of(trust, class, 1) > 0)
            class_add(trust, CLASS_AGREED, 0, 0);
        return;
    }
    if (agreed > 0)
        class_add(trust, CLASS_AGREED, agreed, accepted < agreed ? accepted : agreed);
    if (checked > agreed && accepted >= agreed)
        class_add(trust, class, checked - agreed, accepted - agreed);
}
