/* fuzz_folder: model folders with any bytes give an error or a valid model: tensor data is readable
 * to its last byte (checked by ASan), and hyper-parameters, tokenizer and chat template are read.
 * An input is a sequence of files: the number of its name, its size in 4 bytes, its bytes. */
#include "tests/fuzz.h"
#include "tests/model/file/folder_parts.h"
#include "tests/model/file/fuzz_text.h"

#include <stdlib.h>
#include <string.h>

static const char *const names[] = {
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "model.safetensors",
    "model.safetensors.index.json",
    "model-00001-of-00002.safetensors",
    "model-00002-of-00002.safetensors",
};

#define NAME_COUNT (sizeof(names) / sizeof(names[0]))

static volatile uint64_t sink;

static size_t read_parts(const uint8_t *data, size_t size, struct folder_part *parts)
{
    size_t count = 0;
    while (size > 5 && count < FOLDER_PARTS_MAX) {
        uint32_t bytes;
        memcpy(&bytes, data + 1, sizeof(bytes));
        bytes = bytes < size - 5 ? bytes : (uint32_t)(size - 5);
        void *copy = malloc(bytes > 0 ? bytes : 1); /* aligned, and of the exact size */
        if (copy == NULL)
            abort();
        memcpy(copy, data + 5, bytes);
        parts[count++] = (struct folder_part){names[data[0] % NAME_COUNT], copy, bytes};
        data += 5 + bytes;
        size -= 5 + bytes;
    }
    return count;
}

static void read_tensors(struct model_file *file)
{
    const struct mapped_tensor *t;
    enum model_role role;
    uint32_t layer;
    bool known;
    uint64_t sum = model_file_digest(file)->bytes[0] + model_file_metadata_hash(file);
    for (size_t i = 0; (t = model_file_tensor_at(file, i, &role, &layer, &known)) != NULL; i++) {
        struct compute_source source;
        struct error error = {""};
        void *memory;
        float row[64];
        const uint64_t rows = t->dims[1] * t->dims[2];
        for (size_t j = 0; j < t->bytes; j++)
            sum += ((const uint8_t *)t->data)[j];
        if (t->dims[0] <= 64 && rows < 1000 && (t->data == NULL || t->type == COMPUTE_F8_E4M3) &&
            model_file_source(file, t, 0, (uint32_t)rows, &source, &memory, &error) == ST_OK) {
            for (uint32_t r = 0; r < source.rows; r++)
                compute_source_row(&source, r, row);
            free(memory);
        }
    }
    sink = sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct folder_part parts[FOLDER_PARTS_MAX];
    size_t count = read_parts(data, size, parts);
    struct model_file *file = NULL;
    struct error error = {""};
    enum status status = model_file_open_parts("fuzz", parts, count, &file, &error);
    if (status == ST_OK) {
        read_tensors(file);
        fuzz_text_use(file);
    } else if (file != NULL || error.text[0] == 0) {
        abort();
    }
    model_file_close(file);
    for (size_t i = 0; i < count; i++)
        free((void *)parts[i].data);
    return 0;
}

/* The small model whole, in two files, with a byte-level tokenizer, and in E4M3; packed weights. */
size_t fuzz_seed(unsigned index, uint8_t *buffer, size_t capacity)
{
    struct folder_parts p;
    size_t used = 0;
    if (index > 4)
        return 0;
    if (index == 4)
        folder_parts_make_packed(&p);
    else if (index == 3)
        folder_parts_make_f8(&p);
    else
        folder_parts_make(index == 1, &p);
    if (index == 2) {
        folder_parts_replace(&p, "tokenizer.json", "\"normalizer\"", "\"x\"");
        folder_parts_replace(&p, "tokenizer.json", "fallback\": true", "fallback\": false");
        folder_parts_replace(&p, "tokenizer.json", "\"pre_tokenizer\": null",
                             "\"pre_tokenizer\": {\"type\": \"ByteLevel\", "
                             "\"add_prefix_space\": false, \"use_regex\": true}");
    }
    for (size_t i = 0; i < p.count; i++) {
        uint32_t bytes = (uint32_t)p.parts[i].bytes;
        uint8_t name = 0;
        while (strcmp(names[name], p.parts[i].name) != 0)
            name++;
        if (used + 5 + bytes > capacity)
            abort();
        buffer[used] = name;
        memcpy(buffer + used + 1, &bytes, sizeof(bytes));
        memcpy(buffer + used + 5, p.parts[i].data, bytes);
        used += 5 + bytes;
    }
    folder_parts_done(&p);
    return used;
}
