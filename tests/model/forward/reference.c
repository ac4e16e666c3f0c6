/* reference: see the header. Llama-like transformer: RMSNorm (Zhang and Sennrich 2019), RoPE (Su et
 * al. 2021), grouped-query attention (Ainslie et al. 2023), SwiGLU (Shazeer 2020). */
#include "tests/model/forward/reference.h"

#include "tests/check.h"

#include <math.h>
#include <string.h>

struct reference_layer {
    float *attention_norm, *q, *k, *v, *q_bias, *k_bias, *v_bias, *o;
    float *ffn_norm, *gate, *up, *down;
    float *q_norm, *k_norm, *attention_post_norm, *ffn_post_norm; /* NULL: none */
    /* NULL: none */
    float *router, *choice_bias, *expert_gate, *expert_up, *expert_down;
    float *shared_router, *shared_gate, *shared_up, *shared_down;
    float *q_a, *q_a_norm, *q_b, *kv_a, *kv_a_norm, *kv_b; /* of latent attention */
};

struct reference {
    uint32_t layer_count; /* without draft layers */
    uint32_t draft_layers, hidden, ffn, heads, kv_heads, head_dim, vocab, rope_dim;
    float epsilon;
    bool neox, gemma;
    uint32_t experts, used, expert_ffn, shared_ffn, groups, groups_used;
    bool sigmoid, normalise;
    float expert_scale;
    uint32_t rank, q_rank, value; /* of latent attention; rank 0: none */
    uint32_t window, full_period; /* 0: all layers have the window, if there is one */
    float attention_cap, logits_cap;
    double freq_base, freq_scale;
    double local_base; /* of layers with a window; 0: as the others */
    float *factors;    /* NULL: none */
    float *embedding, *output, *output_norm;
    struct reference_layer *layers; /* the draft layers are last */
    /* Of the first draft layer; the last three NULL: those of the model */
    float *projection, *token_norm, *final_norm, *draft_embedding, *draft_output, *draft_norm;
};

static void *take(size_t bytes)
{
    void *memory = calloc(1, bytes);
    CHECK(memory != NULL);
    return memory;
}

static float *tensor(const struct gguf *g, const char *name, bool required)
{
    const struct mapped_tensor *t = gguf_tensor_find(g, name);
    CHECKF(t != NULL || !required, "tensor %s is missing", name);
    if (t == NULL)
        return NULL;
    size_t count = 1;
    for (uint32_t i = 0; i < t->dim_count; i++)
        count *= t->dims[i];
    float *values = take(count * sizeof(float));
    compute_dequantize(t->type, t->data, count, values);
    return values;
}

static float *layer_tensor(const struct gguf *g, uint32_t layer, const char *suffix, bool required)
{
    char name[64];
    snprintf(name, sizeof(name), "blk.%u.%s", layer, suffix);
    return tensor(g, name, required);
}

static double number(const struct gguf *g, const char *architecture, const char *suffix,
                     double missing)
{
    char key[128];
    struct error error;
    float as_float;
    uint32_t as_u32;
    snprintf(key, sizeof(key), "%s.%s", architecture, suffix);
    if (gguf_get_u32(g, key, &as_u32, &error) == ST_OK)
        return as_u32;
    if (gguf_get_f32(g, key, &as_float, &error) == ST_OK)
        return (double)as_float;
    return missing;
}

/* The matrix that makes keys and values, also if the file has two (that of keys transposed). */
static float *latent_tensor(const struct reference *r, const struct gguf *g, uint32_t layer)
{
    float *all = layer_tensor(g, layer, "attn_kv_b.weight", false);
    if (all != NULL)
        return all;
    float *keys = layer_tensor(g, layer, "attn_k_b.weight", true);
    float *values = layer_tensor(g, layer, "attn_v_b.weight", true);
    const uint32_t plain = r->head_dim - r->rope_dim, each = plain + r->value;
    all = take((size_t)r->heads * each * r->rank * sizeof(float));
    for (uint32_t h = 0; h < r->heads; h++)
        for (uint32_t i = 0; i < each; i++)
            for (uint32_t j = 0; j < r->rank; j++)
                all[((size_t)h * each + i) * r->rank + j] =
                    i < plain ? keys[((size_t)h * r->rank + j) * plain + i]
                              : values[((size_t)h * r->value + i - plain) * r->rank + j];
    free(keys);
    free(values);
    return all;
}

