/* prompt_pool: admission, cancellation, failure and end of requests. */
#include "prompt_pool/prompt_pool.h"

#include "prompt_pool/prompt_state.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum status prompt_pool_open(const struct prompt_pool_options *options, struct prompt_pool **out)
{
    struct prompt_pool *pool =
        calloc(1, sizeof(*pool) + options->slot_count * sizeof(pool->requests[0]));
    if (pool == NULL)
        return ST_NO_MEMORY;
    pool->options = *options;
    if (sched_slots_open(options->first_slot, options->slot_count, &pool->slots) != ST_OK) {
        free(pool);
        return ST_NO_MEMORY;
    }
    *out = pool;
    return ST_OK;
}

void prompt_request_state_set(struct prompt_request *request, enum prompt_request_state to)
{
    /* Bit i: the state may change to state i. */
    static const uint32_t legal[PROMPT_STATE_COUNT] = {
        [PROMPT_FREE] = 1 << PROMPT_QUEUED,
        [PROMPT_QUEUED] = 1 << PROMPT_COMPUTING | 1 << PROMPT_FREE,
        [PROMPT_COMPUTING] = 1 << PROMPT_COMPUTED | 1 << PROMPT_STOPPED_IN_BATCH |
                             1 << PROMPT_STOPPED_FLUSHING | 1 << PROMPT_FREE,
        [PROMPT_COMPUTED] = 1 << PROMPT_FLUSHING | 1 << PROMPT_STOPPED_FLUSHING | 1 << PROMPT_FREE,
        [PROMPT_FLUSHING] = 1 << PROMPT_STOPPED_FLUSHING | 1 << PROMPT_FREE,
        [PROMPT_STOPPED_IN_BATCH] = 1 << PROMPT_STOPPED_FLUSHING | 1 << PROMPT_FREE,
        [PROMPT_STOPPED_FLUSHING] = 1 << PROMPT_FREE,
    };
    assert((legal[request->state] >> to & 1) != 0);
    request->state = to;
}

/* Frees everything that the request holds, without sending a message. */
static void request_forget(struct prompt_pool *pool, struct prompt_request *request)
{
    sched_slot slot = prompt_slot_of(pool, request);
    sched_machine_remove(pool->options.sched, slot);
    prompt_prefix_keep(pool, request);
    prompt_prefix_free(pool, request);
    pool->holder_count -= prompt_request_has_blocks(request) ? 1 : 0;
    free(request->prompt);
    free(request->embedding);
    grammar_answer_close(request->answer);
    prompt_request_state_set(request, PROMPT_FREE);
    memset(request, 0, sizeof(*request));
    sched_slots_free(pool->slots, slot);
}

void prompt_pool_close(struct prompt_pool *pool)
{
    if (pool == NULL)
        return;
    for (uint32_t i = 0; i < pool->options.slot_count; i++)
        if (pool->requests[i].state != PROMPT_FREE)
            request_forget(pool, &pool->requests[i]);
    sched_slots_close(pool->slots);
    message_buffer_done(&pool->tokens_message);
    free(pool);
}

static bool is_open(const struct prompt_pool *pool, const struct message_request *request)
{
    sched_slot slot;
    return sched_slots_find(pool->slots, request->id, request->generation, &slot);
}

bool prompt_pool_has_local(const struct prompt_pool *pool, const struct message_request *request)
{
    sched_slot slot;
    return sched_slots_find(pool->slots, request->id, request->generation, &slot) &&
           pool->requests[slot - pool->options.first_slot].local;
}

uint32_t prompt_pool_count(const struct prompt_pool *pool)
{
    return sched_slots_used_count(pool->slots);
}

uint32_t prompt_pool_holder_count(const struct prompt_pool *pool)
{
    return pool->holder_count;
}

static void send_failed(struct prompt_pool *pool, struct transport_peer *gateway,
                        const struct message_request *name, enum status status, const char *text)
{
    struct message message = {.kind = MESSAGE_FAILED,
                              .failed = {.request = *name, .status = status}};
    snprintf(message.failed.text, sizeof(message.failed.text), "%.255s", text);
    if (gateway != NULL)
        pool->options.calls.send(pool->options.self, gateway, &message);
}

