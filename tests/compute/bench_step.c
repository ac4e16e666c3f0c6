/* bench_step: not a test. Times the decode steps of a model of SmolLM2-135M's shape with random
 * Q4_1 weights and a Q8_0 vocabulary: everything except sampling. Usage: bench-compute-step
 * [threads] [repeats] [KV dtype: 0 f16, 1 f32, 2 i16, 3 i8] */
#include "common/clock.h"
#include "fixture.h"

#define LAYERS  30
#define WIDTH   576
#define HEADS   9
#define KV      3
#define DIM     64
#define FFN     1536
#define VOCAB   49152
#define CONTEXT 2304
#define ROWS    2048

static struct {
    struct compute *c;
    struct compute_matrix *q[LAYERS], *k[LAYERS], *v[LAYERS], *o[LAYERS], *gate[LAYERS],
        *up[LAYERS], *down[LAYERS], *vocab;
    struct compute_activations *narrow, *wide;
    struct compute_rope_table *rope;
    struct compute_kv kv[LAYERS];
    float *weight, *x, *yq, *yk, *yv, *ygate, *yup, *logits;
} model;

static double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

static double repack_ms;

static struct compute_matrix *matrix(enum compute_type type, uint32_t rows, uint32_t cols)
{
    uint8_t *weights = fixture_weights(type, rows, cols);
    double begin = now_ms();
    struct compute_matrix *m = fixture_matrix(model.c, type, rows, cols, weights);
    repack_ms += now_ms() - begin;
    free(weights);
    return m;
}

static void model_open(uint32_t threads, uint32_t blocks, enum compute_kv_dtype dtype)
{
    model.c = fixture_open(COMPUTE_ISA_AUTO, threads, false);
    for (int l = 0; l < LAYERS; l++) {
        model.q[l] = matrix(COMPUTE_Q4_1, WIDTH, WIDTH);
        model.k[l] = matrix(COMPUTE_Q4_1, KV * DIM, WIDTH);
        model.v[l] = matrix(COMPUTE_Q4_1, KV * DIM, WIDTH);
        model.o[l] = matrix(COMPUTE_Q4_1, WIDTH, WIDTH);
        model.gate[l] = matrix(COMPUTE_Q4_1, FFN, WIDTH);
        model.up[l] = matrix(COMPUTE_Q4_1, FFN, WIDTH);
        model.down[l] = matrix(COMPUTE_Q4_1, WIDTH, FFN);
        model.kv[l] = (struct compute_kv){.block_tokens = 16, .head_count = KV, .head_dim = DIM};
        model.kv[l].dtype = dtype;
        model.kv[l].block_bytes = compute_kv_block_bytes(16, KV, DIM, dtype);
        model.kv[l].base =
            aligned_alloc(4096, blocks * model.kv[l].block_bytes / 4096 * 4096 + 4096);
        /* Writes each page, so that pages do not share the kernel's page of zeros. */
        memset(model.kv[l].base, 0, blocks * model.kv[l].block_bytes);
    }
    model.vocab = matrix(COMPUTE_Q8_0, VOCAB, WIDTH);
    struct compute_rope rope = {
        .dim = DIM, .freq_base = 1e5f, .freq_scale = 1, .positions_max = CONTEXT};
    CHECK(OPS->rope_open(model.c, &rope, &model.rope) == ST_OK);
    CHECK(OPS->activations_open(model.c, ROWS, WIDTH, COMPUTE_NEEDS_Q8, &model.narrow) == ST_OK);
    CHECK(OPS->activations_open(model.c, ROWS, FFN, COMPUTE_NEEDS_Q8, &model.wide) == ST_OK);
    model.weight = fixture_floats(WIDTH);
    model.x = fixture_floats(ROWS * WIDTH);
    model.yq = fixture_floats(ROWS * WIDTH);
    model.yk = fixture_floats(ROWS * KV * DIM);
    model.yv = fixture_floats(ROWS * KV * DIM);
    model.ygate = fixture_floats(ROWS * FFN);
    model.yup = fixture_floats(ROWS * FFN);
    model.logits = fixture_floats((size_t)64 * VOCAB);
}

#define PARTS 6

static double part_ms[PARTS]; /* Times of the step that runs. */
/* Shortest times of all steps: other processes disturb these least. */
static double part_best[PARTS];