struct reference *reference_open(const struct gguf *g)
{
    struct reference *r = take(sizeof(*r));
    struct mapped_text name;
    struct error error;
    char arch[32] = {0};
    CHECK(gguf_get_string(g, "general.architecture", &name, &error) == ST_OK && name.bytes < 32);
    memcpy(arch, name.text, name.bytes);
    r->neox = strcmp(arch, "llama") != 0 && strcmp(arch, "deepseek2") != 0;
    const bool gemma3 = strcmp(arch, "gemma3") == 0;
    r->gemma = gemma3 || strcmp(arch, "gemma2") == 0;
    r->full_period = gemma3 ? 6 : r->gemma ? 2 : 0;
    r->local_base = gemma3 ? 10000 : 0;
    r->window = (uint32_t)number(g, arch, "attention.sliding_window", 0);
    r->attention_cap = (float)number(g, arch, "attn_logit_softcapping", 0);
    r->logits_cap = (float)number(g, arch, "final_logit_softcapping", 0);
    r->draft_layers = (uint32_t)number(g, arch, "nextn_predict_layers", 0);
    r->layer_count = (uint32_t)number(g, arch, "block_count", 0) - r->draft_layers;
    r->hidden = (uint32_t)number(g, arch, "embedding_length", 0);
    r->ffn = (uint32_t)number(g, arch, "feed_forward_length", 0);
    r->experts = (uint32_t)number(g, arch, "expert_count", 0);
    r->used = (uint32_t)number(g, arch, "expert_used_count", 0);
    r->expert_ffn = (uint32_t)number(g, arch, "expert_feed_forward_length", r->ffn);
    r->shared_ffn = (uint32_t)number(g, arch, "expert_shared_feed_forward_length", 0);
    r->groups = (uint32_t)number(g, arch, "expert_group_count", 1);
    r->groups_used = (uint32_t)number(g, arch, "expert_group_used_count", 1);
    r->sigmoid = number(g, arch, "expert_gating_func", 1) == 2;
    r->normalise = strcmp(arch, "qwen2moe") != 0;
    r->expert_scale = (float)number(g, arch, "expert_weights_scale", 1);
    r->heads = (uint32_t)number(g, arch, "attention.head_count", 0);
    r->kv_heads = (uint32_t)number(g, arch, "attention.head_count_kv", r->heads);
    r->head_dim = (uint32_t)number(g, arch, "attention.key_length", r->hidden / r->heads);
    r->head_dim = (uint32_t)number(g, arch, "attention.key_length_mla", r->head_dim);
    r->rope_dim = (uint32_t)number(g, arch, "rope.dimension_count", r->head_dim);
    r->rank = (uint32_t)number(g, arch, "attention.kv_lora_rank", 0);
    r->q_rank = (uint32_t)number(g, arch, "attention.q_lora_rank", 0);
    r->value = (uint32_t)number(g, arch, "attention.value_length", r->head_dim);
    r->value = (uint32_t)number(g, arch, "attention.value_length_mla", r->value);
    if (r->rank != 0)
        r->kv_heads = r->heads;
    r->epsilon = (float)number(g, arch, "attention.layer_norm_rms_epsilon", 0);
    r->freq_base = number(g, arch, "rope.freq_base", 10000);
    r->freq_scale = 1 / number(g, arch, "rope.scaling.factor", 1);
    r->vocab = (uint32_t)gguf_tensor_find(g, "token_embd.weight")->dims[1];
    r->factors = tensor(g, "rope_freqs.weight", false);
    r->embedding = tensor(g, "token_embd.weight", true);
    r->output = tensor(g, "output.weight", false);
    if (r->output == NULL)
        r->output = r->embedding;
    r->output_norm = tensor(g, "output_norm.weight", true);
    const uint32_t all = r->layer_count + r->draft_layers;
    r->projection = layer_tensor(g, r->layer_count, "nextn.eh_proj.weight", r->draft_layers > 0);
    r->token_norm = layer_tensor(g, r->layer_count, "nextn.enorm.weight", r->draft_layers > 0);
    r->final_norm = layer_tensor(g, r->layer_count, "nextn.hnorm.weight", r->draft_layers > 0);
    r->draft_embedding = layer_tensor(g, r->layer_count, "nextn.embed_tokens.weight", false);
    r->draft_output = layer_tensor(g, r->layer_count, "nextn.shared_head_head.weight", false);
    r->draft_norm = layer_tensor(g, r->layer_count, "nextn.shared_head_norm.weight", false);
    r->layers = take(all * sizeof(*r->layers));
    for (uint32_t i = 0; i < all; i++)
        r->layers[i] = (struct reference_layer){
            .attention_norm = layer_tensor(g, i, "attn_norm.weight", true),
            .q = layer_tensor(g, i, "attn_q.weight", r->q_rank == 0),
            .k = layer_tensor(g, i, "attn_k.weight", r->rank == 0),
            .v = layer_tensor(g, i, "attn_v.weight", r->rank == 0),
            .q_a = layer_tensor(g, i, "attn_q_a.weight", r->q_rank != 0),
            .q_a_norm = layer_tensor(g, i, "attn_q_a_norm.weight", r->q_rank != 0),
            .q_b = layer_tensor(g, i, "attn_q_b.weight", r->q_rank != 0),
            .kv_a = layer_tensor(g, i, "attn_kv_a_mqa.weight", r->rank != 0),
            .kv_a_norm = layer_tensor(g, i, "attn_kv_a_norm.weight", r->rank != 0),
            .kv_b = r->rank != 0 ? latent_tensor(r, g, i) : NULL,
            .q_bias = layer_tensor(g, i, "attn_q.bias", false),
            .k_bias = layer_tensor(g, i, "attn_k.bias", false),
            .v_bias = layer_tensor(g, i, "attn_v.bias", false),
            .o = layer_tensor(g, i, "attn_output.weight", true),
            .ffn_norm = layer_tensor(g, i, "ffn_norm.weight", true),
            .gate = layer_tensor(g, i, "ffn_gate.weight", r->experts == 0),
            .up = layer_tensor(g, i, "ffn_up.weight", r->experts == 0),
            .down = layer_tensor(g, i, "ffn_down.weight", r->experts == 0),
            .router = layer_tensor(g, i, "ffn_gate_inp.weight", false),
            .choice_bias = layer_tensor(g, i, "exp_probs_b.bias", false),
            .expert_gate = layer_tensor(g, i, "ffn_gate_exps.weight", false),
            .expert_up = layer_tensor(g, i, "ffn_up_exps.weight", false),
            .expert_down = layer_tensor(g, i, "ffn_down_exps.weight", false),
            .shared_router = layer_tensor(g, i, "ffn_gate_inp_shexp.weight", false),
            .shared_gate = layer_tensor(g, i, "ffn_gate_shexp.weight", false),
            .shared_up = layer_tensor(g, i, "ffn_up_shexp.weight", false),
            .shared_down = layer_tensor(g, i, "ffn_down_shexp.weight", false),
            .q_norm = layer_tensor(g, i, "attn_q_norm.weight", false),
            .k_norm = layer_tensor(g, i, "attn_k_norm.weight", false),
            .attention_post_norm = layer_tensor(g, i, "post_attention_norm.weight", false),
            .ffn_post_norm = layer_tensor(g, i, "post_ffw_norm.weight", false),
        };
    return r;
}