/* Where the prompt's KV goes. */
struct destination {
    struct transport_peer *target;
    uint32_t target_index;
    uint32_t held_count;          /* Number of first spans whose KV is already there. */
    struct prompt_local reserved; /* If `local`. */
    bool local;
};

/* Sizes of the prompt that PREFILL names. */
struct sizes {
    uint32_t spans;
    uint32_t blocks;       /* Blocks that this machine needs. */
    uint32_t window_first; /* See struct prompt_request. */
};

static struct sizes sizes_of(const struct prompt_pool *pool, uint32_t tokens)
{
    const struct kv_arena *arena = &pool->options.arena;
    struct sizes sizes = {.spans = layer_groups_spans(tokens, arena->block_tokens)};
    sizes.blocks = layer_groups_blocks(&arena->groups, sizes.spans, pool->options.kept_spans);
    sizes.window_first = layer_groups_answer_first(&arena->groups, arena->block_tokens, tokens);
    return sizes;
}

/* Checks the blocks that PREFILL names at another machine. */
static enum status target_blocks_check(const struct prompt_pool *pool,
                                       const struct message_prefill *prefill,
                                       const struct sizes *sizes, struct transport_peer *target,
                                       struct error *error)
{
    const struct transport_region_info *region = transport_peer_region(target);
    if (pool->options.arena.groups.windowed != 0 &&
        (prefill->window_first < sizes->window_first || prefill->window_first > sizes->spans))
        return error_set(error, ST_INVALID,
                         "KV of attention windows from span %u on at machine %s, its prompt of %u "
                         "tokens wants %u to %u",
                         prefill->window_first, prefill->token_machine, prefill->prompt_count,
                         sizes->window_first, sizes->spans);
    uint32_t needed = layer_groups_blocks_between(
        &pool->options.arena.groups, prefill->held_span_count, sizes->spans, prefill->window_first);
    if (prefill->block_count < needed)
        return error_set(
            error, ST_INVALID, "%u blocks at machine %s, its prompt of %u tokens needs %u",
            prefill->block_count, prefill->token_machine, prefill->prompt_count, needed);
    for (uint32_t i = 0; i < needed; i++)
        if (prefill->blocks[i] >= region->block_count)
            return error_set(error, ST_INVALID, "block %u at machine %s, which has %u",
                             prefill->blocks[i], prefill->token_machine, region->block_count);
    return ST_OK;
}

static enum status destination_find(struct prompt_pool *pool, const struct message_prefill *prefill,
                                    const struct sizes *sizes, struct destination *out,
                                    struct error *error)
{
    const struct kv_arena *arena = &pool->options.arena;
    const char *why;
    *out = (struct destination){0};
    if (prefill->token_machine[0] == 0)
        return ST_OK;
    out->held_count = prefill->held_span_count;
    if (strcmp(prefill->token_machine, pool->options.name) == 0) {
        out->local = true;
        if (pool->options.calls.local_blocks(pool->options.self, &prefill->request,
                                             &out->reserved) != ST_OK)
            return error_set(error, ST_NOT_FOUND, "no blocks are reserved here");
        out->held_count = out->reserved.tables.cached_spans;
        if (out->reserved.span_count < sizes->spans)
            return error_set(error, ST_INVALID,
                             "blocks for %u tokens are reserved here, the prompt has %u",
                             out->reserved.span_count * arena->block_tokens, prefill->prompt_count);
    } else {
        out->target = prompt_links_find(pool->options.links, prefill->token_machine,
                                        &out->target_index, &why);
        if (out->target == NULL)
            return error_set(error, ST_UNREACHABLE, "no link to token machine %s: %s",
                             prefill->token_machine, why);
        if (!prompt_links_has_path(pool->options.links, out->target_index, prefill->path))
            return error_set(error, ST_INVALID, "machine %s has no path %u", prefill->token_machine,
                             prefill->path);
    }
    uint32_t held_most =
        out->local ? (prefill->prompt_count - 1) / arena->block_tokens : sizes->spans;
    if (out->held_count > held_most)
        return error_set(error, ST_INVALID,
                         "%u blocks are held at machine %s, of a prompt of %u tokens at most %u",
                         out->held_count, prefill->token_machine, prefill->prompt_count, held_most);
    return out->local ? ST_OK : target_blocks_check(pool, prefill, sizes, out->target, error);
}

