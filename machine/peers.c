/* machine_peers: connections, and the dispatch of messages. A peer that connected to this machine
 * is a gateway or a machine that writes KV. Peers that this machine connected to belong to
 * prompt_links or to the executor. Each kind of peer has a handler. */
#include "machine/state.h"

#include "common/log.h"
#include "transport/peer_user.h"

#include <stdio.h>
#include <string.h>

static struct peer_user gateway_user = {.kind = PEER_GATEWAY};
static struct peer_user writer_user = {.kind = PEER_WRITER};

static const char *name_of(const struct transport_peer *peer)
{
    return transport_peer_identity(peer)->name;
}

static struct token_link link_of(const struct transport_peer *peer)
{
    return (struct token_link){.number = transport_peer_number(peer)};
}

/* A peer has connected to this machine: a machine that writes KV, or a gateway. */
static void new_up(struct machine *m, struct transport_peer *peer)
{
    if (transport_peer_identity(peer)->role == TRANSPORT_MACHINE) {
        transport_peer_set_user(peer, &writer_user);
        token_pool_writer_up(m->token_pool, link_of(peer), name_of(peer), peer);
        machine_layout_send(m, peer);
        log_info("machine %s connected, writes travel by %s", name_of(peer),
                 transport_peer_path(peer));
        return;
    }
    struct transport_peer *before = machine_gateway_named(m, name_of(peer));
    if (before != NULL) /* its end of the old connection is gone, but ours has not noticed yet */
        doomed_add(&m->doomed, before, "it has connected again");
    if (!machine_gateway_add(m, peer)) {
        doomed_add(&m->doomed, peer, "too many gateways are connected");
        return;
    }
    transport_peer_set_user(peer, &gateway_user);
    m->stats_changed = true;
    m->stats_due_us = m->now_us;
    log_info("gateway %s connected", name_of(peer));
}

void machine_request_refuse(struct machine *m, struct transport_peer *gateway,
                            const struct message_request *request, enum status status,
                            const char *text)
{
    struct message message = {.kind = MESSAGE_FAILED,
                              .failed = {.request = *request, .status = status}};
    snprintf(message.failed.text, sizeof(message.failed.text), "machine %s %s",
             m->config_entry->name, text);
    machine_send(m, gateway, &message);
}

/* The token side comes first: if this machine's own prompt side writes the blocks, it reports when
 * it has stopped. */
static void on_cancel(struct machine *m, const struct message_cancel *cancel)
{
    machine_held_cancel(m, &cancel->request, NULL);
    token_pool_cancel(m->token_pool, &cancel->request, cancel->writes_pending, m->now_us);
    prompt_pool_cancel(m->prompt_pool, &cancel->request);
}

static void arrival_log(const struct message_request *request, const char *kind,
                        const char *client_id, uint32_t tokens)
{
    log_debug("request %s (%llx) generation %u: %s of %u tokens",
              client_id[0] != 0 ? client_id : "-", (unsigned long long)request->id,
              request->generation, kind, tokens);
}

void machine_gateway_message(struct machine *m, struct transport_peer *peer,
                             const struct message *message, int64_t arrived_us)
{
    switch (message->kind) {
    case MESSAGE_RESERVE:
        arrival_log(&message->reserve.request, "RESERVE", message->reserve.client_id,
                    message->reserve.prompt_tokens);
        if (m->stopping)
            machine_request_refuse(m, peer, &message->reserve.request, ST_CANCELLED, "is stopping");
        else
            token_pool_reserve(m->token_pool, peer, &message->reserve, m->now_us);
        machine_gateway_demand_add(m, peer, 0, message->reserve.copy ? 0 : 1);
        return;
    case MESSAGE_PREFILL:
        arrival_log(&message->prefill.request, "PREFILL", message->prefill.client_id,
                    message->prefill.prompt_count);
        if (m->stopping)
            machine_request_refuse(m, peer, &message->prefill.request, ST_CANCELLED, "is stopping");
        else
            prompt_pool_prefill(m->prompt_pool, peer, &message->prefill, arrived_us, m->now_us);
        if (message->prefill.copied_generation == 0)
            machine_gateway_demand_add(m, peer, message->prefill.prompt_count, 0);
        return;
    case MESSAGE_CANCEL:
        on_cancel(m, &message->cancel);
        return;
    case MESSAGE_PEER:
        if (prompt_links_peer_set(m->links, machine_gateway_index(m, peer), &message->peer,
                                  m->now_us) != ST_OK)
            doomed_add(&m->doomed, peer,
                       message->peer.name[0] == 0 ? "PEER without a name"
                                                  : "PEER names more machines than a cluster has");
        return;
    case MESSAGE_ROLE:
        machine_gateway_role(m, peer, &message->role);
        return;
    case MESSAGE_PROBE:
        machine_send(m, peer, message);
        return;
    case MESSAGE_SHUTDOWN:
        machine_gateway_shutdown(m, peer);
        return;
    default:
        break;
    }
    struct error error;
    error_set(&error, ST_INVALID, "%s is no message for a machine",
              message_kind_name(message->kind));
    doomed_add(&m->doomed, peer, error.text);
}

