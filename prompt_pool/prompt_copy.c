/* prompt_copy: KV that this machine has, copied to another machine's prefix cache. A copy is a
 * request that is computed from the start: it is in no batch, and its blocks belong to the prefix
 * cache of this machine, which keeps them while the copy reads them. */
#include "prompt_pool/prompt_state.h"

enum status prompt_copy_begin(struct prompt_pool *pool, struct prompt_request *request,
                              const struct message_prefill *prefill, int64_t now_us,
                              struct error *error)
{
    const struct prompt_pool_options *options = &pool->options;
    const uint32_t block_tokens = options->arena.block_tokens;
    const struct message_request source = {.id = prefill->request.id,
                                           .generation = prefill->copied_generation - 1};
    if (options->prefix == NULL || options->arena.groups.windowed != 0 || options->stages_push ||
        request->target == NULL || request->prompt_count % block_tokens != 0)
        return error_set(error, ST_INVALID, "machine %s cannot copy %u tokens to machine \"%s\"",
                         options->name, request->prompt_count, prefill->token_machine);
    options->calls.publish(options->self, &source);
    request->copy = true;
    request->owns_blocks = false;
    kv_prefix_read_begin(options->prefix, request->prefix_salt, request->prompt,
                         request->span_count, KV_PREFIX_WHOLE_WINDOW, &request->tables,
                         &request->reader);
    if (request->tables.held < request->span_count)
        return error_set(error, ST_NOT_FOUND, "machine %s has only %u of %u blocks to copy",
                         options->name, request->tables.held, request->span_count);
    prompt_request_state_set(request, PROMPT_COMPUTING);
    prompt_request_state_set(request, PROMPT_COMPUTED);
    request->began_us = request->computed_us = now_us;
    request->push_first_span = request->target_held_spans;
    request->push_end_span = request->push_window_first = request->span_count;
    request->push_first_layer = 0;
    if (pool->computed_count == LIMIT_BATCH_SEQUENCES)
        prompt_pool_results_send(pool, now_us);
    pool->computed[pool->computed_count++] = prompt_slot_of(pool, request);
    return ST_OK;
}
