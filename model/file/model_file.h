/* model_file: a model's files in any supported format: a GGUF file, or a Hugging Face folder
 * (config.json, tokenizer.json, safetensors). It owns the mappings of the files; what its functions
 * return is valid until model_file_close. The differences between the formats are confined to the
 * readers (gguf*, folder*, safetensors, vocabulary_*) and to two tables of names (roles.c, keys.c).
 * One thread at a time may use a model_file. */
#ifndef MODEL_FILE_MODEL_FILE_H
#define MODEL_FILE_MODEL_FILE_H

#include "common/digest.h"
#include "common/status.h"
#include "model/file/mapped.h"
#include "model/file/roles.h"

struct folder_part;
struct gguf;
struct model_file;
struct vocabulary;

/* `path` is a GGUF file or a folder. ST_OK: the caller closes *out with model_file_close. */
enum status model_file_open(const char *path, struct model_file **out, struct error *error);
/* Opens a GGUF image in memory. Requires `data` aligned to 16 bytes and unchanged until
 * model_file_close. `name` is used in errors. */
enum status model_file_open_memory(const void *data, size_t bytes, const char *name,
                                   struct model_file **out, struct error *error);
/* Opens a folder whose files are in memory (see folder.h). Requires the files' data unchanged until
 * model_file_close. */
enum status model_file_open_parts(const char *name, const struct folder_part *parts, size_t count,
                                  struct model_file **out, struct error *error);
void model_file_close(struct model_file *file); /* NULL is fine */

/* SHA-256 of the metadata, the tensor tables, parts of the tensor data, and a fast hash of all
 * tensor data (of 1 GiB at most; see content_digest_add). It is computed on first use. Machines
 * compare it to tell whether they have the same weights: an accidental difference is found
 * anywhere, one that somebody has made to deceive is found in what SHA-256 covers. */
const struct digest *model_file_digest(struct model_file *file);
/* The first 64 bits of a SHA-256 of the metadata and the tensor tables. The gateway uses it, since
 * it does not read weights. */
uint64_t model_file_metadata_hash(const struct model_file *file);
/* Total bytes of the files that hold weights. */
uint64_t model_file_bytes(const struct model_file *file);

/* Finds the tensor of a role; NULL = the model has none. `layer` is used only for roles of a layer.
 * For ROLE_OUTPUT the result is NULL when the projection is tied to the embedding. */
const struct mapped_tensor *model_file_find(const struct model_file *file, enum model_role role,
                                            uint32_t layer);
/* Writes the name that the file's format has for this tensor, whether or not the tensor exists.
 * Returns `out`. */
const char *model_file_tensor_name(const struct model_file *file, enum model_role role,
                                   uint32_t layer, char out[ROLE_NAME_BYTES]);
/* Returns tensor `index` of all tensors; NULL beyond the last. *known_out is false if the tensor
 * has no role; then *role_out and *layer_out are not written. A tensor of scales has the role of
 * the weights that it scales. */
const struct mapped_tensor *model_file_tensor_at(const struct model_file *file, size_t index,
                                                 enum model_role *role_out, uint32_t *layer_out,
                                                 bool *known_out);

/* Describes a matrix for compute_ops.matrix_open: its elements and their scales. On success the
 * caller frees *scales_out after the last use of *out; it may be NULL. ST_INVALID: scales are
 * missing, have a wrong shape, or are not finite numbers. */
enum status model_file_source(const struct model_file *file, const struct mapped_tensor *t,
                              struct compute_source *out, float **scales_out, struct error *error);

bool model_file_is_folder(const struct model_file *file);
/* The model's name as the file gives it; text NULL = none. */
struct mapped_text model_file_name(const struct model_file *file);

/* Reads the vocabulary on first use. *out is owned by `file`. */
enum status model_file_vocabulary(struct model_file *file, const struct vocabulary **out,
                                  struct error *error);

/* The GGUF file; NULL for a folder. */
struct gguf *model_file_gguf(const struct model_file *file);

#endif
