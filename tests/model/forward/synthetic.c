/* synthetic: see the header. */
#include "tests/model/forward/synthetic.h"

#include "common/random.h"
#include "model/file/model_file.h"
#include "tests/check.h"
#include "tests/compute/blocks.h"
#include "tests/model/file/gguf_writer.h"

#include <math.h>
#include <string.h>

struct builder {
    const struct synthetic *s;
    struct gguf_writer *w;
    uint64_t drawn; /* counter of the random numbers */
};

struct synthetic synthetic_default(void)
{
    return (struct synthetic){
        .architecture = "llama",
        .layers = 2,
        .hidden = 64,
        .ffn = 96,
        .heads = 4,
        .kv_heads = 2,
        .vocab = 160,
        .context = 512,
        .type = COMPUTE_F32,
        .v_type = COMPUTE_F32,
        .end_type = COMPUTE_F32,
        .vector_type = COMPUTE_F32,
        .tied = true,
        .seed = 1,
    };
}

struct synthetic synthetic_latent(void)
{
    struct synthetic s = synthetic_default();
    s.architecture = "deepseek2";
    s.head_dim = 40;
    s.rope_dim = 8;
    s.latent_rank = 64;
    s.latent_value = 32;
    return s;
}

static bool is(const char *a, const char *b)
{
    return a != NULL && strcmp(a, b) == 0;
}

static uint64_t draw(struct builder *b)
{
    return random_at(b->s->seed, b->drawn++);
}

static float draw_unit(struct builder *b)
{
    return random_unit_at(b->s->seed, b->drawn++);
}

/* Roughly normal: four uniform numbers. */
static float draw_normal(struct builder *b)
{
    float sum = draw_unit(b) + draw_unit(b) + draw_unit(b) + draw_unit(b);
    return (sum - 2.0f) * 1.7320508f;
}

/* Normal numbers of half precision only; rounds toward zero. */
static uint16_t half_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    uint32_t sign = bits >> 16 & 0x8000;
    int32_t exponent = (int32_t)(bits >> 23 & 0xff) - 112;
    if (exponent <= 0)
        return (uint16_t)sign;
    CHECK(exponent < 31);
    return (uint16_t)(sign | (uint32_t)exponent << 10 | (bits >> 13 & 0x3ff));
}

static void put_half(uint8_t *to, float value)
{
    uint16_t half = half_of(value);
    memcpy(to, &half, sizeof(half));
}

static void random_bytes(struct builder *b, uint8_t *to, size_t count)
{
    for (size_t i = 0; i < count; i++)
        to[i] = (uint8_t)(draw(b) >> 32);
}

/* Standard deviation of the elements of a block of random bits whose scale is 1, and the minimum,
 * in units of the scale, that makes their mean about 0. */
static const struct {
    float scale, min;
} units[COMPUTE_TYPE_COUNT] = {
    [COMPUTE_Q8_0] = {74, 0},
    [COMPUTE_Q4_0] = {4.6f, 0},
    [COMPUTE_Q4_1] = {4.6f, -7.5f},
    [COMPUTE_Q5_0] = {9.2f, 0},
    [COMPUTE_Q5_1] = {9.2f, -15.5f},
    [COMPUTE_Q4_K] = {4.6f * 36, 7.5f}, /* Scales and minima of 6 bits, 31.5 in the mean. */
    [COMPUTE_Q5_K] = {9.2f * 36, 15.5f},
    [COMPUTE_Q6_K] = {18.5f * 74, 0}, /* 16 signed scales of 8 bits. */
    [COMPUTE_Q2_K] = {14, 1.5f},
    [COMPUTE_Q3_K] = {43, 0},
    [COMPUTE_IQ4_NL] = {67, 0},
    [COMPUTE_IQ4_XS] = {1246, 0},
    [COMPUTE_MXFP4] = {8, 0}, /* 5.9, for a power of two. */
    [COMPUTE_TQ1_0] = {0.82f, 0},
    [COMPUTE_TQ2_0] = {0.71f, 0},
    [COMPUTE_IQ3_S] = {140, 0},
    [COMPUTE_IQ3_XXS] = {142, 0},
    [COMPUTE_IQ2_S] = {57, 0},
    [COMPUTE_IQ2_XS] = {56, 0},
    [COMPUTE_IQ2_XXS] = {53, 0},
    [COMPUTE_IQ1_S] = {7.2f, 0},
    [COMPUTE_IQ1_M] = {7.2f, 0},
};

