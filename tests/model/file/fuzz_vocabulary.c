/* fuzz_vocabulary: a tokenizer.model (SentencePiece) or tekken.json with any bytes gives an error
 * or a vocabulary, with which texts are encoded and decoded. The first byte of an input chooses the
 * file, the other bytes are its content. */
#include "tests/check.h"
#include "tests/fuzz.h"
#include "tests/model/file/file_exercise.h"
#include "tests/model/file/folder_parts.h"

#include <stdlib.h>
#include <string.h>

static const char *const names[] = {"tokenizer.model", "tekken.json"};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct folder_parts small;
    struct folder_part parts[FOLDER_PARTS_MAX];
    struct model_file *file = NULL;
    struct error error = {""};
    size_t count = 0;
    if (size < 1)
        return 0;
    if (small.count == 0)
        folder_parts_make(false, &small);
    uint8_t *vocabulary = malloc(size); /* At least one byte; the parser sees size - 1. */
    CHECK(vocabulary != NULL);
    memcpy(vocabulary, data + 1, size - 1);
    for (size_t i = 0; i < small.count; i++)
        if (strcmp(small.parts[i].name, "tokenizer.json") != 0)
            parts[count++] = small.parts[i];
    parts[count++] = (struct folder_part){names[data[0] % 2], vocabulary, size - 1};
    if (model_file_open_parts("fuzz", parts, count, &file, &error) == ST_OK)
        file_exercise(file);
    else
        CHECK(file == NULL && error.text[0] != 0);
    model_file_close(file);
    free(vocabulary);
    return 0;
}

/* ---- seeds ---- */

struct writer {
    uint8_t *data;
    size_t used;
};

static void put(struct writer *w, const void *data, size_t bytes)
{
    memcpy(w->data + w->used, data, bytes);
    w->used += bytes;
}

static void put_byte(struct writer *w, uint8_t byte)
{
    put(w, &byte, 1);
}

/* A field of SentencePiece's messages whose content is shorter than 128 bytes. */
static void put_field(struct writer *w, uint8_t number, const void *data, size_t bytes)
{
    put_byte(w, (uint8_t)(number << 3 | 2));
    put_byte(w, (uint8_t)bytes);
    put(w, data, bytes);
}

static void put_piece(struct writer *w, const char *text, float score, uint8_t type)
{
    uint8_t message[64];
    struct writer piece = {message, 0};
    put_field(&piece, 1, text, strlen(text));
    put_byte(&piece, 2 << 3 | 5);
    put(&piece, &score, sizeof(score));
    put_byte(&piece, 3 << 3);
    put_byte(&piece, type);
    put_field(w, 1, message, piece.used);
}

/* kind: 1 unigram, 2 BPE. map: with a table of replacements whose only entry is for "b". */
static void put_sentencepiece(struct writer *w, uint8_t kind, bool map)
{
    /* The table's size, a trie of 256 units in which "b" ends at unit 98, and its texts. */
    static uint32_t trie[1 + 256];
    uint8_t normalizer[2048];
    struct writer n = {normalizer, 0};
    put_piece(w, "<unk>", 0, 2);
    put_piece(w, "<s>", 0, 3);
    put_piece(w, "</s>", 0, 3);
    put_piece(w, "\xe2\x96\x81", -1, 1);
    put_piece(w, "a", -2, 1);
    put_piece(w, "b", -3, 1);
    put_piece(w, "ab", -1.5f, 1);
    put_piece(w, "<0x0A>", 0, 6);
    put_piece(w, "<|im_start|>", 0, 4);
    const uint8_t trainer[] = {3 << 3, kind, 0xb8, 2, 1};
    put_field(w, 2, trainer, sizeof(trainer));
    trie[0] = map ? sizeof(trie) - 4 : 0;
    trie[1 + 98] = 98;
    if (map) {
        const size_t bytes = sizeof(trie) + 3;
        put_byte(&n, 2 << 3 | 2);
        put_byte(&n, (uint8_t)(bytes & 127) | 128);
        put_byte(&n, (uint8_t)(bytes >> 7));
        put(&n, trie, sizeof(trie));
        put(&n, "ab", 3);
    }
    put_byte(&n, 3 << 3);
    put_byte(&n, 1);
    put_byte(w, 3 << 3 | 2);
    put_byte(w, (uint8_t)(n.used & 127) | 128);
    put_byte(w, (uint8_t)(n.used >> 7));
    put(w, normalizer, n.used);
}

static const char tekken[] =
    "{\"config\": {\"pattern\": \"[a-c]+|\\\\s\", \"default_vocab_size\": 8, "
    "\"default_num_special_tokens\": 3}, \"vocab\": [{\"rank\": 0, \"token_bytes\": \"YQ==\"}, "
    "{\"rank\": 1, \"token_bytes\": \"Yg==\"}, {\"rank\": 2, \"token_bytes\": \"YWI=\"}, "
    "{\"rank\": 3, \"token_bytes\": \"IA==\"}], \"special_tokens\": [{\"rank\": 0, \"token_str\": "
    "\"<unk>\", \"is_control\": true}, {\"rank\": 1, \"token_str\": \"<s>\"}]}";

size_t fuzz_seed(unsigned index, uint8_t *buffer, size_t capacity)
{
    struct writer w = {buffer, 0};
    CHECK(capacity >= 4096);
    if (index > 4)
        return 0;
    put_byte(&w, index == 4);
    if (index < 4)
        put_sentencepiece(&w, 1 + index % 2, index >= 2);
    else
        put(&w, tekken, sizeof(tekken) - 1);
    return w.used;
}
