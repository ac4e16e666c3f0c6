/* Goal: a request's numbers do not depend on where and with which requests they were computed
 * (docs/ARCHITECTURE.md, "Numbers …"). Method: one run of a whole random prompt gives the expected
 * logits of every row and the KV bytes of every position. Then the same tokens run in chunks of
 * random sizes, one by one, in batches with other sequences in random order, with permuted block
 * tables, 1 to 3 threads, with and without lanes, 2 to 5 stages and every instruction set, with
 * random subsets of rows sampled (the last layer skips the others), and every bit must be equal.
 * layer_done must be called once per layer, in order, when that layer's KV is complete.
 *
 * usage: test_forward_identity [few]          few: a sixth of the types of weights
 *        test_forward_identity file MODEL     only this model */
#include "tests/check.h"
#include "tests/model/forward/engine.h"
#include "tests/model/forward/synthetic.h"

#include "common/random.h"

#include <string.h>

#define BLOCK_TOKENS 16
#define BLOCK_COUNT  96
#define ROWS_MAX     256
#define LOGITS_MAX   48
#define OTHERS_MAX   4
/* Tokens of a stream: chunks, blocks and tiles of every size fit into either. */
#define STREAM_MAX 200

static uint64_t seed;
static uint64_t drawn;

static uint32_t below(uint32_t limit)
{
    return (uint32_t)(random_at(seed, drawn++) % limit);
}

struct stream {
    uint32_t ids[STREAM_MAX];
    uint32_t count;
    uint32_t done;
    uint32_t blocks[STREAM_MAX / BLOCK_TOKENS + 1];
};

/* What every other way of computing must give. */
struct wanted {
    struct stream stream;
    float *logits; /* [count × vocab] */
    uint8_t *kv;   /* [layer][position][kv_position_bytes] */
};

/* One run of a batch in which the main stream has rows. */
struct step {
    struct engine *e;
    const struct wanted *wanted;
    const struct stream *main;
    uint32_t main_rows;
    uint32_t layers_done;
};

static size_t kv_position_bytes(const struct engine *e)
{
    return e->kv.block_bytes / BLOCK_TOKENS;
}

/* The fixed forms (compute.h): scales, then pairs of dimensions, then pairs of tokens. */
static uint8_t *kv_read_fixed(const struct engine *e, const uint8_t *block, uint32_t column,
                              uint8_t *out)
{
    size_t element = compute_kv_element_bytes(e->kv.dtype);
    uint32_t dim = e->hyper->head_dim;
    const uint8_t *keys = block + BLOCK_TOKENS * 4;
    const uint8_t *values = keys + dim * BLOCK_TOKENS * element;
    memcpy(out, block + column * 2, 2);
    memcpy(out + 2, block + (BLOCK_TOKENS + column) * 2, 2);
    out += 4;
    for (uint32_t i = 0; i < dim; i++, out += 2 * element) {
        memcpy(out, keys + ((i / 2 * BLOCK_TOKENS + column) * 2 + i % 2) * element, element);
        memcpy(out + element, values + ((column / 2 * dim + i) * 2 + column % 2) * element,
               element);
    }
    return out;
}

static uint8_t *kv_read_float(const struct engine *e, const uint8_t *block, uint32_t column,
                              uint8_t *out)
{
    size_t element = compute_kv_element_bytes(e->kv.dtype);
    uint32_t dim = e->hyper->head_dim;
    for (uint32_t i = 0; i < dim; i++, out += element)
        memcpy(out, block + (i * BLOCK_TOKENS + column) * element, element);
    block += (size_t)dim * BLOCK_TOKENS * element;
    memcpy(out, block + (size_t)column * dim * element, dim * element);
    return out + dim * element;
}

