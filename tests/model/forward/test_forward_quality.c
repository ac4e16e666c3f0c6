/* Goal: the engine as shipped is at least as close to fp32 as llama.cpp is with the same file, and
 * its exact mode is fp32. Method: teacher-forced over every case of
 * tests/data/model/greedy.json; per step the most likely token and the largest error of the
 * five log-probabilities. llama.cpp's figures are in that folder's README. */
#include "tests/check.h"
#include "tests/model/forward/engine.h"
#include "tests/model/forward/greedy.h"

#define ROWS_MAX         512
#define STEPS_MAX        1024
#define LLAMA_CPP_MEDIAN 0.16
#define LLAMA_CPP_P99    0.51
#define LLAMA_CPP_WORST  0.75
#define LLAMA_CPP_OTHER  (14.0 / 612.0) /* steps with another most likely token */
#define EXACT_TOLERANCE  0.001

struct figures {
    uint32_t steps;
    uint32_t other; /* another most likely token */
    double errors[STEPS_MAX];
};

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(const struct model_file *g, bool exact, const struct greedy_case *cases,
                    uint32_t count, struct figures *out)
{
    const struct engine_options options = {
        .threads = 2,
        .exact = exact,
        .dtype = exact ? COMPUTE_KV_F32 : COMPUTE_KV_I16,
        .block_tokens = 16,
        .block_count = ROWS_MAX / 16,
        .rows_max = ROWS_MAX,
        .logits_max = 64,
    };
    struct engine e;
    engine_open(g, &options, &e);
    out->steps = 0;
    out->other = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct greedy_case *c = &cases[i];
        CHECK(c->step_count <= 64 && c->prompt_count + c->step_count <= ROWS_MAX);
        const float *logits =
            engine_run(&e, c->ids, c->prompt_count + c->step_count - 1, 0, c->prompt_count - 1);
        for (uint32_t s = 0; s < c->step_count; s++) {
            struct greedy_compared compared;
            greedy_compare(&c->steps[s], logits + (size_t)s * e.hyper->vocab, e.hyper->vocab,
                           &compared);
            if (compared.best != c->ids[c->prompt_count + s])
                out->other++;
            CHECK(out->steps < STEPS_MAX);
            out->errors[out->steps++] = compared.error_max;
        }
    }
    engine_close(&e);
    qsort(out->errors, out->steps, sizeof(out->errors[0]), by_value);
}

static void print(const char *what, const struct figures *f)
{
    printf("%s: %u steps, %u with another most likely token; largest error of a step's top 5: "
           "median %.5f, P99 %.5f, worst %.5f\n",
           what, f->steps, f->other, f->errors[f->steps / 2], f->errors[f->steps * 99 / 100],
           f->errors[f->steps - 1]);
}

int main(void)
{
    static struct figures figures;
    struct greedy_case *cases;
    struct model_file *g;
    struct error error = {0};
    uint32_t count = greedy_read(&cases);
    CHECKF(model_file_open(test_model_path(), &g, &error) == ST_OK, "%s", error.text);
    measure(g, true, cases, count, &figures);
    print("exact, KV F32", &figures);
    CHECK(figures.other == 0);
    CHECK(figures.errors[figures.steps - 1] <= EXACT_TOLERANCE);

    measure(g, false, cases, count, &figures);
    print("as shipped", &figures);
    CHECK(figures.errors[figures.steps - 1] <= LLAMA_CPP_WORST);
    CHECK(figures.other <= LLAMA_CPP_OTHER * figures.steps);
    CHECK(figures.errors[figures.steps / 2] <= LLAMA_CPP_MEDIAN);
    CHECK(figures.errors[figures.steps * 99 / 100] <= LLAMA_CPP_P99);
    model_file_close(g);
    greedy_free(cases, count);
    return 0;
}
