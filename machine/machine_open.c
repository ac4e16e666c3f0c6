/* machine_open: what a machine is made of, in the order in which it is made: the file and its
 * limits first, so that an operator's mistake is named before any memory is taken; weights after
 * the KV region. */
#include "machine/machine_state.h"

#include "common/log.h"
#include "model/gguf.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

static uint32_t min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static enum status open_model_file(struct machine *m, struct model_hyper *hyper,
                                   struct error *error)
{
    char path[LIMIT_PATH_BYTES];
    enum status status = config_model_path(m->options.config, path, error);
    if (status == ST_OK)
        status = gguf_open(path, &m->gguf, error);
    if (status == ST_OK)
        status = model_hyper_read(m->gguf, hyper, error);
    if (status != ST_OK)
        return status;
    m->metadata_hash = gguf_metadata_hash(m->gguf);
    m->model_hash = gguf_hash(m->gguf);
    m->vocab = hyper->vocab;
    uint32_t wanted = m->options.config->scheduler.context_tokens_max;
    m->context_tokens = wanted > 0 ? min_u32(wanted, hyper->context_tokens) : hyper->context_tokens;
    m->context_tokens = min_u32(m->context_tokens, LIMIT_CONTEXT_TOKENS);
    return ST_OK;
}

static enum compute_kv_dtype kv_dtype(const struct config *config)
{
    enum compute_kv_dtype dtype = COMPUTE_KV_I16;
    bool known = compute_kv_dtype_find(config->kv.dtype, &dtype);
    assert(known); /* the config's choices are these */
    return dtype;
}

/* As many blocks as the memory holds, each with its share of every layer. */
static enum status plan_memory(struct machine *m, const struct model_hyper *hyper,
                               struct error *error)
{
    const struct config *config = m->options.config;
    size_t block_bytes = compute_kv_block_bytes(config->kv.block_tokens, hyper->kv_head_count,
                                                hyper->head_dim, kv_dtype(config));
    if (compute_kv_fixed(kv_dtype(config)) && hyper->head_dim % 2 != 0)
        return error_set(error, ST_UNSUPPORTED,
                         "kv/dtype = \"%s\" needs heads of an even size, this model's have %u",
                         config->kv.dtype, hyper->head_dim);
    uint64_t blocks = m->entry->kv_memory_bytes / (block_bytes * hyper->layer_count);
    if (blocks == 0 || blocks >= KV_BLOCK_NONE)
        return error_set(error, ST_INVALID,
                         "machine %s: kv_memory of %llu bytes: one block of %u tokens takes %llu",
                         m->entry->name, (unsigned long long)m->entry->kv_memory_bytes,
                         config->kv.block_tokens,
                         (unsigned long long)(block_bytes * hyper->layer_count));
    /* The kernel would promise more, and kill us when it is used. */
    uint64_t physical_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    if (m->entry->kv_memory_bytes > physical_bytes)
        return error_set(error, ST_NO_MEMORY,
                         "machine %s: kv_memory of %llu bytes: this computer has %llu",
                         m->entry->name, (unsigned long long)m->entry->kv_memory_bytes,
                         (unsigned long long)physical_bytes);
    m->arena = (struct kv_arena){
        .layer_count = hyper->layer_count,
        .block_count = (uint32_t)blocks,
        .block_tokens = config->kv.block_tokens,
        .block_bytes = block_bytes,
        .layer_stride_bytes = blocks * block_bytes,
    };
    m->sequences_max = config->scheduler.batch_sequences_max;
    uint32_t beside_decodes =
        min_u32(config->scheduler.mixed_prompt_tokens, config->scheduler.prompt_batch_tokens);
    uint32_t rows = beside_decodes + m->sequences_max;
    rows =
        rows > config->scheduler.prompt_batch_tokens ? rows : config->scheduler.prompt_batch_tokens;
    m->rows_max = min_u32(rows, LIMIT_BATCH_TOKENS);
    return ST_OK;
}

static enum status open_transport(struct machine *m, struct error *error)
{
    const struct config *config = m->options.config;
    struct transport_options options = {
        .identity =
            {
                .role = TRANSPORT_MACHINE,
                .metadata_hash = m->metadata_hash,
                .model_hash = m->model_hash,
                .layer_count = m->arena.layer_count,
                .block_tokens = m->arena.block_tokens,
                .block_bytes = m->arena.block_bytes,
                .kv_dtype = kv_dtype(config),
            },
        .events = machine_transport_events(),
        .self = m,
        .region_bytes = m->arena.layer_count * m->arena.layer_stride_bytes,
        .block_count = m->arena.block_count,
        .layer_stride_bytes = m->arena.layer_stride_bytes,
        .ucx_tls = config->transport.tls[0] != 0 ? config->transport.tls : NULL,
        .ucx_devices = config_is_loopback(config) ? "lo" : NULL,
        .heartbeat_ms = config->transport.heartbeat_ms,
        .silence_ms = config->transport.silence_ms,
        .connect_ms = config->transport.connect_ms,
        .key = m->options.cluster_key,
    };
    memcpy(options.identity.name, m->entry->name, sizeof(options.identity.name));
    return transport_open(m->options.transport, &options, &m->transport, error);
}

