/* Goal: a folder that the engine cannot run gives one clear error that names file, key or tensor
 * with the value found, and nothing leaks (checked by the sanitizer build). Method: a small model's
 * files in memory, each time with one mistake; status and words of the text are checked. Also the
 * small model's tokenizer itself. */
#include "tests/check.h"
#include "tests/model/file/folder_parts.h"

#include "model/file/keys.h"
#include "model/forward/model.h"
#include "model/text/chat.h"
#include "model/text/tokenizer.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ONE "model.safetensors"
#define TWO "model-00002-of-00002.safetensors"
#define Q   "model.layers.0.self_attn.q_proj.weight"

struct bad {
    const char *what;
    const char *file;
    const char *find; /* NULL: the file is not there */
    const char *put;
    enum status status;
    const char *words[3]; /* all must be in the text */
    bool sharded;
};

static const struct bad table[] = {
    /* config.json */
    {"no config", "config.json", NULL, NULL, ST_INVALID, {"config.json"}, false},
    {"config is no JSON", "config.json", "{", "(", ST_INVALID, {"config.json:1"}, false},
    {"a key twice",
     "config.json",
     "\"vocab_size\"",
     "\"head_dim\"",
     ST_INVALID,
     {"config.json", "head_dim"},
     false},
    {"unknown family",
     "config.json",
     "llama",
     "mamba",
     ST_UNSUPPORTED,
     {"config.json/model_type", "mamba", "qwen3"},
     false},
    {"no family",
     "config.json",
     "model_type",
     "x",
     ST_INVALID,
     {"config.json/model_type is missing"},
     false},
    {"no layers",
     "config.json",
     "num_hidden_layers",
     "x",
     ST_INVALID,
     {"config.json/num_hidden_layers is missing"},
     false},
    {"layers as text",
     "config.json",
     "layers\": 1",
     "layers\": \"1\"",
     ST_INVALID,
     {"config.json: num_hidden_layers is a string"},
     false},
    {"half a layer",
     "config.json",
     "layers\": 1",
     "layers\": 0.5",
     ST_INVALID,
     {"num_hidden_layers is 0.5"},
     false},
    {"negative layers",
     "config.json",
     "layers\": 1",
     "layers\": -1",
     ST_INVALID,
     {"num_hidden_layers is -1"},
     false},
    {"a layer too many",
     "config.json",
     "layers\": 1",
     "layers\": 2",
     ST_INVALID,
     {"model.layers.1.input_layernorm.weight is missing"},
     false},
    {"heads no multiple",
     "config.json",
     "value_heads\": 1",
     "value_heads\": 3",
     ST_INVALID,
     {"config.json/num_key_value_heads is 3", "1 to 2"},
     false},
    {"another vocabulary",
     "config.json",
     "vocab_size\": 8",
     "vocab_size\": 9",
     ST_INVALID,
     {"config.json/vocab_size is 9", "8"},
     false},
    {"another activation",
     "config.json",
     "silu",
     "relu",
     ST_UNSUPPORTED,
     {"config.json/hidden_act", "relu", "silu"},
     false},
    {"quantised",
     "config.json",
     "\"hidden_act\"",
     "\"quantization_config\": {\"quant_method\": \"hqq\"}, \"hidden_act\"",
     ST_UNSUPPORTED,
     {"quantization_config/quant_method", "hqq"},
     false},
    {"another RoPE",
     "config.json",
     "\"hidden_act\"",
     "\"rope_scaling\": {\"type\": \"mrope\", \"factor\": 4}, \"hidden_act\"",
     ST_UNSUPPORTED,
     {"rope_scaling", "mrope", "llama3"},
     false},
    {"YaRN whose limits are the wrong way round",
     "config.json",
     "\"hidden_act\"",
     "\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4, \"beta_fast\": 0.5}, "
     "\"hidden_act\"",
     ST_INVALID,
     {"rope_scaling/beta_fast is 0.5", "beta_slow, which is 1"},
     false},
    {"LongRoPE with a short list",
     "config.json",
     "\"hidden_act\"",
     "\"rope_scaling\": {\"type\": \"su\", \"long_factor\": [1.0], \"short_factor\": [1.0]}, "
     "\"hidden_act\"",
     ST_INVALID,
     {"rope_scaling/long_factor has 1 numbers"},
     false},
    {"llama3 without its parts",
     "config.json",
     "\"hidden_act\"",
     "\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8}, \"hidden_act\"",
     ST_INVALID,
     {"rope_scaling/low_freq_factor is missing"},
     false},
    {"a cap on logits",
     "config.json",
     "\"hidden_act\"",
     "\"final_logit_softcapping\": -1, \"hidden_act\"",
     ST_INVALID,
     {"final_logit_softcapping is -1", "want a number above 0"},
     false},
    {"a negative share of rotated dimensions",
     "config.json",
     "\"hidden_act\"",
     "\"partial_rotary_factor\": -1, \"hidden_act\"",
     ST_INVALID,
     {"partial_rotary_factor is -1", "want a number above 0"},
     false},
    {"a layer of another kind",
     "config.json",
     "\"hidden_act\"",
     "\"layer_types\": [\"linear_attention\"], \"hidden_act\"",
     ST_UNSUPPORTED,
     {"layer_types: layer 0", "linear_attention"},
     false},
    {"too few kinds of layers",
     "config.json",
     "\"hidden_act\"",
     "\"layer_types\": [], \"hidden_act\"",
     ST_INVALID,
     {"layer_types", "layer 0 of its 0"},
     false},
    {"experts without their number in a row",
     "config.json",
     "\"hidden_act\"",
     "\"num_local_experts\": 8, \"hidden_act\"",
     ST_INVALID,
     {"num_experts_per_tok is missing"},
     false},
    {"an unknown choice of experts",
     "config.json",
     "\"hidden_act\"",
     "\"num_local_experts\": 8, \"num_experts_per_tok\": 2, \"topk_method\": \"random\", "
     "\"hidden_act\"",
     ST_UNSUPPORTED,
     {"topk_method is \"random\"", "noaux_tc"},
     false},
    {"limited q, k and v",
     "config.json",
     "\"hidden_act\"",
     "\"clip_qkv\": 8.0, \"hidden_act\"",
     ST_UNSUPPORTED,
     {"clip_qkv is 8"},
     false},
    {"more experts in a row than there are",
     "config.json",
     "\"hidden_act\"",
     "\"num_local_experts\": 8, \"num_experts_per_tok\": 9, \"hidden_act\"",
     ST_INVALID,
     {"num_experts_per_tok is 9", "1 to 8"},
     false},
    {"no own output",
     "config.json",
     "embeddings\": true",
     "embeddings\": false",
     ST_INVALID,
     {"lm_head.weight is missing", "tie_word_embeddings"},
     false},
    {"tied is a number",
     "config.json",
     "embeddings\": true",
     "embeddings\": 1",
     ST_INVALID,
     {"tie_word_embeddings is 1", "true or false"},
     false},
    /* safetensors */
    {"no weights", ONE, NULL, NULL, ST_INVALID, {"model.safetensors", "index"}, false},
    {"a type that is not known",
     ONE,
     "BF16",
     "F8_E5M2",
     ST_UNSUPPORTED,
     {"model.safetensors", "embed_tokens", "F8_E5M2"},
     false},
    {"a type of another size",
     ONE,
     "BF16",
     "F32",
     ST_INVALID,
     {"embed_tokens", "128", "256 bytes"},
     false},
    {"no type", ONE, "dtype", "type", ST_INVALID, {"embed_tokens", "dtype"}, false},
    {"a shape of text",
     ONE,
     "[8,8]",
     "[8,\"8\"]",
     ST_INVALID,
     {"embed_tokens", "dimension 1"},
     false},
    {"a shape of none", ONE, "[8,8]", "[8,0]", ST_INVALID, {"embed_tokens", "dimension 1"}, false},
    {"a shape beyond all",
     ONE,
     "[8,8]",
     "[4294967296,4294967296]",
     ST_INVALID,
     {"embed_tokens", "2^64"},
     false},
    {"five dimensions",
     ONE,
     "[8,8]",
     "[8,2,2,2,1]",
     ST_INVALID,
     {"embed_tokens", "5 dimensions"},
     false},
    {"another shape",
     ONE,
     Q "\":{\"dtype\":\"BF16\",\"shape\":[8,8]",
     Q "\":{\"dtype\":\"BF16\",\"shape\":[4,16]",
     ST_INVALID,
     {Q, "4 x 16", "8 x 8"},
     false},
    {"offsets the other way round",
     ONE,
     "[0,128]",
     "[128,0]",
     ST_INVALID,
     {"embed_tokens", "128 and 0"},
     false},
    {"a negative offset",
     ONE,
     "[0,128]",
     "[-1,128]",
     ST_INVALID,
     {"embed_tokens", "data_offsets"},
     false},
    {"one offset", ONE, "[0,128]", "[128]", ST_INVALID, {"embed_tokens", "data_offsets"}, false},
    {"overlapping tensors",
     ONE,
     "[128,144]",
     "[120,136]",
     ST_INVALID,
     {"embed_tokens", "input_layernorm", "overlap"},
     false},
    {"beyond the file",
     ONE,
     "[128,144]",
     "[9128,9144]",
     ST_INVALID,
     {"input_layernorm", "9144"},
     false},
    {"a hole",
     ONE,
     "\"" Q "\":{\"dtype\":\"BF16\",\"shape\":[8,8],\"data_offsets\":[144,272]},",
     "",
     ST_INVALID,
     {"144 to 272", "k_proj", "no tensor"},
     false},
    {"a tensor that nobody knows",
     ONE,
     "q_proj",
     "x_proj",
     ST_UNSUPPORTED,
     {"self_attn.x_proj.weight", "llama"},
     false},
    {"a name twice", ONE, "k_proj", "q_proj", ST_INVALID, {ONE, "duplicate object key"}, false},
    {"bytes at the end", ONE, "", "", ST_INVALID, {"last tensor ends", "file has"}, false},
    /* shards */
    {"a missing shard", TWO, NULL, NULL, ST_INVALID, {TWO, "missing", "index"}, true},
    {"no weight_map",
     "model.safetensors.index.json",
     "weight_map",
     "map",
     ST_INVALID,
     {"index.json", "weight_map"},
     true},
    {"a shard elsewhere",
     "model.safetensors.index.json",
     "model-00001",
     "../model-00001",
     ST_INVALID,
     {"../model-00001", "no file"},
     true},
    {"a shard that is a number",
     "model.safetensors.index.json",
     "\"model-00001-of-00002.safetensors\"",
     "1",
     ST_INVALID,
     {"embed_tokens", "whole number"},
     true},
    {"a tensor in another shard",
     "model.safetensors.index.json",
     "model-00001",
     "model-00002",
     ST_INVALID,
     {"embed_tokens", "weight_map"},
     true},
    {"a tensor in no shard",
     "model.safetensors.index.json",
     "{\"model.embed",
     "{\"x\": \"model-00001-of-00002.safetensors\", \"model.embed",
     ST_INVALID,
     {"'x'", "model-00001"},
     true},
    {"a tensor in two shards",
     TWO,
     "post_attention_layernorm",
     "input_layernorm",
     ST_INVALID,
     {"input_layernorm", "two files"},
     true},
    /* tokenizer.json */
    {"no tokenizer", "tokenizer.json", NULL, NULL, ST_INVALID, {"tokenizer.json"}, false},
    {"another kind of model",
     "tokenizer.json",
     "\"type\": \"BPE\"",
     "\"type\": \"WordPiece\"",
     ST_UNSUPPORTED,
     {"model/type", "WordPiece"},
     false},
    {"dropout",
     "tokenizer.json",
     "\"dropout\": null",
     "\"dropout\": 0.1",
     ST_UNSUPPORTED,
     {"model/dropout"},
     false},
    {"no byte fallback",
     "tokenizer.json",
     "fallback\": true",
     "fallback\": false",
     ST_UNSUPPORTED,
     {"byte_fallback is false"},
     false},
    {"an unknown normalizer",
     "tokenizer.json",
     "\"type\": \"Prepend\"",
     "\"type\": \"Precompiled\"",
     ST_UNSUPPORTED,
     {"normalizer", "Precompiled"},
     false},
    {"an unknown pre_tokenizer",
     "tokenizer.json",
     "\"pre_tokenizer\": null",
     "\"pre_tokenizer\": {\"type\": \"Whitespace\"}",
     ST_UNSUPPORTED,
     {"pre_tokenizer", "Whitespace"},
     false},
    {"an unknown expression",
     "tokenizer.json",
     "\"pre_tokenizer\": null",
     "\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", "
     "\"pattern\": {\"Regex\": \"[a-z]+\"}, \"behavior\": \"Isolated\"}, {\"type\": \"ByteLevel\", "
     "\"add_prefix_space\": false, \"use_regex\": false}]}",
     ST_UNSUPPORTED,
     {"normalizer", "ByteLevel"},
     false},
    {"an unknown post_processor",
     "tokenizer.json",
     "TemplateProcessing",
     "BertProcessing",
     ST_UNSUPPORTED,
     {"post_processor", "BertProcessing"},
     false},
    {"a template with an end",
     "tokenizer.json",
     "\"single\": [",
     "\"single\": [{\"SpecialToken\": {\"id\": \"</s>\"}}, ",
     ST_UNSUPPORTED,
     {"post_processor", "TemplateProcessing"},
     false},
    {"a template's id",
     "tokenizer.json",
     "\"ids\": [1]",
     "\"ids\": [8]",
     ST_INVALID,
     {"post_processor", "<s>", "8"},
     false},
    {"an id beyond the embedding",
     "tokenizer.json",
     "\"ab\": 6",
     "\"ab\": 8",
     ST_INVALID,
     {"'ab' is 8", "below 8"},
     false},
    {"an id twice",
     "tokenizer.json",
     "\"ab\": 6",
     "\"ab\": 5",
     ST_INVALID,
     {"'b'", "'ab'", "both 5"},
     false},
    {"an added token elsewhere",
     "tokenizer.json",
     "\"id\": 2",
     "\"id\": 1",
     ST_INVALID,
     {"added_tokens/2", "</s>"},
     false},
    {"a merge of nothing",
     "tokenizer.json",
     "\"a b\"",
     "\"ab\"",
     ST_UNSUPPORTED,
     {"merges/0", "ab"},
     false},
    {"a merge that is a number", "tokenizer.json", "\"a b\"", "1", ST_INVALID, {"merges/0"}, false},
    {"a merge of three",
     "tokenizer.json",
     "\"a b\"",
     "[\"a\", \"b\", \"c\"]",
     ST_INVALID,
     {"merges/0"},
     false},
    {"a merge beyond the vocabulary",
     "tokenizer.json",
     "\"a b\"",
     "[\"b\", \"a\"]",
     ST_INVALID,
     {"merge 0", "vocabulary"},
     false},
    {"no merges", "tokenizer.json", "merges", "merge", ST_INVALID, {"model/merges"}, false},
    {"a BOS that is no token",
     "tokenizer_config.json",
     "\"<s>\"",
     "\"<x>\"",
     ST_INVALID,
     {"tokenizer_config.json", "bos_token", "<x>"},
     false},
    {"an EOS at the end",
     "tokenizer_config.json",
     "\"add_bos_token\"",
     "\"add_eos_token\"",
     ST_UNSUPPORTED,
     {"add_eos_token"},
     false},
    {"a template that is a number",
     "tokenizer_config.json",
     "\"[INST] {{ messages[0].content }} [/INST]\"",
     "1",
     ST_INVALID,
     {"chat_template"},
     false},
    {"an end beyond the vocabulary",
     "generation_config.json",
     "[2, 1]",
     "[2, 8]",
     ST_INVALID,
     {"generation_config.json", "eos_token_id", "8"},
     false},
};

