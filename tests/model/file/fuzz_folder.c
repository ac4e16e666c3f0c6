/* fuzz_folder: model folders with any bytes give an error or a valid model: tensor data is readable
 * to its last byte (checked by ASan), and hyper-parameters, tokenizer and chat template are read.
 * An input is a sequence of files: PART, the number of a name, and the file's content, which ends at
 * the next PART. Of the last three names, the content is a safetensors file without the size of its
 * header: the header, DATA, and the tensors' data. So bytes that are inserted or removed do not
 * change the other files. */
#include "tests/fuzz.h"
#include "tests/model/file/file_exercise.h"
#include "tests/model/file/folder_parts.h"

#include <stdlib.h>
#include <string.h>

static const char *const names[] = {
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "model.safetensors",
    "model.safetensors.index.json",
    "model-00001-of-00002.safetensors",
    "model-00002-of-00002.safetensors",
    "tokenizer.model",
    "tekken.json",
    "added_tokens.json",
    /* From HEADER_FIRST, without the header's size. */
    "model.safetensors",
    "model-00001-of-00002.safetensors",
    "model-00002-of-00002.safetensors",
};
#define HEADER_FIRST 12

/* A SentencePiece model of 5 pieces ("<unk>", "<s>", "</s>", "a", "<0x0A>"), its trainer (BPE with
 * bytes) and its normalizer with a table of replacements without entries. */
static const char sentencepiece[] = "\x0a\x0e\x0a\x05<unk>\x15\0\0\0\0\x18\x02"
                                    "\x0a\x0c\x0a\x03<s>\x15\0\0\0\0\x18\x03"
                                    "\x0a\x0d\x0a\x04</s>\x15\0\0\0\0\x18\x03"
                                    "\x0a\x08\x0a\x01"
                                    "a\x15\0\0\x80\xbf"
                                    "\x0a\x0f\x0a\x06<0x0A>\x15\0\0\0\0\x18\x06"
                                    "\x12\x05\x18\x02\x98\x02\x01"
                                    "\x1a\x0d\x12\x09\x04\0\0\0\0\0\0\0\0\x18\x01";
static const char tekken[] =
    "{\"config\": {\"pattern\": \"[a-c]+|\\\\s\", \"default_vocab_size\": 8, "
    "\"default_num_special_tokens\": 3}, \"vocab\": [{\"rank\": 0, \"token_bytes\": \"YQ==\"}, "
    "{\"rank\": 1, \"token_bytes\": \"Yg==\"}, {\"rank\": 2, \"token_bytes\": \"YWI=\"}, "
    "{\"rank\": 3, \"token_bytes\": \"IA==\"}]}";

/* Configs of other families. */
static const char *const configs[] = {
    "{\"model_type\": \"qwen3_moe\", \"num_hidden_layers\": 2, \"hidden_size\": 8, "
    "\"intermediate_size\": 16, \"max_position_embeddings\": 64, \"num_attention_heads\": 2, "
    "\"num_key_value_heads\": 1, \"head_dim\": 4, \"rms_norm_eps\": 1e-6, \"num_experts\": 4, "
    "\"num_experts_per_tok\": 2, \"moe_intermediate_size\": 16, \"norm_topk_prob\": true, "
    "\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 2.0, "
    "\"original_max_position_embeddings\": 32, \"beta_slow\": 1, \"beta_fast\": 32}}",
    "{\"model_type\": \"deepseek_v3\", \"num_hidden_layers\": 2, \"hidden_size\": 8, "
    "\"intermediate_size\": 16, \"max_position_embeddings\": 64, \"num_attention_heads\": 2, "
    "\"num_key_value_heads\": 2, \"rms_norm_eps\": 1e-6, \"kv_lora_rank\": 32, "
    "\"q_lora_rank\": 32, \"qk_nope_head_dim\": 32, \"qk_rope_head_dim\": 8, "
    "\"v_head_dim\": 32, \"n_routed_experts\": 4, \"num_experts_per_tok\": 2, "
    "\"moe_intermediate_size\": 16, \"n_shared_experts\": 1, \"n_group\": 2, "
    "\"topk_group\": 1, \"scoring_func\": \"sigmoid\", \"topk_method\": \"noaux_tc\", "
    "\"routed_scaling_factor\": 2.5, \"first_k_dense_replace\": 1, "
    "\"num_nextn_predict_layers\": 1, \"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4, "
    "\"mscale\": 1, \"mscale_all_dim\": 1, \"original_max_position_embeddings\": 16}}",
    "{\"model_type\": \"gemma3_text\", \"num_hidden_layers\": 2, \"hidden_size\": 8, "
    "\"intermediate_size\": 16, \"max_position_embeddings\": 64, \"num_attention_heads\": 2, "
    "\"num_key_value_heads\": 1, \"head_dim\": 4, \"rms_norm_eps\": 1e-6, "
    "\"hidden_activation\": \"gelu_pytorch_tanh\", \"query_pre_attn_scalar\": 4, "
    "\"sliding_window\": 16, \"layer_types\": [\"sliding_attention\", \"full_attention\"], "
    "\"rope_local_base_freq\": 10000, \"final_logit_softcapping\": 30}",
    "{\"model_type\": \"phi3\", \"num_hidden_layers\": 1, \"hidden_size\": 8, "
    "\"intermediate_size\": 16, \"max_position_embeddings\": 64, \"num_attention_heads\": 2, "
    "\"num_key_value_heads\": 2, \"rms_norm_eps\": 1e-5, \"sliding_window\": null, "
    "\"original_max_position_embeddings\": 32, \"rope_scaling\": {\"type\": \"longrope\", "
    "\"long_factor\": [1, 2], \"short_factor\": [1, 1]}}",
    "{\"model_type\": \"llama\", \"num_hidden_layers\": 1, \"hidden_size\": 8, "
    "\"intermediate_size\": 16, \"max_position_embeddings\": 64, \"num_attention_heads\": 2, "
    "\"num_key_value_heads\": 1, \"rms_norm_eps\": 1e-5, \"rope_parameters\": {\"rope_type\": "
    "\"llama3\", \"rope_theta\": 5e5, \"factor\": 8.0, \"low_freq_factor\": 1.0, "
    "\"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 32}}",
};
#define CONFIG_FIRST 8 /* The first seed with one of the configs. */
#define SEEDS        (CONFIG_FIRST + sizeof(configs) / sizeof(configs[0]))

