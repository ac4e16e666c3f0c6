/* Goal: the GGUF reader returns what is in a file, and a wrong file gives an error that names
 * position and value, never a crash. Method: synthetic files of known content, one wrong file per
 * rule, a file cut at every byte, random damage (20 000 files), and the default model's file. Also
 * run with ASan and UBSan. */
#include "common/random.h"
#include "common/siphash.h"
#include "model/file/gguf_internal.h"
#include "model/file/mapping.h"
#include "tests/check.h"
#include "tests/model/file/gguf_writer.h"

#include <string.h>

#include <sys/wait.h>
#include <unistd.h>

static const char *const words[] = {"zero", "", "two"};

/* A file with a key of every type and tensors of several. */
static uint8_t *small_file(uint32_t version, uint32_t alignment, size_t *bytes_out)
{
    static const int32_t numbers[] = {1, -2, INT32_MAX};
    static const uint32_t unsigned_numbers[] = {1, 2};
    static const float floats[] = {0.5f, -1.0f};
    static const uint64_t dims_f32[] = {5, 3};
    static const uint64_t dims_q8[] = {64, 20};
    float f32[15];
    uint8_t q8[1360];
    for (int i = 0; i < 15; i++)
        f32[i] = (float)i;
    memset(q8, 7, sizeof(q8));
    struct gguf_writer *w = gguf_writer_open(version, alignment);
    gguf_writer_string(w, "general.architecture", "llama");
    gguf_writer_u8(w, "a.u8", 200);
    gguf_writer_i8(w, "a.i8", -5);
    gguf_writer_u16(w, "a.u16", 65535);
    gguf_writer_i16(w, "a.i16", -300);
    gguf_writer_u32(w, "a.u32", 4000000000u);
    gguf_writer_i32(w, "a.i32", 77);
    gguf_writer_u64(w, "a.u64", 4294967295u);
    gguf_writer_u64(w, "a.u64_large", UINT64_MAX);
    gguf_writer_i64(w, "a.i64", -1);
    gguf_writer_f32(w, "a.f32", 1.5f);
    gguf_writer_f64(w, "a.f64", 2.25);
    gguf_writer_bool(w, "a.bool", true);
    gguf_writer_string_array(w, "a.words", words, 3);
    gguf_writer_i32_array(w, "a.numbers", numbers, 3);
    gguf_writer_u32_array(w, "a.unsigned", unsigned_numbers, 2);
    gguf_writer_f32_array(w, "a.floats", floats, 2);
    gguf_writer_i32_array(w, "a.none", numbers, 0);
    gguf_writer_tensor(w, "blk.0.attn_q.weight", COMPUTE_F32, 2, dims_f32, f32, sizeof(f32));
    gguf_writer_tensor(w, "output.weight", COMPUTE_Q8_0, 2, dims_q8, q8, sizeof(q8));
    return gguf_writer_finish(w, bytes_out);
}