static enum status open_all(struct compute *c, const struct folder_parts *p, struct error *error)
{
    const struct model_options options = {.ops = &compute_cpu, .compute = c};
    struct model_file *file = NULL;
    struct model *m = NULL;
    struct tokenizer *t = NULL;
    enum status status = model_file_open_parts("dir/small/", p->parts, p->count, &file, error);
    if (status == ST_OK)
        status = model_open(file, &options, &m, error);
    if (status == ST_OK)
        status = tokenizer_open(file, &t, error);
    tokenizer_close(t);
    model_close(m);
    model_file_close(file);
    return status;
}

static void spoil(struct folder_parts *p, const struct bad *bad)
{
    struct folder_part *part = folder_parts_find(p, bad->file);
    if (bad->find == NULL)
        part->name = "x";
    else if (bad->find[0] == 0)
        part->bytes += 1; /* which was taken (folder_parts.c) */
    else
        folder_parts_replace(p, bad->file, bad->find, bad->put);
}

static void check_bad(struct compute *c, const struct bad *bad)
{
    struct folder_parts p;
    struct error error = {""};
    folder_parts_make(bad->sharded, &p);
    CHECKF(open_all(c, &p, &error) == ST_OK, "%s", error.text);
    spoil(&p, bad);
    enum status status = open_all(c, &p, &error);
    printf("%s: %s\n", bad->what, error.text);
    CHECKF(status == bad->status, "%s: status %s, want %s", bad->what, status_name(status),
           status_name(bad->status));
    for (size_t i = 0; i < 3 && bad->words[i] != NULL; i++)
        CHECKF(strstr(error.text, bad->words[i]) != NULL, "%s: \"%s\" is not in the error",
               bad->what, bad->words[i]);
    folder_parts_done(&p);
}

