/* gateway_checkpoints: see the header. */
#include "server/gateway/checkpoints.h"

#include "scheduler/checkpoint.h"
#include "server/gateway/checkpoint_due.h"
#include "server/gateway/internal.h"
#include "server/gateway/request_messages.h"

#include <stdio.h>
#include <string.h>

static uint32_t block_tokens_of(const struct gateway *g, const struct gateway_request *r)
{
    return gateway_request_version(g, r)->kv.block_tokens;
}

static const struct layer_groups *groups_of(const struct gateway *g,
                                            const struct gateway_request *r)
{
    return &gateway_request_version(g, r)->groups;
}

static bool has_windows(const struct gateway *g, const struct gateway_request *r)
{
    return groups_of(g, r)->windowed != 0;
}

/* True if all layers have a window. */
static bool has_only_windows(const struct gateway *g, const struct gateway_request *r)
{
    const struct layer_groups *groups = groups_of(g, r);
    return (uint32_t)__builtin_popcount(groups->windowed) == layer_groups_count(groups);
}

static struct message_request copy_name(const struct gateway_request *r)
{
    return (struct message_request){.id = r->id,
                                    .generation = CHECKPOINT_GENERATION | r->checkpoint.copy_count};
}

static bool machine_is_known(const struct gateway_checkpoint *c)
{
    return c->machine != NULL && fleet_machine_up(c->machine) &&
           transport_peer_number(c->machine->connection.peer) == c->connection;
}

/* Sets the tokens of the copy under way; 0 = none is. */
static void pending_set(struct gateway_checkpoint *c, uint32_t tokens)
{
    c->source->copies_sending += (uint32_t)(tokens > 0) - (uint32_t)(c->pending_tokens > 0);
    c->pending_tokens = tokens;
}

/* ---- messages ---- */

static void cancel_send(struct connections *connections, struct fleet_machine *machine,
                        const struct message_request *name, bool writer)
{
    const struct message message = {.kind = MESSAGE_CANCEL,
                                    .cancel = {.request = *name, .writes_pending = writer}};
    if (fleet_machine_up(machine))
        connections_send(connections, machine, &message);
}

void request_checkpoint_end(struct connections *connections, struct gateway_request *r)
{
    struct gateway_checkpoint *c = &r->checkpoint;
    const struct message_request name = copy_name(r);
    if (c->pending_tokens > 0 && c->prefill_sent)
        cancel_send(connections, c->source, &name, false);
    if (c->pending_tokens > 0)
        cancel_send(connections, c->machine, &name, c->prefill_sent);
    if (c->pending_tokens > 0)
        pending_set(c, 0);
    *c = (struct gateway_checkpoint){.copy_count = c->copy_count};
    checkpoint_due_remove(r);
    r->copy_due.run_noticed = false;
}

static void reserve_send(struct gateway *g, const struct gateway_request *r)
{
    const struct gateway_checkpoint *c = &r->checkpoint;
    struct message message = {.kind = MESSAGE_RESERVE,
                              .reserve = {.request = copy_name(r),
                                          .prompt_tokens = c->pending_tokens,
                                          .prompt_count = c->pending_tokens,
                                          .prefix_salt = r->prefix_salt,
                                          .rank = {.weight = 1},
                                          .sampling = {.top_p = 1, .output_tokens_max = 1},
                                          .prefix_cache = true,
                                          .copy = true,
                                          .copy_windows = c->pending_is_whole && has_windows(g, r),
                                          .prompt = r->tokens}};
    snprintf(message.reserve.prompt_machine, sizeof(message.reserve.prompt_machine), "%s",
             c->source->config.name);
    connections_send(g->connections, c->machine, &message);
}

