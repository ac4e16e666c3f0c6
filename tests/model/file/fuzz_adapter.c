/* fuzz_adapter: a low-rank adapter whose two files have any bytes gives an error or a valid
 * adapter: every product has both of its matrices or none, and their elements are readable to the
 * last byte (checked by ASan). An input is the size of adapter_config.json in 4 bytes, this file,
 * and adapter_model.safetensors. */
#include "model/file/adapter.h"
#include "tests/check.h"
#include "tests/fuzz.h"
#include "tests/model/file/adapter_writer.h"

#include "compute/source.h"

#include <string.h>

static volatile float sink;

static void *copy_of(const uint8_t *data, size_t bytes)
{
    void *copy = malloc(bytes > 0 ? bytes : 1); /* Of the exact size. */
    CHECK(copy != NULL);
    if (bytes > 0)
        memcpy(copy, data, bytes);
    return copy;
}

static void read_matrix(const struct mapped_tensor *t)
{
    float row[256];
    void *data =
        copy_of((const uint8_t *)t->data, t->bytes); /* Aligned; a file's data may not be. */
    const struct compute_source source = {
        .type = t->type, .rows = (uint32_t)t->dims[1], .cols = (uint32_t)t->dims[0], .data = data};
    CHECK(t->dim_count == 2 && t->bytes >= t->dims[1] * compute_source_row_bytes(&source));
    for (uint32_t r = 0; r < source.rows && source.cols <= 256; r++) {
        compute_source_row(&source, r, row);
        sink += source.cols > 0 ? row[source.cols - 1] : 0;
    }
    free(data);
}

static void use(const struct adapter *a)
{
    struct digest digest = {{0}};
    const uint32_t layers = adapter_layer_end(a);
    for (uint32_t layer = 0; layer < layers && layer < 1000; layer++)
        for (int m = 0; m < ADAPTER_MATRIX_COUNT; m++) {
            const struct mapped_tensor *down =
                adapter_tensor(a, layer, (enum adapter_matrix)m, false);
            const struct mapped_tensor *up = adapter_tensor(a, layer, (enum adapter_matrix)m, true);
            CHECK((down == NULL) == (up == NULL));
            if (down != NULL) {
                read_matrix(down);
                read_matrix(up);
            }
        }
    sink += adapter_scale(a, 16);
    adapter_digest_add(a, &digest);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct adapter *a = NULL;
    struct error error = {""};
    uint32_t bytes = 0;
    if (size < 4)
        return 0;
    memcpy(&bytes, data, 4);
    bytes = bytes < size - 4 ? bytes : (uint32_t)(size - 4);
    char *config = copy_of(data + 4, bytes), *weights = copy_of(data + 4 + bytes, size - 4 - bytes);
    const enum status status =
        adapter_open_memory((struct mapped_text){config, bytes},
                            (struct mapped_text){weights, size - 4 - bytes}, &a, &error);
    if (status == ST_OK)
        use(a);
    else
        CHECK(a == NULL && error.text[0] != 0);
    adapter_close(a);
    free(config);
    free(weights);
    return 0;
}

/* Adapters of one and of two layers, of two and of all products. */
size_t fuzz_seed(unsigned index, uint8_t *buffer, size_t capacity)
{
    const struct adapter_writer w = {.layers = 1 + index % 2,
                                     .hidden = 8,
                                     .ffn = 12,
                                     .q = 8,
                                     .kv = 4,
                                     .rank = 2,
                                     .alpha = 4,
                                     .only_q_v = index / 2 == 0,
                                     .root_scale = index % 2 == 1,
                                     .seed = index};
    size_t config_bytes, weights_bytes;
    if (index >= 4)
        return 0;
    char *config = adapter_writer_config(&w, &config_bytes);
    uint8_t *weights = adapter_writer_weights(&w, &weights_bytes);
    const uint32_t bytes = (uint32_t)config_bytes;
    CHECK(4 + config_bytes + weights_bytes <= capacity);
    memcpy(buffer, &bytes, 4);
    memcpy(buffer + 4, config, config_bytes);
    memcpy(buffer + 4 + config_bytes, weights, weights_bytes);
    free(config);
    free(weights);
    return 4 + config_bytes + weights_bytes;
}
