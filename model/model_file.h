/* model_file: a model's files, whatever their format: a GGUF file, or a folder as Hugging Face
 * writes them (config.json, tokenizer.json, safetensors). It owns the mappings; what it hands out
 * lives until model_file_close. All that knows the formats' differences is here, in the readers
 * (gguf*, folder*, safetensors, vocabulary_*) and in two tables of names (roles.c, keys.c). Not
 * thread-safe. */
#ifndef MODEL_MODEL_FILE_H
#define MODEL_MODEL_FILE_H

#include "common/status.h"
#include "model/mapped.h"
#include "model/roles.h"

struct folder_part;
struct gguf;
struct model_file;
struct vocabulary;

/* `path` is a GGUF file or a folder. */
enum status model_file_open(const char *path, struct model_file **out, struct error *error);
/* A GGUF image in memory, aligned to 16 bytes, that the caller keeps until model_file_close. */
enum status model_file_open_memory(const void *data, size_t bytes, const char *name,
                                   struct model_file **out, struct error *error);
/* A folder's files in memory (folder.h), likewise. */
enum status model_file_open_parts(const char *name, const struct folder_part *parts, size_t count,
                                  struct model_file **out, struct error *error);
void model_file_close(struct model_file *file); /* NULL is fine */

/* Identifies the model: metadata, tensor tables and tensor data (sampled beyond 1 GiB). Computed on
 * first use. Two machines with equal hashes have the same weights. */
uint64_t model_file_hash(struct model_file *file);
/* The same without a look at the data: all that a gateway reads. */
uint64_t model_file_metadata_hash(const struct model_file *file);
/* Of the files that hold weights. */
uint64_t model_file_bytes(const struct model_file *file);

/* NULL when there is none. `layer` is read for roles of a layer only. */
const struct mapped_tensor *model_file_find(const struct model_file *file, enum model_role role,
                                            uint32_t layer);
/* What the file calls, or would call, this tensor. */
const char *model_file_tensor_name(const struct model_file *file, enum model_role role,
                                   uint32_t layer, char out[ROLE_NAME_BYTES]);
/* All tensors, by index; NULL beyond the last. False in *known_out: it has no role. Scales of
 * weights have the role of those. */
const struct mapped_tensor *model_file_tensor_at(const struct model_file *file, size_t index,
                                                 enum model_role *role_out, uint32_t *layer_out,
                                                 bool *known_out);

/* A matrix's elements with what scales them. What *scales_out points to is to be freed after use of
 * *out; it may be NULL. ST_INVALID: scales are missing, of another shape, or no numbers. */
enum status model_file_source(const struct model_file *file, const struct mapped_tensor *t,
                              struct compute_source *out, float **scales_out, struct error *error);

bool model_file_is_folder(const struct model_file *file);
/* What the model calls itself. */
struct mapped_text model_file_name(const struct model_file *file); /* text NULL: nothing */

/* Read on first use. */
enum status model_file_vocabulary(struct model_file *file, const struct vocabulary **out,
                                  struct error *error);

/* The GGUF file; NULL for a folder. */
struct gguf *model_file_gguf(const struct model_file *file);

#endif
