/* machine_shape: the sizes of a machine, computed from config and model file before memory for KV
 * and weights is allocated: context, KV blocks, batch sizes, stages. A machine's own process and
 * its stage processes compute equal sizes. The caller owns the shape, which is read-only once
 * machine_shape_read has returned. machine/ calls the functions on the event loop thread of the
 * process. This part owns nothing and allocates no KV memory. */
#ifndef MACHINE_EXECUTOR_SHAPE_H
#define MACHINE_EXECUTOR_SHAPE_H

#include "common/digest.h"
#include "kvcache/kv_transfer.h"
#include "machine/executor/draft_shape.h"
#include "machine/executor/stage_plan.h"
#include "transport/message.h"
#include "transport/transport.h"

struct machine_shape {
    struct model_hyper hyper; /* Hyper-parameters of the model. */
    uint64_t metadata_hash;   /* model_file_metadata_hash. */
    struct digest model_hash; /* model_file_digest: of metadata, weights and adapters. */
    uint32_t adapter_count;   /* Low-rank adapters of the model. */
    uint32_t context_tokens;  /* Most tokens of a request's context. */
    enum compute_kv_dtype kv_dtype;
    /* The model asks for a quantised KV-cache (model_file_has_kv_scheme), which is not used. */
    bool kv_scheme_unused;
    struct kv_arena arena; /* Arena of all layers and heads. */
    /* Sizes of the draft model; all zeros = none. Its KV memory has as many blocks as `arena`. */
    struct draft_shape draft;
    uint32_t sequences_max; /* Most sequences of a batch. */
    uint32_t rows_max;      /* Most rows of a batch. */
    struct stage_plan plan;
};

/* Opens the model file with its adapters. The caller closes *out (model_file_close). Returns the
 * errors of config_model_path, model_file_open and model_file_adapter_add. */
enum status machine_shape_file_open(const struct config *config, struct model_file **out,
                                    struct error *error);

/* Opens the model file with its adapters, and computes the shape. The caller closes *file_out if it
 * is not NULL, also after an error. The error says what is wrong. */
enum status machine_shape_read(const struct config *config,
                               const struct config_machine *machine_config,
                               struct model_file **file_out, struct machine_shape *out,
                               struct error *error);

/* Returns the arena of a stage process's layers and KV heads. */
struct kv_arena machine_shape_arena(const struct machine_shape *shape,
                                    const struct stage_plan_process *process);

/* Returns the transport options that follow from config and shape. The caller sets name, keys,
 * events, self, region and device, and in a stage process layer_stride_bytes. */
struct transport_options
machine_shape_transport_options(const struct config *config,
                                const struct config_machine *machine_config,
                                const struct machine_shape *shape);

/* Returns ST_NO_MEMORY if the machine's KV memory is larger than the memory of this host. */
enum status machine_shape_memory_check(const struct config_machine *machine_config,
                                       struct error *error);

/* Returns the transport's counters of copies between GPU memory and other memory (COPY_COUNTERS in
 * common/counters.h). */
struct message_copies machine_copy_counts(struct transport *transport);

/* Logs why writes to a connected peer do not travel in a faster way, if a reason is known
 * (transport_peer_note). */
void machine_peer_note_log(const struct transport_peer *peer);

/* Returns the number of spans of a request whose context has context_tokens tokens. */
uint32_t machine_shape_context_spans(const struct machine_shape *shape);

#endif
