/* folder_parts: see the header. */
#include "tests/model/file/folder_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char config[] =
    "{\"model_type\": \"llama\", \"num_hidden_layers\": 1, \"hidden_size\": 8,\n"
    " \"intermediate_size\": 16, \"max_position_embeddings\": 64, \"vocab_size\": 8,\n"
    " \"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"head_dim\": 4,\n"
    " \"rms_norm_eps\": 1e-05, \"rope_theta\": 10000.0, \"hidden_act\": \"silu\",\n"
    " \"eos_token_id\": 2, \"tie_word_embeddings\": true}\n";

static const char generation_config[] = "{\"eos_token_id\": [2, 1]}\n";

static const char tokenizer[] =
    "{\"version\": \"1.0\", \"truncation\": null,\n"
    " \"added_tokens\": [{\"id\": 0, \"content\": \"<unk>\", \"special\": true},\n"
    "  {\"id\": 1, \"content\": \"<s>\", \"lstrip\": false, \"special\": true},\n"
    "  {\"id\": 2, \"content\": \"</s>\", \"special\": true}],\n"
    " \"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [\n"
    "  {\"type\": \"Prepend\", \"prepend\": \"\xe2\x96\x81\"},\n"
    "  {\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": "
    "\"\xe2\x96\x81\"}]},\n"
    " \"pre_tokenizer\": null,\n"
    " \"post_processor\": {\"type\": \"TemplateProcessing\",\n"
    "  \"single\": [{\"SpecialToken\": {\"id\": \"<s>\", \"type_id\": 0}},\n"
    "   {\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}],\n"
    "  \"special_tokens\": {\"<s>\": {\"id\": \"<s>\", \"ids\": [1], \"tokens\": [\"<s>\"]}}},\n"
    " \"decoder\": null,\n"
    " \"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": \"<unk>\", \"fuse_unk\": "
    "true,\n"
    "  \"byte_fallback\": true, \"vocab\": {\"<unk>\": 0, \"<s>\": 1, \"</s>\": 2,\n"
    "   \"\xe2\x96\x81\": 3, \"a\": 4, \"b\": 5, \"ab\": 6, \"<0x0A>\": 7},\n"
    "  \"merges\": [\"a b\"]}}\n";

static const char tokenizer_config[] =
    "{\"bos_token\": {\"content\": \"<s>\"}, \"eos_token\": \"</s>\", \"add_bos_token\": true,\n"
    " \"chat_template\": \"[INST] {{ messages[0].content }} [/INST]\"}\n";

static const struct {
    const char *name;
    unsigned rows, cols; /* rows 0: a vector */
} tensors[] = {
    {"model.embed_tokens.weight", 8, 8},
    {"model.layers.0.input_layernorm.weight", 0, 8},
    {"model.layers.0.self_attn.q_proj.weight", 8, 8},
    {"model.layers.0.self_attn.k_proj.weight", 4, 8},
    {"model.layers.0.self_attn.v_proj.weight", 4, 8},
    {"model.layers.0.self_attn.o_proj.weight", 8, 8},
    {"model.layers.0.post_attention_layernorm.weight", 0, 8},
    {"model.layers.0.mlp.gate_proj.weight", 16, 8},
    {"model.layers.0.mlp.up_proj.weight", 16, 8},
    {"model.layers.0.mlp.down_proj.weight", 8, 16},
    {"model.norm.weight", 0, 8},
};

#define TENSOR_COUNT (sizeof(tensors) / sizeof(tensors[0]))
#define FIRST_SHARD  5 /* tensors in the first of two files */

static void add(struct folder_parts *p, const char *name, const void *data, size_t bytes)
{
    void *copy = malloc(bytes + 1); /* its size is what ASan sees, but for one byte */
    if (copy == NULL)
        abort();
    memcpy(copy, data, bytes);
    struct folder_part *part = &p->parts[p->count++];
    part->name = name;
    part->data = copy;
    part->bytes = bytes;
}

static void add_text(struct folder_parts *p, const char *name, const char *text)
{
    add(p, name, text, strlen(text));
}