static void writer_message(struct machine *m, struct transport_peer *peer,
                           const struct message *message)
{
    struct error error;
    const struct message_request *request = NULL;
    if (message->kind == MESSAGE_KV_READY)
        request = &message->kv_ready.request;
    if (message->kind == MESSAGE_KV_ABORTED)
        request = &message->kv_aborted;
    if (message->kind == MESSAGE_PROGRESS)
        request = &message->progress.request;
    if (request != NULL && !token_pool_writer_matches(m->token_pool, request, name_of(peer))) {
        error_set(&error, ST_INVALID, "%s for a request that another machine writes",
                  message_kind_name(message->kind));
        doomed_add(&m->doomed, peer, error.text);
        return;
    }
    switch (message->kind) {
    case MESSAGE_KV_READY:
        token_pool_kv_ready(m->token_pool, &message->kv_ready, m->now_us);
        return;
    case MESSAGE_PROGRESS:
        token_pool_progress(m->token_pool, &message->progress);
        return;
    case MESSAGE_KV_ABORTED:
        token_pool_kv_aborted(m->token_pool, &message->kv_aborted, m->now_us);
        return;
    default:
        break;
    }
    error_set(&error, ST_INVALID, "%s is no message from a machine",
              message_kind_name(message->kind));
    doomed_add(&m->doomed, peer, error.text);
}

/* A token machine asks this machine to stop writing KV of a request. */
static void link_cancel(struct machine *m, struct transport_peer *peer,
                        const struct message_request *request)
{
    const struct message aborted = {.kind = MESSAGE_KV_ABORTED, .kv_aborted = *request};
    if (!prompt_pool_withdraw(m->prompt_pool, request))
        machine_send(m, peer, &aborted);
}

/* A token machine that this machine has connected to sends STAGES and CANCEL, and nothing else. */
static void target_message(struct machine *m, struct transport_peer *peer,
                           const struct message *message)
{
    bool link = peer_kind_of(peer) == PEER_LINK;
    if (message->kind == MESSAGE_CANCEL && link)
        link_cancel(m, peer, &message->cancel.request);
    else if (message->kind != MESSAGE_STAGES)
        doomed_add(&m->doomed, peer,
                   "a token machine may send nothing but STAGES and, to a head, CANCEL");
    else if (link)
        prompt_links_stages_take(m->links, peer, &message->stages, m->now_us);
}

static void refused_down(struct machine *m, struct transport_peer *peer, const char *text)
{
    (void)peer;
    refusals_log(&m->refusals, text, m->now_us);
}

static void gateway_down(struct machine *m, struct transport_peer *peer, const char *text)
{
    log_info("gateway %s is gone: %s", name_of(peer), text);
    machine_gateway_remove(m, peer);
    m->stats_changed = true; /* the other gateways learn of it now */
    m->stats_due_us = m->now_us;
    machine_held_cancel(m, NULL, peer);
    prompt_pool_gateway_gone(m->prompt_pool, peer);
    token_pool_gateway_gone(m->token_pool, peer, m->now_us);
}

static void writer_down(struct machine *m, struct transport_peer *peer, const char *text)
{
    bool writes_pending = transport_writes_await(m->transport, peer);
    log_info("machine %s is gone: %s", name_of(peer), text);
    if (writes_pending)
        log_warn("machine %s may still write, until its process has closed connection %llu or has "
                 "ended: the KV blocks that it knows stay in quarantine",
                 name_of(peer), (unsigned long long)transport_peer_number(peer));
    token_pool_writer_down(m->token_pool, link_of(peer), writes_pending, text, m->now_us);
}

