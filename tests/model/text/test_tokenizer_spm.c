/* Goal: SentencePiece vocabularies are encoded as their definition says, word by word or whole, and
 * tokens give the same text again. Method: random vocabularies over a small alphabet, random texts,
 * and a plain search over the whole text for the best pair, as the definition says; hand-written
 * cases for bytes, special tokens and the space before a text; and, if CLEAVE_GEMMA names the file
 * that scripts/fetch-gemma.sh makes, known ids of Gemma 3. */
#include "common/random.h"
#include "model/text/tokenizer.h"
#include "model/text/tokenizer_internal.h"
#include "tests/check.h"
#include "tests/model/file/gguf_writer.h"

#include <string.h>

#define TOKENS_MAX 400
#define TEXT_MAX   300

static uint64_t seed, drawn;

static uint32_t below(uint32_t n)
{
    return (uint32_t)(random_at(seed, drawn++) % n);
}

struct test_vocabulary {
    char texts[TOKENS_MAX][64]; /* as the file spells them */
    float scores[TOKENS_MAX];
    int32_t types[TOKENS_MAX];
    uint32_t count;
};

static void add(struct test_vocabulary *v, const char *text, float score, int32_t type)
{
    CHECK(v->count < TOKENS_MAX && strlen(text) < sizeof(v->texts[0]));
    strcpy(v->texts[v->count], text);
    v->scores[v->count] = score;
    v->types[v->count++] = type;
}

static void add_bytes(struct test_vocabulary *v)
{
    for (unsigned byte = 0; byte < 256; byte++) {
        char text[8];
        snprintf(text, sizeof(text), "<0x%02X>", byte);
        add(v, text, 0, 6);
    }
}

static struct tokenizer *open_vocabulary(const struct test_vocabulary *v, bool space_prefix)
{
    const char *texts[TOKENS_MAX];
    struct model_file *g;
    struct tokenizer *t;
    struct error error = {0};
    size_t bytes;
    struct gguf_writer *w = gguf_writer_open(3, 0);
    for (uint32_t i = 0; i < v->count; i++)
        texts[i] = v->texts[i];
    gguf_writer_string(w, "tokenizer.ggml.model", "llama");
    gguf_writer_string_array(w, "tokenizer.ggml.tokens", texts, v->count);
    gguf_writer_f32_array(w, "tokenizer.ggml.scores", v->scores, v->count);
    gguf_writer_i32_array(w, "tokenizer.ggml.token_type", v->types, v->count);
    gguf_writer_u32(w, "tokenizer.ggml.unknown_token_id", 0);
    gguf_writer_u32(w, "tokenizer.ggml.bos_token_id", 1);
    gguf_writer_bool(w, "tokenizer.ggml.add_space_prefix", space_prefix);
    uint8_t *image = gguf_writer_finish(w, &bytes);
    CHECKF(model_file_open_memory(image, bytes, "spm", &g, &error) == ST_OK, "%s", error.text);
    CHECKF(tokenizer_open(g, &t, &error) == ST_OK, "%s", error.text);
    model_file_close(g);
    free(image);
    return t;
}

static uint32_t *encode(const struct tokenizer *t, const char *text, bool special, size_t *count)
{
    const struct tokenizer_encode_options options = {.parse_special = special};
    struct error error = {0};
    uint32_t *ids = NULL;
    size_t capacity = 0;
    CHECKF(tokenizer_encode(t, text, strlen(text), &options, &ids, &capacity, count, &error) ==
               ST_OK,
           "%s", error.text);
    CHECK(tokenizer_tokens_min(t, text, strlen(text)) <= *count);
    return ids;
}