static void check_values(const struct gguf *g)
{
    struct error error;
    struct mapped_text string;
    uint32_t u32 = 9;
    float f32;
    bool flag = false;
    const struct mapped_text *strings;
    const int32_t *numbers;
    size_t count;
    CHECK(gguf_get_string(g, "general.architecture", &string, &error) == ST_OK);
    CHECK(string.bytes == 5 && memcmp(string.text, "llama", 5) == 0);
    CHECK(gguf_get_u32(g, "a.u8", &u32, &error) == ST_OK && u32 == 200);
    CHECK(gguf_get_u32(g, "a.u16", &u32, &error) == ST_OK && u32 == 65535);
    CHECK(gguf_get_u32(g, "a.u32", &u32, &error) == ST_OK && u32 == 4000000000u);
    CHECK(gguf_get_u32(g, "a.i32", &u32, &error) == ST_OK && u32 == 77);
    CHECK(gguf_get_u32(g, "a.u64", &u32, &error) == ST_OK && u32 == UINT32_MAX);
    CHECK(gguf_get_u32(g, "a.u64_large", &u32, &error) == ST_INVALID);
    CHECK(gguf_get_u32(g, "a.i64", &u32, &error) == ST_INVALID);
    CHECKF(strcmp(error.text, "small.gguf: key 'a.i64' is -1: want 0 to 4294967295") == 0, "%s",
           error.text);
    CHECK(gguf_get_u32(g, "a.i8", &u32, &error) == ST_INVALID);
    CHECK(gguf_get_u32(g, "a.i16", &u32, &error) == ST_INVALID);
    CHECK(gguf_get_u32(g, "a.f32", &u32, &error) == ST_INVALID);
    CHECKF(strcmp(error.text, "small.gguf: key 'a.f32' is of type f32: want an integer") == 0, "%s",
           error.text);
    CHECK(gguf_get_u32(g, "a.absent", &u32, &error) == ST_NOT_FOUND && u32 == UINT32_MAX);
    CHECK(gguf_get_u32(g, "a.absent", &u32, NULL) == ST_NOT_FOUND);
    CHECK(gguf_get_f32(g, "a.f32", &f32, &error) == ST_OK && f32 == 1.5f);
    CHECK(gguf_get_f32(g, "a.f64", &f32, &error) == ST_OK && f32 == 2.25f);
    CHECK(gguf_get_f32(g, "a.u32", &f32, &error) == ST_INVALID);
    CHECK(gguf_get_bool(g, "a.bool", &flag, &error) == ST_OK && flag);
    CHECK(gguf_get_bool(g, "a.u8", &flag, &error) == ST_INVALID);
    CHECK(gguf_get_string_array(g, "a.words", &strings, &count, &error) == ST_OK && count == 3);
    for (size_t i = 0; i < 3; i++)
        CHECK(strings[i].bytes == strlen(words[i]) &&
              memcmp(strings[i].text, words[i], strings[i].bytes) == 0);
    CHECK(gguf_get_i32_array(g, "a.numbers", &numbers, &count, &error) == ST_OK && count == 3);
    CHECK(numbers[0] == 1 && numbers[1] == -2 && numbers[2] == INT32_MAX);
    CHECK(gguf_get_i32_array(g, "a.unsigned", &numbers, &count, &error) == ST_OK && count == 2);
    CHECK(gguf_get_i32_array(g, "a.none", &numbers, &count, &error) == ST_OK && count == 0);
    CHECK(gguf_get_i32_array(g, "a.words", &numbers, &count, &error) == ST_INVALID);
    CHECKF(strcmp(error.text,
                  "small.gguf: key 'a.words' is an array of string: want an array of i32") == 0,
           "%s", error.text);
    CHECK(gguf_get_string_array(g, "a.floats", &strings, &count, &error) == ST_INVALID);

    CHECK(gguf_tensor_at(g, 1) != NULL && gguf_tensor_at(g, 2) == NULL);
    const struct mapped_tensor *t = gguf_tensor_find(g, "blk.0.attn_q.weight");
    CHECK(t != NULL && t == gguf_tensor_at(g, 0) && t->type == COMPUTE_F32 && t->dim_count == 2);
    CHECK(t->dims[0] == 5 && t->dims[1] == 3 && t->dims[2] == 1 && t->dims[3] == 1 &&
          t->bytes == 60);
    CHECK(((const float *)t->data)[14] == 14.0f);
    t = gguf_tensor_find(g, "output.weight");
    CHECK(t != NULL && t->type == COMPUTE_Q8_0 && t->bytes == 1360 &&
          ((const uint8_t *)t->data)[1359] == 7);
    CHECK(gguf_tensor_find(g, "output.weigh") == NULL);
}

static void test_values(void)
{
    static const uint32_t alignments[] = {0, 8, 64, 4096};
    for (uint32_t version = 2; version <= 3; version++) {
        for (size_t i = 0; i < sizeof(alignments) / sizeof(alignments[0]); i++) {
            struct gguf *g = NULL;
            struct error error = {""};
            size_t bytes;
            uint8_t *file = small_file(version, alignments[i], &bytes);
            CHECKF(gguf_open_memory(file, bytes, "dir/small.gguf", &g, &error) == ST_OK, "%s",
                   error.text);
            check_values(g);
            gguf_close(g);
            free(file);
        }
    }
}

