/* token_pool: the requests of the pool, from RESERVE to their end. */
#include "token_pool/token_pool.h"

#include "common/token_rules.h"
#include "token_pool/token_state.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Longest time for which the lease of a reservation is renewed. A reservation that awaits its KV
 * for longer fails, because one side has forgotten it, and its blocks are quarantined. */
#define LEASE_MAX_US 600000000
/* Length of a quarantine after the connections of the prompt machine have ended: writes may still
 * be in the network. */
#define QUARANTINE_US  1000000
#define LEASE_CHECK_US 500000 /* How often leases are checked while there are any. */

enum status token_pool_open(const struct token_pool_options *options, struct token_pool **out)
{
    struct token_pool *pool =
        calloc(1, sizeof(*pool) + options->memory.slot_count * sizeof(pool->requests[0]));
    if (pool == NULL)
        return ST_NO_MEMORY;
    pool->options = *options;
    pool->state_counts[TOKEN_FREE] = options->memory.slot_count;
    enum status status = sched_memory_open(&options->memory, options->sched, &pool->memory);
    if (status == ST_OK)
        status =
            sched_slots_open(options->memory.first_slot, options->memory.slot_count, &pool->slots);
    if (status == ST_OK) {
        size_t ids = (size_t)layer_groups_count(&options->memory.groups) *
                     sched_memory_spans_of(&options->memory, options->memory.context_tokens);
        pool->awaited_blocks = malloc(ids * sizeof(pool->awaited_blocks[0]));
        status = pool->awaited_blocks != NULL ? token_drafts_open(pool) : ST_NO_MEMORY;
    }
    if (status != ST_OK) {
        free(pool->awaited_blocks);
        sched_slots_close(pool->slots);
        sched_memory_close(pool->memory);
        free(pool);
        return status;
    }
    *out = pool;
    return ST_OK;
}

void token_request_state_set(struct token_pool *pool, struct token_request *request,
                             enum token_request_state to)
{
    /* Bit i: the state may change to state i. */
    static const uint32_t legal[TOKEN_STATE_COUNT] = {
        [TOKEN_FREE] = 1 << TOKEN_WAITING,
        [TOKEN_WAITING] = 1 << TOKEN_RESERVED | 1 << TOKEN_FREE,
        [TOKEN_RESERVED] = 1 << TOKEN_DECODING | 1 << TOKEN_QUARANTINED | 1 << TOKEN_FREE,
        [TOKEN_DECODING] = 1 << TOKEN_STOPPED_IN_BATCH | 1 << TOKEN_FREE,
        [TOKEN_STOPPED_IN_BATCH] = 1 << TOKEN_FREE,
        [TOKEN_QUARANTINED] = 1 << TOKEN_FREE,
    };
    assert((legal[request->state] >> to & 1) != 0);
    pool->state_counts[request->state]--;
    pool->state_counts[to]++;
    request->state = to;
}

static uint32_t leased_count(const struct token_pool *pool)
{
    return pool->state_counts[TOKEN_RESERVED] + pool->state_counts[TOKEN_QUARANTINED];
}

void token_request_forget(struct token_pool *pool, struct token_request *request)
{
    sched_slot slot = token_slot_of(pool, request);
    token_await_end(pool, request);
    token_blocks_leave(pool, request);
    sched_memory_remove(pool->memory, slot);
    free(request->tables.ids);
    draft_index_close(&request->draft_index);
    token_request_seat_leave(pool, request);
    grammar_answer_close(request->answer);
    pool->copy_count -= request->copy;
    token_request_state_set(pool, request, TOKEN_FREE);
    memset(request, 0, sizeof(*request));
    sched_slots_free(pool->slots, slot);
}

