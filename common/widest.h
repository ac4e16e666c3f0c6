/* widest: the function attribute WIDEST. GCC compiles a function with this attribute once for each
 * of three x86-64 instruction sets: AVX-512 (x86-64-v4), AVX2 and the default. When the program is
 * loaded, the best version for the CPU is chosen. WIDEST is only for loops whose results do not
 * depend on the vector width. Any folder may use the macro. No code, no threads. */
#ifndef COMMON_WIDEST_H
#define COMMON_WIDEST_H

/* WIDEST has no effect with other compilers, on other processors and under ThreadSanitizer, whose
 * runtime is not ready when a version is chosen. */
#if defined(__x86_64__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
#define WIDEST __attribute__((target_clones("arch=x86-64-v4", "avx2", "default")))
#else
#define WIDEST
#endif

#endif