void reference_close(struct reference *r)
{
    for (uint32_t i = 0; i < r->layer_count + r->draft_layers; i++) {
        struct reference_layer *l = &r->layers[i];
        float *all[] = {l->attention_norm,
                        l->q,
                        l->k,
                        l->v,
                        l->q_bias,
                        l->k_bias,
                        l->v_bias,
                        l->o,
                        l->ffn_norm,
                        l->gate,
                        l->up,
                        l->down,
                        l->router,
                        l->choice_bias,
                        l->expert_gate,
                        l->expert_up,
                        l->expert_down,
                        l->shared_router,
                        l->shared_gate,
                        l->shared_up,
                        l->shared_down,
                        l->q_norm,
                        l->k_norm,
                        l->attention_post_norm,
                        l->ffn_post_norm,
                        l->q_a,
                        l->q_a_norm,
                        l->q_b,
                        l->kv_a,
                        l->kv_a_norm,
                        l->kv_b};
        for (size_t t = 0; t < sizeof(all) / sizeof(all[0]); t++)
            free(all[t]);
    }
    if (r->output != r->embedding)
        free(r->output);
    free(r->projection);
    free(r->token_norm);
    free(r->final_norm);
    free(r->draft_embedding);
    free(r->draft_output);
    free(r->draft_norm);
    free(r->embedding);
    free(r->output_norm);
    free(r->factors);
    free(r->layers);
    free(r);
}

