/* fuzz_packed: folders whose weights are packed integers (GPTQ, AWQ, compressed-tensors) or MXFP4,
 * with any tensors, give an error or tensors whose rows can all be read (checked by ASan). The
 * first byte of an input chooses the format and its settings in config.json, the other bytes are
 * model.safetensors. */
#include "model/file/model_file.h"
#include "tests/check.h"
#include "tests/fuzz.h"

#include "model/file/folder.h"

#include <string.h>

#define COMPRESSED(format, bits, symmetric, strategy)                                              \
    "{\"quant_method\":\"compressed-tensors\",\"format\":\"" format                                \
    "\",\"config_groups\":{\"group_0\":{\"weights\":{\"type\":\"int\",\"num_bits\":" bits          \
    ",\"symmetric\":" symmetric "," strategy "}}}}"
#define GROUPS   "\"strategy\":\"group\",\"group_size\":32"
#define CHANNELS "\"strategy\":\"channel\""

static const char *const settings[] = {
    "{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":32,\"sym\":false}",
    "{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":32,\"sym\":true}",
    "{\"quant_method\":\"gptq\",\"bits\":8,\"group_size\":32,\"sym\":true}",
    "{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":-1,\"sym\":false,"
    "\"checkpoint_format\":\"gptq_v2\"}",
    "{\"quant_method\":\"awq\",\"bits\":4,\"group_size\":32,\"zero_point\":true}",
    COMPRESSED("pack-quantized", "4", "true", GROUPS),
    COMPRESSED("pack-quantized", "4", "false", GROUPS),
    COMPRESSED("pack-quantized", "8", "true", CHANNELS),
    COMPRESSED("int-quantized", "8", "true", CHANNELS),
    COMPRESSED("int-quantized", "8", "true", GROUPS),
    "{\"quant_method\":\"mxfp4\"}",
};

#define SETTINGS (sizeof(settings) / sizeof(settings[0]))

static volatile float sink;

static void read_rows(const struct model_file *file, const struct mapped_tensor *t)
{
    struct compute_source source;
    struct error error = {""};
    void *memory;
    float row[512];
    const uint64_t rows = t->dims[1] * t->dims[2];
    if (t->dims[0] > 512 || rows > 2000)
        return;
    if (model_file_source(file, t, 0, (uint32_t)rows, &source, &memory, &error) != ST_OK) {
        CHECK(error.text[0] != 0);
        return;
    }
    for (uint32_t r = 0; r < source.rows; r++) {
        compute_source_row(&source, r, row);
        sink += row[0];
    }
    free(memory);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct model_file *file = NULL;
    struct error error = {""};
    char config[1024];
    if (size < 1)
        return 0;
    snprintf(config, sizeof(config), "{\"model_type\":\"llama\",\"quantization_config\":%s}",
             settings[data[0] % SETTINGS]);
    uint8_t *weights = malloc(size); /* At least one byte; the parser sees size - 1. */
    CHECK(weights != NULL);
    memcpy(weights, data + 1, size - 1);
    const struct folder_part parts[] = {{"config.json", config, strlen(config)},
                                        {"model.safetensors", weights, size - 1}};
    if (model_file_open_parts("fuzz", parts, 2, &file, &error) == ST_OK) {
        const struct mapped_tensor *t;
        enum model_role role;
        uint32_t layer;
        bool known;
        for (size_t i = 0; (t = model_file_tensor_at(file, i, &role, &layer, &known)) != NULL; i++)
            if (t->data == NULL)
                read_rows(file, t);
    } else {
        CHECK(file == NULL && error.text[0] != 0);
    }
    model_file_close(file);
    free(weights);
    return 0;
}

/* ---- seeds ---- */

struct part {
    const char *name, *dtype, *shape;
    uint32_t bytes;
};

#define PARTS_MAX 4

/* A matrix of 16 rows and 64 columns, or two experts of 4 rows, in the form of each of
 * `settings`. */