#define NAME_COUNT (sizeof(names) / sizeof(names[0]))

static volatile uint64_t sink;

#define MARK_BYTES 3
static const uint8_t part_mark[MARK_BYTES] = {0xff, 0xfe, 0xfd}; /* PART */
static const uint8_t data_mark[MARK_BYTES] = {0xff, 0xfe, 0xfc}; /* DATA */

/* Returns the first place of the mark; the end = none. */
static const uint8_t *mark_find(const uint8_t *at, const uint8_t *end, const uint8_t *mark)
{
    const uint8_t *found = memmem(at, (size_t)(end - at), mark, MARK_BYTES);
    return found != NULL ? found : end;
}

static struct folder_part part_make(uint8_t name, const uint8_t *at, const uint8_t *end)
{
    const bool has_size = name < HEADER_FIRST;
    const uint8_t *header_end = has_size ? at : mark_find(at, end, data_mark);
    const uint64_t header_bytes = (uint64_t)(header_end - at);
    const uint8_t *rest = has_size || header_end == end ? header_end : header_end + MARK_BYTES;
    const size_t rest_bytes = (size_t)(end - rest), size_bytes = has_size ? 0 : 8;
    const size_t bytes = size_bytes + (size_t)header_bytes + rest_bytes;
    uint8_t *copy = malloc(bytes > 0 ? bytes : 1); /* aligned, and of the exact size */
    if (copy == NULL)
        abort();
    memcpy(copy, &header_bytes, size_bytes);
    memcpy(copy + size_bytes, at, (size_t)header_bytes);
    memcpy(copy + size_bytes + header_bytes, rest, rest_bytes);
    return (struct folder_part){names[name], copy, bytes};
}

static size_t read_parts(const uint8_t *data, size_t size, struct folder_part *parts)
{
    size_t count = 0;
    const uint8_t *end = data + size, *at = mark_find(data, end, part_mark);
    while (end - at > MARK_BYTES && count < FOLDER_PARTS_MAX) {
        const uint8_t *content = at + MARK_BYTES + 1;
        at = mark_find(content, end, part_mark);
        parts[count++] = part_make(content[-1] % NAME_COUNT, content, at);
    }
    return count;
}

