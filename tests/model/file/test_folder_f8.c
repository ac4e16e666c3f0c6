/* Goal: folders whose matrices are E4M3 with scales (one per matrix, one per row, one per 128 × 128
 * block), or integers packed as GPTQ or AWQ, give the numbers of the same weights in fp32, and each
 * mistake in folders of E4M3 gives one clear error. Method: synthetic models written quantised, and
 * again with the weights multiplied out: equal logits to the bit in exact mode; as shipped as close
 * as the rounding of activations allows. Then the files of a small model, each time with one
 * mistake. */
#include "tests/check.h"
#include "tests/model/file/folder_parts.h"
#include "tests/model/file/folder_writer.h"
#include "tests/model/forward/engine.h"
#include "tests/model/forward/reference.h"
#include "tests/model/forward/synthetic.h"

#include <string.h>

#define TOKENS 45
#define WEIGHT "model.layers.0.self_attn.q_proj.weight"
#define NEXT   "\"dtype\":\"BF16\",\"shape\":[8,1]"

static float *run(const struct synthetic *s, const struct folder_writer *options, bool exact)
{
    char path[] = "/tmp/cleave-folder-XXXXXX";
    const struct engine_options engine = engine_options_small(exact);
    const size_t count = (size_t)TOKENS * s->vocab;
    struct model_file *file;
    struct error error = {0};
    struct engine e;
    uint32_t ids[TOKENS];
    uint8_t *image;
    float *out = malloc(count * sizeof(float));
    struct model_file *gguf = synthetic_open(s, "x", &image);
    CHECK(mkdtemp(path) != NULL && out != NULL);
    folder_write(gguf, options, path);
    enum status status = model_file_open(path, &file, &error);
    folder_remove(path); /* the mappings stay */
    CHECKF(status == ST_OK, "%s", error.text);
    synthetic_tokens(s, TOKENS, ids);
    engine_open(file, &engine, &e);
    memcpy(out, engine_run(&e, ids, TOKENS, 0, 0), count * sizeof(float));
    engine_close(&e);
    model_file_close(file);
    model_file_close(gguf);
    free(image);
    return out;
}

static void check_form(const char *what, const struct synthetic *s, enum folder_f8 form)
{
    const struct folder_writer options = {.f8 = form, .shards = form == FOLDER_F8_ROW ? 2 : 0};
    struct folder_writer undone = options;
    const size_t count = (size_t)TOKENS * s->vocab;
    undone.f8_undone = true;
    float *want = run(s, &undone, true), *exact = run(s, &options, true);
    float *shipped = run(s, &options, false);
    double distance = reference_distance(shipped, want, count);
    printf("%-28s as shipped %.2e of fp32\n", what, distance);
    CHECK(memcmp(exact, want, count * sizeof(float)) == 0);
    CHECK(distance > 0 && distance < 0.03);
    free(want);
    free(exact);
    free(shipped);
}

static void check_forms(void)
{
    struct synthetic s = synthetic_default();
    s.hidden = 192; /* blocks that are not whole */
    s.ffn = 320;
    check_form("llama, a scale a matrix", &s, FOLDER_F8_TENSOR);
    check_form("llama, a scale a row", &s, FOLDER_F8_ROW);
    check_form("llama, 128 x 128", &s, FOLDER_F8_BLOCK);
    check_form("llama, GPTQ", &s, FOLDER_GPTQ);
    s.architecture = "qwen3";
    s.head_dim = 48;
    s.tied = false;
    check_form("qwen3, 128 x 128", &s, FOLDER_F8_BLOCK);
    check_form("qwen3, AWQ", &s, FOLDER_AWQ);
}

/* ---- what is wrong ---- */

struct bad {
    const char *what;
    const char *find; /* in `file` */
    const char *put;
    const char *words[3];
};

