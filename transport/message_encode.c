/* message_encode: encodes control messages. See message.h and message_wire.h.
 *
 * The ranges of fields are checked in one place, the decoder: message_encode decodes its result, so
 * a peer accepts whatever is sent. (Arrays of numbers are not walked, so this costs little.) */
#include "transport/message_wire.h"

#include <stdlib.h>
#include <string.h>

const char *message_kind_name(enum message_kind kind)
{
    static const char *const names[MESSAGE_KIND_COUNT] = {
        [MESSAGE_RESERVE] = "RESERVE",
        [MESSAGE_RESERVED] = "RESERVED",
        [MESSAGE_PREFILL] = "PREFILL",
        [MESSAGE_TOKENS] = "TOKENS",
        [MESSAGE_PREFILLED] = "PREFILLED",
        [MESSAGE_KV_READY] = "KV_READY",
        [MESSAGE_KV_ABORTED] = "KV_ABORTED",
        [MESSAGE_CANCEL] = "CANCEL",
        [MESSAGE_FAILED] = "FAILED",
        [MESSAGE_STATS] = "STATS",
        [MESSAGE_PEER] = "PEER",
        [MESSAGE_LINK] = "LINK",
        [MESSAGE_SHUTDOWN] = "SHUTDOWN",
        [MESSAGE_ROLE] = "ROLE",
        [MESSAGE_OTHERS] = "OTHERS",
        [MESSAGE_PREEMPTED] = "PREEMPTED",
        [MESSAGE_PREFIXES] = "PREFIXES",
        [MESSAGE_LOADS] = "LOADS",
        [MESSAGE_STAGES] = "STAGES",
    };
    return (unsigned)kind < MESSAGE_KIND_COUNT && names[kind] != NULL ? names[kind] : "unknown";
}

void message_buffer_done(struct message_buffer *buffer)
{
    free(buffer->data);
    *buffer = (struct message_buffer){0};
}

void *message_buffer_add(struct message_buffer *buffer, size_t bytes)
{
    if (bytes > buffer->capacity - buffer->bytes) {
        size_t capacity = buffer->capacity < 512 ? 512 : buffer->capacity;
        while (capacity - buffer->bytes < bytes)
            capacity *= 2;
        uint8_t *data = realloc(buffer->data, capacity);
        if (data == NULL)
            return NULL;
        buffer->data = data;
        buffer->capacity = capacity;
    }
    void *room = buffer->data + buffer->bytes;
    memset(room, 0, bytes);
    buffer->bytes += bytes;
    return room;
}

enum status message_buffer_put(struct message_buffer *buffer, const void *data, size_t bytes)
{
    void *room = message_buffer_add(buffer, bytes);
    if (room == NULL)
        return ST_NO_MEMORY;
    if (bytes > 0)
        memcpy(room, data, bytes);
    return ST_OK;
}

/* ---- encoding ---- */

static struct wire_request encode_request(const struct message_request *request)
{
    return (struct wire_request){.id = request->id, .generation = request->generation};
}

static struct wire_sampling encode_sampling(const struct sampling *from)
{
    struct wire_sampling to = {
        .temperature = from->temperature,
        .top_p = from->top_p,
        .min_p = from->min_p,
        .top_k = from->top_k,
        .seed = from->seed,
        .logprobs = from->logprobs,
        .output_tokens_max = from->output_tokens_max,
        .output_tokens_min = from->output_tokens_min,
        .end_count = from->end_count,
        .ignore_end = from->ignore_end,
    };
    if (from->end_count <= 16) /* More are refused by the check of the whole message. */
        memcpy(to.ends, from->ends, from->end_count * sizeof(uint32_t));
    return to;
}

static struct wire_rank encode_rank(const struct message_rank *from)
{
    return (struct wire_rank){
        .key = from->key,
        .weight = from->weight,
        .priority = from->priority,
        .waited_ms = from->waited_ms,
        .preemptions = from->preemptions,
    };
}

static enum status encode_prefill(const struct message_prefill *from, struct message_buffer *buffer)
{
    if (from->block_count > LIMIT_CONTEXT_TOKENS || from->prompt_count > LIMIT_CONTEXT_TOKENS ||
        from->path >= LIMIT_STAGE_PATHS)
        return ST_TOO_LARGE;
    struct wire_prefill to = {
        .request = encode_request(&from->request),
        .score_prompt = from->score_prompt,
        .kv_path = from->kv_path,
        .path = (uint8_t)from->path,
        .rank = encode_rank(&from->rank),
        .sampling = encode_sampling(&from->sampling),
        .held_count = from->held_count,
        .block_count = from->block_count,
        .prompt_count = from->prompt_count,
    };
    encode_text(to.token_machine, from->token_machine, sizeof(to.token_machine));
    enum status status = message_buffer_put(buffer, &to, sizeof(to));
    if (status == ST_OK)
        status = message_buffer_put(buffer, from->blocks, from->block_count * sizeof(uint32_t));
    if (status == ST_OK)
        status = message_buffer_put(buffer, from->prompt, from->prompt_count * sizeof(uint32_t));
    return status;
}

