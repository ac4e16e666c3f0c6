/* folder: a model's folder in the form of Hugging Face: config.json, the tokenizer's files, and
 * model.safetensors or, if that file is missing, the files that model.safetensors.index.json names.
 * A struct folder owns the mappings of the files and finds tensors by name. What its functions
 * return is valid until folder_close. Other files of model/file/ call it, on the thread that uses
 * the model_file; `cleave model fetch` calls folder_file_name. It does not interpret the
 * content of the files: its callers do. */
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
    FOLDER_SENTENCEPIECE,  /* A vocabulary in SentencePiece's form. */
    FOLDER_TEKKEN,         /* A vocabulary in Mistral's form. */
    FOLDER_ADDED_TOKENS,   /* Further tokens, for FOLDER_SENTENCEPIECE. */
    FOLDER_TEMPLATE,       /* The chat template. */
    FOLDER_TEMPLATE_TOOLS, /* The chat template for requests with tools. */
    FOLDER_POOLING,        /* How token vectors become an embedding. */
    FOLDER_INDEX,          /* The names of several files with weights. */
    FOLDER_WEIGHTS,        /* The file with all weights. */
    FOLDER_FILE_COUNT
};

/* Opens the folder at `path` and checks the tensors of its files (safetensors.h). The caller closes
 * *out with folder_close. Returns ST_NOT_FOUND if there is no folder, ST_IO, ST_INVALID,
 * ST_UNSUPPORTED, ST_TOO_LARGE or ST_NO_MEMORY. */
enum status folder_open(const char *path, struct folder **out, struct error *error);

/* A file in memory. */
struct folder_part {
    const char *name; /* Name of the file, such as "config.json". */
    const void *data;
    size_t bytes;
};
/* Opens a folder whose files are in memory (fuzzing, tests). `name` is the folder's name. Requires
 * that `parts` and the data stay unchanged until folder_close. */
enum status folder_open_memory(const char *name, const struct folder_part *parts, size_t count,
                               struct folder **out, struct error *error);
void folder_close(struct folder *f); /* NULL is fine */

const char *folder_file_name(enum folder_file file); /* Returns a name such as "config.json". */
/* Returns the file's content; text NULL = the folder has no such file. Not for FOLDER_WEIGHTS. */
struct mapped_text folder_text(const struct folder *f, enum folder_file file);
/* Returns config.json as a JSON object. */
const struct json_t *folder_config(const struct folder *f);
/* Returns the folder's name: the last part of its path, cut after 63 bytes. */
struct mapped_text folder_name(const struct folder *f);

/* Returns the number of tensors in the files, without added tensors (folder_tensor_add). */
size_t folder_tensor_count(const struct folder *f);
/* Returns tensor `index`, counted from 0: first the tensors of the files in the order of the
 * tensors' names, then the added tensors. NULL = there are fewer tensors. */
const struct mapped_tensor *folder_tensor_at(const struct folder *f, size_t index);
/* Returns the tensor with this name: a tensor of the files that has floating-point numbers, or an
 * added tensor; NULL = none. */
const struct mapped_tensor *folder_tensor_find(const struct folder *f, const char *name);
/* Returns the tensor of the files with this name, whatever its type; NULL = none. */
const struct mapped_tensor *folder_tensor_find_any(const struct folder *f, const char *name);

/* folder_tensor_add adds a tensor that takes the place of packed tensors (packed.h). The name is
 * copied. Returns ST_NO_MEMORY on failure. The caller calls folder_tensors_sort after the last
 * added tensor and before the next look-up. It returns ST_INVALID if two added tensors have the
 * same name, or if a file has a tensor of floating-point numbers with the name of an added
 * tensor. */
enum status folder_tensor_add(struct folder *f, const char *name,
                              const struct mapped_tensor *values, struct error *error);
enum status folder_tensors_sort(struct folder *f, struct error *error);

/* Return what model_file_digest, model_file_metadata_hash and model_file_bytes (model_file.h)
 * return for a model without adapters, with one difference: folder_metadata_digest returns the
 * digest whose first 64 bits are the hash. The folder owns the digests, and computes them at the
 * first call. */
const struct digest *folder_digest(struct folder *f);
const struct digest *folder_metadata_digest(struct folder *f);
uint64_t folder_bytes(const struct folder *f);

#endif
