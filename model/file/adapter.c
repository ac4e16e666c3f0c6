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

struct file {
    const char *data;
    size_t bytes;
};

struct adapter {
    struct file config_file, weights_file;
    json_t *config;
    struct safetensors tensors;
    float alpha;
    bool root_scale; /* The scale is alpha divided by the root of the rank (use_rslora). */
};

static const char *const modules[ADAPTER_MATRIX_COUNT] = {
    [ADAPTER_Q] = "self_attn.q_proj", [ADAPTER_K] = "self_attn.k_proj",
    [ADAPTER_V] = "self_attn.v_proj", [ADAPTER_OUTPUT] = "self_attn.o_proj",
    [ADAPTER_GATE] = "mlp.gate_proj", [ADAPTER_UP] = "mlp.up_proj",
    [ADAPTER_DOWN] = "mlp.down_proj",
};

static enum status file_open(const char *path, const char *name, struct file *out,
                             struct error *error)
{
    char whole[4096];
    struct stat info;
    snprintf(whole, sizeof(whole), "%s/%s", path, name);
    int fd = open(whole, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return error_set(error, errno == ENOENT ? ST_NOT_FOUND : ST_IO, "%s: cannot open: %s",
                         whole, strerror(errno));
    if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0)
        out->data = mapping_open(fd, (size_t)info.st_size, name);
    out->bytes = out->data != NULL ? (size_t)info.st_size : 0;
    close(fd);
    return out->data != NULL
               ? ST_OK
               : error_set(error, ST_IO, "%s: cannot read: want a file that is not empty", whole);
}

/* Reads "…layers.N.MODULE.lora_A.weight". Returns false for another name. */
static bool parse_name(struct mapped_text name, uint32_t *layer_out,
                       enum adapter_matrix *matrix_out, bool *up_out)
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
        for (int up = 0; up < 2; up++) {
            char rest[64];
            snprintf(rest, sizeof(rest), "%s.lora_%c.weight", modules[m], up != 0 ? 'B' : 'A');
            if (!mapped_text_is((struct mapped_text){at + 1, (size_t)(end - at - 1)}, rest))
                continue;
            *layer_out = layer;
            *matrix_out = (enum adapter_matrix)m;
            *up_out = up != 0;
            return true;
        }
    return false;
}

static enum status check_tensors(const struct adapter *a, struct error *error)
{
    uint32_t layer;
    enum adapter_matrix matrix;
    bool up;
    for (size_t i = 0; i < a->tensors.tensor_count; i++) {
        const struct mapped_tensor *t = &a->tensors.tensors[i];
        if (!parse_name(t->name, &layer, &matrix, &up))
            return error_set(error, ST_UNSUPPORTED,
                             WEIGHTS ": tensor '%.100s' is not lora_A or lora_B of q_proj, k_proj, "
                                     "v_proj, o_proj, gate_proj, up_proj or down_proj",
                             t->name.text);
        if (t->dim_count != 2 ||
            (t->type != COMPUTE_F32 && t->type != COMPUTE_F16 && t->type != COMPUTE_BF16))
            return error_set(error, ST_UNSUPPORTED,
                             WEIGHTS ": tensor '%.100s': want two dimensions of F32, F16 or BF16",
                             t->name.text);
        if (adapter_tensor(a, layer, matrix, !up) == NULL)
            return error_set(error, ST_INVALID, WEIGHTS ": tensor '%.100s' has no %s beside it",
                             t->name.text, up ? "lora_A" : "lora_B");
    }
    return ST_OK;
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
    const struct mapped_text text = {a->config_file.data, a->config_file.bytes};
    enum status status = json_read(CONFIG, text, &a->config, error);
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

enum status adapter_open(const char *path, struct adapter **out, struct error *error)
{
    struct adapter *a = calloc(1, sizeof(*a));
    if (a == NULL)
        return error_set(error, ST_NO_MEMORY, "no memory for an adapter");
    enum status status = file_open(path, CONFIG, &a->config_file, error);
    if (status == ST_OK)
        status = file_open(path, WEIGHTS, &a->weights_file, error);
    if (status == ST_OK)
        status = read_config(a, error);
    if (status == ST_OK)
        status = safetensors_read(WEIGHTS, a->weights_file.data, a->weights_file.bytes, &a->tensors,
                                  error);
    if (status == ST_OK)
        status = check_tensors(a, error);
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
    safetensors_done(&a->tensors);
    json_decref(a->config);
    if (a->config_file.data != NULL)
        mapping_close(a->config_file.data, a->config_file.bytes);
    if (a->weights_file.data != NULL)
        mapping_close(a->weights_file.data, a->weights_file.bytes);
    free(a);
}

const struct mapped_tensor *adapter_tensor(const struct adapter *a, uint32_t layer,
                                           enum adapter_matrix matrix, bool up)
{
    uint32_t its_layer;
    enum adapter_matrix its;
    bool its_up;
    for (size_t i = 0; i < a->tensors.tensor_count; i++)
        if (parse_name(a->tensors.tensors[i].name, &its_layer, &its, &its_up) &&
            its_layer == layer && its == matrix && its_up == up)
            return &a->tensors.tensors[i];
    return NULL;
}

float adapter_scale(const struct adapter *a, uint32_t rank)
{
    return a->alpha / (a->root_scale ? sqrtf((float)rank) : (float)rank);
}

uint32_t adapter_layers(const struct adapter *a)
{
    uint32_t layer, most = 0;
    enum adapter_matrix matrix;
    bool up;
    for (size_t i = 0; i < a->tensors.tensor_count; i++)
        if (parse_name(a->tensors.tensors[i].name, &layer, &matrix, &up) && layer + 1 > most)
            most = layer + 1;
    return most;
}

void adapter_digest_add(const struct adapter *a, struct digest *digest)
{
    digest_add(digest, a->config_file.data, a->config_file.bytes);
    digest_add(digest, a->weights_file.data, a->weights_file.bytes);
}