void token_pool_close(struct token_pool *pool)
{
    if (pool == NULL)
        return;
    for (uint32_t i = 0; i < pool->options.memory.slot_count; i++)
        if (pool->requests[i].state != TOKEN_FREE)
            token_request_forget(pool, &pool->requests[i]);
    draft_seats_close(pool->draft_seats);
    sched_slots_close(pool->slots);
    sched_memory_close(pool->memory);
    message_buffer_done(&pool->tokens_message);
    free(pool->awaited_blocks);
    free(pool->writers);
    free(pool);
}

uint32_t token_pool_count(const struct token_pool *pool)
{
    return sched_slots_used_count(pool->slots);
}

static struct token_request *request_find(const struct token_pool *pool,
                                          const struct message_request *name)
{
    sched_slot slot;
    if (!sched_slots_find(pool->slots, name->id, name->generation, &slot))
        return NULL;
    return token_request_of((struct token_pool *)pool, slot);
}

static bool is_process_of(const char *process, const char *machine)
{
    size_t bytes = strcspn(process, "/");
    return strlen(machine) == bytes && memcmp(process, machine, bytes) == 0;
}

bool token_pool_request_awaits(const struct token_pool *pool, const struct message_request *name,
                               const char *process, uint64_t first, uint64_t count)
{
    const struct token_request *request = request_find(pool, name);
    return request != NULL && request->state == TOKEN_RESERVED &&
           is_process_of(process, request->prompt_machine) &&
           kv_pool_fillable(pool->options.kv, request->owner, first, count);
}

bool token_pool_copy_arrives(const struct token_pool *pool, uint64_t request_id)
{
    for (uint32_t i = 0; pool->copy_count > 0 && i < pool->options.memory.slot_count; i++) {
        const struct token_request *request = &pool->requests[i];
        if (request->state == TOKEN_RESERVED && request->copy && request->attempt.id == request_id)
            return true;
    }
    return false;
}

static void send_failed(struct token_pool *pool, struct transport_peer *gateway,
                        const struct message_request *name, enum status status, const char *text)
{
    struct message message = {.kind = MESSAGE_FAILED,
                              .failed = {.request = *name, .status = status}};
    snprintf(message.failed.text, sizeof(message.failed.text), "%.255s", text);
    if (gateway != NULL)
        pool->options.calls.send(pool->options.self, gateway, &message);
}

/* Allocates the request's tables and takes its constraint. */
static enum status tables_open(struct token_pool *pool, struct token_request *request,
                               const struct message_reserve *reserve)
{
    const struct sched_memory_options *memory = &pool->options.memory;
    request->tables.stride =
        sched_memory_spans_of(memory, request->prompt_tokens + request->output_limit);
    request->tables.keep = request->copy && !request->copy_windows
                               ? 0
                               : sched_memory_kept_spans(memory, request->local);
    size_t ids = (size_t)layer_groups_count(&memory->groups) * request->tables.stride;
    bool has_prompt = reserve->prompt_count > 0;
    size_t tokens = has_prompt ? (size_t)request->prompt_tokens + request->output_limit : 0;
    request->tables.ids = malloc((ids + tokens + reserve->rule_count) * sizeof(uint32_t));
    if (request->tables.ids == NULL)
        return ST_NO_MEMORY;
    request->token_rules = request->tables.ids + ids + tokens;
    request->token_rule_words = reserve->rule_count;
    if (reserve->rule_count > 0)
        memcpy(request->token_rules, reserve->rules, reserve->rule_count * sizeof(uint32_t));
    if (reserve->constraint_bytes > 0 &&
        grammar_answer_open(pool->options.grammars, reserve->constraint, reserve->constraint_bytes,
                            reserve->answer, reserve->answer_count, &request->answer) != ST_OK) {
        free(request->tables.ids);
        return ST_NO_MEMORY;
    }
    if (!has_prompt)
        return ST_OK;
    request->uses_prefix_cache = reserve->prefix_cache && pool->options.prefix != NULL;
    request->reads_tokens = token_rules_depend_on_context(&request->sampling, request->token_rules,
                                                          request->token_rule_words);
    request->tokens = request->tables.ids + ids;
    memcpy(request->tokens, reserve->prompt, request->prompt_tokens * sizeof(uint32_t));
    if (pool->options.memory.draft_tokens > 0 && !request->copy)
        draft_index_open(&request->draft_index, (uint32_t)tokens, request->answer != NULL);
    token_request_seat_take(pool, request);
    return ST_OK;
}

