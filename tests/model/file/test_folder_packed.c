/* Goal: weights of integers, packed as GPTQ, AWQ, compressed-tensors and gpt-oss write them, have
 * exactly the values of scale * (integer - zero point), and each mistake in such a folder gives one
 * clear error. Method: random integers are packed here, by code that shares nothing with packed.c;
 * the rows that model_file_source returns are compared bit for bit. */
#include "common/random.h"
#include "compute/half.h"
#include "model/file/folder.h"
#include "model/file/model_file.h"
#include "tests/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ROWS    40
#define COLS    128
#define GROUP   64
#define GROUPS  (COLS / GROUP)
#define EXPERTS 3

static uint64_t seed, drawn;

static uint32_t draw(uint32_t below)
{
    return (uint32_t)(random_at(seed, drawn++) % below);
}

/* The tensors of a safetensors file. */
struct maker {
    char header[4096];
    size_t used;
    uint8_t data[1 << 20];
    size_t at;
};

static struct maker maker;

static void tensor_put(const char *name, const char *dtype, const char *shape, const void *data,
                       size_t bytes)
{
    maker.used +=
        (size_t)snprintf(maker.header + maker.used, sizeof(maker.header) - maker.used,
                         "%s\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%zu,"
                         "%zu]}",
                         maker.used > 1 ? "," : "", name, dtype, shape, maker.at, maker.at + bytes);
    CHECK(maker.used + 1 < sizeof(maker.header) && maker.at + bytes <= sizeof(maker.data));
    memcpy(maker.data + maker.at, data, bytes);
    maker.at += bytes;
}

/* Integers, zero points and scales of one matrix, not packed. */
static struct {
    uint32_t quants[ROWS][COLS], zeros[ROWS][GROUPS];
    uint16_t scales[ROWS][GROUPS]; /* f16 */
} plain;

static void plain_draw(uint32_t bits, bool zeros)
{
    for (uint32_t r = 0; r < ROWS; r++) {
        for (uint32_t c = 0; c < COLS; c++)
            plain.quants[r][c] = draw(1u << bits);
        for (uint32_t g = 0; g < GROUPS; g++) {
            plain.zeros[r][g] = zeros ? draw(16) : 1u << (bits - 1);
            plain.scales[r][g] = half_to_f16((float)(1 + draw(2000)) * 1e-5f);
        }
    }
}

static void bits_put(uint32_t *words, size_t word, uint32_t shift, uint32_t value)
{
    words[word] |= value << shift;
}

static void put_gptq(uint32_t bits, uint32_t less, bool order)
{
    static uint32_t quants[COLS * ROWS], zeros[GROUPS * ROWS];
    static uint16_t scales[GROUPS * ROWS];
    int32_t index[COLS];
    const uint32_t each = 32 / bits, mask = (1u << bits) - 1;
    char shape[64];
    memset(quants, 0, sizeof(quants));
    memset(zeros, 0, sizeof(zeros));
    for (uint32_t r = 0; r < ROWS; r++) {
        for (uint32_t c = 0; c < COLS; c++)
            bits_put(quants, (size_t)c / each * ROWS + r, c % each * bits, plain.quants[r][c]);
        for (uint32_t g = 0; g < GROUPS; g++) {
            bits_put(zeros, (size_t)g * (ROWS / each) + r / each, r % each * bits,
                     (plain.zeros[r][g] - less) & mask);
            scales[g * ROWS + r] = plain.scales[r][g];
        }
    }
    for (int32_t c = 0; c < COLS; c++)
        index[c] = order ? (c + 1) % COLS / GROUP : c / GROUP;
    snprintf(shape, sizeof(shape), "[%u,%u]", COLS / each, ROWS);
    tensor_put("a.qweight", "I32", shape, quants, (size_t)COLS / each * ROWS * 4);
    snprintf(shape, sizeof(shape), "[%u,%u]", GROUPS, ROWS / each);
    tensor_put("a.qzeros", "I32", shape, zeros, (size_t)GROUPS * (ROWS / each) * 4);
    tensor_put("a.scales", "F16", "[2,40]", scales, sizeof(scales));
    tensor_put("a.g_idx", "I32", "[128]", index, sizeof(index));
}

