/* bench_synthetic: not a test. For each weight type, or the named ones, models with random weights
 * and shapes like SmolLM2-135M's (8 layers, 768 wide instead of 576, because K-quants need
 * multiples of 256) and Llama 3.2 1B's (4 layers), with vocabularies of 32,000: tokens/s of a
 * prompt, of one stream and of 8 streams, and the weights that they read. The last type is a
 * mixture: q4_k_m is Q4_K with Q6_K for values, down and vocabulary. Usage: bench_synthetic
 * [threads[xranks]] [TYPE…]; with ranks, this number of processes shares the model. */
#include "tests/check.h"
#include "tests/model/forward/engine.h"
#include "tests/model/forward/synthetic.h"

#include <string.h>
#include <strings.h>

#define PROMPT_TOKENS 252
#define STREAMS       8
#define REPEATS       7

static const struct {
    const char *name;
    uint32_t layers, hidden, ffn, heads, kv_heads;
} shapes[] = {
    {"like SmolLM2, 8 layers", 8, 768, 1536, 12, 4},
    {"like Llama 1B, 4 layers", 4, 2048, 8192, 32, 8},
};

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Best time of a pass with `sequences` of `rows` rows each; logits of each one's last row. */
static double pass(struct engine *e, uint32_t sequences, uint32_t rows)
{
    uint32_t blocks[STREAMS][PROMPT_TOKENS / 16 + 1], ids[PROMPT_TOKENS + STREAMS], last[STREAMS];
    struct compute_sequence sequence[STREAMS];
    const uint32_t each = (rows + 15) / 16;
    const float *logits;
    double best = 1e9;
    CHECK(sequences * each <= e->block_count && sequences * rows <= PROMPT_TOKENS + STREAMS);
    for (uint32_t s = 0; s < sequences; s++) {
        for (uint32_t i = 0; i < each; i++)
            blocks[s][i] = s * each + i;
        sequence[s] = (struct compute_sequence){
            .first_row = s * rows, .row_count = rows, .blocks = blocks[s]};
        last[s] = (s + 1) * rows - 1;
    }
    for (uint32_t i = 0; i < sequences * rows; i++)
        ids[i] = i * 37 % e->hyper->vocab;
    const struct forward_batch batch = {
        .token_ids = ids,
        .batch = {.row_count = sequences * rows,
                  .sequence_count = sequences,
                  .sequences = sequence},
        .logits_rows = last,
        .logits_count = sequences,
    };
    for (int i = 0; i < REPEATS; i++) {
        double begin = now_s();
        engine_forward(e, &batch, &logits);
        double time = now_s() - begin;
        best = time < best ? time : best;
    }
    return best;
}

struct run {
    const char *name;
    size_t shape, bytes;
    uint32_t threads;
    const struct model_file *file;
};

static void measure(struct ranks *r, void *context)
{
    const struct run *run = context;
    struct engine e;
    const struct engine_options options = {.threads = run->threads,
                                           .dtype = COMPUTE_KV_F16,
                                           .block_tokens = 16,
                                           .block_count = 32,
                                           .rows_max = PROMPT_TOKENS + STREAMS,
                                           .logits_max = STREAMS,
                                           .group = r};
    double begin = now_s();
    engine_open(run->file, &options, &e);
    double load = now_s() - begin;
    double prompt = pass(&e, 1, PROMPT_TOKENS), one = pass(&e, 1, 1), eight = pass(&e, STREAMS, 1);
    if (r == NULL || r->rank == 0)
        printf("%-6s %-23s prompt %7.0f  one %6.0f  eight %7.0f tokens/s   %6.1f GB/s of %5.1f "
               "MB, file %5.1f MB, loaded in %.2f s\n",
               run->name, shapes[run->shape].name, PROMPT_TOKENS / prompt, 1 / one, STREAMS / eight,
               (double)model_weight_bytes(e.models[0]) / one * 1e-9,
               (double)model_weight_bytes(e.models[0]) * 1e-6, (double)run->bytes * 1e-6, load);
    fflush(stdout);
    engine_close(&e);
}

static void bench(uint32_t threads, uint32_t ranks, size_t shape, const char *name,
                  enum compute_type type, enum compute_type v_type, enum compute_type end_type)
{
    struct synthetic s = synthetic_default();
    struct run run = {.name = name, .shape = shape, .threads = threads};
    struct error error = {0};
    struct model_file *g;
    s.layers = shapes[shape].layers;
    s.hidden = shapes[shape].hidden;
    s.ffn = shapes[shape].ffn;
    s.heads = shapes[shape].heads;
    s.kv_heads = shapes[shape].kv_heads;
    s.vocab = 32000;
    s.type = type;
    s.v_type = v_type;
    s.end_type = end_type;
    uint8_t *image = synthetic_image(&s, &run.bytes);
    CHECKF(model_file_open_memory(image, run.bytes, name, &g, &error) == ST_OK, "%s", error.text);
    run.file = g;
    if (ranks > 1)
        ranks_run(ranks, measure, &run);
    else
        measure(NULL, &run);
    model_file_close(g);
    free(image);
}

static bool wanted(int argc, char **argv, const char *name)
{
    bool all = argc < 3;
    for (int i = 2; i < argc; i++)
        all = all || strcasecmp(argv[i], name) == 0;
    return all;
}

int main(int argc, char **argv)
{
    uint32_t threads = 1, ranks = 1;
    if (argc > 1)
        CHECK(sscanf(argv[1], "%" SCNu32 "x%" SCNu32, &threads, &ranks) >= 1);
    for (size_t shape = 0; shape < sizeof(shapes) / sizeof(shapes[0]); shape++) {
        for (int i = 0; i < COMPUTE_GGUF_COUNT; i++) {
            enum compute_type type = (enum compute_type)i;
            if (wanted(argc, argv, compute_type_name(type)))
                bench(threads, ranks, shape, compute_type_name(type), type, type, type);
        }
        if (wanted(argc, argv, "q4_k_m"))
            bench(threads, ranks, shape, "q4_k_m", COMPUTE_Q4_K, COMPUTE_Q6_K, COMPUTE_Q6_K);
    }
    return 0;
}
