/* prompt_push: the transfer of KV. Every block of every layer is written once, because two writes
 * to the same bytes without a flush between them may land in either order. So a block that a chunk
 * fills only partly is written with the chunk that completes it, or with the prompt's last chunk.
 */
#include "kvcache/kv_targets.h"
#include "prompt_pool/prompt_state.h"

#include <assert.h>

uint64_t prompt_push_bytes(const struct kv_arena *arena, uint32_t first_layer, uint32_t end_layer,
                           uint32_t full_spans, uint32_t window_spans, uint64_t *kinds)
{
    uint64_t sum = 0;
    for (uint32_t layer = first_layer; layer < end_layer; layer++) {
        const uint32_t group = layer_groups_group_of(&arena->groups, layer);
        const enum layer_kind kind = layer_groups_kind(&arena->groups, group);
        const uint64_t spans = kind == LAYER_WINDOW ? window_spans : full_spans;
        sum += spans * arena->block_bytes;
        if (kinds != NULL)
            kinds[kind] += spans * arena->block_bytes;
    }
    return sum;
}

/* Counts the bytes of the layers that are pushed. Returns their sum. */
static uint64_t pushed_count(struct prompt_pool *pool, const struct prompt_request *request,
                             uint32_t first_layer, uint32_t end_layer)
{
    const uint64_t bytes = prompt_push_bytes(&pool->options.arena, first_layer, end_layer,
                                             request->push_end_span - request->push_first_span,
                                             request->push_end_span - request->push_window_first,
                                             request->copy ? NULL : pool->stats.transfer_bytes);
    pool->stats.checkpoint_bytes += request->copy ? bytes : 0;
    pool->stats.transfer_layers += request->copy ? 0 : end_layer - first_layer;
    return bytes;
}

static double token_bytes(const struct kv_arena *arena)
{
    return (double)arena->block_bytes * arena->layer_count / arena->block_tokens;
}

struct sched_layerwise prompt_pool_layerwise(const struct prompt_pool *pool, uint32_t target)
{
    const struct kv_arena *arena = &pool->options.arena;
    const double rate = (double)prompt_links_speed(pool->options.links, target).bytes_per_s;
    return (struct sched_layerwise){.send_token_us = rate > 0 ? token_bytes(arena) * 1e6 / rate : 0,
                                    .prompt_token_us = pool->token_us,
                                    .layer_count = arena->layer_count};
}

void prompt_push_decide(const struct prompt_pool *pool, struct prompt_request *request)
{
    const struct kv_arena *arena = &pool->options.arena;
    const struct sched_layerwise speeds = prompt_pool_layerwise(pool, request->target_index);
    const uint64_t bytes = prompt_push_bytes(arena, 0, arena->layer_count,
                                             request->span_count - request->target_held_spans,
                                             request->span_count - request->window_first, NULL);
    const bool pays = sched_layerwise_pays(&speeds, (double)bytes / token_bytes(arena),
                                           request->prompt_count -
                                               request->tables.cached_spans * arena->block_tokens);
    request->transfer_mode = pays ? TRANSFER_LAYERWISE : TRANSFER_ONE_PIECE;
}

/* Returns the first span that some layer pushes. */
static uint32_t first_pushed(const struct prompt_pool *pool, const struct prompt_request *request)
{
    const bool windowed = pool->options.arena.groups.windowed != 0;
    return windowed && request->push_window_first < request->push_first_span
               ? request->push_window_first
               : request->push_first_span;
}

void prompt_push_layers(struct prompt_pool *pool, struct prompt_request *request,
                        uint32_t layer_end, int64_t now_us)
{
    const struct prompt_pool_options *options = &pool->options;
    struct kv_push push = {
        .request = {.id = request->attempt.id, .generation = request->attempt.generation},
        .target = request->target_index,
        .path = request->target_path,
        .source_blocks = request->tables.ids,
        .target_blocks = request->targets.ids,
        .source_stride = request->tables.stride,
        .target_stride = request->targets.stride,
        .first = first_pushed(pool, request),
        .count = request->push_end_span - first_pushed(pool, request),
        .full_first = request->push_first_span,
        .window_first = request->push_window_first,
        .layer = request->push_first_layer};
    if ((options->stages_push && !request->copy) || request->target == NULL ||
        prompt_request_is_stopped(request) || push.count == 0 || push.layer >= layer_end)
        return;
    if (request->first_write_us < 0)
        request->first_write_us = now_us;
    if (request->write_status < 0)
        return;
    request->writes_pending = true;
    if (!options->stages_push) {
        request->write_status = options->calls.push(options->self, &push, layer_end);
    } else {
        request->write_status =
            options->calls.copy(options->self, request->path, &push, request->owner);
        push.layer = layer_end;
    }
    const uint64_t bytes = pushed_count(pool, request, request->push_first_layer, push.layer);
    request->pushed_bytes += bytes;
    prompt_links_written(options->links, request->target_index, bytes, now_us);
    for (uint32_t layer = request->push_first_layer;
         layer < push.layer && request->layer_us != NULL; layer++)
        request->layer_us[layer] = (uint32_t)(now_us - request->began_us);
    request->push_first_layer = push.layer;
}

void prompt_push_plan(struct prompt_pool *pool, struct prompt_request *request, bool last,
                      int64_t now_us, struct prompt_push *out)
{
    const struct kv_arena *arena = &pool->options.arena;
    uint32_t first = first_pushed(pool, request);
    uint32_t count = request->push_end_span - first;
    *out = (struct prompt_push){.span_count = 0};
    if (!pool->options.stages_push || request->target == NULL || count == 0 ||
        (!prompt_is_layerwise(request) && !last))
        return;
    *out = (struct prompt_push){
        .span_count = count,
        .first_span = first,
        .full_first = request->push_first_span,
        .window_first = request->push_window_first,
        .target = request->target_index,
        .path = request->target_path,
        .blocks = request->targets.ids,
        .stride = request->targets.stride,
        .cookie = request->owner,
        .request = request->attempt,
        .layerwise = prompt_is_layerwise(request),
        .is_last = last,
    };
    request->pushed_bytes += pushed_count(pool, request, 0, arena->layer_count);
    request->writes_pending = true;
    request->stages_flush = last;
    if (request->first_write_us < 0)
        request->first_write_us = now_us;
}

