/* Goal: text becomes the token ids with which the model was trained, and token ids become the same
 * text again. Method: the reference ids of the default model (tests/data/model); merging
 * compared with a plain model with random merges; the pre-tokenizers' words compared with expected
 * ones; the number of steps on a long word; random token sequences through the detokenizer, split
 * differently, compared with the whole. */
#include "common/random.h"
#include "model/text/tokenizer_internal.h"
#include "tests/check.h"
#include "tests/model/file/gguf_writer.h"

#include <jansson.h>
#include <string.h>

static uint64_t seed;

struct text_ids {
    uint32_t *ids;
    size_t capacity;
    size_t count;
};

static enum status encode(const struct tokenizer *t, const char *text, size_t bytes,
                          bool parse_special, bool add_bos, struct text_ids *out,
                          struct error *error)
{
    struct tokenizer_encode_options options = {.parse_special = parse_special, .add_bos = add_bos};
    return tokenizer_encode(t, text, bytes, &options, &out->ids, &out->capacity, &out->count,
                            error);
}

static void encode_ok(const struct tokenizer *t, const char *text, size_t bytes, bool parse_special,
                      struct text_ids *out)
{
    struct error error = {""};
    CHECKF(encode(t, text, bytes, parse_special, false, out, &error) == ST_OK, "%s", error.text);
    CHECK(tokenizer_tokens_min(t, text, bytes) <= out->count);
}

/* All ids through the detokenizer; malloc'ed. */
static char *decode(const struct tokenizer *t, const uint32_t *ids, size_t count, bool skip_special,
                    size_t *bytes_out)
{
    struct detokenizer d = {0};
    size_t room = 3;
    size_t written = 0;
    for (size_t i = 0; i < count; i++) {
        size_t bytes = 0;
        tokenizer_piece(t, ids[i], &bytes);
        room += DETOKENIZER_OUT_BYTES(bytes);
    }
    char *text = malloc(room);
    CHECK(text != NULL);
    for (size_t i = 0; i < count; i++)
        written += detokenizer_feed(&d, t, ids[i], skip_special, text + written);
    written += detokenizer_finish(&d, text + written);
    CHECK(written <= room);
    *bytes_out = written;
    return text;
}

/* ---- the default model ---- */

static struct tokenizer *open_default(void)
{
    struct model_file *g = NULL;
    struct tokenizer *t = NULL;
    struct error error = {""};
    CHECKF(model_file_open(test_model_path(), &g, &error) == ST_OK, "%s", error.text);
    CHECKF(tokenizer_open(g, &t, &error) == ST_OK, "%s", error.text);
    model_file_close(g); /* it must have copied what it needs */
    return t;
}

static void check_reference(const struct tokenizer *t, const char *place, size_t line,
                            const char *text, size_t bytes, const json_t *ids)
{
    struct text_ids got = {0};
    size_t back_bytes;
    encode_ok(t, text, bytes, true, &got);
    size_t same = 0;
    while (same < got.count && same < json_array_size(ids) &&
           json_integer_value(json_array_get(ids, same)) == (json_int_t)got.ids[same])
        same++;
    CHECKF(same == got.count && same == json_array_size(ids),
           "%s:%zu: id %zu differs (%zu ids, want %zu): %s", place, line, same, got.count,
           json_array_size(ids), text);
    char *back = decode(t, got.ids, got.count, false, &back_bytes);
    CHECKF(back_bytes == bytes && memcmp(back, text, bytes) == 0, "%s:%zu: comes back as %.*s",
           place, line, (int)back_bytes, back);
    free(back);
    free(got.ids);
}

static void test_reference(const struct tokenizer *t)
{
    char *line = NULL;
    size_t room = 0;
    size_t lines = 0;
    ssize_t bytes;
    FILE *file = fopen(test_data_path("model/tokenizer.jsonl"), "r");
    CHECK(file != NULL);
    while ((bytes = getline(&line, &room, file)) > 0) {
        json_t *entry = json_loadb(line, (size_t)bytes, JSON_ALLOW_NUL, NULL);
        CHECK(entry != NULL);
        json_t *text = json_object_get(entry, "text");
        lines++;
        check_reference(t, "tokenizer.jsonl", lines, json_string_value(text),
                        json_string_length(text), json_object_get(entry, "ids"));
        json_decref(entry);
    }
    CHECKF(lines == 416, "%zu lines", lines);
    free(line);
    fclose(file);

    json_t *greedy = json_load_file(test_data_path("model/greedy.json"), 0, NULL);
    CHECK(greedy != NULL);
    json_t *cases = json_object_get(greedy, "cases");
    CHECK(json_array_size(cases) == 12);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        json_t *prompt = json_object_get(json_array_get(cases, i), "prompt");
        check_reference(t, "greedy.json case", i, json_string_value(prompt),
                        json_string_length(prompt),
                        json_object_get(json_array_get(cases, i), "prompt_ids"));
    }
    json_decref(greedy);
}

