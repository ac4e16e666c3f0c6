/* model_file: a model's files in any supported format: a GGUF file, or a Hugging Face folder
 * (config.json, tokenizer.json, safetensors). A struct model_file owns the mappings of the files.
 * The tensors, texts and digests that the functions return are valid until model_file_close. Each
 * process or command that reads a model opens a struct model_file, which only one thread at a time
 * may use. This part does not load weights to a device (model/forward/weights_load.h) and does not
 * tokenize (model/text/tokenizer.h). */
#ifndef MODEL_FILE_MODEL_FILE_H
#define MODEL_FILE_MODEL_FILE_H

#include "common/digest.h"
#include "common/status.h"
#include "model/file/adapter.h"
#include "model/file/mapped.h"
#include "model/file/roles.h"

struct folder_part;
struct model_file;
struct vocabulary;

/* Opens the GGUF file or folder at `path`. The caller closes *out with model_file_close. Returns
 * the errors of gguf_open, folder_open and quantization_read; also ST_INVALID if config.json's
 * tie_word_embeddings is not a boolean, or is false in a folder without a tensor lm_head.weight. */
enum status model_file_open(const char *path, struct model_file **out, struct error *error);
/* Opens a GGUF file in memory (fuzzing, tests). Errors name the file as `name`. Requires that
 * `data` is aligned to 16 bytes and stays unchanged until model_file_close. Returns the errors of
 * model_file_open. */
enum status model_file_open_memory(const void *data, size_t bytes, const char *name,
                                   struct model_file **out, struct error *error);
/* Opens a folder whose files are in memory (fuzzing, tests). Requires that `parts` and the files'
 * data stay unchanged until model_file_close. Returns the errors of model_file_open. */
enum status model_file_open_parts(const char *name, const struct folder_part *parts, size_t count,
                                  struct model_file **out, struct error *error);
void model_file_close(struct model_file *file); /* NULL is fine. */

#define ADAPTER_NAME_BYTES 64 /* An adapter's name, with its NUL. */

/* Opens the adapter (adapter.h) in the folder at `path`, and adds the adapter to the model as
 * `name`. The caller must add all adapters before it calls model_file_digest or
 * model_file_metadata_hash, which cover the adapters. Requires that `name` is shorter than
 * ADAPTER_NAME_BYTES and that no other adapter of the model has the name. Returns ST_TOO_LARGE if
 * the model already has LIMIT_ADAPTERS adapters, or an error of adapter_open. */
enum status model_file_adapter_add(struct model_file *file, const char *name, const char *path,
                                   struct error *error);
/* Returns the number of added adapters. */
uint32_t model_file_adapter_count(const struct model_file *file);
/* Return an adapter, or its name; `file` owns the result. `index` is counted from 0 in the order in
 * which adapters were added, and must be below model_file_adapter_count. */
const struct adapter *model_file_adapter(const struct model_file *file, uint32_t index);
const char *model_file_adapter_name(const struct model_file *file, uint32_t index);

/* Returns a digest of the metadata, the tensor tables, the tensor data and the adapters. `file`
 * owns the digest. Of large tensor data, only a part is read (content_hash.h). */
const struct digest *model_file_digest(struct model_file *file);
/* Returns the first 64 bits of a digest of the metadata, the tensor tables and the adapters. The
 * function reads the adapters' files, but no tensor data of the model. */
uint64_t model_file_metadata_hash(const struct model_file *file);
/* Returns the size of the files that have the model's weights, without adapters. */
uint64_t model_file_bytes(const struct model_file *file);

/* Returns the tensor of a role (roles.h); NULL = none. `layer` is used only for roles of a layer.
 * For ROLE_OUTPUT, NULL = the model's embedding matrix is also its vocabulary matrix. */
const struct mapped_tensor *model_file_tensor_find(const struct model_file *file,
                                                   enum model_role role, uint32_t layer);
/* Returns the tensor of a role of an expert; NULL = none. */
const struct mapped_tensor *model_file_tensor_find_expert(const struct model_file *file,
                                                          enum model_role role, uint32_t layer,
                                                          uint32_t expert);
/* Writes the name that a tensor of this role has in the file's format (role_name), also if the file
 * does not have the tensor. Returns `out`. */
const char *model_file_tensor_name(const struct model_file *file, enum model_role role,
                                   uint32_t layer, char out[ROLE_NAME_BYTES]);
/* Returns tensor `index` of all tensors, counted from 0; NULL = there are fewer tensors. Stores
 * whether the tensor has a role in *has_role_out, and if so, the role and the layer. A part of
 * quantised weights, such as a tensor of scales, has the role of the weights. */
const struct mapped_tensor *model_file_tensor_at(const struct model_file *file, size_t index,
                                                 enum model_role *role_out, uint32_t *layer_out,
                                                 bool *has_role_out);

/* Describes rows [first, first + count) of a tensor, with their elements and scales, for
 * compute_ops.matrix_open. If the tensor has several matrices, such as one for each expert, the
 * rows are numbered through all matrices. Requires that the tensor has these rows. On success the
 * caller frees *memory_out (may be NULL) with `free` after the last use of *out. Returns the errors
 * of quantization_scales_read (quantization.h) and packed_read (packed.h). */
enum status model_file_source(const struct model_file *file, const struct mapped_tensor *t,
                              uint32_t first, uint32_t count, struct compute_source *out,
                              void **memory_out, struct error *error);

/* Returns true if a folder asks for quantised KV or has scales for quantised KV, which cleave
 * ignores: the config's key kv/dtype decides how KV is stored. */
bool model_file_has_kv_scheme(const struct model_file *file);

bool model_file_is_folder(const struct model_file *file); /* false = the model is a GGUF file. */
/* Returns the key general.name of a GGUF file (text NULL = the file does not have the key), or a
 * folder's name. */
struct mapped_text model_file_name(const struct model_file *file);

/* Stores the model's vocabulary, which is read at the first call. `file` owns *out. Returns the
 * errors of vocabulary_read_gguf or vocabulary_read_folder (vocabulary_read.h). */
enum status model_file_vocabulary(struct model_file *file, const struct vocabulary **out,
                                  struct error *error);

#endif
