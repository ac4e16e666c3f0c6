/* Goal: a safetensors folder gives the same numbers as the model's GGUF file, and those of the
 * plain fp32 reference. Method: synthetic models of every family, written in both forms, as one
 * file and in shards, as F32, F16 and BF16: equal logits to the bit as shipped (attention over the
 * default KV cache is exact in any order of a head's dimensions), and those of reference.c in exact
 * mode. Then the metadata of the files: hashes and sizes. */
#include "tests/check.h"
#include "tests/model/file/file_gguf.h"
#include "tests/model/file/folder_writer.h"
#include "tests/model/forward/engine.h"
#include "tests/model/forward/reference.h"
#include "tests/model/forward/synthetic.h"

#include <math.h>
#include <string.h>

#define TOKENS 45

static void run(struct model_file *file, bool exact, const uint32_t *ids, uint32_t vocab,
                float *out)
{
    const struct engine_options options = engine_options_small(exact);
    struct engine e;
    engine_open(file, &options, &e);
    CHECK(e.hyper->vocab == vocab);
    memcpy(out, engine_run(&e, ids, TOKENS, 0, 0), (size_t)TOKENS * vocab * sizeof(float));
    engine_close(&e);
}

static struct model_file *folder_of(const struct model_file *gguf,
                                    const struct folder_writer *options)
{
    char path[] = "/tmp/cleave-folder-XXXXXX";
    struct model_file *file = NULL;
    struct error error = {0};
    CHECK(mkdtemp(path) != NULL);
    folder_write(gguf, options, path);
    enum status status = model_file_open(path, &file, &error);
    folder_remove(path); /* the mappings stay */
    CHECKF(status == ST_OK, "%s", error.text);
    return file;
}

struct logits {
    float *reference, *gguf, *folder;
};

static struct logits logits_take(size_t count)
{
    float *all = malloc(3 * count * sizeof(float));
    CHECK(all != NULL);
    return (struct logits){all, all + count, all + 2 * count};
}

static void check_both(const char *what, const struct synthetic *s,
                       const struct folder_writer *options)
{
    const size_t count = (size_t)TOKENS * s->vocab;
    uint32_t ids[TOKENS];
    uint8_t *image;
    struct model_file *gguf = synthetic_open(s, what, &image);
    struct model_file *folder = folder_of(gguf, options);
    synthetic_tokens(s, TOKENS, ids);
    struct logits l = logits_take(count);
    struct reference *r = reference_open(file_gguf(gguf));
    reference_run(r, ids, TOKENS, 0, l.reference);
    run(gguf, false, ids, s->vocab, l.gguf);
    run(folder, false, ids, s->vocab, l.folder);
    double shipped = reference_distance(l.folder, l.gguf, count);
    bool same = memcmp(l.folder, l.gguf, count * sizeof(float)) == 0;
    run(folder, true, ids, s->vocab, l.folder);
    double exact = reference_distance(l.folder, l.reference, count);
    printf("%-32s exact %.2e of the reference, as shipped %.2e of the GGUF%s\n", what, exact,
           shipped, same ? ", to the bit" : "");
    CHECK(exact < 1e-5);
    /* Gemma's norms lie 1 apart in both; RoPE's factors are a formula's in one, a tensor's in the
     * other. */
    CHECK(same || ((options->rope_scaling != NULL || strncmp(s->architecture, "gemma", 5) == 0) &&
                   shipped < 1e-3));
    reference_close(r);
    model_file_close(gguf);
    model_file_close(folder);
    free(image);
    free(l.reference);
}

static struct synthetic of_type(struct synthetic s, enum compute_type type)
{
    s.type = s.v_type = s.end_type = s.vector_type = type;
    return s;
}

