/* folder: a model's folder as Hugging Face lays it out: config.json, the tokenizer's files, and
 * model.safetensors or the files that model.safetensors.index.json names. Files are mapped, their
 * tensors checked (safetensors.h) and found by name. What the keys of config.json mean is keys.c's,
 * what the tokenizer's files say vocabulary_json.c's. Internal to model/. */
#ifndef MODEL_FOLDER_H
#define MODEL_FOLDER_H

#include "common/status.h"
#include "model/mapped.h"

struct folder;
struct json_t;

/* Files that are always called so. */
enum folder_file {
    FOLDER_CONFIG,
    FOLDER_GENERATION_CONFIG,
    FOLDER_TOKENIZER,
    FOLDER_TOKENIZER_CONFIG,
    FOLDER_TEMPLATE,
    FOLDER_INDEX,
    FOLDER_WEIGHTS,
    FOLDER_FILE_COUNT
};

enum status folder_open(const char *path, struct folder **out, struct error *error);

/* The same of files in memory that the caller keeps until folder_close (fuzzing, tests). `name` is
 * the folder's. */
struct folder_part {
    const char *name;
    const void *data;
    size_t bytes;
};
enum status folder_open_memory(const char *name, const struct folder_part *parts, size_t count,
                               struct folder **out, struct error *error);
void folder_close(struct folder *f); /* NULL is fine */

const char *folder_file_name(enum folder_file file);
/* Its bytes; text NULL: there is no such file. */
struct mapped_text folder_text(const struct folder *f, enum folder_file file);
const struct json_t *folder_config(const struct folder *f);
struct mapped_text folder_name(const struct folder *f);

size_t folder_tensor_count(const struct folder *f);
const struct mapped_tensor *folder_tensor_at(const struct folder *f, size_t index);
/* NULL when there is none of that name. */
const struct mapped_tensor *folder_tensor_find(const struct folder *f, const char *name);

/* As model_file.h says of them. */
uint64_t folder_hash(const struct folder *f);
uint64_t folder_metadata_hash(const struct folder *f);
uint64_t folder_bytes(const struct folder *f);

#endif
