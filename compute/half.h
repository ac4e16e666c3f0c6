/* half: scalar conversions of 16-bit and 8-bit floats in plain C, for code that reads or writes
 * weights, activations or KV; tests compare vectorised conversions with these functions. Any
 * thread; no state. */
#ifndef COMPUTE_HALF_H
#define COMPUTE_HALF_H

#include <stdint.h>
#include <string.h>

/* Returns the bits of a float. */
static inline uint32_t half_float_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

/* Returns the float with the given bits. */
static inline float half_bits_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* Converts IEEE binary16 to binary32, exactly. */
static inline float half_from_f16(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t magnitude = half & 0x7fffu;
    if (magnitude >= 0x7c00u)
        return half_bits_float(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
    float value = half_bits_float(magnitude << 13) * 0x1p112f;
    return half_bits_float(half_float_bits(value) | sign);
}

/* Converts binary32 to binary16, rounded to nearest even. */
static inline uint16_t half_to_f16(float value)
{
    uint32_t bits = half_float_bits(value);
    uint32_t sign = bits >> 16 & 0x8000u;
    bits &= 0x7fffffffu;
    if (bits > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u | (bits >> 13 & 0x3ffu));
    if (bits >= 0x477ff000u) /* Rounds to 2^16 or more. */
        return (uint16_t)(sign | 0x7c00u);
    if (bits < 0x38800000u) { /* Subnormal: adding 0.5 makes the FPU round at bit 2^-24. */
        float sum = half_bits_float(bits) + 0.5f;
        return (uint16_t)(sign | (half_float_bits(sum) - 0x3f000000u));
    }
    uint32_t odd = bits >> 13 & 1u;
    return (uint16_t)(sign | (bits - 0x38000000u + 0xfffu + odd) >> 13);
}

/* Converts bfloat16 to binary32, exactly. */
static inline float half_from_bf16(uint16_t half)
{
    return half_bits_float((uint32_t)half << 16);
}

/* Converts binary32 to bfloat16, rounded to nearest even. Magnitudes below 2^-126 become 0, as with
 * the instruction vcvtneps2bf16. */
static inline uint16_t half_to_bf16(float value)
{
    uint32_t bits = half_float_bits(value), magnitude = bits & 0x7fffffffu;
    uint32_t rounded = bits + 0x7fffu + (bits >> 16 & 1u);
    rounded = magnitude < 0x00800000u ? bits & 0x80000000u : rounded;
    rounded = magnitude > 0x7f800000u ? bits | 0x00400000u : rounded; /* NaN stays NaN. */
    return (uint16_t)(rounded >> 16);
}

/* Converts E4M3 (Micikevicius et al. 2022: bias 7, no infinity, all ones is NaN) to binary32,
 * exactly. The result also fits into bfloat16. */
static inline float half_from_e4m3(uint8_t byte)
{
    uint32_t sign = (uint32_t)(byte & 0x80u) << 24, magnitude = byte & 0x7fu;
    if (magnitude == 0x7f)
        return half_bits_float(sign | 0x7fc00000u);
    float value = half_bits_float(magnitude << 20) * 0x1p120f;
    return half_bits_float(half_float_bits(value) | sign);
}

/* Converts binary32 to E4M3, rounded to nearest even. Magnitudes above 448 become 448. */
static inline uint8_t half_to_e4m3(float value)
{
    uint32_t bits = half_float_bits(value);
    uint32_t sign = bits >> 24 & 0x80u, code;
    bits &= 0x7fffffffu;
    if (bits > 0x7f800000u)
        return (uint8_t)(sign | 0x7fu);
    if (bits >= 0x43e00000u) /* 448 */
        return (uint8_t)(sign | 0x7eu);
    if (bits < 0x3c800000u) /* Subnormal: adding 2^14 makes the FPU round at bit 2^-9. */
        code = half_float_bits(half_bits_float(bits) + 0x1p14f) - 0x46800000u;
    else
        code = (bits - 0x3c000000u + 0x7ffffu + (bits >> 20 & 1u)) >> 20;
    return (uint8_t)(sign | code);
}

#endif