static void copy_send(struct gateway *g, const struct gateway_request *r,
                      const struct message_reserved *reserved)
{
    const struct gateway_checkpoint *c = &r->checkpoint;
    struct message message = {.kind = MESSAGE_PREFILL,
                              .prefill = {.request = copy_name(r),
                                          .copied_generation = r->generation + 1,
                                          .transfer_mode = TRANSFER_ONE_PIECE,
                                          .path = (uint8_t)reserved->path,
                                          .held_span_count = reserved->held_span_count,
                                          .window_first = reserved->window_first,
                                          .prefix_salt = r->prefix_salt,
                                          .rank = {.weight = 1},
                                          .sampling = {.top_p = 1, .output_tokens_max = 1},
                                          .block_count = reserved->block_count,
                                          .blocks = reserved->blocks,
                                          .prompt_count = c->pending_tokens,
                                          .prompt = r->tokens}};
    snprintf(message.prefill.token_machine, sizeof(message.prefill.token_machine), "%s",
             c->machine->config.name);
    connections_send(g->connections, c->source, &message);
}

/* ---- the answers of machines ---- */

static bool is_pull(const struct gateway_request *r)
{
    return r->state == GATEWAY_REQUEST_PULLING;
}

static void pull_end(struct gateway *g, struct gateway_request *r)
{
    r->decision.pulled_us = gateway_now(g);
    requests_pull_end(g->requests, r, gateway_request_version(g, r)->kv.prefix_cache);
}

/* The second machine has what the copy under way was to bring. */
static void copy_end(struct gateway *g, struct gateway_request *r)
{
    struct gateway_checkpoint *c = &r->checkpoint;
    c->tokens = c->pending_tokens;
    if (c->pending_is_whole || !has_windows(g, r))
        c->resumable_tokens = c->pending_tokens;
    pending_set(c, 0);
    c->prefill_sent = false;
    g->checkpoint_at_us = 0; /* Other copies may wait for the end of this one. */
}

/* Lets the next copy of the answer wait. Does nothing for a pull. */
static void copy_pause(struct gateway_request *r, int64_t until_us)
{
    if (r->copy_due.machine != NULL && r->copy_due.at_us < until_us)
        checkpoint_due_set(r, r->copy_due.machine, until_us);
}

/* Ends the copy under way. What was copied before stays known. */
static void copy_give_up(struct gateway *g, struct gateway_request *r)
{
    struct gateway_checkpoint *c = &r->checkpoint;
    pending_set(c, 0);
    c->prefill_sent = false;
    copy_pause(r, gateway_now(g) + SCHED_CHECKPOINT_PAUSE_US);
    g->checkpoint_at_us = 0; /* As copy_end. */
    if (is_pull(r))
        pull_end(g, r);
}

/* The other machine gets CANCEL. */
static void failed_take(struct gateway *g, struct gateway_request *r, const struct fleet_machine *m,
                        const struct message_failed *failed)
{
    struct gateway_checkpoint *c = &r->checkpoint;
    const struct message_request name = copy_name(r);
    if (c->prefill_sent && m != c->source)
        cancel_send(g->connections, c->source, &name, false);
    if (m != c->machine)
        cancel_send(g->connections, c->machine, &name, c->prefill_sent);
    log_debug("request %s (%llx): no copy of its KV: machine %s: %s", r->client_id,
              (unsigned long long)r->id, m->config.name, failed->text);
    copy_give_up(g, r);
}

/* Lets the next part of a partial copy follow. */
static void copy_again(struct gateway *g, struct gateway_request *r)
{
    if (r->copy_due.machine != NULL)
        checkpoint_due_set(r, r->copy_due.machine, gateway_now(g));
    g->checkpoint_at_us = 0;
}

static void reserved_take(struct gateway *g, struct gateway_request *r,
                          const struct message_reserved *reserved)
{
    struct gateway_checkpoint *c = &r->checkpoint;
    uint32_t block_tokens = block_tokens_of(g, r);
    uint32_t spans = c->pending_tokens / block_tokens;
    if (c->prefill_sent)
        return;
    const struct message_request name = copy_name(r);
    if (reserved->held_span_count > spans) {
        log_warn("machine %s says that it holds %u blocks of a copy of %u", c->machine->config.name,
                 reserved->held_span_count, spans);
        cancel_send(g->connections, c->machine, &name, false);
        copy_give_up(g, r);
        return;
    }
    uint32_t left = spans - reserved->held_span_count;
    if (is_pull(r) || has_only_windows(g, r))
        left = 0; /* It is not divided. */
    if (reserved->block_count > 0 && left <= SCHED_CHECKPOINT_BLOCKS_MAX) {
        c->prefill_sent = true;
        copy_send(g, r, reserved);
        return;
    }
    if (reserved->block_count == 0) { /* The machine has all blocks. */
        copy_end(g, r);
        if (is_pull(r))
            pull_end(g, r);
        return;
    }
    /* The machine lacks more blocks than one copy may send: several copies follow. */
    cancel_send(g->connections, c->machine, &name, false);
    c->tokens = reserved->held_span_count * block_tokens;
    c->resumable_tokens = has_windows(g, r) ? 0 : c->tokens;
    c->next_may_be_partial = true;
    pending_set(c, 0);
    copy_again(g, r);
}

