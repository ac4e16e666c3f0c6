/* fuzz_gguf: a GGUF image with any bytes gives an error or a valid file: names, strings, arrays and
 * tensor data are readable to their last byte (checked by ASan). Then hyper-parameters, the
 * tokenizer (which encodes and decodes) and the chat template (which renders) are read from the
 * file. An input that does not begin with "GGUF" is a text from which an image is written
 * (line_write): in a text, a longer name does not make the rest of the file wrong. */
#include "model/file/gguf.h"
#include "tests/fuzz.h"
#include "tests/fuzz_input.h"
#include "tests/model/file/file_exercise.h"
#include "tests/model/file/gguf_vocabulary.h"

#include <stdlib.h>
#include <string.h>

static volatile uint64_t sink;

static uint64_t sum_bytes(const void *data, size_t bytes)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < bytes; i++)
        sum += ((const uint8_t *)data)[i];
    return sum;
}

static void read_all(struct gguf *g)
{
    static const char *const arrays[] = {"tokenizer.ggml.tokens", "tokenizer.ggml.merges",
                                         "tokenizer.ggml.token_type", "a.floats"};
    const struct mapped_text *strings;
    const int32_t *numbers;
    struct mapped_text string;
    uint32_t u32;
    float f32;
    bool flag;
    size_t count;
    struct error error;
    uint64_t sum = gguf_digest(g)->bytes[0];
    for (size_t k = 0; k < sizeof(arrays) / sizeof(arrays[0]); k++) {
        if (gguf_get_string_array(g, arrays[k], &strings, &count, &error) == ST_OK)
            for (size_t i = 0; i < count; i++)
                sum += sum_bytes(strings[i].text, strings[i].bytes);
        if (gguf_get_i32_array(g, arrays[k], &numbers, &count, &error) == ST_OK)
            sum += sum_bytes(numbers, count * sizeof(*numbers));
    }
    if (gguf_get_string(g, "tokenizer.ggml.model", &string, &error) == ST_OK)
        sum += sum_bytes(string.text, string.bytes);
    if (gguf_get_u32(g, "llama.block_count", &u32, &error) == ST_OK)
        sum += u32;
    if (gguf_get_f32(g, "llama.rope.freq_base", &f32, &error) == ST_OK)
        sum += f32 > 0;
    if (gguf_get_bool(g, "tokenizer.ggml.add_bos_token", &flag, &error) == ST_OK)
        sum += flag;
    const struct mapped_tensor *t;
    for (size_t i = 0; (t = gguf_tensor_at(g, i)) != NULL; i++) {
        float values[256] = {0};
        const uint32_t block = compute_type_block_elements(t->type);
        sum += sum_bytes(t->data, t->bytes) + sum_bytes(t->name.text, t->name.bytes);
        compute_dequantize(t->type, t->data, block, values);
        sum += values[block - 1] > 0;
    }
    sink = sum;
}

/* ---- texts ---- */

#define LIST_MAX     32
#define ELEMENTS_MAX 65536

/* Splits the text in place. Returns the number of pieces. */
static size_t list_split(char *text, char separator, const char *pieces[LIST_MAX])
{
    size_t count = 0;
    while (text != NULL && count < LIST_MAX) {
        pieces[count++] = text;
        text = strchr(text, separator);
        if (text != NULL)
            *text++ = 0;
    }
    return count;
}

static uint32_t number_of(const char *text)
{
    return (uint32_t)strtoull(text, NULL, 0);
}