static enum status reserve_admit(struct token_pool *pool, struct transport_peer *gateway,
                                 const struct message_reserve *reserve, int64_t now_us,
                                 struct error *error)
{
    const struct token_pool_options *options = &pool->options;
    if (reserve->prompt_tokens >= options->memory.context_tokens)
        return error_set(error, ST_TOO_LARGE, "prompt of %u tokens, the context holds %u",
                         reserve->prompt_tokens, options->memory.context_tokens);
    if (reserve->sampling.adapter > options->adapter_count)
        return error_set(error, ST_INVALID, "adapter %u, machine %s has %u",
                         reserve->sampling.adapter, options->name, options->adapter_count);
    uint32_t output_room = options->memory.context_tokens - reserve->prompt_tokens;
    uint32_t output_max = reserve->sampling.output_tokens_max;
    uint32_t output_limit = reserve->copy ? 0 : output_max < output_room ? output_max : output_room;
    uint32_t tokens = reserve->prompt_tokens + output_limit;
    bool local = strcmp(reserve->prompt_machine, options->name) == 0;
    if (reserve->copy &&
        (options->prefix == NULL || !reserve->prefix_cache || local || reserve->prompt_count == 0 ||
         reserve->prompt_tokens % options->memory.block_tokens != 0))
        return error_set(error, ST_INVALID, "machine %s stores no copy of %u tokens of machine %s",
                         options->name, reserve->prompt_tokens, reserve->prompt_machine);
    uint32_t blocks = sched_memory_blocks_of(&options->memory, tokens, local);
    uint32_t most = kv_pool_block_count(options->kv);
    if (blocks > most)
        return error_set(
            error, ST_TOO_LARGE,
            "%u tokens of prompt and answer need %u KV blocks, machine %s has %u for them", tokens,
            blocks, options->name, most);
    sched_slot slot;
    enum status status =
        sched_slots_take(pool->slots, reserve->request.id, reserve->request.generation, &slot);
    if (status == ST_INVALID)
        return error_set(error, status, "RESERVE for a request that is already open");
    if (status != ST_OK)
        return error_set(error, status, "machine %s has %u requests, which is its limit",
                         options->name, options->memory.slot_count);
    struct token_request *request = token_request_of(pool, slot);
    *request = (struct token_request){
        .attempt = reserve->request,
        .owner = ++pool->admitted_count << 16 | slot,
        .gateway = gateway,
        .local = local,
        .copy = reserve->copy,
        .copy_windows = reserve->copy_windows,
        .sampling = reserve->sampling,
        .prompt_tokens = reserve->prompt_tokens,
        .output_limit = output_limit,
        .prefix_salt = reserve->prefix_salt,
        .began_us = -1,
    };
    if (options->paths != NULL)
        request->path = sched_paths_next(options->paths);
    status = tables_open(pool, request, reserve);
    if (status != ST_OK) {
        sched_slots_free(pool->slots, slot);
        return error_set(error, status, "machine %s is out of memory", options->name);
    }
    memcpy(request->prompt_machine, reserve->prompt_machine, sizeof(request->prompt_machine));
    token_request_state_set(pool, request, TOKEN_WAITING);
    pool->copy_count += reserve->copy;
    if (reserve->copy) {
        sched_memory_copy_add(pool->memory, slot, request->prompt_tokens, request->copy_windows);
        if (token_copy_grant(pool, request, now_us))
            return ST_OK;
        token_request_forget(pool, request);
        return error_set(error, ST_NO_RESOURCE, "machine %s has no memory for copies",
                         options->name);
    }
    sched_memory_reserve(
        pool->memory, slot,
        &(struct sched_memory_request){
            .prompt_tokens = request->prompt_tokens,
            .answer_tokens = request->output_limit,
            .preemptions = reserve->rank.preemptions,
            .path = request->path,
            .prompt_is_local = request->local,
            .rank = {.key = reserve->rank.key,
                     .weight = reserve->rank.weight,
                     .priority = reserve->rank.priority,
                     .resumed = reserve->request.generation > 0,
                     .born_us = now_us - reserve->rank.waited_ms * 1000ll,
                     .request_number = message_request_number(&reserve->request)}});
    return ST_OK;
}