/* One block whose elements have a standard deviation near `deviation`. */
static void random_block(struct builder *b, enum compute_type type, float deviation, uint8_t *to)
{
    float jitter = deviation * (0.5f + draw_unit(b));
    float value = draw_normal(b) * deviation;
    uint32_t bits;
    random_bytes(b, to, compute_type_block_bytes(type));
    switch (type) {
    case COMPUTE_F32:
        memcpy(to, &value, sizeof(value));
        break;
    case COMPUTE_F16:
        put_half(to, value);
        break;
    case COMPUTE_BF16:
        memcpy(&bits, &value, sizeof(bits));
        to[0] = (uint8_t)(bits >> 16);
        to[1] = (uint8_t)(bits >> 24);
        break;
    case COMPUTE_TQ2_0: /* files have no quants of 3, which would be 2; they become 0 here */
        for (size_t i = 0; i < 64; i++)
            to[i] &= (uint8_t) ~((to[i] & to[i] >> 1 & 0x55) << 1);
        blocks_put(type, to, half_of(jitter / units[type].scale), 0);
        break;
    default:
        blocks_put(type, to, half_of(jitter / units[type].scale),
                   half_of(jitter / units[type].scale * units[type].min));
        break;
    case COMPUTE_F8_E4M3:
    case COMPUTE_TYPE_COUNT:
        CHECK(false);
    }
}

/* base + deviation * random; rows 0: a vector. stack: number of matrices in the tensor; 0: one. */
static void put_stack(struct builder *b, const char *name, enum compute_type type, uint32_t cols,
                      uint32_t rows, uint32_t stack, float base, float deviation)
{
    const struct synthetic *s = b->s;
    uint64_t dims[3] = {cols, rows, stack};
    uint32_t dim_count = rows == 0 ? 1 : stack == 0 ? 2 : 3;
    if (is(s->leave_out, name))
        return;
    if (is(s->reshape, name))
        dims[dim_count - 1]++;
    if (is(s->retype, name))
        type = COMPUTE_Q8_0;
    uint64_t elements = dims[0] * (rows == 0 ? 1 : dims[1]) * (dim_count < 3 ? 1 : dims[2]);
    uint64_t blocks =
        (elements + compute_type_block_elements(type) - 1) / compute_type_block_elements(type);
    size_t bytes = compute_type_block_bytes(type);
    uint8_t *data = malloc(blocks * bytes);
    CHECK(data != NULL);
    for (uint64_t i = 0; i < blocks; i++)
        random_block(b, type, deviation, data + i * bytes);
    if (type == COMPUTE_F32 && base != 0.0f)
        for (uint64_t i = 0; i < elements; i++) {
            float value;
            memcpy(&value, data + i * bytes, sizeof(value));
            value += base;
            memcpy(data + i * bytes, &value, sizeof(value));
        }
    gguf_writer_tensor(b->w, name, type, dim_count, dims, data, blocks * bytes);
    free(data);
}

static void put_tensor(struct builder *b, const char *name, enum compute_type type, uint32_t cols,
                       uint32_t rows, float base, float deviation)
{
    put_stack(b, name, type, cols, rows, 0, base, deviation);
}

static void put_u32(struct builder *b, const char *suffix, uint32_t value)
{
    char key[128];
    snprintf(key, sizeof(key), "%s.%s", b->s->architecture, suffix);
    if (is(b->s->key_left_out, key))
        return;
    gguf_writer_u32(b->w, key, is(b->s->key_changed, key) ? b->s->changed_to : value);
}

static void put_f32(struct builder *b, const char *suffix, float value)
{
    char key[128];
    snprintf(key, sizeof(key), "%s.%s", b->s->architecture, suffix);
    if (is(b->s->key_left_out, key))
        return;
    gguf_writer_f32(b->w, key, is(b->s->key_changed, key) ? b->s->changed_float : value);
}

