/* adapter: see adapter.h. */
#include "model/file/adapter.h"

#include "model/file/json_read.h"
#include "model/file/mapping.h"
#include "model/file/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define CONFIG  "adapter_config.json"
#define WEIGHTS "adapter_model.safetensors"

/* A matrix of a product, and its tensor. */
struct entry {
    uint32_t key; /* Layer, product, and whether it is B: ascending in the list. */
    const struct mapped_tensor *tensor;
};

struct adapter {
    struct mapped_text config_file, weights_file;
    bool mapped; /* The adapter closes the files' mappings. */
    json_t *config;
    struct safetensors tensors;
    struct entry *entries; /* [tensors.tensor_count] */
    float alpha;
    bool root_scale; /* The scale is alpha divided by the root of the rank (use_rslora). */
};

static const char *const modules[ADAPTER_MATRIX_COUNT] = {
    [ADAPTER_Q] = "self_attn.q_proj", [ADAPTER_K] = "self_attn.k_proj",
    [ADAPTER_V] = "self_attn.v_proj", [ADAPTER_OUTPUT] = "self_attn.o_proj",
    [ADAPTER_GATE] = "mlp.gate_proj", [ADAPTER_UP] = "mlp.up_proj",
    [ADAPTER_DOWN] = "mlp.down_proj",
};