void token_pool_reserve(struct token_pool *pool, struct transport_peer *gateway,
                        const struct message_reserve *reserve, int64_t now_us)
{
    struct error error;
    enum status status = reserve_admit(pool, gateway, reserve, now_us, &error);
    if (status != ST_OK)
        send_failed(pool, gateway, &reserve->request, status, error.text);
}

/* Returns true if a process of the request's prompt machine may write over one of the first
 * `latest` links that began. */
static bool writer_is_linked(const struct token_pool *pool, const struct token_request *request,
                             uint64_t latest)
{
    for (uint32_t i = 0; i < pool->writer_count; i++)
        if (pool->writers[i].link_number <= latest &&
            is_process_of(pool->writers[i].name, request->prompt_machine))
            return true;
    return request->local || pool->writers_unknown;
}

/* Returns the latest open link of the prompt machine's head; NULL = none. */
static const struct token_writer *head_link(const struct token_pool *pool, const char *machine)
{
    const struct token_writer *latest = NULL;
    for (uint32_t i = 0; i < pool->writer_count; i++) {
        const struct token_writer *writer = &pool->writers[i];
        if (writer->link.process == 0 && !writer->ended && strcmp(writer->name, machine) == 0 &&
            (latest == NULL || writer->link_number > latest->link_number))
            latest = writer;
    }
    return latest;
}

/* Returns true if the prompt machine knows whether its processes still write over the first
 * `latest` links that began. The machine does not know this of a link that has ended, nor of a link
 * that is older than the link of the machine's head: the head has connected again since then, and a
 * process with an old link may have been suspended during a write. */
static bool writer_knows(const struct token_pool *pool, const struct token_request *request,
                         uint64_t latest)
{
    const struct token_writer *head = head_link(pool, request->prompt_machine);
    for (uint32_t i = 0; i < pool->writer_count && !request->local; i++) {
        const struct token_writer *writer = &pool->writers[i];
        if (writer->link_number <= latest && is_process_of(writer->name, request->prompt_machine) &&
            (writer->ended || head == NULL || writer->link_number < head->link_number))
            return false;
    }
    return request->local || !pool->writers_unknown;
}

bool token_pool_writer_matches(const struct token_pool *pool, const struct message_request *name,
                               const char *process)
{
    const struct token_request *request = request_find(pool, name);
    return request == NULL || is_process_of(process, request->prompt_machine);
}

void token_request_quarantine(struct token_pool *pool, struct token_request *request,
                              int64_t now_us)
{
    token_await_end(pool, request);
    token_blocks_keep(pool, request);
    token_request_state_set(pool, request, TOKEN_QUARANTINED);
    sched_memory_quarantine(pool->memory, token_slot_of(pool, request));
    token_blocks_quarantine(pool, request);
    request->quarantined_at_link = pool->links_begun;
    bool linked = writer_is_linked(pool, request, request->quarantined_at_link);
    int64_t lease_us = linked ? TOKEN_LEASE_US : QUARANTINE_US;
    kv_pool_lease_set(pool->options.kv, request->owner, now_us + lease_us);
}