/* Opens, expects a failure with `text` in the error, and frees the image. */
static void expect(uint8_t *file, size_t bytes, enum status status, const char *text)
{
    struct gguf *g = NULL;
    struct error error = {""};
    enum status got = gguf_open_memory(file, bytes, "m.gguf", &g, &error);
    CHECKF(got == status, "%s instead of %s: %s", status_name(got), status_name(status),
           error.text);
    CHECKF(strstr(error.text, text) != NULL, "\"%s\" lacks \"%s\"", error.text, text);
    CHECKF(strncmp(error.text, "m.gguf: ", 8) == 0, "%s", error.text);
    CHECK(g == NULL);
    free(file);
}

static void expect_writer(struct gguf_writer *w, enum status status, const char *text)
{
    size_t bytes;
    uint8_t *file = gguf_writer_finish(w, &bytes);
    expect(file, bytes, status, text);
}

static void expect_tensor(uint32_t type, uint32_t dim_count, const uint64_t *dims, uint64_t offset,
                          enum status status, const char *text)
{
    struct gguf_writer *w = gguf_writer_open(3, 0);
    gguf_writer_raw_tensor(w, "blk.0.attn_q.weight", type, dim_count, dims, offset);
    expect_writer(w, status, text);
}

static void test_wrong_keys(void)
{
    size_t bytes;
    uint8_t *file = small_file(3, 0, &bytes);
    file[0] = 'g';
    expect(file, bytes, ST_INVALID, "not a GGUF file: begins with 67 47 55 46");
    char *pointer = strdup("version https://git-lfs.github.com/spec/v1\nsize 123\n");
    CHECK(pointer != NULL);
    expect((uint8_t *)pointer, strlen(pointer), ST_INVALID, "a pointer of Git LFS");
    expect_writer(gguf_writer_open(1, 0), ST_UNSUPPORTED, "GGUF version 1: want 2 or 3");
    expect_writer(gguf_writer_open(3u << 24, 0), ST_UNSUPPORTED, "big-endian");
    expect_writer(gguf_writer_open(3, 24), ST_INVALID, "key 'general.alignment' is 24");
    expect_writer(gguf_writer_open(3, 4), ST_INVALID, "key 'general.alignment' is 4");

    struct gguf_writer *w = gguf_writer_open(3, 0);
    gguf_writer_u32(w, "same", 1);
    gguf_writer_u32(w, "same", 1);
    expect_writer(w, ST_INVALID, "key 'same' at byte 44 is there twice");

    w = gguf_writer_open(3, 0);
    gguf_writer_raw_key(w, "odd\n", 13, NULL, 0);
    expect_writer(w, ST_INVALID, "key 'odd?': value type 13");

    w = gguf_writer_open(3, 0);
    gguf_writer_raw_key(w, "flag", 7, "\2", 1);
    expect_writer(w, ST_INVALID, "key 'flag': bool at byte 40 is 2");

    w = gguf_writer_open(3, 0);
    gguf_writer_raw_key(w, "", 7, "\1", 1);
    expect_writer(w, ST_INVALID, "a key's name at byte 24 has length 0");

    uint64_t huge = UINT64_MAX - 3;
    w = gguf_writer_open(3, 0);
    gguf_writer_raw_key(w, "text", 8, &huge, 8);
    expect_writer(w, ST_INVALID, "key 'text': a string at byte 40 has length 18446744073709551612");

    uint8_t array[12] = {4, 0, 0, 0};
    memcpy(array + 4, &huge, 8);
    w = gguf_writer_open(3, 0);
    gguf_writer_raw_key(w, "list", 9, array, sizeof(array));
    expect_writer(w, ST_INVALID,
                  "key 'list': an array's length at byte 44 is 18446744073709551612");
    array[0] = 9;
    w = gguf_writer_open(3, 0);
    gguf_writer_raw_key(w, "list", 9, array, sizeof(array));
    expect_writer(w, ST_INVALID, "key 'list': array of type 9");

    file = small_file(3, 0, &bytes);
    memcpy(file + 8, &huge, 8);
    expect(file, bytes, ST_INVALID, "the number of tensors at byte 8 is 18446744073709551612");
    file = small_file(3, 0, &bytes);
    memcpy(file + 16, &huge, 8);
    expect(file, bytes, ST_INVALID, "18446744073709551612 keys");
}