static enum status encode_reserve(const struct message_reserve *from, struct message_buffer *buffer)
{
    if (from->prompt_count > LIMIT_CONTEXT_TOKENS)
        return ST_TOO_LARGE;
    struct wire_reserve to = {
        .request = encode_request(&from->request),
        .prompt_tokens = from->prompt_tokens,
        .rank = encode_rank(&from->rank),
        .prompt_count = from->prompt_count,
        .sampling = encode_sampling(&from->sampling),
    };
    encode_text(to.prompt_machine, from->prompt_machine, sizeof(to.prompt_machine));
    enum status status = message_buffer_put(buffer, &to, sizeof(to));
    if (status == ST_OK)
        status = message_buffer_put(buffer, from->prompt, from->prompt_count * sizeof(uint32_t));
    return status;
}

static enum status encode_reserved(const struct message_reserved *from,
                                   struct message_buffer *buffer)
{
    if (from->block_count > LIMIT_CONTEXT_TOKENS)
        return ST_TOO_LARGE;
    struct wire_reserved to = {
        .request = encode_request(&from->request),
        .held_count = from->held_count,
        .block_count = from->block_count,
        .path = from->path,
    };
    enum status status = message_buffer_put(buffer, &to, sizeof(to));
    if (status == ST_OK)
        status = message_buffer_put(buffer, from->blocks, from->block_count * sizeof(uint32_t));
    return status;
}

static enum status encode_prefixes(const struct message_prefixes *from,
                                   struct message_buffer *buffer)
{
    if (from->count > LIMIT_PREFIXES)
        return ST_TOO_LARGE;
    struct wire_prefixes to = {.count = from->count, .all = from->all};
    enum status status = message_buffer_put(buffer, &to, sizeof(to));
    if (status == ST_OK)
        status = message_buffer_put(buffer, from->hashes, from->count * sizeof(uint64_t));
    if (status == ST_OK)
        status = message_buffer_put(buffer, from->held, from->count * sizeof(uint32_t));
    return status;
}

static enum status encode_loads(const struct message_loads *from, struct message_buffer *buffer)
{
    if (from->count > LIMIT_STAGES)
        return ST_TOO_LARGE;
    struct wire_stages to = {.count = from->count};
    enum status status = message_buffer_put(buffer, &to, sizeof(to));
    return status != ST_OK
               ? status
               : message_buffer_put(buffer, from->loads, from->count * sizeof(*from->loads));
}

static enum status encode_stages(const struct message_stages *from, struct message_buffer *buffer)
{
    if (from->count > LIMIT_STAGES)
        return ST_TOO_LARGE;
    struct wire_stages to = {.count = from->count};
    enum status status = message_buffer_put(buffer, &to, sizeof(to));
    return status != ST_OK
               ? status
               : message_buffer_put(buffer, from->stages, from->count * sizeof(*from->stages));
}

static struct wire_others encode_others(const struct message_others *from)
{
    struct wire_others to = {
        .gateways = from->gateways,
        .prompts = from->prompts,
        .decodes = from->decodes,
        .mixed = from->mixed,
        .home = from->home,
        .prompt_tokens = from->prompt_tokens,
        .kv_tokens = from->kv_tokens,
        .home_serial = from->home_serial,
        .prompt_tokens_taken = from->prompt_tokens_taken,
        .answers_taken = from->answers_taken,
    };
    encode_text(to.leader, from->leader, sizeof(to.leader));
    return to;
}

static enum status encode_small(const struct message *message, struct message_buffer *buffer)
{
    switch (message->kind) {
    case MESSAGE_KV_READY: {
        struct wire_kv_ready to = {
            .request = encode_request(&message->kv_ready.request),
            .prompt_tokens = message->kv_ready.prompt_tokens,
            .first_token = message->kv_ready.first_token,
        };
        return message_buffer_put(buffer, &to, sizeof(to));
    }
    case MESSAGE_KV_ABORTED: {
        struct wire_request to = encode_request(&message->kv_aborted);
        return message_buffer_put(buffer, &to, sizeof(to));
    }
    case MESSAGE_CANCEL: {
        struct wire_cancel to = {
            .request = encode_request(&message->cancel.request),
            .writer = message->cancel.writer,
        };
        return message_buffer_put(buffer, &to, sizeof(to));
    }
    case MESSAGE_FAILED: {
        struct wire_failed to = {
            .request = encode_request(&message->failed.request),
            .status = message->failed.status,
        };
        encode_text(to.text, message->failed.text, sizeof(to.text));
        return message_buffer_put(buffer, &to, sizeof(to));
    }
    case MESSAGE_PREEMPTED: {
        struct wire_preempted to = {
            .request = encode_request(&message->preempted.request),
            .generated = message->preempted.generated,
        };
        encode_text(to.text, message->preempted.text, sizeof(to.text));
        return message_buffer_put(buffer, &to, sizeof(to));
    }
    case MESSAGE_PEER: {
        struct wire_peer to = {0};
        encode_text(to.name, message->peer.name, sizeof(to.name));
        encode_text(to.address, message->peer.address, sizeof(to.address));
        return message_buffer_put(buffer, &to, sizeof(to));
    }
    case MESSAGE_ROLE: {
        struct wire_role to = {
            .role = message->role.role, .home = message->role.home, .serial = message->role.serial};
        return message_buffer_put(buffer, &to, sizeof(to));
    }
    case MESSAGE_OTHERS: {
        struct wire_others to = encode_others(&message->others);
        return message_buffer_put(buffer, &to, sizeof(to));
    }
    case MESSAGE_LINK: {
        struct wire_link to = {.up = message->link.up};
        encode_text(to.name, message->link.name, sizeof(to.name));
        encode_text(to.text, message->link.text, sizeof(to.text));
        return message_buffer_put(buffer, &to, sizeof(to));
    }
    default:
        return ST_INVALID;
    }
}

