/* Goal: a model of another family runs correctly: Gemma 3 270M, Q4_K_M (i.e. Q5_0, Q4_K, Q6_K and
 * Q8_0), with a SentencePiece vocabulary, norms of heads, post norms and two rotary embeddings.
 * Method: the file that scripts/fetch-gemma.sh makes, named by CLEAVE_GEMMA (skipped without it).
 * The exact mode equals the plain fp32 reference over a text, and the engine as shipped predicts
 * the text as well. The perplexity is that of a working model (20.6; with SiLU instead of GELU it
 * is 50, with one rotary base 76). */
#include "tests/check.h"
#include "tests/model/file/file_gguf.h"
#include "tests/model/forward/engine.h"
#include "tests/model/forward/reference.h"

#include "model/text/tokenizer.h"

#include <math.h>
#include <string.h>

#define TEXT_BYTES     1500
#define COMPARED       64 /* tokens that the reference, which is slow, computes */
#define PERPLEXITY_MAX 25.0

static uint32_t *read_ids(struct model_file *g, uint32_t *count_out)
{
    char path[1024], text[TEXT_BYTES];
    const char *source = getenv("CLEAVE_SOURCE");
    const struct tokenizer_encode_options options = {.add_bos = true};
    struct error error = {0};
    struct tokenizer *t;
    uint32_t *ids = NULL;
    size_t capacity = 0, count;
    snprintf(path, sizeof(path), "%s/tests/data/english.txt", source != NULL ? source : ".");
    FILE *file = fopen(path, "rb");
    CHECKF(file != NULL, "%s", path);
    CHECK(fread(text, 1, sizeof(text), file) == sizeof(text));
    fclose(file);
    CHECKF(tokenizer_open(g, &t, &error) == ST_OK, "%s", error.text);
    CHECKF(tokenizer_encode(t, text, sizeof(text), &options, &ids, &capacity, &count, &error) ==
               ST_OK,
           "%s", error.text);
    tokenizer_close(t);
    *count_out = (uint32_t)count;
    return ids;
}

static double perplexity(const float *logits, uint32_t vocab, const uint32_t *ids, uint32_t count)
{
    double sum = 0;
    for (uint32_t i = 0; i + 1 < count; i++, logits += vocab) {
        double most = -INFINITY, total = 0;
        for (uint32_t k = 0; k < vocab; k++)
            most = logits[k] > most ? logits[k] : most;
        for (uint32_t k = 0; k < vocab; k++)
            total += exp(logits[k] - most);
        sum += most + log(total) - logits[ids[i + 1]];
    }
    return exp(sum / (count - 1));
}

static void open_engine(struct model_file *g, bool exact, struct engine *out)
{
    const struct engine_options options = {
        .threads = 2,
        .exact = exact,
        .dtype = exact ? COMPUTE_KV_F32 : COMPUTE_KV_F16,
        .block_tokens = 16,
        .block_count = 32,
        .rows_max = 512,
        .logits_max = 512,
    };
    engine_open(g, &options, out);
}

int main(void)
{
    const char *path = getenv("CLEAVE_GEMMA");
    struct model_file *g;
    struct engine e;
    struct error error = {0};
    uint32_t count;
    if (path == NULL)
        test_skip("CLEAVE_GEMMA names no file (scripts/fetch-gemma.sh makes one)");
    CHECKF(model_file_open(path, &g, &error) == ST_OK, "%s", error.text);
    uint32_t *ids = read_ids(g, &count);
    CHECK(count > COMPARED && count <= 512);

    struct reference *r = reference_open(file_gguf(g));
    uint32_t vocab = reference_vocab(r);
    float *wanted = malloc((size_t)COMPARED * vocab * sizeof(float));
    CHECK(wanted != NULL);
    reference_run(r, ids, COMPARED, 0, wanted);
    reference_close(r);
    open_engine(g, true, &e);
    const float *logits = engine_run(&e, ids, count, 0, 0);
    double apart = reference_distance(logits, wanted, (size_t)COMPARED * vocab);
    double exact = perplexity(logits, vocab, ids, count);
    engine_close(&e);
    free(wanted);

    open_engine(g, false, &e);
    logits = engine_run(&e, ids, count, 0, 0);
    double shipped = perplexity(logits, vocab, ids, count);
    engine_close(&e);
    printf("%u tokens: exact is %.1e from the reference, perplexity %.3f; as shipped %.3f\n", count,
           apart, exact, shipped);
    CHECK(apart < 1e-4);
    CHECK(exact < PERPLEXITY_MAX);
    CHECK(fabs(shipped / exact - 1) < 0.03); /* few tokens: a standard error of about 1 % */
    free(ids);
    model_file_close(g);
    return 0;
}