static void layer_run(int l, const struct compute_batch *batch)
{
    struct compute *c = model.c;
    uint32_t rows = batch->row_count;
    const struct compute_attention parameters = {.scale = 0.125f};
    double t[7];
    t[0] = now_ms();
    OPS->norm(c, model.x, NULL, rows, WIDTH, model.weight, 1e-5f, model.narrow);
    t[1] = now_ms();
    const struct compute_matrix *qkv[] = {model.q[l], model.k[l], model.v[l]};
    float *yqkv[] = {model.yq, model.yk, model.yv};
    OPS->matmul(c, qkv, NULL, 3, model.narrow, rows, yqkv);
    t[2] = now_ms();
    OPS->rope_store(c, model.rope, batch, &model.kv[l], HEADS, model.yq, model.yk, model.yv);
    t[3] = now_ms();
    OPS->attention(c, batch, &model.kv[l], HEADS, &parameters, model.yq, model.narrow);
    t[4] = now_ms();
    OPS->matmul_add(c, model.o[l], model.narrow, rows, model.x);
    double t_o = now_ms();
    OPS->norm(c, model.x, NULL, rows, WIDTH, model.weight, 1e-5f, model.narrow);
    double t_n = now_ms();
    const struct compute_matrix *ffn[] = {model.gate[l], model.up[l]};
    float *yffn[] = {model.ygate, model.yup};
    OPS->matmul(c, ffn, NULL, 2, model.narrow, rows, yffn);
    t[5] = now_ms();
    OPS->gate_mul(c, COMPUTE_SILU, model.ygate, model.yup, rows, FFN, model.wide);
    t[6] = now_ms();
    OPS->matmul_add(c, model.down[l], model.wide, rows, model.x);
    double t_end = now_ms();
    part_ms[0] += t[2] - t[1] + t_o - t[4] + t[5] - t_n + t_end - t[6];
    part_ms[1] += t[1] - t[0] + t_n - t_o;
    part_ms[2] += t[3] - t[2];
    part_ms[3] += t[4] - t[3];
    part_ms[4] += t[6] - t[5];
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Runs `sequences` of `rows` rows each at context `depth`, with logits of the last row of each, or
 * of all rows. Prints the tokens per second of the median run. */
static void step(const char *name, uint32_t sequences, uint32_t rows, uint32_t depth, int repeats,
                 bool all_logits)
{
    struct compute_sequence list[64];
    uint32_t ids[64 * CONTEXT / 16 * 2], last[64], id = 0, per = (depth + rows + 15) / 16;
    for (uint32_t s = 0; s < sequences; s++) {
        list[s] = (struct compute_sequence){
            .first_row = s * rows, .row_count = rows, .first_position = depth, .blocks = ids + id};
        for (uint32_t b = 0; b < per; b++, id++)
            ids[id] = id;
        last[s] = (s + 1) * rows - 1;
    }
    for (uint32_t row = 0; all_logits && row < rows; row++)
        last[row] = row;
    const uint32_t logits = all_logits ? rows : sequences;
    struct compute_batch batch = {
        .row_count = sequences * rows, .sequence_count = sequences, .sequences = list};
    double times[200];
    for (int i = 0; i < PARTS; i++)
        part_best[i] = 1e9;
    for (int i = 0; i < repeats; i++) {
        memset(part_ms, 0, sizeof(part_ms));
        for (uint32_t k = 0; k < batch.row_count * WIDTH; k++)
            model.x[k] = (float)(k % 97) * 0.01f;
        double begin = now_ms();
        for (int l = 0; l < LAYERS; l++)
            layer_run(l, &batch);
        double vocab = now_ms();
        OPS->norm(model.c, model.x, last, logits, WIDTH, model.weight, 1e-5f, model.narrow);
        const struct compute_matrix *head[] = {model.vocab};
        OPS->matmul(model.c, head, NULL, 1, model.narrow, logits, &model.logits);
        times[i] = now_ms() - begin;
        part_ms[5] = now_ms() - vocab;
        for (int k = 0; k < PARTS; k++)
            part_best[k] = part_ms[k] < part_best[k] ? part_ms[k] : part_best[k];
    }
    qsort(times, repeats, sizeof(double), by_value);
    double median = times[repeats / 2];
    printf("%-22s %8.3f ms %8.0f tokens/s (best %.0f)  best: matmul %.2f norm %.2f rope %.2f "
           "attention %.2f "
           "silu %.2f vocabulary %.2f\n",
           name, median, batch.row_count / median * 1e3, batch.row_count / times[0] * 1e3,
           part_best[0], part_best[1], part_best[2], part_best[3], part_best[4], part_best[5]);
}

int main(int argc, char **argv)
{
    uint32_t threads = argc > 1 ? (uint32_t)atoi(argv[1]) : 1;
    int repeats = argc > 2 ? atoi(argv[2]) : 15;
    enum compute_kv_dtype dtype = argc > 3 ? (enum compute_kv_dtype)atoi(argv[3]) : COMPUTE_KV_I16;
    fixture_seed = 1;
    model_open(threads, 32 * 72, dtype);
    printf("%s; repack %.0f ms\n", OPS->describe(model.c), repack_ms);
    step("prompt 128", 1, 128, 0, repeats, false);
    step("prompt 512", 1, 512, 0, repeats, false);
    step("prompt 2048", 1, 2048, 0, repeats / 4 + 1, false);
    step("decode depth 0", 1, 1, 0, repeats * 8 < 200 ? repeats * 8 : 200, false);
    step("decode depth 1024", 1, 1, 1024, repeats * 8 < 200 ? repeats * 8 : 200, false);
    step("batch 8 depth 0", 8, 1, 0, repeats * 4, false);
    step("batch 8 depth 1024", 8, 1, 1024, repeats * 2, false);
    step("batch 32 depth 0", 32, 1, 0, repeats * 2, false);
    step("batch 32 depth 1024", 32, 1, 1024, repeats, false);
    /* Drafted tokens: rows of one sequence. */
    for (uint32_t rows = 1; rows <= 9; rows++) {
        char name[32];
        snprintf(name, sizeof(name), "1 + %u drafted", rows - 1);
        step(name, 1, rows, 512, repeats * 4, true);
    }
    return 0;
}