static void test_default_ids(const struct tokenizer *t)
{
    uint32_t ends[16];
    size_t bytes;
    struct text_ids got = {0};
    CHECK(tokenizer_token_count(t) == 49152 && tokenizer_bos(t) == 1 && tokenizer_eos(t) == 2);
    CHECK(tokenizer_end_tokens(t, ends) == 2 && ends[0] == 2 && ends[1] == 0);
    CHECK(tokenizer_is_special(t, 16) && !tokenizer_is_special(t, 17) &&
          !tokenizer_is_special(t, UINT32_MAX));
    CHECK(tokenizer_find(t, "<|im_end|>") == 2 &&
          tokenizer_find(t, "<|im_end|") == TOKENIZER_NO_TOKEN);
    CHECK(tokenizer_piece(t, 49152, &bytes) == NULL);
    CHECK(memcmp(tokenizer_piece(t, 4649, &bytes), " France", 7) == 0 && bytes == 7);
    encode_ok(t, "<|im_end|>", 10, true, &got);
    CHECK(got.count == 1 && got.ids[0] == 2);
    encode_ok(t, "<|im_end|>", 10, false, &got);
    CHECK(got.count > 1);
    for (size_t i = 0; i < got.count; i++)
        CHECK(!tokenizer_is_special(t, got.ids[i]));
    encode_ok(t, "", 0, true, &got);
    CHECK(got.count == 0);
    /* Bytes 4 and 0xf1 have no token; the longest token has 81 bytes. */
    CHECK(tokenizer_tokens_min(t, "\4\xf1", 2) == 0 && tokenizer_tokens_min(t, "a\4", 2) == 1);
    char many[810 + 1] = {0};
    CHECK(tokenizer_tokens_min(t, memset(many, 'a', 810), 810) == 10);
    free(got.ids);
}

static void make_letters(char *text, size_t bytes, int kind)
{
    for (size_t i = 0; i < bytes; i++)
        text[i] = kind == 0   ? 'a'
                  : kind == 1 ? (char)('a' + random_at(seed, i) % 26)
                  : kind == 2 ? "the"[i % 3]
                  : kind == 3 ? ' '
                              : "!?-=*/"[random_at(seed, i) % 6];
}

/* Texts without a blank, or of nothing else: work in proportion to the text. Counted: look-ups,
 * vectors searched, and moves in the queue that large tokens need. */
static void test_long_words(const struct tokenizer *t)
{
    enum { BYTES = 1 << 20 };
    char *text = malloc(BYTES);
    uint32_t *ids = malloc(BYTES * sizeof(*ids));
    CHECK(text != NULL && ids != NULL);
    for (int kind = 0; kind < 5; kind++) {
        double steps[2];
        for (int part = 0; part < 2; part++) {
            struct bpe_workspace space = {0};
            size_t count, bytes = part == 0 ? BYTES / 64 : BYTES;
            make_letters(text, bytes, kind);
            CHECK(bpe_encode(&t->bpe, text, bytes, &space, ids, &count) == ST_OK);
            steps[part] = (double)space.steps / (double)bytes;
            bpe_workspace_done(&space);
        }
        printf("a word of kind %d: %.1f steps per byte of 16 KiB, %.1f of 1 MiB\n", kind, steps[0],
               steps[1]);
        CHECKF(steps[1] < 64 && steps[1] < 1.2 * steps[0], "kind %d", kind);
    }
    free(ids);

    /* White space, line ends and marks: what the expressions could go back over. */
    static const char *const units[] = {" ",   "\n", " \n",       "'",
                                        "\t ", "1",  "<|im_end|", "\xe2\x80\x83"};
    for (size_t k = 0; k < sizeof(units) / sizeof(units[0]); k++) {
        struct text_ids got = {0};
        size_t unit = strlen(units[k]);
        size_t back_bytes;
        size_t bytes = BYTES / unit * unit;
        for (size_t i = 0; i < bytes; i++)
            text[i] = units[k][i % unit];
        encode_ok(t, text, bytes, true, &got);
        char *back = decode(t, got.ids, got.count, false, &back_bytes);
        CHECK(back_bytes == bytes && memcmp(back, text, bytes) == 0);
        free(back);
        free(got.ids);
    }
    free(text);
}

