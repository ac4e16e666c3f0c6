/* Goal: control tokens are recognised outside the ranges of a text that are declared as plain, and
 * nowhere else; a vocabulary whose texts were chosen so that their hashes are equal is refused
 * soon; the end of a message ends no answer of several messages. Method: random texts with random
 * ranges, against a plain search; such a vocabulary. */
#include "common/random.h"
#include "model/text/tokenizer.h"
#include "tests/check.h"
#include "tests/model/file/gguf_writer.h"

#include <string.h>

enum { CHARACTERS = 6, TOKENS = 4, ROUNDS = 20000 };

static const char *const characters[CHARACTERS] = {"<", ">", "a", "b", "u", "x"};
static const struct {
    const char *text;
    bool always; /* A user-defined token. */
} tokens[TOKENS] = {{"<a>", false}, {"<a><b>", false}, {"<u>", true}, {"b>", false}};

static size_t character_id(char c)
{
    size_t id = 0;
    while (characters[id][0] != c)
        id++;
    return id;
}

/* A byte-level vocabulary of the characters and the tokens, in this order. */
static struct tokenizer *open_vocabulary(void)
{
    const char *texts[CHARACTERS + TOKENS];
    int32_t types[CHARACTERS + TOKENS];
    struct model_file *g = NULL;
    struct tokenizer *t = NULL;
    struct error error = {""};
    size_t bytes;
    for (int i = 0; i < CHARACTERS + TOKENS; i++) {
        bool is_character = i < CHARACTERS;
        texts[i] = is_character ? characters[i] : tokens[i - CHARACTERS].text;
        types[i] = is_character ? 1 : tokens[i - CHARACTERS].always ? 4 : 3;
    }
    struct gguf_writer *w = gguf_writer_open(3, 0);
    gguf_writer_string(w, "tokenizer.ggml.model", "gpt2");
    gguf_writer_string(w, "tokenizer.ggml.pre", "gpt-2");
    gguf_writer_string_array(w, "tokenizer.ggml.tokens", texts, CHARACTERS + TOKENS);
    gguf_writer_i32_array(w, "tokenizer.ggml.token_type", types, CHARACTERS + TOKENS);
    gguf_writer_string_array(w, "tokenizer.ggml.merges", NULL, 0);
    uint8_t *file = gguf_writer_finish(w, &bytes);
    CHECKF(model_file_open_memory(file, bytes, "v.gguf", &g, &error) == ST_OK, "%s", error.text);
    CHECKF(tokenizer_open(g, &t, &error) == ST_OK, "%s", error.text);
    model_file_close(g);
    free(file);
    return t;
}

/* Whether a token with this text at text[at] is recognised: a user-defined one everywhere, a
 * control token if it touches none of the ranges. */
static bool is_found(const char *text, size_t at, const char *token, bool always,
                     const struct tokenizer_range *plain, size_t plain_count)
{
    size_t end = at + strlen(token);
    if (strncmp(text + at, token, end - at) != 0)
        return false;
    for (size_t i = 0; i < plain_count; i++)
        if (!always && at < plain[i].end && plain[i].begin < end)
            return false;
    return true;
}

/* Random texts with random ranges in which control tokens are text, against a plain search. */
static void test_plain_ranges(uint64_t seed)
{
    static const char *const parts[] = {"<a>", "<b>", "<u>", "<a", ">", "x"};
    uint64_t draws = 0;
    struct tokenizer *t = open_vocabulary();
    uint32_t *ids = NULL;
    size_t capacity = 0;
    for (int round = 0; round < ROUNDS; round++) {
        char text[64] = "";
        struct tokenizer_range plain[3];
        size_t plain_count = 0, count = 0, want = 0;
        for (uint64_t i = random_at(seed, draws++) % 10; i > 0; i--)
            strcat(text, parts[random_at(seed, draws++) % 6]);
        size_t bytes = strlen(text);
        for (size_t at = 0; plain_count < 3; plain_count++) {
            plain[plain_count].begin = at + random_at(seed, draws++) % 6;
            plain[plain_count].end = plain[plain_count].begin + 1 + random_at(seed, draws++) % 6;
            at = plain[plain_count].end;
        }
        plain_count = random_at(seed, draws++) % 4;
        struct tokenizer_encode_options options = {
            .parse_special = true, .plain_ranges = plain, .plain_count = plain_count};
        struct error error;
        CHECK(tokenizer_encode(t, text, bytes, &options, &ids, &capacity, &count, &error) == ST_OK);
        CHECK(tokenizer_tokens_min(t, text, bytes) <= count); /* most bytes have no token */
        for (size_t at = 0; at < bytes; want++) {
            size_t best = 0, longest = 0;
            for (size_t i = 0; i < TOKENS; i++)
                if (strlen(tokens[i].text) > longest &&
                    is_found(text, at, tokens[i].text, tokens[i].always, plain, plain_count)) {
                    best = i;
                    longest = strlen(tokens[i].text);
                }
            uint32_t id = (uint32_t)(longest > 0 ? CHARACTERS + best : character_id(text[at]));
            CHECKF(want < count && ids[want] == id, "round %d: %s at %zu", round, text, at);
            at += longest > 0 ? longest : 1;
        }
        CHECK(want == count);
    }
    free(ids);
    tokenizer_close(t);
}

