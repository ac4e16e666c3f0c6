/* isa_avx512: AVX-512 with VNNI. The integer GEMM is in gemm_avx512.c. */
#include "compute/cpu/vector_avx512.h"

#include "compute/cpu/attention.h"
#include "compute/cpu/gemm_float.h"
#include "compute/cpu/quantise_avx512.h"

static const struct kernels_floats floats = {
    .name = "", .gemm = gemm_float, .rounded_bytes = 4, .round = round_bf16};

const struct kernels kernels_avx512 = {
    .name = "avx512-vnni",
    .gemm_quantised = gemm_avx512,
    .unpacks = true,
    .gemm_strips = gemm_amx,
    .floats = &floats,
    .quantise = quantise_avx512,
    .norm = rows_norm,
    .layer_norm = rows_layer_norm,
    .squares = rows_squares,
    .weigh = rows_weigh,
    .silu_mul = rows_silu_mul,
    .gelu_mul = rows_gelu_mul,
    .gelu_erf_mul = rows_gelu_erf_mul,
    .cap = rows_cap,
    .rope = rows_rope,
    .store = attention_store,
    .attention = attention_run,
    .attention_part = attention_part,
    .attention_join = attention_join,
};