static enum status file_open(const char *path, const char *name, struct mapped_text *out,
                             struct error *error)
{
    char whole[4096];
    struct stat info;
    enum status status = ST_OK;
    if ((size_t)snprintf(whole, sizeof(whole), "%s/%s", path, name) >= sizeof(whole))
        return error_set(error, ST_IO, "%.200s.../%s: cannot open: %s", path, name,
                         strerror(ENAMETOOLONG));
    int fd = open(whole, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return error_set(error, errno == ENOENT ? ST_NOT_FOUND : ST_IO, "%s: cannot open: %s",
                         whole, strerror(errno));
    if (fstat(fd, &info) != 0) {
        status = error_set(error, ST_IO, "%s: cannot read: %s", whole, strerror(errno));
    } else if (!S_ISREG(info.st_mode) || info.st_size == 0) {
        status = error_set(error, ST_IO, "%s: cannot read: want a file that is not empty", whole);
    } else {
        const void *data = mapping_open(fd, (size_t)info.st_size, name);
        if (data == NULL)
            status = error_set(error, ST_IO, "%s: cannot map it: %s", whole, strerror(errno));
        else
            *out = (struct mapped_text){data, (size_t)info.st_size};
    }
    close(fd);
    return status;
}

/* Reads "…layers.N.MODULE.lora_A.weight". Returns false for another name. */
static bool parse_name(struct mapped_text name, uint32_t *layer_out,
                       enum adapter_matrix *matrix_out, bool *is_b_out)
{
    static const char layers[] = "layers.";
    const char *at = memmem(name.text, name.bytes, layers, sizeof(layers) - 1);
    const char *end = name.text + name.bytes;
    uint32_t layer = 0;
    if (at == NULL)
        return false;
    at += sizeof(layers) - 1;
    const char *number = at;
    for (; at < end && at < number + 6 && *at >= '0' && *at <= '9'; at++)
        layer = layer * 10 + (uint32_t)(*at - '0');
    if (at == number || at == end || *at != '.')
        return false;
    for (int m = 0; m < ADAPTER_MATRIX_COUNT; m++)
        for (int b = 0; b < 2; b++) {
            char rest[64];
            snprintf(rest, sizeof(rest), "%s.lora_%c.weight", modules[m], b != 0 ? 'B' : 'A');
            if (!mapped_text_equals((struct mapped_text){at + 1, (size_t)(end - at - 1)}, rest))
                continue;
            *layer_out = layer;
            *matrix_out = (enum adapter_matrix)m;
            *is_b_out = b != 0;
            return true;
        }
    return false;
}

static uint32_t key_of(uint32_t layer, enum adapter_matrix matrix, bool is_b)
{
    return (layer * ADAPTER_MATRIX_COUNT + (uint32_t)matrix) * 2 + is_b;
}

static int compare_keys(const void *a, const void *b)
{
    const uint32_t x = ((const struct entry *)a)->key, y = ((const struct entry *)b)->key;
    return x < y ? -1 : x > y;
}

/* Checks that each A has its B, and the reverse, and that none is there twice. */
static enum status check_pairs(const struct adapter *a, struct error *error)
{
    const struct entry *entries = a->entries;
    for (size_t i = 0; i < a->tensors.tensor_count; i++) {
        const char *name = entries[i].tensor->name.text;
        const bool is_b = entries[i].key % 2 != 0;
        if (i + 1 < a->tensors.tensor_count && entries[i + 1].key == entries[i].key)
            return error_set(error, ST_INVALID,
                             WEIGHTS ": tensors '%.100s' and '%.100s' are of one product", name,
                             entries[i + 1].tensor->name.text);
        const uint32_t other = entries[i].key ^ 1u;
        const bool paired = is_b ? i > 0 && entries[i - 1].key == other
                                 : i + 1 < a->tensors.tensor_count && entries[i + 1].key == other;
        if (!paired)
            return error_set(error, ST_INVALID, WEIGHTS ": tensor '%.100s' has no %s beside it",
                             name, is_b ? "lora_A" : "lora_B");
    }
    return ST_OK;
}

/* Lists the tensors by their products. */
static enum status check_tensors(struct adapter *a, struct error *error)
{
    const size_t count = a->tensors.tensor_count;
    uint32_t layer;
    enum adapter_matrix matrix;
    bool is_b;
    a->entries = calloc(count + 1, sizeof(*a->entries));
    if (a->entries == NULL)
        return error_set(error, ST_NO_MEMORY, "no memory for an adapter");
    for (size_t i = 0; i < count; i++) {
        const struct mapped_tensor *t = &a->tensors.tensors[i];
        if (!parse_name(t->name, &layer, &matrix, &is_b))
            return error_set(error, ST_UNSUPPORTED,
                             WEIGHTS ": tensor '%.100s' is not lora_A or lora_B of q_proj, k_proj, "
                                     "v_proj, o_proj, gate_proj, up_proj or down_proj",
                             t->name.text);
        if (t->dim_count != 2 ||
            (t->type != COMPUTE_F32 && t->type != COMPUTE_F16 && t->type != COMPUTE_BF16))
            return error_set(error, ST_UNSUPPORTED,
                             WEIGHTS ": tensor '%.100s': want two dimensions of F32, F16 or BF16",
                             t->name.text);
        a->entries[i] = (struct entry){key_of(layer, matrix, is_b), t};
    }
    qsort(a->entries, count, sizeof(*a->entries), compare_keys);
    return check_pairs(a, error);
}

/* Refuses settings that change what is computed. */
static enum status check_config(const struct adapter *a, struct error *error)
{
    static const char *const flags[] = {"use_dora", "fan_in_fan_out", "lora_bias"};
    static const char *const lists[] = {"alpha_pattern", "modules_to_save",
                                        "trainable_token_indices"};
    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++)
        if (json_is_true(json_object_get(a->config, flags[i])))
            return error_set(error, ST_UNSUPPORTED, CONFIG ": %s is true: supported is false",
                             flags[i]);
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        const json_t *value = json_object_get(a->config, lists[i]);
        if (json_array_size(value) > 0 || json_object_size(value) > 0)
            return error_set(error, ST_UNSUPPORTED, CONFIG ": %s is given, which is not supported",
                             lists[i]);
    }
    const json_t *bias = json_object_get(a->config, "bias");
    if (json_is_string(bias) && strcmp(json_string_value(bias), "none") != 0)
        return error_set(error, ST_UNSUPPORTED, CONFIG ": bias is '%.40s': supported is 'none'",
                         json_string_value(bias));
    return ST_OK;
}