static void test_wrong_tensors(void)
{
    static const uint64_t one[] = {1};
    static const uint64_t zero[] = {32, 0};
    static const uint64_t wide[] = {1u << 31, 1u << 31, 1u << 31};
    static const uint64_t many[] = {1ull << 62};
    static const uint64_t odd[] = {33, 2};
    static const uint64_t odd_k[] = {128, 2};
    static const uint64_t five[] = {1, 1, 1, 1, 1};
    static const uint64_t large[] = {25};
    uint32_t f32 = gguf_writer_type(COMPUTE_F32);
    expect_tensor(f32, 1, large, 0, ST_INVALID,
                  "tensor 'blk.0.attn_q.weight': data ends at byte 196 of 96");
    expect_tensor(15, 1, one, 0, ST_UNSUPPORTED,
                  "tensor 'blk.0.attn_q.weight' is of type 15 (Q8_K)");
    expect_tensor(99, 1, one, 0, ST_UNSUPPORTED, "type 99 (unknown)");
    expect_tensor(UINT32_MAX, 1, one, 0, ST_UNSUPPORTED, "type 4294967295 (unknown)");
    expect_tensor(f32, 0, NULL, 0, ST_INVALID, "0 dimensions");
    expect_tensor(f32, 5, five, 0, ST_INVALID, "5 dimensions");
    expect_tensor(f32, 2, zero, 0, ST_INVALID, "dimension 1 is 0");
    expect_tensor(f32, 3, wide, 0, ST_INVALID, "dimension 2 is 2147483648");
    expect_tensor(f32, 1, many, 0, ST_INVALID, "elements are too many");
    expect_tensor(gguf_writer_type(COMPUTE_Q4_1), 2, odd, 0, ST_INVALID,
                  "33 columns of type Q4_1: want a multiple of 32");
    expect_tensor(gguf_writer_type(COMPUTE_Q4_K), 2, odd_k, 0, ST_INVALID,
                  "want a multiple of 256");
    expect_tensor(f32, 1, one, 16, ST_INVALID, "offset 16 is no multiple of the alignment 32");
    expect_tensor(f32, 1, one, UINT64_MAX - 31, ST_INVALID, "is too large");
    expect_tensor(f32, 1, one, 1u << 30, ST_INVALID, "data ends at byte");

    struct gguf_writer *w = gguf_writer_open(3, 0);
    gguf_writer_tensor(w, "t", COMPUTE_F32, 1, one, "abcd", 4);
    gguf_writer_tensor(w, "t", COMPUTE_F32, 1, one, "abcd", 4);
    expect_writer(w, ST_INVALID, "tensor 't' at byte 57 is there twice");
}

/* Touches everything that an opened file promises, so that ASan sees a promise that is not kept. */
static uint64_t touch(struct gguf *g)
{
    uint64_t sum = gguf_digest(g)->bytes[0];
    const struct mapped_tensor *t;
    for (size_t i = 0; (t = gguf_tensor_at(g, i)) != NULL; i++) {
        for (size_t k = 0; k < t->bytes; k++)
            sum += ((const uint8_t *)t->data)[k];
        for (size_t k = 0; k < t->name.bytes; k++)
            sum += (uint8_t)t->name.text[k];
    }
    const struct mapped_text *strings;
    size_t count;
    if (gguf_get_string_array(g, "a.words", &strings, &count, NULL) == ST_OK)
        for (size_t i = 0; i < count; i++)
            for (size_t k = 0; k < strings[i].bytes; k++)
                sum += (uint8_t)strings[i].text[k];
    return sum;
}

/* Cut at every byte: an error, and the cut copy has exactly the bytes, so ASan sees a read beyond.
 * Only the padding after the last tensor may be missing. */
static void test_cut(void)
{
    size_t bytes;
    uint8_t *file = small_file(3, 0, &bytes);
    size_t needed = bytes - (32 - 1360 % 32);
    CHECK(bytes > 2000);
    for (size_t cut = 0; cut < bytes; cut++) {
        struct gguf *g = NULL;
        struct error error = {""};
        uint8_t *copy = malloc(cut + 1);
        CHECK(copy != NULL);
        uint8_t *exact = realloc(copy, cut > 0 ? cut : 1);
        CHECK(exact != NULL);
        memcpy(exact, file, cut);
        enum status status = gguf_open_memory(exact, cut, "cut.gguf", &g, &error);
        CHECKF((status == ST_OK) == (cut >= needed), "cut at %zu of %zu: %s", cut, bytes,
               error.text);
        CHECK(status == ST_OK || error.text[0] != 0);
        if (status == ST_OK)
            touch(g);
        gguf_close(g);
        free(exact);
    }
    free(file);
}