void prompt_pool_layers_done(struct prompt_pool *pool, uint32_t layers, int64_t now_us)
{
    for (uint32_t i = 0; i < pool->running_count; i++) {
        struct prompt_request *request = prompt_request_of(pool, pool->running[i]);
        if (prompt_is_layerwise(request))
            prompt_push_layers(pool, request, layers, now_us);
    }
}

/* The cookie is the owner's id, which no later request in this slot gets. So the end of an earlier
 * request's flush is recognized. */
void prompt_push_flush(struct prompt_pool *pool, struct prompt_request *request)
{
    assert(request->target != NULL);
    request->writes_pending = true;
    prompt_links_flush_begun(pool->options.links, request->target_index, request->owner);
    pool->options.calls.flush(pool->options.self, request->path, request->target_index,
                              request->target_path, request->owner, request->stages_flush);
}

/* The cookie of a flush that prompt_push_progress begins. Bit 63 is 0 in every owner's id. */
#define PROGRESS_COOKIE(owner) ((owner) | 1ull << 63)

static void progress_send(struct prompt_pool *pool, const struct prompt_request *request,
                          struct transport_peer *peer, uint32_t spans)
{
    const struct message message = {
        .kind = MESSAGE_PROGRESS,
        .progress = {.request = request->attempt,
                     .tokens = spans * pool->options.arena.block_tokens}};
    if (peer != NULL && spans > 0)
        pool->options.calls.send(pool->options.self, peer, &message);
}

/* Stage processes flush once per request (stage_jobs.c), so a machine with stages does not tell the
 * token machine what has arrived. */
void prompt_push_progress(struct prompt_pool *pool, struct prompt_request *request)
{
    const struct prompt_pool_options *options = &pool->options;
    if (options->prefix == NULL || request->local)
        return;
    progress_send(pool, request, request->gateway,
                  request->computed_tokens / options->arena.block_tokens);
    if (request->target == NULL || !prompt_is_layerwise(request) || options->stages_push ||
        request->write_status < 0 || request->flushing_spans > 0 ||
        request->push_end_span <= request->arrived_spans)
        return;
    request->flushing_spans = request->push_end_span;
    prompt_links_flush_begun(options->links, request->target_index,
                             PROGRESS_COOKIE(request->owner));
    options->calls.flush(options->self, request->path, request->target_index, request->target_path,
                         PROGRESS_COOKIE(request->owner), false);
}

/* Sends PROGRESS even if the request is stopped, because the token machine can keep the KV that has
 * arrived. After a failed flush, the link ends. */
static void progress_flushed(struct prompt_pool *pool, struct prompt_request *request,
                             enum status status)
{
    uint32_t spans = request->flushing_spans;
    request->flushing_spans = 0;
    if (status != ST_OK || spans == 0)
        return;
    request->arrived_spans = spans;
    progress_send(pool, request, request->target, spans);
}

void prompt_push_abort(struct prompt_pool *pool, const struct prompt_request *request)
{
    struct message message = {.kind = MESSAGE_KV_ABORTED, .kv_aborted = request->attempt};
    if (request->target != NULL)
        pool->options.calls.send(pool->options.self, request->target, &message);
    if (request->local)
        pool->options.calls.local_aborted(pool->options.self, &request->attempt);
}

static void deliver_kv(struct prompt_pool *pool, struct prompt_request *request, int64_t now_us)
{
    struct message message = {
        .kind = MESSAGE_KV_READY,
        .kv_ready = {.request = request->attempt,
                     .prompt_tokens = request->prompt_count,
                     .first_token = request->first_token.id},
    };
    if (request->answer_ended)
        prompt_push_abort(pool, request);
    else
        pool->options.calls.send(pool->options.self, request->target, &message);
    prompt_request_complete(pool, request, now_us);
}

void prompt_pool_flushed(struct prompt_pool *pool, uint64_t cookie, enum status status,
                         int64_t now_us)
{
    sched_slot slot = (sched_slot)(cookie & 0xffff);
    if (!sched_slots_used(pool->slots, slot))
        return;
    struct prompt_request *request = prompt_request_of(pool, slot);
    if (status == ST_OK && request->target != NULL)
        prompt_links_flushed(pool->options.links, request->target_index, cookie, now_us);
    if (cookie == PROGRESS_COOKIE(request->owner)) {
        progress_flushed(pool, request, status);
        return;
    }
    if (request->owner != cookie ||
        (request->state != PROMPT_FLUSHING && request->state != PROMPT_STOPPED_FLUSHING))
        return;
    request->writes_pending = false;
    if (status != ST_OK) {
        struct error error;
        error_set(&error, status, "the transfer of its KV to machine %s failed: %s",
                  transport_peer_identity(request->target)->name, status_name(status));
        prompt_request_fail(pool, request, status, error.text);
    } else if (request->state == PROMPT_STOPPED_FLUSHING) {
        prompt_request_stop(pool, request);
    } else if (request->copy && !prompt_copy_is_intact(pool, request)) {
        prompt_request_fail(pool, request, ST_NOT_FOUND,
                            "the answer has used blocks of its window again before they were sent");
    } else {
        deliver_kv(pool, request, now_us);
    }
}