/* K and V of one position as a row of bytes, whatever block holds it. */
static void kv_read(const struct engine *e, uint32_t layer, const struct stream *s,
                    uint32_t position, uint8_t *out)
{
    const uint8_t *block = (const uint8_t *)e->kv.base + layer * e->kv.layer_stride_bytes +
                           s->blocks[position / BLOCK_TOKENS] * e->kv.block_bytes;
    if (e->hyper->latent.rank != 0) { /* Scales, then columns of pairs or of values. */
        const size_t element = compute_kv_element_bytes(e->kv.dtype);
        const bool fixed = compute_kv_fixed(e->kv.dtype);
        const uint32_t column = position % BLOCK_TOKENS, values = 2 * e->hyper->head_dim;
        const size_t piece = fixed ? 2 * element : element;
        memcpy(out, block + column * 2, fixed ? 2 : 0);
        memcpy(out + 2, block + (BLOCK_TOKENS + column) * 2, fixed ? 2 : 0);
        out += fixed ? 4 : 0;
        block += fixed ? BLOCK_TOKENS * 4 : 0;
        for (uint32_t i = 0; i < values * element / piece; i++, out += piece)
            memcpy(out, block + ((size_t)i * BLOCK_TOKENS + column) * piece, piece);
        return;
    }
    for (uint32_t head = 0; head < e->hyper->kv_head_count; head++) {
        out = compute_kv_fixed(e->kv.dtype) ? kv_read_fixed(e, block, position % BLOCK_TOKENS, out)
                                            : kv_read_float(e, block, position % BLOCK_TOKENS, out);
        block += e->kv.block_bytes / e->hyper->kv_head_count;
    }
}

static void kv_check(const struct engine *e, const struct wanted *w, uint32_t layer,
                     const struct stream *s, uint32_t first, uint32_t count)
{
    size_t bytes = kv_position_bytes(e);
    uint8_t *found = malloc(bytes);
    CHECK(found != NULL);
    for (uint32_t i = first; i < first + count; i++) {
        kv_read(e, layer, s, i, found);
        CHECKF(memcmp(found, w->kv + ((size_t)layer * w->stream.count + i) * bytes, bytes) == 0,
               "KV of layer %u, position %u differs", layer, i);
    }
    free(found);
}

static void on_layer_done(void *self, uint32_t layer)
{
    struct step *step = self;
    CHECK(layer == step->layers_done);
    step->layers_done++;
    kv_check(step->e, step->wanted, layer, step->main, step->main->done, step->main_rows);
}

/* Random, disjoint block tables for all streams. */
static void deal_blocks(struct stream *streams, uint32_t count)
{
    uint32_t ids[BLOCK_COUNT];
    uint32_t next = 0;
    for (uint32_t i = 0; i < BLOCK_COUNT; i++)
        ids[i] = i;
    for (uint32_t i = BLOCK_COUNT - 1; i > 0; i--) {
        uint32_t j = below(i + 1), kept = ids[i];
        ids[i] = ids[j];
        ids[j] = kept;
    }
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t b = 0; b < (streams[i].count + BLOCK_TOKENS - 1) / BLOCK_TOKENS; b++)
            streams[i].blocks[b] = ids[next++];
    CHECK(next <= BLOCK_COUNT);
}

static void wanted_make(struct engine *e, uint32_t count, struct wanted *out)
{
    uint32_t vocab = e->hyper->vocab;
    struct stream *s = &out->stream;
    const float *logits;
    s->count = count;
    s->done = 0;
    for (uint32_t i = 0; i < count; i++)
        s->ids[i] = below(vocab);
    deal_blocks(s, 1);
    out->logits = malloc((size_t)count * vocab * sizeof(float));
    out->kv = malloc(e->hyper->layer_count * count * kv_position_bytes(e));
    CHECK(out->logits != NULL && out->kv != NULL);
    const struct compute_sequence sequence = {.row_count = count, .blocks = s->blocks};
    const struct forward_batch batch = {
        .token_ids = s->ids,
        .batch = {.row_count = count, .sequence_count = 1, .sequences = &sequence},
        .all_rows = true,
    };
    engine_forward(e, &batch, &logits);
    for (uint32_t first = 0; first < count; first += LOGITS_MAX) {
        uint32_t rows[LOGITS_MAX];
        uint32_t n = count - first < LOGITS_MAX ? count - first : LOGITS_MAX;
        for (uint32_t i = 0; i < n; i++)
            rows[i] = first + i;
        engine_logits(e, rows, n, &logits);
        memcpy(out->logits + (size_t)first * vocab, logits, (size_t)n * vocab * sizeof(float));
    }
    for (uint32_t layer = 0; layer < e->hyper->layer_count; layer++)
        for (uint32_t i = 0; i < count; i++)
            kv_read(e, layer, s, i, out->kv + ((size_t)layer * count + i) * kv_position_bytes(e));
}