static enum status choose_device(struct machine *m, struct error *error)
{
    m->compute_options.threads = m->entry->threads;
    if (m->options.compute != NULL)
        return ST_OK;
    enum status status =
        compute_device_find(m->entry->device, &m->options.compute, &m->compute_options, error);
    if (status != ST_OK)
        error_prefix(error, "machine %s", m->entry->name);
    if (m->options.compute == &compute_wait)
        m->options.turns =
            NULL; /* it occupies no core: its turns would only keep others from them */
    return status;
}

static enum status open_engine(struct machine *m, struct error *error)
{
    const struct compute_ops *ops = m->options.compute;
    enum status status = ops->open(&m->compute_options, &m->compute, error);
    if (status != ST_OK)
        return status;
    const struct model_options model_options = {
        .ops = ops, .compute = m->compute, .context_tokens_max = m->context_tokens};
    status = model_open(m->gguf, &model_options, &m->model, error);
    if (status != ST_OK)
        return status;
    gguf_close(m->gguf); /* the weights are repacked: the file is no longer needed */
    m->gguf = NULL;
    const struct engine_options engine_options = {
        .model = m->model,
        .kv = {.base = transport_region(m->transport),
               .layer_stride_bytes = m->arena.layer_stride_bytes,
               .block_bytes = m->arena.block_bytes,
               .block_tokens = m->arena.block_tokens,
               .dtype = kv_dtype(m->options.config)},
        .rows_max = m->rows_max,
        .turns = m->options.turns,
    };
    return engine_open(&engine_options, &m->engine, error);
}

static enum status open_sched(struct machine *m)
{
    const struct config *config = m->options.config;
    const struct sched_machine_options options = {
        .slot_count = LIMIT_MACHINE_REQUESTS,
        .prompt_fill_tokens = config->scheduler.prompt_fill_tokens,
        .prompt_batch_tokens = config->scheduler.prompt_batch_tokens,
        .mixed_prompt_tokens = config->scheduler.mixed_prompt_tokens,
        .batch_sequences_max = config->scheduler.batch_sequences_max,
        .ageing_us = config->scheduler.ageing_ms * 1000ll,
    };
    enum status status = kv_pool_open(m->arena.block_count, &m->kv);
    if (status == ST_OK && config->kv.prefix_cache)
        status = kv_prefix_open(m->kv, m->arena.block_tokens, &m->prefix);
    if (status == ST_OK && m->prefix != NULL)
        status = machine_prefixes_open(m);
    return status == ST_OK ? sched_machine_open(&options, &m->sched) : status;
}

static uint8_t kv_path(const struct config *config)
{
    if (strcmp(config->kv.transfer, "layerwise") == 0)
        return KV_PATH_LAYERWISE;
    return strcmp(config->kv.transfer, "one-piece") == 0 ? KV_PATH_ONE_PIECE : KV_PATH_AUTO;
}

/* Blocks that reservations whose prompts run elsewhere leave alone. Two mixed machines that prefill
 * for each other would wait for each other for ever once reservations filled both: a reservation
 * holds blocks until its prompt has run, and that prompt needs blocks on the other machine. Prompts
 * with a share of their own always run, and free it again. A machine that becomes mixed while it
 * is full waits for older reservations only, none of which waits for a machine without a share.
 * The gateway routes nothing to a mixed machine that is larger than these parts of its memory. */
static uint32_t prompt_share(const struct machine *m, enum message_role_kind role)
{
    if (role != ROLE_MIXED)
        return 0;
    uint32_t context_blocks =
        (m->context_tokens + m->arena.block_tokens - 1) / m->arena.block_tokens;
    return min_u32(context_blocks, m->arena.block_count / 2);
}

void machine_role_set(struct machine *m, enum message_role_kind role)
{
    uint32_t share = prompt_share(m, role);
    token_pool_blocks_max(m->tokens, m->arena.block_count - share);
}

enum message_role_kind machine_role_configured(const struct machine *m)
{
    static const enum message_role_kind roles[] = {[CONFIG_POOL_PROMPT] = ROLE_PROMPT,
                                                   [CONFIG_POOL_TOKEN] = ROLE_TOKEN,
                                                   [CONFIG_POOL_MIXED] = ROLE_MIXED};
    return roles[m->entry->pool];
}

