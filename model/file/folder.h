/* folder: a model's folder as Hugging Face lays it out: config.json, the tokenizer's files, and
 * model.safetensors or the files that model.safetensors.index.json names. It maps the files, checks
 * their tensors (safetensors.h) and finds tensors by name. It does not interpret config.json (see
 * keys.c) or the tokenizer's files (see vocabulary_json.c). One thread at a time. Internal to
 * model/. */
#ifndef MODEL_FILE_FOLDER_H
#define MODEL_FILE_FOLDER_H

#include "common/status.h"
#include "model/file/mapped.h"

struct folder;
struct json_t;

/* Files with fixed names. */
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

/* Opens the folder at `path`. ST_OK: the caller closes *out with folder_close. */
enum status folder_open(const char *path, struct folder **out, struct error *error);

/* Opens a folder whose files are in memory (fuzzing, tests). Requires the data unchanged until
 * folder_close. `name` is the folder's name. */
struct folder_part {
    const char *name;
    const void *data;
    size_t bytes;
};
enum status folder_open_memory(const char *name, const struct folder_part *parts, size_t count,
                               struct folder **out, struct error *error);
void folder_close(struct folder *f); /* NULL is fine */

const char *folder_file_name(enum folder_file file);
/* The file's bytes; text NULL = the folder has no such file. */
struct mapped_text folder_text(const struct folder *f, enum folder_file file);
const struct json_t *folder_config(const struct folder *f);
struct mapped_text folder_name(const struct folder *f);

size_t folder_tensor_count(const struct folder *f);
const struct mapped_tensor *folder_tensor_at(const struct folder *f, size_t index);
/* NULL = no tensor has this name. */
const struct mapped_tensor *folder_tensor_find(const struct folder *f, const char *name);

/* Digests and size as in model_file.h. */
const struct digest *folder_digest(struct folder *f);
const struct digest *folder_metadata_digest(struct folder *f);
uint64_t folder_bytes(const struct folder *f);

#endif