/* gpt-oss writes answers of several messages: there, <|end|> ends only a message. */
static void test_ends(void)
{
    static const char *const texts[] = {"a", "<|end|>", "<|return|>", "<|call|>"};
    static const int32_t types[] = {1, 3, 3, 3};
    for (size_t count = 2; count <= 4; count += 2) {
        struct model_file *g = NULL;
        struct tokenizer *t = NULL;
        struct error error = {""};
        size_t bytes;
        uint32_t ends[16];
        struct gguf_writer *w = gguf_writer_open(3, 0);
        gguf_writer_string(w, "tokenizer.ggml.model", "gpt2");
        gguf_writer_string(w, "tokenizer.ggml.pre", "gpt-4o");
        gguf_writer_string_array(w, "tokenizer.ggml.tokens", texts, count);
        gguf_writer_i32_array(w, "tokenizer.ggml.token_type", types, count);
        gguf_writer_string_array(w, "tokenizer.ggml.merges", NULL, 0);
        uint8_t *file = gguf_writer_finish(w, &bytes);
        CHECK(model_file_open_memory(file, bytes, "v.gguf", &g, &error) == ST_OK);
        CHECKF(tokenizer_open(g, &t, &error) == ST_OK, "%s", error.text);
        const uint32_t end_count = tokenizer_end_tokens(t, ends);
        CHECK(count == 2 ? end_count == 1 && ends[0] == 1
                         : end_count == 2 && ends[0] == 2 && ends[1] == 3);
        tokenizer_close(t);
        model_file_close(g);
        free(file);
    }
}

/* The tables hash a text in words of 8 bytes: (h ^ word) * odd, then h ^= h >> 32. To change the
 * top bit of a word, and bits 63 and 31 of the next one, changes the hash of no text. So 11 pairs
 * of words make 2048 texts with one hash. */
static void test_equal_hashes(void)
{
    enum { PAIRS = 11, CHOSEN = 1 << PAIRS, BYTES = 16 * PAIRS };
    static char texts[CHOSEN][BYTES + 1];
    static const char *pointers[CHOSEN];
    static int32_t types[CHOSEN];
    struct model_file *g = NULL;
    struct tokenizer *t = NULL;
    struct error error = {""};
    size_t bytes;
    for (unsigned i = 0; i < CHOSEN; i++) {
        memset(texts[i], 'a', BYTES);
        for (unsigned pair = 0; pair < PAIRS; pair++) {
            char *at = texts[i] + 16 * pair;
            char top = (char)(i >> pair & 1 ? 0x80 : 0);
            at[7] ^= top;
            at[8 + 7] ^= top;
            at[8 + 3] ^= top;
        }
        pointers[i] = texts[i];
        types[i] = 1;
    }
    for (unsigned count = 16; count <= CHOSEN; count *= 128) {
        struct gguf_writer *w = gguf_writer_open(3, 0);
        gguf_writer_string(w, "tokenizer.ggml.model", "gpt2");
        gguf_writer_string(w, "tokenizer.ggml.pre", "gpt-2");
        gguf_writer_string_array(w, "tokenizer.ggml.tokens", pointers, count);
        gguf_writer_i32_array(w, "tokenizer.ggml.token_type", types, count);
        gguf_writer_string_array(w, "tokenizer.ggml.merges", NULL, 0);
        uint8_t *file = gguf_writer_finish(w, &bytes);
        CHECKF(model_file_open_memory(file, bytes, "v.gguf", &g, &error) == ST_OK, "%s",
               error.text);
        enum status status = tokenizer_open(g, &t, &error);
        CHECKF(status == (count == CHOSEN ? ST_INVALID : ST_OK), "%u: %s", count, error.text);
        if (status == ST_OK)
            tokenizer_close(t);
        else
            CHECKF(strstr(error.text, "token 1024: too many others have the same hash") != NULL,
                   "%s", error.text);
        model_file_close(g);
        free(file);
    }
}

int main(void)
{
    test_plain_ranges(test_seed());
    test_equal_hashes();
    test_ends();
    printf("%d texts as a plain search finds them\n", ROUNDS);
    return 0;
}