/* A safetensors file in the making. */
struct maker {
    char header[8192];
    size_t used;
    uint8_t data[16384];
    size_t at;
};

static void put(struct maker *m, const char *name, const char *dtype, const char *shape,
                const void *element, size_t element_bytes, size_t count)
{
    size_t end = m->at + element_bytes * count;
    m->used += (size_t)snprintf(m->header + m->used, sizeof(m->header) - m->used,
                                ",\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%zu,"
                                "%zu]}",
                                name, dtype, shape, m->at, end);
    if (m->used >= sizeof(m->header) || end > sizeof(m->data))
        abort();
    for (; m->at < end; m->at += element_bytes)
        memcpy(m->data + m->at, element, element_bytes);
}

/* Everything is 0.5. */
static void put_tensor(struct maker *m, size_t i, bool f8)
{
    const unsigned rows = tensors[i].rows, cols = tensors[i].cols;
    char shape[32], name[128];
    snprintf(shape, sizeof(shape), rows == 0 ? "[%u]" : "[%u,%u]", rows == 0 ? cols : rows, cols);
    if (!f8 || rows == 0 || strstr(tensors[i].name, "layers") == NULL) {
        put(m, tensors[i].name, "BF16", shape, "\x00\x3f", 2,
            (size_t)(rows == 0 ? 1 : rows) * cols);
        return;
    }
    put(m, tensors[i].name, "F8_E4M3", shape, "\x38", 1, (size_t)rows * cols);
    snprintf(name, sizeof(name), "%s_scale", tensors[i].name);
    snprintf(shape, sizeof(shape), "[%u,1]", rows);
    put(m, name, "BF16", shape, "\x00\x3f", 2, rows);
}

static void maker_begin(struct maker *m)
{
    m->at = 0;
    m->used =
        (size_t)snprintf(m->header, sizeof(m->header), "{\"__metadata__\":{\"format\":\"pt\"}");
}

static void maker_add(struct maker *m, struct folder_parts *p, const char *name)
{
    static uint8_t file[sizeof(*m)];
    m->used += (size_t)snprintf(m->header + m->used, sizeof(m->header) - m->used, "}");
    uint64_t size = m->used;
    memcpy(file, &size, sizeof(size));
    memcpy(file + sizeof(size), m->header, m->used);
    memcpy(file + sizeof(size) + m->used, m->data, m->at);
    add(p, name, file, sizeof(size) + m->used + m->at);
}

/* Tensors [from, to). */
static void add_weights(struct folder_parts *p, const char *name, size_t from, size_t to, bool f8)
{
    static struct maker m;
    maker_begin(&m);
    for (size_t i = from; i < to; i++)
        put_tensor(&m, i, f8);
    maker_add(&m, p, name);
}

static void add_index(struct folder_parts *p)
{
    char text[2048];
    size_t used = (size_t)snprintf(text, sizeof(text), "{\"weight_map\": {");
    for (size_t i = 0; i < TENSOR_COUNT; i++)
        used += (size_t)snprintf(text + used, sizeof(text) - used,
                                 "%s\"%s\": \"model-0000%d-of-00002.safetensors\"",
                                 i > 0 ? ",\n " : "", tensors[i].name, i < FIRST_SHARD ? 1 : 2);
    snprintf(text + used, sizeof(text) - used, "}}\n");
    add_text(p, "model.safetensors.index.json", text);
}

void folder_parts_make(bool sharded, struct folder_parts *out)
{
    out->count = 0;
    add_text(out, "config.json", config);
    add_text(out, "generation_config.json", generation_config);
    add_text(out, "tokenizer.json", tokenizer);
    add_text(out, "tokenizer_config.json", tokenizer_config);
    if (!sharded) {
        add_weights(out, "model.safetensors", 0, TENSOR_COUNT, false);
        return;
    }
    add_index(out);
    add_weights(out, "model-00001-of-00002.safetensors", 0, FIRST_SHARD, false);
    add_weights(out, "model-00002-of-00002.safetensors", FIRST_SHARD, TENSOR_COUNT, false);
}