uint32_t reference_vocab(const struct reference *r)
{
    return r->vocab;
}

/* y[i][o] = sum over k of w[o][k] x[i][k]. Four by four sums at once: each value loaded serves
 * four. The file is compiled with -ffast-math so that the compiler may use vectors for the sums. */
static inline __attribute__((always_inline)) void multiply_body(const float *w, uint32_t outs,
                                                                uint32_t width, const float *x,
                                                                uint32_t rows, float *y)
{
    for (uint32_t o = 0; o < outs; o += 4) {
        for (uint32_t i = 0; i < rows; i += 4) {
            const float *a[4];
            const float *b[4];
            for (uint32_t t = 0; t < 4; t++) { /* beyond the end: the last one again */
                a[t] = w + (size_t)(o + t < outs ? o + t : outs - 1) * width;
                b[t] = x + (size_t)(i + t < rows ? i + t : rows - 1) * width;
            }
            const float *a0 = a[0], *a1 = a[1], *a2 = a[2], *a3 = a[3];
            const float *b0 = b[0], *b1 = b[1], *b2 = b[2], *b3 = b[3];
            float s00 = 0, s01 = 0, s02 = 0, s03 = 0, s10 = 0, s11 = 0, s12 = 0, s13 = 0;
            float s20 = 0, s21 = 0, s22 = 0, s23 = 0, s30 = 0, s31 = 0, s32 = 0, s33 = 0;
            for (uint32_t k = 0; k < width; k++) {
                s00 += a0[k] * b0[k], s01 += a1[k] * b0[k], s02 += a2[k] * b0[k],
                    s03 += a3[k] * b0[k];
                s10 += a0[k] * b1[k], s11 += a1[k] * b1[k], s12 += a2[k] * b1[k],
                    s13 += a3[k] * b1[k];
                s20 += a0[k] * b2[k], s21 += a1[k] * b2[k], s22 += a2[k] * b2[k],
                    s23 += a3[k] * b2[k];
                s30 += a0[k] * b3[k], s31 += a1[k] * b3[k], s32 += a2[k] * b3[k],
                    s33 += a3[k] * b3[k];
            }
            const float s[4][4] = {{s00, s01, s02, s03},
                                   {s10, s11, s12, s13},
                                   {s20, s21, s22, s23},
                                   {s30, s31, s32, s33}};
            for (uint32_t t = 0; t < 4 && i + t < rows; t++)
                for (uint32_t u = 0; u < 4 && o + u < outs; u++)
                    y[(size_t)(i + t) * outs + o + u] = s[t][u];
        }
    }
}

#ifdef __x86_64__
__attribute__((target("avx512f,prefer-vector-width=512"))) static void
multiply_avx512(const float *w, uint32_t outs, uint32_t width, const float *x, uint32_t rows,
                float *y)
{
    multiply_body(w, outs, width, x, rows, y);
}

__attribute__((target("avx2,fma"))) static void multiply_avx2(const float *w, uint32_t outs,
                                                              uint32_t width, const float *x,
                                                              uint32_t rows, float *y)
{
    multiply_body(w, outs, width, x, rows, y);
}
#endif

static void multiply(const float *w, uint32_t outs, uint32_t width, const float *x, uint32_t rows,
                     float *y)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512f")) {
        multiply_avx512(w, outs, width, x, rows, y);
        return;
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        multiply_avx2(w, outs, width, x, rows, y);
        return;
    }
#endif
    multiply_body(w, outs, width, x, rows, y);
}

static void add_bias(float *y, const float *bias, uint32_t rows, uint32_t width)
{
    if (bias == NULL)
        return;
    for (uint32_t i = 0; i < rows; i++)
        for (uint32_t j = 0; j < width; j++)
            y[(size_t)i * width + j] += bias[j];
}

/* Nothing without a weight. */
static void norm_rows(const struct reference *r, const float *x, uint32_t rows, uint32_t width,
                      const float *weight, float *y)
{
    for (uint32_t i = 0; i < rows && weight != NULL; i++) {
        const float *from = x + (size_t)i * width;
        float sum = 0;
        for (uint32_t j = 0; j < width; j++)
            sum += from[j] * from[j];
        float scale = 1.0f / sqrtf(sum / (float)width + r->epsilon);
        for (uint32_t j = 0; j < width; j++)
            y[(size_t)i * width + j] = from[j] * scale * weight[j];
    }
}