static enum status prefill_check(const struct prompt_pool *pool,
                                 const struct message_prefill *prefill, bool local, uint32_t blocks,
                                 struct error *error)
{
    const struct prompt_pool_options *options = &pool->options;
    uint32_t least = prefill->prompt_count + (prefill->sampling.output_tokens_max > 0 ? 1 : 0);
    if (least > options->context_tokens)
        return error_set(error, ST_TOO_LARGE, "prompt of %u tokens, the context holds %u",
                         prefill->prompt_count, options->context_tokens);
    if (prefill->sampling.adapter > options->adapter_count)
        return error_set(error, ST_INVALID, "adapter %u, machine %s has %u",
                         prefill->sampling.adapter, options->name, options->adapter_count);
    for (uint32_t i = 0; i < prefill->prompt_count; i++)
        if (prefill->prompt[i] >= options->vocab)
            return error_set(error, ST_INVALID,
                             "prompt token %u at position %u, the vocabulary has %u",
                             prefill->prompt[i], i, options->vocab);
    if (!local && blocks > options->blocks_max)
        return error_set(error, ST_TOO_LARGE,
                         "prompt needs %u KV blocks, machine %s has %u for prompts", blocks,
                         options->name, options->blocks_max);
    return ST_OK;
}

/* Returns TRANSFER_AUTO if measured speeds decide when the first chunk begins. */
static uint8_t transfer_mode_of(const struct prompt_pool *pool,
                                const struct message_prefill *prefill)
{
    uint8_t mode = prefill->transfer_mode != TRANSFER_AUTO ? prefill->transfer_mode
                                                           : pool->options.transfer_mode;
    uint32_t least = pool->options.layerwise_threshold_tokens;
    if (mode != TRANSFER_AUTO || least == UINT32_MAX)
        return mode;
    return prefill->prompt_count >= least ? TRANSFER_LAYERWISE : TRANSFER_ONE_PIECE;
}

static enum status request_init(struct prompt_pool *pool, struct prompt_request *request,
                                const struct message_prefill *prefill, const struct sizes *sizes,
                                const struct destination *destination, int64_t arrived_us)
{
    const struct layer_groups *groups = &pool->options.arena.groups;
    uint32_t ids = layer_groups_count(groups) * sizes->spans;
    uint32_t target_count = destination->target != NULL ? ids : 0;
    uint32_t own_count = destination->local ? 0 : ids;
    uint32_t count = prefill->prompt_count + target_count + own_count;
    bool pushes = destination->target != NULL && !pool->options.stages_push;
    uint32_t layer_count = pushes ? pool->options.arena.layer_count : 0;
    uint32_t *memory = malloc((count + prefill->rule_count + layer_count) * sizeof(uint32_t));
    struct grammar_answer *answer = NULL;
    enum status status = ST_OK;
    if (memory != NULL && prefill->constraint_bytes > 0)
        status = grammar_answer_open(
            pool->options.grammars, prefill->constraint, prefill->constraint_bytes,
            prefill->prompt + (prefill->prompt_count - prefill->answer_count),
            prefill->answer_count, &answer);
    int64_t *embedding = NULL;
    if (prefill->pooling != POOLING_NONE)
        embedding = calloc(pool->options.hidden, sizeof(*embedding));
    if (memory == NULL || status != ST_OK ||
        (embedding == NULL && prefill->pooling != POOLING_NONE)) {
        free(memory);
        free(embedding);
        grammar_answer_close(answer);
        return ST_NO_MEMORY;
    }
    uint32_t output_room = pool->options.context_tokens - prefill->prompt_count;
    uint32_t output_max = prefill->sampling.output_tokens_max;
    *request = (struct prompt_request){
        .attempt = prefill->request,
        .owner = ++pool->admitted_count << 16 | prompt_slot_of(pool, request),
        .target = destination->target,
        .target_index = destination->target_index,
        .target_path = prefill->path,
        .path = destination->reserved.path,
        .sampling = prefill->sampling,
        .answer = answer,
        .output_limit = output_max < output_room ? output_max : output_room,
        .local = destination->local,
        .wants_scores = prefill->score_prompt,
        .pooling = prefill->pooling,
        .embedding = embedding,
        .transfer_mode =
            destination->target != NULL ? transfer_mode_of(pool, prefill) : TRANSFER_ONE_PIECE,
        .prompt = memory,
        .prompt_count = prefill->prompt_count,
        .targets = {.ids = memory + prefill->prompt_count, .stride = sizes->spans},
        .target_held_spans = destination->held_count,
        .tables = {.ids = memory + prefill->prompt_count + target_count,
                   .stride = sizes->spans,
                   .keep = pool->options.kept_spans},
        .owns_blocks = !destination->local,
        .rules = memory + count,
        .rule_count = prefill->rule_count,
        .layer_us = pushes ? memory + count + prefill->rule_count : NULL,
        .span_count = sizes->spans,
        .window_first = pool->options.arena.groups.windowed != 0 ? prefill->window_first : 0,
        .prefix_salt = prefill->prefix_salt,
        .arrived_us = arrived_us,
        .first_write_us = -1,
    };
    if (request->local)
        request->tables = destination->reserved.tables;
    memcpy(request->prompt, prefill->prompt, prefill->prompt_count * sizeof(uint32_t));
    if (prefill->rule_count > 0)
        memcpy(request->rules, prefill->rules, prefill->rule_count * sizeof(uint32_t));
    memset(request->targets.ids, 0xff, target_count * sizeof(uint32_t)); /* KV_BLOCK_NONE */
    if (target_count > 0)
        kv_tables_set(&request->targets, groups, request->target_held_spans, sizes->spans,
                      request->window_first, prefill->blocks);
    if (!request->local && pool->options.paths != NULL)
        request->path = sched_paths_next(pool->options.paths);
    prompt_request_state_set(request, PROMPT_QUEUED);
    return ST_OK;
}

