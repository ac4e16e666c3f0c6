/* draft_shape: the sizes of a machine's draft model, computed from the config and the model files
 * before memory is allocated. The draft model is a model of its own (config key
 * scheduler/draft_model) or the draft layer of the machine's model (scheduler/draft_layer).
 * machine/ calls the functions on the main thread while the machine starts. This part owns nothing,
 * and allocates no memory for KV or weights. */
#ifndef MACHINE_EXECUTOR_DRAFT_SHAPE_H
#define MACHINE_EXECUTOR_DRAFT_SHAPE_H

#include "compute/kv.h"
#include "config/config.h"
#include "kvcache/kv_transfer.h"
#include "model/file/hyper.h"

/* All zeros = the machine has no draft model. */
struct draft_shape {
    struct model_hyper hyper; /* Hyper-parameters of the draft model. */
    uint32_t context_tokens;  /* Longest context for which the draft model drafts tokens. */
    uint64_t block_bytes;     /* Bytes of a KV block, all layers together. */
};

/* Reads the draft model's files. target: the machine's model, as for draft_shape_file_open.
 * context_tokens: the machine's longest context. dtype: the type of the machine's KV. Returns
 * ST_INVALID if the vocabularies differ (except for at most 1,024 tokens at the end of one
 * vocabulary), or if scheduler/draft_layer is set and the machine's model has no draft layer;
 * ST_UNSUPPORTED if the draft model cannot have KV of this type; ST_NOT_FOUND if there is no model
 * at the configured place; or an error of reading the files. The error's text names the config key,
 * scheduler/draft_model or scheduler/draft_layer. */
enum status draft_shape_read(const struct config *config, struct model_file *target,
                             uint32_t context_tokens, enum compute_kv_dtype dtype,
                             struct draft_shape *out, struct error *error);

/* Returns the layout of the draft model's KV memory with this number of blocks. The layout has one
 * layer group, also for a model with attention windows. */
struct kv_arena draft_shape_arena(const struct draft_shape *shape, uint32_t block_tokens,
                                  uint32_t block_count);

/* Finds and opens the draft model's files; the caller closes *out (model_file_close). target: the
 * machine's model, whose vocabulary must be equal (model/file/draft_file.h has the rule); NULL =
 * the vocabularies are not compared. Returns ST_NOT_FOUND if there is no model at the configured
 * place, or an error of draft_file_open. The error's text names the config key,
 * scheduler/draft_model or scheduler/draft_layer. */
enum status draft_shape_file_open(const struct config *config, struct model_file *target,
                                  struct model_file **out, struct error *error);

#endif
