/* large_model: see the header. In the image that model_file_open_memory reads, the writer makes the
 * keys, the table and the norms. On the next page boundary the matrices' data begins; all matrices
 * use the same bytes. */
#include "tests/gpu/large_model.h"

#include "common/random.h"
#include "compute/half.h"
#include "tests/check.h"
#include "tests/model/file/gguf_writer.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE_BYTES    4096
#define PATTERN_BYTES ((size_t)64 << 20)
#define DEVIATION     0.015f

struct builder {
    const struct large_shape *shape;
    enum compute_type type;
    struct gguf_writer *writer;
    float *ones;
    uint64_t offset;        /* Offset of the matrices from the start of the data. */
    uint64_t largest_bytes; /* Bytes of the largest matrix. */
    bool in_file;           /* Matrices are stored one after another. */
};

const struct large_shape *large_shape_find(const char *name)
{
    static const struct large_shape shapes[] = {
        {"8b", 32, 4096, 14336, 32, 8, 128256, 8192},
        {"70b", 80, 8192, 28672, 64, 8, 128256, 8192},
        {"1b", 16, 2048, 8192, 32, 8, 128256, 8192},
        {"tiny", 2, 256, 512, 4, 2, 512, 512},
    };
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
        if (strcmp(shapes[i].name, name) == 0)
            return &shapes[i];
    return NULL;
}

static uint64_t kv_width(const struct large_shape *s)
{
    return (uint64_t)s->hidden / s->heads * s->kv_heads;
}

uint64_t large_shape_weights(const struct large_shape *s)
{
    uint64_t attention = (uint64_t)s->hidden * (2 * (uint64_t)s->hidden + 2 * kv_width(s));
    uint64_t layer = attention + 3 * (uint64_t)s->hidden * s->ffn;
    return s->layers * layer + (uint64_t)s->vocab * s->hidden;
}