static void norm(const struct reference *r, const float *x, uint32_t rows, const float *weight,
                 float *y)
{
    norm_rows(r, x, rows, r->hidden, weight, y);
}

static bool is_local(const struct reference *r, uint32_t layer)
{
    return r->full_period != 0 ? (layer + 1) % r->full_period != 0 : r->window != 0;
}

/* Gemma 3 (2025): all layers but each sixth rotate by 10000 and see a window. */
static void rotate(const struct reference *r, uint32_t layer, float *x, uint32_t rows,
                   uint32_t heads)
{
    const bool local = r->local_base != 0 && is_local(r, layer);
    const double base = local ? r->local_base : r->freq_base,
                 position_scale = local ? 1 : r->freq_scale;
    uint32_t half = r->rope_dim / 2;
    for (uint32_t i = 0; i < rows; i++)
        for (uint32_t j = 0; j < half; j++) {
            double frequency = pow(base, -2.0 * j / r->rope_dim);
            if (r->factors != NULL)
                frequency /= (double)r->factors[j];
            double angle = i * position_scale * frequency;
            float cosine = (float)cos(angle), sine = (float)sin(angle);
            uint32_t first = r->neox ? j : 2 * j;
            uint32_t second = r->neox ? j + half : 2 * j + 1;
            for (uint32_t h = 0; h < heads; h++) {
                float *head = x + ((size_t)i * heads + h) * r->head_dim;
                float a = head[first], b = head[second];
                head[first] = a * cosine - b * sine;
                head[second] = a * sine + b * cosine;
            }
        }
}

static float capped(float x, float cap)
{
    return cap != 0 ? cap * tanhf(x / cap) : x;
}

static void attend(const struct reference *r, uint32_t layer, const float *q, const float *k,
                   const float *v, uint32_t rows, float *scores, float *y)
{
    uint32_t dim = r->head_dim;
    uint32_t group = r->heads / r->kv_heads;
    float scale = 1.0f / sqrtf((float)dim);
    for (uint32_t i = 0; i < rows; i++)
        for (uint32_t h = 0; h < r->heads; h++) {
            const float *query = q + ((size_t)i * r->heads + h) * dim;
            float *result = y + ((size_t)i * r->heads + h) * dim;
            float highest = -INFINITY, sum = 0;
            const bool cut = is_local(r, layer) && i >= r->window;
            const uint32_t from = cut ? i + 1 - r->window : 0;
            for (uint32_t t = from; t <= i; t++) {
                const float *key = k + ((size_t)t * r->kv_heads + h / group) * dim;
                float score = 0;
                for (uint32_t j = 0; j < dim; j++)
                    score += query[j] * key[j];
                scores[t] = capped(score * scale, r->attention_cap);
                highest = scores[t] > highest ? scores[t] : highest;
            }
            memset(result, 0, dim * sizeof(float));
            for (uint32_t t = from; t <= i; t++) {
                float weight = expf(scores[t] - highest);
                sum += weight;
                for (uint32_t j = 0; j < dim; j++)
                    result[j] += weight * v[((size_t)t * r->kv_heads + h / group) * dim + j];
            }
            for (uint32_t j = 0; j < dim; j++)
                result[j] /= sum;
        }
}

/* Latent attention (DeepSeek-V2, 2024, section 2.1), not absorbed: k and v of every head are made
 * from the latent vector. In q and k the rotated dimensions are first; v has head_dim values, of
 * which the last are 0. */
