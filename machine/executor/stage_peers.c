/* stage_peers: connections of a stage process. The head, the stage before and machines that write
 * KV connect to it; it connects to the next stage and to token machines. */
#include "machine/executor/stage_state.h"

#include "common/log.h"

#include <stdio.h>
#include <string.h>

static char mark_head;
static char mark_before; /* a process of the stage before */
static char mark_writer;

static const char *name_of(const struct transport_peer *peer)
{
    return transport_peer_identity(peer)->name;
}

/* True for a peer of that kind that this process has connected to. */
static bool is(const void *user, enum kv_user kind)
{
    return user != NULL && user != &mark_head && user != &mark_before && user != &mark_writer &&
           *(const enum kv_user *)user == kind;
}

void stage_send(struct stage *s, struct transport_peer *peer, const struct stage_message *message)
{
    if (peer == NULL)
        return;
    enum status status = stage_message_encode(message, &s->out);
    s->unsent = true;
    if (status == ST_OK)
        status = transport_send(s->transport, peer, s->out.data, s->out.bytes);
    if (status == ST_NO_RESOURCE || status == ST_TOO_LARGE || status == ST_NO_MEMORY)
        doomed_add(&s->doomed, peer, "it does not read its messages");
}

void stage_tell_state(struct stage *s, bool ready, const char *text)
{
    struct stage_message message = {.kind = STAGE_STATE, .state = {.ready = ready}};
    snprintf(message.state.text, sizeof(message.state.text), "%.255s", text);
    stage_send(s, s->head, &message);
}

static void send_writer(struct stage *s, const char *name, bool up, const char *text)
{
    struct stage_message message = {.kind = STAGE_WRITER, .writer = {.up = up}};
    snprintf(message.writer.name, sizeof(message.writer.name), "%s", name);
    snprintf(message.writer.text, sizeof(message.writer.text), "%.255s", text);
    stage_send(s, s->head, &message);
}

/* A peer has connected: the head, a stage process of this machine ("t0/1"), or another machine that
 * writes KV. */
static void came(struct stage *s, struct transport_peer *peer)
{
    const char *name = name_of(peer);
    size_t length = strlen(s->entry->name);
    if (transport_peer_identity(peer)->role != TRANSPORT_MACHINE) {
        doomed_add(&s->doomed, peer, "a stage works for its machine only");
        return;
    }
    if (strcmp(name, s->entry->name) == 0) {
        /* its end of the old connection is gone, but ours has not noticed yet */
        if (s->head != NULL)
            doomed_add(&s->doomed, s->head, "it has connected again");
        transport_peer_set_user(peer, &mark_head);
        if (s->head == NULL)
            s->head = peer;
        else
            doomed_add(&s->doomed, peer, "another one was here; try again");
        log_info("machine %s connected", name);
        return;
    }
    if (strncmp(name, s->entry->name, length) == 0 && name[length] == '/') {
        transport_peer_set_user(peer, &mark_before);
        log_info("stage %s connected, activations travel by %s", name, transport_peer_path(peer));
        return;
    }
    transport_peer_set_user(peer, &mark_writer);
    if (!s->opened)
        doomed_add(&s->doomed, peer, "this stage has no machine yet");
    else
        send_writer(s, name, true, "");
}

static void on_up(void *self, struct transport_peer *peer)
{
    struct stage *s = self;
    machine_peer_note(peer);
    const void *user = transport_peer_user(peer);
    s->events++;
    if (is(user, KV_USER_PLACE))
        kv_targets_peer_up(s->targets, peer);
    else if (is(user, KV_USER_STAGE))
        ((struct stage_next *)user)->up = true;
    else
        came(s, peer);
}

/* Everything was for the head that is gone, also the writers and the targets. */
static void head_gone(struct stage *s, const char *text)
{
    log_warn("machine %s is gone: %s", s->entry->name, text);
    s->head = NULL;
    s->opened = false;
    s->told_ready = false;
    for (uint32_t i = 0; i < s->next_count; i++)
        if (s->next[i].peer != NULL)
            transport_disconnect(s->transport, s->next[i].peer);
    s->next_count = 0;
    for (uint32_t i = 0; i < LIMIT_MACHINES; i++)
        kv_targets_drop(s->targets, i);
    stage_jobs_forget(s);
    stage_group_gone(s);
    if (s->options.child)
        s->stopping = true;
}

static void next_down(struct stage *s, struct stage_next *next, const char *text)
{
    char why[256];
    next->peer = NULL;
    next->up = false;
    snprintf(why, sizeof(why), "the stage after it cannot be reached: %.200s", text);
    stage_tell_state(s, false, why);
}