/* The slots of sched_machine are shared: the lower half are prompts, the upper half are decodes. */
static enum status open_pools(struct machine *m)
{
    const struct config *config = m->options.config;
    const uint32_t slots = LIMIT_MACHINE_REQUESTS / 2;
    const struct prompt_links_options links = {.name = m->entry->name,
                                               .transport = m->transport,
                                               .report = machine_link_report,
                                               .lost = machine_link_lost,
                                               .prepare = machine_target_prepare,
                                               .drop = machine_target_drop,
                                               .self = m};
    const struct kv_targets_options targets = {
        .transport = m->transport,
        .arena = m->arena,
        .context_blocks = (m->context_tokens + m->arena.block_tokens - 1) / m->arena.block_tokens,
        .link = machine_target_link,
        .flushed = machine_target_flushed,
        .self = m,
    };
    const struct token_pool_options tokens = {.name = m->entry->name,
                                              .sched = m->sched,
                                              .kv = m->kv,
                                              .prefix = m->prefix,
                                              .block_tokens = m->arena.block_tokens,
                                              .blocks_max = m->arena.block_count,
                                              .first_slot = slots,
                                              .slot_count = slots,
                                              .vocab = m->vocab,
                                              .context_tokens = m->context_tokens,
                                              .growth_tokens = config->scheduler.growth_tokens,
                                              .growth_reserve_percent =
                                                  config->scheduler.growth_reserve_percent,
                                              .preemptions_max = config->scheduler.preemptions_max,
                                              .calls = machine_token_calls(),
                                              .self = m};
    enum status status = prompt_links_open(&links, &m->links);
    if (status == ST_OK)
        status = kv_targets_open(&targets, &m->targets);
    if (status == ST_OK)
        status = token_pool_open(&tokens, &m->tokens);
    if (status != ST_OK)
        return status;
    const struct prompt_pool_options prompts = {
        .name = m->entry->name,
        .sched = m->sched,
        .kv = m->kv,
        .prefix = m->prefix,
        .arena = m->arena,
        .blocks_max = m->arena.block_count,
        .links = m->links,
        .first_slot = 0,
        .slot_count = slots,
        .vocab = m->vocab,
        .context_tokens = m->context_tokens,
        .kv_path = kv_path(config),
        .layerwise_threshold_tokens = config->kv.layerwise_threshold_tokens,
        .calls = machine_prompt_calls(),
        .self = m,
    };
    status = prompt_pool_open(&prompts, &m->prompts);
    if (status != ST_OK)
        return status;
    m->home = machine_role_configured(m);
    machine_role_set(m, m->home);
    return machine_batch_open(m);
}

static enum status open_loop(struct machine *m, struct error *error)
{
    struct epoll_event event = {.events = EPOLLIN};
    m->fd = epoll_create1(EPOLL_CLOEXEC);
    if (m->fd < 0 || epoll_ctl(m->fd, EPOLL_CTL_ADD, transport_fd(m->transport), &event) != 0 ||
        epoll_ctl(m->fd, EPOLL_CTL_ADD, engine_fd(m->engine), &event) != 0)
        return error_set(error, ST_IO, "epoll: %s", strerror(errno));
    return ST_OK;
}

static enum status open_all(struct machine *m, struct error *error)
{
    struct model_hyper hyper;
    enum status status = choose_device(m, error);
    if (status == ST_OK)
        status = open_model_file(m, &hyper, error);
    if (status == ST_OK)
        status = plan_memory(m, &hyper, error);
    if (status == ST_OK)
        status = open_transport(m, error);
    m->options.cluster_key = NULL; /* the caller's may be gone */
    if (status == ST_OK)
        status = open_engine(m, error);
    if (status != ST_OK)
        return status;
    status = open_sched(m);
    if (status == ST_OK)
        status = open_pools(m);
    if (status != ST_OK)
        return error_set(error, status, "machine %s: %s", m->entry->name, status_name(status));
    return open_loop(m, error);
}

enum status machine_open(const struct machine_options *options, struct machine **out,
                         struct error *error)
{
    int entry = config_machine_find(options->config, options->name);
    if (entry < 0)
        return error_set(error, ST_NOT_FOUND, "%s: machines: \"%s\" is not one of them",
                         options->config->source, options->name);
    struct machine *m = calloc(1, sizeof(*m));
    if (m == NULL)
        return error_set(error, ST_NO_MEMORY, "machine %s: out of memory", options->name);
    m->options = *options;
    m->entry = &options->config->machines[entry];
    m->fd = -1;
    m->now_us = clock_now_us(options->clock);
    enum status status = open_all(m, error);
    if (status != ST_OK) {
        machine_close(m);
        return status;
    }
    log_info("machine %s serves %s on %s: %u KV blocks of %u tokens, context %u", m->entry->name,
             model_hyper_of(m->model)->name, m->options.compute->describe(m->compute),
             m->arena.block_count, m->arena.block_tokens, m->context_tokens);
    *out = m;
    return ST_OK;
}

/* Also of a half-open one. The engine first: it reads and writes what the others own. */
void machine_close(struct machine *m)
{
    if (m == NULL)
        return;
    engine_close(m->engine);
    machine_batch_abandon(m); /* its requests are in no batch any more */
    prompt_pool_close(m->prompts);
    token_pool_close(m->tokens);
    prompt_links_close(m->links);
    kv_targets_close(m->targets);
    machine_batch_close(m);
    sched_machine_close(m->sched);
    kv_prefix_close(m->prefix);
    machine_prefixes_close(m);
    kv_pool_close(m->kv);
    model_close(m->model);
    if (m->compute != NULL)
        m->options.compute->close(m->compute);
    transport_close(m->transport);
    gguf_close(m->gguf);
    message_buffer_done(&m->out);
    if (m->fd >= 0)
        close(m->fd);
    free(m);
}