static void wanted_free(struct wanted *w)
{
    free(w->logits);
    free(w->kv);
}

/* One batch: up to chunk_max rows of the main stream (streams[0]) and of some others, in random
 * order. */
static void run_batch(struct engine *e, const struct wanted *w, struct stream *streams,
                      uint32_t count, uint32_t chunk_max)
{
    struct compute_sequence sequences[OTHERS_MAX + 1];
    uint32_t ids[ROWS_MAX], rows[LOGITS_MAX], positions[LOGITS_MAX], taken[OTHERS_MAX + 1] = {0};
    uint32_t row = 0, used = 0, sampled = 0, start = below(count);
    uint32_t main_first = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = (start + i) % count;
        struct stream *s = &streams[at];
        uint32_t room = s->count - s->done < chunk_max ? s->count - s->done : chunk_max;
        if (room == 0 || (at != 0 && (below(3) == 0 || row + room > ROWS_MAX - chunk_max)))
            continue;
        taken[at] = chunk_max == STREAM_MAX ? room : 1 + below(room);
        if (at == 0)
            main_first = row;
        sequences[used++] = (struct compute_sequence){.first_row = row,
                                                      .row_count = taken[at],
                                                      .first_position = s->done,
                                                      .blocks = s->blocks};
        memcpy(ids + row, s->ids + s->done, taken[at] * sizeof(*ids));
        row += taken[at];
    }
    uint32_t main_rows = taken[0];
    /* Mostly few rows, as in a prompt; sometimes none, sometimes all; some rows of others as well.
     */
    uint32_t one_of = below(4) == 0 ? 1 : 1 + main_rows / 8;
    bool none = below(5) == 0 && main_rows > 1;
    for (uint32_t i = 0; i < row && sampled < LOGITS_MAX && !none; i++)
        if (below(one_of) == 0) {
            positions[sampled] = i - main_first; /* wraps for rows before the main stream's */
            rows[sampled++] = i;
        }
    struct step step = {.e = e, .wanted = w, .main = &streams[0], .main_rows = main_rows};
    const struct forward_batch batch = {
        .token_ids = ids,
        .batch = {.row_count = row, .sequence_count = used, .sequences = sequences},
        .logits_rows = rows,
        .logits_count = sampled,
        .all_rows = below(4) == 0,
        .layer_done = on_layer_done,
        .layer_done_self = &step,
    };
    const float *logits;
    size_t row_bytes = e->hyper->vocab * sizeof(float);
    engine_forward(e, &batch, &logits);
    CHECK(step.layers_done == e->hyper->layer_count);
    for (uint32_t i = 0; i < sampled; i++)
        if (positions[i] < main_rows)
            CHECKF(memcmp(logits + (size_t)i * e->hyper->vocab,
                          w->logits + (size_t)(streams[0].done + positions[i]) * e->hyper->vocab,
                          row_bytes) == 0,
                   "logits after position %u differ", streams[0].done + positions[i]);
    for (uint32_t i = 0; i < count; i++)
        streams[i].done += taken[i];
}

/* The first `count` tokens of the wanted stream once more, among `others` random streams. */
static void run_again(struct engine *e, const struct wanted *w, uint32_t count, uint32_t chunk_max,
                      uint32_t others)
{
    static struct stream streams[OTHERS_MAX + 1];
    streams[0] = w->stream;
    streams[0].count = count;
    for (uint32_t i = 1; i <= others; i++) {
        streams[i].count = 1 + below(STREAM_MAX);
        for (uint32_t t = 0; t < streams[i].count; t++)
            streams[i].ids[t] = below(e->hyper->vocab);
    }
    for (uint32_t i = 0; i <= others; i++)
        streams[i].done = 0;
    deal_blocks(streams, others + 1);
    while (streams[0].done < count)
        run_batch(e, w, streams, others + 1, chunk_max);
    for (uint32_t layer = 0; layer < e->hyper->layer_count; layer++)
        kv_check(e, w, layer, &streams[0], 0, count);
}

