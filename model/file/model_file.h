/* model_file: a model's files in any supported format: a GGUF file, or a Hugging Face folder
 * (config.json, tokenizer.json, safetensors). A struct model_file owns the mappings of the files;
 * what its functions return is valid until model_file_close. Each process and command that reads a
 * model opens one. One thread at a time may use a model_file. It does not load weights to a device
 * (weights_load.h does) and does not tokenize. */
#ifndef MODEL_FILE_MODEL_FILE_H
#define MODEL_FILE_MODEL_FILE_H

#include "common/digest.h"
#include "common/status.h"
#include "model/file/adapter.h"
#include "model/file/mapped.h"
#include "model/file/roles.h"

struct folder_part;
struct gguf;
struct model_file;
struct vocabulary;

/* Opens the GGUF file or folder at `path`. The caller closes *out with model_file_close. Returns an
 * error of gguf_open, folder_open or quantization_read; ST_INVALID; ST_NO_MEMORY. */
enum status model_file_open(const char *path, struct model_file **out, struct error *error);
/* Opens a GGUF file in memory, which errors call `name`. Requires that `data` is aligned to 16
 * bytes and stays unchanged until model_file_close. */
enum status model_file_open_memory(const void *data, size_t bytes, const char *name,
                                   struct model_file **out, struct error *error);
/* Opens a folder whose files are in memory (folder.h). Requires that `parts` and the files' data
 * stay unchanged until model_file_close. */
enum status model_file_open_parts(const char *name, const struct folder_part *parts, size_t count,
                                  struct model_file **out, struct error *error);
void model_file_close(struct model_file *file); /* NULL is fine */

#define ADAPTER_NAME_BYTES 64 /* An adapter's name, with its NUL. */

/* Opens the adapter (adapter.h) in the folder `path` and adds the adapter to the model, under the
 * name `name`. Digest and hash of the model then also cover the adapter, so the caller adds all
 * adapters before it asks for them. Returns ST_TOO_LARGE beyond LIMIT_ADAPTERS, or an error of
 * adapter_open. */
enum status model_file_adapter_add(struct model_file *file, const char *name, const char *path,
                                   struct error *error);
/* Returns the number of adapters that were added. */
uint32_t model_file_adapter_count(const struct model_file *file);
/* Return an adapter, or its name; `file` owns both. Requires index < model_file_adapter_count. */
const struct adapter *model_file_adapter(const struct model_file *file, uint32_t index);
const char *model_file_adapter_name(const struct model_file *file, uint32_t index);

/* Returns a digest of the metadata, the tensor tables, the tensor data and the adapters. `file`
 * owns the digest, and computes it at the first call. If two machines have equal digests, their
 * weights are considered the same. content_digest_add (content_hash.h) says how much of the tensor
 * data is read. */
const struct digest *model_file_digest(struct model_file *file);
/* Returns the first 64 bits of a SHA-256 of the metadata, the tensor tables and the adapters, for
 * callers that do not read the tensor data. */
uint64_t model_file_metadata_hash(const struct model_file *file);
/* Returns the bytes of the model's files that have weights, without adapters. */
uint64_t model_file_bytes(const struct model_file *file);

/* Returns the tensor of a role; NULL = none. `layer` is used only for roles of a layer. For
 * ROLE_OUTPUT the result is NULL if the model's embedding matrix is also its vocabulary matrix. */
const struct mapped_tensor *model_file_tensor_find(const struct model_file *file,
                                                   enum model_role role, uint32_t layer);
/* Returns the tensor of a role of an expert; NULL = none. */
const struct mapped_tensor *model_file_tensor_find_expert(const struct model_file *file,
                                                          enum model_role role, uint32_t layer,
                                                          uint32_t expert);
/* Writes the name of this tensor in the file's format, even if the file has no such tensor. Returns
 * `out`. */
const char *model_file_tensor_name(const struct model_file *file, enum model_role role,
                                   uint32_t layer, char out[ROLE_NAME_BYTES]);
/* Returns tensor `index` of all tensors; NULL = there are fewer. *known_out = false: the tensor has
 * no role, and *role_out and *layer_out are not written. A tensor of scales has the role of the
 * weights that it scales. */
const struct mapped_tensor *model_file_tensor_at(const struct model_file *file, size_t index,
                                                 enum model_role *role_out, uint32_t *layer_out,
                                                 bool *known_out);

/* Describes rows [first, first + count) of a matrix, their elements and scales, for
 * compute_ops.matrix_open. In a tensor with several matrices, such as those of all experts, the
 * rows of the matrices follow each other. Requires that the tensor has these rows. On success the
 * caller frees *memory_out, which may be NULL, after the last use of *out. Returns the errors of
 * quantization_scales_read (quantization.h) and packed_read (packed.h). */
enum status model_file_source(const struct model_file *file, const struct mapped_tensor *t,
                              uint32_t first, uint32_t count, struct compute_source *out,
                              void **memory_out, struct error *error);

/* Returns true if the files of a folder ask for quantised KV, or have scales for quantised KV.
 * cleave uses neither: the config's key kv/dtype decides how KV is stored. */
bool model_file_has_kv_scheme(const struct model_file *file);

bool model_file_is_folder(const struct model_file *file); /* false = it is a GGUF file. */
/* Returns the model's name: the key general.name of a GGUF file (text NULL = the file does not have
 * the key), or the folder's name. */
struct mapped_text model_file_name(const struct model_file *file);

/* Reads the vocabulary at the first call. `file` owns *out. Returns the errors of
 * vocabulary_read_gguf or vocabulary_read_json (vocabulary_read.h). */
enum status model_file_vocabulary(struct model_file *file, const struct vocabulary **out,
                                  struct error *error);

/* Returns the GGUF file; NULL for a folder. */
struct gguf *model_file_gguf(const struct model_file *file);

#endif