/* A weights file cut anywhere is an error, and nothing is read beyond its end. A pointer of Git LFS
 * is named as such. */
static void check_cuts(struct compute *c)
{
    struct folder_parts p;
    folder_parts_make(false, &p);
    struct folder_part *part = folder_parts_find(&p, ONE);
    const void *whole = part->data;
    size_t bytes = part->bytes;
    for (size_t cut = 1; cut <= bytes; cut += cut < 64 ? 1 : 37) {
        struct error error = {""};
        void *copy = malloc(bytes - cut + 1);
        CHECK(copy != NULL);
        memcpy(copy, whole, bytes - cut);
        part->data = copy;
        part->bytes = bytes - cut;
        CHECK(open_all(c, &p, &error) == ST_INVALID);
        CHECKF(strstr(error.text, ONE) != NULL, "%s", error.text);
        free(copy);
    }
    static const char pointer[] = "version https://git-lfs.github.com/spec/v1\nsize 123\n";
    struct error error = {""};
    part->data = pointer;
    part->bytes = strlen(pointer);
    CHECK(open_all(c, &p, &error) == ST_INVALID);
    CHECKF(strstr(error.text, ONE ": a pointer of Git LFS") != NULL, "%s", error.text);
    part->data = whole;
    folder_parts_done(&p);
}