static void put_matrix(struct builder *b, const char *name, uint64_t cols, uint64_t rows)
{
    const uint64_t dims[2] = {cols, rows};
    uint64_t bytes = cols * rows * compute_type_block_bytes(b->type);
    gguf_writer_raw_tensor(b->writer, name, gguf_writer_type(b->type), 2, dims, b->offset);
    b->largest_bytes = bytes > b->largest_bytes ? bytes : b->largest_bytes;
    if (b->in_file)
        b->offset += (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
}

static void put_norm(struct builder *b, const char *name)
{
    const uint64_t dims[1] = {b->shape->hidden};
    gguf_writer_tensor(b->writer, name, COMPUTE_F32, 1, dims, b->ones,
                       b->shape->hidden * sizeof(float));
}

static void put_layer(struct builder *b, uint32_t layer)
{
    const struct large_shape *s = b->shape;
    const struct {
        const char *suffix;
        uint64_t cols, rows; /* rows 0 = a norm. */
    } tensors[] = {
        {"attn_norm", s->hidden, 0},           {"attn_q", s->hidden, s->hidden},
        {"attn_k", s->hidden, kv_width(s)},    {"attn_v", s->hidden, kv_width(s)},
        {"attn_output", s->hidden, s->hidden}, {"ffn_norm", s->hidden, 0},
        {"ffn_gate", s->hidden, s->ffn},       {"ffn_up", s->hidden, s->ffn},
        {"ffn_down", s->ffn, s->hidden},
    };
    for (size_t i = 0; i < sizeof(tensors) / sizeof(tensors[0]); i++) {
        char name[64];
        snprintf(name, sizeof(name), "blk.%u.%s.weight", layer, tensors[i].suffix);
        if (tensors[i].rows == 0)
            put_norm(b, name);
        else
            put_matrix(b, name, tensors[i].cols, tensors[i].rows);
    }
}

static void put_keys(struct builder *b)
{
    const struct large_shape *s = b->shape;
    gguf_writer_string(b->writer, "general.architecture", "llama");
    gguf_writer_string(b->writer, "general.name", s->name);
    gguf_writer_u32(b->writer, "llama.block_count", s->layers);
    gguf_writer_u32(b->writer, "llama.context_length", s->context);
    gguf_writer_u32(b->writer, "llama.embedding_length", s->hidden);
    gguf_writer_u32(b->writer, "llama.feed_forward_length", s->ffn);
    gguf_writer_u32(b->writer, "llama.attention.head_count", s->heads);
    gguf_writer_u32(b->writer, "llama.attention.head_count_kv", s->kv_heads);
    gguf_writer_f32(b->writer, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    gguf_writer_f32(b->writer, "llama.rope.freq_base", 500000.0f);
}

/* Encodes byte i as GPT-2's vocabulary does: printable bytes unchanged, others from U+0100 on. */
static void byte_token(uint32_t byte, char out[8])
{
    bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
    uint32_t code = byte;
    if (!printable) {
        code = 256;
        for (uint32_t i = 0; i < byte; i++)
            code += !((i >= 33 && i <= 126) || (i >= 161 && i != 173));
    }
    if (code < 128)
        snprintf(out, 8, "%c", (char)code);
    else
        snprintf(out, 8, "%c%c", (char)(0xc0 | code >> 6), (char)(0x80 | (code & 63)));
}

static void put_vocabulary(struct builder *b)
{
    uint32_t count = b->shape->vocab;
    char(*texts)[16] = calloc(count, sizeof(*texts));
    const char **tokens = calloc(count, sizeof(*tokens));
    int32_t *types = calloc(count, sizeof(*types));
    CHECK(texts != NULL && tokens != NULL && types != NULL);
    for (uint32_t i = 0; i < count; i++) {
        tokens[i] = texts[i];
        types[i] = i == 256 ? 3 : 1; /* control, normal */
        if (i < 256)
            byte_token(i, texts[i]);
        else
            snprintf(texts[i], sizeof(texts[i]), "<|%u|>", i);
    }
    gguf_writer_string(b->writer, "tokenizer.ggml.model", "gpt2");
    gguf_writer_string(b->writer, "tokenizer.ggml.pre", "llama-bpe");
    gguf_writer_string_array(b->writer, "tokenizer.ggml.tokens", tokens, count);
    gguf_writer_i32_array(b->writer, "tokenizer.ggml.token_type", types, count);
    gguf_writer_string_array(b->writer, "tokenizer.ggml.merges", NULL, 0);
    gguf_writer_u32(b->writer, "tokenizer.ggml.bos_token_id", 256);
    gguf_writer_u32(b->writer, "tokenizer.ggml.eos_token_id", 256);
    gguf_writer_bool(b->writer, "tokenizer.ggml.add_bos_token", false);
    free(types);
    free(tokens);
    free(texts);
}

/* Makes keys, table and norms. *data_out: where the matrices begin in the image. */
static uint8_t *head_make(struct builder *b, uint64_t *bytes_out, uint64_t *data_out)
{
    const struct large_shape *s = b->shape;
    uint64_t norms_bytes = (2 * (uint64_t)s->layers + 1) * s->hidden * sizeof(float);
    b->offset = (norms_bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    uint64_t first = b->offset;
    b->writer = gguf_writer_open(3, 0);
    b->ones = calloc(s->hidden, sizeof(float));
    CHECK(b->ones != NULL);
    for (uint32_t i = 0; i < s->hidden; i++)
        b->ones[i] = 1.0f;
    put_keys(b);
    if (b->in_file)
        put_vocabulary(b);
    put_matrix(b, "token_embd.weight", s->hidden, s->vocab);
    put_matrix(b, "output.weight", s->hidden, s->vocab);
    put_norm(b, "output_norm.weight");
    for (uint32_t i = 0; i < s->layers; i++)
        put_layer(b, i);
    size_t bytes;
    uint8_t *image = gguf_writer_finish(b->writer, &bytes);
    free(b->ones);
    *bytes_out = bytes;
    *data_out = bytes - norms_bytes + first;
    return image;
}

static void pattern_fill(uint8_t *to, enum compute_type type)
{
    for (size_t at = 0; at < PATTERN_BYTES; at += compute_type_block_bytes(type)) {
        float value = 0;
        uint64_t bits = random_at(1, at);
        for (int i = 0; i < 4; i++)
            value += (float)(bits >> (16 * i) & 0xffff) - 32767.5f;
        value *= DEVIATION / 37837.0f; /* 37837 is the deviation of a sum of four deviates. */
        uint16_t half = type == COMPUTE_F16 ? half_to_f16(value) : half_to_bf16(value);
        if (type == COMPUTE_F32)
            memcpy(to + at, &value, sizeof(value));
        else
            memcpy(to + at, &half, sizeof(half));
    }
}

static int pattern_file(enum compute_type type)
{
    int file = memfd_create("large-model", MFD_CLOEXEC);
    CHECK(file >= 0 && ftruncate(file, PATTERN_BYTES) == 0);
    uint8_t *pattern = mmap(NULL, PATTERN_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(pattern != MAP_FAILED);
    pattern_fill(pattern, type);
    munmap(pattern, PATTERN_BYTES);
    return file;
}

struct model_file *large_model_open(const struct large_shape *shape, enum compute_type type)
{
    struct builder b = {.shape = shape, .type = type};
    uint64_t head_bytes, data;
    uint8_t *head = head_make(&b, &head_bytes, &data);
    int file = pattern_file(type);
    size_t lead = PAGE_BYTES - data % PAGE_BYTES; /* The matrices begin on a page boundary. */
    size_t mapped = (b.largest_bytes + PATTERN_BYTES - 1) / PATTERN_BYTES * PATTERN_BYTES;
    uint8_t *base = mmap(NULL, lead + data + mapped, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(base != MAP_FAILED);
    memcpy(base + lead, head, head_bytes);
    for (size_t at = 0; at < mapped; at += PATTERN_BYTES)
        CHECK(mmap(base + lead + data + at, PATTERN_BYTES, PROT_READ, MAP_SHARED | MAP_FIXED, file,
                   0) != MAP_FAILED);
    close(file);
    free(head);
    struct model_file *g;
    struct error error = {0};
    CHECKF(model_file_open_memory(base + lead, data + b.largest_bytes, shape->name, &g, &error) ==
               ST_OK,
           "%s", error.text);
    return g;
}

static void write_all(FILE *file, const void *data, size_t bytes)
{
    CHECKF(fwrite(data, 1, bytes, file) == bytes, "cannot write a model: %zu bytes", bytes);
}

void large_model_write(const struct large_shape *shape, enum compute_type type, const char *path)
{
    struct builder b = {.shape = shape, .type = type, .in_file = true};
    uint64_t head_bytes, data;
    uint8_t *head = head_make(&b, &head_bytes, &data);
    uint8_t *pattern = malloc(PATTERN_BYTES);
    FILE *file = fopen(path, "wb");
    CHECKF(file != NULL && pattern != NULL, "%s", path);
    pattern_fill(pattern, type);
    write_all(file, head, head_bytes);
    uint64_t norms_bytes = (2 * (uint64_t)shape->layers + 1) * shape->hidden * sizeof(float);
    uint64_t end = head_bytes - norms_bytes + b.offset; /* End of the last matrix. */
    for (uint64_t at = head_bytes; at < end;) {
        uint64_t part = end - at < PATTERN_BYTES ? end - at : PATTERN_BYTES;
        write_all(file, pattern, part);
        at += part;
    }
    CHECKF(fclose(file) == 0, "%s", path);
    free(pattern);
    free(head);
}
