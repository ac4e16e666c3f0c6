/* folder_writer: see the header. For `llama` the rows of q and k are moved back to their order
 * before the conversion to GGUF: in GGUF the two rows that are rotated together are neighbours, in
 * folders they are half a head apart. */
#include "tests/model/file/folder_writer.h"

#include "compute/half.h"
#include "model/file/gguf_internal.h"
#include "model/forward/model.h"
#include "tests/check.h"
#include "tests/model/file/file_gguf.h"
#include "tests/model/file/gguf_writer.h"

#include <dirent.h>
#include <jansson.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

struct writer {
    const struct model_file *file;
    const struct gguf *g;
    const struct folder_writer *options;
    const char *path;
    struct model_hyper hyper;
    bool post_norms;
};

static FILE *create(const struct writer *w, const char *name)
{
    char path[1024];
    snprintf(path, sizeof(path), "%s/%s", w->path, name);
    FILE *out = fopen(path, "wb");
    CHECKF(out != NULL, "%s", path);
    return out;
}

static void write_json(const struct writer *w, const char *name, json_t *root)
{
    FILE *out = create(w, name);
    CHECK(json_dumpf(root, out, JSON_INDENT(1)) == 0);
    CHECK(fclose(out) == 0);
    json_decref(root);
}

/* ---- config.json ---- */

static const char *type_of(const struct writer *w)
{
    if (w->options->model_type != NULL)
        return w->options->model_type;
    return strcmp(w->hyper.architecture, "gemma3") == 0 ? "gemma3_text" : w->hyper.architecture;
}

static const char *const f8_configs[] = {
    [FOLDER_F8_TENSOR] =
        "{\"config_groups\": {\"group_0\": {\"input_activations\": {\"dynamic\": false, "
        "\"num_bits\": 8, \"strategy\": \"tensor\", \"type\": \"float\"}, \"targets\": "
        "[\"Linear\"], \"weights\": {\"dynamic\": false, \"num_bits\": 8, \"strategy\": "
        "\"tensor\", \"symmetric\": true, \"type\": \"float\"}}}, \"format\": "
        "\"float-quantized\", \"ignore\": [\"lm_head\"], \"kv_cache_scheme\": "
        "{\"dynamic\": false, \"num_bits\": 8, \"strategy\": \"tensor\", \"symmetric\": true, "
        "\"type\": \"float\"}, \"quant_method\": \"compressed-tensors\"}",
    [FOLDER_F8_ROW] =
        "{\"config_groups\": {\"group_0\": {\"input_activations\": {\"dynamic\": true, "
        "\"num_bits\": 8, \"strategy\": \"token\", \"type\": \"float\"}, \"targets\": "
        "[\"Linear\"], \"weights\": {\"dynamic\": false, \"num_bits\": 8, \"strategy\": "
        "\"channel\", \"symmetric\": true, \"type\": \"float\"}}}, \"format\": "
        "\"float-quantized\", \"quant_method\": \"compressed-tensors\"}",
    [FOLDER_F8_BLOCK] = "{\"activation_scheme\": \"dynamic\", \"fmt\": \"e4m3\", \"quant_method\": "
                        "\"fp8\", \"weight_block_size\": [128, 128]}",
    [FOLDER_GPTQ] = "{\"bits\": 4, \"desc_act\": false, \"group_size\": 32, \"quant_method\": "
                    "\"gptq\", \"sym\": false}",
    [FOLDER_AWQ] = "{\"bits\": 4, \"group_size\": 32, \"quant_method\": \"awq\", \"version\": "
                   "\"gemm\", \"zero_point\": true}",
};