/* A list with a wrong entry is an error that leaves the caller's numbers as they were. */
static void check_list(void)
{
    struct folder_parts p;
    struct model_file *file;
    struct error error = {""};
    float out[3] = {7, 8, 9};
    folder_parts_make(false, &p);
    folder_parts_replace(&p, "config.json", "\"hidden_act\"",
                         "\"rope_scaling\": {\"long_factor\": [1, 2, \"x\"], "
                         "\"short_factor\": [1, 2, 3]}, \"hidden_act\"");
    CHECK(model_file_open_parts("small", p.parts, p.count, &file, &error) == ST_OK);
    CHECK(key_f32_list(file, KEY_ROPE_LONG, 3, out, &error) == ST_INVALID);
    CHECKF(strstr(error.text, "long_factor: entry 2 is a string") != NULL, "%s", error.text);
    CHECK(out[0] == 7 && out[1] == 8 && out[2] == 9);
    CHECK(key_f32_list(file, KEY_ROPE_SHORT, 3, out, &error) == ST_OK);
    CHECK(out[0] == 1 && out[1] == 2 && out[2] == 3);
    model_file_close(file);
    folder_parts_done(&p);
}

static void expect_ids(const struct tokenizer *t, const char *text, const uint32_t *wanted,
                       size_t count)
{
    const struct tokenizer_encode_options options = {.parse_special = true, .add_bos = true};
    struct error error = {""};
    uint32_t *ids = NULL;
    size_t capacity = 0, got = 0;
    CHECK(tokenizer_encode(t, text, strlen(text), &options, &ids, &capacity, &got, &error) ==
          ST_OK);
    CHECKF(got == count && memcmp(ids, wanted, count * sizeof(*ids)) == 0, "'%s'", text);
    free(ids);
}

