/* cpuid: features of x86 CPUs that clang 14's __builtin_cpu_supports does not know. The CPU backend
 * (cpu.c) and bench/roofline.c call the functions, on any thread. They do not say whether cleave
 * has kernels for a feature (cpu.c does). */
#ifndef COMPUTE_CPU_CPUID_H
#define COMPUTE_CPU_CPUID_H

#include <cpuid.h>
#include <stdbool.h>

static inline bool cpuid_has_f16c(void)
{
    unsigned eax, ebx, ecx, edx;
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

static inline bool cpuid_has_avx_vnni(void)
{
    unsigned eax, ebx, ecx, edx;
    return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax & 1u << 4) != 0;
}

/* Tile registers, and products of 8-bit integers with these registers. */
static inline bool cpuid_has_amx_int8(void)
{
    const unsigned wanted = 1u << 24 | 1u << 25;
    unsigned eax, ebx, ecx, edx;
    return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (edx & wanted) == wanted;
}

#endif