static void check_families(void)
{
    struct folder_writer whole = {.shards = 0}, sharded = {.shards = 3}, mistral = whole;
    struct synthetic s = synthetic_default();
    mistral.model_type = "mistral";
    check_both("llama, tied", &s, &whole);
    s.tied = false;
    check_both("llama, own output, 3 files", &s, &sharded);
    check_both("mistral", &s, &mistral);
    s.biases = true;
    check_both("llama, biases", &s, &whole);
    s = synthetic_default();
    s.architecture = "qwen2";
    s.biases = true;
    check_both("qwen2", &s, &whole);
    s.tied = false;
    check_both("qwen2, own output, 3 files", &s, &sharded);
    s = synthetic_default();
    s.architecture = "qwen3";
    s.head_dim = 32;
    check_both("qwen3, tied", &s, &whole);
    s.rope_factor = 4.0f;
    check_both("qwen3, linear RoPE scaling", &s, &whole);
    s.architecture = "gemma3";
    s.layers = 7;
    s.window = 7;
    check_both("gemma3, linear RoPE scaling, a window", &s, &sharded);
    s.architecture = "gemma2";
    s.rope_factor = 0;
    s.attention_cap = 20;
    s.logits_cap = 10;
    check_both("gemma2, a window and caps", &s, &sharded);
}

static void check_types(void)
{
    static const enum compute_type types[] = {COMPUTE_F16, COMPUTE_BF16};
    static const char *const families[] = {"llama", "qwen2", "qwen3"};
    const struct folder_writer sharded = {.shards = 2};
    for (size_t i = 0; i < 2; i++)
        for (size_t j = 0; j < 3; j++) {
            struct synthetic s = of_type(synthetic_default(), types[i]);
            char what[64];
            s.architecture = families[j];
            s.biases = j == 1;
            s.tied = j == 2;
            s.seed = 10 * i + j;
            snprintf(what, sizeof(what), "%s, %s", families[j], compute_type_name(types[i]));
            check_both(what, &s, &sharded);
        }
}

/* The factors of Llama 3.1, by its published formula, in the GGUF; their parameters in config.json.
 * Heads of 64 with this base have waves of all three kinds. */
static void check_llama3(void)
{
    struct synthetic s = synthetic_default();
    float factors[32];
    const struct folder_writer options = {
        .no_rope_factors = true,
        .rope_scaling = "{\"rope_type\": \"llama3\", \"factor\": 8.0, \"low_freq_factor\": 1.0, "
                        "\"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 512}"};
    unsigned kinds[3] = {0};
    s.head_dim = 64;
    for (uint32_t i = 0; i < 32; i++) {
        double wave = 2 * M_PI * pow(10000, 2.0 * i / 64), smooth = (512 / wave - 1) / (4 - 1);
        int kind = wave < 512.0 / 4 ? 0 : wave > 512.0 / 1 ? 1 : 2;
        kinds[kind]++;
        factors[i] = kind == 0 ? 1 : kind == 1 ? 8 : (float)(1 / ((1 - smooth) / 8 + smooth));
    }
    CHECK(kinds[0] > 0 && kinds[1] > 0 && kinds[2] > 0);
    s.rope_factors_are = factors;
    check_both("llama, RoPE of Llama 3.1", &s, &options);
}

static void check_identity(void)
{
    struct synthetic s = synthetic_default();
    const struct folder_writer whole = {.shards = 0}, sharded = {.shards = 2};
    struct model_file *gguf, *files[4];
    struct error error = {0};
    size_t bytes;
    uint8_t *image = synthetic_image(&s, &bytes);
    CHECKF(model_file_open_memory(image, bytes, "x", &gguf, &error) == ST_OK, "%s", error.text);
    files[0] = folder_of(gguf, &whole);
    files[1] = folder_of(gguf, &whole);
    files[2] = folder_of(gguf, &sharded);
    /* The same metadata, other weights. */
    size_t last = bytes - 8;
    image[last] ^= 1;
    files[3] = folder_of(gguf, &whole);
    CHECK(digest_equal(model_file_digest(files[0]), model_file_digest(files[1])));
    CHECK(model_file_metadata_hash(files[0]) == model_file_metadata_hash(files[1]));
    CHECK(model_file_metadata_hash(files[0]) != model_file_metadata_hash(files[2]));
    CHECK(model_file_metadata_hash(files[0]) == model_file_metadata_hash(files[3]));
    CHECK(!digest_equal(model_file_digest(files[0]), model_file_digest(files[3])));
    CHECK(model_file_bytes(files[0]) > 4ull * s.vocab * s.hidden);
    for (size_t i = 0; i < 4; i++)
        model_file_close(files[i]);
    model_file_close(gguf);
    free(image);
}

int main(void)
{
    check_families();
    check_types();
    check_llama3();
    check_identity();
    return 0;
}
