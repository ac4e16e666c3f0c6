/* stage_peers: connections of a stage process. The head, the stage before and machines that write
 * KV connect to it; it connects to the next stage and to token machines. */
#include "machine/executor/stage_state.h"

#include "common/log.h"

#include <stdio.h>
#include <string.h>

static struct peer_user head_user = {.kind = PEER_HEAD};
static struct peer_user previous_user = {.kind = PEER_STAGE_PREVIOUS};
static struct peer_user writer_user = {.kind = PEER_WRITER};

static const char *name_of(const struct transport_peer *peer)
{
    return transport_peer_identity(peer)->name;
}

void stage_send(struct stage *s, struct transport_peer *peer, const struct stage_message *message)
{
    if (peer == NULL)
        return;
    enum status status = stage_message_encode(message, &s->send_buffer);
    s->sends_queued = true;
    if (status == ST_OK)
        status = transport_send(s->transport, peer, s->send_buffer.data, s->send_buffer.bytes);
    if (status == ST_NO_RESOURCE || status == ST_TOO_LARGE || status == ST_NO_MEMORY)
        doomed_add(&s->doomed, peer, "it does not read its messages");
}

void stage_state_send(struct stage *s, bool ready, const char *text)
{
    struct stage_message message = {.kind = STAGE_STATE, .state = {.ready = ready}};
    snprintf(message.state.text, sizeof(message.state.text), "%.255s", text);
    stage_send(s, s->head, &message);
}

/* A peer has connected: the head, a stage process of this machine ("t0/1"), or another machine that
 * writes KV. */
static void new_up(struct stage *s, struct transport_peer *peer)
{
    const char *name = name_of(peer);
    size_t length = strlen(s->config_entry->name);
    if (transport_peer_identity(peer)->role != TRANSPORT_MACHINE) {
        doomed_add(&s->doomed, peer, "a stage works for its machine only");
        return;
    }
    if (strcmp(name, s->config_entry->name) == 0) {
        /* its end of the old connection is gone, but ours has not noticed yet */
        if (s->head != NULL)
            doomed_add(&s->doomed, s->head, "it has connected again");
        transport_peer_set_user(peer, &head_user);
        if (s->head == NULL)
            s->head = peer;
        else
            doomed_add(&s->doomed, peer, "another one was here; try again");
        log_info("machine %s connected", name);
        return;
    }
    if (strncmp(name, s->config_entry->name, length) == 0 && name[length] == '/') {
        transport_peer_set_user(peer, &previous_user);
        log_info("stage %s connected, activations travel by %s", name, transport_peer_path(peer));
        return;
    }
    transport_peer_set_user(peer, &writer_user);
    stage_writer_up(s, peer);
    if (!s->opened)
        doomed_add(&s->doomed, peer, "this stage has no machine yet");
}

/* All work was for the head that is gone, also that of the writers and the targets. */
static void head_down(struct stage *s, struct transport_peer *peer, const char *text)
{
    if (peer != s->head)
        return; /* the head has connected again since */
    log_warn("machine %s is gone: %s", s->config_entry->name, text);
    stage_head_writes_await(s, peer);
    s->head = NULL;
    s->opened = false;
    s->ready_sent = false;
    for (uint32_t i = 0; i < s->next_count; i++)
        if (s->next_processes[i].peer != NULL)
            transport_disconnect(s->transport, s->next_processes[i].peer);
    s->next_count = 0;
    for (uint32_t i = 0; i < LIMIT_MACHINES; i++)
        kv_targets_drop(s->targets, i);
    stage_writers_drop(s);
    stage_jobs_forget(s);
    stage_group_head_gone(s);
    if (s->options.is_child)
        s->stopping = true;
}

static void next_down(struct stage *s, struct transport_peer *peer, const char *text)
{
    struct stage_next *next = peer_object_of(peer);
    char why[256];
    next->peer = NULL;
    next->connected = false;
    snprintf(why, sizeof(why), "the stage after it cannot be reached: %.200s", text);
    stage_state_send(s, false, why);
}

static void previous_down(struct stage *s, struct transport_peer *peer, const char *text)
{
    (void)s; /* the head notices that a stage process is gone */
    (void)peer;
    (void)text;
}

static void refused_down(struct stage *s, struct transport_peer *peer, const char *text)
{
    (void)peer;
    refusals_log(&s->refusals, text, s->now_us);
}

static void target_up(struct stage *s, struct transport_peer *peer)
{
    kv_targets_peer_up(s->targets, peer);
}

static void target_down(struct stage *s, struct transport_peer *peer, const char *text)
{
    kv_targets_peer_down(s->targets, peer, text);
}

static void next_up(struct stage *s, struct transport_peer *peer)
{
    struct stage_next *next = peer_object_of(peer);
    (void)s;
    next->connected = true;
}

/* ---- messages ---- */