static const struct bad configs[] = {
    {"no config",
     "quantization_config",
     "x",
     {"down_proj.weight", "F8_E4M3", "quantization_config"}},
    {"another method", "compressed-tensors", "modelopt", {"quant_method", "modelopt", "fp8"}},
    {"another format", "float-quantized", "nvfp4-pack", {"/format", "nvfp4-pack"}},
    {"packed floats", "float-quantized", "pack-quantized", {"group_0/weights", "integers"}},
    {"integers", "\"float\"", "\"int\"", {"group_0/weights", "int", "8 bits"}},
    {"4 bits", "num_bits\": 8", "num_bits\": 4", {"group_0/weights", "4"}},
    {"asymmetric", "symmetric\": true", "symmetric\": false", {"weights", "symmetric"}},
    {"groups", "\"channel\"", "\"group\"", {"weights/strategy", "group", "channel"}},
    {"blocks of none", "\"channel\"", "\"block\"", {"block_structure", "missing", "[128, 128]"}},
    {"a scale a matrix", "\"channel\"", "\"tensor\"", {"q_proj.weight_scale", "8 x 1", "1 x 1"}},
    {"rotations",
     "kv_cache_scheme\": null",
     "transform_config\": {\"a\": 1}",
     {"transform_config"}},
    {"no groups", "config_groups", "x", {"config_groups", "missing"}},
    {"other names", "compressed-tensors", "fp8", {"1 x 1"}},
};

static const struct bad headers[] = {
    {"no scale", WEIGHT "_scale", "x.weight_scale", {"x.weight_scale", "missing"}},
    {"no scale at all", "_proj.weight_scale", "_proj.bias", {"q_proj.weight_scale is missing"}},
    {"too few scales",
     WEIGHT "_scale\":{" NEXT,
     WEIGHT "_scale\":{\"dtype\":\"F32\",\"shape\":[4,1]",
     {WEIGHT "_scale", "4 x 1", "8 x 1"}},
    {"scales of E4M3",
     WEIGHT "_scale\":{" NEXT,
     WEIGHT "_scale\":{\"dtype\":\"F8_E4M3\",\"shape\":[8,2]",
     {WEIGHT "_scale", "8 x 2"}},
    {"a norm of E4M3", "BF16\",\"shape\":[8],", "F8_E4M3\",\"shape\":[16],", {"16", "want 8"}},
};

static void check_refused(const char *what, struct folder_parts *p, const char *const words[3])
{
    const struct compute_options compute_options = {.threads = 1};
    struct model_options options = {.ops = &compute_cpu};
    struct model_file *file = NULL;
    struct model *model = NULL;
    struct error error = {""};
    enum status status = model_file_open_parts("small", p->parts, p->count, &file, &error);
    CHECK(compute_cpu.open(&compute_options, &options.compute, &error) == ST_OK);
    if (status == ST_OK)
        status = model_open(file, &options, &model, &error);
    printf("%s: %s\n", what, error.text);
    CHECKF(status == ST_INVALID || status == ST_UNSUPPORTED, "%s", what);
    for (int i = 0; i < 3 && words[i] != NULL; i++)
        CHECKF(strstr(error.text, words[i]) != NULL, "%s: no '%s'", what, words[i]);
    compute_cpu.close(options.compute);
    model_file_close(file);
}

static void check_table(const struct bad *table, size_t count, const char *file)
{
    for (size_t i = 0; i < count; i++) {
        struct folder_parts p;
        folder_parts_make_f8(&p);
        folder_parts_replace(&p, file, table[i].find, table[i].put);
        check_refused(table[i].what, &p, table[i].words);
        folder_parts_done(&p);
    }
}

/* Weights and scales that are no numbers, first and last. */
static void check_values(void)
{
    static const struct {
        const char *tensor;
        long at;
        uint8_t byte;
        const char *words[3];
    } values[] = {
        {WEIGHT, 0, 0x7f, {WEIGHT, "element 0 is NaN"}},
        {WEIGHT, -1, 0xff, {WEIGHT, "element 63 is NaN"}},
        {WEIGHT "_scale", 1, 0x7f, {WEIGHT "_scale", "element 0 is"}}, /* 1.7e38 stays one */
        {WEIGHT "_scale", -1, 0xbf, {WEIGHT "_scale", "element 7 is -0.5"}},
    };
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        struct folder_parts p;
        folder_parts_make_f8(&p);
        folder_parts_poke(&p, values[i].tensor, values[i].at, values[i].byte);
        if (values[i].at == 1)
            folder_parts_poke(&p, values[i].tensor, 0, 0x80); /* infinity: 0x7f80 */
        check_refused(values[i].tensor, &p, values[i].words);
        folder_parts_done(&p);
    }
}

int main(void)
{
    check_forms();
    check_table(configs, sizeof(configs) / sizeof(configs[0]), "config.json");
    check_table(headers, sizeof(headers) / sizeof(headers[0]), "model.safetensors");
    check_values();
    return 0;
}
