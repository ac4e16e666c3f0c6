/* model_file: a model's files in any supported format: a GGUF file, or a Hugging Face folder
 * (config.json, tokenizer.json, safetensors). It owns the mappings of the files; what its functions
 * return is valid until model_file_close. The gateway, machines and stage processes open it when
 * they start, and the gateway when a reload names another model; `cleave profile`, `cleave check`
 * and the benchmarks open it, too. One thread at a time may use a model_file. It does not load
 * weights to a device (weights_load.h does) and does not tokenize. */
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

/* Opens the GGUF file or folder at `path`. The caller closes *out with model_file_close. On failure
 * *error has the file and the reason. */
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

/* Opens the adapter (adapter.h) in the folder `path` and adds it to the model, whose digests then
 * cover it. Call it before the digests are computed. Returns ST_TOO_LARGE beyond LIMIT_ADAPTERS, or
 * an error of adapter_open. */
enum status model_file_adapter_add(struct model_file *file, const char *name, const char *path,
                                   struct error *error);
/* Returns the number of adapters that were added. */
uint32_t model_file_adapter_count(const struct model_file *file);
/* Return an adapter, or its name; `file` owns both. Requires index < model_file_adapter_count. */
const struct adapter *model_file_adapter(const struct model_file *file, uint32_t index);
const char *model_file_adapter_name(const struct model_file *file, uint32_t index);

/* Returns a digest of the metadata, the tensor tables and the tensor data; `file` owns it. It is
 * computed at the first call. content_digest_add (content_hash.h) says how much of the data is
 * read. If two machines have equal digests, their weights are considered the same. The digest shows
 * every accidental difference in the data that is read; it shows a deliberate difference only in
 * the data that SHA-256 covers. */
const struct digest *model_file_digest(struct model_file *file);
/* Returns the first 64 bits of a SHA-256 of the metadata and the tensor tables. The gateway
 * compares its own hash with the hashes of machines, because it does not read weights. */
uint64_t model_file_metadata_hash(const struct model_file *file);
/* Returns the bytes of the files that have weights. */
uint64_t model_file_bytes(const struct model_file *file);

/* Returns the tensor of a role; NULL = none. `layer` is used only for roles of a layer. For
 * ROLE_OUTPUT the result is NULL if the model uses the embedding as vocabulary matrix. */
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

/* Describes rows [first, first + count) of a matrix for compute_ops.matrix_open: their elements and
 * scales. The matrices of a stack follow each other. Requires that the tensor has these rows. On
 * success the caller frees *memory_out, which may be NULL, after the last use of *out. Returns the
 * errors of quantization_scales_read (quantization.h) and packed_read (packed.h). */
enum status model_file_source(const struct model_file *file, const struct mapped_tensor *t,
                              uint32_t first, uint32_t count, struct compute_source *out,
                              void **memory_out, struct error *error);

/* Returns true if the files of a folder ask for a quantised KV-cache, or have scales for one. These
 * are not used: config kv/dtype decides how KV is stored. */
bool model_file_has_kv_scheme(const struct model_file *file);

bool model_file_is_folder(const struct model_file *file); /* false = it is a GGUF file. */
/* Returns the name in a GGUF file, or the folder's name; text NULL = none. */
struct mapped_text model_file_name(const struct model_file *file);

/* Reads the vocabulary at the first call. `file` owns *out. Returns the errors of
 * vocabulary_read_gguf or vocabulary_read_json (vocabulary_read.h). */
enum status model_file_vocabulary(struct model_file *file, const struct vocabulary **out,
                                  struct error *error);

/* Returns the GGUF file; NULL for a folder. */
struct gguf *model_file_gguf(const struct model_file *file);

#endif
