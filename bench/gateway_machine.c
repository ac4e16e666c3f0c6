/* gateway_machine: see the header. The requests are an array without gaps; a step goes through it
 * once. */
#include "bench/gateway_machine.h"

#include "transport/message.h"
#include "transport/transport.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_TOKENS 16
#define BLOCK_COUNT  65536
/* No peer writes there, but without a region no size would be announced. */
#define REGION_BYTES (1 << 20)
#define ID_LOW       1000 /* Ids of ordinary tokens in every vocabulary. */
#define ID_COUNT     20000

struct fake_request {
    struct message_request name;
    uint32_t first;
    uint32_t index; /* Index of the next token. */
    uint32_t count; /* Number of all tokens. */
};

struct gateway_machine_fake {
    struct transport *transport;
    struct transport_peer *gateway;
    char address[LIMIT_ADDRESS_BYTES];
    struct message_buffer buffer;
    uint32_t blocks[LIMIT_CONTEXT_TOKENS / BLOCK_TOKENS]; /* Any ids, because no peer writes. */
    uint32_t request_count;
    struct fake_request requests[LIMIT_MACHINE_REQUESTS];
};

uint32_t gateway_machine_token(uint32_t first, uint32_t index)
{
    return ID_LOW + (first * 31 + index * 17) % ID_COUNT;
}

static void message_send(struct gateway_machine_fake *m, const struct message *message)
{
    if (message_encode(message, TRANSPORT_PROTOCOL_VERSION, &m->buffer) == ST_OK)
        transport_send(m->transport, m->gateway, m->buffer.data, m->buffer.bytes);
}

static void token_add(struct gateway_machine_fake *m, struct fake_request *r)
{
    struct message_token token = {.request = r->name.id,
                                  .generation = r->name.generation,
                                  .index = r->index,
                                  .id = gateway_machine_token(r->first, r->index)};
    r->index++;
    token.finish = r->index == r->count ? FINISH_LENGTH : FINISH_NONE;
    message_tokens_add(&m->buffer, &token);
}

static void on_reserve(struct gateway_machine_fake *m, const struct message_reserve *reserve)
{
    struct message message = {
        .kind = MESSAGE_RESERVED,
        .reserved = {.request = reserve->request,
                     .block_count = (reserve->prompt_tokens + BLOCK_TOKENS - 1) / BLOCK_TOKENS,
                     .blocks = m->blocks}};
    message_send(m, &message);
}

/* Sends the first token at once; the steps send the others. */
static void on_prefill(struct gateway_machine_fake *m, const struct message_prefill *prefill)
{
    struct fake_request request = {.name = prefill->request,
                                   .first = prefill->prompt[0],
                                   .count = prefill->sampling.output_tokens_max};
    struct message done = {.kind = MESSAGE_PREFILLED, .prefilled = {.request = prefill->request}};
    message_tokens_begin(&m->buffer);
    token_add(m, &request);
    transport_send(m->transport, m->gateway, m->buffer.data, m->buffer.bytes);
    message_send(m, &done);
    if (request.index < request.count && m->request_count < LIMIT_MACHINE_REQUESTS)
        m->requests[m->request_count++] = request;
}

static void on_cancel(struct gateway_machine_fake *m, const struct message_request *name)
{
    for (uint32_t i = 0; i < m->request_count; i++)
        if (m->requests[i].name.id == name->id)
            m->requests[i] = m->requests[--m->request_count];
}

static void on_up(void *self, struct transport_peer *peer)
{
    struct gateway_machine_fake *m = self;
    struct message message = {.kind = MESSAGE_STATS, .stats = {.kv_blocks = {BLOCK_COUNT}}};
    m->gateway = peer;
    message_send(m, &message);
}

static void on_down(void *self, struct transport_peer *peer, enum status why, const char *text)
{
    struct gateway_machine_fake *m = self;
    (void)peer, (void)why, (void)text;
    m->gateway = NULL;
    m->request_count = 0;
}

static void on_message(void *self, struct transport_peer *peer, const uint8_t *data, size_t bytes)
{
    struct gateway_machine_fake *m = self;
    struct message message;
    struct error error;
    (void)peer;
    if (message_decode(data, bytes, &message, &error) != ST_OK)
        return;
    if (message.kind == MESSAGE_RESERVE)
        on_reserve(m, &message.reserve);
    else if (message.kind == MESSAGE_PREFILL)
        on_prefill(m, &message.prefill);
    else if (message.kind == MESSAGE_CANCEL)
        on_cancel(m, &message.cancel.request);
}

enum status gateway_machine_open(const char *name, uint64_t metadata_hash,
                                 struct gateway_machine_fake **out, struct error *error)
{
    struct gateway_machine_fake *m = calloc(1, sizeof(*m));
    if (m == NULL)
        return error_set(error, ST_NO_MEMORY, "out of memory");
    struct transport_options options = {
        .identity = {.role = TRANSPORT_MACHINE,
                     .metadata_hash = metadata_hash,
                     .block_tokens = BLOCK_TOKENS},
        .events = {.peer_up = on_up, .peer_down = on_down, .message = on_message},
        .self = m,
        .region_bytes = REGION_BYTES,
        .block_count = BLOCK_COUNT,
        .one_host = true,
    };
    snprintf(options.identity.name, sizeof(options.identity.name), "%s", name);
    enum status status = transport_open(&transport_ucx, &options, &m->transport, error);
    if (status == ST_OK)
        status = transport_listen(m->transport, "127.0.0.1:0", m->address, error);
    if (status != ST_OK) {
        gateway_machine_close(m);
        return status;
    }
    *out = m;
    return ST_OK;
}

void gateway_machine_close(struct gateway_machine_fake *m)
{
    if (m == NULL)
        return;
    transport_close(m->transport);
    message_buffer_done(&m->buffer);
    free(m);
}

const char *gateway_machine_address(const struct gateway_machine_fake *m)
{
    return m->address;
}

int gateway_machine_fd(const struct gateway_machine_fake *m)
{
    return transport_fd(m->transport);
}

void gateway_machine_turn(struct gateway_machine_fake *m)
{
    transport_progress(m->transport);
}

uint32_t gateway_machine_step(struct gateway_machine_fake *m)
{
    uint32_t count = m->request_count;
    if (count == 0 || m->gateway == NULL)
        return 0;
    message_tokens_begin(&m->buffer);
    for (uint32_t i = 0; i < m->request_count;) {
        token_add(m, &m->requests[i]);
        if (m->requests[i].index == m->requests[i].count)
            m->requests[i] = m->requests[--m->request_count];
        else
            i++;
    }
    transport_send(m->transport, m->gateway, m->buffer.data, m->buffer.bytes);
    transport_progress(m->transport);
    return count;
}
