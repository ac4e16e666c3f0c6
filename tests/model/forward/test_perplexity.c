/* Goal: the CPU engine's rounding (8-bit activations, i16 KV) does not change how well the default
 * model predicts a text: its perplexity stays within 1 % of fp32 arithmetic with the same weights.
 * Method: tests/data/english.txt (passages of nine authors, out of copyright) in windows of 512
 * tokens. In each window every token except the first is scored given the earlier ones, by the
 * engine as shipped and by its exact mode, which test_forward_synthetic and test_forward_quality
 * compare with fp32. */
#include "tests/check.h"
#include "tests/model/forward/engine.h"

#include "model/text/tokenizer.h"

#include <math.h>
#include <string.h>

#define WINDOW_TOKENS  512
#define RATIO_MAX      0.01 /* of perplexities, either way */
#define TEXT_BYTES_MAX 65536

static char *read_text(size_t *bytes_out)
{
    char path[1024];
    const char *source = getenv("CLEAVE_SOURCE");
    snprintf(path, sizeof(path), "%s/tests/data/english.txt", source != NULL ? source : ".");
    FILE *file = fopen(path, "rb");
    CHECKF(file != NULL, "%s", path);
    char *text = malloc(TEXT_BYTES_MAX);
    CHECK(text != NULL);
    *bytes_out = fread(text, 1, TEXT_BYTES_MAX, file);
    CHECK(*bytes_out > 0 && *bytes_out < TEXT_BYTES_MAX);
    fclose(file);
    return text;
}

static uint32_t *read_ids(struct model_file *g, size_t *count_out)
{
    struct tokenizer *t;
    struct error error = {0};
    const struct tokenizer_encode_options options = {.parse_special = false};
    uint32_t *ids = NULL;
    size_t bytes, capacity = 0;
    char *text = read_text(&bytes);
    CHECKF(tokenizer_open(g, &t, &error) == ST_OK, "%s", error.text);
    CHECKF(tokenizer_encode(t, text, bytes, &options, &ids, &capacity, count_out, &error) == ST_OK,
           "%s", error.text);
    tokenizer_close(t);
    free(text);
    return ids;
}

/* -ln of the probability of `id`. */
static double surprise(const float *logits, uint32_t vocab, uint32_t id)
{
    double most = -INFINITY, sum = 0;
    for (uint32_t i = 0; i < vocab; i++)
        most = logits[i] > most ? logits[i] : most;
    for (uint32_t i = 0; i < vocab; i++)
        sum += exp(logits[i] - most);
    return most + log(sum) - logits[id];
}

/* Surprise of each scored token; returns how many there are. */
static size_t score(struct model_file *g, bool exact, const uint32_t *ids, size_t count,
                    double *surprises)
{
    const struct engine_options options = {
        .threads = 2,
        .exact = exact,
        .dtype = exact ? COMPUTE_KV_F32 : COMPUTE_KV_I16,
        .block_tokens = 16,
        .block_count = WINDOW_TOKENS / 16,
        .rows_max = WINDOW_TOKENS,
        .logits_max = WINDOW_TOKENS,
    };
    struct engine e;
    size_t scored = 0;
    engine_open(g, &options, &e);
    for (size_t first = 0; first + 1 < count; first += WINDOW_TOKENS) {
        uint32_t rows = count - first < WINDOW_TOKENS ? (uint32_t)(count - first) : WINDOW_TOKENS;
        const float *logits = engine_run(&e, ids + first, rows, 0, 0);
        for (uint32_t i = 0; i + 1 < rows; i++)
            surprises[scored++] =
                surprise(logits + (size_t)i * e.hyper->vocab, e.hyper->vocab, ids[first + i + 1]);
    }
    engine_close(&e);
    return scored;
}

int main(void)
{
    struct model_file *g;
    struct error error = {0};
    size_t count;
    CHECKF(model_file_open(test_model_path(), &g, &error) == ST_OK, "%s", error.text);
    uint32_t *ids = read_ids(g, &count);
    double *exact = malloc(count * sizeof(double)), *shipped = malloc(count * sizeof(double));
    CHECK(exact != NULL && shipped != NULL);
    size_t scored = score(g, true, ids, count, exact);
    CHECK(score(g, false, ids, count, shipped) == scored);
    double sums[2] = {0, 0}, squares = 0;
    for (size_t i = 0; i < scored; i++) {
        sums[0] += exact[i];
        sums[1] += shipped[i];
        squares += (shipped[i] - exact[i]) * (shipped[i] - exact[i]);
    }
    double wanted = exp(sums[0] / (double)scored), got = exp(sums[1] / (double)scored);
    /* The ratio's own uncertainty: that of the mean difference of two surprises of a token. */
    double mean = (sums[1] - sums[0]) / (double)scored;
    double deviation = sqrt(squares / (double)scored - mean * mean);
    printf("%zu tokens scored: perplexity %.4f in fp32, %.4f as shipped: %+.3f %% (standard error "
           "%.3f %%)\n",
           scored, wanted, got, (got / wanted - 1) * 100, deviation / sqrt((double)scored) * 100);
    CHECK(fabs(got / wanted - 1) <= RATIO_MAX);
    free(exact);
    free(shipped);
    free(ids);
    model_file_close(g);
    return 0;
}
