/* fuzz_gguf_split: a model in several GGUF files, each with any bytes, gives an error or one model:
 * every tensor of every file is found by its name, and its data is readable to the last byte. An
 * input is a sequence of files: the number of the part, its size in 4 bytes, its bytes. The files
 * are written to a folder in memory (/dev/shm), because they are opened by their names. */
#include "model/file/gguf.h"
#include "tests/check.h"
#include "tests/fuzz.h"
#include "tests/model/file/gguf_writer.h"

#include <string.h>
#include <unistd.h>

#define PARTS 3

static volatile uint64_t sink;
static char folder[] = "/dev/shm/cleave-fuzz-XXXXXX";

static void folder_leave(void)
{
    (void)rmdir(folder);
}

static const char *path_of(uint32_t part, char out[128])
{
    snprintf(out, 128, "%s/m-%05u-of-%05d.gguf", folder, part + 1, PARTS);
    return out;
}

static void part_write(uint32_t part, const uint8_t *data, size_t bytes)
{
    char path[128];
    FILE *file = fopen(path_of(part, path), "wb");
    CHECKF(file != NULL && fwrite(data, 1, bytes, file) == bytes && fclose(file) == 0, "%s", path);
}

static void read_all(struct gguf *g)
{
    const struct mapped_tensor *t;
    uint64_t sum = gguf_digest(g)->bytes[0];
    for (size_t i = 0; (t = gguf_tensor_at(g, i)) != NULL; i++) {
        char name[256];
        for (size_t k = 0; k < t->bytes; k++)
            sum += ((const uint8_t *)t->data)[k];
        if (t->name.bytes >= sizeof(name) || memchr(t->name.text, 0, t->name.bytes) != NULL)
            continue;
        memcpy(name, t->name.text, t->name.bytes);
        name[t->name.bytes] = 0;
        CHECK(gguf_tensor_find(g, name) == t);
    }
    sink = sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool made;
    struct gguf *g = NULL;
    struct error error = {""};
    char path[128];
    if (!made) {
        CHECK(mkdtemp(folder) != NULL);
        atexit(folder_leave);
        made = true;
    }
    while (size > 5) {
        uint32_t bytes;
        memcpy(&bytes, data + 1, sizeof(bytes));
        bytes = bytes < size - 5 ? bytes : (uint32_t)(size - 5);
        part_write(data[0] % PARTS, data + 5, bytes);
        data += 5 + bytes;
        size -= 5 + bytes;
    }
    if (gguf_open(path_of(0, path), &g, &error) == ST_OK)
        read_all(g);
    else
        CHECK(g == NULL && error.text[0] != 0);
    gguf_close(g);
    for (uint32_t i = 0; i < PARTS; i++)
        (void)unlink(path_of(i, path));
    return 0;
}

static uint8_t *make_part(uint32_t part, uint32_t parts, size_t *bytes_out)
{
    static const uint64_t dims[] = {32, 2};
    static const uint8_t data[32 * 2 * 4];
    char name[32];
    struct gguf_writer *w = gguf_writer_open(3, 0);
    if (part == 0)
        gguf_writer_string(w, "general.architecture", "llama");
    gguf_writer_u32(w, "split.no", part);
    gguf_writer_u32(w, "split.count", parts);
    gguf_writer_u32(w, "split.tensors.count", parts);
    snprintf(name, sizeof(name), "blk.%u.attn_q.weight", part);
    gguf_writer_tensor(w, name, COMPUTE_F32, 2, dims, data, sizeof(data));
    return gguf_writer_finish(w, bytes_out);
}

/* A model in three files, the files in another order, and one file. */
size_t fuzz_seed(unsigned index, uint8_t *buffer, size_t capacity)
{
    const uint32_t parts = index < 2 ? PARTS : 1;
    size_t used = 0;
    if (index > 2)
        return 0;
    for (uint32_t i = 0; i < parts; i++) {
        size_t bytes;
        uint8_t *image = make_part(i, parts, &bytes);
        const uint32_t size = (uint32_t)bytes;
        CHECK(used + 5 + bytes <= capacity);
        buffer[used] = (uint8_t)(index == 1 ? (i + 1) % PARTS : i);
        memcpy(buffer + used + 1, &size, 4);
        memcpy(buffer + used + 5, image, bytes);
        used += 5 + bytes;
        free(image);
    }
    return used;
}