static void put_string(struct builder *b, const char *key, const char *value)
{
    if (is(b->s->key_left_out, key))
        return;
    gguf_writer_string(b->w, key, is(b->s->key_changed, key) ? b->s->changed_text : value);
}

static void put_keys(struct builder *b)
{
    const struct synthetic *s = b->s;
    char key[128];
    put_string(b, "general.architecture", s->architecture);
    put_string(b, "general.name", "synthetic");
    put_u32(b, "block_count", s->layers + s->draft_layers);
    if (s->draft_layers != 0)
        put_u32(b, "nextn_predict_layers", s->draft_layers);
    put_u32(b, "context_length", s->context);
    put_u32(b, "embedding_length", s->hidden);
    put_u32(b, "feed_forward_length", s->ffn);
    put_u32(b, "attention.head_count", s->heads);
    put_u32(b, "attention.head_count_kv", s->kv_heads);
    put_f32(b, "attention.layer_norm_rms_epsilon", 1e-5f);
    put_f32(b, "rope.freq_base", 10000.0f);
    if (s->head_dim != 0) {
        const uint32_t value = s->latent_rank != 0 ? s->latent_value : s->head_dim;
        const bool apart = s->latent_apart;
        put_u32(b, "attention.key_length", apart ? s->latent_rank + s->rope_dim : s->head_dim);
        put_u32(b, "attention.value_length", apart ? s->latent_rank : value);
        if (apart) {
            put_u32(b, "attention.key_length_mla", s->head_dim);
            put_u32(b, "attention.value_length_mla", value);
        }
    }
    if (s->latent_rank != 0) {
        put_u32(b, "attention.kv_lora_rank", s->latent_rank);
        if (s->latent_q_rank != 0)
            put_u32(b, "attention.q_lora_rank", s->latent_q_rank);
    }
    if (s->attention_cap != 0)
        put_f32(b, "attn_logit_softcapping", s->attention_cap);
    if (s->logits_cap != 0)
        put_f32(b, "final_logit_softcapping", s->logits_cap);
    if (s->window != 0 || is(s->architecture, "gemma3") || is(s->architecture, "gemma2"))
        put_u32(b, "attention.sliding_window", s->window != 0 ? s->window : s->context);
    if (s->rope_dim != 0)
        put_u32(b, "rope.dimension_count", s->rope_dim);
    if (s->rope_factor != 0.0f) {
        snprintf(key, sizeof(key), "%s.rope.scaling.type", s->architecture);
        put_string(b, key, "linear");
        put_f32(b, "rope.scaling.factor", s->rope_factor);
    }
    if (s->experts != 0) {
        put_u32(b, "expert_count", s->experts);
        put_u32(b, "expert_used_count", s->experts_used);
        put_u32(b, "expert_feed_forward_length", s->expert_ffn);
    }
    if (s->experts != 0 && is(s->architecture, "deepseek2"))
        gguf_writer_bool(b->w, "deepseek2.expert_weights_norm", true);
    if (s->shared_ffn != 0)
        put_u32(b, "expert_shared_feed_forward_length", s->shared_ffn);
    if (s->sigmoid) {
        put_u32(b, "expert_gating_func", 2);
        put_f32(b, "expert_weights_scale", 2.5f);
    }
    if (s->expert_groups != 0) {
        put_u32(b, "expert_group_count", s->expert_groups);
        put_u32(b, "expert_group_used_count", s->expert_groups_used);
    }
    /* A key that the file would not have otherwise. */
    snprintf(key, sizeof(key), "%s.expert_count", s->architecture);
    if (is(s->key_changed, key) && s->experts == 0)
        put_u32(b, "expert_count", 0);
}

