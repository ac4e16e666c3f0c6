/* prompt_copy: copies KV that this machine has to the prefix cache of another machine. A copy is a
 * request whose KV exists when it begins, so it is in no batch. In layers without a window, it
 * reads blocks of this machine's prefix cache, which keeps these blocks until the copy ends. In
 * layers with a window, it reads blocks of the answer that is copied. The answer does not wait for
 * the copy, and may overwrite these blocks before they are sent. Then the copy fails, and the other
 * machine keeps none of it. */
#include "prompt_pool/prompt_state.h"

static enum status windows_read(const struct prompt_pool *pool, struct prompt_request *request,
                                struct error *error)
{
    const struct prompt_pool_options *options = &pool->options;
    if (options->arena.groups.windowed == 0 || request->window_first == request->span_count)
        return ST_OK;
    request->reads_windows = true;
    if (options->calls.windows_find(options->self, &request->copied, request->window_first,
                                    request->span_count, &request->tables))
        return ST_OK;
    return error_set(error, ST_NOT_FOUND,
                     "machine %s no longer has the blocks %u to %u of layers with a window",
                     options->name, request->window_first, request->span_count - 1);
}

enum status prompt_copy_begin(struct prompt_pool *pool, struct prompt_request *request,
                              const struct message_prefill *prefill, int64_t now_us,
                              struct error *error)
{
    const struct prompt_pool_options *options = &pool->options;
    const uint32_t block_tokens = options->arena.block_tokens;
    if (options->prefix == NULL || request->target == NULL ||
        request->prompt_count % block_tokens != 0)
        return error_set(error, ST_INVALID, "machine %s cannot copy %u tokens to machine \"%s\"",
                         options->name, request->prompt_count, prefill->token_machine);
    request->copy = true;
    request->owns_blocks = false;
    request->copied = (struct message_request){.id = prefill->request.id,
                                               .generation = prefill->copied_generation - 1};
    options->calls.publish(options->self, &request->copied);
    kv_prefix_read_begin(options->prefix, request->prefix_salt, request->prompt,
                         request->span_count, request->span_count, &request->tables,
                         &request->reader);
    if (request->tables.cached_spans < request->span_count)
        return error_set(error, ST_NOT_FOUND, "machine %s has only %u of %u blocks to copy",
                         options->name, request->tables.cached_spans, request->span_count);
    enum status status = windows_read(pool, request, error);
    if (status != ST_OK)
        return status;
    prompt_request_state_set(request, PROMPT_COMPUTING);
    prompt_request_state_set(request, PROMPT_COMPUTED);
    request->began_us = request->computed_us = now_us;
    request->push_first_span = request->target_held_spans;
    request->push_window_first =
        request->reads_windows ? request->window_first : request->span_count;
    request->push_end_span = request->span_count;
    request->push_first_layer = 0;
    if (pool->computed_count == LIMIT_BATCH_SEQUENCES)
        prompt_pool_results_send(pool, now_us);
    pool->computed[pool->computed_count++] = prompt_slot_of(pool, request);
    return ST_OK;
}

bool prompt_copy_is_intact(const struct prompt_pool *pool, const struct prompt_request *request)
{
    const struct prompt_pool_options *options = &pool->options;
    return !request->reads_windows ||
           options->calls.windows_find(options->self, &request->copied, request->window_first,
                                       request->span_count, NULL);
}