/* The small vocabulary by hand; more of it is tokenizer_hub_test.py's. */
static void check_tokenizer(void)
{
    struct folder_parts p;
    struct model_file *file = NULL;
    struct tokenizer *t = NULL;
    struct chat_template *chat = NULL;
    struct error error = {""};
    uint32_t ends[16];
    folder_parts_make(false, &p);
    CHECKF(model_file_open_parts("small", p.parts, p.count, &file, &error) == ST_OK, "%s",
           error.text);
    CHECKF(tokenizer_open(file, &t, &error) == ST_OK, "%s", error.text);
    CHECKF(chat_template_open(file, NULL, &chat, &error) == ST_OK, "%s", error.text);
    model_file_close(file);
    folder_parts_done(&p); /* nothing of it is needed any more */
    expect_ids(t, "ab", (const uint32_t[]){1, 3, 6}, 3);
    expect_ids(t, "ba ab", (const uint32_t[]){1, 3, 5, 4, 3, 6}, 6);
    expect_ids(t, "a\nb", (const uint32_t[]){1, 3, 4, 7, 5}, 5);
    expect_ids(t, "a</s>b", (const uint32_t[]){1, 3, 4, 2, 3, 5}, 6);
    expect_ids(t, "\xc3\xa9", (const uint32_t[]){1, 3, 0}, 3);
    CHECK(tokenizer_bos(t) == 1 && tokenizer_eos(t) == 2 && tokenizer_token_count(t) == 8);
    CHECK(tokenizer_end_tokens(t, ends) == 2 && ends[0] == 2 && ends[1] == 1);
    json_t *messages = json_pack("[{s:s, s:s}]", "role", "user", "content", "a");
    const struct chat_request request = {.messages = messages};
    struct chat_text text;
    CHECKF(chat_render(chat, &request, &text, &error) == ST_OK, "%s", error.text);
    json_decref(messages);
    CHECKF(strcmp(text.text, "[INST] a [/INST]") == 0, "%s", text.text);
    chat_text_done(&text);
    chat_template_close(chat);
    tokenizer_close(t);
}