static void latent_qkv(const struct reference *r, const struct reference_layer *l, const float *x,
                       uint32_t rows, float *q, float *k, float *v)
{
    const uint32_t dim = r->head_dim, own = r->rope_dim, plain = dim - own, all = r->rank + own;
    const uint32_t each = plain + r->value, width = r->heads * dim;
    float *low = take((size_t)rows * (r->q_rank + 1) * sizeof(float));
    float *query = take((size_t)rows * width * sizeof(float));
    float *kv = take((size_t)rows * all * sizeof(float));
    float *latent = take((size_t)rows * r->rank * sizeof(float));
    float *made = take((size_t)rows * r->heads * each * sizeof(float));
    if (l->q_a != NULL) {
        multiply(l->q_a, r->q_rank, r->hidden, x, rows, low);
        norm_rows(r, low, rows, r->q_rank, l->q_a_norm, low);
        multiply(l->q_b, width, r->q_rank, low, rows, query);
    } else {
        multiply(l->q, width, r->hidden, x, rows, query);
    }
    multiply(l->kv_a, all, r->hidden, x, rows, kv);
    for (uint32_t i = 0; i < rows; i++)
        memcpy(latent + (size_t)i * r->rank, kv + (size_t)i * all, r->rank * sizeof(float));
    norm_rows(r, latent, rows, r->rank, l->kv_a_norm, latent);
    multiply(l->kv_b, r->heads * each, r->rank, latent, rows, made);
    for (uint32_t i = 0; i < rows * r->heads; i++) {
        const float *from = query + (size_t)i * dim, *of_head = made + (size_t)i * each;
        memcpy(q + (size_t)i * dim, from + plain, own * sizeof(float));
        memcpy(q + (size_t)i * dim + own, from, plain * sizeof(float));
        memcpy(k + (size_t)i * dim, kv + (size_t)(i / r->heads) * all + r->rank,
               own * sizeof(float));
        memcpy(k + (size_t)i * dim + own, of_head, plain * sizeof(float));
        memset(v + (size_t)i * dim, 0, dim * sizeof(float));
        memcpy(v + (size_t)i * dim, of_head + plain, r->value * sizeof(float));
    }
    free(low);
    free(query);
    free(kv);
    free(latent);
    free(made);
}

/* Moves the values of each head next to each other. */
static void latent_pack(const struct reference *r, uint32_t rows, float *heads)
{
    for (uint32_t i = 0; i < rows * r->heads; i++)
        memmove(heads + (size_t)i * r->value, heads + (size_t)i * r->head_dim,
                r->value * sizeof(float));
}

struct workspace {
    float *a, *q, *k, *v, *heads, *gate, *up, *added, *scores;
};

static float gated(const struct reference *r, float gate)
{
    if (r->gemma)
        return 0.5f * gate *
               (1.0f + tanhf(0.7978845608f * (gate + 0.044715f * gate * gate * gate)));
    return gate / (1.0f + expf(-gate));
}

/* added (+)= weight * down(gated(gate) * up), of one row. */
static void add_expert(const struct reference *r, const float *gate, const float *up,
                       const float *down, uint32_t ffn, const float *x, float weight, float *added)
{
    float *g = take(ffn * sizeof(float)), *u = take(ffn * sizeof(float));
    float *result = take(r->hidden * sizeof(float));
    multiply(gate, ffn, r->hidden, x, 1, g);
    multiply(up, ffn, r->hidden, x, 1, u);
    for (uint32_t i = 0; i < ffn; i++)
        g[i] = gated(r, g[i]) * u[i];
    multiply(down, r->hidden, ffn, g, 1, result);
    for (uint32_t i = 0; i < r->hidden; i++)
        added[i] += weight * result[i];
    free(g);
    free(u);
    free(result);
}

static float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

/* The rank of a number among others: how many are greater, or equal and before it. */
static uint32_t rank_of(const float *values, uint32_t count, uint32_t i)
{
    uint32_t rank = 0;
    for (uint32_t k = 0; k < count; k++)
        rank += values[k] > values[i] || (values[k] == values[i] && k < i);
    return rank;
}

/* Writes the weight of each expert for a row; 0: not chosen. Groups as in DeepSeek-V2 (2024),
 * section 2.2.2, with the best expert, and in DeepSeek-V3 with the two best. */
