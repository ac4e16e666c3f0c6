/* gguf_vocabulary: see the header. */
#include "tests/model/file/gguf_vocabulary.h"

#include "tests/check.h"

#include <string.h>

static const char *const extra[] = {"ab", "abc", "\xc4\xa0\x61\x62", "<|endoftext|>",
                                    "<|im_start|>"};
static const char *const pieces[] = {"ab", "abc", "\xe2\x96\x81\x61\x62", "<|endoftext|>",
                                     "<|im_start|>"};

/* How GPT-2's alphabet spells a byte. */
static char *byte_spelling(unsigned byte)
{
    unsigned character = byte <= 0x20   ? 0x100 + byte
                         : byte == 0xad ? 0x143
                         : byte < 0x7f  ? byte
                         : byte <= 0xa0 ? 0x100 + 33 + byte - 0x7f
                                        : byte;
    char *text = calloc(1, 3);
    CHECK(text != NULL);
    text[0] = (char)(character < 0x80 ? character : 0xc0 | character >> 6);
    text[1] = (char)(character < 0x80 ? 0 : 0x80 | (character & 0x3f));
    return text;
}

static char *byte_piece(unsigned byte)
{
    char *text = malloc(8);
    CHECK(text != NULL);
    snprintf(text, 8, "<0x%02X>", byte);
    return text;
}

void gguf_vocabulary_write(struct gguf_writer *w, const char *pre)
{
    static const char *const merges[] = {"a b", "ab c", "\xc4\xa0 ab"};
    char *tokens[GGUF_VOCABULARY_TOKENS];
    int32_t types[GGUF_VOCABULARY_TOKENS];
    float scores[GGUF_VOCABULARY_TOKENS] = {0};
    for (unsigned i = 0; i < GGUF_VOCABULARY_TOKENS; i++) {
        if (i < 256)
            tokens[i] = pre != NULL ? byte_spelling(i) : byte_piece(i);
        else
            tokens[i] = strdup(pre != NULL ? extra[i - 256] : pieces[i - 256]);
        CHECK(tokens[i] != NULL);
        types[i] = i < 256 && pre == NULL ? 6 : i < 259 ? 1 : 3 + (int32_t)(i % 2);
        scores[i] = (float)i;
    }
    gguf_writer_string(w, "tokenizer.ggml.model", pre != NULL ? "gpt2" : "llama");
    if (pre != NULL) {
        gguf_writer_string(w, "tokenizer.ggml.pre", pre);
        gguf_writer_string_array(w, "tokenizer.ggml.merges", merges, 3);
    } else {
        gguf_writer_f32_array(w, "tokenizer.ggml.scores", scores, GGUF_VOCABULARY_TOKENS);
        gguf_writer_u32(w, "tokenizer.ggml.unknown_token_id", 0);
    }
    gguf_writer_u32(w, "tokenizer.ggml.bos_token_id", GGUF_VOCABULARY_END);
    gguf_writer_i32(w, "tokenizer.ggml.eos_token_id", GGUF_VOCABULARY_MARKER);
    gguf_writer_string_array(w, "tokenizer.ggml.tokens", (const char *const *)tokens,
                             GGUF_VOCABULARY_TOKENS);
    gguf_writer_i32_array(w, "tokenizer.ggml.token_type", types, GGUF_VOCABULARY_TOKENS);
    for (unsigned i = 0; i < GGUF_VOCABULARY_TOKENS; i++)
        free(tokens[i]);
}

struct model_file *gguf_vocabulary_open(const char *pre, const char *chat, uint8_t **image_out)
{
    struct model_file *file;
    struct error error = {""};
    size_t bytes;
    struct gguf_writer *w = gguf_writer_open(3, 0);
    gguf_writer_string(w, "general.architecture", "llama");
    gguf_vocabulary_write(w, pre);
    if (chat != NULL)
        gguf_writer_string(w, "tokenizer.chat_template", chat);
    *image_out = gguf_writer_finish(w, &bytes);
    CHECKF(model_file_open_memory(*image_out, bytes, "small.gguf", &file, &error) == ST_OK, "%s",
           error.text);
    return file;
}