static enum status encode_body(const struct message *message, struct message_buffer *buffer)
{
    switch (message->kind) {
    case MESSAGE_RESERVE:
        return encode_reserve(&message->reserve, buffer);
    case MESSAGE_RESERVED:
        return encode_reserved(&message->reserved, buffer);
    case MESSAGE_PREFILL:
        return encode_prefill(&message->prefill, buffer);
    case MESSAGE_PREFILLED: {
        const struct message_prefilled *from = &message->prefilled;
        struct wire_prefilled to = {
            .request = encode_request(&from->request),
            .queue_us = from->queue_us,
            .prefill_us = from->prefill_us,
            .exposed_us = from->exposed_us,
            .transfer_us = from->transfer_us,
            .layers = from->layers,
            .layerwise = from->layerwise,
            .bytes = from->bytes,
        };
        return message_buffer_put(buffer, &to, sizeof(to));
    }
    case MESSAGE_STATS:
        return message_buffer_put(buffer, &message->stats, sizeof(message->stats));
    case MESSAGE_PREFIXES:
        return encode_prefixes(&message->prefixes, buffer);
    case MESSAGE_LOADS:
        return encode_loads(&message->loads, buffer);
    case MESSAGE_STAGES:
        return encode_stages(&message->stages, buffer);
    case MESSAGE_SHUTDOWN:
        return ST_OK;
    default:
        return encode_small(message, buffer);
    }
}

enum status message_encode(const struct message *message, struct message_buffer *buffer)
{
    buffer->bytes = 0;
    struct wire_header header = {.kind = message->kind};
    enum status status = message_buffer_put(buffer, &header, sizeof(header));
    if (status != ST_OK)
        return status;
    status = encode_body(message, buffer);
    if (status != ST_OK)
        return status;
    header.bytes = (uint32_t)buffer->bytes;
    memcpy(buffer->data, &header, sizeof(header));
    struct message back;
    return message_decode(buffer->data, buffer->bytes, &back, NULL);
}

void message_tokens_begin(struct message_buffer *buffer)
{
    buffer->bytes = 0;
}

enum status message_tokens_add(struct message_buffer *buffer, const struct message_token *token)
{
    const size_t front = sizeof(struct wire_header) + sizeof(struct wire_tokens);
    struct wire_token to = {
        .request = token->request,
        .generation = token->generation,
        .index = token->index,
        .id = token->id,
        .wait_us = token->wait_us,
        .run_us = token->run_us,
        .cached_tokens = token->cached_tokens,
        .logprob = token->logprob,
        .finish = token->finish,
        .scored = token->scored,
        .has_logprob = token->has_logprob,
        .top_count = token->top_count,
    };
    if (token->top_count > LIMIT_LOGPROBS)
        return ST_TOO_LARGE;
    enum status status = message_token_check(&to, token->top_logprobs, NULL);
    if (status != ST_OK)
        return status;
    size_t before = buffer->bytes;
    size_t tops = token->top_count * sizeof(uint32_t);
    size_t add = sizeof(to) + 2 * tops + (before == 0 ? front : 0);
    /* The caller sends the message and begins another one. */
    if (before + add > LIMIT_MESSAGE_BYTES)
        return ST_TOO_LARGE;
    uint8_t *room = message_buffer_add(buffer, add);
    if (room == NULL)
        return ST_NO_MEMORY;
    if (before == 0)
        room += front;
    memcpy(room, &to, sizeof(to));
    memcpy(room + sizeof(to), token->top_ids, tops);
    memcpy(room + sizeof(to) + tops, token->top_logprobs, tops);

    struct wire_header *header = (struct wire_header *)buffer->data;
    struct wire_tokens *tokens = (struct wire_tokens *)(header + 1);
    header->kind = MESSAGE_TOKENS;
    header->bytes = (uint32_t)buffer->bytes;
    tokens->count++;
    return ST_OK;
}