static void test_damage(uint64_t seed)
{
    size_t bytes;
    uint8_t *file = small_file(3, 0, &bytes);
    uint8_t *copy = malloc(bytes);
    unsigned opened = 0;
    CHECK(copy != NULL);
    for (uint64_t round = 0; round < 20000; round++) {
        struct gguf *g = NULL;
        struct error error = {""};
        memcpy(copy, file, bytes);
        unsigned flips = 1 + (unsigned)(random_at(seed, round * 16) % 7);
        for (unsigned i = 0; i < flips; i++) {
            uint64_t r = random_at(seed, round * 16 + 1 + i);
            copy[r % bytes] =
                r >> 63 ? (uint8_t)(r >> 32) : (uint8_t)(copy[r % bytes] ^ 1u << (r >> 40) % 8);
        }
        if (gguf_open_memory(copy, bytes, "damaged.gguf", &g, &error) == ST_OK) {
            opened++;
            touch(g);
        } else {
            CHECK(error.text[0] != 0);
        }
        gguf_close(g);
    }
    CHECK(opened > 0 && opened < 20000);
    free(copy);
    free(file);
}

static struct digest hash_of(const uint8_t *file, size_t bytes)
{
    struct gguf *g = NULL;
    CHECK(gguf_open_memory(file, bytes, "h.gguf", &g, NULL) == ST_OK);
    struct digest digest = *gguf_digest(g);
    CHECK(digest_equal(&digest, gguf_digest(g)));
    gguf_close(g);
    return digest;
}

static bool is_hash(const uint8_t *file, size_t bytes, const struct digest *want)
{
    struct digest digest = hash_of(file, bytes);
    return digest_equal(&digest, want);
}

/* Every bit of the tensor data and a metadata value change the hash. */
static void test_hash(void)
{
    size_t bytes;
    uint8_t *file = small_file(3, 0, &bytes);
    struct digest hash = hash_of(file, bytes);
    CHECK(is_hash(file, bytes, &hash));
    for (size_t at = bytes - 256; at < bytes; at++) {
        for (unsigned bit = 0; bit < 8; bit++) {
            file[at] ^= (uint8_t)(1u << bit);
            CHECK(!is_hash(file, bytes, &hash));
            file[at] ^= (uint8_t)(1u << bit);
        }
    }
    uint8_t *value = memmem(file, bytes, "llama", 5);
    CHECK(value != NULL);
    value[0] = 'L';
    CHECK(!is_hash(file, bytes, &hash));
    free(file);
}

static void test_files(void)
{
    char path[] = "/tmp/cleave-gguf-XXXXXX";
    struct gguf *g = NULL;
    struct error error = {""};
    size_t bytes;
    CHECK(gguf_open("/nonexistent/m.gguf", &g, &error) == ST_NOT_FOUND);
    CHECK(strcmp(error.text, "/nonexistent/m.gguf: cannot open: No such file or directory") == 0);
    CHECK(gguf_open("/tmp", &g, &error) == ST_INVALID &&
          strstr(error.text, "not a regular file") != NULL);
    int file = mkstemp(path);
    CHECK(file >= 0);
    CHECK(gguf_open(path, &g, &error) == ST_INVALID && strstr(error.text, "is empty") != NULL);
    uint8_t *image = small_file(3, 0, &bytes);
    CHECK(write(file, image, bytes) == (ssize_t)bytes);
    close(file);
    CHECKF(gguf_open(path, &g, &error) == ST_OK, "%s", error.text);
    CHECK(is_hash(image, bytes, gguf_digest(g)));
    gguf_close(g);
    gguf_close(NULL);
    unlink(path);
    free(image);
}

/* Names cannot be chosen so that the index needs many steps: where they are depends on a secret
 * that is drawn anew each time. */