/* True if the head's numbers agree with this process's own config and model. */
static bool open_agrees(struct stage *s, const struct stage_open *open, struct error *error)
{
    const struct {
        const char *what;
        uint32_t theirs;
        uint32_t ours;
    } pairs[] = {
        {"its place", open->process_index, s->options.process_index},
        {"the first layer", open->first_layer, s->process->first_layer},
        {"the end of its layers", open->end_layer, s->process->end_layer},
        {"KV blocks", open->block_count, s->arena.block_count},
        {"rows of a batch", open->rows_max, s->shape.rows_max},
        {"batches in flight", open->slots, s->slot_count},
        {"blocks of a request", open->context_spans, machine_shape_context_spans(&s->shape)},
        {"its rank", open->rank, s->process->shard.rank},
        {"ranks of its stage", open->ranks, s->process->shard.rank_count},
    };
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++)
        if (pairs[i].theirs != pairs[i].ours) {
            error_set(error, ST_MISMATCH,
                      "%s: %u by the machine's config, %u by this stage's: want the same config",
                      pairs[i].what, pairs[i].theirs, pairs[i].ours);
            return false;
        }
    return true;
}

static void on_open(struct stage *s, const struct stage_open *open)
{
    struct error error;
    if (s->opened || !open_agrees(s, open, &error)) {
        stage_state_send(s, false, s->opened ? "it is open already" : error.text);
        return;
    }
    s->opened = true;
    stage_writers_report(s);
    s->next_count = open->next_count;
    for (uint32_t i = 0; i < s->next_count; i++) {
        struct stage_next *next = &s->next_processes[i];
        *next = (struct stage_next){.peer_user = {PEER_STAGE, next},
                                    .paths = open->next_stages[i].paths};
        if (transport_connect(s->transport, open->next_stages[i].address, &next->peer_user,
                              &next->peer, &error) >= 0)
            continue;
        next->peer = NULL;
        stage_state_send(s, false, error.text);
        return;
    }
    stage_group_make(s);
}

void stage_ready_report(struct stage *s)
{
    char text[256];
    if (!s->opened || s->ready_sent || s->running != NULL || s->heads_lingering > 0 ||
        (stage_is_rank(s) && s->group_state != GROUP_JOINED))
        return;
    for (uint32_t i = 0; i < s->next_count; i++)
        if (!s->next_processes[i].connected)
            return;
    s->ready_sent = true;
    s->load_changed = true;
    snprintf(text, sizeof(text), "%.128s%s%.100s", device_describe(&s->device),
             s->next_count > 0 ? ", activations travel by " : "",
             s->next_count > 0 ? transport_peer_path(s->next_processes[0].peer) : "");
    stage_state_send(s, true, text);
}

void stage_target_link(void *self, uint32_t target, bool up, const char *text)
{
    struct stage *s = self;
    struct stage_message message = {
        .kind = STAGE_TARGET_LINK,
        .target_link = {.target = target, .serial = s->target_serials[target], .up = up}};
    snprintf(message.target_link.text, sizeof(message.target_link.text), "%.255s", text);
    s->event_count++;
    stage_send(s, s->head, &message);
}

static void on_target(struct stage *s, const struct stage_target *target)
{
    s->target_serials[target->target] = target->serial;
    if (target->stages.count == 0)
        kv_targets_drop(s->targets, target->target);
    else
        kv_targets_set(s->targets, target->target, target->name, NULL, &target->stages);
}

static void no_message(struct stage *s, struct transport_peer *peer, const uint8_t *data,
                       size_t bytes)
{
    (void)data;
    (void)bytes;
    doomed_add(&s->doomed, peer, "this peer may not send messages to a stage");
}

/* The head already knows where the layers of a machine are. */
static void target_message(struct stage *s, struct transport_peer *peer, const uint8_t *data,
                           size_t bytes)
{
    (void)s;
    (void)peer;
    (void)data;
    (void)bytes;
}

static void head_message(struct stage *s, struct transport_peer *peer, const uint8_t *data,
                         size_t bytes)
{
    if (peer != s->head) {
        no_message(s, peer, data, bytes);
        return;
    }
    struct stage_message message;
    struct error error;
    enum status status = stage_message_decode(data, bytes, &message, &error);
    if (status == ST_OK && !s->opened && message.kind != STAGE_OPEN)
        status =
            error_set(&error, ST_INVALID, "%s comes before OPEN", stage_message_name(message.kind));
    if (status == ST_OK) {
        switch (message.kind) {
        case STAGE_OPEN:
            on_open(s, &message.open);
            break;
        case STAGE_GROUP:
            status = stage_group_take(s, &message.group, &error);
            break;
        case STAGE_JOB:
            status = stage_job_take(s, data, bytes, &error);
            break;
        case STAGE_CONTEXT:
            status = stage_contexts_add(&s->contexts, &message.context, &error);
            break;
        case STAGE_TARGET:
            on_target(s, &message.target);
            break;
        case STAGE_COPY:
            status = stage_copy_take(s, &message.copy, &error);
            break;
        case STAGE_FETCH:
            status = stage_fetch_take(s, &message.fetch, &error);
            break;
        case STAGE_FLUSH:
            stage_flush_take(s, &message.flush);
            break;
        case STAGE_AWAIT:
            status = stage_await_take(s, &message.await, &error);
            break;
        default:
            status = error_set(&error, ST_INVALID, "%s is no message for a stage",
                               stage_message_name(message.kind));
        }
    }
    if (status != ST_OK) {
        stage_state_send(s, false, error.text);
        doomed_add(&s->doomed, s->head, error.text);
    }
}