static void put_layer(struct builder *b, uint32_t layer)
{
    const struct synthetic *s = b->s;
    uint32_t dim = s->head_dim != 0 ? s->head_dim : s->hidden / s->heads;
    uint32_t q = s->heads * dim, kv = s->kv_heads * dim;
    const char *family = s->architecture;
    bool gemma = is(family, "gemma3") || is(family, "gemma2");
    float in = 1.0f / sqrtf((float)s->hidden);
    bool experts = s->experts > 0 && layer >= s->dense_layers;
    uint32_t eff = s->expert_ffn, sff = experts ? s->shared_ffn : 0;
    bool shared_router = sff > 0 && is(family, "qwen2moe");
    bool head_norms = is(family, "gemma3") || is(family, "qwen3") || is(family, "qwen3moe");
    const uint32_t rank = s->latent_rank, q_rank = s->latent_q_rank, value = s->latent_value;
    const bool latent = rank != 0;
    const uint32_t stack = s->latent_apart ? s->heads : 0;
    const uint32_t heads = latent ? s->heads * value : q; /* Width of attention's result. */
    const bool draft = layer >= s->layers, whole = draft && !s->draft_shares;
    const struct {
        const char *suffix;
        enum compute_type type;
        uint32_t cols, rows;
        float base, deviation;
        bool there;
    } tensors[] = {
        {"attn_norm.weight", s->vector_type, s->hidden, 0, 1.0f, 0.2f, true},
        {"attn_q.weight", s->type, s->hidden, q, 0, in * 1.5f, q_rank == 0 && !s->joined},
        {"attn_qkv.weight", s->type, s->hidden, q + 2 * kv, 0, in * 1.5f, s->joined},
        {"attn_q_a.weight", s->type, s->hidden, q_rank, 0, in, latent && q_rank != 0},
        {"attn_q_a_norm.weight", s->vector_type, q_rank, 0, 1.0f, 0.2f, latent && q_rank != 0},
        {"attn_q_b.weight", s->type, q_rank, q, 0, 1.5f / sqrtf((float)(q_rank + 1)),
         latent && q_rank != 0},
        {"attn_kv_a_mqa.weight", s->type, s->hidden, rank + s->rope_dim, 0, in * 1.5f, latent},
        {"attn_kv_a_norm.weight", s->vector_type, rank, 0, 1.0f, 0.2f, latent},
        {"attn_kv_b.weight", s->v_type, rank, s->heads * (dim - s->rope_dim + value), 0,
         1.0f / sqrtf((float)(rank + 1)), latent && !s->latent_apart},
        {"attn_k_b.weight", s->v_type, dim - s->rope_dim, rank, 0, 1.0f / sqrtf((float)(rank + 1)),
         latent && s->latent_apart},
        {"attn_v_b.weight", s->v_type, rank, value, 0, 1.0f / sqrtf((float)(rank + 1)),
         latent && s->latent_apart},
        {"attn_k.weight", s->type, s->hidden, kv, 0, in * 1.5f, !latent && !s->joined},
        {"attn_v.weight", s->v_type, s->hidden, kv, 0, in, !latent && !s->joined},
        {"attn_q.bias", s->vector_type, q, 0, 0, 0.3f, s->biases},
        {"attn_k.bias", s->vector_type, kv, 0, 0, 0.3f, s->biases},
        {"attn_v.bias", s->vector_type, kv, 0, 0, 0.3f, s->biases},
        {"attn_q_norm.weight", s->vector_type, dim, 0, 1.0f, 0.2f, head_norms},
        {"attn_k_norm.weight", s->vector_type, dim, 0, 1.0f, 0.2f, head_norms},
        {"post_attention_norm.weight", s->vector_type, s->hidden, 0, 1.0f, 0.2f, gemma},
        {"post_ffw_norm.weight", s->vector_type, s->hidden, 0, 1.0f, 0.2f, gemma},
        {"attn_output.weight", s->type, heads, s->hidden, 0, 1.0f / sqrtf((float)heads), true},
        {"ffn_norm.weight", s->vector_type, s->hidden, 0, 1.0f, 0.2f, true},
        {"ffn_gate.weight", s->type, s->hidden, s->ffn, 0, in, !experts && !s->joined},
        {"ffn_up.weight", s->type, s->hidden, s->joined ? 2 * s->ffn : s->ffn, 0, in, !experts},
        {"ffn_down.weight", s->v_type, s->ffn, s->hidden, 0, 1.0f / sqrtf((float)s->ffn), !experts},
        {"ffn_gate_inp.weight", COMPUTE_F32, s->hidden, s->experts, 0, 2 * in, experts},
        {"exp_probs_b.bias", COMPUTE_F32, s->experts, 0, 0, 0.1f, experts && s->sigmoid},
        {"ffn_gate_exps.weight", s->type, s->hidden, eff, 0, in, experts},
        {"ffn_up_exps.weight", s->type, s->hidden, eff, 0, in, experts},
        {"ffn_down_exps.weight", s->v_type, eff, s->hidden, 0, 1.0f / sqrtf((float)eff), experts},
        {"ffn_gate_inp_shexp.weight", COMPUTE_F32, s->hidden, 0, 0, in, shared_router},
        {"ffn_gate_shexp.weight", s->type, s->hidden, sff, 0, in, sff > 0},
        {"ffn_up_shexp.weight", s->type, s->hidden, sff, 0, in, sff > 0},
        {"ffn_down_shexp.weight", s->v_type, sff, s->hidden, 0, 1.0f / sqrtf((float)sff), sff > 0},
        {"nextn.eh_proj.weight", s->type, 2 * s->hidden, s->hidden, 0, in, draft},
        {"nextn.enorm.weight", s->vector_type, s->hidden, 0, 1.0f, 0.2f, draft},
        {"nextn.hnorm.weight", s->vector_type, s->hidden, 0, 1.0f, 0.2f, draft},
        {"nextn.embed_tokens.weight", s->end_type, s->hidden, s->vocab, 0, 0.7f, whole},
        {"nextn.shared_head_norm.weight", s->vector_type, s->hidden, 0, 1.0f, 0.2f, whole},
        {"nextn.shared_head_head.weight", s->end_type, s->hidden, s->vocab, 0, 0.1f, whole},
    };
    for (size_t i = 0; i < sizeof(tensors) / sizeof(tensors[0]); i++) {
        char name[64];
        snprintf(name, sizeof(name), "blk.%u.%s", layer, tensors[i].suffix);
        if (tensors[i].there)
            put_stack(b, name, tensors[i].type, tensors[i].cols, tensors[i].rows,
                      strstr(name, "_exps") != NULL                                    ? s->experts
                      : strstr(name, "k_b.w") != NULL || strstr(name, "v_b.w") != NULL ? stack
                                                                                       : 0,
                      tensors[i].base, tensors[i].deviation);
    }
}

