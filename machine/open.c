/* machine_open: creates the parts of a machine in their order: the model file and its limits first,
 * so that an operator's mistake is reported before any memory is allocated; weights after the KV
 * region. */
#include "machine/state.h"

#include "common/log.h"
#include "model/file/model_file.h"
#include "model/text/tokenizer.h"
#include "scheduler/options.h"

#include <assert.h>
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

static enum status open_transport(void *self, uint64_t region_bytes,
                                  const struct device_memory *device, struct transport **out,
                                  struct error *error)
{
    struct machine *m = self;
    struct transport_options options =
        machine_shape_transport_options(m->options.config, m->config_entry, &m->shape);
    options.events = machine_transport_events();
    options.self = m;
    options.region_bytes = region_bytes;
    options.device = device;
    options.keys = m->options.cluster_keys;
    memcpy(options.identity.name, m->config_entry->name, sizeof(options.identity.name));
    enum status status = transport_open(m->options.transport, &options, &m->transport, error);
    *out = m->transport;
    return status;
}

/* The only place that knows which executor a machine has. */
static enum status open_executor(struct machine *m, struct error *error)
{
    const struct executor_options options = {
        .config = m->options.config,
        .config_entry = m->config_entry,
        .shape = &m->shape,
        .file = m->file,
        .compute = m->options.compute,
        .turns = m->options.turns,
        .cluster_keys = m->options.cluster_keys,
        .turns_fd = m->options.turns_fd,
        .log_level = m->options.log_level,
        .calls = {.transport_open = open_transport,
                  .batch_done = machine_batch_done,
                  .layers_computed = machine_batch_layers,
                  .target_flushed = machine_target_flushed,
                  .target_changed = machine_target_link,
                  .writer_changed = machine_target_writer,
                  .kv_await_known = machine_target_awaited,
                  .kv_copied = machine_tiers_copied},
        .self = m,
    };
    return m->shape.plan.process_count > 0 ? executor_pipeline_open(&options, &m->executor, error)
                                           : executor_local_open(&options, &m->executor, error);
}

static enum status open_sched(struct machine *m)
{
    const struct config *config = m->options.config;
    const struct stage_plan *plan = &m->shape.plan;
    const struct sched_machine_facts facts = {.stage_count = plan->stage_count,
                                              .path_count = plan->paths.path_count,
                                              .micro_batch_tokens = plan->micro_batch_tokens};
    const struct sched_machine_options options = sched_machine_options_make(config, &facts);
    /* Replicas hold the KV of their own requests only: KV of one path cannot be read on another, so
     * there is no prefix cache with several paths. */
    bool prefixes = config->kv.prefix_cache && plan->paths.path_count <= 1;
    enum status status = kv_pool_open(m->arena.block_count, &m->kv);
    if (status == ST_OK && prefixes)
        status = kv_prefix_open(m->kv, &m->arena.groups, m->arena.block_tokens, &m->prefix);
    if (status == ST_OK && m->prefix != NULL)
        status = machine_prefixes_open(m);
    return status == ST_OK ? sched_machine_open(&options, &m->sched) : status;
}

static uint8_t transfer_mode(const struct config *config)
{
    if (strcmp(config->kv.transfer, "layerwise") == 0)
        return TRANSFER_LAYERWISE;
    return strcmp(config->kv.transfer, "one-piece") == 0 ? TRANSFER_ONE_PIECE : TRANSFER_AUTO;
}

/* The slots of sched_machine are divided: the lower half for prompts, the upper half for decodes
 * (sched_memory_options_make). */