static void copied_take(struct gateway *g, struct gateway_request *r)
{
    struct gateway_checkpoint *c = &r->checkpoint;
    if (!c->prefill_sent)
        return;
    copy_end(g, r);
    if (is_pull(r)) {
        log_debug("request %s (%llx): machine %s has got the KV of %u tokens from machine %s",
                  r->client_id, (unsigned long long)r->id, c->machine->config.name, c->tokens,
                  c->source->config.name);
        pull_end(g, r);
        return;
    }
    metrics_counter_add(g->options.metrics, METRICS_CHECKPOINTS, 1);
    log_debug("request %s (%llx): machine %s has a checkpoint of %u tokens", r->client_id,
              (unsigned long long)r->id, c->machine->config.name, c->tokens);
}

bool gateway_checkpoint_message(struct gateway *g, struct fleet_machine *m,
                                const struct message *message)
{
    const struct message_request *name =
        message->kind == MESSAGE_RESERVED    ? &message->reserved.request
        : message->kind == MESSAGE_PREFILLED ? &message->prefilled.request
        : message->kind == MESSAGE_FAILED    ? &message->failed.request
                                             : NULL;
    if (name == NULL || (name->generation & CHECKPOINT_GENERATION) == 0)
        return false;
    struct gateway_request *r = requests_find(g->requests, name->id);
    if (r == NULL || r->checkpoint.pending_tokens == 0 ||
        name->generation != copy_name(r).generation ||
        (m != r->checkpoint.machine && m != r->checkpoint.source))
        return true;
    if (message->kind == MESSAGE_RESERVED && m == r->checkpoint.machine)
        reserved_take(g, r, &message->reserved);
    else if (message->kind == MESSAGE_PREFILLED && m == r->checkpoint.source)
        copied_take(g, r);
    else if (message->kind == MESSAGE_FAILED)
        failed_take(g, r, m, &message->failed);
    return true;
}

/* ---- which copies are due ---- */

static bool mode_is(const struct gateway *g, const char *mode)
{
    return strcmp(g->options.config->kv.checkpoint, mode) == 0;
}

static uint32_t tokens_complete(const struct gateway *g, const struct gateway_request *r)
{
    return sched_checkpoint_tokens(r->prompt_count, r->delivered, block_tokens_of(g, r));
}

/* Machines whose links carry KV that a request waits for, by index. */
struct busy {
    struct machine_bits send;
    struct machine_bits receive;
};

/* Read once per check: many answers may be due. */
static void busy_read(const struct gateway *g, struct busy *out)
{
    *out = (struct busy){0};
    for (const struct gateway_request *r =
             requests_in_state(g->requests, GATEWAY_REQUEST_PREFILLING)->first;
         r != NULL; r = r->list_next)
        if (r->prompt_machine != NULL && r->token_machine != NULL &&
            r->token_machine != r->prompt_machine) {
            machine_bits_set(&out->send, r->prompt_machine->index, true);
            machine_bits_set(&out->receive, r->token_machine->index, true);
        }
}

/* True if the token machine sends KV that a request waits for, or another copy. */
static bool source_is_busy(const struct busy *busy, const struct fleet_machine *source)
{
    return source->copies_sending > 0 || machine_bits_has(&busy->send, source->index);
}

/* The first token whose blocks of layers with a window are all on the token machine: the KV before
 * the window of the answer was not sent there. */