static void request_cancel(struct token_pool *pool, struct token_request *request, bool writer,
                           int64_t now_us)
{
    const struct token_pool_options *options = &pool->options;
    sched_slot slot = token_slot_of(pool, request);
    if (request->state == TOKEN_QUARANTINED || request->state == TOKEN_STOPPED_IN_BATCH)
        return;
    /* PREFILL may have been lost with its gateway. Then no message would ever free the blocks, so
     * the prompt pool is asked. */
    if (request->local)
        writer = options->calls.local_writes(options->self, &request->attempt);
    if (sched_machine_in_batch(pool->options.sched, slot)) {
        token_request_state_set(pool, request, TOKEN_STOPPED_IN_BATCH);
        return;
    }
    if (writer && request->state == TOKEN_RESERVED)
        token_request_quarantine(pool, request, now_us);
    else
        token_request_forget(pool, request);
}

void token_pool_cancel(struct token_pool *pool, const struct message_request *name,
                       bool writes_pending, int64_t now_us)
{
    struct token_request *request = request_find(pool, name);
    if (request != NULL)
        request_cancel(pool, request, writes_pending, now_us);
}

void token_pool_gateway_gone(struct token_pool *pool, const struct transport_peer *gateway,
                             int64_t now_us)
{
    for (uint32_t i = 0; i < pool->options.memory.slot_count; i++) {
        struct token_request *request = &pool->requests[i];
        if (request->state == TOKEN_FREE || (gateway != NULL && request->gateway != gateway))
            continue;
        request->gateway = NULL;
        request_cancel(pool, request, true, now_us);
    }
    for (uint32_t i = 0; i < pool->outgoing_count; i++) /* Tokens of a batch that has just ended. */
        if (gateway == NULL || pool->outgoing[i].gateway == gateway)
            pool->outgoing[i].gateway = NULL;
}

static void decode_start(struct token_pool *pool, struct token_request *request,
                         uint32_t first_token, int64_t now_us)
{
    token_await_end(pool, request);
    token_request_state_set(pool, request, TOKEN_DECODING);
    request->decoding_us = now_us;
    kv_pool_lease_set(pool->options.kv, request->owner, 0);
    request->arrived_spans = 0;
    token_blocks_prompt_done(pool, request);
    token_request_token_add(request, first_token);
    sched_memory_decode(pool->memory, token_slot_of(pool, request), request->output_limit - 1);
    token_request_draft(pool, request);
}

/* Ends the request: the prompt machine has reported that it no longer writes KV of the request. If
 * the machine may not know of all its writes, the blocks stay in quarantine. */
static void writer_stopped(struct token_pool *pool, struct token_request *request, int64_t now_us)
{
    bool quarantined = request->state == TOKEN_QUARANTINED;
    uint64_t latest = quarantined ? request->quarantined_at_link : pool->links_begun;
    if (writer_knows(pool, request, latest))
        token_request_forget(pool, request);
    else if (!quarantined)
        token_request_quarantine(pool, request, now_us);
}

void token_pool_publish(struct token_pool *pool, const struct message_request *name)
{
    struct token_request *request = request_find(pool, name);
    if (request != NULL && request->state == TOKEN_DECODING)
        token_blocks_publish(pool, request);
}

bool token_pool_windows_find(const struct token_pool *pool, const struct message_request *name,
                             uint32_t first, uint32_t end, struct kv_tables *out)
{
    const struct token_request *request = request_find(pool, name);
    return request != NULL && request->state == TOKEN_DECODING &&
           token_blocks_windows_find(pool, request, first, end, out);
}

void token_pool_progress(struct token_pool *pool, const struct message_progress *progress)
{
    struct token_request *request = request_find(pool, &progress->request);
    const struct message message = {.kind = MESSAGE_PROGRESS, .progress = *progress};
    uint32_t blocks = progress->tokens / pool->options.memory.block_tokens;
    if (request == NULL || request->state != TOKEN_RESERVED || !request->uses_prefix_cache ||
        request->local || progress->tokens > request->prompt_tokens ||
        blocks <= request->arrived_spans)
        return;
    request->arrived_spans = blocks;
    if (request->gateway != NULL)
        pool->options.calls.send(pool->options.self, request->gateway, &message);
}

