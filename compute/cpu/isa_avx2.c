/* isa_avx2: AVX2 with FMA and F16C, and the same with the integer GEMM of AVX-VNNI. Both GEMMs are in
 * gemm_avx2.c. */
#include "compute/cpu/vector_avx2.h"

#include "compute/cpu/attention.h"
#include "compute/cpu/gemm_float.h"

static const struct kernels_floats floats = {
    .name = "", .gemm = gemm_float, .rounded_bytes = 4, .round = round_bf16};

/* All that the two instruction sets share: everything except the integer GEMM. */
#define SHARED                                                                                     \
    .floats = &floats, .quantise = rows_quantise, .norm = rows_norm,                               \
    .layer_norm = rows_layer_norm, .squares = rows_squares, .weigh = rows_weigh,                   \
    .silu_mul = rows_silu_mul, .gelu_mul = rows_gelu_mul, .gelu_erf_mul = rows_gelu_erf_mul,       \
    .cap = rows_cap, .rope = rows_rope, .store = attention_store, .attention = attention_run,      \
    .attention_part = attention_part, .attention_join = attention_join

const struct kernels kernels_avx2 = {.name = "avx2", .gemm_quantised = gemm_avx2, SHARED};
const struct kernels kernels_avx_vnni = {
    .name = "avx-vnni", .gemm_quantised = gemm_avx_vnni, SHARED};