void folder_parts_make_f8(struct folder_parts *out)
{
    folder_parts_make(false, out);
    struct folder_part *weights = folder_parts_find(out, "model.safetensors");
    free((void *)weights->data);
    out->count--; /* the last one */
    add_weights(out, "model.safetensors", 0, TENSOR_COUNT, true);
    folder_parts_replace(
        out, "config.json", "\"hidden_act\"",
        "\"quantization_config\": {\"quant_method\": \"compressed-tensors\", \"format\": "
        "\"float-quantized\",\n  \"config_groups\": {\"group_0\": {\"targets\": [\"Linear\"],\n"
        "   \"weights\": {\"num_bits\": 8, \"type\": \"float\", \"strategy\": \"channel\", "
        "\"symmetric\": true,\n    \"dynamic\": false}}}, \"kv_cache_scheme\": null}, "
        "\"hidden_act\"");
}

void folder_parts_make_packed(struct folder_parts *out)
{
    static struct maker m;
    folder_parts_make(false, out);
    free((void *)folder_parts_find(out, "model.safetensors")->data);
    out->count--; /* the last one */
    maker_begin(&m);
    put(&m, "a.qweight", "I32", "[8,16]", "\x01\x23\x45\x67", 4, (size_t)8 * 16);
    put(&m, "a.qzeros", "I32", "[2,2]", "\x77\x77\x77\x77", 4, 4);
    put(&m, "a.scales", "F16", "[2,16]", "\x00\x20", 2, 32);
    maker_add(&m, out, "model.safetensors");
    folder_parts_replace(out, "config.json", "\"hidden_act\"",
                         "\"quantization_config\": {\"quant_method\": \"gptq\", \"bits\": 4, "
                         "\"group_size\": 32, \"sym\": false}, \"hidden_act\"");
}

void folder_parts_poke(struct folder_parts *p, const char *tensor, long at, uint8_t byte)
{
    struct folder_part *part = folder_parts_find(p, "model.safetensors");
    uint8_t *data = (uint8_t *)part->data;
    uint64_t header;
    char name[160];
    size_t begin, end;
    snprintf(name, sizeof(name), "\"%s\":", tensor);
    memcpy(&header, data, sizeof(header));
    const char *found = memmem(data, part->bytes, name, strlen(name));
    found = found != NULL ? strstr(found, "data_offsets\":[") : NULL;
    if (found == NULL || sscanf(found, "data_offsets\":[%zu,%zu]", &begin, &end) != 2)
        abort();
    data[8 + header + (at < 0 ? end : begin) + (size_t)at] = byte;
}

void folder_parts_done(struct folder_parts *p)
{
    for (size_t i = 0; i < p->count; i++)
        free((void *)p->parts[i].data);
}

struct folder_part *folder_parts_find(struct folder_parts *p, const char *name)
{
    for (size_t i = 0; i < p->count; i++)
        if (strcmp(p->parts[i].name, name) == 0)
            return &p->parts[i];
    fprintf(stderr, "no part %s\n", name);
    abort();
}

void folder_parts_replace(struct folder_parts *p, const char *name, const char *find,
                          const char *put)
{
    struct folder_part *part = folder_parts_find(p, name);
    const char *data = part->data, *at = memmem(data, part->bytes, find, strlen(find));
    if (at == NULL) {
        fprintf(stderr, "no '%s' in %s\n", find, name);
        abort();
    }
    size_t before = (size_t)(at - data), after = part->bytes - before - strlen(find);
    size_t bytes = before + strlen(put) + after;
    char *copy = malloc(bytes + 1);
    if (copy == NULL)
        abort();
    memcpy(copy, data, before);
    memcpy(copy + before, put, strlen(put));
    memcpy(copy + before + strlen(put), at + strlen(find), after);
    if (strstr(name, ".safetensors") != NULL && strstr(name, ".json") == NULL) {
        uint64_t size;
        memcpy(&size, copy, sizeof(size));
        size += strlen(put) - strlen(find);
        memcpy(copy, &size, sizeof(size));
    }
    free((void *)part->data);
    part->data = copy;
    part->bytes = bytes;
}