static void report_speed(const struct tokenizer *t)
{
    static const char sentence[] = "The history of computing spans many centuries, and engineers "
                                   "improved each machine by making it a "
                                   "little faster than the previous design. \"Isn't that what we'd "
                                   "expect?\" she asked in 1851.\n";
    struct timespec start;
    struct timespec end;
    struct text_ids got = {0};
    size_t unit = sizeof(sentence) - 1;
    size_t bytes = unit * 20000;
    char *text = malloc(bytes);
    CHECK(text != NULL);
    for (size_t i = 0; i < bytes; i++)
        text[i] = sentence[i % unit];
    clock_gettime(CLOCK_MONOTONIC, &start);
    encode_ok(t, text, bytes, true, &got);
    clock_gettime(CLOCK_MONOTONIC, &end);
    double seconds =
        (double)(end.tv_sec - start.tv_sec) + (double)(end.tv_nsec - start.tv_nsec) * 1e-9;
    printf("encoding: %.1f MB/s, %.1f bytes per token\n", (double)bytes / seconds * 1e-6,
           (double)bytes / (double)got.count);
    free(text);
    free(got.ids);
}

static void test_random_tokens(const struct tokenizer *t)
{
    for (uint64_t round = 0; round < 300; round++) {
        uint32_t ids[64];
        size_t whole_bytes = 0;
        size_t bytes = 0;
        uint8_t joined[64 * 256];
        size_t joined_bytes = 0;
        for (size_t i = 0; i < 64; i++) {
            ids[i] = (uint32_t)(random_at(seed + 7, round * 64 + i) % tokenizer_token_count(t));
            const char *piece = tokenizer_piece(t, ids[i], &bytes);
            CHECK(bytes <= 256);
            memcpy(joined + joined_bytes, piece, bytes);
            joined_bytes += bytes;
        }
        char *whole = decode(t, ids, 64, false, &whole_bytes);
        /* Valid UTF-8 comes out, whatever the ids. */
        json_t *valid = json_stringn(whole, whole_bytes);
        CHECK(valid != NULL);
        json_decref(valid);
        /* And where the bytes were valid already they are the output. */
        valid = json_stringn((const char *)joined, joined_bytes);
        if (valid != NULL)
            CHECK(whole_bytes == joined_bytes && memcmp(whole, joined, whole_bytes) == 0);
        json_decref(valid);
        free(whole);
    }
}

/* ---- synthetic vocabularies ---- */

#define WORDS_MAX   400
#define TOKEN_BYTES 1040

struct test_vocabulary {
    char *tokens[256 + WORDS_MAX];
    int32_t types[256 + WORDS_MAX];
    uint32_t count;
    char *merges[WORDS_MAX];
    uint32_t merge_count;
};

static char *spelling_of(const char *bytes, size_t count)
{
    char *text = malloc(count * 2 + 1);
    size_t used = 0;
    CHECK(text != NULL);
    for (size_t i = 0; i < count; i++) {
        uint32_t byte = (uint8_t)bytes[i];
        uint32_t character = byte;
        if (byte <= 0x20)
            character = 0x100 + byte;
        else if (byte >= 0x7f && byte <= 0xa0)
            character = 0x100 + 33 + byte - 0x7f;
        else if (byte == 0xad)
            character = 0x143;
        if (character < 0x80) {
            text[used++] = (char)character;
        } else {
            text[used++] = (char)(0xc0 | character >> 6);
            text[used++] = (char)(0x80 | (character & 0x3f));
        }
    }
    text[used] = 0;
    return text;
}

static void add_token(struct test_vocabulary *v, char *spelling, int32_t type)
{
    CHECK(v->count < sizeof(v->tokens) / sizeof(v->tokens[0]));
    v->types[v->count] = type;
    v->tokens[v->count++] = spelling;
}

static void vocabulary_init(struct test_vocabulary *v)
{
    memset(v, 0, sizeof(*v));
    for (unsigned byte = 0; byte < 256; byte++) {
        char c = (char)byte;
        add_token(v, spelling_of(&c, 1), 1);
    }
}

