/* greedy: the cases of tests/data/model/greedy.json: prompt, greedy continuation, and the five most
 * likely tokens of each step, computed in fp32. Tests that compute the default model read them on
 * their main thread and compare their own logits. It computes no model. A missing or wrong file
 * fails the test. */
#ifndef TESTS_MODEL_FORWARD_GREEDY_H
#define TESTS_MODEL_FORWARD_GREEDY_H

#include <stdint.h>

#define GREEDY_TOP 5

struct greedy_step {
    uint32_t ids[GREEDY_TOP]; /* Most likely first. */
    double logprobs[GREEDY_TOP];
};

struct greedy_case {
    uint32_t prompt_count;
    uint32_t step_count;
    uint32_t *ids; /* [prompt_count + step_count]: prompt and continuation. */
    struct greedy_step *steps;
};

/* Returns the number of cases. The caller frees *cases_out with greedy_free. */
uint32_t greedy_read(struct greedy_case **cases_out);
void greedy_free(struct greedy_case *cases, uint32_t count);

/* Comparison of one row of logits with a step. */
struct greedy_compared {
    uint32_t best;    /* The most likely token; the lowest id on a tie. */
    double error_max; /* The largest |difference| of the step's five log-probabilities. */
    double errors[GREEDY_TOP];
};

void greedy_compare(const struct greedy_step *step, const float *logits, uint32_t vocab,
                    struct greedy_compared *out);

#endif