static void peer_gone(struct stage *s, struct transport_peer *peer, const char *text)
{
    void *user = transport_peer_user(peer);
    doomed_remove(&s->doomed, peer);
    if (user == NULL)
        log_info("a peer was refused: %s", text);
    else if (is(user, KV_USER_PLACE))
        kv_targets_peer_down(s->targets, peer, text);
    else if (is(user, KV_USER_STAGE))
        next_down(s, user, text);
    else if (user == &mark_writer)
        send_writer(s, name_of(peer), false, text);
    else if (peer == s->head)
        head_gone(s, text);
}

static void on_down(void *self, struct transport_peer *peer, enum status why, const char *text)
{
    struct stage *s = self;
    (void)why; /* the text says why */
    s->events++;
    peer_gone(s, peer, text);
}

void stage_peers_drop(struct stage *s)
{
    struct doomed_peer doomed;
    while (doomed_take(&s->doomed, &doomed)) {
        s->events++;
        log_warn("disconnects %s: %s", name_of(doomed.peer), doomed.why);
        peer_gone(s, doomed.peer, doomed.why);
        transport_disconnect(s->transport, doomed.peer);
    }
}

static void on_flushed(void *self, struct transport_peer *peer, uint64_t cookie, enum status status)
{
    struct stage *s = self;
    s->events++;
    if (is(transport_peer_user(peer), KV_USER_STAGE))
        stage_sent(s, peer, cookie, status);
    else
        kv_targets_flushed(s->targets, peer, cookie, status);
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
        {"its place", open->stage, s->options.place},
        {"the first layer", open->first_layer, s->place->first_layer},
        {"the end of its layers", open->last_layer, s->place->last_layer},
        {"KV blocks", open->block_count, s->arena.block_count},
        {"rows of a batch", open->rows_max, s->shape.rows_max},
        {"batches in flight", open->slots, s->slot_count},
        {"blocks of a request", open->context_blocks, machine_shape_context_blocks(&s->shape)},
        {"its rank", open->rank, s->place->shard.rank},
        {"ranks of its stage", open->ranks, s->place->shard.ranks},
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
        stage_tell_state(s, false, s->opened ? "it is open already" : error.text);
        return;
    }
    s->opened = true;
    s->next_count = open->next_count;
    for (uint32_t i = 0; i < s->next_count; i++) {
        struct stage_next *next = &s->next[i];
        *next = (struct stage_next){.user = KV_USER_STAGE, .paths = open->next[i].paths};
        if (transport_connect(s->transport, open->next[i].address, next, &next->peer, &error) >= 0)
            continue;
        next->peer = NULL;
        stage_tell_state(s, false, error.text);
        return;
    }
    stage_group_make(s);
}

void stage_ready_look(struct stage *s)
{
    char text[256];
    if (!s->opened || s->told_ready || s->running != NULL ||
        (stage_is_rank(s) && s->group != GROUP_JOINED))
        return;
    for (uint32_t i = 0; i < s->next_count; i++)
        if (!s->next[i].up)
            return;
    s->told_ready = true;
    s->changed = true;
    snprintf(text, sizeof(text), "%.128s%s%.100s", device_text(&s->device),
             s->next_count > 0 ? ", activations travel by " : "",
             s->next_count > 0 ? transport_peer_path(s->next[0].peer) : "");
    stage_tell_state(s, true, text);
}

void stage_target_link(void *self, uint32_t target, bool up, const char *text)
{
    struct stage *s = self;
    struct stage_message message = {
        .kind = STAGE_TARGET_LINK,
        .target_link = {.target = target, .serial = s->target_serials[target], .up = up}};
    snprintf(message.target_link.text, sizeof(message.target_link.text), "%.255s", text);
    s->events++;
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

static void head_message(struct stage *s, const uint8_t *data, size_t bytes)
{
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
            stage_group_take(s, &message.group);
            break;
        case STAGE_JOB:
            status = stage_job_take(s, data, bytes, &error);
            break;
        case STAGE_TARGET:
            on_target(s, &message.target);
            break;
        case STAGE_FLUSH:
            stage_flush_take(s, &message.flush);
            break;
        default:
            status = error_set(&error, ST_INVALID, "%s is no message for a stage",
                               stage_message_name(message.kind));
        }
    }
    if (status != ST_OK) {
        stage_tell_state(s, false, error.text);
        doomed_add(&s->doomed, s->head, error.text);
    }
}

static void before_message(struct stage *s, struct transport_peer *peer, const uint8_t *data,
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

static void on_message(void *self, struct transport_peer *peer, const uint8_t *data, size_t bytes)
{
    struct stage *s = self;
    const void *user = transport_peer_user(peer);
    s->events++;
    if (user == &mark_head && peer == s->head)
        head_message(s, data, bytes);
    else if (user == &mark_before)
        before_message(s, peer, data, bytes);
    else if (!is(user, KV_USER_PLACE)) /* the head already knows where a machine's layers are  */
        doomed_add(&s->doomed, peer, "it has nothing to say to a stage");
}

struct transport_events stage_transport_events(void)
{
    return (struct transport_events){
        .peer_up = on_up, .peer_down = on_down, .message = on_message, .flushed = on_flushed};
}