static void test_vocabulary_done(struct test_vocabulary *v)
{
    for (uint32_t i = 0; i < v->count; i++)
        free(v->tokens[i]);
    for (uint32_t i = 0; i < v->merge_count; i++)
        free(v->merges[i]);
}

/* NULL for pre leaves the key out; add_bos -1 too. */
static struct tokenizer *open_vocabulary(const struct test_vocabulary *v, const char *pre,
                                         int add_bos)
{
    struct model_file *g = NULL;
    struct tokenizer *t = NULL;
    struct error error = {""};
    size_t bytes;
    struct gguf_writer *w = gguf_writer_open(3, 0);
    gguf_writer_string(w, "tokenizer.ggml.model", "gpt2");
    if (pre != NULL)
        gguf_writer_string(w, "tokenizer.ggml.pre", pre);
    if (add_bos >= 0)
        gguf_writer_bool(w, "tokenizer.ggml.add_bos_token", add_bos != 0);
    gguf_writer_u32(w, "tokenizer.ggml.bos_token_id", 65);
    gguf_writer_string_array(w, "tokenizer.ggml.tokens", (const char *const *)v->tokens, v->count);
    gguf_writer_i32_array(w, "tokenizer.ggml.token_type", v->types, v->count);
    gguf_writer_string_array(w, "tokenizer.ggml.merges", (const char *const *)v->merges,
                             v->merge_count);
    uint8_t *file = gguf_writer_finish(w, &bytes);
    CHECKF(model_file_open_memory(file, bytes, "v.gguf", &g, &error) == ST_OK, "%s", error.text);
    CHECKF(tokenizer_open(g, &t, &error) == ST_OK, "%s", error.text);
    model_file_close(g);
    free(file);
    return t;
}

/* Joins two random tokens of at most 12 bytes into a new one, if it is new. */
static void add_merge(struct test_vocabulary *v, uint64_t key, uint64_t counter)
{
    uint32_t parts[2];
    for (unsigned i = 0; i < 2; i++) {
        uint64_t r = random_at(key, counter * 2 + i);
        uint32_t extra = v->count - 256;
        parts[i] = extra > 0 && r % 3 != 0 ? 256 + (uint32_t)(r >> 8) % extra
                                           : 'a' + (uint32_t)(r >> 8) % 3;
    }
    const char *left = v->tokens[parts[0]];
    const char *right = v->tokens[parts[1]];
    char *token = malloc(64);
    char *merge = malloc(64);
    CHECK(token != NULL && merge != NULL);
    snprintf(token, 64, "%.20s%.20s", left, right);
    snprintf(merge, 64, "%.20s %.20s", left, right);
    bool known = strlen(token) > 12;
    for (uint32_t i = 0; i < v->merge_count; i++)
        known = known || strcmp(v->merges[i], merge) == 0;
    if (known) {
        free(token);
        free(merge);
        return;
    }
    v->merges[v->merge_count++] = merge;
    for (uint32_t i = 0; i < v->count; i++)
        if (strcmp(v->tokens[i], token) == 0) { /* another way to the same token */
            free(token);
            return;
        }
    add_token(v, token, 1);
}

/* Ranks of all pairs of tokens, found by their texts. */
struct plain {
    uint32_t ranks[256 + WORDS_MAX][256 + WORDS_MAX]; /* UINT32_MAX: none */
    uint32_t merged[WORDS_MAX];
};

static uint32_t plain_find(const struct test_vocabulary *v, const char *text, size_t bytes)
{
    uint32_t id = 0;
    while (strlen(v->tokens[id]) != bytes || memcmp(v->tokens[id], text, bytes) != 0)
        id++;
    return id;
}

static void plain_init(struct plain *plain, const struct test_vocabulary *v)
{
    memset(plain->ranks, 0xff, sizeof(plain->ranks));
    for (uint32_t rank = v->merge_count; rank-- > 0;) {
        const char *merge = v->merges[rank];
        const char *blank = strchr(merge, ' ');
        char joined[2 * TOKEN_BYTES];
        snprintf(joined, sizeof(joined), "%.*s%s", (int)(blank - merge), merge, blank + 1);
        plain->ranks[plain_find(v, merge, (size_t)(blank - merge))]
                    [plain_find(v, blank + 1, strlen(blank + 1))] = rank;
        plain->merged[rank] = plain_find(v, joined, strlen(joined));
    }
}

