/* Goal: the default model with E4M3 weights in its layers gives nearly the same log-probabilities
 * on a GPU as the same weights in fp32: measures the difference for likely tokens, with activations
 * in E4M3 and in bf16. docs/gpu.md quotes the printed numbers.
 *
 * Method: the default model as F32, written with E4M3 weights and a scale a row, and once more with
 * those multiplied out, which the CPU computes in exact mode. Prompts and answers of
 * tests/data/model/greedy.json, up to 40 tokens of each in one batch; the last rows' most likely
 * tokens.
 * Arguments: device, how many prompts. */
#include "model/file/model_file.h"
#include "tests/check.h"
#include "tests/gpu/device_model.h"
#include "tests/model/file/file_gguf.h"
#include "tests/model/file/folder_writer.h"
#include "tests/model/forward/greedy.h"

#include <math.h>
#include <string.h>

#define BLOCK_TOKENS 16
#define BLOCKS       3
#define ROWS_MAX     40
#define ROWS         8 /* The last rows of each prompt. */
#define TOP          5

struct running {
    struct device_model m;
    struct forward *f;
};

static void running_open(const struct model_file *file, const char *device, bool exact,
                         struct running *out)
{
    const struct device_model_options options = {.device = device,
                                                 .threads = 2,
                                                 .exact = exact,
                                                 .dtype = exact ? COMPUTE_KV_F32 : COMPUTE_KV_F16,
                                                 .block_tokens = BLOCK_TOKENS,
                                                 .block_count = BLOCKS,
                                                 .context_tokens = BLOCK_TOKENS * BLOCKS};
    struct error error = {0};
    device_model_open(file, &options, &out->m);
    CHECKF(forward_open(out->m.model, ROWS_MAX, ROWS, &out->f, &error) == ST_OK, "%s", error.text);
}

static void running_close(struct running *r)
{
    forward_close(r->f);
    device_model_close(&r->m);
}

static uint32_t length(const struct greedy_case *c)
{
    const uint32_t all = c->prompt_count + c->step_count;
    return all < ROWS_MAX ? all : ROWS_MAX;
}

/* Returns the logits of the last ROWS rows. */
static void prompt_run(const struct running *r, const struct greedy_case *c, float *out)
{
    uint32_t blocks[BLOCKS], rows[ROWS];
    const float *logits;
    for (uint32_t i = 0; i < BLOCKS; i++)
        blocks[i] = i;
    for (uint32_t i = 0; i < ROWS; i++)
        rows[i] = length(c) - ROWS + i;
    const struct compute_sequence sequence = {.row_count = length(c), .blocks = blocks};
    const struct forward_batch batch = {
        .token_ids = c->ids,
        .batch = {.row_count = length(c), .sequence_count = 1, .sequences = &sequence},
        .logits_rows = rows,
        .logits_count = ROWS,
    };
    forward_run(r->f, &batch, &r->m.kv, &logits);
    r->m.ops->wait(r->m.compute);
    device_model_check(&r->m);
    memcpy(out, logits, (size_t)ROWS * r->m.hyper->vocab * sizeof(float));
}

static double log_sum(const float *logits, uint32_t vocab)
{
    double sum = 0, top = (double)logits[0];
    for (uint32_t i = 1; i < vocab; i++)
        top = fmax(top, (double)logits[i]);
    for (uint32_t i = 0; i < vocab; i++)
        sum += exp((double)logits[i] - top);
    return top + log(sum);
}

struct found {
    uint32_t count;  /* tokens */
    uint32_t others; /* Rows whose most likely token differs. */
    double sum, worst;
};