static void write_config(const struct writer *w)
{
    const struct model_hyper *h = &w->hyper;
    json_t *root = json_pack(
        "{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:f, s:f, s:s, s:b}", "model_type",
        type_of(w), "num_hidden_layers", (int)h->layer_count, "hidden_size", (int)h->hidden,
        "intermediate_size", (int)h->ffn, "max_position_embeddings", (int)h->context_tokens,
        "vocab_size", (int)h->vocab, "num_attention_heads", (int)h->head_count,
        "num_key_value_heads", (int)h->kv_head_count, "head_dim", (int)h->head_dim, "rms_norm_eps",
        (double)h->norm_epsilon, "rope_theta", (double)h->rope_freq_base, "hidden_act",
        h->activation == COMPUTE_GELU ? "gelu_pytorch_tanh" : "silu", "tie_word_embeddings",
        model_file_tensor_find(w->file, ROLE_OUTPUT, 0) == NULL);
    CHECK(root != NULL);
    if (h->rope_dim != h->head_dim)
        json_object_set_new(root, "partial_rotary_factor",
                            json_real((double)h->rope_dim / h->head_dim));
    if (w->options->rope_scaling != NULL)
        json_object_set_new(root, "rope_scaling", json_loads(w->options->rope_scaling, 0, NULL));
    else if (h->rope_freq_scale != 1.0f)
        json_object_set_new(root, "rope_scaling",
                            json_pack("{s:s, s:f}", "rope_type", "linear", "factor",
                                      1 / (double)h->rope_freq_scale));
    if (h->local_freq_base != 0)
        json_object_set_new(root, "rope_local_base_freq", json_real((double)h->local_freq_base));
    if (h->attention_cap != 0)
        json_object_set_new(root, "attn_logit_softcapping", json_real((double)h->attention_cap));
    if (h->logits_cap != 0)
        json_object_set_new(root, "final_logit_softcapping", json_real((double)h->logits_cap));
    if (h->window != 0)
        json_object_set_new(root, "sliding_window", json_integer(h->window));
    if (w->options->f8 != FOLDER_F8_NONE && !w->options->f8_undone)
        json_object_set_new(root, "quantization_config",
                            json_loads(f8_configs[w->options->f8], 0, NULL));
    write_json(w, "config.json", root);
}

/* ---- tokenizer.json ---- */

static json_t *text_json(struct mapped_text t)
{
    json_t *text = json_stringn(t.text, t.bytes);
    CHECK(text != NULL);
    return text;
}

static json_t *pre_tokenizer(const struct writer *w)
{
    struct mapped_text pre = {"", 0};
    (void)gguf_get_string(w->g, "tokenizer.ggml.pre", &pre, NULL);
    if (mapped_text_equals(pre, "smollm"))
        return json_pack("{s:s, s:[{s:s, s:b}, {s:s, s:b, s:b, s:b}]}", "type", "Sequence",
                         "pretokenizers", "type", "Digits", "individual_digits", 1, "type",
                         "ByteLevel", "add_prefix_space", 0, "trim_offsets", 1, "use_regex", 1);
    return json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0,
                     "trim_offsets", 1, "use_regex", 1);
}

static json_t *merges_json(const struct writer *w)
{
    const struct mapped_text *merges;
    size_t count;
    json_t *list = json_array();
    CHECK(gguf_get_string_array(w->g, "tokenizer.ggml.merges", &merges, &count, NULL) == ST_OK);
    for (size_t i = 0; i < count; i++) {
        const char *blank = memchr(merges[i].text + 1, ' ', merges[i].bytes - 1);
        size_t left = (size_t)(blank - merges[i].text);
        json_array_append_new(list, w->options->merge_pairs
                                        ? json_pack("[s%, s%]", merges[i].text, left, blank + 1,
                                                    merges[i].bytes - left - 1)
                                        : text_json(merges[i]));
    }
    return list;
}

static void write_tokenizer(const struct writer *w)
{
    const struct mapped_text *tokens;
    const int32_t *types;
    size_t count, type_count;
    if (gguf_get_string_array(w->g, "tokenizer.ggml.tokens", &tokens, &count, NULL) != ST_OK)
        return;
    json_t *vocab = json_object(), *added = json_array();
    CHECK(gguf_get_i32_array(w->g, "tokenizer.ggml.token_type", &types, &type_count, NULL) ==
          ST_OK);
    for (size_t i = 0; i < count; i++) {
        json_t *text = text_json(tokens[i]);
        json_object_set_new(vocab, json_string_value(text), json_integer((json_int_t)i));
        if (types[i] == 3 || types[i] == 4)
            json_array_append_new(added, json_pack("{s:i, s:O, s:b, s:b, s:b, s:b, s:b}", "id",
                                                   (int)i, "content", text, "single_word", 0,
                                                   "lstrip", 0, "rstrip", 0, "normalized", 0,
                                                   "special", types[i] == 3));
        json_decref(text);
    }
    json_t *model =
        json_pack("{s:s, s:n, s:b, s:b, s:b, s:o, s:o}", "type", "BPE", "unk_token", "fuse_unk", 0,
                  "byte_fallback", 0, "ignore_merges", 0, "vocab", vocab, "merges", merges_json(w));
    write_json(w, "tokenizer.json",
               json_pack("{s:s, s:n, s:n, s:o, s:n, s:o, s:n, s:o}", "version", "1.0", "truncation",
                         "padding", "added_tokens", added, "normalizer", "pre_tokenizer",
                         pre_tokenizer(w), "post_processor", "model", model));
}