/* Of two named templates, requests with tools get "tool_use". */
static void check_templates(void)
{
    struct folder_parts p;
    struct model_file *file = NULL;
    struct chat_template *chat = NULL;
    struct error error = {""};
    folder_parts_make(false, &p);
    folder_parts_replace(&p, "tokenizer_config.json",
                         "\"[INST] {{ messages[0].content }} [/INST]\"",
                         "[{\"name\": \"default\", \"template\": \"plain\"}, {\"name\": "
                         "\"tool_use\", \"template\": \"{{ tools|length }} tools\"}]");
    CHECKF(model_file_open_parts("small", p.parts, p.count, &file, &error) == ST_OK, "%s",
           error.text);
    CHECKF(chat_template_open(file, NULL, &chat, &error) == ST_OK, "%s", error.text);
    model_file_close(file);
    folder_parts_done(&p);
    json_t *messages = json_pack("[{s:s, s:s}]", "role", "user", "content", "a");
    json_t *tools = json_pack("[{s:s}]", "type", "function");
    for (int i = 0; i < 2; i++) {
        const struct chat_request request = {.messages = messages, .tools = i == 0 ? NULL : tools};
        struct chat_text text;
        CHECKF(chat_render(chat, &request, &text, &error) == ST_OK, "%s", error.text);
        CHECKF(strcmp(text.text, i == 0 ? "plain" : "1 tools") == 0, "%s", text.text);
        chat_text_done(&text);
    }
    json_decref(messages);
    json_decref(tools);
    chat_template_close(chat);
}

