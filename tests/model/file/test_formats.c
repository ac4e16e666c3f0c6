/* Goal: a change of what the processes of a cluster must compute alike changes its number in
 * common/formats.h, so that programs before and after it refuse each other. Method: KV of each
 * dtype, the hash of a prefix, and the hashes of a model file, computed from known input, are
 * compared with what they were for the present numbers. After an intended change: raise the number,
 * and replace the value here by the one that the test prints. */
#include "common/digest.h"
#include "common/formats.h"
#include "common/prefix_hash.h"
#include "model/file/gguf.h"
#include "tests/compute/fixture.h"
#include "tests/model/file/gguf_writer.h"

#define HEADS  3
#define DIM    16
#define TOKENS 16 /* Tokens of a block. */
#define ROWS   20 /* The second block is not full. */

static void expect(const char *what, uint32_t format, uint32_t want_format, uint64_t have,
                   uint64_t want)
{
    CHECKF(format == want_format, "%s: the test knows format %u, not %u", what, want_format,
           format);
    CHECKF(have == want, "%s: have %#llx, want %#llx: was a number of common/formats.h raised?",
           what, (unsigned long long)have, (unsigned long long)want);
}

static uint64_t first_bytes(const struct digest *digest)
{
    uint64_t number;
    memcpy(&number, digest->bytes, sizeof(number));
    return number;
}

/* K is 0 after the first row, because its rotation depends on the C library's sine. */
static uint64_t kv_of(struct compute *c, struct compute_rope_table *rope,
                      enum compute_kv_dtype dtype)
{
    static const uint32_t table[] = {1, 0};
    float q[ROWS * HEADS * DIM] = {0}, k[ROWS * HEADS * DIM] = {0}, v[ROWS * HEADS * DIM];
    const size_t block_bytes = compute_kv_block_bytes(TOKENS, HEADS, DIM, dtype);
    uint8_t *blocks = calloc(2, block_bytes);
    CHECK(blocks != NULL);
    const struct compute_kv kv = {.base = blocks,
                                  .block_bytes = block_bytes,
                                  .block_tokens = TOKENS,
                                  .head_count = HEADS,
                                  .head_dim = DIM,
                                  .dtype = dtype};
    const struct compute_sequence sequence = {.row_count = ROWS, .blocks = table};
    const struct compute_batch batch = {
        .row_count = ROWS, .sequence_count = 1, .sequences = &sequence};
    for (int i = 0; i < ROWS * HEADS * DIM; i++)
        v[i] = (float)(i % 97 - 48) / 13;
    for (int i = 0; i < HEADS * DIM; i++)
        k[i] = (float)(i % 31 - 15) / 7;
    OPS->rope_store(c, rope, &batch, &kv, HEADS, q, k, v);
    struct digest digest = {0};
    digest_add(&digest, blocks, 2 * block_bytes);
    free(blocks);
    return first_bytes(&digest);
}

static void check_kv(void)
{
    static const uint64_t want[COMPUTE_KV_DTYPE_COUNT] = {[COMPUTE_KV_F16] = 0x15dc7740d7ff27f1,
                                                          [COMPUTE_KV_F32] = 0x2cb54014582c5852,
                                                          [COMPUTE_KV_I16] = 0x9fd8aa9b0dfc1ca5,
                                                          [COMPUTE_KV_I8] = 0x942100a09048456c};
    const struct compute_rope settings = {
        .dim = DIM, .neox = true, .freq_base = 10000, .freq_scale = 1, .positions_max = ROWS};
    struct compute *c = fixture_open(COMPUTE_ISA_AUTO, 1, false);
    struct compute_rope_table *rope = NULL;
    CHECK(OPS->rope_open(c, &settings, &rope) == ST_OK);
    for (enum compute_kv_dtype dtype = 0; dtype < COMPUTE_KV_DTYPE_COUNT; dtype++)
        expect(compute_kv_dtype_name(dtype), FORMAT_KV, 1, kv_of(c, rope, dtype), want[dtype]);
    OPS->rope_close(c, rope);
    OPS->close(c);
}

static void check_prefix_hash(void)
{
    static const uint32_t tokens[] = {1, 2, 3, 49151, 0};
    expect("prefix hash", FORMAT_PREFIX_HASH, 1, prefix_hash(7, tokens, 5), 0xbca23680a1ce122d);
}

static void check_model_hash(void)
{
    static const uint64_t dims[] = {32, 2};
    uint8_t weights[68];
    struct gguf *g;
    size_t bytes;
    for (size_t i = 0; i < sizeof(weights); i++)
        weights[i] = (uint8_t)(i * 7);
    struct gguf_writer *w = gguf_writer_open(3, 0);
    gguf_writer_string(w, "general.architecture", "llama");
    gguf_writer_u32(w, "llama.block_count", 1);
    gguf_writer_tensor(w, "output.weight", COMPUTE_Q8_0, 2, dims, weights, sizeof(weights));
    uint8_t *file = gguf_writer_finish(w, &bytes);
    CHECK(gguf_open_memory(file, bytes, "m.gguf", &g, NULL) == ST_OK);
    expect("model's metadata hash", FORMAT_MODEL_HASH, 1, first_bytes(gguf_metadata_digest(g)),
           0xfb95bd94b3c8ede3);
    expect("model's digest", FORMAT_MODEL_HASH, 1, first_bytes(gguf_digest(g)), 0x7a2692eb7e650f8e);
    gguf_close(g);
    free(file);
}

int main(void)
{
    check_kv();
    check_prefix_hash();
    check_model_hash();
    return 0;
}