static enum status read_config(struct adapter *a, struct error *error)
{
    enum status status = json_read(CONFIG, a->config_file, &a->config, error);
    if (status == ST_OK && !json_text_equals(a->config, "peft_type", "LORA"))
        return error_set(error, ST_UNSUPPORTED, CONFIG ": peft_type: supported is LORA");
    if (status == ST_OK)
        status = json_get_f32(CONFIG, a->config, "lora_alpha", &a->alpha, error);
    if (status == ST_NOT_FOUND)
        return error_set(error, ST_INVALID, CONFIG ": lora_alpha is missing");
    if (status == ST_OK && !isfinite(a->alpha))
        return error_set(error, ST_INVALID, CONFIG ": lora_alpha: want a finite number");
    a->root_scale = json_is_true(json_object_get(a->config, "use_rslora"));
    return status == ST_OK ? check_config(a, error) : status;
}

static enum status read_files(struct adapter *a, struct error *error)
{
    enum status status = read_config(a, error);
    if (status == ST_OK)
        status = safetensors_read(WEIGHTS, a->weights_file.text, a->weights_file.bytes, &a->tensors,
                                  error);
    return status == ST_OK ? check_tensors(a, error) : status;
}

enum status adapter_open(const char *path, struct adapter **out, struct error *error)
{
    struct adapter *a = calloc(1, sizeof(*a));
    if (a == NULL)
        return error_set(error, ST_NO_MEMORY, "no memory for an adapter");
    a->mapped = true;
    enum status status = file_open(path, CONFIG, &a->config_file, error);
    if (status == ST_OK)
        status = file_open(path, WEIGHTS, &a->weights_file, error);
    if (status == ST_OK)
        status = read_files(a, error);
    if (status != ST_OK) {
        adapter_close(a);
        return status;
    }
    *out = a;
    return ST_OK;
}

enum status adapter_open_memory(struct mapped_text config, struct mapped_text weights,
                                struct adapter **out, struct error *error)
{
    struct adapter *a = calloc(1, sizeof(*a));
    if (a == NULL)
        return error_set(error, ST_NO_MEMORY, "no memory for an adapter");
    a->config_file = config;
    a->weights_file = weights;
    enum status status = read_files(a, error);
    if (status != ST_OK) {
        adapter_close(a);
        return status;
    }
    *out = a;
    return ST_OK;
}

void adapter_close(struct adapter *a)
{
    if (a == NULL)
        return;
    free(a->entries);
    safetensors_done(&a->tensors);
    json_decref(a->config);
    if (a->mapped && a->config_file.text != NULL)
        mapping_close(a->config_file.text, a->config_file.bytes);
    if (a->mapped && a->weights_file.text != NULL)
        mapping_close(a->weights_file.text, a->weights_file.bytes);
    free(a);
}

const struct mapped_tensor *adapter_tensor(const struct adapter *a, uint32_t layer,
                                           enum adapter_matrix matrix, bool is_b)
{
    const struct entry wanted = {.key = key_of(layer, matrix, is_b)};
    const struct entry *found =
        bsearch(&wanted, a->entries, a->tensors.tensor_count, sizeof(*a->entries), compare_keys);
    return found != NULL ? found->tensor : NULL;
}

float adapter_scale(const struct adapter *a, uint32_t rank)
{
    return a->alpha / (a->root_scale ? sqrtf((float)rank) : (float)rank);
}

uint32_t adapter_layer_end(const struct adapter *a)
{
    const size_t count = a->tensors.tensor_count;
    return count == 0 ? 0 : a->entries[count - 1].key / (2 * ADAPTER_MATRIX_COUNT) + 1;
}

void adapter_digest_add(const struct adapter *a, struct digest *digest)
{
    digest_add(digest, a->config_file.text, a->config_file.bytes);
    digest_add(digest, a->weights_file.text, a->weights_file.bytes);
}
