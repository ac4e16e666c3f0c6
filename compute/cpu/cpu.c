/* cpu: opens and closes the CPU backend: picks the instruction set, starts the workers, owns their
 * scratch memory. */
#include "compute/cpu/cpu.h"

#include "common/cores.h"
#include "compute/host.h"
#include "compute/meeting.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef CLEAVE_X86
#include "compute/cpu/cpuid.h"
#endif

static const char *const isa_names[] = {
    [COMPUTE_ISA_AUTO] = "auto",     [COMPUTE_ISA_PORTABLE] = "portable",
    [COMPUTE_ISA_AVX2] = "avx2",     [COMPUTE_ISA_AVX_VNNI] = "avx-vnni",
    [COMPUTE_ISA_AVX512] = "avx512",
};

/* NULL = this CPU does not have the instruction set. */
static const struct kernels *kernels_of(enum compute_isa isa)
{
#ifdef CLEAVE_X86
    __builtin_cpu_init();
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && cpuid_has_f16c();
    bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vnni");
    if (isa == COMPUTE_ISA_AVX512 || isa == COMPUTE_ISA_AUTO) {
        if (avx512)
            return &kernels_avx512;
    }
    if (isa == COMPUTE_ISA_AVX_VNNI || isa == COMPUTE_ISA_AUTO) {
        if (avx2 && cpuid_has_avx_vnni())
            return &kernels_avx_vnni;
    }
    if (isa == COMPUTE_ISA_AVX2 || isa == COMPUTE_ISA_AUTO) {
        if (avx2)
            return &kernels_avx2;
    }
#endif
    return isa == COMPUTE_ISA_PORTABLE || isa == COMPUTE_ISA_AUTO ? &kernels_portable : NULL;
}

static const struct kernels_floats *floats_of(const struct kernels *kernels)
{
#ifdef CLEAVE_X86
    if (kernels == &kernels_avx512 && __builtin_cpu_supports("avx512bf16") &&
        kernels_avx512_bf16_rounds())
        return &kernels_floats_avx512_bf16;
#endif
    return kernels->floats;
}

static enum status kernels_choose(enum compute_isa isa, const struct kernels **out,
                                  struct error *error)
{
    const char *named = getenv("CLEAVE_ISA");
    if (isa == COMPUTE_ISA_AUTO && named != NULL && named[0] != 0) {
        while (isa <= COMPUTE_ISA_AVX512 && strcmp(named, isa_names[isa]) != 0)
            isa++;
        if (isa > COMPUTE_ISA_AVX512)
            return error_set(error, ST_INVALID,
                             "CLEAVE_ISA = \"%s\": want auto, portable, avx2, avx-vnni or avx512",
                             named);
    }
    static const char *const parts[] = {
        [COMPUTE_ISA_AVX2] = "AVX2, FMA and F16C",
        [COMPUTE_ISA_AVX_VNNI] = "AVX2, FMA, F16C and AVX-VNNI",
        [COMPUTE_ISA_AVX512] = "AVX-512 F, BW, VL, DQ and VNNI",
    };
    const struct kernels *kernels = kernels_of(isa);
    if (kernels == NULL)
        return error_set(error, ST_UNSUPPORTED, "instruction set %s: this CPU does not have %s",
                         isa_names[isa], parts[isa]);
    *out = kernels;
    return ST_OK;
}

enum status cpu_choice_read(const char *name, enum cpu_choice *out, struct error *error)
{
    static const char *const words[] = {
        [CPU_CHOICE_AUTO] = "auto", [CPU_CHOICE_NEVER] = "never", [CPU_CHOICE_ALWAYS] = "always"};
    const char *word = getenv(name);
    *out = CPU_CHOICE_AUTO;
    if (word == NULL || word[0] == 0)
        return ST_OK;
    for (int i = CPU_CHOICE_AUTO; i <= CPU_CHOICE_ALWAYS; i++)
        if (strcmp(word, words[i]) == 0) {
            *out = (enum cpu_choice)i;
            return ST_OK;
        }
    return error_set(error, ST_INVALID, "%s = \"%s\": want auto, never or always", name, word);
}

static uint32_t core_count(void)
{
    uint32_t count = cores_usable();
    return count < WORKERS_THREADS_MAX ? count : WORKERS_THREADS_MAX;
}

/* Whether software prefetching through the L1 cache pays. Weights that are prefetched 8 KB ahead go
 * through that cache together with the group in use. With 48 KiB (Zen 5) that speeds up reading
 * memory by up to a factor of two; with 32 KiB (Zen 4) it loses a quarter against the hardware
 * prefetcher, which reaches plain reading speed on one sequential stream. */
static bool prefetch_pays(void)
{
#ifdef _SC_LEVEL1_DCACHE_SIZE
    return sysconf(_SC_LEVEL1_DCACHE_SIZE) >= 48 * 1024;
#else
    return false;
#endif
}

void *cpu_memory_allocate(size_t bytes)
{
    return aligned_alloc(64, (bytes + 63) / 64 * 64);
}

enum status cpu_scratch_grow(struct compute *c, size_t floats)
{
    for (uint32_t i = 0; i < workers_threads(c->workers); i++) {
        struct cpu_scratch *scratch = &c->scratch[i];
        if (scratch->floats >= floats)
            continue;
        size_t larger = scratch->floats * 2 > floats ? scratch->floats * 2 : floats;
        float *data = cpu_memory_allocate(larger * sizeof(float));
        if (data == NULL)
            return ST_NO_MEMORY;
        free(scratch->data);
        scratch->data = data;
        scratch->floats = larger;
    }
    return ST_OK;
}