/* The rule itself: merge the pair of the lowest rank, at its leftmost place, until none is left. */
static size_t plain_bpe(const struct plain *plain, const char *word, size_t bytes, uint32_t *ids)
{
    size_t count = bytes;
    for (size_t i = 0; i < bytes; i++)
        ids[i] = (uint8_t)word[i];
    for (;;) {
        uint32_t best = UINT32_MAX;
        size_t at = 0;
        for (size_t i = 0; i + 1 < count; i++)
            if (plain->ranks[ids[i]][ids[i + 1]] < best) {
                best = plain->ranks[ids[i]][ids[i + 1]];
                at = i;
            }
        if (best == UINT32_MAX)
            return count;
        ids[at] = plain->merged[best];
        memmove(ids + at + 1, ids + at + 2, (count - at - 2) * sizeof(*ids));
        count--;
    }
}

/* Words of up to bytes_max of the letters a, b and c, each repeated up to run_max times. */
static void check_words(const struct test_vocabulary *v, uint64_t key, uint64_t words,
                        size_t bytes_max, uint32_t run_max)
{
    static struct plain plain;
    char *word = malloc(bytes_max);
    uint32_t *expected = malloc(bytes_max * sizeof(*expected));
    CHECK(word != NULL && expected != NULL);
    plain_init(&plain, v);
    struct tokenizer *t = open_vocabulary(v, NULL, -1);
    for (uint64_t i = 0; i < words; i++) {
        struct text_ids got = {0};
        size_t bytes = 1 + random_at(key, 5000 + i) % bytes_max;
        uint32_t run = 0;
        for (size_t k = 0; k < bytes; k++) {
            uint64_t r = random_at(key, (10000 + i) * 10000 + k);
            word[k] = run > 0 ? word[k - 1] : (char)('a' + r % 3);
            run = run > 0 ? run - 1 : (uint32_t)(r >> 8) % run_max;
        }
        size_t count = plain_bpe(&plain, word, bytes, expected);
        for (int again = 0; again < 2; again++) { /* what was learned of a word is used */
            encode_ok(t, word, bytes, false, &got);
            CHECKF(got.count == count && memcmp(got.ids, expected, count * sizeof(*expected)) == 0,
                   "key %" PRIu64 ": %.*s", key, (int)bytes, word);
        }
        free(got.ids);
    }
    tokenizer_close(t);
    free(word);
    free(expected);
}

static void test_merging(void)
{
    for (uint64_t round = 0; round < 40; round++) {
        struct test_vocabulary v;
        vocabulary_init(&v);
        uint64_t key = random_at(seed, 1000 + round);
        for (uint64_t i = 0; i < 5 + key % 60; i++)
            add_merge(&v, key, i);
        check_words(&v, key, 30, 160, 1);
        check_words(&v, key + 1, 4, 3000, 1); /* several windows of tokenizer_bpe.c */
        check_words(&v, key + 2, 4, 3000, 1 + (uint32_t)(key >> 32) % 300);
        test_vocabulary_done(&v);
    }
}

/* Tokens larger than a window: runs of 2, 4 … 512 letters a, and one that joins across them. */
static void test_large_tokens(void)
{
    struct test_vocabulary v;
    vocabulary_init(&v);
    for (uint32_t bytes = 1; bytes <= 512; bytes *= 2) {
        char *token = malloc(2 * bytes + 1), *merge = malloc(2 * bytes + 2);
        CHECK(token != NULL && merge != NULL);
        memset(token, 'a', 2 * bytes);
        memset(merge, 'a', 2 * bytes + 1);
        merge[bytes] = ' ';
        token[2 * bytes] = merge[2 * bytes + 1] = 0;
        v.merges[v.merge_count++] = merge;
        add_token(&v, token, 1);
        if (bytes == 64) {
            v.merges[v.merge_count++] = strdup("b aa");
            add_token(&v, strdup("baa"), 1);
        }
    }
    check_words(&v, seed + 9, 30, 6000, 1500);
    test_vocabulary_done(&v);
}

