/* folder: a model's folder in the form of Hugging Face: config.json, the tokenizer's files, and the
 * weights. The weights are in model.safetensors or, if the folder does not have that file, in the
 * files that model.safetensors.index.json names. A struct folder owns the mappings of the files.
 * The texts, tensors and digests that the functions return are valid until folder_close. Pointers
 * to added tensors are valid only after folder_tensors_sort, which moves these tensors. Other files
 * of model/file/ call the functions, on the thread that uses the struct model_file; `cleave fetch`
 * also calls folder_file_name. This part does not know the meaning of keys and tensors. */
#ifndef MODEL_FILE_FOLDER_H
#define MODEL_FILE_FOLDER_H

#include "common/status.h"
#include "model/file/mapped.h"

struct folder;
struct json_t;

/* Files with fixed names (folder_file_name). */
enum folder_file {
    FOLDER_CONFIG,
    FOLDER_GENERATION_CONFIG,
    FOLDER_TOKENIZER,
    FOLDER_TOKENIZER_CONFIG,
    FOLDER_SENTENCEPIECE,  /* A vocabulary in SentencePiece's form. */
    FOLDER_TEKKEN,         /* A vocabulary in Mistral's form. */
    FOLDER_ADDED_TOKENS,   /* Further tokens, for FOLDER_SENTENCEPIECE. */
    FOLDER_TEMPLATE,       /* The chat template. */
    FOLDER_TEMPLATE_TOOLS, /* The chat template for requests with tools. */
    FOLDER_POOLING,        /* How the vectors of tokens become an embedding. */
    FOLDER_INDEX,          /* The names of the files with weights, if there are several. */
    FOLDER_WEIGHTS,        /* The file with all weights, if there is only one. */
    FOLDER_FILE_COUNT
};

/* Maps the files of the folder at `path` and reads the tables of their tensors (safetensors.h). The
 * caller closes *out with folder_close. Returns ST_NOT_FOUND if there is no folder, ST_IO if a file
 * cannot be read, ST_INVALID if a file is missing or malformed, ST_UNSUPPORTED if the type of a
 * tensor is not supported (safetensors.h), ST_TOO_LARGE if the index names more than 4,096 files,
 * or ST_NO_MEMORY. */
enum status folder_open(const char *path, struct folder **out, struct error *error);

/* A file in memory. */
struct folder_part {
    const char *name; /* Name of the file, such as "config.json". */
    const void *data;
    size_t bytes;
};
/* Opens a folder whose files are in memory (fuzzing, tests). `name` is the folder's name. Requires
 * that `parts` and the files' data stay unchanged until folder_close. Returns the errors of
 * folder_open. */
enum status folder_open_memory(const char *name, const struct folder_part *parts, size_t count,
                               struct folder **out, struct error *error);
void folder_close(struct folder *f); /* NULL is fine. */

const char *folder_file_name(enum folder_file file); /* Returns a name such as "config.json". */
/* Returns the file's content; text NULL = the folder has no such file, or `file` is
 * FOLDER_WEIGHTS. */
struct mapped_text folder_text(const struct folder *f, enum folder_file file);
/* Returns config.json as a JSON object, which `f` owns. */
const struct json_t *folder_config(const struct folder *f);
/* Returns the folder's name: the last part of its path, cut after 63 bytes. */
struct mapped_text folder_name(const struct folder *f);

/* Returns the number of tensors in the files, without added tensors (folder_tensor_add). */
size_t folder_tensor_count(const struct folder *f);
/* Returns tensor `index`, counted from 0: first the tensors of the files in the order of the
 * tensors' names, then the added tensors. NULL = there are fewer tensors. */
const struct mapped_tensor *folder_tensor_at(const struct folder *f, size_t index);
/* Returns the tensor with this name: an added tensor, or a tensor of the files whose type is not
 * an integer type; NULL = none. After folder_tensor_add, requires folder_tensors_sort. */
const struct mapped_tensor *folder_tensor_find(const struct folder *f, const char *name);
/* Returns the tensor of the files that has this name, of any type; NULL = none. */
const struct mapped_tensor *folder_tensor_find_any(const struct folder *f, const char *name);

/* Adds a tensor in place of packed tensors (packed.h). Copies `name`, and *tensor except its name.
 * Returns ST_NO_MEMORY on failure. The caller calls folder_tensors_sort after the last tensor. */
enum status folder_tensor_add(struct folder *f, const char *name,
                              const struct mapped_tensor *tensor, struct error *error);
/* Sorts the added tensors by name. Returns ST_INVALID if two added tensors have equal names, or if
 * an added tensor has the same name as a tensor of the files whose type is not an integer type. */
enum status folder_tensors_sort(struct folder *f, struct error *error);

/* Returns a digest of the files (content_hash.h). `f` owns the digest. */
const struct digest *folder_digest(struct folder *f);
/* Returns a digest of the files, without their tensor data. `f` owns the digest. */
const struct digest *folder_metadata_digest(struct folder *f);
uint64_t folder_bytes(const struct folder *f); /* Returns the size of the files with weights. */

#endif