bool cpu_segments_grow(struct compute *c, size_t floats, uint32_t counters)
{
    struct cpu_segments *split = &c->segments;
    if (split->floats < floats) {
        free(split->parts);
        split->floats = 0;
        split->parts = cpu_memory_allocate(floats * sizeof(float));
        if (split->parts == NULL)
            return false;
        split->floats = floats;
    }
    if (split->counters < counters) {
        free(split->unfinished);
        split->counters = 0;
        split->unfinished = malloc(counters * sizeof(*split->unfinished));
        if (split->unfinished == NULL)
            return false;
        split->counters = counters;
    }
    return true;
}

void cpu_compute_free(struct compute *c)
{
    workers_close(c->workers);
    for (uint32_t i = 0; i < WORKERS_THREADS_MAX; i++)
        free(c->scratch[i].data);
    free(c->first_items);
    free(c->segments.parts);
    free(c->segments.unfinished);
    free(c);
}

static void cpu_close(struct compute *c)
{
    if (c == NULL)
        return;
    assert(c->weights.chunks == NULL); /* Matrices must be closed first. */
    meeting_leave(c->meeting);
    cpu_lanes_close(c->lanes);
    cpu_compute_free(c);
}

static enum status cpu_open(const struct compute_options *options, struct compute **out,
                            struct error *error)
{
    uint32_t threads = options->threads != 0 ? options->threads : core_count();
    const struct kernels *kernels = NULL;
    enum status status = kernels_choose(options->isa, &kernels, error);
    if (status != ST_OK)
        return status;
    struct compute *c = cpu_memory_allocate(sizeof(*c));
    if (c == NULL)
        return error_set(error, ST_NO_MEMORY, "no memory for the CPU backend");
    memset(c, 0, sizeof(*c));
    c->kernels = kernels;
    c->floats = floats_of(kernels);
    c->exact = options->exact;
    c->prefetch = prefetch_pays();
    status = cpu_product_rules(c, error);
    if (status == ST_OK)
        status = workers_open(threads, &c->workers, error);
    if (status == ST_OK && threads > 1)
        status = cpu_lanes_open(c, options->lanes, &c->lanes, error);
    if (status != ST_OK) {
        cpu_close(c);
        return status;
    }
    snprintf(c->description, sizeof(c->description), "%s%s%s%s%s, %u thread%s", kernels->name,
             c->floats->name[0] != 0 ? "-" : "", c->floats->name,
             c->product_choice.strips != CPU_CHOICE_NEVER ? "-amx" : "", c->exact ? " exact" : "",
             threads, threads == 1 ? "" : "s");
    *out = c;
    return ST_OK;
}

static const char *cpu_describe(const struct compute *c)
{
    return c->description;
}

/* The CPU's operations need no announcement. */
static void cpu_layer_begin(struct compute *c, uint32_t row_count)
{
    (void)c, (void)row_count;
}

/* Few rows, once per pass: not worth waking the workers. */
static void cpu_gather(struct compute *c, const float *x, const uint32_t *rows, uint32_t count,
                       uint32_t cols, float *y)
{
    (void)c;
    for (uint32_t i = 0; i < count; i++)
        memcpy(y + (size_t)i * cols, x + (size_t)rows[i] * cols, cols * sizeof(float));
}

static const struct compute_lanes_ops cpu_lanes = {
    .count = cpu_lanes_count,
    .pick = cpu_lanes_pick,
    .done = cpu_lanes_done,
    .lane = cpu_lane,
    .run = cpu_lanes_run,
};

static const struct compute_group_ops cpu_group = {
    .id_make = cpu_group_id_make,
    .join = cpu_group_join,
    .sum = cpu_group_sum,
    .sum_add = cpu_group_sum_add,
    .norm = cpu_group_norm,
    .gather = cpu_group_gather,
};

const struct compute_ops compute_cpu = {
    .name = "cpu",
    .open = cpu_open,
    .close = cpu_close,
    .describe = cpu_describe,
    .device_memory = host_device_memory,
    .memory_allocate = host_memory_allocate,
    .memory_free = host_memory_free,
    .memory_write = host_memory_copy,
    .memory_read = host_memory_copy,
    .mark = host_mark,
    .wait = host_wait,
    .check = cpu_check,
    .matrix_open = cpu_matrix_open,
    .matrix_close = cpu_matrix_close,
    .matrix_needs = cpu_matrix_needs,
    .matrix_bytes = cpu_matrix_bytes,
    .activations_open = cpu_activations_open,
    .activations_close = cpu_activations_close,
    .rope_open = cpu_rope_open,
    .rope_close = cpu_rope_close,
    .attention_check = host_attention_check,
    .layer_begin = cpu_layer_begin,
    .embed = cpu_embed,
    .gather = cpu_gather,
    .norm = cpu_norm,
    .layer_norm = cpu_layer_norm,
    .matmul = cpu_matmul,
    .matmul_add = cpu_matmul_add,
    .low_rank = cpu_low_rank,
    .rope_store = cpu_rope_store,
    .attention = cpu_attention,
    .gate_mul = cpu_gate_mul,
    .scale = cpu_scale,
    .scale_add = cpu_scale_add,
    .cap = cpu_cap,
    .head_norm = cpu_head_norm,
    .norm_add = cpu_norm_add,
    .lanes = &cpu_lanes,
    .latent = &cpu_latent,
    .group = &cpu_group,
    .experts = &cpu_experts,
};
