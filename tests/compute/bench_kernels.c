/* bench_kernels: not a test. For each weight type and number of rows: Gop/s of the matmul (2 per
 * multiply and add) and GB/s of weights read, next to the peak of the dot-product units measured at
 * the same time (other work on the computer lowers both). Usage: bench-compute-kernels [threads]
 * [type] */
#include "fixture.h"

#define COLS  576
#define ROWS  1536
#define TOTAL (64u << 20) /* Bytes of weights: more than any cache holds. */

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

#if defined(__x86_64__)
/* Multiplies 64 bytes, u8 × s8, per instruction, from registers. */
static __attribute__((target("avx512f,avx512vnni"))) double peak_gops(void)
{
    double begin = now_s();
    for (int i = 0; i < 200000; i++)
        __asm__ volatile("vpdpbusd %%zmm30, %%zmm31, %%zmm0\nvpdpbusd %%zmm30, %%zmm31, %%zmm1\n"
                         "vpdpbusd %%zmm30, %%zmm31, %%zmm2\nvpdpbusd %%zmm30, %%zmm31, %%zmm3\n"
                         "vpdpbusd %%zmm30, %%zmm31, %%zmm4\nvpdpbusd %%zmm30, %%zmm31, %%zmm5\n"
                         "vpdpbusd %%zmm30, %%zmm31, %%zmm6\nvpdpbusd %%zmm30, %%zmm31, %%zmm7\n"
                         "vpdpbusd %%zmm30, %%zmm31, %%zmm8\nvpdpbusd %%zmm30, %%zmm31, %%zmm9\n" ::
                             : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7",
                               "xmm8", "xmm9");
    return 200000 * 10 * 128 / (now_s() - begin) * 1e-9;
}
#endif

static double peak(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512vnni"))
        return peak_gops();
#endif
    return 0;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void bench(struct compute *c, enum compute_type type)
{
    static const uint32_t counts[] = {1, 2, 4, 6, 8, 32, 128, 512};
    uint32_t unit = compute_type_block_elements(type), cols = (COLS + unit - 1) / unit * unit;
    size_t row_bytes = cols / unit * compute_type_block_bytes(type);
    uint32_t matrices = (uint32_t)(TOTAL / (row_bytes * ROWS));
    struct compute_matrix **m = calloc(matrices, sizeof(struct compute_matrix *));
    double seconds = 0;
    CHECK(m != NULL);
    for (uint32_t k = 0; k < matrices; k++) {
        uint8_t *weights = fixture_weights(type, ROWS, cols);
        double begin = now_s();
        m[k] = fixture_matrix(c, type, ROWS, cols, weights);
        seconds += now_s() - begin;
        free(weights);
    }
    size_t bytes = OPS->matrix_bytes(m[0]) * matrices;
    printf("%-5s %u matrices of %u x %u, repack %.0f ms\n", compute_type_name(type), matrices, ROWS,
           cols, seconds * 1e3);
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        uint32_t n = counts[i];
        float *x = fixture_floats((size_t)n * cols), *y = fixture_floats((size_t)n * ROWS);
        struct compute_activations *a = fixture_activations(c, x, n, cols, OPS->matrix_needs(m[0]));
        a->few = n < CPU_STRIPS_ROWS_MIN;
        double times[25], peaks[25];
        int repeats = n > 64 ? 3 : n > 6 ? 9 : 25;
        for (int k = 0; k < repeats; k++) {
            peaks[k] = peak();
            double begin = now_s();
            for (uint32_t j = 0; j < matrices; j++) {
                const struct compute_matrix *one[] = {m[j]};
                OPS->matmul(c, one, NULL, 1, a, n, &y);
            }
            times[k] = now_s() - begin;
        }
        qsort(times, repeats, sizeof(double), by_value);
        qsort(peaks, repeats, sizeof(double), by_value);
        double t = times[repeats / 2], gops = 2e-9 * n * ROWS * cols * matrices / t;
        printf(
            "  %4u rows %8.3f ms (best %.3f) %7.1f Gop/s %6.1f GB/s (best %.1f)   peak of a core "
            "%.0f Gop/s (%.0f %%)\n",
            n, t * 1e3, times[0] * 1e3, gops, (double)bytes / t * 1e-9,
            (double)bytes / times[0] * 1e-9, peaks[repeats / 2], 100 * gops / peaks[repeats / 2]);
        OPS->activations_close(c, a);
        free(x);
        free(y);
    }
    for (uint32_t k = 0; k < matrices; k++)
        OPS->matrix_close(c, m[k]);
    free(m);
}

int main(int argc, char **argv)
{
    struct compute *c =
        fixture_open(COMPUTE_ISA_AUTO, argc > 1 ? (uint32_t)atoi(argv[1]) : 1, false);
    fixture_seed = 1;
    printf("%s\n", OPS->describe(c));
    for (int type = 0; type < COMPUTE_TYPE_COUNT; type++)
        if (argc < 3 || strcmp(argv[2], compute_type_name((enum compute_type)type)) == 0)
            bench(c, (enum compute_type)type);
    OPS->close(c);
    return 0;
}
