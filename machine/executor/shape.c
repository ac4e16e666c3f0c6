/* machine_shape: see the header. */
#include "machine/executor/shape.h"

#include "common/device_name.h"
#include "common/log.h"
#include "model/file/hyper_groups.h"
#include "model/file/model_file.h"
#include "scheduler/options.h"

#include <assert.h>
#include <unistd.h>

static uint32_t min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

enum status machine_shape_file_open(const struct config *config, struct model_file **out,
                                    struct error *error)
{
    char path[LIMIT_PATH_BYTES];
    struct config_adapter adapter;
    struct model_file *file = NULL;
    enum status status = config_model_path(config, path, error);
    if (status == ST_OK)
        status = model_file_open(path, &file, error);
    for (uint32_t i = 0; status == ST_OK && config_adapter_at(config, i, &adapter); i++)
        status = model_file_adapter_add(file, adapter.name, adapter.path, error);
    if (status != ST_OK) {
        model_file_close(file);
        return status;
    }
    *out = file;
    return ST_OK;
}

static enum status read_file(const struct config *config, struct model_file **file_out,
                             struct machine_shape *out, struct error *error)
{
    enum status status = machine_shape_file_open(config, file_out, error);
    if (status == ST_OK)
        status = model_hyper_read(*file_out, &out->hyper, error);
    if (status != ST_OK)
        return status;
    out->kv_scheme_unused = model_file_has_kv_scheme(*file_out);
    out->adapter_count = model_file_adapter_count(*file_out);
    out->metadata_hash = model_file_metadata_hash(*file_out);
    out->model_hash = *model_file_digest(*file_out);
    uint32_t wanted = config->scheduler.context_tokens_max;
    out->context_tokens =
        wanted > 0 ? min_u32(wanted, out->hyper.context_tokens) : out->hyper.context_tokens;
    out->context_tokens = min_u32(out->context_tokens, LIMIT_CONTEXT_TOKENS);
    bool known = compute_kv_dtype_find(config_kv_dtype(config), &out->kv_dtype);
    assert(known); /* the config allows only these names */
    (void)known;
    return ST_OK;
}

/* The kernel would grant more memory than there is, and kill the process when it is used. */
enum status machine_shape_memory_check(const struct config_machine *machine_config,
                                       struct error *error)
{
    uint64_t physical_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    if (machine_config->kv_memory_bytes <= physical_bytes)
        return ST_OK;
    return error_set(error, ST_NO_MEMORY,
                     "machine %s: kv_memory of %llu bytes: this computer has %llu",
                     machine_config->name, (unsigned long long)machine_config->kv_memory_bytes,
                     (unsigned long long)physical_bytes);
}

/* Returns how many times the KV of a token is in the machine's memory: with latent attention, each
 * rank of a stage has all of it. */
static uint32_t copies_most(const struct machine_shape *shape)
{
    uint32_t most = 1;
    for (uint32_t i = 0; i < shape->plan.process_count && shape->hyper.latent.rank != 0; i++) {
        const uint32_t ranks = shape->plan.processes[i].shard.rank_count;
        most = ranks > most ? ranks : most;
    }
    return most;
}

/* As many blocks as the memory holds, each with its share of every layer. A machine's stage
 * processes share the numbering: a block has one id on all of them. */
static enum status plan_memory(const struct config *config,
                               const struct config_machine *machine_config,
                               struct machine_shape *out, struct error *error)
{
    const struct model_hyper *hyper = &out->hyper;
    size_t block_bytes = compute_kv_block_bytes(config->kv.block_tokens, hyper->kv_head_count,
                                                hyper->head_dim, out->kv_dtype);
    if (compute_kv_fixed(out->kv_dtype) && hyper->head_dim % 2 != 0)
        return error_set(error, ST_UNSUPPORTED,
                         "kv/dtype = \"%s\" needs heads of an even size, this model's have %u",
                         config_kv_dtype(config), hyper->head_dim);
    const struct layer_groups groups = model_layer_groups(hyper);
    const uint32_t rows = layer_groups_layer_rows(&groups, 0, hyper->layer_count);
    /* Each block has its counterpart in the KV memory of the draft model. */
    const uint64_t bytes = (uint64_t)block_bytes * rows * copies_most(out) + out->draft.block_bytes;
    uint64_t blocks = machine_config->kv_memory_bytes / bytes;
    if (blocks == 0 || blocks >= KV_BLOCK_NONE)
        return error_set(error, ST_INVALID,
                         "machine %s: kv_memory of %llu bytes: one block of %u tokens takes %llu",
                         machine_config->name, (unsigned long long)machine_config->kv_memory_bytes,
                         config->kv.block_tokens, (unsigned long long)bytes);
    enum status status = ST_OK;
    if (!device_name_gpu(machine_config->device, NULL)) /* a GPU reports its memory size itself */
        status = machine_shape_memory_check(machine_config, error);
    if (status != ST_OK)
        return status;
    out->arena = (struct kv_arena){
        .groups = groups,
        .layer_count = hyper->layer_count,
        .head_count = hyper->kv_head_count,
        .head_total = hyper->kv_head_count,
        .copy_count = hyper->latent.rank != 0 ? 1 : 0,
        .block_count = (uint32_t)blocks,
        .block_tokens = config->kv.block_tokens,
        .block_bytes = block_bytes,
        .layer_stride_bytes = blocks * block_bytes,
    };
    return ST_OK;
}

