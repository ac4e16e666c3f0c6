/* Goal: a file that the engine cannot run gives one clear error that names tensor or key with the
 * value found and the one wanted, and nothing leaks (checked by the sanitizer build). Method: small
 * models, each with one mistake; status and words of the text are checked. Then the same for
 * stages. */
#include "tests/check.h"
#include "tests/model/forward/synthetic.h"

#include "model/forward/model.h"

#include <math.h>
#include <string.h>

struct bad {
    const char *what;
    struct synthetic changes; /* only the fields "for bad files" and those below that are not 0 */
    enum status status;
    const char *words[4]; /* all must be in the text */
};

static const struct bad table[] = {
    {"no architecture",
     {.key_left_out = "general.architecture"},
     ST_INVALID,
     {"general.architecture"}},
    {"unknown architecture",
     {.key_changed = "general.architecture", .changed_text = "mamba"},
     ST_UNSUPPORTED,
     {"mamba", "llama", "qwen2"}},
    {"no layer count",
     {.key_left_out = "llama.block_count"},
     ST_INVALID,
     {"llama.block_count", "missing"}},
    {"zero layers",
     {.key_changed = "llama.block_count", .changed_to = 0},
     ST_INVALID,
     {"llama.block_count is 0", "1 to 256"}},
    {"a million layers",
     {.key_changed = "llama.block_count", .changed_to = 1000000},
     ST_INVALID,
     {"llama.block_count is 1000000", "1 to 256"}},
    {"more layers than tensors",
     {.key_changed = "llama.block_count", .changed_to = 3},
     ST_INVALID,
     {"blk.2.attn_norm.weight", "missing"}},
    {"fewer layers than tensors",
     {.key_changed = "llama.block_count", .changed_to = 1},
     ST_UNSUPPORTED,
     {"blk.1.", "1 layers"}},
    {"zero heads",
     {.key_changed = "llama.attention.head_count", .changed_to = 0},
     ST_INVALID,
     {"llama.attention.head_count is 0"}},
    {"heads not a multiple",
     {.key_changed = "llama.attention.head_count_kv", .changed_to = 3},
     ST_INVALID,
     {"head_count is 4", "multiple", "3"}},
    {"more KV heads than heads",
     {.key_changed = "llama.attention.head_count_kv", .changed_to = 8},
     ST_INVALID,
     {"head_count_kv is 8", "1 to 4"}},
    {"zero hidden",
     {.key_changed = "llama.embedding_length", .changed_to = 0},
     ST_INVALID,
     {"embedding_length is 0"}},
    {"hidden of 4 G",
     {.key_changed = "llama.embedding_length", .changed_to = UINT32_MAX},
     ST_INVALID,
     {"embedding_length is 4294967295"}},
    {"another hidden than the embedding's",
     {.key_changed = "llama.embedding_length", .changed_to = 128},
     ST_INVALID,
     {"token_embd.weight", "64 x 160", "128"}},
    {"hidden not divisible",
     {.key_changed = "llama.embedding_length", .changed_to = 66},
     ST_INVALID,
     {"embedding_length is 66", "multiple"}},
    {"an odd head",
     {.head_dim = 16, .key_changed = "llama.attention.key_length", .changed_to = 15},
     ST_INVALID,
     {"15", "even"}},
    {"a head too long",
     {.head_dim = 16, .key_changed = "llama.attention.key_length", .changed_to = 100000},
     ST_INVALID,
     {"key_length is 100000"}},
    {"values of another length",
     {.head_dim = 16, .key_changed = "llama.attention.value_length", .changed_to = 32},
     ST_UNSUPPORTED,
     {"value_length is 32", "16"}},
    {"zero context",
     {.key_changed = "llama.context_length", .changed_to = 0},
     ST_INVALID,
     {"context_length is 0"}},
    {"no epsilon",
     {.key_left_out = "llama.attention.layer_norm_rms_epsilon"},
     ST_INVALID,
     {"layer_norm_rms_epsilon", "missing"}},
    {"epsilon not a number",
     {.key_changed = "llama.attention.layer_norm_rms_epsilon", .changed_float = NAN},
     ST_INVALID,
     {"layer_norm_rms_epsilon is nan"}},
    {"a negative RoPE base",
     {.key_changed = "llama.rope.freq_base", .changed_float = -1.0f},
     ST_INVALID,
     {"rope.freq_base is -1"}},
    {"another RoPE",
     {.rope_factor = 4.0f, .key_changed = "llama.rope.scaling.type", .changed_text = "mrope"},
     ST_UNSUPPORTED,
     {"rope.scaling.type", "mrope", "linear"}},
    {"a negative RoPE factor", {.rope_factor = -2.0f}, ST_INVALID, {"rope.scaling", "-2"}},
    {"more rotated than there is",
     {.rope_dim = 16, .key_changed = "llama.rope.dimension_count", .changed_to = 18},
     ST_INVALID,
     {"dimension_count is 18", "2 to 16"}},
    {"experts without their number in a row",
     {.key_changed = "llama.expert_count", .changed_to = 8},
     ST_INVALID,
     {"llama.expert_used_count is missing"}},
    {"experts of a family that has none",
     {.architecture = "qwen3", .key_changed = "qwen3.expert_count", .changed_to = 8},
     ST_UNSUPPORTED,
     {"expert_count is 8", "qwen3"}},
    {"a million experts",
     {.experts = 4, .key_changed = "llama.expert_count", .changed_to = 1000000},
     ST_INVALID,
     {"expert_count is 1000000", "1024"}},
    {"more experts in a row than there are",
     {.experts = 4, .key_changed = "llama.expert_used_count", .changed_to = 5},
     ST_INVALID,
     {"expert_used_count is 5", "1 to 4"}},
    {"experts of zero rows",
     {.experts = 4, .key_changed = "llama.expert_feed_forward_length", .changed_to = 0},
     ST_INVALID,
     {"expert_feed_forward_length is 0"}},
    {"fewer experts in the file",
     {.experts = 4, .key_changed = "llama.expert_count", .changed_to = 8},
     ST_INVALID,
     {"blk.0.ffn_gate_inp.weight", "64 x 4", "64 x 8"}},
    {"a stack of another height",
     {.experts = 4, .reshape = "blk.1.ffn_down_exps.weight"},
     ST_INVALID,
     {"blk.1.ffn_down_exps.weight", "32 x 64 x 5", "32 x 64 x 4"}},
    {"no stack",
     {.experts = 4, .leave_out = "blk.1.ffn_up_exps.weight"},
     ST_INVALID,
     {"layer 1: expert 0 of 4", "blk.1.ffn_up.0.weight"}},
    {"unequal groups of experts",
     {.experts = 4, .expert_groups = 3, .expert_groups_used = 2},
     ST_INVALID,
     {"expert_group_count is 3", "equal groups"}},
    {"an unknown gating function",
     {.experts = 4, .sigmoid = true, .key_changed = "llama.expert_gating_func", .changed_to = 9},
     ST_INVALID,
     {"expert_gating_func is 9"}},
    {"no embedding",
     {.leave_out = "token_embd.weight"},
     ST_INVALID,
     {"token_embd.weight", "missing"}},
    {"no final norm",
     {.leave_out = "output_norm.weight"},
     ST_INVALID,
     {"output_norm.weight", "missing"}},
    {"no gate in layer 1",
     {.leave_out = "blk.1.ffn_gate.weight"},
     ST_INVALID,
     {"blk.1.ffn_gate.weight", "missing"}},
    {"a q of another shape",
     {.reshape = "blk.0.attn_q.weight"},
     ST_INVALID,
     {"blk.0.attn_q.weight", "64 x 65", "64 x 64"}},
    {"a norm of another length",
     {.reshape = "blk.1.ffn_norm.weight"},
     ST_INVALID,
     {"blk.1.ffn_norm.weight", "65", "64"}},
    {"a norm of quantised type",
     {.retype = "blk.0.attn_norm.weight"},
     ST_UNSUPPORTED,
     {"blk.0.attn_norm.weight", "Q8_0", "F32"}},
    {"qwen2 without biases",
     {.architecture = "qwen2"},
     ST_INVALID,
     {"blk.0.attn_q.bias", "missing"}},
    {"qwen2 with q, k and v in one tensor, without biases",
     {.architecture = "qwen2", .joined = true},
     ST_INVALID,
     {"blk.0.attn_qkv.bias", "missing"}},
    {"an unknown tensor",
     {.extra = "blk.0.attn_q_norm.weight"},
     ST_UNSUPPORTED,
     {"blk.0.attn_q_norm.weight", "llama"}},
    {"a bias beside gate and up in one tensor",
     {.joined = true, .extra = "blk.0.ffn_up.bias"},
     ST_UNSUPPORTED,
     {"blk.0.ffn_up.bias", "joined"}},
    {"a bias of gate beside gate and up in one tensor",
     {.joined = true, .extra = "blk.1.ffn_gate.bias"},
     ST_UNSUPPORTED,
     {"blk.1.ffn_gate.bias", "joined"}},
    {"a bias of q beside q, k and v in one tensor",
     {.joined = true, .extra = "blk.1.attn_q.bias"},
     ST_UNSUPPORTED,
     {"blk.1.attn_q.bias", "joined"}},
    {"q beside q, k and v in one tensor",
     {.joined = true, .extra = "blk.1.attn_q.weight"},
     ST_UNSUPPORTED,
     {"blk.1.attn_q.weight"}},
    {"a bias of q, k and v together, which are apart",
     {.extra = "blk.0.attn_qkv.bias"},
     ST_UNSUPPORTED,
     {"blk.0.attn_qkv.bias"}},
    {"a bias of k with latent attention",
     {.architecture = "deepseek2",
      .head_dim = 40,
      .rope_dim = 8,
      .latent_rank = 64,
      .latent_value = 32,
      .extra = "blk.0.attn_k.bias"},
     ST_UNSUPPORTED,
     {"blk.0.attn_k.bias"}},
    {"a compressed q that the keys do not have",
     {.architecture = "deepseek2",
      .head_dim = 40,
      .rope_dim = 8,
      .latent_rank = 64,
      .latent_value = 32,
      .extra = "blk.0.attn_q_a.weight"},
     ST_UNSUPPORTED,
     {"blk.0.attn_q_a.weight"}},
    {"a feed-forward beside experts",
     {.architecture = "qwen3moe", .experts = 8, .extra = "blk.1.ffn_up.weight"},
     ST_UNSUPPORTED,
     {"blk.1.ffn_up.weight"}},
    {"shared experts that the keys do not have",
     {.architecture = "qwen3moe", .experts = 8, .extra = "blk.1.ffn_up_shexp.weight"},
     ST_UNSUPPORTED,
     {"blk.1.ffn_up_shexp.weight"}},
    {"experts in a layer without a router",
     {.architecture = "qwen3moe", .experts = 8, .leave_out = "blk.1.ffn_gate_inp.weight"},
     ST_UNSUPPORTED,
     {"blk.1.ffn_gate_exps.weight"}},
    {"an unknown tensor outside the layers", {.extra = "mtp.head"}, ST_UNSUPPORTED, {"mtp.head"}},
    {"RoPE factors of another length",
     {.rope_factors = true, .reshape = "rope_freqs.weight"},
     ST_INVALID,
     {"rope_freqs.weight", "9", "8"}},
};

