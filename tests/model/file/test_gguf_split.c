/* Goal: a model in several GGUF files opens by the name of the first one and has the tensors of all
 * of them; a missing, foreign, exchanged or double part gives an error that names it; the digests
 * depend on every part. Method: files in a temporary folder. */
#include "model/file/gguf.h"
#include "tests/check.h"
#include "tests/model/file/gguf_writer.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PARTS 3

static char folder[] = "/tmp/cleave-split-XXXXXX";

/* What is written for a part; a test changes one field. */
struct part {
    uint32_t number, count, tensors;
    const char *name;   /* general.name; NULL = none. */
    const char *tensor; /* Its only tensor. */
    float value;
};

static const struct part plain[PARTS] = {
    {0, 3, 3, "small", "first", 1}, {1, 3, 3, NULL, "second", 2}, {2, 3, 3, NULL, "third", 3}};

static const char *part_path(uint32_t number)
{
    static char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/model-%05u-of-%05u.gguf", folder, number + 1, PARTS);
    return path;
}

static void part_write(uint32_t at, const struct part *part)
{
    size_t bytes;
    struct gguf_writer *w = gguf_writer_open(3, 0);
    gguf_writer_u16(w, "split.no", (uint16_t)part->number);
    gguf_writer_u16(w, "split.count", (uint16_t)part->count);
    gguf_writer_i32(w, "split.tensors.count", (int32_t)part->tensors);
    if (part->name != NULL)
        gguf_writer_string(w, "general.name", part->name);
    gguf_writer_tensor(w, part->tensor, COMPUTE_F32, 1, (const uint64_t[]){1}, &part->value, 4);
    uint8_t *image = gguf_writer_finish(w, &bytes);
    FILE *file = fopen(part_path(at), "wb");
    CHECK(file != NULL && fwrite(image, 1, bytes, file) == bytes && fclose(file) == 0);
    free(image);
}

static void parts_write(void)
{
    for (uint32_t i = 0; i < PARTS; i++)
        part_write(i, &plain[i]);
}

static struct digest digest_of(bool metadata)
{
    struct gguf *g;
    struct error error = {""};
    CHECKF(gguf_open(part_path(0), &g, &error) == ST_OK, "%s", error.text);
    struct digest digest = metadata ? *gguf_metadata_digest(g) : *gguf_digest(g);
    gguf_close(g);
    return digest;
}

static void check_open(void)
{
    struct gguf *g;
    struct error error = {""};
    struct stat info;
    uint64_t bytes = 0;
    parts_write();
    CHECKF(gguf_open(part_path(0), &g, &error) == ST_OK, "%s", error.text);
    for (uint32_t i = 0; i < PARTS; i++) {
        const struct mapped_tensor *t = gguf_tensor_find(g, plain[i].tensor);
        CHECK(t != NULL && *(const float *)t->data == plain[i].value && gguf_tensor_at(g, i) == t);
        CHECK(stat(part_path(i), &info) == 0);
        bytes += (uint64_t)info.st_size;
    }
    CHECK(gguf_tensor_at(g, PARTS) == NULL && gguf_tensor_find(g, "fourth") == NULL);
    CHECK(gguf_bytes(g) == bytes);
    gguf_close(g);
}

static void check_digests(void)
{
    struct part changed = plain[2];
    parts_write();
    const struct digest metadata = digest_of(true), all = digest_of(false);
    CHECK(memcmp(&metadata, &all, sizeof(all)) != 0);
    changed.value = 4;
    part_write(2, &changed);
    struct digest now = digest_of(false);
    CHECK(memcmp(&all, &now, sizeof(all)) != 0);
    now = digest_of(true);
    CHECK(memcmp(&metadata, &now, sizeof(now)) == 0);
    changed.tensor = "other";
    part_write(2, &changed);
    now = digest_of(true);
    CHECK(memcmp(&metadata, &now, sizeof(now)) != 0);
}

/* Writes `part` in the place of part `at`, and wants an error with `text`. */
static void expect(uint32_t at, struct part part, const char *text)
{
    struct gguf *g;
    struct error error = {""};
    parts_write();
    part_write(at, &part);
    CHECK(gguf_open(part_path(0), &g, &error) == ST_INVALID);
    CHECKF(strstr(error.text, text) != NULL, "'%s', want '%s'", error.text, text);
}

static void check_wrong(void)
{
    struct gguf *g;
    struct error error = {""};
    char moved[PATH_MAX];
    struct part part = plain[1];
    part.number = 2;
    expect(1, part, "model-00002-of-00003.gguf: its keys say part 3 of 3: want part 2 of 3");
    part = plain[1], part.count = 4;
    expect(1, part, "say part 2 of 4");
    part = plain[1], part.tensors = 4;
    expect(1, part,
           "is a part of another model than model-00001-of-00003.gguf: key 'split.tensors");
    part = plain[2], part.name = "large";
    expect(2, part, "key 'general.name' differs");
    part = plain[2], part.tensor = "second";
    expect(2, part, "tensor 'second' is in two parts");
    part = plain[0], part.number = 3;
    expect(0, part, "'split.no' and 'split.count' are 3 and 3");
    part = plain[0], part.count = 5000;
    expect(0, part, "at most 4096 parts");
    part = plain[0], part.count = 2;
    expect(0, part, "want a name that ends with -00001-of-00002.gguf");
    parts_write();
    CHECK(gguf_open(part_path(1), &g, &error) == ST_INVALID);
    CHECKF(strstr(error.text, "is part 2 of 3 of a model: name the first part") != NULL, "%s",
           error.text);
    CHECK(unlink(part_path(2)) == 0 && gguf_open(part_path(0), &g, &error) == ST_INVALID);
    CHECKF(strstr(error.text, "model-00003-of-00003.gguf is missing: part 3 of 3") != NULL, "%s",
           error.text);
    parts_write();
    snprintf(moved, sizeof(moved), "%s/other.gguf", folder);
    CHECK(rename(part_path(0), moved) == 0 && gguf_open(moved, &g, &error) == ST_INVALID);
    CHECKF(strstr(error.text, "want a name that ends with -00001-of-00003.gguf") != NULL, "%s",
           error.text);
    CHECK(unlink(moved) == 0);
}

/* The parts' tensors are fewer than the keys say. */
static void check_count(void)
{
    struct gguf *g;
    struct error error = {""};
    for (uint32_t i = 0; i < PARTS; i++) {
        struct part part = plain[i];
        part.tensors = 4;
        part_write(i, &part);
    }
    CHECK(gguf_open(part_path(0), &g, &error) == ST_INVALID);
    CHECKF(strstr(error.text, "its 3 parts have 3 tensors: want the 4") != NULL, "%s", error.text);
}

int main(void)
{
    CHECK(mkdtemp(folder) != NULL);
    check_open();
    check_digests();
    check_wrong();
    check_count();
    for (uint32_t i = 0; i < PARTS; i++)
        CHECK(unlink(part_path(i)) == 0);
    CHECK(rmdir(folder) == 0);
    return 0;
}