uint8_t *synthetic_image(const struct synthetic *s, size_t *bytes_out)
{
    uint32_t dim = s->head_dim != 0 ? s->head_dim : s->hidden / s->heads;
    uint32_t rope_dim = s->rope_dim != 0 ? s->rope_dim : dim;
    struct builder b = {.s = s, .w = gguf_writer_open(3, 0)};
    put_keys(&b);
    put_tensor(&b, "token_embd.weight", s->end_type, s->hidden, s->vocab, 0, 0.7f);
    put_tensor(&b, "output_norm.weight", s->vector_type, s->hidden, 0, 1.0f, 0.2f);
    if (!s->tied)
        put_tensor(&b, "output.weight", s->end_type, s->hidden, s->vocab, 0, 0.1f);
    if (s->rope_factors_are != NULL)
        gguf_writer_tensor(b.w, "rope_freqs.weight", COMPUTE_F32, 1,
                           (const uint64_t[]){rope_dim / 2}, s->rope_factors_are,
                           rope_dim / 2 * sizeof(float));
    else if (s->rope_factors)
        put_tensor(&b, "rope_freqs.weight", COMPUTE_F32, rope_dim / 2, 0, 3.0f, 0.5f);
    for (uint32_t i = 0; i < s->layers + s->draft_layers; i++)
        put_layer(&b, i);
    if (s->extra != NULL)
        put_tensor(&b, s->extra, COMPUTE_F32, 8, 0, 0, 1.0f);
    return gguf_writer_finish(b.w, bytes_out);
}

struct model_file *synthetic_open(const struct synthetic *s, const char *what, uint8_t **image_out)
{
    struct model_file *file;
    struct error error = {0};
    size_t bytes;
    uint8_t *image = synthetic_image(s, &bytes);
    CHECKF(model_file_open_memory(image, bytes, what, &file, &error) == ST_OK, "%s: %s", what,
           error.text);
    *image_out = image;
    return file;
}

void synthetic_tokens(const struct synthetic *s, uint32_t count, uint32_t *ids_out)
{
    for (uint32_t i = 0; i < count; i++)
        ids_out[i] = (uint32_t)(random_at(s->seed + 99, i) % s->vocab);
}