static const char *const isa_names[] = {"auto", "portable", "avx2", "avx-vnni", "avx512"};

/* The same layers in 2, 3 and 5 stages (or as many as the model has layers). */
static void check_stages(const struct model_file *g, const struct wanted *w, uint32_t count,
                         enum compute_kv_dtype dtype)
{
    struct engine_options options = {
        .threads = 1,
        .dtype = dtype,
        .block_tokens = BLOCK_TOKENS,
        .block_count = BLOCK_COUNT,
        .rows_max = ROWS_MAX,
        .logits_max = LOGITS_MAX,
    };
    struct model_hyper hyper;
    struct error error = {0};
    CHECKF(model_hyper_read(g, &hyper, &error) == ST_OK, "%s", error.text);
    for (options.stage_count = 2;
         options.stage_count <= 5 && options.stage_count <= hyper.layer_count;
         options.stage_count += options.stage_count == 2 ? 1 : 2) {
        struct engine e;
        engine_open(g, &options, &e);
        run_again(&e, w, count, 40, OTHERS_MAX);
        run_again(&e, w, 10, 1, 0);
        engine_close(&e);
        printf(", %u stages", options.stage_count);
    }
}

static void check_model(const struct model_file *g, const char *what, uint32_t count,
                        uint32_t portable_count, enum compute_kv_dtype dtype)
{
    struct engine_options options = {
        .threads = 1,
        .dtype = dtype,
        .block_tokens = BLOCK_TOKENS,
        .block_count = BLOCK_COUNT,
        .rows_max = ROWS_MAX,
        .logits_max = LOGITS_MAX,
    };
    struct engine e;
    struct wanted w;
    engine_open(g, &options, &e);
    wanted_make(&e, count, &w);
    engine_close(&e);
    printf("%s:", what);
    for (uint32_t i = 0; i < 5; i++) { /* 1 to 3 threads, then 2 and 3 lanes */
        const uint32_t threads = i < 3 ? i + 1 : i - 1;
        options.threads = threads;
        options.lanes = i < 3 ? COMPUTE_LANES_NEVER : COMPUTE_LANES_ALWAYS;
        engine_open(g, &options, &e);
        run_again(&e, &w, count, STREAM_MAX, 0);            /* whole */
        run_again(&e, &w, threads == 2 ? count : 20, 1, 0); /* one by one */
        run_again(&e, &w, count, 40, 0);                    /* chunks */
        run_again(&e, &w, count, 40, OTHERS_MAX);           /* chunks in company */
        run_again(&e, &w, threads == 3 ? 40 : 10, 1, OTHERS_MAX);
        engine_close(&e);
        printf(" %u", threads);
    }
    options.lanes = COMPUTE_LANES_AUTO;
    printf(" threads and lanes");
    check_stages(g, &w, count, dtype);
    options.threads = 2;
    for (int isa = COMPUTE_ISA_PORTABLE; isa <= COMPUTE_ISA_AVX512; isa++) {
        uint32_t n = isa == COMPUTE_ISA_PORTABLE ? portable_count : count;
        options.isa = (enum compute_isa)isa;
        if (!engine_isa_present(options.isa)) {
            printf(", no %s here", isa_names[isa]);
            continue;
        }
        engine_open(g, &options, &e);
        run_again(&e, &w, n, 40, 0);
        run_again(&e, &w, n / 2, 8, 2);
        engine_close(&e);
        printf(", %s", isa_names[isa]);
    }
    printf("\n");
    wanted_free(&w);
}

static void check_synthetic(struct synthetic s, const char *what, enum compute_kv_dtype dtype)
{
    uint8_t *image;
    s.seed = seed;
    struct model_file *g = synthetic_open(&s, what, &image);
    check_model(g, what, STREAM_MAX - below(20), STREAM_MAX * 3 / 10, dtype);
    model_file_close(g);
    free(image);
}

