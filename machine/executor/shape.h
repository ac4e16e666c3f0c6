/* machine_shape: the sizes that follow from config and model file before any memory is allocated:
 * context, KV blocks, batch sizes, stages. They are the same in a machine's own process and in each
 * of its stage processes. machine/open.c and stage.c read the shape while their process starts.
 * After that it is read-only; other files of machine/ call the functions on the event loop thread.
 * It allocates no KV memory and keeps no state.
 *
 * machine_staged and machine_peer_note have nothing to do with sizes: they are here because a
 * machine's own process and its stage processes both need them. */
#ifndef MACHINE_EXECUTOR_SHAPE_H
#define MACHINE_EXECUTOR_SHAPE_H

#include "common/digest.h"
#include "kvcache/kv_transfer.h"
#include "machine/executor/stage_plan.h"
#include "transport/message.h"
#include "transport/transport.h"

struct machine_shape {
    struct model_hyper hyper;
    uint64_t metadata_hash;
    struct digest model_hash;
    uint32_t context_tokens;
    enum compute_kv_dtype kv_dtype;
    struct kv_arena arena; /* Arena of all layers and heads. */
    uint32_t sequences_max;
    uint32_t rows_max;
    struct stage_plan plan;
};

/* Opens the model file and computes the shape. The caller closes *file_out if it is not NULL, also
 * after an error. The error names the mistake in one line. */
enum status machine_shape_read(const struct config *config, const struct config_machine *entry,
                               struct model_file **file_out, struct machine_shape *out,
                               struct error *error);

/* The arena of a stage process's layers and KV heads. */
struct kv_arena machine_shape_arena(const struct machine_shape *shape,
                                    const struct stage_plan_process *process);

/* Transport options that all processes of the machine share. The caller sets name, events and
 * region. */
struct transport_options machine_shape_transport(const struct config *config,
                                                 const struct machine_shape *shape);

/* ST_NO_MEMORY: the machine's KV memory is larger than the memory of this host. */
enum status machine_shape_host_memory(const struct config_machine *entry, struct error *error);

/* Statistics of the copies in and out of a process's region. */
struct message_staged machine_staged(struct transport *transport);

/* Logs why KV does not go to a connected peer from device to device, if the transport gives a
 * reason. */
void machine_peer_note(const struct transport_peer *peer);

/* Blocks of one request of the longest context. */
uint32_t machine_shape_context_blocks(const struct machine_shape *shape);

#endif
