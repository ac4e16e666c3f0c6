/* Goal: guarantees of a device that the engine needs. A replayed step has the results of a step
 * that is not replayed, also after memory has moved and after sequences join or leave. Marks arrive
 * in order and only for finished work. Copies in both directions run beside steps. Stages pass x on
 * in device memory. A device that fails reports this once and then gives only zeros. Weights
 * without a copy for the tensor cores give the same numbers.
 *
 * Method: a small synthetic model on the device that is the argument. Operations are counted on the
 * way to the device: a step without any was replayed. Failures are planted in the emulated device
 * (CUDA_EMULATED_FAIL_LAUNCH), each in a process of its own, at launches all over a run. */
#include "model/file/model_file.h"
#include "model/forward/model.h"
#include "tests/check.h"
#include "tests/model/forward/reference.h"
#include "tests/model/forward/synthetic.h"

#include "common/random.h"

#include <poll.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define BLOCK_TOKENS 16
#define BLOCKS       64
#define SEQUENCES    5
#define ROWS_MAX     128
#define STEPS        9
#define TOKENS_MAX   48

static const char *device;
static const uint32_t prompts[SEQUENCES] = {20, 33, 7, 12, 5};
static uint32_t ids[SEQUENCES][TOKENS_MAX];
static uint32_t tables[SEQUENCES][4];
static uint32_t active = 3; /* Sequences of a batch. */

/* ---- a device whose operations are counted ---- */

static const struct compute_ops *base_ops;
static struct compute_ops counted_ops;
static uint32_t operations;

static void counted_norm(struct compute *c, const float *x, const uint32_t *rows_in,
                         uint32_t row_count, uint32_t cols, const float *weight, float epsilon,
                         struct compute_activations *a)
{
    operations++;
    base_ops->norm(c, x, rows_in, row_count, cols, weight, epsilon, a);
}

struct rig {
    struct compute *compute;
    uint32_t stage_count;
    struct model *models[2];
    struct forward *forwards[2];
    const struct device_memory *memory;
    struct model_kv kv;
    float *x;
    uint32_t vocab;
};

static void rig_open(const struct model_file *file, uint32_t stages, uint32_t logits_max,
                     struct rig *r)
{
    struct compute_options options = {.threads = 1};
    struct error error = {0};
    void *x;
    memset(r, 0, sizeof(*r));
    CHECKF(compute_device_find(device, &base_ops, &options, &error) == ST_OK, "%s", error.text);
    CHECKF(base_ops->open(&options, &r->compute, &error) == ST_OK, "%s", error.text);
    counted_ops = *base_ops;
    counted_ops.norm = counted_norm;
    r->stage_count = stages;
    for (uint32_t i = 0; i < stages; i++) {
        const struct model_options model_options = {.ops = &counted_ops,
                                                    .compute = r->compute,
                                                    .first_layer = stages > 1 ? i : 0,
                                                    .end_layer = stages > 1 ? i + 1 : 2};
        CHECKF(model_open(file, &model_options, &r->models[i], &error) == ST_OK, "%s", error.text);
        CHECKF(forward_open(r->models[i], ROWS_MAX, logits_max, &r->forwards[i], &error) == ST_OK,
               "%s", error.text);
    }
    const struct model_hyper *h = model_hyper_get(r->models[0]);
    r->vocab = h->vocab;
    r->memory = base_ops->device_memory(r->compute);
    r->kv.block_tokens = BLOCK_TOKENS;
    r->kv.dtype = COMPUTE_KV_F32;
    r->kv.block_bytes =
        compute_kv_block_bytes(BLOCK_TOKENS, h->kv_head_count, h->head_dim, r->kv.dtype);
    r->kv.layer_stride_bytes = r->kv.block_bytes * BLOCKS;
    CHECK(r->memory->ops->allocate(r->memory->self, 2 * r->kv.layer_stride_bytes, &r->kv.base,
                                   &error) == ST_OK);
    CHECK(r->memory->ops->allocate(r->memory->self, (uint64_t)ROWS_MAX * h->hidden * sizeof(float),
                                   &x, &error) == ST_OK);
    r->x = x;
}