/* The names of special tokens, and the chat template in a file of its own. */
static void write_tokenizer_config(const struct writer *w)
{
    static const char *const names[][2] = {{"tokenizer.ggml.bos_token_id", "bos_token"},
                                           {"tokenizer.ggml.eos_token_id", "eos_token"}};
    const struct mapped_text *tokens;
    struct mapped_text template;
    size_t count;
    uint32_t id;
    json_t *root = json_object();
    for (size_t i = 0; i < 2; i++)
        if (gguf_get_string_array(w->g, "tokenizer.ggml.tokens", &tokens, &count, NULL) == ST_OK &&
            gguf_get_u32(w->g, names[i][0], &id, NULL) == ST_OK)
            json_object_set_new(root, names[i][1], text_json(tokens[id]));
    write_json(w, "tokenizer_config.json", root);
    if (gguf_get_string(w->g, "tokenizer.chat_template", &template, NULL) != ST_OK)
        return;
    FILE *out = create(w, "chat_template.jinja");
    CHECK(fwrite(template.text, 1, template.bytes, out) == template.bytes);
    CHECK(fclose(out) == 0);
}

/* ---- safetensors ---- */

static const char *dtype_of(enum compute_type type)
{
    CHECK(type == COMPUTE_F32 || type == COMPUTE_F16 || type == COMPUTE_BF16);
    return compute_type_name(type);
}

static bool is_left_out(const struct writer *w, enum model_role role)
{
    return role == ROLE_ROPE_FACTORS && w->options->no_rope_factors;
}

/* Norms of Gemma are written less 1. */
static bool put_less_1(const struct writer *w, const struct mapped_tensor *t, FILE *out)
{
    if (!w->post_norms || t->dim_count != 1)
        return false;
    CHECK(t->type == COMPUTE_F32);
    for (size_t i = 0; i < t->dims[0]; i++) {
        float value;
        memcpy(&value, (const uint8_t *)t->data + i * sizeof(value), sizeof(value));
        value -= 1;
        CHECK(fwrite(&value, sizeof(value), 1, out) == 1);
    }
    return true;
}

static void put_rows(const struct writer *w, const struct mapped_tensor *t, enum model_role role,
                     FILE *out)
{
    const struct model_hyper *h = &w->hyper;
    if (put_less_1(w, t, out))
        return;
    bool q = role == ROLE_Q || role == ROLE_Q_BIAS, k = role == ROLE_K || role == ROLE_K_BIAS;
    if ((!q && !k) || h->rope_neox) {
        CHECK(fwrite(t->data, 1, t->bytes, out) == t->bytes);
        return;
    }
    const size_t rows = (size_t)(q ? h->head_count : h->kv_head_count) * h->head_dim;
    const size_t bytes = t->bytes / rows, half = h->head_dim / 2;
    for (size_t i = 0; i < rows; i++) {
        size_t head = i / h->head_dim, in = i % h->head_dim;
        size_t from = head * h->head_dim + in % half * 2 + in / half;
        CHECK(fwrite((const uint8_t *)t->data + from * bytes, 1, bytes, out) == bytes);
    }
}

/* The file in the making. */
struct shard {
    const struct writer *w;
    const char *name;
    json_t *header, *map; /* tensors; which file has them */
    FILE *data;
    size_t at;
};

static void put(struct shard *s, const char *name, const char *dtype, json_t *shape,
                const void *data, size_t bytes)
{
    json_object_set_new(s->header, name,
                        json_pack("{s:s, s:o, s:[I, I]}", "dtype", dtype, "shape", shape,
                                  "data_offsets", (json_int_t)s->at, (json_int_t)(s->at + bytes)));
    json_object_set_new(s->map, name, json_string(s->name));
    CHECK(fwrite(data, 1, bytes, s->data) == bytes);
    s->at += bytes;
}

