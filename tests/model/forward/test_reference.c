/* Goal: the plain fp32 pass that other tests rely on is right. Method: teacher-forced over every
 * case of tests/data/model/greedy.json (made by another engine in fp32); the most likely
 * token is equal at every step, and the five log-probabilities are within 0.001. */
#include "model/file/model_file.h"
#include "tests/check.h"
#include "tests/model/file/file_gguf.h"
#include "tests/model/forward/greedy.h"
#include "tests/model/forward/reference.h"

#define TOLERANCE 0.001

int main(void)
{
    struct greedy_case *cases;
    struct model_file *g;
    struct error error = {0};
    uint32_t count = greedy_read(&cases);
    uint32_t steps = 0;
    double worst = 0;
    CHECKF(model_file_open(test_model_path(), &g, &error) == ST_OK, "%s", error.text);
    struct reference *r = reference_open(file_gguf(g));
    uint32_t vocab = reference_vocab(r);
    float *logits = malloc((size_t)vocab * 64 * sizeof(float));
    CHECK(logits != NULL);
    for (uint32_t i = 0; i < count; i++) {
        const struct greedy_case *c = &cases[i];
        CHECK(c->step_count <= 64);
        reference_run(r, c->ids, c->prompt_count + c->step_count - 1, c->prompt_count - 1, logits);
        for (uint32_t s = 0; s < c->step_count; s++) {
            struct greedy_compared compared;
            greedy_compare(&c->steps[s], logits + (size_t)s * vocab, vocab, &compared);
            CHECKF(compared.best == c->ids[c->prompt_count + s], "case %u step %u: %u, want %u", i,
                   s, compared.best, c->ids[c->prompt_count + s]);
            CHECKF(compared.error_max <= TOLERANCE, "case %u step %u: off by %g", i, s,
                   compared.error_max);
            worst = compared.error_max > worst ? compared.error_max : worst;
        }
        steps += c->step_count;
    }
    printf("%u steps, largest difference of a log-probability %.6f\n", steps, worst);
    free(logits);
    reference_close(r);
    model_file_close(g);
    greedy_free(cases, count);
    return 0;
}