/* The token that means text[0..bytes), looked for one by one. */
static uint32_t find(const struct tokenizer *t, const struct test_vocabulary *v, const char *text,
                     size_t bytes)
{
    for (uint32_t id = 0; id < v->count; id++) {
        size_t piece_bytes;
        const char *piece = tokenizer_piece(t, id, &piece_bytes);
        if (v->types[id] == 1 && piece_bytes == bytes && memcmp(piece, text, bytes) == 0)
            return id;
    }
    return TOKENIZER_NO_TOKEN;
}

static size_t reference(const struct tokenizer *t, const struct test_vocabulary *v,
                        const char *text, uint32_t *ids)
{
    size_t starts[TEXT_MAX + 1], parts = 0, count = 0, bytes = strlen(text);
    for (size_t i = 0; i < bytes; i++)
        if (((uint8_t)text[i] & 0xc0) != 0x80)
            starts[parts++] = i;
    starts[parts] = bytes;
    for (;;) {
        size_t best = parts;
        float score = 0;
        for (size_t i = 0; i + 1 < parts; i++) {
            uint32_t id = find(t, v, text + starts[i], starts[i + 2] - starts[i]);
            if (id != TOKENIZER_NO_TOKEN && (best == parts || v->scores[id] > score)) {
                best = i;
                score = v->scores[id];
            }
        }
        if (best == parts)
            break;
        memmove(starts + best + 1, starts + best + 2, (parts - best - 1) * sizeof(starts[0]));
        parts--;
    }
    for (size_t i = 0; i < parts; i++) {
        uint32_t id = find(t, v, text + starts[i], starts[i + 1] - starts[i]);
        if (id != TOKENIZER_NO_TOKEN) {
            ids[count++] = id;
            continue;
        }
        for (size_t k = starts[i]; k < starts[i + 1]; k++)
            ids[count++] = 2 + (uint8_t)text[k]; /* the byte tokens follow <unk> and <s> */
    }
    return count;
}

/* Letters, one of two bytes, one that is no token, and blanks. */
static void random_text(char *out, uint32_t characters)
{
    static const char *const letters[] = {"a", "b", "c", "\xc3\xa9", "\xe4\xb8\xad", " "};
    out[0] = 0;
    for (uint32_t i = 0; i < characters; i++)
        strcat(out, letters[below(6)]);
}

static void random_vocabulary(struct test_vocabulary *v, bool crossing)
{
    *v = (struct test_vocabulary){.count = 0};
    add(v, "<unk>", 0, 2);
    add(v, "<s>", 0, 3);
    add_bytes(v);
    static const char *const single[] = {"a", "b", "c", "\xc3\xa9", "\xe2\x96\x81"};
    for (int i = 0; i < 5; i++)
        add(v, single[i], -100, 1);
    for (int i = 0; i < 60; i++) {
        char text[64] = "";
        uint32_t length = 2 + below(4), blank = below(3);
        for (uint32_t k = 0; k < length; k++)
            strcat(text, single[crossing ? below(5) : k < blank ? 4 : below(4)]);
        add(v, text, -(float)below(20), 1);
    }
}

static void check_random(bool crossing)
{
    struct test_vocabulary v;
    random_vocabulary(&v, crossing);
    struct tokenizer *t = open_vocabulary(&v, false);
    for (int round = 0; round < 60; round++) {
        char text[TEXT_MAX], back[TEXT_MAX * 4] = "";
        uint32_t want[TEXT_MAX];
        size_t count, bytes = 0;
        random_text(text, 1 + below(90));
        size_t wanted = reference(t, &v, text, want);
        uint32_t *ids = encode(t, text, false, &count);
        CHECKF(count == wanted, "'%s': %zu tokens, want %zu", text, count, wanted);
        struct detokenizer d = {.pending_bytes = 0};
        for (size_t i = 0; i < count; i++) {
            CHECKF(ids[i] == want[i], "'%s' token %zu: %u, want %u", text, i, ids[i], want[i]);
            bytes += detokenizer_feed(&d, t, ids[i], false, back + bytes);
        }
        CHECK(bytes == strlen(text) && memcmp(back, text, bytes) == 0);
        free(ids);
    }
    tokenizer_close(t);
}