static void route(const struct reference *r, const struct reference_layer *l, const float *x,
                  float *weights)
{
    const uint32_t size = r->experts / r->groups;
    float *scores = take(r->experts * sizeof(float)), *groups = take(r->groups * sizeof(float));
    float sum = 0, chosen = 0;
    multiply(l->router, r->experts, r->hidden, x, 1, weights);
    for (uint32_t i = 0; i < r->experts; i++) {
        weights[i] = r->sigmoid ? sigmoid(weights[i]) : expf(weights[i]);
        sum += weights[i];
        scores[i] = weights[i] + (l->choice_bias != NULL ? l->choice_bias[i] : 0);
    }
    for (uint32_t i = 0; i < r->experts; i++)
        if (rank_of(scores + i / size * size, size, i % size) < (r->sigmoid ? 2u : 1u))
            groups[i / size] += scores[i];
    for (uint32_t i = 0; i < r->experts; i++)
        if (rank_of(groups, r->groups, i / size) >= r->groups_used)
            scores[i] = -1e30f;
    for (uint32_t i = 0; i < r->experts; i++) {
        weights[i] = rank_of(scores, r->experts, i) < r->used ? weights[i] : 0;
        chosen += weights[i];
    }
    for (uint32_t i = 0; i < r->experts; i++)
        weights[i] *= r->expert_scale / (r->normalise ? chosen : r->sigmoid ? 1 : sum);
    free(scores);
    free(groups);
}

/* w->added = the experts of the rows in w->a. */
static void run_experts(const struct reference *r, const struct reference_layer *l,
                        struct workspace *w, uint32_t rows)
{
    const size_t each = (size_t)r->expert_ffn * r->hidden;
    float *weights = take(r->experts * sizeof(float)), gate;
    memset(w->added, 0, (size_t)rows * r->hidden * sizeof(float));
    for (uint32_t row = 0; row < rows; row++) {
        const float *x = w->a + (size_t)row * r->hidden;
        float *added = w->added + (size_t)row * r->hidden;
        route(r, l, x, weights);
        for (uint32_t e = 0; e < r->experts; e++)
            if (weights[e] != 0)
                add_expert(r, l->expert_gate + e * each, l->expert_up + e * each,
                           l->expert_down + e * each, r->expert_ffn, x, weights[e], added);
        if (r->shared_ffn == 0)
            continue;
        gate = 1;
        if (l->shared_router != NULL) {
            multiply(l->shared_router, 1, r->hidden, x, 1, &gate);
            gate = sigmoid(gate);
        }
        add_expert(r, l->shared_gate, l->shared_up, l->shared_down, r->shared_ffn, x, gate, added);
    }
    free(weights);
}

static void run_ffn(const struct reference *r, const struct reference_layer *l, struct workspace *w,
                    uint32_t rows)
{
    multiply(l->gate, r->ffn, r->hidden, w->a, rows, w->gate);
    multiply(l->up, r->ffn, r->hidden, w->a, rows, w->up);
    for (size_t i = 0; i < (size_t)rows * r->ffn; i++)
        w->gate[i] = gated(r, w->gate[i]) * w->up[i];
    multiply(l->down, r->hidden, r->ffn, w->gate, rows, w->added);
}

static void run_layer(const struct reference *r, uint32_t layer, struct workspace *w, float *x,
                      uint32_t rows)
{
    const struct reference_layer *l = &r->layers[layer];
    uint32_t q_width = r->heads * r->head_dim, kv_width = r->kv_heads * r->head_dim;
    norm(r, x, rows, l->attention_norm, w->a);
    if (r->rank != 0) {
        latent_qkv(r, l, w->a, rows, w->q, w->k, w->v);
    } else {
        multiply(l->q, q_width, r->hidden, w->a, rows, w->q);
        multiply(l->k, kv_width, r->hidden, w->a, rows, w->k);
        multiply(l->v, kv_width, r->hidden, w->a, rows, w->v);
    }
    add_bias(w->q, l->q_bias, rows, q_width);
    add_bias(w->k, l->k_bias, rows, kv_width);
    add_bias(w->v, l->v_bias, rows, kv_width);
    norm_rows(r, w->q, rows * r->heads, r->head_dim, l->q_norm, w->q);
    norm_rows(r, w->k, rows * r->kv_heads, r->head_dim, l->k_norm, w->k);
    rotate(r, layer, w->q, rows, r->heads);
    rotate(r, layer, w->k, rows, r->kv_heads);
    attend(r, layer, w->q, w->k, w->v, rows, w->scores, w->heads);
    if (r->rank != 0)
        latent_pack(r, rows, w->heads);
    multiply(l->o, r->hidden, r->heads * r->value, w->heads, rows, w->added);
    norm(r, w->added, rows, l->attention_post_norm, w->added);
    for (size_t i = 0; i < (size_t)rows * r->hidden; i++)
        x[i] += w->added[i];
    norm(r, x, rows, l->ffn_norm, w->a);
    (l->router != NULL ? run_experts : run_ffn)(r, l, w, rows);
    norm(r, w->added, rows, l->ffn_post_norm, w->added);
    for (size_t i = 0; i < (size_t)rows * r->hidden; i++)
        x[i] += w->added[i];
}

