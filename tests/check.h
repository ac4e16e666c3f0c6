/* check: helpers for every test program: checks, a random seed, skipping, and the paths of test
 * files. CHECK and CHECKF may be used on any thread: a failed check ends the whole process. The
 * functions are for the test's main thread. This part does not run tests (meson does) and removes
 * no files. */
#ifndef TESTS_CHECK_H
#define TESTS_CHECK_H

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* Prints the position and the condition, and ends the test with exit status 1, unless the condition
 * is true. CHECKF also prints a formatted text. */
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            printf("%s:%d: check failed: %s\n", __FILE__, __LINE__, #condition);                   \
            fflush(stdout); /* LeakSanitizer may end the process without it. */                    \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define CHECKF(condition, ...)                                                                     \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            printf("%s:%d: check failed: %s: ", __FILE__, __LINE__, #condition);                   \
            printf(__VA_ARGS__);                                                                   \
            printf("\n");                                                                          \
            fflush(stdout);                                                                        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* 1 under AddressSanitizer: tests with many cases run fewer of them. */
#ifdef __SANITIZE_ADDRESS__
#define TEST_SANITIZED 1
#else
#define TEST_SANITIZED 0
#endif

/* Returns CLEAVE_SEED from the environment, or a new seed, and prints it in both cases, so that a
 * failure can be repeated. */
static inline uint64_t test_seed(void)
{
    const char *given = getenv("CLEAVE_SEED");
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t seed = given != NULL ? strtoull(given, NULL, 0)
                                  : (uint64_t)now.tv_nsec * 2654435761u + (uint64_t)now.tv_sec;
    printf("seed: CLEAVE_SEED=%" PRIu64 "\n", seed);
    return seed;
}

/* Prints the reason to standard output and exits with 77, which meson counts as skipped. */
static inline void test_skip(const char *reason)
{
    printf("SKIP: %s\n", reason);
    exit(77);
}

/* Returns the default model's file: CLEAVE_MODEL, or the file that ./dev fetches. Skips the test if
 * the file does not exist. */
static inline const char *test_model_path(void)
{
    static char path[1024];
    const char *given = getenv("CLEAVE_MODEL");
    const char *cache = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    if (given != NULL)
        snprintf(path, sizeof(path), "%s", given);
    else if (cache != NULL && cache[0] != 0)
        snprintf(path, sizeof(path), "%s/cleave/SmolLM2-135M-Instruct.Q4_1.gguf", cache);
    else
        snprintf(path, sizeof(path), "%s/.cache/cleave/SmolLM2-135M-Instruct.Q4_1.gguf",
                 home != NULL ? home : "");
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        test_skip("the default model's file does not exist (./dev test fetches it)");
    fclose(file);
    return path;
}

/* Returns the path of a file under tests/data, in a static buffer. */
static inline const char *test_data_path(const char *relative)
{
    static char path[1024];
    const char *source = getenv("CLEAVE_SOURCE");
    snprintf(path, sizeof(path), "%s/tests/data/%s", source != NULL ? source : ".", relative);
    return path;
}

/* Returns the path of a file under the folder CLEAVE_SHARED (more reference results and whole
 * traces, which are not in the tree), in a static buffer. NULL = the variable is not set or the
 * file does not exist. Only `./dev test --long` sets the variable. */
static inline const char *test_shared_path(const char *relative)
{
    static char path[1024];
    const char *shared = getenv("CLEAVE_SHARED");
    if (shared == NULL)
        return NULL;
    snprintf(path, sizeof(path), "%s/%s", shared, relative);
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return NULL;
    fclose(file);
    return path;
}

#endif
