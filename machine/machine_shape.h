/* machine_shape: what follows from config and model file before any memory is taken: context, KV
 * blocks, batch sizes, stages. The same in a machine's own process and in each of its stages. */
#ifndef MACHINE_MACHINE_SHAPE_H
#define MACHINE_MACHINE_SHAPE_H

#include "kvcache/kv_transfer.h"
#include "machine/stage_plan.h"
#include "transport/message.h"
#include "transport/transport.h"

struct machine_shape {
    struct model_hyper hyper;
    uint64_t metadata_hash;
    uint64_t model_hash;
    uint32_t context_tokens;
    enum compute_kv_dtype kv_dtype;
    struct kv_arena arena; /* of all layers and heads */
    uint32_t sequences_max;
    uint32_t rows_max;
    uint32_t micro_batch_tokens; /* of a batch's prompts, where several may be in flight */
    struct stage_plan plan;
};

/* Opens the model's file (*file_out is the caller's, also after an error, if not NULL). An error is
 * one line that names what is wrong. */
enum status machine_shape_read(const struct config *config, const struct config_machine *entry,
                               struct model_file **file_out, struct machine_shape *out,
                               struct error *error);

/* The arena of a place's layers and KV heads. */
struct kv_arena machine_shape_arena(const struct machine_shape *shape,
                                    const struct stage_place *place);

/* What all processes of the machine tell their peers, and how they connect; name, events and region
 * are the caller's. */
struct transport_options machine_shape_transport(const struct config *config,
                                                 const struct machine_shape *shape);

/* ST_NO_MEMORY: the machine's KV does not fit the memory of this computer, where it is to lie. */
enum status machine_shape_host_memory(const struct config_machine *entry, struct error *error);

/* How KV has travelled in and out of a process's region. */
struct message_staged machine_staged(struct transport *transport);

/* Of a peer that is up: logs why KV does not go to it from device to device, if there is a word. */
void machine_peer_note(const struct transport_peer *peer);

uint32_t machine_shape_context_blocks(const struct machine_shape *shape); /* of one request */

#endif