static const struct part seeds[SETTINGS][PARTS_MAX] = {
    {{"a.qweight", "I32", "[8,16]", 512},
     {"a.qzeros", "I32", "[2,2]", 16},
     {"a.scales", "F16", "[2,16]", 64}},
    {{"a.qweight", "I32", "[8,16]", 512},
     {"a.qzeros", "I32", "[2,2]", 16},
     {"a.scales", "F16", "[2,16]", 64},
     {"a.g_idx", "I32", "[64]", 256}},
    {{"a.qweight", "I32", "[16,16]", 1024},
     {"a.qzeros", "I32", "[2,4]", 32},
     {"a.scales", "BF16", "[2,16]", 64}},
    {{"a.qweight", "I32", "[8,16]", 512},
     {"a.qzeros", "I32", "[1,2]", 8},
     {"a.scales", "F16", "[1,16]", 32}},
    {{"a.qweight", "I32", "[64,2]", 512},
     {"a.qzeros", "I32", "[2,2]", 16},
     {"a.scales", "F16", "[2,16]", 64}},
    {{"a.weight_packed", "I32", "[16,8]", 512},
     {"a.weight_scale", "BF16", "[16,2]", 64},
     {"a.weight_shape", "I64", "[2]", 16}},
    {{"a.weight_packed", "I32", "[16,8]", 512},
     {"a.weight_scale", "F16", "[16,2]", 64},
     {"a.weight_zero_point", "I32", "[2,2]", 16},
     {"a.weight_shape", "I64", "[2]", 16}},
    {{"a.weight_packed", "I32", "[16,16]", 1024},
     {"a.weight_scale", "F32", "[16,1]", 64},
     {"a.weight_shape", "I64", "[2]", 16}},
    {{"a.weight", "I8", "[16,64]", 1024}, {"a.weight_scale", "F32", "[16,1]", 64}},
    {{"a.weight", "I8", "[16,64]", 1024}, {"a.weight_scale", "BF16", "[16,2]", 64}},
    {{"a_blocks", "U8", "[2,4,2,16]", 256}, {"a_scales", "U8", "[2,4,2]", 16}},
};

/* Writes the data of a part: numbers of columns ascend, other integers are patterns, scales 0.5. */
static void fill(const struct part *part, uint8_t *to)
{
    static const uint64_t shape[2] = {16, 64};
    static const uint8_t half[3][4] = {{0, 0x38, 0, 0x38}, {0, 0x3f, 0, 0x3f}, {0, 0, 0, 0x3f}};
    const int kind = strcmp(part->dtype, "F16") == 0    ? 0
                     : strcmp(part->dtype, "BF16") == 0 ? 1
                     : strcmp(part->dtype, "F32") == 0  ? 2
                                                        : 3;
    for (uint32_t i = 0; i < part->bytes; i++)
        to[i] = kind < 3 ? half[kind][i % 4] : (uint8_t)(0x77 + i / 4 % 3);
    if (strstr(part->name, "g_idx") != NULL)
        for (uint32_t i = 0; i < part->bytes; i++)
            to[i] = i % 4 == 0 ? (uint8_t)(i / 4 / 32) : 0;
    if (strstr(part->name, "qzeros") != NULL) /* The middle, less one. */
        memset(to, strcmp(part->shape, "[2,4]") == 0 ? 0x7f : 0x77, part->bytes);
    if (strstr(part->name, "weight_shape") != NULL)
        memcpy(to, shape, sizeof(shape));
}

size_t fuzz_seed(unsigned index, uint8_t *buffer, size_t capacity)
{
    char header[1024];
    uint32_t at = 0;
    size_t used = 1;
    if (index >= SETTINGS)
        return 0;
    header[0] = '{';
    for (uint32_t i = 0; i < PARTS_MAX && seeds[index][i].name != NULL; i++) {
        const struct part *part = &seeds[index][i];
        used += (size_t)snprintf(
            header + used, sizeof(header) - used,
            "%s\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%u,%u]}", i > 0 ? "," : "",
            part->name, part->dtype, part->shape, at, at + part->bytes);
        at += part->bytes;
    }
    header[used++] = '}';
    const uint64_t size = used;
    CHECK(1 + 8 + used + at <= capacity && used < sizeof(header));
    buffer[0] = (uint8_t)index;
    memcpy(buffer + 1, &size, 8);
    memcpy(buffer + 9, header, used);
    uint8_t *data = buffer + 9 + used;
    for (uint32_t i = 0; i < PARTS_MAX && seeds[index][i].name != NULL; i++) {
        fill(&seeds[index][i], data);
        data += seeds[index][i].bytes;
    }
    return (size_t)(data - buffer);
}
