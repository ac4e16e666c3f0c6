/* Goal: a GGUF block of every weight type is decoded as the format says, and 16-bit floats convert
 * exactly. Method: golden blocks from another implementation (types_golden.h), compared bit for
 * bit; every half goes to fp32 and back; rounding of ties and limits by hand-written cases. */
#include "compute/half.h"
#include "compute/types.h"
#include "tests/check.h"
#include "types_golden.h"

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
    check_halves();
    check_bf16();
    return 0;
}