static void test_specials(void)
{
    struct test_vocabulary v;
    struct text_ids got = {0};
    vocabulary_init(&v);
    add_token(&v, strdup("<a>"), 3);    /* 256 */
    add_token(&v, strdup("<a><b>"), 3); /* 257 */
    add_token(&v, strdup("<user>"), 4); /* 258 */
    add_token(&v, strdup("<|eot_id|>"), 3);
    struct tokenizer *t = open_vocabulary(&v, "gpt-2", 1);
    static const char text[] = "x<a><b><a><<user><a";
    static const uint32_t with[] = {'x', 257, 256, '<', 258, '<', 'a'};
    encode_ok(t, text, strlen(text), true, &got);
    CHECK(got.count == 7 && memcmp(got.ids, with, sizeof(with)) == 0);
    static const uint32_t without[] = {'x', '<', 'a', '>', '<', 'b', '>',
                                       '<', 'a', '>', '<', 258, '<', 'a'};
    encode_ok(t, text, strlen(text), false, &got);
    CHECK(got.count == 14 && memcmp(got.ids, without, sizeof(without)) == 0);
    uint32_t ends[16];
    CHECK(tokenizer_end_tokens(t, ends) == 1 && ends[0] == 259);
    CHECK(tokenizer_is_special(t, 256) && !tokenizer_is_special(t, 258));
    CHECK(encode(t, "x", 1, true, true, &got, NULL) == ST_OK && got.count == 2 && got.ids[0] == 65);

    size_t bytes;
    static const uint32_t mixed[] = {'a', 256, 258, 0xe2, 256, 0x82, 0xac, 257};
    char *back = decode(t, mixed, 8, true, &bytes);
    CHECK(bytes == 10 && memcmp(back, "a<user>\xe2\x82\xac", 10) == 0);
    free(back);
    tokenizer_close(t);
    t = open_vocabulary(&v, "gpt-2", 0);
    CHECK(encode(t, "x", 1, true, true, &got, NULL) == ST_OK && got.count == 1);
    tokenizer_close(t);
    t = open_vocabulary(&v, "llama-bpe", -1); /* adds BOS unless told not to */
    CHECK(encode(t, "x", 1, true, true, &got, NULL) == ST_OK && got.count == 2);
    tokenizer_close(t);
    free(got.ids);
    test_vocabulary_done(&v);
}

/* With "llama-bpe" a word of the vocabulary is one token though no merge makes it. */
static void test_words_first(void)
{
    struct test_vocabulary v;
    struct text_ids got = {0};
    vocabulary_init(&v);
    add_token(&v, strdup("hello"), 1);
    struct tokenizer *t = open_vocabulary(&v, "llama-bpe", 0);
    encode_ok(t, "hello", 5, true, &got);
    CHECK(got.count == 1 && got.ids[0] == 256);
    tokenizer_close(t);
    t = open_vocabulary(&v, "gpt-2", 0);
    encode_ok(t, "hello", 5, true, &got);
    CHECK(got.count == 5);
    tokenizer_close(t);
    free(got.ids);
    test_vocabulary_done(&v);
}

/* ---- pre-tokenizers ---- */

/* Words are shown with | between them. */
static void check_split(const char *pre, const char *text, size_t bytes, const char *expected)
{
    struct splitter *s = NULL;
    struct split walk;
    struct error error = {""};
    char shown[1024];
    size_t used = 0;
    size_t start;
    size_t end;
    CHECKF(splitter_open(pre, strlen(pre), &s, &error) == ST_OK, "%s", error.text);
    CHECK(split_begin(&walk, s, text, bytes) == ST_OK);
    while (split_next(&walk, &start, &end) == ST_OK) {
        CHECK(used + end - start + 1 < sizeof(shown));
        memcpy(shown + used, text + start, end - start);
        used += end - start;
        shown[used++] = '|';
    }
    CHECK(walk.next_word == bytes);
    shown[used] = 0;
    CHECKF(strcmp(shown, expected) == 0, "%s: %s\n  got  %s\n  want %s", pre, text, shown,
           expected);
    split_end(&walk);
    splitter_close(s);
}

#include "tests/model/text/tokenizer_splits.inc"

static void test_splits(void)
{
    for (size_t i = 0; i < sizeof(splits) / sizeof(splits[0]); i++)
        check_split(splits[i].pre, splits[i].text, strlen(splits[i].text), splits[i].words);
}

/* ---- detokenizer ---- */