static void rig_close(struct rig *r)
{
    for (uint32_t i = 0; i < r->stage_count; i++) {
        forward_close(r->forwards[i]);
        model_close(r->models[i]);
    }
    r->memory->ops->free(r->memory->self, r->x);
    r->memory->ops->free(r->memory->self, r->kv.base);
    base_ops->close(r->compute);
}

static void on_layer(void *self, uint32_t layer)
{
    (void)self, (void)layer;
}

/* Runs one batch of all sequences, rows [position, position + count) of each. Returns the logits of
 * each sequence's last row. */
static const float *rig_run(struct rig *r, const uint32_t positions[SEQUENCES],
                            const uint32_t counts[SEQUENCES], bool watched)
{
    struct compute_sequence sequences[SEQUENCES];
    uint32_t rows[SEQUENCES], all[ROWS_MAX], row = 0;
    const float *logits = NULL;
    for (uint32_t i = 0; i < active; i++) {
        sequences[i] = (struct compute_sequence){.first_row = row,
                                                 .row_count = counts[i],
                                                 .first_position = positions[i],
                                                 .blocks = tables[i]};
        memcpy(all + row, ids[i] + positions[i], counts[i] * sizeof(uint32_t));
        row += counts[i];
        rows[i] = row - 1;
    }
    for (uint32_t s = 0; s < r->stage_count; s++) {
        struct model_kv kv = r->kv;
        kv.base = (uint8_t *)kv.base + s * kv.layer_stride_bytes;
        const struct forward_batch batch = {
            .token_ids = s == 0 ? all : NULL,
            .activations = r->stage_count > 1 ? r->x : NULL,
            .batch = {.row_count = row, .sequence_count = active, .sequences = sequences},
            .logits_rows = rows,
            .logits_count = active,
            .layer_done = watched ? on_layer : NULL,
        };
        forward_run(r->forwards[s], &batch, &kv, &logits);
    }
    return logits;
}

/* ---- recorded steps ---- */

/* Computes the logits of the prompts and of all steps. Returns how many steps had no operations. */
static uint32_t run_all(struct rig *r, bool watched, bool moving, float *logits_out)
{
    static const uint32_t zero[SEQUENCES], one[SEQUENCES] = {1, 1, 1, 1, 1};
    const size_t bytes = active * r->vocab * sizeof(float);
    uint32_t positions[SEQUENCES], replayed = 0;
    memcpy(logits_out, rig_run(r, zero, prompts, watched), bytes);
    for (uint32_t s = 0; s < STEPS; s++) {
        struct compute_activations *moved = NULL;
        for (uint32_t i = 0; i < active; i++)
            positions[i] = prompts[i] + s;
        uint32_t before = operations;
        const float *logits = rig_run(r, positions, one, watched);
        replayed += operations == before;
        memcpy(logits_out + (s + 1) * active * r->vocab, logits, bytes);
        if (moving && s == STEPS / 2) { /* A recording may use the memory that is closed here. */
            CHECK(base_ops->activations_open(r->compute, 8, 64, COMPUTE_NEEDS_BF16, &moved) ==
                  ST_OK);
            base_ops->activations_close(r->compute, moved);
        }
    }
    struct error error = {.text = ""};
    base_ops->wait(r->compute);
    CHECKF(base_ops->check(r->compute, &error) == ST_OK, "%s", error.text);
    return replayed;
}

static float *logits_take(uint32_t vocab)
{
    float *logits = malloc((size_t)(STEPS + 1) * SEQUENCES * vocab * sizeof(float));
    CHECK(logits != NULL);
    return logits;
}

