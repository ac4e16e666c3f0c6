/* Goal: the forward pass is right for shapes and types that the default model does not have: both
 * architectures, biases, separate and tied vocabulary, odd head counts, an explicit head length,
 * partial and scaled RoPE, every weight type. Method: random models; the engine in exact mode
 * equals the plain fp32 reference, and the engine as shipped is near it. The seeds are fixed,
 * because the tolerances were chosen for them. */
#include "tests/check.h"
#include "tests/model/file/file_gguf.h"
#include "tests/model/forward/engine.h"
#include "tests/model/forward/reference.h"
#include "tests/model/forward/synthetic.h"

#include <math.h>

#define TOKENS 45

static double run(const struct model_file *g, bool exact, const uint32_t *ids, const float *wanted)
{
    const struct engine_options options = engine_options_small(exact);
    struct engine e;
    engine_open(g, &options, &e);
    const float *logits = engine_run(&e, ids, TOKENS, 0, 0);
    double result = reference_distance(logits, wanted, (size_t)TOKENS * e.hyper->vocab);
    engine_close(&e);
    return result;
}

static void check_model(const char *what, const struct synthetic *s)
{
    uint32_t ids[TOKENS];
    uint8_t *image;
    struct model_file *g = synthetic_open(s, what, &image);
    synthetic_tokens(s, TOKENS, ids);
    struct reference *r = reference_open(file_gguf(g));
    float *wanted = malloc((size_t)TOKENS * s->vocab * sizeof(float));
    CHECK(wanted != NULL);
    reference_run(r, ids, TOKENS, 0, wanted);
    double exact = run(g, true, ids, wanted);
    double shipped = run(g, false, ids, wanted);
    printf("%-28s exact %.2e, as shipped %.2e of the logits' size\n", what, exact, shipped);
    CHECK(exact < 1e-5);
    CHECK(shipped < 0.05);
    free(wanted);
    reference_close(r);
    model_file_close(g);
    free(image);
}

static void check_types(void)
{
    for (int type = 0; type < COMPUTE_GGUF_COUNT; type++) {
        struct synthetic s = synthetic_default();
        char what[64];
        s.hidden = 256;
        s.ffn = 512;
        s.type = s.v_type = s.end_type = (enum compute_type)type;
        s.seed = 100 + (uint64_t)type;
        snprintf(what, sizeof(what), "type %s", compute_type_name(s.type));
        check_model(what, &s);
        s.tied = false;
        s.v_type = (enum compute_type)((type + 3) % COMPUTE_GGUF_COUNT);
        s.end_type = (enum compute_type)((type + 5) % COMPUTE_GGUF_COUNT);
        snprintf(what, sizeof(what), "%s with %s and %s", compute_type_name(s.type),
                 compute_type_name(s.v_type), compute_type_name(s.end_type));
        check_model(what, &s);
    }
}

/* The mixtures that quantising programs write: K-quants with a wider type for values, the second
 * feed-forward matrix and the vocabulary; and what they fall back to where rows are no multiple of
 * 256. */
static void check_mixtures(void)
{
    static const struct {
        const char *name;
        enum compute_type type, v_type, end_type;
        uint32_t hidden;
    } mixtures[] = {
        {"Q4_K_M", COMPUTE_Q4_K, COMPUTE_Q6_K, COMPUTE_Q6_K, 256},
        {"Q5_K_M", COMPUTE_Q5_K, COMPUTE_Q6_K, COMPUTE_Q8_0, 256},
        {"Q4_K_M, rows of 160", COMPUTE_Q5_0, COMPUTE_Q8_0, COMPUTE_Q8_0, 160},
        {"Q4_K_S, rows of 160", COMPUTE_Q5_0, COMPUTE_Q5_1, COMPUTE_Q8_0, 160},
        {"BF16, F32 vocabulary", COMPUTE_BF16, COMPUTE_BF16, COMPUTE_F32, 256},
    };
    for (size_t i = 0; i < sizeof(mixtures) / sizeof(mixtures[0]); i++) {
        struct synthetic s = synthetic_default();
        s.hidden = mixtures[i].hidden;
        s.ffn = 2 * s.hidden;
        s.type = mixtures[i].type;
        s.v_type = mixtures[i].v_type;
        s.end_type = mixtures[i].end_type;
        s.seed = 200 + i;
        check_model(mixtures[i].name, &s);
    }
}