/* What only a directory can have wrong. */
static void check_directory(void)
{
    char path[] = "/tmp/cleave-bad-XXXXXX", inside[128];
    struct model_file *file = NULL;
    struct error error = {""};
    CHECK(mkdtemp(path) != NULL);
    CHECK(model_file_open(path, &file, &error) == ST_INVALID);
    CHECKF(strstr(error.text, "there is no config.json") != NULL, "%s", error.text);
    snprintf(inside, sizeof(inside), "%s/config.json", path);
    CHECK(mkdir(inside, 0700) == 0);
    CHECK(model_file_open(path, &file, &error) == ST_INVALID);
    CHECKF(strstr(error.text, "config.json: is not a regular file") != NULL, "%s", error.text);
    CHECK(rmdir(inside) == 0);
    FILE *empty = fopen(inside, "w");
    CHECK(empty != NULL && fclose(empty) == 0);
    CHECK(model_file_open(path, &file, &error) == ST_INVALID && file == NULL);
    CHECKF(strstr(error.text, "config.json: is empty") != NULL, "%s", error.text);
    CHECK(unlink(inside) == 0 && rmdir(path) == 0);
    CHECK(model_file_open(path, &file, &error) == ST_NOT_FOUND);
}

/* What transformers writes for a tokenizer without a limit (10^30 as a float, printed whole).
 * Digits in strings stay as they are, and a key that needs a small number refuses the large one. */
static void check_large_numbers(struct compute *c)
{
    struct folder_parts p;
    struct error error = {0};
    folder_parts_make(false, &p);
    folder_parts_replace(
        &p, "tokenizer_config.json", "{",
        "{\"model_max_length\": 1000000000000000019884624838656, \"other\": "
        "[-99999999999999999999999,9223372036854775808,1e300,0.12345678901234567890],"
        "\"text\": \"\\\"98765432109876543210 \\\\\", ");
    CHECKF(open_all(c, &p, &error) == ST_OK, "%s", error.text);
    folder_parts_replace(&p, "config.json", "{",
                         "{\"max_position_embeddings\": 1000000000000000019884624838656, ");
    folder_parts_replace(&p, "config.json", "\"max_position_embeddings\": 64", "\"spare\": 64");
    CHECK(open_all(c, &p, &error) == ST_INVALID);
    CHECKF(strstr(error.text, "max_position_embeddings") != NULL, "%s", error.text);
    folder_parts_done(&p);
}

/* LongRoPE's lists of a model with latent attention have half as many numbers as RoPE rotates
 * dimensions. 272 is half of (rank + rotated) / 2, and more than fit a head of 512. */
static void check_long_lists_latent(struct compute *c)
{
    static char config[8192];
    struct folder_parts p;
    struct error error = {0};
    folder_parts_make(false, &p);
    struct folder_part *part = folder_parts_find(&p, "config.json");
    int used = snprintf(config, sizeof(config),
                        "{\"model_type\": \"deepseek_v2\", \"num_hidden_layers\": 1, "
                        "\"hidden_size\": 8, \"intermediate_size\": 16, \"vocab_size\": 8, "
                        "\"max_position_embeddings\": 64, \"num_attention_heads\": 2, "
                        "\"num_key_value_heads\": 2, \"rms_norm_eps\": 1e-6, "
                        "\"kv_lora_rank\": 1024, \"q_lora_rank\": 32, \"qk_nope_head_dim\": 32, "
                        "\"qk_rope_head_dim\": 64, \"v_head_dim\": 32, "
                        "\"original_max_position_embeddings\": 32, "
                        "\"rope_scaling\": {\"type\": \"longrope\", \"long_factor\": [1");
    for (int list = 0; list < 2; list++) {
        for (int i = 1; i < 272; i++)
            used += snprintf(config + used, sizeof(config) - (size_t)used, ",1");
        used += snprintf(config + used, sizeof(config) - (size_t)used,
                         list == 0 ? "], \"short_factor\": [1" : "]}}");
    }
    const struct folder_part whole = *part;
    part->data = config;
    part->bytes = (size_t)used;
    CHECK(open_all(c, &p, &error) == ST_INVALID);
    CHECKF(strstr(error.text, "long_factor has 272 numbers") != NULL, "%s", error.text);
    *part = whole;
    folder_parts_done(&p);
}

int main(void)
{
    const struct compute_options options = {.threads = 1};
    struct compute *c;
    struct error error = {0};
    CHECKF(compute_cpu.open(&options, &c, &error) == ST_OK, "%s", error.text);
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        check_bad(c, &table[i]);
    check_cuts(c);
    check_list();
    check_large_numbers(c);
    check_long_lists_latent(c);
    compute_cpu.close(c);
    check_tokenizer();
    check_templates();
    check_directory();
    return 0;
}