static void check_recorded(const struct model_file *file)
{
    struct rig r;
    rig_open(file, 1, ROWS_MAX, &r);
    const size_t count = (size_t)(STEPS + 1) * active * r.vocab;
    float *plain = logits_take(r.vocab), *recorded = logits_take(r.vocab);
    CHECK(run_all(&r, true, false, plain) == 0);
    uint32_t replayed = run_all(&r, false, false, recorded);
    double apart = reference_distance(recorded, plain, count);
    printf("recorded: %u of %u steps replayed, %.1e of the logits' size apart\n", replayed, STEPS,
           apart);
    CHECK(replayed == STEPS - 2); /* One plain step, and one while it is recorded. */
    CHECK(apart < 1e-5);
    memset(recorded, 0, count * sizeof(float));
    replayed = run_all(&r, false, true, recorded); /* Recorded earlier, then discarded. */
    CHECK(replayed == STEPS - 2 && reference_distance(recorded, plain, count) < 1e-5);
    rig_close(&r);

    rig_open(file, 2, ROWS_MAX, &r);
    replayed = run_all(&r, false, false, recorded);
    apart = reference_distance(recorded, plain, count);
    printf("two stages: %u steps replayed, %.1e apart\n", replayed, apart);
    CHECK(replayed == STEPS - 2 && apart < 1e-5);
    rig_close(&r);
    free(plain);
    free(recorded);
}

/* Copies the whole cache. */
static void cache_read(const struct rig *r, uint8_t *out)
{
    base_ops->memory_read(r->compute, out, r->kv.base, 2 * r->kv.layer_stride_bytes);
}

static uint8_t *cache_take(const struct rig *r)
{
    uint8_t *cache = malloc(2 * r->kv.layer_stride_bytes);
    CHECK(cache != NULL);
    return cache;
}

/* Sequences leave and join between steps. Returns how many steps were replayed. */
static uint32_t run_joins(struct rig *r, bool watched, float *logits_out)
{
    static const uint32_t counts[] = {4, 3, 4, 3, 5, 5, 4, 5, 3};
    static const uint32_t zero[SEQUENCES], one[SEQUENCES] = {1, 1, 1, 1, 1};
    uint32_t positions[SEQUENCES], replayed = 0;
    memcpy(positions, prompts, sizeof(positions));
    active = SEQUENCES;
    rig_run(r, zero, prompts, watched);
    for (uint32_t s = 0; s < STEPS; s++) {
        active = counts[s];
        uint32_t before = operations;
        const float *logits = rig_run(r, positions, one, watched);
        replayed += operations == before;
        memcpy(logits_out, logits, active * r->vocab * sizeof(float));
        logits_out += active * r->vocab;
        for (uint32_t i = 0; i < active; i++)
            positions[i]++;
    }
    active = 3;
    return replayed;
}

/* Similar numbers of sequences use one recording. The rows that fill up a batch change neither the
 * cache nor the other rows' results. */
static void check_joins(const struct model_file *file)
{
    struct rig r;
    rig_open(file, 1, ROWS_MAX, &r);
    const size_t count = 36 * (size_t)r.vocab, bytes = 2 * r.kv.layer_stride_bytes;
    float *plain = malloc(count * sizeof(float)), *recorded = malloc(count * sizeof(float));
    uint8_t *kept = cache_take(&r), *found = cache_take(&r);
    CHECK(plain != NULL && recorded != NULL);
    CHECK(run_joins(&r, true, plain) == 0);
    cache_read(&r, kept);
    uint32_t replayed = run_joins(&r, false, recorded);
    cache_read(&r, found);
    printf("joins: %u of %u steps replayed\n", replayed, STEPS);
    CHECK(replayed == STEPS - 4); /* Two shapes: up to 4 rows, and up to 8 rows. */
    CHECK(memcmp(kept, found, bytes) == 0);
    CHECK(reference_distance(recorded, plain, count) < 1e-5);
    rig_close(&r);
    free(kept);
    free(found);
    free(plain);
    free(recorded);
}

/* Steps recorded ahead are replayed from the first step on, and recording leaves the cache
 * unchanged. */
