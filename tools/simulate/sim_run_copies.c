/* sim_run, the checkpoints (kv/checkpoint): copies of the KV of running answers on a second
 * machine, by the rules of the gateway (server/gateway/checkpoints.h): which copy is due, how many
 * blocks it has, and which link is too busy for it. */
#include "tools/simulate/sim_run_state.h"

#include "scheduler/checkpoint.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static bool has_windows(const struct run *r)
{
    return r->options.machines->machines[0].cost.groups.windowed != 0;
}

/* Returns true if a layer has no window. */
static bool has_full_layers(const struct run *r)
{
    const struct sim_cost *cost = &r->options.machines->machines[0].cost;
    return cost->windowed_layers < cost->layer_count;
}

static struct run_request *request_of(struct run *r, uint32_t slot)
{
    return &r->requests[slot];
}

static uint32_t block_tokens_of(const struct run *r)
{
    return r->options.config->kv.block_tokens;
}

static bool machine_is_known(const struct run *r, const struct run_copy *copy)
{
    return copy->chosen && r->hosts[copy->machine].machine != NULL &&
           r->hosts[copy->machine].failures == copy->failures;
}

/* Returns true if answers are copied (kv/checkpoint). */
static bool is_wanted(const struct run *r)
{
    const char *mode = r->options.config->kv.checkpoint;
    return r->options.config->kv.prefix_cache &&
           (strcmp(mode, "idle") == 0 || strcmp(mode, "always") == 0);
}

/* Plans the next check which copies are due. */
static void check_at(struct run *r, double at_s)
{
    event_heap_put(&r->events, event_copies(r), at_s);
    r->check_is_planned = true;
}

void run_copies_begin(struct run *r)
{
    if (is_wanted(r) && !r->check_is_planned)
        check_at(r, r->now_s);
}

/* ---- the end of a copy ---- */

/* Ends the copy under way. The second machine keeps the KV of `tokens` tokens; windows: including
 * the blocks of layers with a window. */
static void pending_end(struct run *r, uint32_t slot, uint32_t tokens, bool windows)
{
    struct run_request *q = request_of(r, slot);
    struct run_copy *copy = &q->copy;
    event_heap_remove(&r->events, event_of_copy(r, slot));
    if (copy->slot != SCHED_NO_SLOT && machine_is_known(r, copy)) {
        run_kv_keep(r, q, copy->machine, copy->slot, tokens, windows);
        sim_machine_remove(r->hosts[copy->machine].machine, copy->slot);
        run_begin_later(r, copy->machine);
    }
    copy->slot = SCHED_NO_SLOT;
    copy->state = RUN_COPY_NONE;
    copy->tokens_after_copy = 0;
}

void run_copy_end(struct run *r, uint32_t slot)
{
    struct run_copy *copy = &request_of(r, slot)->copy;
    if (copy->state != RUN_COPY_NONE)
        pending_end(r, slot, copy->had_tokens, copy->had_windows);
    *copy = (struct run_copy){.slot = SCHED_NO_SLOT};
}

static void pull_end(struct run *r, uint32_t slot)
{
    struct run_copy *copy = &request_of(r, slot)->copy;
    if (!copy->pull)
        return;
    copy->pull = false;
    run_request_send(r, slot);
}

/* Lets the next copy of the answer wait. Does nothing for a pull. */
static void copy_pause(const struct run *r, struct run_copy *copy)
{
    const int64_t until_us = run_now_us(r) + SCHED_CHECKPOINT_PAUSE_US;
    if (!copy->pull && copy->due_us < until_us)
        copy->due_us = until_us;
}

static void copy_failed(struct run *r, uint32_t slot)
{
    struct run_copy *copy = &request_of(r, slot)->copy;
    pending_end(r, slot, copy->had_tokens, copy->had_windows);
    copy_pause(r, copy);
    pull_end(r, slot);
}

/* Ends a copy that has arrived: the second machine has the KV of `tokens` tokens; windows:
 * including the KV of layers with a window. */
static void copy_done(struct run *r, uint32_t slot, uint32_t tokens, bool windows)
{
    struct run_copy *copy = &request_of(r, slot)->copy;
    pending_end(r, slot, tokens, windows);
    copy->tokens = tokens;
    if (windows || !has_windows(r))
        copy->resumable_tokens = tokens;
    if (is_wanted(r))
        check_at(r, r->now_s);
    pull_end(r, slot);
}

/* ---- the steps of a copy ---- */