/* A scale for each `down` × `right` of them; codes and scales are written over what is there. */
static void quantise(const float *values, size_t rows, size_t cols, size_t down, size_t right,
                     uint8_t *codes, float *scales)
{
    for (size_t top = 0; top < rows; top += down)
        for (size_t left = 0; left < cols; left += right) {
            float most = 0;
            for (size_t r = top; r < top + down && r < rows; r++)
                for (size_t c = left; c < left + right && c < cols; c++)
                    most = fmaxf(most, fabsf(values[r * cols + c]));
            float scale = half_from_bf16(half_to_bf16(most / 448));
            for (size_t r = top; r < top + down && r < rows; r++)
                for (size_t c = left; c < left + right && c < cols; c++)
                    codes[r * cols + c] =
                        half_to_e4m3(scale > 0 ? values[r * cols + c] / scale : 0);
            *scales++ = scale;
        }
}

/* Of k and v, the scale of an FP8 KV-cache. */
static void put_cache_scale(struct shard *s, const char *name)
{
    const float value = 0.04f;
    char scale[ROLE_NAME_BYTES + 16];
    const char *end = strstr(name, ".k_proj.weight");
    if (end == NULL)
        end = strstr(name, ".v_proj.weight");
    if (end == NULL)
        return;
    snprintf(scale, sizeof(scale), "%.*s.%c_scale", (int)(end - name), name, end[1]);
    put(s, scale, "F32", json_pack("[i]", 1), &value, sizeof(value));
}

static void put_f8(struct shard *s, const char *name, size_t rows, size_t cols, const float *values)
{
    const enum folder_f8 form = s->w->options->f8;
    const size_t down = form == FOLDER_F8_TENSOR ? rows : form == FOLDER_F8_ROW ? 1 : 128;
    const size_t right = form == FOLDER_F8_BLOCK ? 128 : cols;
    const size_t high = (rows + down - 1) / down, wide = (cols + right - 1) / right;
    uint8_t *codes = malloc(rows * cols);
    float *scales = malloc(high * wide * sizeof(float)), *undone = malloc(rows * cols * 4);
    uint16_t *halves = malloc(high * wide * 2);
    char scale[ROLE_NAME_BYTES + 16];
    CHECK(codes != NULL && scales != NULL && halves != NULL && undone != NULL);
    quantise(values, rows, cols, down, right, codes, scales);
    for (size_t i = 0; i < rows * cols; i++)
        undone[i] = half_from_e4m3(codes[i]) * scales[i / cols / down * wide + i % cols / right];
    for (size_t i = 0; i < high * wide; i++)
        halves[i] = half_to_bf16(scales[i]);
    json_t *shape = json_pack("[I, I]", (json_int_t)rows, (json_int_t)cols);
    snprintf(scale, sizeof(scale), "%s_scale%s", name, form == FOLDER_F8_BLOCK ? "_inv" : "");
    if (s->w->options->f8_undone)
        put(s, name, "F32", shape, undone, rows * cols * 4);
    else
        put(s, name, "F8_E4M3", shape, codes, rows * cols);
    if (s->w->options->f8_undone) {
        ;
    } else if (form == FOLDER_F8_TENSOR) {
        put(s, scale, "F32", json_array(), scales, sizeof(float));
        snprintf(scale, sizeof(scale), "%.*sinput_scale", (int)(strlen(name) - strlen("weight")),
                 name);
        put(s, scale, "F32", json_pack("[i]", 1), scales, sizeof(float));
        put_cache_scale(s, name);
    } else {
        put(s, scale, "BF16", json_pack("[I, I]", (json_int_t)high, (json_int_t)wide), halves,
            high * wide * 2);
    }
    free(undone);
    free(halves);
    free(scales);
    free(codes);
}

/* Quantises 32 values to 4 bits. Returns the scale, as f16, and replaces the values by those of the
 * integers. */
static uint16_t quantise_group(float values[32], uint32_t quants[32], uint32_t *zero)
{
    float least = 0, most = 0;
    for (int i = 0; i < 32; i++) {
        least = fminf(least, values[i]);
        most = fmaxf(most, values[i]);
    }
    const uint16_t half = half_to_f16((most - least) / 15);
    const float scale = half_from_f16(half);
    *zero = scale > 0 ? (uint32_t)fminf(15, roundf(-least / scale)) : 8;
    for (int i = 0; i < 32; i++) {
        float quant = scale > 0 ? roundf(values[i] / scale) + (float)*zero : (float)*zero;
        quants[i] = (uint32_t)fmaxf(0, fminf(15, quant));
        values[i] = scale * (float)((int32_t)quants[i] - (int32_t)*zero);
    }
    return half;
}