static void check_prepared(const struct model_file *file)
{
    struct rig r;
    rig_open(file, 1, 4, &r); /* Up to 4 sequences, the first shape that is recorded ahead. */
    const size_t count = (size_t)(STEPS + 1) * active * r.vocab;
    const size_t bytes = 2 * r.kv.layer_stride_bytes;
    float *plain = logits_take(r.vocab), *recorded = logits_take(r.vocab);
    uint8_t *kept = cache_take(&r), *found = cache_take(&r);
    run_all(&r, true, false, plain);
    cache_read(&r, kept);
    uint32_t before = operations;
    forward_prepare(r.forwards[0], &r.kv);
    CHECK(operations > before);
    cache_read(&r, found);
    CHECK(memcmp(kept, found, bytes) == 0);
    uint32_t replayed = run_all(&r, false, false, recorded);
    printf("prepared: %u of %u steps replayed; %s\n", replayed, STEPS,
           base_ops->describe(r.compute));
    CHECK(replayed == STEPS && reference_distance(recorded, plain, count) < 1e-5);
    CHECK(strstr(base_ops->describe(r.compute), "quantised matrices have a bf16 copy") != NULL);
    rig_close(&r);
    free(kept);
    free(found);
    free(plain);
    free(recorded);
}

/* ---- weights without copies ---- */

static uint64_t left_of(const struct rig *r)
{
    uint64_t left, all;
    r->memory->ops->memory_sizes(r->memory->self, &left, &all);
    return left;
}

/* With little free memory, weights are converted for the tensor cores at each use. */
static void check_scratch(const struct model_file *file)
{
    struct rig r;
    struct error error = {.text = ""};
    uint64_t left, all, used[2];
    void *ballast = NULL;
    rig_open(file, 1, ROWS_MAX, &r);
    const size_t count = (size_t)(STEPS + 1) * active * r.vocab;
    float *kept = logits_take(r.vocab), *made = logits_take(r.vocab);
    left = left_of(&r);
    run_all(&r, false, false, kept);
    used[0] = left - left_of(&r);
    rig_close(&r);

    rig_open(file, 1, ROWS_MAX, &r);
    r.memory->ops->memory_sizes(r.memory->self, &left, &all);
    CHECK(r.memory->ops->allocate(r.memory->self, left - all / 20, &ballast, &error) == ST_OK);
    left = left_of(&r);
    run_all(&r, false, false, made);
    used[1] = left - left_of(&r);
    printf("with copies %" PRIu64 " bytes more, without %" PRIu64 "\n", used[0], used[1]);
    CHECK(used[1] < used[0] && memcmp(kept, made, count * sizeof(float)) == 0);
    r.memory->ops->free(r.memory->self, ballast);
    rig_close(&r);
    free(kept);
    free(made);
}

/* ---- marks and copies ---- */

struct told {
    struct rig *rig;
    uint32_t numbers[4];
    uint32_t count; /* Written by the device's thread, read after wait. */
};

static void on_mark(void *self, uint32_t number)
{
    struct told *told = self;
    CHECK(told->count < 4);
    told->numbers[told->count++] = number;
}

static void mark_layer(void *self, uint32_t layer)
{
    struct told *told = self;
    base_ops->mark(told->rig->compute, layer + 1, on_mark, told);
}

static void wait_copy(const struct device_memory *memory, enum device_direction direction,
                      uint64_t number)
{
    struct pollfd readable = {.fd = memory->ops->event_fd(memory->self), .events = POLLIN};
    struct error error = {.text = ""};
    uint64_t done = 0, news;
    memory->ops->signal_when_done(memory->self, direction);
    CHECK(poll(&readable, 1, 10000) == 1);
    CHECK(read(readable.fd, &news, sizeof(news)) == sizeof(news));
    CHECKF(memory->ops->poll(memory->self, direction, &done, &error) == ST_OK, "%s", error.text);
    CHECK(done >= number);
}