static void put_awq(void)
{
    static const uint32_t order[8] = {0, 2, 4, 6, 1, 3, 5, 7}; /* Numbers in the nibbles. */
    static uint32_t quants[COLS][ROWS / 8], zeros[GROUPS][ROWS / 8];
    static uint16_t scales[GROUPS][ROWS];
    memset(quants, 0, sizeof(quants));
    memset(zeros, 0, sizeof(zeros));
    for (uint32_t i = 0; i < ROWS / 8; i++)
        for (uint32_t k = 0; k < 8; k++) {
            const uint32_t r = 8 * i + order[k];
            for (uint32_t c = 0; c < COLS; c++)
                quants[c][i] |= plain.quants[r][c] << 4 * k;
            for (uint32_t g = 0; g < GROUPS; g++) {
                zeros[g][i] |= plain.zeros[r][g] << 4 * k;
                scales[g][r] = plain.scales[r][g];
            }
        }
    tensor_put("a.qweight", "I32", "[128,5]", quants, sizeof(quants));
    tensor_put("a.qzeros", "I32", "[2,5]", zeros, sizeof(zeros));
    tensor_put("a.scales", "F16", "[2,40]", scales, sizeof(scales));
}

/* bits 0: 8-bit integers that are not packed. */
static void put_compressed(uint32_t bits, bool zeros)
{
    static uint32_t quants[ROWS * COLS], packed_zeros[ROWS / 8][GROUPS];
    static int8_t bytes[ROWS][COLS];
    const int64_t sizes[2] = {ROWS, COLS};
    const uint32_t each = 32 / (bits == 0 ? 8 : bits);
    char shape[64];
    memset(quants, 0, sizeof(quants));
    memset(packed_zeros, 0, sizeof(packed_zeros));
    for (uint32_t r = 0; r < ROWS; r++) {
        for (uint32_t c = 0; c < COLS; c++) {
            bits_put(quants, (size_t)r * (COLS / each) + c / each, c % each * 32 / each,
                     plain.quants[r][c]);
            bytes[r][c] = (int8_t)((int32_t)plain.quants[r][c] - 128);
        }
        for (uint32_t g = 0; g < GROUPS; g++)
            packed_zeros[r / 8][g] |= plain.zeros[r][g] << r % 8 * 4;
    }
    snprintf(shape, sizeof(shape), "[%u,%u]", ROWS, COLS / each);
    if (bits == 0) {
        tensor_put("a.weight", "I8", "[40,128]", bytes, sizeof(bytes));
    } else {
        tensor_put("a.weight_packed", "I32", shape, quants, (size_t)ROWS * (COLS / each) * 4);
        tensor_put("a.weight_shape", "I64", "[2]", sizes, sizeof(sizes));
    }
    tensor_put("a.weight_scale", "F16", "[40,2]", plain.scales, sizeof(plain.scales));
    if (zeros)
        tensor_put("a.weight_zero_point", "I32", "[5,2]", packed_zeros, sizeof(packed_zeros));
}

static enum status file_open(const char *quantization, struct model_file **out, struct error *error)
{
    static uint8_t file[sizeof(maker)];
    static char config[1024];
    maker.header[maker.used++] = '}';
    const uint64_t size = maker.used;
    memcpy(file, &size, sizeof(size));
    memcpy(file + 8, maker.header, maker.used);
    memcpy(file + 8 + maker.used, maker.data, maker.at);
    snprintf(config, sizeof(config),
             "{\"model_type\": \"llama\", \"tie_word_embeddings\": true, "
             "\"quantization_config\": %s}",
             quantization);
    const struct folder_part parts[] = {{"config.json", config, strlen(config)},
                                        {"model.safetensors", file, 8 + maker.used + maker.at}};
    return model_file_open_parts("packed", parts, 2, out, error);
}

static void begin(void)
{
    maker.header[0] = '{';
    maker.used = 1;
    maker.at = 0;
}

/* Returns the tensor that was added. */
static const struct mapped_tensor *added(const struct model_file *file)
{
    const struct mapped_tensor *t, *found = NULL;
    enum model_role role;
    uint32_t layer;
    bool known;
    for (size_t i = 0; (t = model_file_tensor_at(file, i, &role, &layer, &known)) != NULL; i++)
        if (t->data == NULL)
            found = t;
    CHECK(found != NULL);
    return found;
}

/* Compares rows [first, first + count) with the plain numbers. */
static void rows_check(const char *what, const struct model_file *file, uint32_t first,
                       uint32_t count)
{
    struct compute_source source;
    struct error error = {""};
    void *memory;
    float row[COLS];
    CHECKF(model_file_source(file, added(file), first, count, &source, &memory, &error) == ST_OK,
           "%s: %s", what, error.text);
    CHECK(source.rows == count && source.cols == COLS);
    for (uint32_t r = 0; r < count; r++) {
        compute_source_row(&source, r, row);
        for (uint32_t c = 0; c < COLS; c++) {
            const uint32_t at = first + r, g = c / GROUP;
            const float want = half_from_f16(plain.scales[at][g]) *
                               (float)((int32_t)plain.quants[at][c] - (int32_t)plain.zeros[at][g]);
            CHECKF(row[c] == want, "%s: row %u, column %u: %.9g, want %.9g", what, at, c,
                   (double)row[c], (double)want);
        }
    }
    free(memory);
}