static void on_writes_ended(void *self, uint64_t number)
{
    struct machine *m = self;
    m->event_count++;
    m->stats_changed = true;
    log_info("no write arrives over connection %llu any more", (unsigned long long)number);
    token_pool_writes_ended(m->token_pool, (struct token_link){.number = number}, m->now_us);
}

static void on_path_changed(void *self, struct transport_peer *peer)
{
    struct machine *m = self;
    log_info("KV goes to %s by %s now", name_of(peer), transport_peer_path(peer));
    if (peer_kind_of(peer) == PEER_LINK)
        prompt_links_transport_changed(m->links, peer, transport_peer_path(peer));
}

static void link_up(struct machine *m, struct transport_peer *peer)
{
    prompt_links_peer_up(m->links, peer, m->now_us);
}

static void link_down(struct machine *m, struct transport_peer *peer, const char *text)
{
    prompt_links_peer_down(m->links, peer, text, m->now_us);
}

static void executor_up(struct machine *m, struct transport_peer *peer)
{
    m->executor->ops->peer_up(m->executor, peer);
}

static void executor_down(struct machine *m, struct transport_peer *peer, const char *text)
{
    m->executor->ops->peer_down(m->executor, peer, text, m->now_us);
}

static void gateway_message(struct machine *m, struct transport_peer *peer,
                            const struct message *message)
{
    machine_gateway_message(m, peer, message, m->now_us);
}

/* What this machine does with the events of one kind of peer. */
static const struct {
    void (*up)(struct machine *m, struct transport_peer *peer);
    void (*down)(struct machine *m, struct transport_peer *peer, const char *text);
    /* NULL = the messages of these peers are the executor's (transport/stage_message.h). */
    void (*message)(struct machine *m, struct transport_peer *peer, const struct message *message);
} handlers[PEER_KIND_COUNT] = {
    [PEER_NEW] = {new_up, refused_down, target_message},
    [PEER_GATEWAY] = {new_up, gateway_down, gateway_message},
    [PEER_WRITER] = {new_up, writer_down, writer_message},
    [PEER_LINK] = {link_up, link_down, target_message},
    [PEER_TARGET] = {executor_up, executor_down, target_message},
    [PEER_STAGE] = {executor_up, executor_down, NULL},
};

static void on_up(void *self, struct transport_peer *peer)
{
    struct machine *m = self;
    m->event_count++;
    machine_peer_note_log(peer);
    handlers[peer_kind_of(peer)].up(m, peer);
}

static void remove_peer(struct machine *m, struct transport_peer *peer, const char *text)
{
    m->stats_changed = true;
    doomed_remove(peer);
    handlers[peer_kind_of(peer)].down(m, peer, text);
}

static void on_down(void *self, struct transport_peer *peer, enum status why, const char *text)
{
    struct machine *m = self;
    (void)why; /* the text says why */
    m->event_count++;
    remove_peer(m, peer, text);
}

void machine_peers_drop(struct machine *m)
{
    struct transport_peer *peer;
    while ((peer = doomed_take(&m->doomed)) != NULL) {
        m->event_count++; /* memory may be free now */
        log_warn("disconnects %s: %s", name_of(peer), doomed_reason(peer));
        remove_peer(m, peer, doomed_reason(peer));
        transport_disconnect(m->transport, peer);
    }
}

static void on_flushed(void *self, struct transport_peer *peer, uint64_t cookie, enum status status)
{
    struct machine *m = self;
    m->event_count++;
    m->stats_changed = true;
    m->executor->ops->peer_flushed(m->executor, peer, cookie, status);
}

static void on_message(void *self, struct transport_peer *peer, const uint8_t *data, size_t bytes)
{
    struct machine *m = self;
    struct message message;
    struct error error;
    const enum peer_kind kind = peer_kind_of(peer);
    m->event_count++;
    m->stats_changed = true;
    if (handlers[kind].message == NULL)
        m->executor->ops->peer_message(m->executor, peer, data, bytes);
    else if (message_decode(data, bytes, &message, &error) != ST_OK)
        doomed_add(&m->doomed, peer, error.text);
    else if (kind != PEER_GATEWAY || !machine_held_take(m, peer, &message, data, bytes))
        handlers[kind].message(m, peer, &message);
}

/* A write of KV is wanted while its request awaits it, only into blocks of this request, and only
 * from the machine that computes its prompt. A write after a cancel may arrive when its blocks
 * belong to another request. With stage processes, the region is the staging memory: only they
 * write there, for no request (id 0). */