void token_pool_kv_ready(struct token_pool *pool, const struct message_kv_ready *ready,
                         int64_t now_us)
{
    struct token_request *request = request_find(pool, &ready->request);
    if (request == NULL)
        return;
    if (request->state == TOKEN_QUARANTINED) /* All writes have landed. */
        writer_stopped(pool, request, now_us);
    if (request->state != TOKEN_RESERVED)
        return;
    struct error error;
    if (request->copy && ready->prompt_tokens == request->prompt_tokens) {
        token_blocks_prompt_done(pool, request);
        token_request_forget(pool, request);
        return;
    }
    if (ready->prompt_tokens == request->prompt_tokens &&
        ready->first_token < pool->options.vocab && request->output_limit > 1) {
        decode_start(pool, request, ready->first_token, now_us);
        return;
    }
    error_set(&error, ST_INVALID,
              "KV_READY with prompt_tokens %u, first_token %u: RESERVE said %u tokens and at most "
              "%u to generate",
              ready->prompt_tokens, ready->first_token, request->prompt_tokens,
              request->output_limit);
    send_failed(pool, request->gateway, &request->attempt, ST_INVALID, error.text);
    token_request_forget(pool, request);
}

void token_pool_kv_aborted(struct token_pool *pool, const struct message_request *name,
                           int64_t now_us)
{
    struct token_request *request = request_find(pool, name);
    if (request != NULL &&
        (request->state == TOKEN_QUARANTINED || request->state == TOKEN_RESERVED))
        writer_stopped(pool, request, now_us);
    for (uint32_t i = 0; i < TOKEN_UNCONFIRMED_MAX && request == NULL; i++)
        if (pool->unconfirmed[i].request.id == name->id &&
            pool->unconfirmed[i].request.generation == name->generation)
            pool->unconfirmed[i].prompt_machine[0] = 0;
}

static struct token_writer *writer_add(struct token_pool *pool)
{
    if (pool->writer_count == pool->writer_capacity) {
        uint32_t capacity = pool->writer_capacity > 0 ? 2 * pool->writer_capacity : 64;
        struct token_writer *writers = realloc(pool->writers, capacity * sizeof(writers[0]));
        if (writers == NULL)
            return NULL;
        pool->writers = writers;
        pool->writer_capacity = capacity;
    }
    return &pool->writers[pool->writer_count++];
}

static struct token_writer *writer_find(struct token_pool *pool, struct token_link link)
{
    for (uint32_t i = 0; i < pool->writer_count; i++)
        if (pool->writers[i].link.process == link.process &&
            pool->writers[i].link.number == link.number)
            return &pool->writers[i];
    return NULL;
}

/* Removes the writer. Quarantines that waited only for this writer end soon. */
static void writer_remove(struct token_pool *pool, struct token_writer *writer, int64_t now_us)
{
    char name[LIMIT_NAME_BYTES];
    memcpy(name, writer->name, sizeof(name));
    *writer = pool->writers[--pool->writer_count];
    for (uint32_t i = 0; i < pool->options.memory.slot_count; i++) {
        struct token_request *request = &pool->requests[i];
        if (request->state == TOKEN_QUARANTINED && is_process_of(name, request->prompt_machine) &&
            !writer_is_linked(pool, request, request->quarantined_at_link))
            kv_pool_lease_set(pool->options.kv, request->owner, now_us + QUARANTINE_US);
    }
}

static void cancel_send(struct token_pool *pool, struct transport_peer *peer,
                        const struct message_request *request)
{
    const struct message message = {.kind = MESSAGE_CANCEL, .cancel = {.request = *request}};
    pool->options.calls.send(pool->options.self, peer, &message);
}

/* Repeats CANCEL to a prompt machine that has connected again, for requests that have ended: the
 * gateway's PREFILL of such a request may reach the prompt machine only now. */
