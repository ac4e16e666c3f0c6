/* widest: a function that is compiled for several instruction sets, of which the best that the CPU
 * has is taken at start. For loops that give the same bits at any vector width. */
#ifndef MODEL_WIDEST_H
#define MODEL_WIDEST_H

/* Not under ThreadSanitizer: GCC instruments the resolvers, which run before its runtime. */
#if defined(__x86_64__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
#define WIDEST __attribute__((target_clones("arch=x86-64-v4", "avx2", "default")))
#else
#define WIDEST
#endif

#endif