static struct synthetic apply(const struct synthetic *changes)
{
    struct synthetic s = synthetic_default();
    if (changes->architecture != NULL)
        s.architecture = changes->architecture;
    s.experts = changes->experts;
    s.experts_used = 2;
    s.expert_ffn = 32;
    s.sigmoid = changes->sigmoid;
    s.expert_groups = changes->expert_groups;
    s.expert_groups_used = changes->expert_groups_used;
    s.head_dim = changes->head_dim;
    s.rope_dim = changes->rope_dim;
    s.rope_factor = changes->rope_factor;
    s.rope_factors = changes->rope_factors;
    s.joined = changes->joined;
    s.latent_rank = changes->latent_rank;
    s.latent_value = changes->latent_value;
    s.leave_out = changes->leave_out;
    s.reshape = changes->reshape;
    s.retype = changes->retype;
    s.extra = changes->extra;
    s.key_left_out = changes->key_left_out;
    s.key_changed = changes->key_changed;
    s.changed_to = changes->changed_to;
    s.changed_float = changes->changed_float;
    s.changed_text = changes->changed_text;
    return s;
}

static enum status try_open(struct compute *c, const struct synthetic *s, uint32_t first,
                            uint32_t last, struct model **out, struct error *error)
{
    const struct model_options options = {
        .ops = &compute_cpu, .compute = c, .first_layer = first, .end_layer = last};
    uint8_t *image;
    struct model_file *g = synthetic_open(s, "bad", &image);
    enum status status = model_open(g, &options, out, error);
    model_file_close(g);
    free(image); /* the model must not need it any more */
    return status;
}