/* Experts: all kinds of routing, and matrices of each kind of form. */
static void check_experts(void)
{
    struct synthetic s = synthetic_default();
    s.experts = 8;
    s.experts_used = 2;
    s.expert_ffn = 96;
    check_model("llama with experts", &s);
    s.architecture = "qwen3moe";
    s.experts = 16;
    s.experts_used = 5;
    s.expert_ffn = 64;
    s.type = COMPUTE_Q8_0;
    s.v_type = COMPUTE_F16;
    check_model("qwen3moe, Q8_0 and F16", &s);
    s.experts_used = 16;
    s.expert_ffn = 40; /* no multiple of a group of rows */
    s.type = COMPUTE_BF16;
    check_model("qwen3moe, all experts, BF16", &s);
    s.architecture = "qwen2moe";
    s.biases = true;
    s.experts_used = 3;
    s.shared_ffn = 128;
    s.dense_layers = 1;
    s.type = s.v_type = COMPUTE_F32;
    check_model("qwen2moe, a dense layer", &s);
    s.architecture = "qwen3moe";
    s.biases = false;
    s.expert_groups = 4;
    s.expert_groups_used = 2;
    check_model("groups of experts", &s);
    s.sigmoid = true;
    check_model("sigmoid routing in groups", &s);
}

int main(void)
{
    struct synthetic s = synthetic_default();
    check_model("llama, tied", &s);
    s.tied = false;
    s.biases = true;
    check_model("llama, biases, own output", &s);
    s = synthetic_default();
    s.vector_type = COMPUTE_F16;
    check_model("F16 norms", &s);
    s.vector_type = COMPUTE_BF16;
    check_model("BF16 norms", &s);
    s = synthetic_default();
    s.architecture = "qwen2";
    s.biases = true;
    check_model("qwen2", &s);
    s.type = COMPUTE_Q8_0;
    s.tied = false;
    check_model("qwen2 Q8_0, own output", &s);
    s = synthetic_default();
    s.architecture = "qwen3";
    s.head_dim = 32;
    check_model("qwen3", &s);
    s.architecture = "gemma3";
    s.layers = 7;
    check_model("gemma3", &s);
    s.window = 20;
    check_model("gemma3, a window", &s);
    s.rope_factor = 8.0f;
    s.type = COMPUTE_Q8_0;
    check_model("gemma3 Q8_0, RoPE scaling", &s);
    s = synthetic_default();
    s.architecture = "gemma2";
    s.window = 17;
    s.attention_cap = 3;
    s.logits_cap = 5;
    check_model("gemma2, a window and caps", &s);
    s = synthetic_latent();
    check_model("deepseek2, latent attention", &s);
    s.latent_apart = true;
    check_model("deepseek2, k and v apart", &s);
    s.latent_apart = false;
    s.heads = 16;
    s.latent_q_rank = 96;
    s.type = COMPUTE_Q8_0;
    check_model("deepseek2, latent queries, Q8_0", &s);
    s = synthetic_default();
    s.window = 9;
    check_model("llama, a window in all layers", &s);
    s = synthetic_default();
    s.hidden = 96;
    s.heads = 3;
    s.kv_heads = 1;
    check_model("3 heads over 1", &s);
    s.heads = 5;
    s.kv_heads = 5;
    s.head_dim = 64;
    check_model("5 heads of 64, hidden 96", &s);
    s.heads = 9;
    s.kv_heads = 3;
    s.rope_dim = 32;
    check_model("half of a head rotated", &s);
    s.architecture = "qwen2";
    s.biases = true;
    check_model("the same, neox", &s);
    s = synthetic_default();
    s.rope_factor = 4.0f;
    check_model("linear RoPE scaling", &s);
    s.rope_factors = true;
    check_model("RoPE factors", &s);
    s = synthetic_default();
    s.hidden = 256;
    s.heads = 2;
    s.kv_heads = 2;
    check_model("heads of 128", &s);
    s.heads = 32;
    s.kv_heads = 4;
    s.head_dim = 80;
    check_model("32 heads of 80", &s);
    check_experts();
    check_types();
    check_mixtures();
    return 0;
}