static void expect(const struct tokenizer *t, const char *text, const uint32_t *want, size_t wanted)
{
    size_t count;
    uint32_t *ids = encode(t, text, true, &count);
    CHECKF(count == wanted, "'%s': %zu tokens, want %zu", text, count, wanted);
    for (size_t i = 0; i < count; i++)
        CHECKF(ids[i] == want[i], "'%s' token %zu: %u, want %u", text, i, ids[i], want[i]);
    free(ids);
}

static void check_written(void)
{
    struct test_vocabulary v = {.count = 0};
    add(&v, "<unk>", 0, 2);
    add(&v, "<s>", 0, 3);
    add_bytes(&v);
    add(&v, "\xe2\x96\x81", -9, 1); /* 258 */
    add(&v, "a", -8, 1);            /* 259 */
    add(&v,
        "\xe2\x96\x81"
        "a",
        -2, 1);            /* 260 */
    add(&v, "aa", -3, 1);  /* 261 */
    add(&v, "\n\n", 0, 4); /* 262: user-defined */
    struct tokenizer *t = open_vocabulary(&v, true);
    expect(t, "aa", (uint32_t[]){260, 259}, 2); /* the blank's pair scores higher */
    expect(t, " a", (uint32_t[]){258, 260}, 2);
    expect(t, "a\n\na", (uint32_t[]){260, 262, 260}, 3); /* a blank after each token, too */
    expect(t, "a<s>a", (uint32_t[]){260, 1, 260}, 3);
    expect(t, "a\xf0\x9f\xa6\x80", (uint32_t[]){260, 2 + 0xf0, 2 + 0x9f, 2 + 0xa6, 2 + 0x80}, 5);
    tokenizer_close(t);
    t = open_vocabulary(&v, false);
    expect(t, "aa", (uint32_t[]){261}, 1);
    tokenizer_close(t);
}

/* A word of a megabyte: n log n. */
static void check_long(void)
{
    struct test_vocabulary v;
    random_vocabulary(&v, false);
    struct tokenizer *t = open_vocabulary(&v, false);
    size_t bytes = 1 << 20, count;
    char *text = malloc(bytes + 1);
    CHECK(text != NULL);
    for (size_t i = 0; i < bytes; i++)
        text[i] = (char)('a' + below(3));
    text[bytes] = 0;
    struct bpe_workspace space = {0};
    uint32_t *ids = malloc(bytes * sizeof(*ids));
    CHECK(ids != NULL && spm_encode(t, text, bytes, &space, ids, &count) == ST_OK);
    CHECKF(space.steps < bytes * 64, "%" PRIu64 " steps", space.steps);
    bpe_workspace_done(&space);
    free(ids);
    free(text);
    tokenizer_close(t);
}

static void check_gemma(const char *path)
{
    struct model_file *g;
    struct tokenizer *t;
    struct error error = {0};
    CHECKF(model_file_open(path, &g, &error) == ST_OK, "%s", error.text);
    CHECKF(tokenizer_open(g, &t, &error) == ST_OK, "%s", error.text);
    expect(t, "Hello world", (uint32_t[]){9259, 1902}, 2);
    expect(t, "The capital of France is", (uint32_t[]){818, 5279, 529, 7001, 563}, 5);
    expect(t, "    return\n\n", (uint32_t[]){140, 2060, 108}, 3);
    expect(t, "<start_of_turn>user", (uint32_t[]){105, 2364}, 2);
    tokenizer_close(t);
    model_file_close(g);
}

int main(void)
{
    seed = test_seed();
    check_written();
    for (int i = 0; i < 20; i++)
        check_random(i % 2 == 0);
    check_long();
    if (getenv("CLEAVE_GEMMA") != NULL)
        check_gemma(getenv("CLEAVE_GEMMA"));
    return 0;
}