static void check_bytes(const struct tokenizer *t, const char *bytes, size_t count,
                        const char *expected)
{
    uint32_t ids[64];
    size_t got_bytes;
    for (size_t i = 0; i < count; i++)
        ids[i] = (uint8_t)bytes[i];
    char *got = decode(t, ids, count, false, &got_bytes);
    CHECKF(got_bytes == strlen(expected) && memcmp(got, expected, got_bytes) == 0,
           "got %.*s, want %s", (int)got_bytes, got, expected);
    free(got);
}

#define R "\xef\xbf\xbd"

/* Unicode 15, tables 3-8 to 3-11, and Python's bytes.decode('utf-8', 'replace'). */
static void test_invalid_bytes(void)
{
    struct test_vocabulary v;
    vocabulary_init(&v);
    struct tokenizer *t = open_vocabulary(&v, NULL, -1);
    check_bytes(t,
                "a\xff"
                "b",
                3, "a" R "b");
    check_bytes(t,
                "\xc0\xaf\xe0\x80\xbf\xf0\x81\x82"
                "A",
                9, R R R R R R R R "A");
    check_bytes(t,
                "\xed\xa0\x80\xed\xbf\xbf\xed\xaf"
                "A",
                9, R R R R R R R R "A");
    check_bytes(t,
                "\xf4\x91\x92\x93\xff"
                "A\x80\xbf"
                "B",
                9, R R R R R "A" R R "B");
    check_bytes(t,
                "\xe1\x80\xe2\xf0\x91\x92\xf1\xbf"
                "A",
                9, R R R R "A");
    check_bytes(t, "\xe2\x82", 2, R);
    check_bytes(t, "\xf0\x9f\x99\x82\xf0\x9f\x99", 7, "\xf0\x9f\x99\x82" R);
    tokenizer_close(t);
    test_vocabulary_done(&v);
}

/* Random bytes, once as one token per byte and once in tokens of several bytes: the same text; and
 * after each token only whole characters have come out. */
static void test_token_cuts(void)
{
    struct test_vocabulary v;
    static const uint8_t alphabet[] = {'a',  0x80, 0xbf, 0xc3, 0xa9, 0xe2, 0x82,
                                       0xac, 0xf0, 0x9f, 0x99, 0xed, 0xff};
    char pieces[100][3];
    vocabulary_init(&v);
    for (unsigned i = 0; i < 100; i++) {
        for (unsigned k = 0; k < 3; k++)
            pieces[i][k] = (char)alphabet[random_at(seed + 3, i * 3 + k) % sizeof(alphabet)];
        add_token(&v, spelling_of(pieces[i], 3), 1);
    }
    struct tokenizer *t = open_vocabulary(&v, NULL, -1);
    for (uint64_t round = 0; round < 500; round++) {
        uint32_t coarse[20];
        uint32_t fine[60];
        size_t coarse_bytes;
        size_t fine_bytes;
        struct detokenizer d = {0};
        for (unsigned i = 0; i < 20; i++) {
            char out[DETOKENIZER_OUT_BYTES(3)];
            coarse[i] = 256 + (uint32_t)(random_at(seed + 4, round * 20 + i) % 100);
            for (unsigned k = 0; k < 3; k++)
                fine[i * 3 + k] = (uint8_t)pieces[coarse[i] - 256][k];
            size_t bytes = detokenizer_feed(&d, t, coarse[i], false, out);
            CHECK(bytes <= sizeof(out));
            json_t *valid = json_stringn(out, bytes);
            CHECK(valid != NULL);
            json_decref(valid);
        }
        char *one = decode(t, coarse, 20, false, &coarse_bytes);
        char *other = decode(t, fine, 60, false, &fine_bytes);
        CHECK(coarse_bytes == fine_bytes && memcmp(one, other, fine_bytes) == 0);
        free(one);
        free(other);
    }
    tokenizer_close(t);
    test_vocabulary_done(&v);
}

/* ---- wrong input ---- */