static enum status open_pools(struct machine *m)
{
    const struct config *config = m->options.config;
    const struct prompt_links_options links = {.name = m->config_entry->name,
                                               .transport = m->transport,
                                               .link_changed = machine_link_report,
                                               .link_asked = machine_link_send,
                                               .link_measured = machine_link_measured,
                                               .peer_lost = machine_link_lost,
                                               .target_prepare = machine_target_prepare,
                                               .target_drop = machine_target_drop,
                                               .self = m};
    m->drafts.always = config->scheduler.speculative_always;
    const struct token_pool_options tokens = {
        .name = m->config_entry->name,
        .sched = m->sched,
        .kv = m->kv,
        .prefix = m->prefix,
        .memory = sched_memory_options_make(config, &m->arena.groups, m->arena.block_count,
                                            m->shape.context_tokens),
        .vocab = m->shape.hyper.vocab,
        .adapter_count = m->shape.adapter_count,
        .grammars = m->grammars,
        .drafts = &m->drafts,
        .draft_model = machine_draft_sizes(m),
        .paths = &m->token_paths,
        .calls = machine_token_calls(m),
        .self = m};
    enum status status = prompt_links_open(&links, &m->links);
    if (status == ST_OK)
        status = token_pool_open(&tokens, &m->token_pool);
    if (status != ST_OK)
        return status;
    const struct prompt_pool_options prompts = {
        .name = m->config_entry->name,
        .sched = m->sched,
        .kv = m->kv,
        .prefix = m->prefix,
        .arena = m->arena,
        .blocks_max = m->arena.block_count,
        .kept_spans = sched_memory_kept_spans(&tokens.memory, true),
        .links = m->links,
        .first_slot = 0,
        .slot_count = tokens.memory.first_slot,
        .vocab = m->shape.hyper.vocab,
        .hidden = m->shape.hyper.hidden,
        .adapter_count = m->shape.adapter_count,
        .context_tokens = m->shape.context_tokens,
        .transfer_mode = transfer_mode(config),
        .layerwise_threshold_tokens = config->kv.layerwise_threshold_tokens,
        .grammars = m->grammars,
        .paths = &m->prompt_paths,
        .stages_push = m->executor->pushes_kv,
        .calls = machine_prompt_calls(),
        .self = m,
    };
    status = prompt_pool_open(&prompts, &m->prompt_pool);
    if (status != ST_OK)
        return status;
    m->home_pool = m->config_entry->pool;
    token_pool_mixed_set(m->token_pool, m->home_pool == POOL_MIXED);
    return machine_batch_open(m);
}