static void previous_message(struct stage *s, struct transport_peer *peer, const uint8_t *data,
                             size_t bytes)
{
    struct stage_message message;
    struct error error;
    enum status status = stage_message_decode(data, bytes, &message, &error);
    if (status == ST_OK && message.kind != STAGE_ACTIVATIONS)
        status = error_set(&error, ST_INVALID, "%s is no message of a stage before",
                           stage_message_name(message.kind));
    if (status == ST_OK)
        status = stage_activations_take(s, &message.activations, &error);
    if (status != ST_OK)
        doomed_add(&s->doomed, peer, error.text);
}

/* ---- events of the transport ---- */

/* What this process does with the events of one kind of peer. */
static const struct {
    void (*up)(struct stage *s, struct transport_peer *peer);
    void (*down)(struct stage *s, struct transport_peer *peer, const char *text);
    void (*message)(struct stage *s, struct transport_peer *peer, const uint8_t *data,
                    size_t bytes);
} handlers[PEER_KIND_COUNT] = {
    [PEER_NEW] = {new_up, refused_down, no_message},
    [PEER_HEAD] = {new_up, head_down, head_message},
    [PEER_STAGE_PREVIOUS] = {new_up, previous_down, previous_message},
    [PEER_WRITER] = {new_up, stage_writer_down, no_message},
    [PEER_TARGET] = {target_up, target_down, target_message},
    [PEER_STAGE] = {next_up, next_down, no_message},
};

static void on_up(void *self, struct transport_peer *peer)
{
    struct stage *s = self;
    machine_peer_note_log(peer);
    s->event_count++;
    handlers[peer_kind_of(peer)].up(s, peer);
}

static void remove_peer(struct stage *s, struct transport_peer *peer, const char *text)
{
    doomed_remove(peer);
    handlers[peer_kind_of(peer)].down(s, peer, text);
}

static void on_down(void *self, struct transport_peer *peer, enum status why, const char *text)
{
    struct stage *s = self;
    (void)why; /* the text says why */
    s->event_count++;
    remove_peer(s, peer, text);
}

void stage_peers_drop(struct stage *s)
{
    struct transport_peer *peer;
    while ((peer = doomed_take(&s->doomed)) != NULL) {
        s->event_count++;
        log_warn("disconnects %s: %s", name_of(peer), doomed_reason(peer));
        remove_peer(s, peer, doomed_reason(peer));
        transport_disconnect(s->transport, peer);
    }
}

static void on_flushed(void *self, struct transport_peer *peer, uint64_t cookie, enum status status)
{
    struct stage *s = self;
    s->event_count++;
    if (peer_kind_of(peer) == PEER_STAGE)
        stage_activations_sent(s, peer, cookie, status);
    else if (peer_kind_of(peer) == PEER_HEAD)
        stage_fetched(s, (uint32_t)cookie, status);
    else
        kv_targets_flushed(s->targets, peer, cookie, status);
}

static void on_message(void *self, struct transport_peer *peer, const uint8_t *data, size_t bytes)
{
    struct stage *s = self;
    s->event_count++;
    handlers[peer_kind_of(peer)].message(s, peer, data, bytes);
}

static bool on_write(void *self, const struct transport_peer *peer,
                     const struct transport_request *request, uint64_t offset, uint64_t bytes)
{
    return stage_write_wanted(self, peer, request, offset, bytes);
}

static void on_path_changed(void *self, struct transport_peer *peer)
{
    (void)self;
    log_info("data goes to %s by %s now", transport_peer_identity(peer)->name,
             transport_peer_path(peer));
}

static void on_writes_ended(void *self, uint64_t number)
{
    struct stage *s = self;
    s->event_count++;
    stage_writes_ended(s, number);
}

struct transport_events stage_transport_events(void)
{
    return (struct transport_events){.peer_up = on_up,
                                     .peer_down = on_down,
                                     .message = on_message,
                                     .flushed = on_flushed,
                                     .write_wanted = on_write,
                                     .writes_ended = on_writes_ended,
                                     .path_changed = on_path_changed};
}