/* Compares the TOP most likely tokens of `want`. */
static void compare(const float *got, const float *want, uint32_t vocab, struct found *found)
{
    const double mine = log_sum(got, vocab), right = log_sum(want, vocab);
    double below = INFINITY;
    uint32_t first = 0;
    for (uint32_t i = 0; i < vocab; i++)
        first = got[i] > got[first] ? i : first;
    for (uint32_t k = 0; k < TOP; k++) {
        uint32_t best = vocab;
        for (uint32_t i = 0; i < vocab; i++)
            if ((double)want[i] < below && (best == vocab || want[i] > want[best]))
                best = i;
        below = (double)want[best];
        double error = fabs((double)got[best] - mine - ((double)want[best] - right));
        found->others += k == 0 && first != best;
        found->sum += error;
        found->worst = fmax(found->worst, error);
        found->count++;
    }
}

static struct model_file *folder_open_of(const struct model_file *gguf, bool undone)
{
    const struct folder_writer options = {.f8 = FOLDER_F8_ROW, .f8_undone = undone};
    char path[] = "/tmp/cleave-f8-XXXXXX";
    struct model_file *file = NULL;
    struct error error = {0};
    CHECK(mkdtemp(path) != NULL);
    folder_write(gguf, &options, path);
    enum status status = model_file_open(path, &file, &error);
    folder_remove(path); /* The mappings stay valid. */
    CHECKF(status == ST_OK, "%s", error.text);
    return file;
}

static void check(const char *what, const struct model_file *file, const char *device,
                  const struct greedy_case *cases, uint32_t prompts, const float *want,
                  double limit)
{
    struct running r;
    struct found found = {0};
    running_open(file, device, false, &r);
    const size_t row = r.m.hyper->vocab;
    float *got = malloc(ROWS * row * sizeof(float));
    CHECK(got != NULL);
    for (uint32_t i = 0; i < prompts; i++) {
        prompt_run(&r, &cases[i], got);
        for (uint32_t k = 0; k < ROWS; k++)
            compare(got + k * row, want + (i * ROWS + k) * row, (uint32_t)row, &found);
    }
    printf("%-16s %u prompts, %u rows: log-probabilities within %.3f, %.4f in the mean, %u other "
           "tokens\n",
           what, prompts, prompts * ROWS, found.worst, found.sum / found.count, found.others);
    CHECK(found.worst < limit);
    free(got);
    running_close(&r);
}

int main(int argc, char **argv)
{
    struct greedy_case *cases;
    struct model_file *given, *gguf, *f8, *undone;
    struct running cpu;
    struct error error = {0};
    size_t bytes;
    CHECK(argc == 3);
    const uint32_t prompts = (uint32_t)atoi(argv[2]), count = greedy_read(&cases);
    CHECK(prompts > 0 && prompts <= count);
    CHECKF(model_file_open(test_model_path(), &given, &error) == ST_OK, "%s", error.text);
    uint8_t *image = gguf_retype(file_gguf(given), COMPUTE_F32, &bytes);
    model_file_close(given);
    CHECKF(model_file_open_memory(image, bytes, "twin", &gguf, &error) == ST_OK, "%s", error.text);
    f8 = folder_open_of(gguf, false);
    undone = folder_open_of(gguf, true);
    model_file_close(gguf);
    free(image);
    running_open(undone, "cpu", true, &cpu);
    const size_t row = cpu.m.hyper->vocab;
    float *want = malloc((size_t)prompts * ROWS * row * sizeof(float));
    CHECK(want != NULL);
    for (uint32_t i = 0; i < prompts; i++)
        prompt_run(&cpu, &cases[i], want + (size_t)i * ROWS * row);
    running_close(&cpu);
    model_file_close(undone);
    check("CPU", f8, "cpu", cases, prompts, want, 0.25);
    setenv("CLEAVE_CUDA_F8", "0", 1);
    check("GPU, bf16", f8, argv[1], cases, prompts, want, 0.25);
    setenv("CLEAVE_CUDA_F8", "1", 1);
    check("GPU, E4M3", f8, argv[1], cases, prompts, want, 2);
    free(want);
    model_file_close(f8);
    greedy_free(cases, count);
    return 0;
}
