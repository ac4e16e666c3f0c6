/* widest: with the attribute WIDEST, GCC compiles a function once for each of three x86-64
 * instruction sets. When the program starts, it chooses the best version for the CPU. WIDEST is
 * only for loops whose results do not depend on the vector width. Most kernels of compute/cpu do
 * not use it: they choose their instruction set themselves. This header has a macro only, no
 * state. */
#ifndef COMMON_WIDEST_H
#define COMMON_WIDEST_H

/* No effect with other compilers, on other CPUs and under ThreadSanitizer. The sanitizer's runtime
 * is not ready when the functions run that choose the version. */
#if defined(__x86_64__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
#define WIDEST __attribute__((target_clones("arch=x86-64-v4", "avx2", "default")))
#else
#define WIDEST
#endif

#endif