/* Writes `values` as the integers of GPTQ or AWQ, which are packed eight to a word. */
static void put_packed(struct shard *s, const char *name, size_t rows, size_t cols, float *values)
{
    static const uint32_t awq_nibbles[8] = {0, 4, 1, 5, 2, 6, 3, 7};
    const bool awq = s->w->options->f8 == FOLDER_AWQ;
    const size_t groups = cols / 32;
    uint32_t *quants = calloc(rows * cols / 8, 4), *zeros = calloc(groups * rows / 8, 4);
    uint16_t *scales = malloc(groups * rows * 2);
    char part[ROLE_NAME_BYTES + 16];
    const int stem = (int)(strlen(name) - strlen(".weight"));
    CHECK(quants != NULL && zeros != NULL && scales != NULL && rows % 8 == 0 && cols % 32 == 0);
    for (size_t r = 0; r < rows; r++)
        for (size_t g = 0; g < groups; g++) {
            const uint32_t nibble = awq ? awq_nibbles[r % 8] : r % 8;
            uint32_t four[32], zero;
            scales[g * rows + r] = quantise_group(values + r * cols + g * 32, four, &zero);
            zeros[(g * rows + r) / 8] |= ((awq ? zero : zero - 1) & 15) << 4 * nibble;
            for (size_t c = g * 32; c < g * 32 + 32; c++)
                quants[awq ? (c * rows + r) / 8 : c / 8 * rows + r] |=
                    four[c % 32] << 4 * (awq ? nibble : c % 8);
        }
    if (s->w->options->f8_undone) {
        put(s, name, "F32", json_pack("[I, I]", (json_int_t)rows, (json_int_t)cols), values,
            rows * cols * 4);
    } else {
        snprintf(part, sizeof(part), "%.*s.qweight", stem, name);
        put(s, part, "I32",
            json_pack("[I, I]", (json_int_t)(awq ? cols : cols / 8),
                      (json_int_t)(awq ? rows / 8 : rows)),
            quants, rows * cols / 2);
        snprintf(part, sizeof(part), "%.*s.qzeros", stem, name);
        put(s, part, "I32", json_pack("[I, I]", (json_int_t)groups, (json_int_t)(rows / 8)), zeros,
            groups * rows / 2);
        snprintf(part, sizeof(part), "%.*s.scales", stem, name);
        put(s, part, "F16", json_pack("[I, I]", (json_int_t)groups, (json_int_t)rows), scales,
            groups * rows * 2);
    }
    free(quants);
    free(zeros);
    free(scales);
}

static void put_tensor(struct shard *s, const struct mapped_tensor *t, enum model_role role,
                       uint32_t layer)
{
    const struct writer *w = s->w;
    char name[ROLE_NAME_BYTES], *data;
    size_t bytes;
    FILE *rows = open_memstream(&data, &bytes);
    role_name(w->post_norms ? ROLE_NAMES_HUB_POST_NORMS : ROLE_NAMES_HUB, role, layer, name);
    CHECK(name[0] != 0 && rows != NULL);
    put_rows(w, t, role, rows);
    CHECK(fclose(rows) == 0);
    if (w->options->f8 != FOLDER_F8_NONE && role_is_of_layer(role) && t->dim_count == 2) {
        CHECK(t->type == COMPUTE_F32);
        if (w->options->f8 >= FOLDER_GPTQ)
            put_packed(s, name, t->dims[1], t->dims[0], (float *)(void *)data);
        else
            put_f8(s, name, t->dims[1], t->dims[0], (const float *)(const void *)data);
    } else {
        json_t *shape = json_array();
        for (uint32_t d = t->dim_count; d-- > 0;)
            json_array_append_new(shape, json_integer((json_int_t)t->dims[d]));
        put(s, name, dtype_of(t->type), shape, data, bytes);
    }
    free(data);
}