/* value: "TYPE,COLUMNS,ROWS…". The tensor's data are zeros. */
static void tensor_write(struct gguf_writer *w, const char *name, char *value)
{
    const char *pieces[LIST_MAX];
    uint32_t count = (uint32_t)list_split(value, ',', pieces) - 1;
    uint64_t dims[4] = {1, 1, 1, 1}, elements = 1;
    int type = 0;
    while (type < COMPUTE_GGUF_COUNT - 1 &&
           strcmp(compute_type_name((enum compute_type)type), pieces[0]) != 0)
        type++;
    count = count <= 4 ? count : 4;
    for (uint32_t i = 0; i < count; i++) {
        dims[i] = number_of(pieces[i + 1]);
        elements = elements * dims[i] <= ELEMENTS_MAX ? elements * dims[i] : 0;
    }
    const uint32_t block = compute_type_block_elements((enum compute_type)type);
    if (elements == 0 || dims[0] % block != 0) {
        gguf_writer_raw_tensor(w, name, gguf_writer_type((enum compute_type)type), count, dims, 0);
        return;
    }
    const size_t bytes = elements / block * compute_type_block_bytes((enum compute_type)type);
    void *data = calloc(1, bytes);
    if (data == NULL)
        abort();
    gguf_writer_tensor(w, name, (enum compute_type)type, count, dims, data, bytes);
    free(data);
}

static void numbers_write(struct gguf_writer *w, const char *key, char *value, bool floats)
{
    const char *pieces[LIST_MAX];
    float f32[LIST_MAX];
    int32_t i32[LIST_MAX];
    size_t count = list_split(value, ',', pieces);
    for (size_t i = 0; i < count; i++) {
        f32[i] = strtof(pieces[i], NULL);
        i32[i] = (int32_t)number_of(pieces[i]);
    }
    if (floats)
        gguf_writer_f32_array(w, key, f32, count);
    else
        gguf_writer_i32_array(w, key, i32, count);
}

/* A line is the type's letter, the key or the tensor's name, "=" and the value. */
static void line_write(struct gguf_writer *w, char *line)
{
    const char *pieces[LIST_MAX], *key = line + 1;
    char *value = strchr(line, '=');
    if (value == NULL || value == line)
        return;
    *value++ = 0;
    switch (line[0]) {
    case 's':
        gguf_writer_string(w, key, value);
        break;
    case 'u':
        gguf_writer_u32(w, key, number_of(value));
        break;
    case 'U':
        gguf_writer_u64(w, key, strtoull(value, NULL, 0));
        break;
    case 'i':
        gguf_writer_i32(w, key, (int32_t)number_of(value));
        break;
    case 'f':
        gguf_writer_f32(w, key, strtof(value, NULL));
        break;
    case 'b':
        gguf_writer_bool(w, key, value[0] == '1');
        break;
    case 'S':
        gguf_writer_string_array(w, key, pieces, list_split(value, '\t', pieces));
        break;
    case 'I':
    case 'F':
        numbers_write(w, key, value, line[0] == 'F');
        break;
    case 't':
        tensor_write(w, key, value);
        break;
    case 'v': /* The whole vocabulary; the value is the name of its pre-tokenizer. */
        gguf_vocabulary_write(w, value[0] != 0 ? value : NULL);
        break;
    default:
        break;
    }
}

/* Returns the image that the text describes. Its first byte chooses version and alignment. */
static uint8_t *text_write(const uint8_t *data, size_t size, size_t *bytes_out)
{
    char *text = malloc(size + 1);
    if (text == NULL)
        abort();
    memcpy(text, data, size);
    text[size] = 0;
    struct gguf_writer *w = gguf_writer_open(2 + text[0] % 2, text[0] % 8 == 7 ? 64 : 0);
    for (char *line = strchr(text, '\n'); line != NULL;) {
        char *next = strchr(++line, '\n');
        if (next != NULL)
            *next = 0;
        line_write(w, line);
        line = next;
    }
    free(text);
    return gguf_writer_finish(w, bytes_out);
}

/* ---- the target ---- */

void __wrap_secret_random(void *buffer, size_t bytes);

/* The order of names in the index does not change from one run of an input to the next. */
void __wrap_secret_random(void *buffer, size_t bytes)
{
    memset(buffer, 0x5a, bytes);
}