static void check_marks(const struct model_file *file)
{
    struct rig r;
    rig_open(file, 1, ROWS_MAX, &r);
    struct told told = {.rig = &r};
    const struct compute_sequence sequence = {.row_count = prompts[0], .blocks = tables[0]};
    const struct forward_batch batch = {
        .token_ids = ids[0],
        .batch = {.row_count = prompts[0], .sequence_count = 1, .sequences = &sequence},
        .layer_done = mark_layer,
        .layer_done_self = &told,
    };
    const float *logits;
    forward_run(r.forwards[0], &batch, &r.kv, &logits);
    base_ops->wait(r.compute);
    CHECK(told.count == 2 && told.numbers[0] == 1 && told.numbers[1] == 2);

    /* Copies the block that the layer has written out and into another block. */
    const struct device_memory_ops *ops = r.memory->ops;
    struct error error = {.text = ""};
    void *pinned;
    uint8_t *base = r.kv.base, *block = base + tables[0][0] * r.kv.block_bytes;
    uint8_t *other = base + (BLOCKS - 1) * r.kv.block_bytes;
    CHECK(ops->host_allocate(r.memory->self, 2 * r.kv.block_bytes, &pinned, &error) == ST_OK);
    memset(pinned, 0, 2 * r.kv.block_bytes);
    uint8_t *first = pinned, *second = first + r.kv.block_bytes;
    uint64_t n = ops->copy(r.memory->self, DEVICE_TO_HOST, block, first, r.kv.block_bytes);
    CHECK(n == 1);
    wait_copy(r.memory, DEVICE_TO_HOST, n);
    float sum = 0;
    for (size_t i = 0; i < r.kv.block_bytes / sizeof(float); i++)
        sum += ((float *)pinned)[i] * ((float *)pinned)[i];
    CHECK(sum > 0 && sum < 1e6f);
    wait_copy(r.memory, HOST_TO_DEVICE,
              ops->copy(r.memory->self, HOST_TO_DEVICE, other, first, r.kv.block_bytes));
    for (uint32_t i = 0; i < 1000; i++) /* More marks than events exist. */
        n = ops->copy(r.memory->self, DEVICE_TO_HOST, other, second, r.kv.block_bytes);
    CHECK(n == 1001);
    wait_copy(r.memory, DEVICE_TO_HOST, n);
    CHECK(memcmp(first, second, r.kv.block_bytes) == 0);
    ops->host_free(r.memory->self, pinned);
    rig_close(&r);
}

static void check_memory(const struct model_file *file)
{
    struct rig r;
    struct error error = {.text = ""};
    uint64_t left, all, less;
    void *large;
    rig_open(file, 1, ROWS_MAX, &r);
    const struct device_memory_ops *ops = r.memory->ops;
    ops->memory_sizes(r.memory->self, &left, &all);
    CHECK(left > 0 && left < all);
    CHECK(ops->allocate(r.memory->self, 3 << 20, &large, &error) == ST_OK);
    CHECK((uintptr_t)large % (2 << 20) == 0);
    ops->memory_sizes(r.memory->self, &less, &all);
    CHECK(less + (3 << 20) <= left);
    ops->free(r.memory->self, large);
    ops->memory_sizes(r.memory->self, &less, &all);
    CHECK(less == left);
    CHECK(ops->allocate(r.memory->self, all + 1, &large, &error) == ST_NO_MEMORY);
    CHECKF(strstr(error.text, "are needed; of its ") != NULL, "%s", error.text);
    CHECK(base_ops->check(r.compute, &error) == ST_OK); /* The device has not failed. */
    rig_close(&r);
}

/* ---- failures ---- */