static void check_bad(struct compute *c, const struct bad *bad)
{
    struct synthetic s = apply(&bad->changes);
    struct model *m = NULL;
    struct error error = {0};
    enum status status = try_open(c, &s, 0, 0, &m, &error);
    printf("%s: %s\n", bad->what, error.text);
    CHECKF(status == bad->status, "%s: status %s, want %s", bad->what, status_name(status),
           status_name(bad->status));
    CHECKF(m == NULL, "%s: written in spite of the failure", bad->what);
    for (size_t i = 0; i < 4 && bad->words[i] != NULL; i++)
        CHECKF(strstr(error.text, bad->words[i]) != NULL, "%s: \"%s\" is not in the error",
               bad->what, bad->words[i]);
}

/* Tensors that are joined load, without the biases that the table has. */
static void check_joined(struct compute *c)
{
    struct synthetic s = synthetic_default();
    struct model *m = NULL;
    struct error error = {0};
    s.joined = true;
    CHECKF(try_open(c, &s, 0, 0, &m, &error) == ST_OK, "%s", error.text);
    model_close(m);
}

static void check_stages(struct compute *c)
{
    struct synthetic s = synthetic_default();
    struct model *whole = NULL, *first = NULL, *second = NULL, *none = NULL;
    struct forward *f = NULL;
    struct error error = {0};
    s.layers = 3;
    CHECKF(try_open(c, &s, 0, 0, &whole, &error) == ST_OK, "%s", error.text);
    CHECKF(try_open(c, &s, 0, 2, &first, &error) == ST_OK, "%s", error.text);
    CHECKF(try_open(c, &s, 2, 3, &second, &error) == ST_OK, "%s", error.text);
    CHECK(model_weight_bytes(first) < model_weight_bytes(whole));
    CHECK(model_weight_bytes(second) < model_weight_bytes(first));
    CHECKF(forward_open(first, 8, 8, &f, &error) == ST_OK, "%s", error.text);
    forward_close(f);
    f = NULL;
    CHECK(forward_open(whole, 0, 8, &f, &error) == ST_INVALID && f == NULL);
    CHECK(try_open(c, &s, 2, 2, &none, &error) == ST_INVALID && none == NULL);
    CHECK(try_open(c, &s, 1, 4, &none, &error) == ST_INVALID && none == NULL);
    CHECK(strstr(error.text, "layers 1 to 3") != NULL);
    model_close(whole);
    model_close(first);
    model_close(second);
    model_close(NULL);
    forward_close(NULL);
}

int main(void)
{
    const struct compute_options options = {.threads = 1};
    struct compute *c;
    struct error error = {0};
    CHECKF(compute_cpu.open(&options, &c, &error) == ST_OK, "%s", error.text);
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        check_bad(c, &table[i]);
    check_joined(c);
    check_stages(c);
    compute_cpu.close(c);
    return 0;
}
