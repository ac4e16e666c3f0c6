/* lane_choice: see the header. */
#include "compute/cpu/lane_choice.h"

#include "common/fixed_math.h"
#include "common/random.h"

#include <math.h>
#include <stddef.h>

/* Two batches are compared if their ends are at most PAIR_US_MAX microseconds apart, and if their
 * numbers of rows differ by at most an eighth of the larger one. */
#define PAIR_US_MAX 500000
#define ROWS_PART   8

/* With fewer samples, the distance of the cores decides. */
#define SAMPLES_MIN 4
/* Each new sample has at least a weight of 1 / SAMPLES_MAX in the mean. */
#define SAMPLES_MAX 32
/* Logarithms of ratios are limited to ±0.7: a batch counts as at most twice as slow or fast. */
#define SAMPLE_MOST 0.7

/* One in N batches is computed in the slower way. N is EXPLORE_FIRST until half of SAMPLES_MAX
 * samples are known; then EXPLORE_CLOSE, or EXPLORE_CLEAR if one way is at least 5 % faster: then
 * less than 1 % of the gaps between tokens become longer, which leaves their P99 as it is. */
#define EXPLORE_FIRST 4
#define EXPLORE_CLOSE 32
#define EXPLORE_CLEAR 256
#define CLEAR_RATIO   0.05

static struct lane_choice_class *class_of(struct lane_choice *choice, uint32_t rows, uint32_t lanes,
                                          bool far)
{
    uint32_t i = 0;
    while (i + 1 < LANE_CHOICE_CLASSES && rows / lanes >> (i + 3) > 0)
        i++;
    return &choice->classes[far][i];
}

/* Returns the latest batch with which a batch of `rows` rows that ends at now_us makes a pair; NULL
 * = none. */
static const struct lane_choice_batch *pair_of(const struct lane_choice_class *class, uint32_t rows,
                                               int64_t now_us)
{
    for (uint32_t age = 1; age <= LANE_CHOICE_LATEST; age++) {
        const struct lane_choice_batch *batch =
            &class->latest[(class->added - age) % LANE_CHOICE_LATEST];
        const uint32_t more = rows > batch->rows ? rows : batch->rows;
        const uint32_t less = rows > batch->rows ? batch->rows : rows;
        if (less > 0 && (more - less) * ROWS_PART <= more &&
            now_us - batch->ended_us <= PAIR_US_MAX)
            return batch;
    }
    return NULL;
}

bool lane_choice_pick(struct lane_choice *choice, uint32_t rows, uint32_t lanes, bool far,
                      int64_t now_us)
{
    struct lane_choice_class *class = class_of(choice, rows, lanes, far);
    const bool faster = class->samples < SAMPLES_MIN ? far : class->log_ratio < 0;
    const uint32_t one_in = class->samples < SAMPLES_MAX / 2       ? EXPLORE_FIRST
                            : fabs(class->log_ratio) < CLEAR_RATIO ? EXPLORE_CLOSE
                                                                   : EXPLORE_CLEAR;
    /* At random, because the sizes of batches may alternate. */
    const bool turn = random_at(far, class->asked++) % one_in == 0;
    const struct lane_choice_batch *pair = turn ? pair_of(class, rows, now_us) : NULL;
    return pair != NULL && pair->in_lanes == faster ? !faster : faster;
}

void lane_choice_add(struct lane_choice *choice, uint32_t rows, uint32_t lanes, bool far,
                     bool in_lanes, int64_t now_us, double us)
{
    struct lane_choice_class *class = class_of(choice, rows, lanes, far);
    const struct lane_choice_batch *pair = pair_of(class, rows, now_us);
    if (pair != NULL && pair->in_lanes != in_lanes) {
        double sample = fixed_log(us / rows) - fixed_log(pair->us / pair->rows);
        sample = fmin(fmax(in_lanes ? sample : -sample, -SAMPLE_MOST), SAMPLE_MOST);
        class->samples += class->samples < SAMPLES_MAX ? 1 : 0;
        class->log_ratio += (sample - class->log_ratio) / class->samples;
    }
    class->latest[class->added++ % LANE_CHOICE_LATEST] =
        (struct lane_choice_batch){rows, in_lanes, us, now_us};
}