/* Runs in its own process and plants a failure in the n-th launch of a kernel. */
static void run_failing(const struct model_file *file, bool *late_out)
{
    struct rig r;
    struct error error = {.text = ""}, again = {.text = ""};
    struct told told = {.rig = &r};
    static const uint32_t zero[SEQUENCES], one[SEQUENCES] = {1, 1, 1, 1, 1};
    rig_open(file, 1, ROWS_MAX, &r);
    const float *logits = rig_run(&r, zero, prompts, false);
    for (uint32_t s = 0; s < 4; s++) {
        const uint32_t positions[SEQUENCES] = {prompts[0] + s, prompts[1] + s, prompts[2] + s};
        logits = rig_run(&r, positions, one, false);
    }
    base_ops->mark(r.compute, 1, on_mark, &told);
    base_ops->wait(r.compute);
    *late_out = base_ops->check(r.compute, &error) == ST_OK;
    if (!*late_out) {
        CHECKF(strncmp(error.text, "device cuda:0: ", 15) == 0 &&
                   strstr(error.text, "(CUDA error 719)") != NULL,
               "%s", error.text);
        CHECK(base_ops->check(r.compute, &again) != ST_OK && strcmp(error.text, again.text) == 0);
        CHECK(told.count == 0);
        for (uint32_t i = 0; i < active * r.vocab; i++)
            CHECK(logits[i] == 0);
        uint64_t done;
        CHECK(r.memory->ops->poll(r.memory->self, DEVICE_TO_HOST, &done, &error) != ST_OK);
        printf("    %s\n", again.text);
    }
    rig_close(&r);
}

static void check_failures(const struct model_file *file)
{
    uint32_t failed = 0;
    for (uint32_t n = 1; n < 4000; n += 1 + n / 4) {
        char number[16];
        snprintf(number, sizeof(number), "%u", n);
        fflush(stdout);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            bool late;
            CHECK(setenv("CUDA_EMULATED_FAIL_LAUNCH", number, 1) == 0);
            run_failing(file, &late);
            exit(late ? 2 : 0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child);
        CHECKF(WIFEXITED(status), "launch %u: signal %d", n, WTERMSIG(status));
        if (WEXITSTATUS(status) == 2)
            break; /* The run has no more launches. */
        CHECK(WEXITSTATUS(status) == 0);
        failed++;
    }
    printf("%u failures told\n", failed);
    CHECK(failed > 10);
}

static struct model_file *open_model(const struct synthetic *s, uint8_t **image_out)
{
    struct model_file *file = synthetic_open(s, "synthetic", image_out);
    for (uint32_t i = 0; i < SEQUENCES; i++) {
        for (uint32_t k = 0; k < TOKENS_MAX; k++)
            ids[i][k] = (uint32_t)(random_at(7, i * 100 + k) % s->vocab);
        for (uint32_t k = 0; k < 4; k++)
            tables[i][k] = (i * 4 + k) * 5 % (BLOCKS - 1);
    }
    return file;
}

/* Recorded steps of a model with latent attention. */
static void check_latent(void)
{
    struct synthetic s = synthetic_latent();
    uint8_t *image;
    s.hidden = 128;
    s.ffn = 192;
    s.kv_heads = 1;
    s.head_dim = 48;
    s.rope_dim = 16;
    s.type = s.v_type = COMPUTE_Q8_0;
    s.end_type = COMPUTE_BF16;
    struct model_file *file = open_model(&s, &image);
    printf("latent attention\n");
    check_recorded(file);
    check_prepared(file);
    model_file_close(file);
    free(image);
}

int main(int argc, char **argv)
{
    struct synthetic s = synthetic_default();
    uint8_t *image;
    CHECK(argc >= 2);
    device = argv[1];
    s.hidden = 128;
    s.ffn = 256;
    s.heads = 4;
    s.kv_heads = 2;
    s.head_dim = 64;
    s.type = s.v_type = COMPUTE_Q8_0;
    s.end_type = COMPUTE_BF16;
    struct model_file *file = open_model(&s, &image);
    if (argc > 2 && strcmp(argv[2], "failures") == 0) {
        check_failures(file);
    } else if (argc > 2 && strcmp(argv[2], "scratch") == 0) {
        check_scratch(file);
    } else {
        check_recorded(file);
        check_joins(file);
        check_prepared(file);
        check_marks(file);
        check_memory(file);
        check_latent();
    }
    model_file_close(file);
    free(image);
    return 0;
}