static bool watch(struct machine *m, int fd)
{
    struct epoll_event event = {.events = EPOLLIN};
    return epoll_ctl(m->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

static enum status open_loop(struct machine *m, struct error *error)
{
    m->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (m->epoll_fd < 0 || !watch(m, transport_fd(m->transport)) ||
        !watch(m, m->executor->ops->fd(m->executor)) ||
        (m->grammars != NULL && !watch(m, grammar_cache_fd(m->grammars))) ||
        (m->tiers != NULL && !watch(m, machine_tiers_fd(m))) ||
        (m->draft != NULL && !watch(m, machine_draft_fd(m))))
        return error_set(error, ST_IO, "epoll: %s", strerror(errno));
    return ST_OK;
}

static const char *piece_of(const void *self, uint32_t id, size_t *bytes_out, bool *control_out)
{
    const struct tokenizer *t = self;
    *control_out = tokenizer_is_special(t, id);
    return tokenizer_piece(t, id, bytes_out);
}

struct grammar_input {
    struct model_file *file;
    uint32_t vocab;
};

/* Reads the bytes of the model's tokens, which masks of constrained answers need, and closes the
 * file. A model without a tokenizer serves no such answers. Called on the thread of the grammar
 * cache. */
static enum status vocabulary_make(void *self, struct grammar_vocabulary **out, struct error *error)
{
    struct grammar_input *input = self;
    struct tokenizer *tokenizer;
    enum status status = tokenizer_open(input->file, &tokenizer, error);
    if (status == ST_OK) {
        status = grammar_vocabulary_open(input->vocab, piece_of, tokenizer, out, error);
        tokenizer_close(tokenizer);
        malloc_trim(0); /* the tokenizer took several MiB, which malloc would keep */
    }
    if (status != ST_OK)
        log_info("no constrained answers: %s", error->text);
    model_file_close(input->file);
    free(input);
    return status;
}

/* Gives the model file, whose weights are repacked, to the grammar cache. */
static enum status machine_grammars_open(struct machine *m, struct error *error)
{
    struct grammar_input *input = malloc(sizeof(*input));
    if (input == NULL)
        return error_set(error, ST_NO_MEMORY, "machine %s: out of memory", m->config_entry->name);
    *input = (struct grammar_input){.file = m->file, .vocab = m->shape.hyper.vocab};
    enum status status = grammar_cache_open(vocabulary_make, input, &m->grammars, error);
    if (status == ST_OK)
        m->file = NULL;
    else
        free(input);
    return status;
}

static enum status open_all(struct machine *m, struct error *error)
{
    enum status status =
        machine_shape_read(m->options.config, m->config_entry, &m->file, &m->shape, error);
    if (status != ST_OK)
        return status;
    m->arena = m->shape.arena;
    m->prompt_paths = m->token_paths = m->shape.plan.paths;
    status = open_executor(m, error);
    if (status == ST_OK)
        status = machine_draft_open(m, error);
    m->options.cluster_keys = NULL; /* the caller's keys may be gone */
    m->weights_us = clock_now_us(m->options.clock);
    if (status == ST_OK)
        status = machine_grammars_open(m, error);
    if (status != ST_OK)
        return status;
    status = open_sched(m);
    if (status == ST_OK)
        status = open_pools(m);
    if (status != ST_OK)
        return error_set(error, status, "machine %s: %s", m->config_entry->name,
                         status_name(status));
    status = machine_tiers_open(m, error);
    return status == ST_OK ? open_loop(m, error) : status;
}

static void log_opened(const struct machine *m)
{
    const struct machine_shape *shape = &m->shape;
    log_info("machine %s serves %s on %s: %u KV blocks of %u tokens, context %u; opened in %d ms "
             "(weights: %d)",
             m->config_entry->name, shape->hyper.name, m->executor->ops->describe(m->executor),
             m->arena.block_count, m->arena.block_tokens, shape->context_tokens,
             (int)((clock_now_us(m->options.clock) - m->now_us) / 1000),
             (int)((m->weights_us - m->now_us) / 1000));
    if (shape->kv_scheme_unused)
        log_info(
            "machine %s: the model's files ask for a quantised KV-cache; it is not used: KV is "
            "kept as %s (kv/dtype)",
            m->config_entry->name, compute_kv_dtype_name(shape->kv_dtype));
    if (shape->hyper.context_tokens > LIMIT_CONTEXT_TOKENS &&
        shape->context_tokens == LIMIT_CONTEXT_TOKENS)
        log_warn(
            "machine %s: the model's context of %u tokens is cut to %u, which is the most that "
            "cleave serves",
            m->config_entry->name, shape->hyper.context_tokens, LIMIT_CONTEXT_TOKENS);
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
    m->config_entry = &options->config->machines[entry];
    m->epoll_fd = -1;
    m->now_us = clock_now_us(options->clock);
    if (strcmp(m->config_entry->device, "cpu") == 0)
        energy_open(ENERGY_FOLDER, &m->energy);
    else if (!config_has_stages(m->config_entry)) /* Each stage has a GPU of its own. */
        energy_open_gpu(m->config_entry->device, &m->energy);
    enum status status = open_all(m, error);
    if (status != ST_OK) {
        machine_close(m);
        return status;
    }
    log_opened(m);
    *out = m;
    return ST_OK;
}

/* Gateways are disconnected first: otherwise they would see lost links and send requests to this
 * machine again. */
static void leave_gateways(struct machine *m)
{
    for (uint32_t i = 0; i < MACHINE_GATEWAYS_MAX; i++)
        if (m->gateways[i].peer != NULL)
            transport_disconnect(m->transport, m->gateways[i].peer);
}

/* Also closes a half-open machine. The executor stops first, because it reads and writes memory of
 * the other parts. */
void machine_close(struct machine *m)
{
    if (m == NULL)
        return;
    if (m->executor != NULL)
        m->executor->ops->stop(m->executor);
    machine_draft_stop(m);
    machine_batch_abandon(m); /* after this its requests are in no batch */
    machine_held_close(m);
    machine_tiers_close(m);
    prompt_pool_close(m->prompt_pool);
    token_pool_close(m->token_pool);
    machine_draft_close(m);
    leave_gateways(m);
    prompt_links_close(m->links);
    machine_batch_close(m);
    sched_machine_close(m->sched);
    kv_prefix_close(m->prefix);
    machine_prefixes_close(m);
    kv_pool_close(m->kv);
    grammar_cache_close(m->grammars);
    if (m->executor != NULL)
        m->executor->ops->disconnect(m->executor);
    transport_close(m->transport); /* its region may be in the executor's device memory */
    if (m->executor != NULL)
        m->executor->ops->close(m->executor);
    model_file_close(m->file);
    message_buffer_done(&m->send_buffer);
    energy_close(&m->energy);
    if (m->epoll_fd >= 0)
        close(m->epoll_fd);
    free(m);
}