static void check_shapes(void)
{
    struct synthetic s = synthetic_default();
    s.layers = 5;
    check_synthetic(s, "llama", COMPUTE_KV_I16);
    s.layers = 2;
    s.architecture = "qwen2";
    s.biases = true;
    s.tied = false;
    check_synthetic(s, "qwen2, KV F32", COMPUTE_KV_F32);
    s.hidden = 96;
    s.heads = 9;
    s.kv_heads = 3;
    s.head_dim = 64;
    s.type = s.v_type = COMPUTE_Q4_0;
    check_synthetic(s, "9 heads over 3, Q4_0", COMPUTE_KV_F16);
    s.heads = 5;
    s.kv_heads = 1;
    check_synthetic(s, "5 heads over 1, Q4_0, KV I8", COMPUTE_KV_I8);
    s.heads = 6;
    s.kv_heads = 3;
    s.head_dim = 80;
    s.type = COMPUTE_Q8_0;
    check_synthetic(s, "6 heads of 80 over 3, Q8_0", COMPUTE_KV_I16);
    s = synthetic_default();
    s.architecture = "gemma2";
    s.window = 37;
    s.attention_cap = 20;
    s.logits_cap = 10;
    check_synthetic(s, "gemma2, a window and caps", COMPUTE_KV_I16);
    check_synthetic(s, "gemma2, a window and caps, F16", COMPUTE_KV_F16);
    s = synthetic_latent();
    s.latent_q_rank = 32;
    check_synthetic(s, "deepseek2, latent attention", COMPUTE_KV_I16);
    s.heads = 3;
    check_synthetic(s, "deepseek2, latent attention, F16", COMPUTE_KV_F16);
}

static void check_experts(void)
{
    struct synthetic s = synthetic_default();
    s.architecture = "qwen3moe";
    s.layers = 5;
    s.experts = 16;
    s.experts_used = 4;
    s.expert_ffn = 64;
    s.type = COMPUTE_Q4_0;
    s.v_type = COMPUTE_BF16;
    check_synthetic(s, "qwen3moe, Q4_0 and BF16", COMPUTE_KV_I16);
    s.architecture = "qwen2moe";
    s.biases = true;
    s.shared_ffn = 96;
    s.dense_layers = 1;
    s.sigmoid = true;
    s.expert_groups = 4;
    s.expert_groups_used = 2;
    s.type = s.v_type = COMPUTE_Q8_0;
    check_synthetic(s, "qwen2moe, groups, Q8_0", COMPUTE_KV_I16);
}

/* few: a sixth of the types, drawn at random. */
static void check_types(bool few)
{
    for (int type = 0; type < COMPUTE_GGUF_COUNT; type++) {
        struct synthetic s = synthetic_default();
        char what[64];
        if (few && below(6) != 0) /* the matmul test runs each of them */
            continue;
        s.hidden = 256;
        s.ffn = 512;
        s.type = (enum compute_type)type;
        s.v_type = (enum compute_type)below(COMPUTE_GGUF_COUNT);
        s.end_type = (enum compute_type)below(COMPUTE_GGUF_COUNT);
        snprintf(what, sizeof(what), "%s with %s and %s", compute_type_name(s.type),
                 compute_type_name(s.v_type), compute_type_name(s.end_type));
        check_synthetic(s, what, COMPUTE_KV_I16);
    }
}

static void check_file(const char *path, const char *what, uint32_t count, uint32_t portable_count)
{
    struct model_file *g;
    struct error error = {0};
    CHECKF(model_file_open(path, &g, &error) == ST_OK, "%s", error.text);
    check_model(g, what, count, portable_count, COMPUTE_KV_I16);
    model_file_close(g);
}

int main(int argc, char **argv)
{
    seed = test_seed();
    if (argc > 2 && strcmp(argv[1], "file") == 0) {
        check_file(argv[2], "every way of computing", 72, 24);
        return 0;
    }
    check_shapes();
    check_experts();
    check_types(argc > 1 && strcmp(argv[1], "few") == 0);
    check_file(test_model_path(), "default model", 72, 12);
    return 0;
}