static void check_file(const char *what, const char *quantization, enum compute_type type)
{
    struct model_file *file;
    struct error error = {""};
    CHECKF(file_open(quantization, &file, &error) == ST_OK, "%s: %s", what, error.text);
    const struct mapped_tensor *t = added(file);
    CHECKF(t->type == type && mapped_text_equals(t->name, "a.weight") && t->dims[0] == COLS &&
               t->dims[1] == ROWS,
           "%s is %s", what, compute_type_name(t->type));
    rows_check(what, file, 0, ROWS);
    rows_check(what, file, 7, 20);
    model_file_close(file);
}

#define GPTQ(bits, more) "{\"quant_method\":\"gptq\",\"bits\":" bits ",\"group_size\":64," more "}"
#define AWQ                                                                                        \
    "{\"quant_method\":\"awq\",\"bits\":4,\"group_size\":64,\"zero_point\":true,\"version\":"      \
    "\"gemm\"}"
#define COMPRESSED(format, bits, symmetric)                                                        \
    "{\"quant_method\":\"compressed-tensors\",\"format\":\"" format                                \
    "\",\"kv_cache_scheme\":{\"num_bits\":8},\"sparsity_config\":{\"format\":\"dense\"},"          \
    "\"config_groups\":{\"group_0\":{\"weights\":{\"type\":\"int\",\"num_bits\":" bits             \
    ",\"symmetric\":" symmetric ",\"strategy\":\"group\",\"group_size\":64}}}}"

static void check_values(void)
{
    begin(), plain_draw(4, false), put_gptq(4, 1, false);
    check_file("GPTQ, symmetric", GPTQ("4", "\"sym\":true"), COMPUTE_Q4_0);
    begin(), plain_draw(4, true), put_gptq(4, 1, false);
    check_file("GPTQ", GPTQ("4", "\"sym\":false"), COMPUTE_Q5_0);
    begin(), plain_draw(4, true), put_gptq(4, 0, false);
    check_file("GPTQ, version 2", GPTQ("4", "\"sym\":false,\"checkpoint_format\":\"gptq_v2\""),
               COMPUTE_Q5_0);
    begin(), plain_draw(8, false), put_gptq(8, 1, false);
    check_file("GPTQ, 8 bits", GPTQ("8", "\"sym\":true"), COMPUTE_Q8_0);
    begin(), plain_draw(4, true), put_awq();
    check_file("AWQ", AWQ, COMPUTE_Q5_0);
    begin(), plain_draw(4, false), put_compressed(4, false);
    check_file("compressed, 4 bits", COMPRESSED("pack-quantized", "4", "true"), COMPUTE_Q4_0);
    begin(), plain_draw(4, true), put_compressed(4, true);
    check_file("compressed, zero points", COMPRESSED("pack-quantized", "4", "false"), COMPUTE_Q5_0);
    begin(), plain_draw(8, false), put_compressed(8, false);
    check_file("compressed, 8 bits", COMPRESSED("pack-quantized", "8", "true"), COMPUTE_Q8_0);
    begin(), plain_draw(8, false), put_compressed(0, false);
    check_file("integers of 8 bits", COMPRESSED("int-quantized", "8", "true"), COMPUTE_Q8_0);
}

