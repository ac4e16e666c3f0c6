/* Goal: bench-engine's limits count the work that a model requires, and its samples survive their
 * file. Method: the default model's shape on a machine with round numbers, compared with figures
 * computed by hand (a token costs 0.2123 Gop in the layers and 69 kFLOP per token of context, and
 * reads 23.4 kB per token of context). Results are written, read back twice, and printed. */
#include "bench/engine_bound.h"
#include "bench/engine_results.h"
#include "tests/check.h"
#include "tests/scarce_memory.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

#define WEIGHT_BYTES 100000000

static const struct model_hyper hyper = {.layer_count = 30,
                                         .hidden = 576,
                                         .ffn = 1536,
                                         .head_count = 9,
                                         .kv_head_count = 3,
                                         .head_dim = 64,
                                         .vocab = 49152};

static struct roofline machine(double dot, double attention, double memory)
{
    struct roofline roofline = {0};
    roofline.rates[ENGINE_BOUND_ATTENTION] = attention;
    roofline.rates[ROOFLINE_INT8] = dot;
    roofline.rates[ROOFLINE_MEMORY] = memory;
    return roofline;
}

static void check_near(double got, double want)
{
    CHECKF(fabs(got / want - 1) < 0.001, "%.9g, want %.9g", got, want);
}

/* One sequence at depth 1024: all weights, and K and V of 1024 to 1055 tokens (1039.5 on average)
 * and one more. */
static void check_memory(void)
{
    const struct engine_case c = {.streams = 1, .depth_tokens = 1024};
    const struct roofline roofline = machine(1e15, 1e15, 1e9);
    struct engine_bound bound = engine_bound_of(&hyper, WEIGHT_BYTES, &roofline, &c);
    double bytes = WEIGHT_BYTES + 23400.0 * (1024 + 15.5 + 1);
    CHECK(bound.memory_bound);
    check_near(bound.tokens_a_second, 1e9 / bytes);
    check_near(bound.weights_share, WEIGHT_BYTES / bytes);
}

/* Of 64,000 weights a layer and its share of the vocabulary, 49,152 belong to 8 experts. One row
 * chooses 2 of them, and of two rows at least one chooses an expert with probability 7/16. */
static void check_experts(void)
{
    const struct model_hyper h = {.layer_count = 2,
                                  .hidden = 64,
                                  .head_count = 2,
                                  .kv_head_count = 1,
                                  .head_dim = 32,
                                  .vocab = 64,
                                  .experts = {.count = 8, .used = 2, .ffn = 32}};
    const struct roofline roofline = machine(1e15, 1e15, 1e9);
    struct engine_case c = {.streams = 1};
    const double cached = 2 * (2 * 32 * 2 + 4) * (1 + 15.5);
    struct engine_bound bound = engine_bound_of(&h, 64000000, &roofline, &c);
    check_near(bound.tokens_a_second, 1e9 / (1000 * (14848 + 49152 / 4.0) + cached));
    c.streams = 2;
    bound = engine_bound_of(&h, 64000000, &roofline, &c);
    check_near(bound.tokens_a_second, 2e9 / (1000 * (14848 + 49152 * 7 / 16.0) + 2 * cached));
}

/* 32 sequences at depth 0: matrices and vocabulary for each, attention over 1 to 32 tokens. */
static void check_streams(void)
{
    const struct engine_case c = {.streams = 32};
    const struct roofline roofline = machine(1e12, 1e11, 1e15);
    struct engine_bound bound = engine_bound_of(&hyper, WEIGHT_BYTES, &roofline, &c);
    double matrices = (212336640 + 2.0 * 576 * 49152) / 1e12, attention = 69120 * 16.5 / 1e11;
    CHECK(!bound.memory_bound);
    check_near(bound.tokens_a_second, 1 / (matrices + attention));
    check_near(bound.weights_share, matrices / (matrices + attention));
}

/* A prompt of 512 tokens: the last layer computes only K and V, except for the last token, which
 * is also multiplied with the vocabulary. */
