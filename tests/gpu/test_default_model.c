/* Goal: on a GPU the default model gives the greedy tokens of the reference, except at
 * ties, and log-probabilities within 0.05 of fp32's.
 *
 * Method: the first cases of tests/data/model/greedy.json (another engine, fp32), teacher
 * forced: the prompt in one batch, then some of the answer's tokens one at a time, the third of
 * which and all later ones are a recorded step. Arguments: device, how many cases (0: all) and how
 * many tokens of each answer (0: all): an emulated device takes a second a token. */
#include "model/file/model_file.h"
#include "tests/check.h"
#include "tests/gpu/device_model.h"
#include "tests/model/forward/greedy.h"

#include <math.h>

#define BLOCK_TOKENS 16
#define BLOCKS       64
#define ROWS_MAX     512
#define TOLERANCE    0.05

struct found {
    uint32_t steps;
    uint32_t others; /* Tokens that differ from the reference's; all of them are ties. */
    double worst;
};

static void compare(const struct greedy_case *c, uint32_t step, const float *logits, uint32_t vocab,
                    struct found *found)
{
    struct greedy_compared compared;
    uint32_t want = c->ids[c->prompt_count + step];
    greedy_compare(&c->steps[step], logits, vocab, &compared);
    CHECKF(compared.error_max <= TOLERANCE, "step %u: log-probabilities off by %g", step,
           compared.error_max);
    if (compared.best != want) {
        CHECKF(logits[compared.best] - logits[want] < TOLERANCE, "step %u: %u, want %u", step,
               compared.best, want);
        found->others++;
    }
    found->worst = fmax(found->worst, compared.error_max);
    found->steps++;
}

static void run_case(struct forward *f, const struct device_model *m, const struct greedy_case *c,
                     uint32_t steps, struct found *found)
{
    uint32_t blocks[BLOCKS];
    const float *logits;
    for (uint32_t i = 0; i < BLOCKS; i++)
        blocks[i] = (i * 7 + 3) % BLOCKS;
    CHECK(c->prompt_count <= ROWS_MAX && c->prompt_count + steps <= BLOCKS * BLOCK_TOKENS);
    for (uint32_t s = 0; s < steps; s++) {
        const uint32_t position = s == 0 ? 0 : c->prompt_count + s - 1;
        const uint32_t count = s == 0 ? c->prompt_count : 1, row = count - 1;
        const struct compute_sequence sequence = {
            .row_count = count, .first_position = position, .blocks = blocks};
        const struct forward_batch batch = {
            .token_ids = c->ids + position,
            .batch = {.row_count = count, .sequence_count = 1, .sequences = &sequence},
            .logits_rows = &row,
            .logits_count = 1,
        };
        forward_run(f, &batch, &m->kv, &logits);
        device_model_check(m);
        compare(c, s, logits, m->hyper->vocab, found);
    }
}

int main(int argc, char **argv)
{
    struct greedy_case *cases;
    struct model_file *file;
    struct device_model m;
    struct forward *f;
    struct error error = {0};
    struct found found = {0};
    CHECK(argc == 4);
    const uint32_t wanted = (uint32_t)atoi(argv[2]), tokens = (uint32_t)atoi(argv[3]);
    uint32_t count = greedy_read(&cases);
    uint32_t run = wanted > 0 && wanted < count ? wanted : count;
    CHECKF(model_file_open(test_model_path(), &file, &error) == ST_OK, "%s", error.text);
    const struct device_model_options options = {.device = argv[1],
                                                 .threads = 2,
                                                 .dtype = COMPUTE_KV_F16,
                                                 .block_tokens = BLOCK_TOKENS,
                                                 .block_count = BLOCKS,
                                                 .context_tokens = BLOCKS * BLOCK_TOKENS};
    device_model_open(file, &options, &m);
    printf("%s\n", m.ops->describe(m.compute));
    CHECKF(forward_open(m.model, ROWS_MAX, 1, &f, &error) == ST_OK, "%s", error.text);
    for (uint32_t i = 0; i < run; i++) {
        uint32_t steps = cases[i].step_count;
        run_case(f, &m, &cases[i], tokens > 0 && tokens < steps ? tokens : steps, &found);
    }
    printf("%u steps of %u cases, %u other tokens (ties), log-probabilities within %.4f\n",
           found.steps, run, found.others, found.worst);
    forward_close(f);
    device_model_close(&m);
    model_file_close(file);
    greedy_free(cases, count);
    return 0;
}
