/* drafts: see the header. */
#include "scheduler/drafts.h"

#include <assert.h>

/* A mean forgets a step after about this many steps of the same size. */
#define STEP_WEIGHT (1.0 / 8)
/* A size that no step has had for this many steps is not known: the machine may have changed. */
#define STEP_AGE_MAX 1024
/* An older result counts less by this factor for each later draft, and for each step in which a
 * draft was not checked. */
#define TRUST_KEEP           0.9f
#define TRUST_KEEP_UNCHECKED 0.985f
/* Before its first draft, an answer is treated as if it had had this many results with the
 * probability `prior` of the class. A wrong assumption costs some rows of a few steps. */
#define TRUST_PRIOR 2.0f

static const float prior[SCHED_DRAFT_CLASSES] = {0.3f, 0.5f, 0.7f, 0.8f};

/* The classes: fewer than 5 equal tokens, fewer than 9, more; forced. */
static uint32_t class_of(uint32_t matched)
{
    return matched == SCHED_DRAFT_FORCED ? 3 : matched < 5 ? 0 : matched < 9 ? 1 : 2;
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

void sched_drafts_step_add(struct sched_drafts *drafts, uint32_t rows, uint64_t us)
{
    assert(rows >= 1);
    uint32_t size = size_of(rows);
    double weight = drafts->sizes[size].at == 0 ? 1 : STEP_WEIGHT;
    drafts->steps++;
    if (drafts->sizes[size].at > 0 && drafts->steps - drafts->sizes[size].at > STEP_AGE_MAX)
        weight = 1;
    drafts->sizes[size].rows += weight * (rows - drafts->sizes[size].rows);
    drafts->sizes[size].us += weight * ((double)us - drafts->sizes[size].us);
    drafts->sizes[size].at = drafts->steps;
}

/* Returns the time of a step; 0 = nothing is known. Between two known sizes the time is
 * interpolated, and beyond the largest one the line through the two largest is continued. If only
 * one size is known, a step of up to twice its rows is assumed to take the same time, so that it is
 * tried and then known; a larger one is assumed to take longer in proportion, because a trial would
 * be expensive. */
static double step_us(const struct sched_drafts *drafts, double rows)
{
    double below_rows = 0, below_us = 0, slope = 0;
    uint32_t known = 0;
    for (uint32_t i = 0; i < SCHED_DRAFT_SIZES; i++) {
        double at_rows = drafts->sizes[i].rows, at_us = drafts->sizes[i].us;
        if (drafts->sizes[i].at == 0 || drafts->steps - drafts->sizes[i].at > STEP_AGE_MAX)
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

uint32_t sched_drafts_length(const struct sched_drafts *drafts,
                             const struct sched_draft_trust *trust, uint32_t answers,
                             uint32_t matched, uint32_t most)
{
    assert(answers >= 1);
    uint32_t class = class_of(matched), length = 0;
    double accepted = (double)trust->classes[class].accepted,
           rejected = (double)trust->classes[class].rejected;
    double right = (accepted + (double)(TRUST_PRIOR * prior[class])) /
                   (accepted + rejected + (double)TRUST_PRIOR);
    double without_us = step_us(drafts, answers);
    double tokens = 1, probability = 1, best = SCHED_DRAFT_GAIN;
    if (drafts->always)
        return most;
    if (without_us == 0)
        return 0;
    for (uint32_t j = 1; j <= most; j++) {
        probability *= right;
        tokens += probability;
        double gain = tokens * without_us / step_us(drafts, (double)answers * (1 + j));
        if (gain > best) {
            best = gain;
            length = j;
        }
    }
    return length;
}

void sched_draft_trust_add(struct sched_draft_trust *trust, uint32_t matched, uint32_t checked,
                           uint32_t accepted)
{
    assert(accepted <= checked);
    uint32_t class = class_of(matched);
    float keep = checked > 0 ? TRUST_KEEP : TRUST_KEEP_UNCHECKED;
    trust->classes[class].accepted = trust->classes[class].accepted * keep + (float)accepted;
    trust->classes[class].rejected =
        trust->classes[class].rejected * keep + (accepted < checked ? 1.0f : 0.0f);
}