/* Returns the image in memory of exactly its size. */
static void *image_of(const uint8_t *data, size_t *size)
{
    if (*size > 4 && memcmp(data, "GGUF", 4) != 0)
        return text_write(data, *size, size);
    void *copy = malloc(*size > 0 ? *size : 1);
    if (copy == NULL)
        abort();
    if (*size > 0)
        memcpy(copy, data, *size);
    return copy;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gguf *g = NULL;
    struct model_file *file = NULL;
    struct error error = {""};
    void *copy = image_of(data, &size);
    enum status status = gguf_open_memory(copy, size, "fuzz.gguf", &g, &error);
    if (status == ST_OK) {
        read_all(g);
        if (model_file_open_memory(copy, size, "fuzz.gguf", &file, &error) != ST_OK)
            abort();
        file_exercise(file);
        model_file_close(file);
    } else if (g != NULL || error.text[0] == 0) {
        abort();
    }
    gguf_close(g);
    free(copy);
    return 0;
}

/* ---- seeds ---- */

static const char *const texts[] = {
    "0\nsgeneral.architecture=llama\nullama.block_count=1\nullama.embedding_length=32\n"
    "ullama.feed_forward_length=64\nullama.attention.head_count=2\n"
    "ullama.attention.head_count_kv=1\nullama.context_length=128\n"
    "fllama.attention.layer_norm_rms_epsilon=1e-5\nfllama.rope.freq_base=10000\n"
    "sllama.rope.scaling.type=yarn\nfllama.rope.scaling.factor=2\n"
    "ullama.rope.scaling.original_context_length=64\n"
    "stokenizer.chat_template=[INST] <<SYS>>\nv=llama-bpe\nttoken_embd.weight=F32,32,8\n"
    "toutput.weight=Q4_1,32,8\ntblk.0.attn_q.weight=Q8_0,32,32",
    "1\nsgeneral.architecture=qwen3moe\nuqwen3moe.block_count=2\n"
    "uqwen3moe.embedding_length=32\nuqwen3moe.feed_forward_length=64\n"
    "uqwen3moe.expert_count=4\nuqwen3moe.expert_used_count=2\n"
    "uqwen3moe.expert_feed_forward_length=32\nuqwen3moe.attention.head_count=2\n"
    "uqwen3moe.attention.key_length=16\nuqwen3moe.attention.value_length=16\n"
    "uqwen3moe.context_length=64\nfqwen3moe.attention.layer_norm_rms_epsilon=1e-6\n"
    "ttoken_embd.weight=F16,32,8\ntblk.1.ffn_gate_exps.weight=Q4_K,256,2,4",
    "0\nsgeneral.architecture=deepseek2\nudeepseek2.block_count=2\n"
    "udeepseek2.embedding_length=32\nudeepseek2.feed_forward_length=64\n"
    "udeepseek2.attention.head_count=2\nudeepseek2.attention.head_count_kv=1\n"
    "udeepseek2.attention.kv_lora_rank=32\nudeepseek2.attention.q_lora_rank=32\n"
    "udeepseek2.attention.key_length=40\nudeepseek2.attention.value_length=32\n"
    "udeepseek2.attention.key_length_mla=40\nudeepseek2.attention.value_length_mla=32\n"
    "udeepseek2.rope.dimension_count=8\nudeepseek2.expert_count=4\n"
    "udeepseek2.expert_used_count=2\nudeepseek2.expert_feed_forward_length=32\n"
    "udeepseek2.leading_dense_block_count=1\nudeepseek2.expert_group_count=2\n"
    "udeepseek2.expert_gating_func=2\nfdeepseek2.expert_weights_scale=2.5\n"
    "udeepseek2.context_length=64\nbdeepseek2.expert_weights_norm=1\n"
    "fdeepseek2.attention.layer_norm_rms_epsilon=1e-6\nttoken_embd.weight=F32,32,8",
    "0\nsgeneral.architecture=gemma3\nugemma3.block_count=6\nugemma3.embedding_length=32\n"
    "ugemma3.feed_forward_length=64\nugemma3.attention.head_count=2\n"
    "ugemma3.attention.head_count_kv=1\nugemma3.attention.key_length=16\n"
    "ugemma3.attention.value_length=16\nugemma3.context_length=128\n"
    "fgemma3.attention.layer_norm_rms_epsilon=1e-6\nugemma3.attention.sliding_window=16\n"
    "fgemma3.final_logit_softcapping=30\nfgemma3.attn_logit_softcapping=50\n"
    "ugemma3.attention.sliding_window_pattern=6\nttoken_embd.weight=F32,32,8",
    "7\nstokenizer.ggml.model=llama\n"
    "Stokenizer.ggml.tokens=<unk>\t<s>\t</s>\ta\tb\tab\t<0x0A>\n"
    "Ftokenizer.ggml.scores=0,0,0,-1,-2,-1.5,0\nItokenizer.ggml.token_type=2,3,3,1,1,1,6\n"
    "utokenizer.ggml.bos_token_id=1\nutokenizer.ggml.eos_token_id=2\n"
    "btokenizer.ggml.add_space_prefix=0\n",
};
#define TEXTS (sizeof(texts) / sizeof(texts[0]))