static bool on_write(void *self, const struct transport_peer *peer,
                     const struct transport_request *request, uint64_t offset, uint64_t bytes)
{
    const struct machine *m = self;
    const struct message_request name = {.id = request->id, .generation = request->generation};
    uint64_t first, count;
    if (m->executor->staging_memory == transport_region(m->transport))
        return peer_kind_of(peer) == PEER_STAGE && request->id == 0;
    bool wanted = kv_arena_blocks(&m->arena, offset, bytes, &first, &count) &&
                  token_pool_request_awaits(m->token_pool, &name, name_of(peer), first, count);
    if (!wanted)
        log_debug("drops a late write of %llu bytes of request %llx.%u", (unsigned long long)bytes,
                  (unsigned long long)request->id, request->generation);
    return wanted;
}

struct transport_events machine_transport_events(void)
{
    return (struct transport_events){.peer_up = on_up,
                                     .peer_down = on_down,
                                     .message = on_message,
                                     .flushed = on_flushed,
                                     .write_wanted = on_write,
                                     .writes_ended = on_writes_ended,
                                     .path_changed = on_path_changed};
}

static void send_bytes(struct machine *m, struct transport_peer *peer, const void *data,
                       size_t bytes)
{
    m->sends_queued = true;
    const enum status status = transport_send(m->transport, peer, data, bytes);
    if (status == ST_NO_RESOURCE)
        doomed_add(&m->doomed, peer, "it does not read its messages");
    else if (status == ST_TOO_LARGE)
        log_error("cannot send a message of %zu bytes to %s: want at most %u", bytes, name_of(peer),
                  LIMIT_MESSAGE_BYTES);
}

void machine_send(void *self, struct transport_peer *peer, const struct message *message)
{
    struct machine *m = self;
    enum status status = message_encode(message, transport_peer_version(peer), &m->send_buffer);
    if (status == ST_OK)
        send_bytes(m, peer, m->send_buffer.data, m->send_buffer.bytes);
    else
        log_error("cannot encode %s: %s", message_kind_name(message->kind), status_name(status));
}

static void send_tokens(void *self, struct transport_peer *peer,
                        const struct message_buffer *tokens)
{
    send_bytes(self, peer, tokens->data, tokens->bytes);
}

static enum status local_blocks(void *self, const struct message_request *request,
                                struct prompt_local *out)
{
    const struct machine *m = self;
    struct token_blocks blocks;
    enum status status = token_pool_request_blocks(m->token_pool, request, &blocks);
    if (status == ST_OK)
        *out = (struct prompt_local){
            .path = blocks.path, .tables = blocks.tables, .span_count = blocks.span_count};
    return status;
}

static void local_ready(void *self, const struct message_kv_ready *ready, int64_t now_us)
{
    struct machine *m = self;
    token_pool_kv_ready(m->token_pool, ready, now_us);
}

static void local_aborted(void *self, const struct message_request *request)
{
    struct machine *m = self;
    token_pool_kv_aborted(m->token_pool, request, m->now_us);
}

static void publish(void *self, const struct message_request *request)
{
    const struct machine *m = self;
    token_pool_publish(m->token_pool, request);
}

static bool windows_find(void *self, const struct message_request *request, uint32_t first,
                         uint32_t end, struct kv_tables *out)
{
    const struct machine *m = self;
    return token_pool_windows_find(m->token_pool, request, first, end, out);
}

struct prompt_pool_calls machine_prompt_calls(void)
{
    return (struct prompt_pool_calls){
        .send = machine_send,
        .send_tokens = send_tokens,
        .local_blocks = local_blocks,
        .local_ready = local_ready,
        .local_aborted = local_aborted,
        .publish = publish,
        .windows_find = windows_find,
        .push = machine_target_push,
        .copy = machine_target_copy,
        .flush = machine_target_flush,
    };
}

static bool local_writes(void *self, const struct message_request *request)
{
    const struct machine *m = self;
    return prompt_pool_has_local(m->prompt_pool, request);
}

struct token_pool_calls machine_token_calls(const struct machine *m)
{
    return (struct token_pool_calls){
        .send = machine_send,
        .send_tokens = send_tokens,
        .local_writes = local_writes,
        .await_changed = m->executor->ops->kv_await != NULL ? machine_target_await : NULL};
}
