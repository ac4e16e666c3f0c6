/* adapter_writer: see the header. */
#include "tests/model/file/adapter_writer.h"

#include "common/random.h"
#include "model/file/model_file.h"
#include "tests/check.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

#define CONFIG       "adapter_config.json"
#define WEIGHTS      "adapter_model.safetensors"
#define HEADER_BYTES 160 /* Of a tensor in the header, at most. */

static const char *const modules[] = {"self_attn.q_proj", "self_attn.v_proj", "self_attn.k_proj",
                                      "self_attn.o_proj", "mlp.gate_proj",    "mlp.up_proj",
                                      "mlp.down_proj"};

static uint32_t module_count(const struct adapter_writer *w)
{
    return w->only_q_v ? 2 : sizeof(modules) / sizeof(modules[0]);
}

static uint32_t rows_of(const struct adapter_writer *w, uint32_t module)
{
    const uint32_t rows[] = {w->q, w->kv, w->kv, w->hidden, w->ffn, w->ffn, w->hidden};
    return rows[module];
}

static uint32_t cols_of(const struct adapter_writer *w, uint32_t module)
{
    return module == 3 ? w->q : module == 6 ? w->ffn : w->hidden;
}

char *adapter_writer_config(const struct adapter_writer *w, size_t *bytes_out)
{
    char *text = malloc(512);
    CHECK(text != NULL);
    *bytes_out = (size_t)snprintf(
        text, 512,
        "{\"peft_type\": \"LORA\", \"r\": %u, \"lora_alpha\": %g, \"use_rslora\": %s,\n"
        " \"bias\": \"none\", \"rank_pattern\": {}, \"modules_to_save\": null}\n",
        w->rank, (double)w->alpha, w->root_scale ? "true" : "false");
    return text;
}

static size_t element_bytes(const struct adapter_writer *w)
{
    return w->bf16 ? 2 : sizeof(float);
}

struct maker {
    const struct adapter_writer *w;
    char *header;
    size_t used, header_bytes;
    float *data;
    size_t floats;
};

/* One matrix whose numbers have a deviation of about `deviation`. */
static void put(struct maker *m, uint32_t layer, const char *module, char letter, uint32_t rows,
                uint32_t cols, float deviation)
{
    const size_t count = (size_t)rows * cols, each = element_bytes(m->w);
    m->used += (size_t)snprintf(m->header + m->used, m->header_bytes - m->used,
                                "%s\"base_model.model.model.layers.%u.%s.lora_%c.weight\":"
                                "{\"dtype\":\"%s\",\"shape\":[%u,%u],\"data_offsets\":[%zu,%zu]}",
                                m->used == 1 ? "" : ",", layer, module, letter,
                                m->w->bf16 ? "BF16" : "F32", rows, cols, m->floats * each,
                                (m->floats + count) * each);
    CHECK(m->used < m->header_bytes);
    for (size_t i = 0; i < count; i++, m->floats++)
        m->data[m->floats] = deviation * 3.4641f * (random_unit_at(m->w->seed, m->floats) - 0.5f);
}

uint8_t *adapter_writer_weights(const struct adapter_writer *w, size_t *bytes_out)
{
    struct maker m = {.w = w, .used = 1};
    size_t floats = 0;
    for (uint32_t i = 0; i < module_count(w); i++)
        floats += (size_t)w->layers * w->rank * (rows_of(w, i) + cols_of(w, i));
    m.header_bytes = 2 + (size_t)w->layers * module_count(w) * 2 * HEADER_BYTES;
    m.header = malloc(m.header_bytes);
    m.data = malloc(floats * sizeof(float));
    CHECK(m.header != NULL && m.data != NULL);
    m.header[0] = '{';
    for (uint32_t layer = 0; layer < w->layers; layer++)
        for (uint32_t i = 0; i < module_count(w); i++) {
            const uint32_t cols = cols_of(w, i);
            put(&m, layer, modules[i], 'A', w->rank, cols, 1 / sqrtf((float)cols));
            put(&m, layer, modules[i], 'B', rows_of(w, i), w->rank, 0.3f);
        }
    CHECK(m.used + 2 < m.header_bytes && m.floats == floats);
    m.header[m.used++] = '}';
    while (m.used % 2 != w->odd)
        m.header[m.used++] = ' ';
    const uint64_t header = m.used;
    const size_t each = element_bytes(w);
    *bytes_out = 8 + m.used + floats * each;
    uint8_t *out = malloc(*bytes_out);
    CHECK(out != NULL);
    memcpy(out, &header, 8);
    memcpy(out + 8, m.header, m.used);
    for (size_t i = 0; i < floats; i++) /* The upper half of an F32 is a BF16. */
        memcpy(out + 8 + m.used + i * each, (const uint8_t *)&m.data[i] + sizeof(float) - each,
               each);
    free(m.header);
    free(m.data);
    return out;
}

static void write_file(const char *path, const char *name, const void *data, size_t bytes)
{
    char whole[4096];
    snprintf(whole, sizeof(whole), "%s/%s", path, name);
    FILE *file = fopen(whole, "wb");
    CHECKF(file != NULL && fwrite(data, 1, bytes, file) == bytes && fclose(file) == 0, "%s", whole);
}

static void write_folder(const struct adapter_writer *w, const char *path)
{
    size_t bytes;
    char *config = adapter_writer_config(w, &bytes);
    write_file(path, CONFIG, config, bytes);
    free(config);
    uint8_t *weights = adapter_writer_weights(w, &bytes);
    write_file(path, WEIGHTS, weights, bytes);
    free(weights);
}

static void remove_folder(const char *path)
{
    static const char *const names[] = {CONFIG, WEIGHTS};
    for (size_t i = 0; i < 2; i++) {
        char whole[4096];
        snprintf(whole, sizeof(whole), "%s/%s", path, names[i]);
        CHECK(unlink(whole) == 0);
    }
    CHECK(rmdir(path) == 0);
}

void adapter_writer_add(const struct adapter_writer *w, struct model_file *file, const char *name)
{
    char path[] = "/tmp/cleave-adapter-XXXXXX";
    struct error error = {0};
    CHECK(mkdtemp(path) != NULL);
    write_folder(w, path);
    const enum status status = model_file_adapter_add(file, name, path, &error);
    remove_folder(path); /* The mappings stay valid. */
    CHECKF(status == ST_OK, "%s", error.text);
}