static void read_tensors(struct model_file *file)
{
    const struct mapped_tensor *t;
    enum model_role role;
    uint32_t layer;
    bool known;
    uint64_t sum = model_file_digest(file)->bytes[0] + model_file_metadata_hash(file);
    for (size_t i = 0; (t = model_file_tensor_at(file, i, &role, &layer, &known)) != NULL; i++) {
        struct compute_source source;
        struct error error = {""};
        void *memory;
        float row[64];
        const uint64_t rows = t->dims[1] * t->dims[2];
        for (size_t j = 0; j < t->bytes; j++)
            sum += ((const uint8_t *)t->data)[j];
        if (t->dims[0] <= 64 && rows < 1000 && (t->data == NULL || t->type == COMPUTE_F8_E4M3) &&
            model_file_source(file, t, 0, (uint32_t)rows, &source, &memory, &error) == ST_OK) {
            for (uint32_t r = 0; r < source.rows; r++)
                compute_source_row(&source, r, row);
            free(memory);
        }
    }
    sink = sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct folder_part parts[FOLDER_PARTS_MAX];
    size_t count = read_parts(data, size, parts);
    struct model_file *file = NULL;
    struct error error = {""};
    enum status status = model_file_open_parts("fuzz", parts, count, &file, &error);
    if (status == ST_OK) {
        read_tensors(file);
        file_exercise(file);
    } else if (file != NULL || error.text[0] == 0) {
        abort();
    }
    model_file_close(file);
    for (size_t i = 0; i < count; i++)
        free((void *)parts[i].data);
    return 0;
}

/* Puts another file in the place of `old`. */
static void part_replace(struct folder_parts *p, const char *old, const char *name,
                         const char *data, size_t bytes)
{
    struct folder_part *part = folder_parts_find(p, old);
    void *copy = malloc(bytes);
    if (copy == NULL)
        abort();
    memcpy(copy, data, bytes);
    free((void *)part->data);
    *part = (struct folder_part){name, copy, bytes};
}

/* Writes a file of an input. headers: a safetensors file without the size of its header. */
static size_t part_write(const struct folder_part *part, bool headers, uint8_t *buffer,
                         size_t capacity)
{
    const uint8_t *data = part->data, *end = data + part->bytes;
    uint8_t name = 0;
    uint64_t header_bytes = 0;
    while (strcmp(names[name], part->name) != 0)
        name++;
    headers = headers && strcmp(part->name, names[HEADER_FIRST]) == 0;
    if (capacity < part->bytes + 16 || mark_find(data, end, part_mark) != end ||
        mark_find(data, end, data_mark) != end)
        abort();
    uint8_t *at = buffer;
    memcpy(at, part_mark, MARK_BYTES);
    at += MARK_BYTES + 1;
    if (headers) {
        name = HEADER_FIRST;
        memcpy(&header_bytes, data, sizeof(header_bytes));
        data += sizeof(header_bytes);
        memcpy(at, data, header_bytes);
        data += header_bytes;
        at += header_bytes;
        memcpy(at, data_mark, MARK_BYTES);
        at += MARK_BYTES;
    }
    buffer[MARK_BYTES] = name;
    memcpy(at, data, (size_t)(end - data));
    return (size_t)(at - buffer) + (size_t)(end - data);
}

/* The small model whole, in two files, with a byte-level tokenizer, in E4M3, with a unigram
 * tokenizer and steps of normalisation, and with the tokenizers of other files, with packed
 * weights, and with configs of other families. */
size_t fuzz_seed(unsigned index, uint8_t *buffer, size_t capacity)
{
    struct folder_parts p;
    size_t used = 0;
    if (index >= SEEDS)
        return 0;
    if (index == 7)
        folder_parts_make_packed(&p);
    else if (index == 3)
        folder_parts_make_f8(&p);
    else
        folder_parts_make(index == 1, &p);
    if (index == 2) {
        folder_parts_replace(&p, "tokenizer.json", "\"normalizer\"", "\"x\"");
        folder_parts_replace(&p, "tokenizer.json", "fallback\": true", "fallback\": false");
        folder_parts_replace(&p, "tokenizer.json", "\"pre_tokenizer\": null",
                             "\"pre_tokenizer\": {\"type\": \"ByteLevel\", "
                             "\"add_prefix_space\": false, \"use_regex\": true}");
    }
    if (index == 4)
        folder_parts_replace(&p, "tokenizer.json", "\"normalizers\": [",
                             "\"normalizers\": [{\"type\": \"NFKC\"}, {\"type\": \"Lowercase\"}, "
                             "{\"type\": \"Strip\"}, ");
    if (index == 5)
        part_replace(&p, "tokenizer.json", "tokenizer.model", sentencepiece,
                     sizeof(sentencepiece) - 1);
    if (index == 6)
        part_replace(&p, "tokenizer.json", "tekken.json", tekken, sizeof(tekken) - 1);
    if (index >= CONFIG_FIRST)
        part_replace(&p, "config.json", "config.json", configs[index - CONFIG_FIRST],
                     strlen(configs[index - CONFIG_FIRST]));
    for (size_t i = 0; i < p.count; i++)
        used += part_write(&p.parts[i], index != 1, buffer + used, capacity - used);
    folder_parts_done(&p);
    return used;
}