static enum status prefill_admit(struct prompt_pool *pool, struct transport_peer *gateway,
                                 const struct message_prefill *prefill, int64_t arrived_us,
                                 int64_t now_us, struct destination *destination,
                                 struct error *error)
{
    const struct sizes sizes = sizes_of(pool, prefill->prompt_count);
    enum status status = destination_find(pool, prefill, &sizes, destination, error);
    if (status == ST_OK)
        status = prefill_check(pool, prefill, destination->local, sizes.blocks, error);
    if (status != ST_OK)
        return status;
    sched_slot slot;
    status = sched_slots_take(pool->slots, prefill->request.id, prefill->request.generation, &slot);
    if (status != ST_OK)
        return error_set(error, status, "machine %s has %u prompts, which is its limit",
                         pool->options.name, pool->options.slot_count);
    struct prompt_request *request = prompt_request_of(pool, slot);
    status = request_init(pool, request, prefill, &sizes, destination, arrived_us);
    if (status != ST_OK) {
        sched_slots_free(pool->slots, slot);
        return error_set(error, status, "machine %s is out of memory", pool->options.name);
    }
    request->gateway = gateway;
    if (prefill->copied_generation > 0) {
        status = prompt_copy_begin(pool, request, prefill, now_us, error);
        if (status != ST_OK)
            request_forget(pool, request);
        return status;
    }
    const struct sched_rank rank = {
        .key = prefill->rank.key,
        .weight = prefill->rank.weight,
        .priority = prefill->rank.priority,
        .resumed = prefill->request.generation > 0,
        .born_us = arrived_us - prefill->rank.waited_ms * 1000ll,
        .request_number = message_request_number(&prefill->request),
    };
    sched_machine_prompt_add(pool->options.sched, slot, request->path,
                             prompt_prefix_tokens_left(pool, request),
                             request->local ? 0 : sizes.blocks, &rank);
    return ST_OK;
}

bool prompt_pool_withdraw(struct prompt_pool *pool, const struct message_request *request)
{
    if (is_open(pool, request)) {
        prompt_pool_cancel(pool, request);
        return true;
    }
    pool->withdrawn[pool->withdrawn_count++ % PROMPT_WITHDRAWN_MAX] = *request;
    return false;
}