/* Runs `rows` rows of x through the layers [first, end). */
static void run_layers(const struct reference *r, uint32_t first, uint32_t end, float *x,
                       uint32_t rows)
{
    const size_t q_floats = (size_t)rows * r->heads * r->head_dim;
    const size_t kv_floats = (size_t)rows * r->kv_heads * r->head_dim;
    const size_t hidden_floats = (size_t)rows * r->hidden, ffn_floats = (size_t)rows * r->ffn;
    struct workspace w = {
        .a = take(hidden_floats * sizeof(float)),
        .q = take(q_floats * sizeof(float)),
        .k = take(kv_floats * sizeof(float)),
        .v = take(kv_floats * sizeof(float)),
        .heads = take(q_floats * sizeof(float)),
        .gate = take(ffn_floats * sizeof(float)),
        .up = take(ffn_floats * sizeof(float)),
        .added = take(hidden_floats * sizeof(float)),
        .scores = take(rows * sizeof(float)),
    };
    for (uint32_t i = first; i < end; i++)
        run_layer(r, i, &w, x, rows);
    float *all[] = {w.a, w.q, w.k, w.v, w.heads, w.gate, w.up, w.added, w.scores};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        free(all[i]);
}

static void embed(const struct reference *r, const float *embedding, const uint32_t *ids,
                  uint32_t count, float *x)
{
    const size_t floats = (size_t)count * r->hidden;
    for (uint32_t i = 0; i < count; i++)
        memcpy(x + (size_t)i * r->hidden, embedding + (size_t)ids[i] * r->hidden,
               r->hidden * sizeof(float));
    for (size_t i = 0; r->gemma && i < floats; i++)
        x[i] *= sqrtf((float)r->hidden);
}

void reference_finals(const struct reference *r, const uint32_t *ids, uint32_t count, float *out)
{
    embed(r, r->embedding, ids, count, out);
    run_layers(r, 0, r->layer_count, out, count);
    norm(r, out, count, r->output_norm, out);
}

void reference_run(const struct reference *r, const uint32_t *ids, uint32_t count, uint32_t first,
                   float *logits_out)
{
    float *x = take((size_t)count * r->hidden * sizeof(float));
    reference_finals(r, ids, count, x);
    multiply(r->output, r->vocab, r->hidden, x + (size_t)first * r->hidden, count - first,
             logits_out);
    for (size_t i = 0; i < (size_t)(count - first) * r->vocab; i++)
        logits_out[i] = capped(logits_out[i], r->logits_cap);
    free(x);
}

/* DeepSeek-V3 (2024), section 2.2, formulas 21 to 23; the final vectors are those after the model's
 * last norm. */
void reference_draft_run(const struct reference *r, const uint32_t *ids, const float *finals,
                         uint32_t count, float *logits_out, float *finals_out)
{
    const uint32_t hidden = r->hidden;
    float *x = take((size_t)count * hidden * sizeof(float));
    float *joined = take((size_t)count * 2 * hidden * sizeof(float));
    embed(r, r->draft_embedding != NULL ? r->draft_embedding : r->embedding, ids, count, x);
    for (uint32_t i = 0; i < count; i++) {
        float *row = joined + (size_t)i * 2 * hidden;
        norm(r, x + (size_t)i * hidden, 1, r->token_norm, row);
        norm(r, finals + (size_t)i * hidden, 1, r->final_norm, row + hidden);
    }
    multiply(r->projection, hidden, 2 * hidden, joined, count, x);
    run_layers(r, r->layer_count, r->layer_count + 1, x, count);
    norm(r, x, count, r->draft_norm != NULL ? r->draft_norm : r->output_norm, finals_out);
    multiply(r->draft_output != NULL ? r->draft_output : r->output, r->vocab, hidden, finals_out,
             count, logits_out);
    free(x);
    free(joined);
}

double reference_distance(const float *a, const float *reference, size_t count)
{
    double difference = 0, size = 0;
    for (size_t i = 0; i < count; i++) {
        difference += pow((double)a[i] - (double)reference[i], 2);
        size += pow((double)reference[i], 2);
    }
    return sqrt(difference / size);
}