static void plan_batches(const struct config *config, struct machine_shape *out)
{
    uint32_t prompts = config->scheduler.prompt_batch_tokens;
    uint32_t beside_decodes = min_u32(sched_mixed_tokens_most(config), prompts);
    out->sequences_max = config->scheduler.batch_sequences_max;
    if (out->plan.batches_in_flight > 1) {
        uint32_t micro = sched_micro_batch_tokens(config, out->plan.micro_batch_tokens);
        prompts = beside_decodes = min_u32(micro, prompts);
    }
    uint32_t rows = beside_decodes + out->sequences_max;
    out->rows_max = min_u32(rows > prompts ? rows : prompts, LIMIT_BATCH_TOKENS);
}

enum status machine_shape_read(const struct config *config,
                               const struct config_machine *machine_config,
                               struct model_file **file_out, struct machine_shape *out,
                               struct error *error)
{
    *file_out = NULL;
    out->draft = (struct draft_shape){0};
    enum status status = read_file(config, file_out, out, error);
    if (status == ST_OK)
        status = stage_plan_make(config, machine_config, &out->hyper, out->metadata_hash,
                                 &out->plan, error);
    if (status == ST_OK && config_machine_drafts(config, machine_config))
        status = draft_shape_read(config, *file_out, out->context_tokens, out->kv_dtype,
                                  &out->draft, error);
    if (status == ST_OK)
        status = plan_memory(config, machine_config, out, error);
    if (status == ST_OK)
        plan_batches(config, out);
    return status;
}

struct kv_arena machine_shape_arena(const struct machine_shape *shape,
                                    const struct stage_plan_process *process)
{
    const struct model_shard *shard = &process->shard;
    struct kv_arena arena =
        kv_arena_slice(&shape->arena, process->first_layer, process->end_layer,
                       shard->kv_head_first, shard->kv_head_first + shard->kv_head_count);
    if (arena.copy_count > 0) {
        arena.copy_count = shard->rank_count;
        arena.copy_index = shard->rank;
    }
    return arena;
}

static const char *value_or_null(const char *value)
{
    return value[0] != 0 ? value : NULL;
}

static enum transport_rope_list rope_list_of(const struct machine_shape *shape)
{
    if (shape->hyper.rope_scaling.kind != MODEL_ROPE_LONG)
        return TRANSPORT_ROPE_LIST_NONE;
    return model_rope_is_long(&shape->hyper, shape->context_tokens) ? TRANSPORT_ROPE_LIST_LONG
                                                                    : TRANSPORT_ROPE_LIST_SHORT;
}

struct transport_options
machine_shape_transport_options(const struct config *config,
                                const struct config_machine *machine_config,
                                const struct machine_shape *shape)
{
    const char *devices = value_or_null(machine_config->ucx_devices);
    if (devices == NULL)
        devices = value_or_null(config->transport.ucx_devices);
    struct transport_options options = {
        .identity =
            {
                .role = TRANSPORT_MACHINE,
                .metadata_hash = shape->metadata_hash,
                .model_hash = shape->model_hash,
                .layer_count = shape->arena.layer_count,
                .block_tokens = shape->arena.block_tokens,
                .block_bytes = shape->arena.block_bytes,
                .rope_list = rope_list_of(shape),
            },
        .block_count = shape->arena.block_count,
        .layer_stride_bytes = shape->arena.layer_stride_bytes,
        .ucx_tls = value_or_null(config->transport.ucx_transports),
        .ucx_devices = devices,
        .one_host = config_is_loopback(config),
        .data_connections = config->transport.data_connections,
        .data_window_bytes = config->transport.data_window_bytes,
        .heartbeat_ms = config->transport.heartbeat_ms,
        .silence_ms = config->transport.silence_ms,
        .connect_ms = config->transport.connect_ms,
        .link_ms = config->transport.link_ms,
    };
    snprintf(options.identity.kv_dtype, sizeof(options.identity.kv_dtype), "%s",
             compute_kv_dtype_name(shape->kv_dtype));
    return options;
}

uint32_t machine_shape_context_spans(const struct machine_shape *shape)
{
    return layer_groups_spans(shape->context_tokens, shape->arena.block_tokens);
}

struct message_copies machine_copy_counts(struct transport *transport)
{
    struct transport_memory memory;
    transport_memory(transport, &memory);
    const struct transport_copy_counts *out = &memory.copy_counts[DEVICE_TO_HOST];
    const struct transport_copy_counts *in = &memory.copy_counts[HOST_TO_DEVICE];
    return (struct message_copies){
        .way = memory.way,
        .out_bytes = out->bytes,
        .out_us = (uint64_t)out->busy_us,
        .in_bytes = in->bytes,
        .in_us = (uint64_t)in->busy_us,
        .peer_bytes = memory.copy_counts[DEVICE_TO_PEER].bytes,
        .peer_us = (uint64_t)memory.copy_counts[DEVICE_TO_PEER].busy_us,
    };
}

void machine_peer_note_log(const struct transport_peer *peer)
{
    if (transport_peer_note(peer)[0] != 0)
        log_warn("KV goes to %s by %s: %s", transport_peer_identity(peer)->name,
                 transport_peer_path(peer), transport_peer_note(peer));
}