static void check_prompt(void)
{
    const struct engine_case c = {.prompt_tokens = 512};
    const struct roofline roofline = machine(1e12, 1e11, 1e15);
    struct engine_bound bound = engine_bound_of(&hyper, WEIGHT_BYTES, &roofline, &c);
    double layer = 212336640 / 30.0, kv = 2 * 2.0 * 576 * 192;
    double matrices = 512 * (29 * layer + kv) + layer - kv + 2.0 * 576 * 49152;
    double attention = 69120 / 30.0 * (512 * 29 * 256.5 + 512);
    check_near(bound.tokens_a_second, 512 / (matrices / 1e12 + attention / 1e11));
}

static void check_unknown(void)
{
    const struct engine_case c = {.prompt_tokens = 512};
    const struct roofline roofline = machine(0, 0, 1e9);
    CHECK(engine_bound_of(&hyper, WEIGHT_BYTES, &roofline, &c).tokens_a_second == 0);
}

static struct engine_results *results_open(void)
{
    struct engine_results *results;
    CHECK(engine_results_open(&results) == ST_OK);
    return results;
}

/* Returns the printed text for three samples of the first case, with one thread. */
static char *printed(const struct engine_results *results, const struct engine_results *before)
{
    char *text;
    size_t size;
    FILE *file = open_memstream(&text, &size);
    CHECK(file != NULL);
    engine_results_print(results, before, 1, &hyper, WEIGHT_BYTES, file);
    fclose(file);
    return text;
}

static void check_file(const char *path)
{
    struct error error = {0};
    struct engine_results *results = results_open(), *again = results_open();
    const double rates[] = {1200, 1000, 1400};
    for (int i = 0; i < 3; i++) {
        const struct engine_sample sample = {.tokens_a_second = rates[i],
                                             .roofline = machine(1e12, 1e11, 1e10)};
        CHECK(engine_results_add(results, &engine_cases[0], 1, &sample) == ST_OK);
    }
    CHECK(engine_results_write(results, path, &error) == ST_OK);
    CHECK(engine_results_read(again, path, &error) == ST_OK);
    char *first = printed(results, NULL), *second = printed(again, NULL);
    CHECKF(strcmp(first, second) == 0, "\n%s\n%s", first, second);
    CHECKF(strstr(first, "2900 |   1200 | 1000-1400 |") != NULL, "\n%s", first);
    free(second);
    second = printed(again, results);
    CHECKF(strstr(second, "1200 |       1.00 |") != NULL, "\n%s", second);
    CHECK(engine_results_read(again, path, &error) == ST_OK); /* There are six samples now. */
    free(second);
    second = printed(again, NULL);
    CHECKF(strcmp(first, second) == 0, "\n%s\n%s", first, second);
    free(first);
    free(second);
    engine_results_close(results);
    engine_results_close(again);
}

static void check_broken_file(const char *path, const char *text)
{
    struct error error = {0};
    struct engine_results *results = results_open();
    FILE *file = fopen(path, "w");
    CHECK(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
    CHECK(engine_results_read(results, path, &error) == ST_INVALID);
    CHECKF(strstr(error.text, path) != NULL, "%s", error.text);
    engine_results_close(results);
}

static char path[] = "/tmp/cleave-bench-XXXXXX";

static enum status wrong_end_read(struct error *error)
{
    struct engine_results *results = results_open();
    enum status status = engine_results_read(results, path, error);
    engine_results_close(results);
    return status;
}

/* The file is not to blame if there is no memory for the JSON tree. It is wrong at its end. */
static void check_no_memory(void)
{
    struct error error = {""};
    uint32_t count;
    FILE *file = fopen(path, "w");
    CHECK(file != NULL && fputs("{\"engine\": [1, \"a\"]} 7", file) >= 0 && fclose(file) == 0);
    CHECK(scarce_calls(wrong_end_read, &count, &error) == ST_INVALID && count > 5);
    CHECKF(strstr(error.text, ":1: end of file expected") != NULL, "%s", error.text);
}

int main(void)
{
    int fd = mkstemp(path);
    CHECK(fd >= 0);
    close(fd);
    check_memory();
    check_experts();
    check_streams();
    check_prompt();
    check_unknown();
    check_file(path);
    check_broken_file(path, "{\"engine\": ");
    check_broken_file(path, "{\"server\": {}}");
    check_no_memory();
    unlink(path);
    return 0;
}