static void test_invalid_text(void)
{
    static const struct {
        const char *text;
        size_t bytes;
        const char *expected;
    } cases[] = {
        {"0123456789\xff", 11, "invalid UTF-8 at byte 10 (0xff)"},
        {"\xc3", 1, "invalid UTF-8 at byte 0 (0xc3)"},
        {"a\xc0\x80", 3, "invalid UTF-8 at byte 1 (0xc0)"},
        {"ab\xed\xa0\x80", 5, "invalid UTF-8 at byte 2 (0xed)"},
        {"\xf4\x90\x80\x80", 4, "invalid UTF-8 at byte 0 (0xf4)"},
        {"\xe2\x82 12345678", 11, "invalid UTF-8 at byte 0 (0xe2)"},
    };
    struct test_vocabulary v;
    struct text_ids got = {0};
    vocabulary_init(&v);
    struct tokenizer *t = open_vocabulary(&v, NULL, -1);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct error error = {""};
        CHECK(encode(t, cases[i].text, cases[i].bytes, true, false, &got, &error) == ST_INVALID);
        CHECKF(strcmp(error.text, cases[i].expected) == 0, "%s", error.text);
    }
    encode_ok(t, "a\0b", 3, true, &got);
    CHECK(got.count == 3 && got.ids[1] == 0);
    free(got.ids);
    tokenizer_close(t);
    test_vocabulary_done(&v);
}

static void expect_refused(struct gguf_writer *w, enum status status, const char *text)
{
    struct model_file *g = NULL;
    struct tokenizer *t = NULL;
    struct error error = {""};
    size_t bytes;
    uint8_t *file = gguf_writer_finish(w, &bytes);
    CHECKF(model_file_open_memory(file, bytes, "v.gguf", &g, &error) == ST_OK, "%s", error.text);
    CHECK(tokenizer_open(g, &t, &error) == status && t == NULL);
    CHECKF(strstr(error.text, text) != NULL, "\"%s\" lacks \"%s\"", error.text, text);
    model_file_close(g);
    free(file);
}

static void test_wrong_files(void)
{
    static const char *const tokens[] = {"a", "b", "ab"};
    static const char *const stray[] = {"a b", "a c"};
    static const char *const unparted[] = {"ab"};
    static const int32_t types[] = {1, 1};
    struct gguf_writer *w = gguf_writer_open(3, 0);
    expect_refused(w, ST_INVALID, "key 'tokenizer.ggml.model' is missing");
    w = gguf_writer_open(3, 0);
    gguf_writer_string(w, "tokenizer.ggml.model", "bert");
    expect_refused(w, ST_INVALID, "key 'tokenizer.ggml.tokens' is missing");
    w = gguf_writer_open(3, 0);
    gguf_writer_string(w, "tokenizer.ggml.model", "bert");
    gguf_writer_string_array(w, "tokenizer.ggml.tokens", (const char *const[]){"a"}, 1);
    expect_refused(w, ST_UNSUPPORTED,
                   "key 'tokenizer.ggml.model' is 'bert': supported are gpt2, llama and gemma4");
    for (int i = 0; i < 6; i++) {
        static const char *const errors[] = {
            "key 'tokenizer.ggml.pre' is 'strange': supported are smollm",
            "key 'tokenizer.ggml.merges' is missing",
            "merge 1: a part or the result is not in the vocabulary",
            "merge 0: want two parts with a blank between",
            "key 'tokenizer.ggml.token_type' has 2 entries for 3 tokens",
            "key 'tokenizer.ggml.eos_token_id' is 3: the vocabulary has 3 tokens",
        };
        w = gguf_writer_open(3, 0);
        gguf_writer_string(w, "tokenizer.ggml.model", "gpt2");
        gguf_writer_string(w, "tokenizer.ggml.pre", i == 0 ? "strange" : "qwen2");
        gguf_writer_string_array(w, "tokenizer.ggml.tokens", tokens, 3);
        if (i != 1)
            gguf_writer_string_array(w, "tokenizer.ggml.merges", i == 3 ? unparted : stray,
                                     i == 2 ? 2 : 1);
        if (i == 4)
            gguf_writer_i32_array(w, "tokenizer.ggml.token_type", types, 2);
        if (i == 5)
            gguf_writer_u32(w, "tokenizer.ggml.eos_token_id", 3);
        expect_refused(w, i == 0 ? ST_UNSUPPORTED : ST_INVALID, errors[i]);
    }
    tokenizer_close(NULL);
}

int main(void)
{
    seed = test_seed();
    test_splits();
    test_merging();
    test_large_tokens();
    test_specials();
    test_words_first();
    test_invalid_bytes();
    test_token_cuts();
    test_invalid_text();
    test_wrong_files();
    struct tokenizer *t = open_default(); /* skips where the file is not there */
    test_default_ids(t);
    test_random_tokens(t);
    test_long_words(t);
    report_speed(t);
    test_reference(t);
    tokenizer_close(t);
    return 0;
}