/* A stack of MXFP4 as gpt-oss has it: neighbouring elements are neighbouring nibbles. */
static void check_mxfp4(void)
{
    static const float values[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    static uint8_t blocks[EXPERTS][ROWS][COLS / 32][16], scales[EXPERTS][ROWS][COLS / 32];
    struct compute_source source;
    struct model_file *file;
    struct error error = {""};
    void *memory;
    float row[COLS];
    for (size_t i = 0; i < sizeof(blocks); i++)
        ((uint8_t *)blocks)[i] = (uint8_t)draw(256);
    for (size_t i = 0; i < sizeof(scales); i++)
        ((uint8_t *)scales)[i] = (uint8_t)draw(255);
    begin();
    tensor_put("a.gate_up_proj_blocks", "U8", "[3,40,4,16]", blocks, sizeof(blocks));
    tensor_put("a.gate_up_proj_scales", "U8", "[3,40,4]", scales, sizeof(scales));
    CHECKF(file_open("{\"quant_method\":\"mxfp4\"}", &file, &error) == ST_OK, "%s", error.text);
    const struct mapped_tensor *t = added(file);
    CHECK(mapped_text_equals(t->name, "a.gate_up_proj") && t->type == COMPUTE_MXFP4 &&
          t->dim_count == 3 && t->dims[2] == EXPERTS);
    CHECK(model_file_source(file, t, ROWS, 2 * ROWS, &source, &memory, &error) == ST_OK);
    for (uint32_t r = 0; r < 2 * ROWS; r++) {
        compute_source_row(&source, r, row);
        for (uint32_t c = 0; c < COLS; c++) {
            const uint32_t e = 1 + r / ROWS;
            const uint8_t code = blocks[e][r % ROWS][c / 32][c % 32 / 2] >> c % 2 * 4 & 15;
            const float want = ldexpf(code & 8 ? -values[code & 7] : values[code],
                                      scales[e][r % ROWS][c / 32] - 127);
            CHECKF(row[c] == want, "row %u, column %u: %g, want %g", r, c, (double)row[c],
                   (double)want);
        }
    }
    free(memory);
    scales[0][0][1] = 255;
    model_file_close(file);
    begin();
    tensor_put("a.gate_up_proj_blocks", "U8", "[3,40,4,16]", blocks, sizeof(blocks));
    tensor_put("a.gate_up_proj_scales", "U8", "[3,40,4]", scales, sizeof(scales));
    CHECK(file_open("{\"quant_method\":\"mxfp4\"}", &file, &error) == ST_OK);
    CHECK(model_file_source(file, added(file), 0, 1, &source, &memory, &error) == ST_INVALID);
    CHECKF(strstr(error.text, "element 1 is NaN") != NULL, "%s", error.text);
    model_file_close(file);
}

/* Opens the file, and reads the added tensor if it opens. */
static void expect(const char *quantization, const char *words)
{
    struct model_file *file;
    struct compute_source source;
    struct error error = {""};
    void *memory;
    enum status status = file_open(quantization, &file, &error);
    if (status == ST_OK) {
        status = model_file_source(file, added(file), 0, ROWS, &source, &memory, &error);
        model_file_close(file);
    }
    CHECKF(status == ST_INVALID || status == ST_UNSUPPORTED, "want '%s'", words);
    CHECKF(strstr(error.text, words) != NULL, "'%s', want '%s'", error.text, words);
}

static void check_wrong(void)
{
    static const uint32_t small[2] = {0, 0};
    begin(), plain_draw(4, true), put_gptq(4, 1, true);
    expect(GPTQ("4", "\"sym\":false"), "a.g_idx: column 63 is in group 1, want 0");
    begin(), plain_draw(4, true), put_gptq(4, 1, false);
    expect(GPTQ("4", "\"sym\":true"), "want 8 for symmetric weights of 4 bits");
    begin(), put_gptq(4, 1, false);
    expect("{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":96,\"sym\":false}",
           "in groups of 96 columns");
    begin(), put_gptq(4, 1, false);
    expect("{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":32,\"sym\":false}",
           "a.scales has 2 dimensions and the shape 2 x 40: want 4 x 40");
    begin(), put_gptq(4, 1, false);
    expect("null", "has integers, and belongs to no packed weights");
    begin();
    expect(GPTQ("3", "\"sym\":true"), "quantization_config/bits is 3, supported are 4 and 8");
    begin();
    expect(GPTQ("8", "\"sym\":false"), "quantization_config/sym is false");
    begin();
    expect("{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":17}", "group_size is 17");
    begin();
    expect("{\"quant_method\":\"awq\",\"bits\":4,\"version\":\"gemv\"}", "version is \"gemv\"");
    begin();
    expect(COMPRESSED("pack-quantized", "8", "false"), "group_0/weights");
    begin(), plain_draw(4, false), put_compressed(4, false);
    expect(COMPRESSED("pack-quantized", "4", "false"), "a.weight_zero_point is missing");
    begin(), plain_draw(4, false), plain.scales[3][1] = 0x7c00, put_compressed(4, false);
    expect(COMPRESSED("pack-quantized", "4", "true"), "scale of row 3, group 1 is inf");
    begin(), put_awq(), tensor_put("b.qzeros", "I32", "[1,2]", small, sizeof(small));
    expect(AWQ, "tensor b.qzeros has integers, and belongs to no packed weights");
    begin(), put_awq(), tensor_put("a.weight", "F32", "[1,2]", small, sizeof(small));
    expect(AWQ, "tensor 'a.weight' is there packed and not packed");
    begin(), tensor_put("a.qweight", "F32", "[1,2]", small, sizeof(small));
    tensor_put("b.qweight", "I32", "[1,2]", small, sizeof(small));
    expect(AWQ, "in groups of 64 columns");
}

int main(void)
{
    seed = test_seed();
    check_values();
    check_mxfp4();
    check_wrong();
    return 0;
}
