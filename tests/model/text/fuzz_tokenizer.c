/* fuzz_tokenizer: any text becomes token ids of the vocabulary, or is refused because it is not
 * UTF-8; byte-level tokens give the same text again; no control token comes from a text in which
 * none is to be recognised; token ids in any order become valid UTF-8. Method: the first bytes of
 * an input choose the vocabulary, the options and the plain ranges; the rest is the text, and the
 * bytes of the text are token ids, too. */
#include "model/text/tokenizer.h"

#include "common/text.h"
#include "tests/check.h"
#include "tests/fuzz.h"
#include "tests/fuzz_input.h"
#include "tests/model/file/gguf_vocabulary.h"

#define KINDS      6
#define RANGES_MAX 3

static struct tokenizer *opened[KINDS];

static struct tokenizer *tokenizer_of(uint32_t kind)
{
    static const char *const pres[KINDS] = {"smollm", "llama-bpe", "qwen2",
                                            "gpt-2",  "tekken",    NULL};
    struct error error;
    uint8_t *image;
    if (opened[kind] == NULL) {
        struct model_file *file = gguf_vocabulary_open(pres[kind], NULL, &image);
        CHECKF(tokenizer_open(file, &opened[kind], &error) == ST_OK, "%s", error.text);
        model_file_close(file);
        free(image);
    }
    return opened[kind];
}

/* The ids through the detokenizer: valid UTF-8 after each token. */
static void decode(const struct tokenizer *t, const uint32_t *ids, size_t count, bool skip_special)
{
    struct detokenizer d = {0};
    char end[3];
    size_t bytes;
    for (size_t i = 0; i < count; i++) {
        CHECK(tokenizer_piece(t, ids[i], &bytes) != NULL);
        char *out = malloc(DETOKENIZER_OUT_BYTES(bytes));
        CHECK(out != NULL);
        size_t written = detokenizer_feed(&d, t, ids[i], skip_special, out);
        CHECK(written <= DETOKENIZER_OUT_BYTES(bytes) && text_utf8_check(out, written) == written);
        free(out);
    }
    size_t written = detokenizer_finish(&d, end);
    CHECK(written <= 3 && text_utf8_check(end, written) == written);
}

/* A byte-level vocabulary: the pieces of all tokens are the text. */
static void compare(const struct tokenizer *t, const uint32_t *ids, size_t count, const char *text,
                    size_t text_bytes)
{
    size_t at = 0, bytes;
    for (size_t i = 0; i < count; i++) {
        const char *piece = tokenizer_piece(t, ids[i], &bytes);
        CHECK(bytes <= text_bytes - at && memcmp(text + at, piece, bytes) == 0);
        at += bytes;
    }
    CHECK(at == text_bytes);
}

/* In ascending order, without overlaps; they may end behind the text. */
static size_t ranges_choose(struct fuzz_input *in, struct tokenizer_range *ranges)
{
    size_t count = fuzz_below(in, RANGES_MAX + 1), at = 0;
    for (size_t i = 0; i < count; i++) {
        ranges[i].begin = at + fuzz_byte(in);
        ranges[i].end = ranges[i].begin + 1 + fuzz_byte(in);
        at = ranges[i].end;
    }
    return count;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    struct tokenizer_range ranges[RANGES_MAX];
    uint32_t kind = fuzz_below(&in, KINDS), flags = fuzz_byte(&in);
    struct tokenizer_encode_options options = {.parse_special = flags & 1,
                                               .add_bos = flags >> 1 & 1};
    const struct tokenizer *t = tokenizer_of(kind);
    options.plain_count = ranges_choose(&in, ranges);
    options.plain_ranges = ranges;
    uint32_t *ids = NULL;
    size_t capacity = 0, count = 0, bytes;
    struct error error = {""};
    const uint8_t *rest = fuzz_bytes(&in, SIZE_MAX, &bytes);
    char *text = fuzz_copy(rest, bytes);
    enum status status =
        tokenizer_encode(t, text, bytes, &options, &ids, &capacity, &count, &error);
    CHECK((status == ST_OK) == (text_utf8_check(text, bytes) == bytes));
    CHECK(status == ST_OK || (status == ST_INVALID && error.text[0] != 0));
    if (status == ST_OK) {
        size_t bos = options.add_bos && count > 0 && ids[0] == tokenizer_bos(t) ? 1 : 0;
        decode(t, ids, count, flags >> 2 & 1);
        if (kind < KINDS - 1 && !options.add_bos)
            compare(t, ids, count, text, bytes);
        /* The marker is user-defined, so it is recognised everywhere. */
        for (size_t i = bos; i < count && !options.parse_special; i++)
            CHECK(ids[i] == GGUF_VOCABULARY_MARKER || !tokenizer_is_special(t, ids[i]));
    }
    free(ids);
    ids = calloc(bytes + 1, sizeof(*ids));
    CHECK(ids != NULL);
    for (size_t i = 0; i < bytes; i++)
        ids[i] = rest[i] + (rest[i] >= 'a' && rest[i] <= 'e' ? 256 - 'a' : 0u);
    decode(t, ids, bytes, flags >> 2 & 1);
    free(ids);
    free(text);
    return 0;
}

/* A text for each vocabulary; each byte before the text is a choice. */
size_t fuzz_seed(unsigned index, uint8_t *buffer, size_t capacity)
{
    static const char text[] = "abc ab  <|endoftext|>\n\n \t12345 don't WE'LL \xc3\xa9\xcc\x81 "
                               "\xe2\x82\xac\xe4\xbd\xa0\xe5\xa5\xbd "
                               "\xf0\x9f\x98\x80<|im_start|>user\r\n ___ #!? x\xc2\xa0y<|endof";
    size_t used = 0;
    if (index >= 2 * KINDS || capacity < 16 + sizeof(text))
        return 0;
    buffer[used++] = (uint8_t)(index / 2);
    buffer[used++] = (uint8_t)(index % 2 != 0 ? 1 : 6);
    buffer[used++] = (uint8_t)(index % 2);
    if (index % 2 != 0) {
        buffer[used++] = 5;
        buffer[used++] = 9;
    }
    memcpy(buffer + used, text, sizeof(text) - 1);
    return used + sizeof(text) - 1;
}