/* Every `of`-th tensor from the `shard`-th on. */
static void write_shard(const struct writer *w, const char *name, uint32_t shard, uint32_t of,
                        json_t *map)
{
    struct shard s = {.w = w, .name = name, .map = map, .data = tmpfile()};
    const struct mapped_tensor *t;
    enum model_role role;
    uint32_t layer;
    bool known;
    static char piece[1 << 16];
    CHECK(s.data != NULL);
    s.header = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
    for (size_t i = shard; (t = model_file_tensor_at(w->file, i, &role, &layer, &known)) != NULL;
         i += of) {
        CHECK(known);
        if (!is_left_out(w, role))
            put_tensor(&s, t, role, layer);
    }
    char *json = json_dumps(s.header, JSON_COMPACT);
    uint64_t bytes = strlen(json);
    FILE *out = create(w, name);
    CHECK(fwrite(&bytes, sizeof(bytes), 1, out) == 1 && fwrite(json, 1, bytes, out) == bytes);
    rewind(s.data);
    for (size_t got; (got = fread(piece, 1, sizeof(piece), s.data)) > 0;)
        CHECK(fwrite(piece, 1, got, out) == got);
    CHECK(fclose(out) == 0 && fclose(s.data) == 0);
    json_decref(s.header);
    free(json);
}

static void write_weights(const struct writer *w)
{
    json_t *map = json_object();
    const uint32_t shards = w->options->shards;
    for (uint32_t i = 0; i < shards; i++) {
        char name[64];
        snprintf(name, sizeof(name), "model-%05u-of-%05u.safetensors", i + 1, shards);
        write_shard(w, name, i, shards, map);
    }
    if (shards == 0)
        write_shard(w, "model.safetensors", 0, 1, map);
    else
        write_json(w, "model.safetensors.index.json",
                   json_pack("{s:{}, s:O}", "metadata", "weight_map", map));
    json_decref(map);
}

void folder_write(const struct model_file *file, const struct folder_writer *options,
                  const char *path)
{
    struct error error = {0};
    struct writer w = {.file = file, .g = file_gguf(file), .options = options, .path = path};
    CHECKF(model_hyper_read(file, &w.hyper, &error) == ST_OK, "%s", error.text);
    w.post_norms = w.hyper.post_norms;
    write_config(&w);
    write_tokenizer(&w);
    write_tokenizer_config(&w);
    write_weights(&w);
}

void folder_remove(const char *path)
{
    DIR *directory = opendir(path);
    CHECKF(directory != NULL, "%s", path);
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        char file[1024];
        snprintf(file, sizeof(file), "%s/%.255s", path, entry->d_name);
        if (entry->d_type == DT_REG)
            CHECK(unlink(file) == 0);
    }
    closedir(directory);
    CHECK(rmdir(path) == 0);
}

/* ---- another type ---- */

static uint16_t to_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16); /* no NaN among weights */
}

static void copy_keys(const struct gguf *g, struct gguf_writer *w)
{
    for (size_t i = 0; i < g->key_count; i++) {
        const struct mapped_text name = g->keys[i].name;
        const char *end = i + 1 < g->key_count ? g->keys[i + 1].name.text : g->tensors[0].name.text;
        const char *type = name.text + name.bytes;
        char key[256];
        uint32_t number;
        CHECK(name.bytes < sizeof(key));
        snprintf(key, sizeof(key), "%.*s", (int)name.bytes, name.text);
        memcpy(&number, type, sizeof(number));
        gguf_writer_raw_key(w, key, number, type + 4, (size_t)(end - 8 - (type + 4)));
    }
}

uint8_t *gguf_retype(const struct gguf *g, enum compute_type type, size_t *bytes_out)
{
    struct gguf_writer *w = gguf_writer_open(3, 0);
    CHECK(type == COMPUTE_F32 || type == COMPUTE_BF16);
    copy_keys(g, w);
    const struct mapped_tensor *t;
    for (size_t i = 0; (t = gguf_tensor_at(g, i)) != NULL; i++) {
        size_t count = 1, bytes;
        char name[256];
        for (uint32_t d = 0; d < t->dim_count; d++)
            count *= t->dims[d];
        float *values = malloc(count * sizeof(float));
        CHECK(values != NULL);
        compute_dequantize(t->type, t->data, count, values);
        uint16_t *halves = (uint16_t *)values; /* in place: each lies before what it is made of */
        for (size_t j = 0; j < count && type == COMPUTE_BF16; j++) {
            uint16_t half = to_bf16(values[j]);
            memcpy((uint8_t *)halves + j * 2, &half, 2);
        }
        bytes = count * compute_type_block_bytes(type);
        snprintf(name, sizeof(name), "%.*s", (int)t->name.bytes, t->name.text);
        gguf_writer_tensor(w, name, type, t->dim_count, t->dims, values, bytes);
        free(values);
    }
    return gguf_writer_finish(w, bytes_out);
}