static void reserve_reaches(struct run *r, uint32_t slot)
{
    struct run_request *q = request_of(r, slot);
    struct run_copy *copy = &q->copy;
    struct sim_machine *machine = r->hosts[copy->machine].machine;
    const struct run_kept *kept = run_kv_kept(r, q, copy->machine);
    uint32_t tokens = kept != NULL ? sim_machine_kept_tokens(machine, &kept->kv) : 0;
    copy->had_tokens = tokens < copy->tokens_after_copy ? tokens : copy->tokens_after_copy;
    copy->had_windows = kept != NULL && kept->windows;
    if (!sim_machine_copy(machine, slot, copy->tokens_after_copy, copy->includes_windows,
                          kept != NULL ? &kept->kv : NULL, &copy->slot)) {
        copy->slot = SCHED_NO_SLOT;
        copy_failed(r, slot);
        return;
    }
    if (r->prefixes)
        copy->had_tokens = sim_machine_copy_cached(machine, copy->slot);
    /* In layers with a window, the blocks of the window are sent with each whole copy. */
    uint32_t blocks = (copy->tokens_after_copy - copy->had_tokens) / block_tokens_of(r);
    bool sends_windows = copy->includes_windows && has_windows(r);
    bool divided = blocks > SCHED_CHECKPOINT_BLOCKS_MAX && !copy->pull && has_full_layers(r);
    if (divided || (blocks == 0 && !sends_windows)) {
        copy->partial = divided;
        if (divided)
            copy->due_us = run_now_us(r);
        copy_done(r, slot, copy->had_tokens, copy->had_windows && !divided);
        return;
    }
    copy->state = RUN_COPY_PREFILL_SENT; /* RESERVED, then PREFILL. */
    event_heap_put(&r->events, event_of_copy(r, slot), r->now_s + 2 * r->options.message_s);
}

static uint64_t bytes_pending(const struct run *r, const struct run_request *q)
{
    const struct sim_cost *cost = &r->options.machines->machines[q->copy.source].cost;
    uint32_t block_tokens = block_tokens_of(r);
    const uint32_t end = q->copy.tokens_after_copy;
    const uint32_t window_first =
        q->copy.includes_windows
            ? layer_groups_window_first(&cost->groups, block_tokens, end) * block_tokens
            : end;
    return sim_cost_kv_bytes(cost, q->copy.had_tokens, end, window_first);
}

void run_copy_step_end(struct run *r, uint32_t slot)
{
    struct run_request *q = request_of(r, slot);
    struct run_copy *copy = &q->copy;
    if (!machine_is_known(r, copy) || r->hosts[copy->source].machine == NULL ||
        r->hosts[copy->source].failures != copy->source_failures) {
        copy_failed(r, slot);
        return;
    }
    switch (copy->state) {
    case RUN_COPY_RESERVE_SENT:
        reserve_reaches(r, slot);
        break;
    case RUN_COPY_PREFILL_SENT:
        copy->state = RUN_COPY_WRITING;
        event_heap_put(&r->events, event_of_copy(r, slot),
                       run_kv_copy_s(r, copy->source, copy->machine, bytes_pending(r, q)));
        break;
    case RUN_COPY_WRITING:
        r->totals->copies += copy->pull ? 0 : 1;
        r->totals->copied_bytes += copy->pull ? 0 : bytes_pending(r, q);
        copy_done(r, slot, copy->tokens_after_copy, copy->includes_windows);
        break;
    default:
        assert(false);
    }
}

void run_pull_begin(struct run *r, uint32_t slot, uint32_t source, uint32_t tokens)
{
    const uint32_t machine = request_of(r, slot)->prompt_machine;
    request_of(r, slot)->copy = (struct run_copy){.state = RUN_COPY_RESERVE_SENT,
                                                  .chosen = true,
                                                  .pull = true,
                                                  .machine = machine,
                                                  .failures = r->hosts[machine].failures,
                                                  .source = source,
                                                  .source_failures = r->hosts[source].failures,
                                                  .tokens_after_copy = tokens,
                                                  .slot = SCHED_NO_SLOT};
    event_heap_put(&r->events, event_of_copy(r, slot), r->now_s + r->options.message_s);
}

/* ---- which copies are due ---- */

/* The use of a machine's links. */
enum { BUSY_COPY = 1, BUSY_SEND = 2, BUSY_RECEIVE = 4 };

static void busy_read(const struct run *r, uint8_t *busy)
{
    memset(busy, 0, r->options.machines->count);
    for (uint32_t slot = 0; slot < r->slots_used; slot++) {
        const struct run_request *q = &r->requests[slot];
        if (q->state == RUN_FREE)
            continue;
        if (q->copy.state != RUN_COPY_NONE)
            busy[q->copy.source] |= BUSY_COPY;
        if (q->state < RUN_PREFILL_SENT || q->state > RUN_TRANSFERRING ||
            q->token_machine == SCHED_NO_MACHINE || q->token_machine == q->prompt_machine)
            continue;
        busy[q->prompt_machine] |= BUSY_SEND;
        busy[q->token_machine] |= BUSY_RECEIVE;
    }
}