static uint32_t tokens_least(const struct gateway *g, const struct gateway_request *r)
{
    return has_windows(g, r) ? r->prompt_count + r->delivered_before : 0;
}

static bool copy_is_due(const struct gateway *g, const struct gateway_request *r)
{
    const struct gateway_checkpoint *c = &r->checkpoint;
    return c->pending_tokens == 0 && r->delivered > r->delivered_before &&
           tokens_complete(g, r) >= tokens_least(g, r) &&
           sched_checkpoint_is_useful(tokens_complete(g, r),
                                      machine_is_known(c) ? c->resumable_tokens : 0,
                                      request_tokens_left(r), block_tokens_of(g, r));
}

/* The second machine stays the same as long as it is up, because only new blocks are then sent. */
static bool machine_choose(struct gateway *g, struct gateway_request *r)
{
    struct gateway_checkpoint *c = &r->checkpoint;
    if (machine_is_known(c) && !fleet_machine_draining(c->machine) &&
        machine_bits_has(&r->token_machine->links, c->machine->index))
        return true;
    uint32_t index =
        sched_cluster_copy_target(gateway_request_version(g, r)->scheduler, request_slot(r));
    *c = (struct gateway_checkpoint){.copy_count = c->copy_count};
    if (index == SCHED_NO_MACHINE)
        return false;
    c->machine = &g->fleet->machines[index];
    c->connection = transport_peer_number(c->machine->connection.peer);
    return true;
}

static uint32_t interval_ms(const struct gateway *g)
{
    return g->options.config->kv.checkpoint_ms;
}

/* busy: NULL = copies need not wait for links. */
static void copy_begin(struct gateway *g, struct gateway_request *r, const struct busy *busy,
                       int64_t now_us)
{
    struct gateway_checkpoint *c = &r->checkpoint;
    uint32_t most = tokens_complete(g, r);
    if (!machine_choose(g, r)) {
        copy_pause(r, now_us + SCHED_CHECKPOINT_PAUSE_US);
        return;
    }
    if (busy != NULL && machine_bits_has(&busy->receive, c->machine->index))
        return;
    uint32_t part = c->tokens + SCHED_CHECKPOINT_BLOCKS_MAX * block_tokens_of(g, r);
    c->source = r->token_machine;
    c->pending_is_whole = !c->next_may_be_partial || part >= most;
    pending_set(c, c->pending_is_whole ? most : part);
    c->next_may_be_partial = false;
    c->copy_count++;
    c->copy_count &= CHECKPOINT_GENERATION - 1;
    log_debug("request %s (%llx): begins a copy of the KV of %u tokens to machine %s", r->client_id,
              (unsigned long long)r->id, c->pending_tokens, c->machine->config.name);
    checkpoint_due_set(r, r->token_machine,
                       sched_checkpoint_next_us(now_us, interval_ms(g), !c->pending_is_whole));
    reserve_send(g, r);
}

/* Finds the answers that began to run since the last call: they are the last ones in the list. */
static void answers_find(struct gateway *g, int64_t now_us)
{
    struct gateway_request *r = requests_in_state(g->requests, GATEWAY_REQUEST_PREFILLED)->last;
    for (; r != NULL && !r->copy_due.run_noticed; r = r->list_previous) {
        r->copy_due.run_noticed = true;
        if (r->token_machine == NULL || r->score_prompt ||
            !gateway_request_version(g, r)->kv.prefix_cache)
            continue;
        checkpoint_due_set(r, r->token_machine,
                           sched_checkpoint_first_us(now_us, interval_ms(g), (uint32_t)r->id));
        if (r->copy_due.at_us < g->checkpoint_at_us)
            g->checkpoint_at_us = r->copy_due.at_us;
    }
}

/* Starts the copies of the machine's answers that are due. Returns when the next one may be. */
static int64_t machine_check(struct gateway *g, const struct fleet_machine *m,
                             const struct busy *busy, int64_t now_us)
{
    struct gateway_request *next;
    for (struct gateway_request *r = m->copy_first; r != NULL && r->copy_due.at_us <= now_us;
         r = next) {
        next = r->copy_due.next;
        if (busy != NULL && source_is_busy(busy, m))
            break;
        if (copy_is_due(g, r))
            copy_begin(g, r, busy, now_us);
    }
    const int64_t soon_us = now_us + SCHED_CHECKPOINT_CHECK_US;
    if (m->copy_first == NULL)
        return INT64_MAX;
    return m->copy_first->copy_due.at_us > soon_us ? m->copy_first->copy_due.at_us : soon_us;
}

