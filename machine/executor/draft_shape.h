/* draft_shape: the sizes of a token machine's draft model (scheduler/draft_model), which follow from
 * config and model files before memory is allocated; and the check that its vocabulary is the
 * model's. shape.c calls it while the process starts, machine/draft.c uses the sizes. It allocates no
 * memory for KV or weights, and keeps no state. */
#ifndef MACHINE_EXECUTOR_DRAFT_SHAPE_H
#define MACHINE_EXECUTOR_DRAFT_SHAPE_H

#include "compute/kv.h"
#include "config/config.h"
#include "kvcache/kv_transfer.h"
#include "model/file/hyper.h"

/* All zeros = the machine has no draft model. */
struct draft_shape {
    struct model_hyper hyper;
    uint32_t context_tokens; /* Longest context for which it drafts tokens. */
    uint64_t block_bytes;    /* Bytes of a KV block of all layers. */
};

/* Returns true if the machine has a draft model: the config names one, the machine decodes, and its
 * own process computes. (A machine with stages computes in other processes.) */
bool draft_shape_wanted(const struct config *config, const struct config_machine *entry,
                        uint32_t stage_processes);

/* Reads the draft model's files. `target` is the machine's model, whose longest context has
 * context_tokens tokens. Returns ST_INVALID if the vocabularies differ, or an error of the files; the
 * error names the key. */
enum status draft_shape_read(const struct config *config, struct model_file *target,
                             uint32_t context_tokens, enum compute_kv_dtype dtype,
                             struct draft_shape *out, struct error *error);

/* Returns the draft model's arena with this number of blocks. Every layer has a row of its own, and
 * all layers use one block table, also in a model with attention windows. */
struct kv_arena draft_shape_arena(const struct draft_shape *shape, uint32_t block_tokens,
                                  uint32_t block_count);

/* Opens the draft model's files. */
enum status draft_file_open(const struct config *config, struct model_file **out,
                            struct error *error);

#endif