static bool is_withdrawn(const struct prompt_pool *pool, const struct message_request *request)
{
    for (uint32_t i = 0; i < pool->withdrawn_count && i < PROMPT_WITHDRAWN_MAX; i++)
        if (pool->withdrawn[i].id == request->id &&
            pool->withdrawn[i].generation == request->generation)
            return true;
    return false;
}

void prompt_pool_prefill(struct prompt_pool *pool, struct transport_peer *gateway,
                         const struct message_prefill *prefill, int64_t arrived_us, int64_t now_us)
{
    struct destination destination;
    struct error error;
    if (is_withdrawn(pool, &prefill->request)) {
        send_failed(pool, gateway, &prefill->request, ST_CANCELLED,
                    "its token machine has given it up");
        return;
    }
    if (is_open(pool, &prefill->request)) {
        send_failed(pool, gateway, &prefill->request, ST_INVALID,
                    "PREFILL for a request that is already open");
        return;
    }
    enum status status =
        prefill_admit(pool, gateway, prefill, arrived_us, now_us, &destination, &error);
    if (status == ST_OK)
        return;
    send_failed(pool, gateway, &prefill->request, status, error.text);
    struct message aborted = {.kind = MESSAGE_KV_ABORTED, .kv_aborted = prefill->request};
    if (destination.target != NULL)
        pool->options.calls.send(pool->options.self, destination.target, &aborted);
    if (destination.reserved.tables.ids != NULL)
        pool->options.calls.local_aborted(pool->options.self, &prefill->request);
}

/* Removes the slot of a request that is stopped from `computed`; its first token is not sent. */
static void computed_remove(struct prompt_pool *pool, sched_slot slot)
{
    for (uint32_t i = 0; i < pool->computed_count; i++)
        if (pool->computed[i] == slot)
            pool->computed[i] = SCHED_NO_SLOT;
}

void prompt_request_stop(struct prompt_pool *pool, struct prompt_request *request)
{
    sched_slot slot = prompt_slot_of(pool, request);
    if (request->state == PROMPT_COMPUTED)
        computed_remove(pool, slot);
    if (sched_machine_in_batch(pool->options.sched, slot)) {
        if (request->state != PROMPT_STOPPED_IN_BATCH)
            prompt_request_state_set(request, PROMPT_STOPPED_IN_BATCH);
        pool->stopped_in_batch = true;
        sched_machine_stop(pool->options.sched, slot);
        return; /* prompt_pool_chunk_done or _abandoned calls this again, once for each batch. */
    }
    sched_machine_remove(pool->options.sched, slot);
    if (!request->writes_pending) {
        prompt_push_abort(pool, request);
        request_forget(pool, request);
        return;
    }
    /* prompt_pool_flushed calls this function again. */
    bool flushing = request->state == PROMPT_FLUSHING;
    prompt_request_state_set(request, PROMPT_STOPPED_FLUSHING);
    if (!flushing)
        prompt_push_flush(pool, request);
}

void prompt_request_fail(struct prompt_pool *pool, struct prompt_request *request,
                         enum status status, const char *text)
{
    if (!prompt_request_is_stopped(request)) {
        send_failed(pool, request->gateway, &request->attempt, status, text);
        pool->stats.transfers_failed += request->first_write_us >= 0 ? 1 : 0;
    }
    prompt_request_stop(pool, request);
}

static void request_cancel(struct prompt_pool *pool, struct prompt_request *request)
{
    if (!prompt_request_is_stopped(request))
        prompt_request_stop(pool, request);
}

void prompt_pool_cancel(struct prompt_pool *pool, const struct message_request *name)
{
    sched_slot slot;
    if (sched_slots_find(pool->slots, name->id, name->generation, &slot))
        request_cancel(pool, prompt_request_of(pool, slot));
}

bool prompt_pool_stops_take(struct prompt_pool *pool)
{
    bool any = pool->stopped_in_batch;
    pool->stopped_in_batch = false;
    return any;
}

bool prompt_pool_is_stopped(struct prompt_pool *pool, sched_slot slot)
{
    return prompt_request_is_stopped(prompt_request_of(pool, slot));
}

void prompt_pool_gateway_gone(struct prompt_pool *pool, const struct transport_peer *gateway)
{
    for (uint32_t i = 0; i < pool->options.slot_count; i++) {
        struct prompt_request *request = &pool->requests[i];
        if (request->state == PROMPT_FREE || (gateway != NULL && request->gateway != gateway))
            continue;
        request->gateway = NULL;
        request_cancel(pool, request);
    }
}