static void cancels_repeat(struct token_pool *pool, const char *machine,
                           struct transport_peer *peer)
{
    for (uint32_t i = 0; i < TOKEN_UNCONFIRMED_MAX; i++)
        if (strcmp(pool->unconfirmed[i].prompt_machine, machine) == 0)
            cancel_send(pool, peer, &pool->unconfirmed[i].request);
    for (uint32_t i = 0; i < pool->options.memory.slot_count; i++) {
        const struct token_request *request = &pool->requests[i];
        if (request->state == TOKEN_QUARANTINED && strcmp(request->prompt_machine, machine) == 0)
            cancel_send(pool, peer, &request->attempt);
    }
}

static bool head_was_linked(const struct token_pool *pool, const char *machine, uint64_t latest)
{
    for (uint32_t i = 0; i < pool->writer_count; i++)
        if (pool->writers[i].link.process == 0 && pool->writers[i].link_number <= latest &&
            strcmp(pool->writers[i].name, machine) == 0)
            return true;
    return false;
}

/* A process of a prompt machine has connected, as link number `since`. If the machine's head was
 * connected before a quarantine began, the head may not know of the quarantine, so the process may
 * write into the quarantined blocks over this link, too. */
static void quarantines_extend(struct token_pool *pool, const char *process, uint64_t since)
{
    for (uint32_t i = 0; i < pool->options.memory.slot_count; i++) {
        struct token_request *request = &pool->requests[i];
        if (request->state == TOKEN_QUARANTINED && !request->local &&
            is_process_of(process, request->prompt_machine) &&
            head_was_linked(pool, request->prompt_machine, request->quarantined_at_link))
            request->quarantined_at_link = since;
    }
}

void token_pool_writer_up(struct token_pool *pool, struct token_link link, const char *name,
                          struct transport_peer *peer)
{
    struct token_writer *writer = writer_add(pool);
    uint64_t since = ++pool->links_begun;
    if (writer != NULL) {
        *writer = (struct token_writer){.link = link, .peer = peer, .link_number = since};
        snprintf(writer->name, sizeof(writer->name), "%s", name);
    } else {
        pool->writers_unknown = true;
    }
    if (link.process == 0 && peer != NULL && strchr(name, '/') == NULL)
        cancels_repeat(pool, name, peer);
    else
        quarantines_extend(pool, name, since);
}

void token_pool_writer_down(struct token_pool *pool, struct token_link link, bool writes_pending,
                            const char *reason, int64_t now_us)
{
    struct token_writer *writer = writer_find(pool, link);
    struct error error;
    if (writer == NULL)
        return;
    writer->peer = NULL;
    writer->ended = true;
    error_set(&error, ST_UNREACHABLE, "prompt machine %.*s is gone before its KV was here: %s",
              (int)strcspn(writer->name, "/"), writer->name, reason);
    for (uint32_t i = 0; i < pool->options.memory.slot_count; i++) {
        struct token_request *request = &pool->requests[i];
        if (request->state != TOKEN_RESERVED || request->local ||
            !is_process_of(writer->name, request->prompt_machine))
            continue;
        send_failed(pool, request->gateway, &request->attempt, ST_UNREACHABLE, error.text);
        token_request_quarantine(pool, request, now_us);
    }
    if (!writes_pending)
        writer_remove(pool, writer, now_us);
}

void token_pool_writes_ended(struct token_pool *pool, struct token_link link, int64_t now_us)
{
    struct token_writer *writer = writer_find(pool, link);
    if (writer != NULL)
        writer_remove(pool, writer, now_us);
}

/* Asks the prompt machine to stop writing KV of the request. The machine answers with KV_ABORTED.
 * Sends CANCEL over all open links of the machine's head: the head may be about to end the latest
 * link, for example because it has reached this machine by the address of another machine. */
static void writer_ask(struct token_pool *pool, const struct token_request *request)
{
    for (uint32_t i = 0; i < pool->writer_count; i++) {
        const struct token_writer *writer = &pool->writers[i];
        if (writer->link.process == 0 && !writer->ended && writer->peer != NULL &&
            strcmp(writer->name, request->prompt_machine) == 0)
            cancel_send(pool, writer->peer, &request->attempt);
    }
}

