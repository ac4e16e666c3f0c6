/* fuzz_gguf: a GGUF image with any bytes gives an error or a valid file: names, strings, arrays and
 * tensor data are readable to their last byte (checked by ASan). Then hyper-parameters, the
 * tokenizer (which encodes and decodes) and the chat template (which renders) are read from the
 * file. */
#include "model/file/gguf.h"
#include "tests/fuzz.h"
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gguf *g = NULL;
    struct model_file *file = NULL;
    struct error error = {""};
    void *copy = malloc(size > 0 ? size : 1); /* aligned, and of the exact size */
    if (copy == NULL)
        abort();
    if (size > 0)
        memcpy(copy, data, size);
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
        return 0;
    uint8_t *image = make_seed(index, &bytes);
    if (bytes > capacity)
        abort();
    memcpy(buffer, image, bytes);
    free(image);
    return bytes;
}