void prompt_pool_target_down(struct prompt_pool *pool, const struct transport_peer *target,
                             const char *text, int64_t now_us)
{
    struct error error;
    for (uint32_t i = 0; i < pool->options.slot_count; i++) {
        struct prompt_request *request = &pool->requests[i];
        if (request->state == PROMPT_FREE || request->target != target)
            continue;
        /* No write is in flight any longer, and KV_ABORTED has no receiver. */
        request->target = NULL;
        request->writes_pending = false;
        if (request->answer_ended && !prompt_request_is_stopped(request)) {
            if (request->state == PROMPT_FLUSHING) /* Else prompt_pool_results_send completes it. */
                prompt_request_complete(pool, request, now_us);
            continue;
        }
        error_set(&error, ST_UNREACHABLE, "link to its token machine is down: %s", text);
        prompt_request_fail(pool, request, ST_UNREACHABLE, error.text);
    }
}

static uint32_t interval_us(int64_t from_us, int64_t to_us)
{
    int64_t interval = from_us >= 0 ? to_us - from_us : 0;
    return interval < 0 ? 0 : interval > UINT32_MAX ? UINT32_MAX : (uint32_t)interval;
}

void prompt_request_complete(struct prompt_pool *pool, struct prompt_request *request,
                             int64_t now_us)
{
    bool pushed = request->first_write_us >= 0;
    /* The latest push reached the last layer: all layers have a time. */
    bool whole = pushed && request->layer_us != NULL &&
                 request->push_first_layer == pool->options.arena.layer_count;
    struct message message = {
        .kind = MESSAGE_PREFILLED,
        .prefilled =
            {
                .request = request->attempt,
                .queue_us = interval_us(request->arrived_us, request->began_us),
                .prefill_us = interval_us(request->began_us, request->computed_us),
                .exposed_us = pushed ? interval_us(request->computed_us, now_us) : 0,
                .transfer_us = pushed ? interval_us(request->first_write_us, now_us) : 0,
                .layers = pushed ? pool->options.arena.layer_count : 0,
                .layerwise = prompt_is_layerwise(request),
                .bytes = request->pushed_bytes,
                .layer_count = whole ? pool->options.arena.layer_count : 0,
                .layer_us = request->layer_us,
            },
    };
    if (pushed && !request->answer_ended && !request->copy) {
        pool->stats.transfers_layerwise += prompt_is_layerwise(request) ? 1 : 0;
        pool->stats.transfers_one_piece += prompt_is_layerwise(request) ? 0 : 1;
        pool->stats.transfer_us += message.prefilled.transfer_us;
        pool->stats.transfer_exposed_us += message.prefilled.exposed_us;
    }
    if (request->gateway != NULL)
        pool->options.calls.send(pool->options.self, request->gateway, &message);
    request_forget(pool, request);
}

void prompt_pool_token_us_set(struct prompt_pool *pool, double token_us)
{
    pool->token_us = token_us;
}

void prompt_pool_load_add(const struct prompt_pool *pool, const struct transport_peer *gateway,
                          struct message_others *out)
{
    uint32_t block_tokens = pool->options.arena.block_tokens;
    if (sched_slots_used_count(pool->slots) == 0)
        return;
    for (uint32_t i = 0; i < pool->options.slot_count; i++) {
        const struct prompt_request *request = &pool->requests[i];
        if (request->state == PROMPT_FREE || request->gateway == gateway)
            continue;
        if (request->owns_blocks)
            out->kv_tokens +=
                layer_groups_kv_tokens(&pool->options.arena.groups, block_tokens,
                                       request->prompt_count + 1, pool->options.kept_spans);
        if (request->state != PROMPT_QUEUED && request->state != PROMPT_COMPUTING)
            continue;
        out->prompts++;
        out->prompt_tokens += request->prompt_count - request->tables.cached_spans * block_tokens;
    }
}

void prompt_pool_stats_add(const struct prompt_pool *pool, struct message_stats *stats)
{
    message_stats_add(stats, &pool->stats);
}