/* A tensor of each type, one block each. */
static void put_types(struct gguf_writer *w)
{
    uint8_t block[256];
    for (size_t i = 0; i < sizeof(block); i++)
        block[i] = (uint8_t)(i * 37);
    for (int type = 0; type < COMPUTE_GGUF_COUNT; type++) {
        const uint64_t cols = compute_type_block_elements((enum compute_type)type);
        gguf_writer_tensor(w, compute_type_name((enum compute_type)type), (enum compute_type)type,
                           1, &cols, block, compute_type_block_bytes((enum compute_type)type));
    }
}

/* A small model's file: real keys, a vocabulary of all bytes and a few merges, two tensors. */
static uint8_t *make_seed(unsigned index, size_t *bytes_out)
{
    static const char *const pres[] = {"smollm", "llama-bpe", "qwen2", "gpt-2", NULL};
    static const char *const chats[] = {
        "{{'<|im_start|>system\\nBe helpful.<|im_end|>\\n' + message['role']}}",
        "<|start_header_id|>",
        "{{ ' [INST] ' }}{{ '[/INST]' }}{{ ' ' + message.content|trim + eos_token}}",
        "[INST] <<SYS>>", "<start_of_turn>"};
    static const float floats[] = {1.0f, 2.0f};
    static const uint64_t dims[] = {32, 8};
    uint8_t weights[32 * 8 * 4] = {0};
    struct gguf_writer *w = gguf_writer_open(2 + index % 2, index == 2 ? 64 : 0);
    gguf_writer_string(w, "general.architecture", "llama");
    gguf_writer_u32(w, "llama.block_count", 1);
    gguf_writer_u32(w, "llama.embedding_length", 32);
    gguf_writer_u32(w, "llama.feed_forward_length", 64);
    gguf_writer_u32(w, "llama.attention.head_count", 2);
    gguf_writer_u64(w, "llama.attention.head_count_kv", 1);
    gguf_writer_u32(w, "llama.context_length", 128);
    gguf_writer_f32(w, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    gguf_writer_f64(w, "llama.rope.freq_base", 10000.0);
    gguf_writer_bool(w, "tokenizer.ggml.add_bos_token", index % 2 != 0);
    gguf_writer_string(w, "tokenizer.chat_template", chats[index]);
    gguf_writer_f32_array(w, "a.floats", floats, 2);
    gguf_vocabulary_write(w, pres[index]);
    gguf_writer_tensor(w, "token_embd.weight", COMPUTE_F32, 2, dims, weights, sizeof(weights));
    gguf_writer_tensor(w, "output.weight", COMPUTE_Q4_1, 2, dims, weights, 8 * 20);
    if (index == 4)
        put_types(w);
    return gguf_writer_finish(w, bytes_out);
}

size_t fuzz_seed(unsigned index, uint8_t *buffer, size_t capacity)
{
    size_t bytes;
    if (index >= 5)
        return fuzz_seed_text(texts, TEXTS, index - 5, buffer, capacity);
    uint8_t *image = make_seed(index, &bytes);
    if (bytes > capacity)
        abort();
    memcpy(buffer, image, bytes);
    free(image);
    return bytes;
}
