/* Goal: a GGUF block of every weight type is decoded as the format says, and 16-bit floats convert
 * exactly. Method: golden blocks from another implementation (types_golden.h), compared bit for
 * bit, or the hash of the values of many blocks (types_golden.py prints it); every half goes to
 * fp32 and back; rounding of ties and limits by hand-written cases. */
#include "compute/half.h"
#include "compute/types.h"
#include "tests/check.h"
#include "tests/compute/blocks.h"
#include "types_golden.h"

#include <inttypes.h>
#include <math.h>

static void check_golden(enum compute_type type, const uint8_t *block, size_t bytes,
                         const uint32_t *values, size_t count)
{
    float out[512];
    size_t elements = bytes / compute_type_block_bytes(type) * compute_type_block_elements(type);
    CHECK(elements == count && bytes % compute_type_block_bytes(type) == 0);
    compute_dequantize(type, block, count, out);
    for (size_t i = 0; i < count; i++)
        CHECKF(out[i] == half_bits_float(values[i]), "%s element %zu: %.9g, want %.9g",
               compute_type_name(type), i, (double)out[i], (double)half_bits_float(values[i]));
}

#define GOLDEN(type, name)                                                                         \
    check_golden(type, golden_##name, sizeof(golden_##name), golden_##name##_values,               \
                 sizeof(golden_##name##_values) / sizeof(uint32_t))

/* The hash of the values of 512 random blocks. */
static const struct {
    enum compute_type type;
    uint64_t hash;
} hashes[] = {
    {COMPUTE_Q2_K, 0x4e3890f2369a3f25u},    {COMPUTE_Q3_K, 0x31d9a04bed3e9ca5u},
    {COMPUTE_IQ4_NL, 0x5a743ac4ac8a07a5u},  {COMPUTE_IQ4_XS, 0x33a103a339e1fcefu},
    {COMPUTE_MXFP4, 0x3d7b62ac4bc72325u},   {COMPUTE_TQ1_0, 0xc28bdff793330325u},
    {COMPUTE_TQ2_0, 0x0aa874474934c325u},   {COMPUTE_IQ3_S, 0xf99f789762bb8015u},
    {COMPUTE_IQ3_XXS, 0x5115d2d4f64f1265u}, {COMPUTE_IQ2_S, 0xb3a5e9bfd2624a05u},
    {COMPUTE_IQ2_XS, 0x9bb024d0924a17a5u},  {COMPUTE_IQ2_XXS, 0x88ae489e25eb784du},
    {COMPUTE_IQ1_S, 0xb82b619f380e0185u},   {COMPUTE_IQ1_M, 0xd0a5e8158cf261a5u},
};

#define HASH_BLOCKS 512

/* Fills the blocks with the bytes of types_golden.py. */
static void hash_blocks(enum compute_type type, uint8_t *blocks)
{
    const size_t bytes = compute_type_block_bytes(type);
    uint64_t state = 1;
    for (size_t i = 0; i < HASH_BLOCKS * bytes; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        blocks[i] = (uint8_t)(state >> 56);
    }
    for (size_t i = 0; i < HASH_BLOCKS; i++) {
        uint8_t *scale = blocks + i * bytes + blocks_scale_offset(type);
        if (type == COMPUTE_IQ1_M)
            scale[55] &= 0xbf;
        else if (type != COMPUTE_MXFP4)
            scale[1] = (scale[1] & 0x83) | 0x2c;
        if (blocks_have_min(type))
            scale[3] = (scale[3] & 0x83) | 0x2c;
    }
}

static void check_hashes(void)
{
    static _Alignas(8) uint8_t blocks[HASH_BLOCKS * 160];
    static float out[HASH_BLOCKS * 256];
    for (size_t i = 0; i < sizeof(hashes) / sizeof(hashes[0]); i++) {
        const enum compute_type type = hashes[i].type;
        const size_t count = (size_t)HASH_BLOCKS * compute_type_block_elements(type);
        uint64_t hash = 0xcbf29ce484222325u;
        CHECK(compute_type_block_bytes(type) <= 160);
        hash_blocks(type, blocks);
        compute_dequantize(type, blocks, count, out);
        for (size_t k = 0; k < count; k++)
            hash = (hash ^ half_float_bits(out[k] + 0.0f)) * 0x100000001b3u;
        CHECKF(hash == hashes[i].hash, "%s: %016" PRIx64, compute_type_name(type), hash);
    }
}

static void check_halves(void)
{
    for (uint32_t h = 0; h < 65536; h++) {
        float value = half_from_f16((uint16_t)h);
        if (isnan(value)) {
            CHECK((h & 0x7fffu) > 0x7c00u && isnan(half_from_f16(half_to_f16(value))));
            continue;
        }
        CHECKF(half_to_f16(value) == h, "half %04x became %04x", h, half_to_f16(value));
        if ((h & 0x7fffu) >= 0x7bffu)
            continue;
        /* Half way to the next half is rounded to even; a little more is rounded up. */
        float next = half_from_f16((uint16_t)(h + 1)), middle = (value + next) / 2;
        uint32_t even = h % 2 == 0 ? h : h + 1;
        CHECKF(half_to_f16(middle) == even, "tie after %04x became %04x", h, half_to_f16(middle));
        CHECK(half_to_f16(nextafterf(middle, next)) == h + 1);
        CHECK(half_to_f16(nextafterf(middle, value)) == h);
    }
    CHECK(half_to_f16(65519.0f) == 0x7bff && half_to_f16(65520.0f) == 0x7c00);
    CHECK(half_to_f16(-1e30f) == 0xfc00 && half_to_f16(1e-10f) == 0);
}

static void check_bf16(void)
{
    for (uint32_t h = 0; h < 65536; h++) {
        float value = half_from_bf16((uint16_t)h);
        uint32_t magnitude = h & 0x7fffu;
        if (isnan(value)) {
            CHECK(isnan(half_from_bf16(half_to_bf16(value))));
            continue;
        }
        /* BF16 numbers that are subnormal become 0. */
        uint32_t want = magnitude < 0x80u ? h & 0x8000u : h;
        CHECKF(half_to_bf16(value) == want, "%04x became %04x", h, half_to_bf16(value));
        if (magnitude >= 0x7f7fu || magnitude < 0x80u)
            continue;
        float next = half_from_bf16((uint16_t)(h + 1)), middle = value + (next - value) / 2;
        uint32_t even = h % 2 == 0 ? h : h + 1;
        CHECKF(half_to_bf16(middle) == even, "tie after %04x became %04x", h, half_to_bf16(middle));
        CHECK(half_to_bf16(nextafterf(middle, next)) == h + 1);
        CHECK(half_to_bf16(nextafterf(middle, value)) == h);
    }
    CHECK(half_to_bf16(3.4e38f) == 0x7f80 && half_to_bf16(nextafterf(0x1p-126f, 0)) == 0);
}

int main(void)
{
    GOLDEN(COMPUTE_F16, f16);
    GOLDEN(COMPUTE_BF16, bf16);
    GOLDEN(COMPUTE_Q8_0, q8_0);
    GOLDEN(COMPUTE_Q4_0, q4_0);
    GOLDEN(COMPUTE_Q4_1, q4_1);
    GOLDEN(COMPUTE_Q5_0, q5_0);
    GOLDEN(COMPUTE_Q5_1, q5_1);
    GOLDEN(COMPUTE_Q4_K, q4_k);
    GOLDEN(COMPUTE_Q5_K, q5_k);
    GOLDEN(COMPUTE_Q6_K, q6_k);
    check_hashes();
    check_halves();
    check_bf16();
    return 0;
}