/* Starts the copies that are due, and sets the time of the next check. */
static void machines_check(struct gateway *g, int64_t now_us)
{
    struct busy busy;
    const bool idle = mode_is(g, "idle");
    if (idle)
        busy_read(g, &busy);
    g->checkpoint_at_us = INT64_MAX;
    for (const struct fleet_machine *m = fleet_next(g->fleet, NULL); m != NULL;
         m = fleet_next(g->fleet, m)) {
        int64_t at_us = machine_check(g, m, idle ? &busy : NULL, now_us);
        if (at_us < g->checkpoint_at_us)
            g->checkpoint_at_us = at_us;
    }
}

/* ---- pulls ---- */

/* Begins the pull, or sends the request to its machines if that is not possible. With windows, the
 * prompt machine could not use it: it also needs the window's blocks, which only an answer has. */
static void pull_begin(struct gateway *g, struct gateway_request *r)
{
    struct gateway_checkpoint *c = &r->checkpoint;
    const uint32_t tokens = r->pull_tokens / block_tokens_of(g, r) * block_tokens_of(g, r);
    if (tokens == 0 || has_windows(g, r) || request_wants_whole_prompt(r) ||
        !fleet_machine_up(r->pull_source) || !fleet_machine_up(r->prompt_machine)) {
        pull_end(g, r);
        return;
    }
    *c = (struct gateway_checkpoint){
        .machine = r->prompt_machine,
        .connection = transport_peer_number(r->prompt_machine->connection.peer),
        .source = r->pull_source,
        .copy_count = (c->copy_count + 1) & (CHECKPOINT_GENERATION - 1),
    };
    pending_set(c, tokens);
    reserve_send(g, r);
}

static void pulls_begin(struct gateway *g)
{
    struct gateway_request *next;
    for (struct gateway_request *r = requests_in_state(g->requests, GATEWAY_REQUEST_PULLING)->first;
         r != NULL; r = next) {
        next = r->list_next;
        if (r->checkpoint.pending_tokens == 0)
            pull_begin(g, r);
    }
}

/* ---- the turn, and the end of a machine ---- */

/* The scheduler loses the requests whose prompt machine or token machine has died. */
void gateway_copies_machine_down(struct gateway *g, const struct fleet_machine *m)
{
    struct gateway_request *next;
    for (struct gateway_request *r = requests_in_state(g->requests, GATEWAY_REQUEST_PULLING)->first;
         r != NULL; r = next) {
        next = r->list_next;
        if (r->pull_source != m)
            continue;
        request_checkpoint_end(g->connections, r);
        pull_end(g, r);
    }
    for (struct gateway_request *r =
             requests_in_state(g->requests, GATEWAY_REQUEST_PREFILLED)->first;
         r != NULL; r = r->list_next) {
        struct gateway_checkpoint *c = &r->checkpoint;
        if (c->pending_tokens == 0 || c->machine != m)
            continue;
        const struct message_request name = copy_name(r);
        if (c->prefill_sent)
            cancel_send(g->connections, c->source, &name, false);
        copy_give_up(g, r);
    }
}

/* The timer is late on purpose: a token usually comes first, and the check needs no turn of its own
 * then. */
int64_t gateway_checkpoint_turn(struct gateway *g, int64_t now_us)
{
    bool wanted = mode_is(g, "idle") || mode_is(g, "always");
    pulls_begin(g);
    if (!wanted || connections_stopping(g->connections))
        return INT64_MAX;
    answers_find(g, now_us);
    if (now_us >= g->checkpoint_at_us)
        machines_check(g, now_us);
    return g->checkpoint_at_us == INT64_MAX ? INT64_MAX
                                            : g->checkpoint_at_us + SCHED_CHECKPOINT_CHECK_US;
}
