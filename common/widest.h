/* widest: the attribute WIDEST compiles a function for several instruction sets and picks the best
 * one that the CPU has when the program starts. Loops of the sampler and the tokenizer (model/) use
 * it. It is only for loops that give the same bits at any vector width; the kernels of compute/cpu
 * choose their instruction set by themselves. No state, any thread. */
#ifndef COMMON_WIDEST_H
#define COMMON_WIDEST_H

/* Without effect under ThreadSanitizer: GCC instruments the functions that choose the variant, and
 * these run before the sanitizer's runtime is ready. */
#if defined(__x86_64__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
#define WIDEST __attribute__((target_clones("arch=x86-64-v4", "avx2", "default")))
#else
#define WIDEST
#endif

#endif
