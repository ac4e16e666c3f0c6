/* greedy: the cases of shared/reference/model/greedy.json: prompt, greedy continuation and the five
 * most likely tokens of each step, computed in fp32. Skips the test when shared/ is not there. */
#ifndef TESTS_MODEL_GREEDY_H
#define TESTS_MODEL_GREEDY_H

#include <stdint.h>

#define GREEDY_TOP 5

struct greedy_step {
    uint32_t ids[GREEDY_TOP]; /* most likely first */
    double logprobs[GREEDY_TOP];
};

struct greedy_case {
    uint32_t prompt_count;
    uint32_t step_count;
    uint32_t *ids; /* prompt_count + step_count: prompt and continuation */
    struct greedy_step *steps;
};

/* The number of cases; *cases_out is freed by greedy_free. */
uint32_t greedy_read(struct greedy_case **cases_out);
void greedy_free(struct greedy_case *cases, uint32_t count);

/* What one row of logits says about a step. */
struct greedy_compared {
    uint32_t best;    /* the most likely token, lowest id on a tie */
    double error_max; /* the largest |difference| among the step's five log-probabilities */
    double errors[GREEDY_TOP];
};

void greedy_compare(const struct greedy_step *step, const float *logits, uint32_t vocab,
                    struct greedy_compared *out);

#endif