/* Frees a request whose prompt machine has not reported that it stopped writing, and records it as
 * unconfirmed. */
static void forget_unconfirmed(struct token_pool *pool, struct token_request *request)
{
    struct token_unconfirmed *entry =
        &pool->unconfirmed[pool->unconfirmed_count++ % TOKEN_UNCONFIRMED_MAX];
    entry->request = request->attempt;
    memcpy(entry->prompt_machine, request->prompt_machine, sizeof(entry->prompt_machine));
    token_request_forget(pool, request);
}

static void lease_ended(struct token_pool *pool, struct token_request *request, int64_t now_us)
{
    bool quarantined = request->state == TOKEN_QUARANTINED;
    bool linked = writer_is_linked(pool, request,
                                   quarantined ? request->quarantined_at_link : pool->links_begun);
    if (quarantined && !linked) {
        forget_unconfirmed(pool, request);
        return;
    }
    /* A prompt machine with a link may still write, even after it was suspended for hours. So the
     * blocks stay in quarantine until the machine reports or its writes end
     * (token_pool_writes_ended). If the gateway died before it sent PREFILL, the machine does not
     * know the request, and reports only when it is asked. */
    if (quarantined && !request->local)
        writer_ask(pool, request);
    bool renew = quarantined || (linked && now_us - request->reserved_us < LEASE_MAX_US);
    /* This machine's prompt pool always reports when it no longer needs the blocks. */
    if (renew || request->local) {
        kv_pool_lease_set(pool->options.kv, request->owner, now_us + TOKEN_LEASE_US);
        return;
    }
    struct error error;
    error_set(&error, ST_TIMED_OUT, "no KV has come from prompt machine %s",
              request->prompt_machine);
    send_failed(pool, request->gateway, &request->attempt, ST_TIMED_OUT, error.text);
    if (linked)
        token_request_quarantine(pool, request, now_us);
    else
        forget_unconfirmed(pool, request);
}

int64_t token_pool_leases_check(struct token_pool *pool, int64_t now_us)
{
    kv_owner_id owner;
    while (leased_count(pool) > 0 && kv_pool_expired(pool->options.kv, now_us, &owner)) {
        struct token_request *request = token_request_of(pool, (sched_slot)(owner & 0xffff));
        assert(request->owner == owner);
        lease_ended(pool, request, now_us);
    }
    return leased_count(pool) > 0 ? now_us + LEASE_CHECK_US : INT64_MAX;
}

enum status token_pool_request_blocks(const struct token_pool *pool,
                                      const struct message_request *name, struct token_blocks *out)
{
    const struct token_request *request = request_find(pool, name);
    if (request == NULL || request->state != TOKEN_RESERVED || !request->local)
        return ST_NOT_FOUND;
    *out = (struct token_blocks){
        .tables = request->tables,
        .span_count = sched_memory_spans_of(&pool->options.memory, request->prompt_tokens),
        .path = request->path,
    };
    return ST_OK;
}

void token_pool_load_add(const struct token_pool *pool, const struct transport_peer *gateway,
                         struct message_others *out)
{
    if (sched_slots_used_count(pool->slots) == 0)
        return;
    for (uint32_t i = 0; i < pool->options.memory.slot_count; i++) {
        const struct token_request *request = &pool->requests[i];
        if (request->state == TOKEN_FREE || request->gateway == gateway)
            continue;
        out->decodes += request->state == TOKEN_QUARANTINED || request->copy ? 0 : 1;
        out->kv_tokens += sched_memory_tokens_of(
            &pool->options.memory, (uint64_t)request->prompt_tokens + request->output_limit,
            request->local);
    }
}

void token_pool_stats_add(const struct token_pool *pool, struct message_stats *stats)
{
    stats->transfers_awaited += pool->state_counts[TOKEN_RESERVED];
    message_stats_add(stats, &pool->stats);
}
