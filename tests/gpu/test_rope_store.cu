/* Goal: q and k are rotated, and K and V are stored in the paged cache, as compute.h says, in all
 * four KV types. The bits equal those of the CPU backend, and no other byte changes.
 *
 * Method: batches of random sequences over shuffled blocks, against a plain loop that is written
 * from compute.h's text; the whole cache is compared, gaps between blocks included. Values: random,
 * with rows of zeros, tiny ones, ones that saturate f16, and (the fixed forms) infinity. */
#include "tests/gpu/weights_fixture.h"

#include <cmath>
#include <cstdio>
#include <limits>

namespace
{
struct shape {
    uint32_t dim, head_dim, heads, kv_heads, block_tokens;
    bool neox;
    enum compute_kv_dtype dtype;
};

struct batch {
    std::vector<uint32_t> row_sequence, row_position, first_row, row_count, first_position,
        table_begin, blocks;
};

batch draw_batch(gpu::random &random, uint32_t sequences, uint32_t block_tokens, uint32_t *count)
{
    batch b;
    for (uint32_t s = 0; s < sequences; s++) {
        const uint32_t rows = random.below(3) == 0 ? 1 : 1 + random.below(2 * block_tokens);
        const uint32_t first = random.below(3 * block_tokens);
        b.first_row.push_back((uint32_t)b.row_sequence.size());
        b.row_count.push_back(rows);
        b.first_position.push_back(first);
        b.table_begin.push_back((uint32_t)b.blocks.size());
        for (uint32_t i = 0; i < rows; i++) {
            b.row_sequence.push_back(s);
            b.row_position.push_back(first + i);
        }
        b.blocks.resize(b.blocks.size() + (first + rows - 1) / block_tokens + 1);
    }
    for (uint32_t i = 0; i < b.blocks.size(); i++) { /* Shuffled. */
        const uint32_t j = random.below(i + 1);
        b.blocks[i] = b.blocks[j];
        b.blocks[j] = i;
    }
    *count = (uint32_t)b.blocks.size();
    return b;
}

void turn(const shape &s, const float *table, float *head)
{
    for (uint32_t i = 0; i < s.dim / 2; i++) {
        float *a = head + (s.neox ? i : 2 * i), *b = head + (s.neox ? i + s.dim / 2 : 2 * i + 1);
        const float cosine = table[i], sine = table[s.dim / 2 + i];
        volatile float bs = *b * sine, as = *a * sine; /* Each product is rounded separately. */
        const float x = fmaf(*a, cosine, -bs), y = fmaf(*b, cosine, as);
        *a = x, *b = y;
    }
}

/* Returns the scale's bits, and the integers in `out`. */
uint16_t fix(const float *x, uint32_t count, float limit, int *out)
{
    float most = 0;
    bool finite = true;
    for (uint32_t i = 0; i < count; i++) {
        finite = finite && std::isfinite(x[i]);
        most = fmaxf(most, fabsf(x[i]));
        out[i] = 0;
    }
    if (!finite || most < 0x1p-96f)
        return finite ? 0 : 0x7fc0;
    const uint32_t bits = (half_float_bits(most / limit) + 0xffff) & 0xffff0000;
    const float inverse = 1.0f / half_bits_float(bits);
    for (uint32_t i = 0; i < count; i++) {
        volatile float product = x[i] * inverse;
        out[i] = (int)nearbyintf(product);
    }
    return (uint16_t)(bits >> 16);
}

template <class T> void put(uint8_t *at, T value)
{
    memcpy(at, &value, sizeof(value));
}

void store(const shape &s, uint8_t *head, uint32_t token, const float *k, const float *v)
{
    const uint32_t dim = s.head_dim, tokens = s.block_tokens;
    const size_t size = compute_kv_element_bytes(s.dtype);
    if (!compute_kv_fixed(s.dtype)) {
        for (uint32_t d = 0; d < dim; d++) {
            uint8_t *key = head + (d * tokens + token) * size;
            uint8_t *value = head + (dim * tokens + token * dim + d) * size;
            if (s.dtype == COMPUTE_KV_F32) {
                put(key, k[d]);
                put(value, v[d]);
                continue;
            }
            put(key, half_to_f16(fminf(fmaxf(k[d], -65504), 65504)));
            put(value, half_to_f16(fminf(fmaxf(v[d], -65504), 65504)));
        }
        return;
    }
    std::vector<int> keys(dim), values(dim);
    const float limit = s.dtype == COMPUTE_KV_I8 ? 127 : 8191;
    put(head + 2 * token, fix(k, dim, limit, keys.data()));
    put(head + 2 * (tokens + token), fix(v, dim, limit, values.data()));
    uint8_t *k_at = head + 4 * tokens, *v_at = k_at + dim * tokens * size;
    for (uint32_t d = 0; d < dim; d++) {
        uint8_t *key = k_at + ((d / 2 * tokens + token) * 2 + d % 2) * size;
        uint8_t *value = v_at + ((token / 2 * dim + d) * 2 + token % 2) * size;
        if (size == 1) {
            put(key, (int8_t)keys[d]);
            put(value, (int8_t)values[d]);
        } else {
            put(key, (int16_t)keys[d]);
            put(value, (int16_t)values[d]);
        }
    }
}

/* Makes difficult rows: zeros, tiny values, values that saturate, and far larger ones. */
void make_hard(std::vector<float> &x, uint32_t head_dim, bool infinite)
{
    const size_t heads = x.size() / head_dim;
    for (size_t i = 0; i < head_dim; i++) {
        if (heads > 1)
            x[head_dim + i] = 0;
        if (heads > 2)
            x[2 * head_dim + i] *= 1e-32f;
        if (heads > 3)
            x[3 * head_dim + i] *= 1e5f;
    }
    if (heads > 4 && infinite)
        x[4 * head_dim + 3] = std::numeric_limits<float>::infinity();
}

void test_shape(gpu::random &random, const shape &s)
{
    char what[160];
    uint32_t block_count;
    const batch b = draw_batch(random, 1 + random.below(4), s.block_tokens, &block_count);
    const uint32_t rows = (uint32_t)b.row_sequence.size(), positions = 6 * s.block_tokens;
    const size_t head_bytes = compute_kv_block_bytes(s.block_tokens, 1, s.head_dim, s.dtype);
    /* With a gap between blocks. */
    const size_t block_bytes = (head_bytes * s.kv_heads + 64 + 63) / 64 * 64;
    std::vector<float> table((size_t)positions * s.dim);
    for (uint32_t p = 0; p < positions; p++)
        for (uint32_t i = 0; i < s.dim / 2; i++) {
            const double angle = p * pow(10000, -2.0 * i / s.dim);
            table[p * s.dim + i] = (float)cos(angle);
            table[p * s.dim + s.dim / 2 + i] = (float)sin(angle);
        }
    std::vector<float> q = gpu::normals(random, (size_t)rows * s.heads * s.head_dim);
    std::vector<float> k = gpu::normals(random, (size_t)rows * s.kv_heads * s.head_dim);
    std::vector<float> v = gpu::normals(random, k.size());
    make_hard(k, s.head_dim, false);
    make_hard(v, s.head_dim, compute_kv_fixed(s.dtype));
    std::vector<uint8_t> cache(block_count * block_bytes, 0x5a);

    gpu::buffer<float> table_device(table), q_device(q), k_device(k), v_device(v);
    gpu::buffer<uint8_t> cache_device(cache);
    gpu::buffer<uint32_t> row_sequence(b.row_sequence), row_position(b.row_position),
        first_row(b.first_row), row_count(b.row_count), first_position(b.first_position),
        table_begin(b.table_begin), blocks(b.blocks);
    const struct cuda_sequences sequences = {
        row_sequence, row_position,   first_row,
        row_count,    first_position, table_begin,
        blocks,       rows,           (uint32_t)b.first_row.size(),
        rows,         positions};
    const struct compute_kv kv = {
        cache_device.data, block_bytes, s.block_tokens, s.kv_heads, s.head_dim, s.dtype, 0};
    cuda_rope_store(nullptr, table_device, s.dim, s.neox, &sequences, &kv, s.heads, q_device,
                    k_device, v_device);

    for (uint32_t row = 0; row < rows; row++) {
        const uint32_t position = b.row_position[row];
        const float *turns = table.data() + (size_t)position * s.dim;
        uint8_t *block =
            cache.data() +
            block_bytes * b.blocks[b.table_begin[b.row_sequence[row]] + position / s.block_tokens];
        for (uint32_t h = 0; h < s.heads; h++)
            turn(s, turns, q.data() + ((size_t)row * s.heads + h) * s.head_dim);
        for (uint32_t h = 0; h < s.kv_heads; h++) {
            const size_t at = ((size_t)row * s.kv_heads + h) * s.head_dim;
            turn(s, turns, k.data() + at);
            store(s, block + h * head_bytes, position % s.block_tokens, k.data() + at,
                  v.data() + at);
        }
    }
    snprintf(what, sizeof(what), "%s dim %u of %u, %u heads of %u, blocks of %u, %u rows%s",
             compute_kv_dtype_name(s.dtype), s.dim, s.head_dim, s.kv_heads, s.heads, s.block_tokens,
             rows, s.neox ? ", neox" : "");
    gpu::expect_equal(what, q_device.get().data(), q.data(), q.size() * 4);
    gpu::expect_equal(what, k_device.get().data(), k.data(), k.size() * 4);
    gpu::expect_equal(what, cache_device.get().data(), cache.data(), cache.size());
}
} // namespace

int main()
{
    gpu::begin();
    gpu::random random(gpu::seed());
    for (int dtype = 0; dtype < COMPUTE_KV_DTYPE_COUNT; dtype++)
        for (int neox = 0; neox < 2; neox++) {
            const enum compute_kv_dtype type = (enum compute_kv_dtype)dtype;
            test_shape(random, {64, 64, 9, 3, 16, neox != 0, type});
            test_shape(random, {128, 128, 4, 1, 32, neox != 0, type});
            /* Only a part of the head is rotated. */
            test_shape(random, {32, 80, 2, 2, 8, neox != 0, type});
            test_shape(random, {256, 256, 4, 2, 16, neox != 0, type});
        }
    return gpu::finish();
}