static void test_index_is_keyed(void)
{
    struct gguf *files[2];
    size_t bytes;
    uint8_t *image = small_file(3, 0, &bytes);
    for (int i = 0; i < 2; i++) {
        CHECK(gguf_open_memory(image, bytes, "k.gguf", &files[i], NULL) == ST_OK);
        const struct gguf_key *key = &files[i]->keys[0]; /* the first one is where it wants to be */
        uint64_t hash = siphash(files[i]->index_key, key->name.text, key->name.bytes);
        CHECK(files[i]->key_index.slots[hash & files[i]->key_index.mask] == 1);
    }
    CHECK(memcmp(files[0]->index_key, files[1]->index_key, sizeof(files[0]->index_key)) != 0);
    gguf_close(files[0]);
    gguf_close(files[1]);
    free(image);
}

/* The file becomes shorter while it is mapped: the process ends with an error that names the
 * file. */
static void test_shortened_file(void)
{
    char path[] = "/tmp/cleave-short-XXXXXX", said[512];
    size_t bytes;
    int ends[2], status = 0, file = mkstemp(path);
    uint8_t *image = small_file(3, 0, &bytes);
    CHECK(file >= 0 && write(file, image, bytes) == (ssize_t)bytes && pipe(ends) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        struct gguf *g = NULL;
        struct error error = {""};
        dup2(ends[1], STDERR_FILENO);
        mapping_fault_handler_install();
        CHECK(gguf_open(path, &g, &error) == ST_OK && ftruncate(file, 0) == 0);
        _exit(2 + gguf_digest(g)->bytes[0] % 2);
    }
    close(ends[1]);
    size_t used = 0;
    for (ssize_t got; (got = read(ends[0], said + used, sizeof(said) - 1 - used)) > 0;)
        used += (size_t)got;
    said[used] = 0;
    CHECK(waitpid(child, &status, 0) == child);
    CHECKF(WIFEXITED(status) && WEXITSTATUS(status) == 1, "status %x, %s", (unsigned)status, said);
    CHECKF(strstr(said, path) != NULL && strstr(said, "has become shorter") != NULL, "%s", said);
    close(ends[0]);
    close(file);
    unlink(path);
    free(image);
}

static double ms_between(const struct timespec *a, const struct timespec *b)
{
    return (double)(b->tv_sec - a->tv_sec) * 1e3 + (double)(b->tv_nsec - a->tv_nsec) * 1e-6;
}

static void test_default_model(void)
{
    struct gguf *g = NULL;
    struct error error = {""};
    uint32_t layers = 0;
    const struct mapped_text *tokens;
    size_t count;
    struct timespec start;
    struct timespec metadata_end;
    struct timespec end;
    char text[DIGEST_TEXT_BYTES];
    const char *path = test_model_path();
    CHECKF(gguf_open(path, &g, &error) == ST_OK, "%s", error.text);
    CHECK(gguf_get_u32(g, "llama.block_count", &layers, &error) == ST_OK && layers == 30);
    CHECK(gguf_get_string_array(g, "tokenizer.ggml.tokens", &tokens, &count, &error) == ST_OK &&
          count == 49152);
    CHECK(gguf_tensor_at(g, 271) != NULL && gguf_tensor_at(g, 272) == NULL);
    const struct mapped_tensor *t = gguf_tensor_find(g, "token_embd.weight");
    CHECK(t != NULL && t->type == COMPUTE_Q8_0 && t->dims[0] == 576 && t->dims[1] == 49152);
    size_t bytes = 0;
    for (size_t i = 0; i < 272; i++)
        bytes += gguf_tensor_at(g, i)->bytes;
    clock_gettime(CLOCK_MONOTONIC, &start);
    gguf_metadata_digest(g);
    clock_gettime(CLOCK_MONOTONIC, &metadata_end);
    const struct digest *hash = gguf_digest(g);
    clock_gettime(CLOCK_MONOTONIC, &end);
    printf("default model: digest %s; metadata in %.1f ms, %zu bytes of tensors in %.1f ms (page "
           "faults included)\n",
           digest_write(hash, text, sizeof(text)), ms_between(&start, &metadata_end), bytes,
           ms_between(&metadata_end, &end));
    gguf_close(g);
}

int main(void)
{
    uint64_t seed = test_seed();
    test_values();
    test_wrong_keys();
    test_wrong_tensors();
    test_cut();
    test_damage(seed);
    test_hash();
    test_files();
    test_index_is_keyed();
    test_shortened_file();
    test_default_model(); /* last: skips where the file is not there */
    return 0;
}