static bool has_replicas(const struct run *r, uint32_t machine)
{
    const struct sim_cost *cost = &r->options.machines->machines[machine].cost;
    for (uint32_t i = 0; i < cost->stage_count; i++)
        if (cost->stages[i].replica_count > 1)
            return true;
    return false;
}

static uint32_t tokens_complete(const struct run *r, const struct run_request *q)
{
    return sched_checkpoint_tokens(q->arrival.prompt_tokens, q->answer_tokens, block_tokens_of(r));
}

/* Returns true if a copy of the answer's KV can begin now. In layers with a window, the KV before
 * the answer's window was not sent to the token machine, so the copy waits until the answer is
 * longer. */
static bool copy_is_due(const struct run *r, const struct run_request *q)
{
    const struct run_copy *copy = &q->copy;
    return q->state == RUN_DECODING && copy->state == RUN_COPY_NONE &&
           run_now_us(r) >= copy->due_us && !has_replicas(r, q->token_machine) &&
           (!has_windows(r) || tokens_complete(r, q) >= q->attempt_prompt_tokens) &&
           sched_checkpoint_is_useful(
               tokens_complete(r, q), machine_is_known(r, copy) ? copy->resumable_tokens : 0,
               q->arrival.output_tokens - q->answer_tokens, block_tokens_of(r));
}

static bool machine_choose(struct run *r, uint32_t slot)
{
    struct run_copy *copy = &request_of(r, slot)->copy;
    /* After a pull, the machine that got the KV may also decode. */
    if (machine_is_known(r, copy) && copy->machine != request_of(r, slot)->token_machine)
        return true;
    uint32_t machine = sched_cluster_copy_target(r->scheduler, slot);
    *copy = (struct run_copy){.slot = SCHED_NO_SLOT, .due_us = copy->due_us};
    if (machine == SCHED_NO_MACHINE || has_replicas(r, machine))
        return false;
    copy->machine = machine;
    copy->failures = r->hosts[machine].failures;
    copy->chosen = true;
    return true;
}

static uint32_t interval_ms(const struct run *r)
{
    return r->options.config->kv.checkpoint_ms;
}

static void copy_begin(struct run *r, uint32_t slot, uint8_t *busy)
{
    struct run_request *q = request_of(r, slot);
    struct run_copy *copy = &q->copy;
    if (!machine_choose(r, slot)) {
        copy_pause(r, copy);
        return;
    }
    if (strcmp(r->options.config->kv.checkpoint, "idle") == 0 &&
        ((busy[q->token_machine] & (BUSY_COPY | BUSY_SEND)) != 0 ||
         (busy[copy->machine] & BUSY_RECEIVE) != 0))
        return;
    uint32_t most = tokens_complete(r, q);
    uint32_t part = copy->tokens + SCHED_CHECKPOINT_BLOCKS_MAX * block_tokens_of(r);
    const bool whole = !copy->partial || part >= most;
    copy->includes_windows = whole;
    copy->tokens_after_copy = whole ? most : part;
    copy->partial = false;
    copy->due_us = sched_checkpoint_next_us(run_now_us(r), interval_ms(r), !whole);
    copy->source = q->token_machine;
    copy->source_failures = r->hosts[copy->source].failures;
    copy->state = RUN_COPY_RESERVE_SENT;
    busy[q->token_machine] |= BUSY_COPY;
    event_heap_put(&r->events, event_of_copy(r, slot), r->now_s + r->options.message_s);
}

/* Orders by the time at which a copy is due, as the gateway's lists do. */
static int due_compare(const void *left, const void *right)
{
    const struct run_due *a = left;
    const struct run_due *b = right;
    if (a->at_us != b->at_us)
        return a->at_us < b->at_us ? -1 : 1;
    return (a->number > b->number) - (a->number < b->number);
}

/* Stores the copies that are due in r->dues. Returns their number. */
static uint32_t dues_find(struct run *r)
{
    uint32_t count = 0;
    for (uint32_t slot = 0; slot < r->slots_used; slot++) {
        struct run_request *q = &r->requests[slot];
        if (q->state == RUN_DECODING && q->copy.due_us == 0)
            q->copy.due_us = sched_checkpoint_first_us(run_now_us(r), interval_ms(r), q->number);
        if (copy_is_due(r, q))
            r->dues[count++] =
                (struct run_due){.at_us = q->copy.due_us, .number = q->number, .slot = slot};
    }
    qsort(r->dues, count, sizeof(r->dues[0]), due_compare);
    return count;
}

void run_copies_check(struct run *r)
{
    uint8_t busy[SCHED_MACHINES_MAX];
    r->check_is_planned = false;
    if (r->open == 0)
        return;
    busy_read(r, busy);
    uint32_t count = dues_find(r);
    for (uint32_t i = 0; i < count; i++)
        copy_begin(r, r->dues[i].slot, busy);
    check_at(r, r->now_s + SCHED_CHECKPOINT_CHECK_US / 1e6);
}
