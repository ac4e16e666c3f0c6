/* Goal: cleave's logits of a model are those of transformers. Method: a folder or GGUF file that
 * families.py has written, and the logits that transformers computed from the same weights in fp32;
 * the engine in exact mode and as shipped computes them in one batch, and token by token, and in
 * exact mode two ranks compute them.
 *
 * usage: family MODEL EXPECTED EXACT SHIPPED [DEVICE]     EXPECTED: see write_expected in
 * tiny_folder.py; then the largest errors allowed; DEVICE: as in a config */
#include "tests/check.h"
#include "tests/model/forward/engine.h"

#include <math.h>

#define NUMBERS_MAX 1024

static const char *device; /* NULL = the CPU. */

struct expected {
    uint32_t token_count, position_count, entry_count;
    uint32_t numbers[NUMBERS_MAX]; /* Token ids, then positions, then entries of the vocabulary. */
    float logits[NUMBERS_MAX * 8]; /* [position_count × entry_count] */
    double spread;                 /* Standard deviation of the logits. */
};

static void expected_read(const char *path, struct expected *out)
{
    FILE *file = fopen(path, "rb");
    double sum = 0, squares = 0;
    CHECKF(file != NULL, "%s", path);
    CHECK(fread(&out->token_count, sizeof(uint32_t), 1, file) == 1);
    CHECK(fread(&out->position_count, sizeof(uint32_t), 1, file) == 1);
    CHECK(fread(&out->entry_count, sizeof(uint32_t), 1, file) == 1);
    const size_t numbers = out->token_count + out->position_count + out->entry_count;
    const size_t count = (size_t)out->position_count * out->entry_count;
    CHECK(numbers <= NUMBERS_MAX && count <= NUMBERS_MAX * 8);
    CHECK(fread(out->numbers, sizeof(uint32_t), numbers, file) == numbers);
    CHECK(fread(out->logits, sizeof(float), count, file) == count && fgetc(file) == EOF);
    fclose(file);
    for (size_t i = 0; i < count; i++) {
        sum += (double)out->logits[i];
        squares += (double)out->logits[i] * (double)out->logits[i];
    }
    out->spread = sqrt(squares / (double)count - sum / (double)count * (sum / (double)count));
}

/* Returns the largest error at one position, in units of the logits' spread. */
static double error_at(const struct expected *x, uint32_t i, const float *logits)
{
    const uint32_t *entries = x->numbers + x->token_count + x->position_count;
    double most = 0;
    for (uint32_t e = 0; e < x->entry_count; e++) {
        double error = (double)logits[entries[e]] - (double)x->logits[i * x->entry_count + e];
        CHECKF(isfinite(error), "logit %u of position %u is not a number", entries[e], i);
        most = fmax(most, fabs(error));
    }
    return most / x->spread;
}

/* Computes the tokens in batches of `rows` and returns the largest error. */
static double run(const struct model_file *file, const struct expected *x, bool exact,
                  uint32_t rows, struct ranks *group)
{
    const struct engine_options options = {.device = device,
                                           .threads = 2,
                                           .group = group,
                                           .exact = exact,
                                           .dtype = exact ? COMPUTE_KV_F32 : COMPUTE_KV_I16,
                                           .block_tokens = 16,
                                           .block_count = (x->token_count + 15) / 16,
                                           .rows_max = rows,
                                           .logits_max = rows};
    const uint32_t *positions = x->numbers + x->token_count;
    double most = 0;
    struct engine e;
    engine_open(file, &options, &e);
    for (uint32_t first = 0, i = 0; first < x->token_count; first += rows) {
        const uint32_t left = x->token_count - first, count = left < rows ? left : rows;
        const float *logits = engine_run(&e, x->numbers + first, count, first, 0);
        for (; logits != NULL && i < x->position_count && positions[i] < first + count; i++)
            most = fmax(most,
                        error_at(x, i, logits + (size_t)(positions[i] - first) * e.hyper->vocab));
    }
    engine_close(&e);
    return most;
}

struct shared {
    const struct model_file *file;
    const struct expected *expected;
    double bound;
};

static void rank_main(struct ranks *group, void *context)
{
    const struct shared *shared = context;
    const double error =
        run(shared->file, shared->expected, true, shared->expected->token_count, group);
    if (group->rank == 0)
        printf("two ranks %.1e, ", error);
    fflush(stdout);
    CHECK(error <= shared->bound);
}

/* Computes with two ranks: on a GPU only where ranks norm rows together, because its other sums
 * have tests of their own (tests/gpu/test_group.c). */
static void ranks_check(const struct model_file *file, const struct expected *expected,
                        double bound)
{
    struct shared shared = {file, expected, bound};
    struct model_hyper hyper;
    struct model_shard shard;
    struct error error;
    CHECK(model_hyper_read(file, &hyper, &error) == ST_OK);
    if ((device == NULL || hyper.qk_norms == FAMILY_QK_WHOLE) &&
        model_shard_compute(&hyper, 0, 2, &shard, &error) == ST_OK)
        ranks_run(2, rank_main, &shared);
}

int main(int argc, char **argv)
{
    static struct expected expected;
    struct model_file *file;
    struct error error = {0};
    CHECK(argc == 5 || argc == 6);
    device = argv[5];
    expected_read(argv[2], &expected);
    CHECKF(model_file_open(argv[1], &file, &error) == ST_OK, "%s", error.text);
    ranks_check(file, &expected, strtod(argv[3], NULL));
    const double exact = run(file, &expected, true, expected.token_count, NULL);
    const double steps = run(file, &expected, true, 1, NULL);
    const double shipped = run(file, &expected, false, expected.token_count, NULL);
    printf("exact %.1e, token by token %.1e, as shipped %.1e\n", exact, steps, shipped);
    CHECK(exact <= strtod(argv[3], NULL) && steps <= strtod(argv[3], NULL));
    CHECK(shipped <= strtod(argv[4], NULL));
    model_file_close(file);
    return 0;
}
