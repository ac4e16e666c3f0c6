/* machine: one iteration of the event loop, and the end.
 *
 * The order within an iteration is the order of what a client waits for: incoming messages, the
 * executor's results, the next batch (the engine must not idle), and only then the tokens and KV of
 * the finished batch, which travel while the next one computes. */
#include "machine/machine.h"

#include "common/log.h"
#include "common/memory.h"
#include "machine/state.h"

#include <limits.h>

#define STATS_INTERVAL_US 100000
/* Longest time between two readings of the energy meters. */
#define ENERGY_INTERVAL_US 10000000
/* Longest time that a stop waits for transfers in progress. */
#define STOP_US 1000000
/* Most rounds of one iteration. Each round handles what the round before caused; the rest waits for
 * the next iteration. */
#define ROUNDS_MAX 8

enum status machine_listen(struct machine *m, const char *address,
                           char bound_out[LIMIT_ADDRESS_BYTES], struct error *error)
{
    return transport_listen(m->transport, address, bound_out, error);
}

int machine_fd(const struct machine *m)
{
    return m->epoll_fd;
}

static int way_slowness(uint32_t way)
{
    static const int slowness[] = {[TRANSPORT_WAY_HOST] = 0,
                                   [TRANSPORT_WAY_DIRECT] = 1,
                                   [TRANSPORT_WAY_PEER] = 2,
                                   [TRANSPORT_WAY_STAGED] = 3};
    return way < sizeof(slowness) / sizeof(slowness[0]) ? slowness[way] : 0;
}

static void process_add(struct message_stats *out, const struct message_process *process)
{
    out->resident_bytes += process->resident_bytes;
    if (way_slowness(process->device_copies.way) > way_slowness(out->device_copies.way))
        out->device_copies.way = process->device_copies.way;
    message_copies_add(&out->device_copies, &process->device_copies);
}

static void stats_make(struct machine *m, struct message_stats *out)
{
    struct sched_machine_load load;
    sched_machine_load(m->sched, &load);
    *out = (struct message_stats){
        .prompts_waiting = load.prompts_waiting,
        .prompts_running = load.prompts_running,
        .prompt_tokens_pending = load.prompt_tokens_pending,
        .reservations_waiting = load.reservations_waiting,
        .decodes_running = load.decodes_running,
        .decode_tokens_pending = load.decode_tokens_pending,
        .resident_bytes = memory_resident(),
        .mixed_prompt_tokens = m->pace_limits.mixed_prompt_tokens,
        .prompt_fill_tokens = m->pace_limits.prompt_fill_tokens,
        .prompt_turn_us = m->prompt_turn_us,
        .device_copies = machine_copy_counts(m->transport),
        .energy_uj = energy_used_uj(&m->energy),
    };
    _Static_assert(sizeof(out->kv_blocks) / sizeof(out->kv_blocks[0]) == KV_STATE_COUNT,
                   "one per state");
    for (int state = 0; state < KV_STATE_COUNT; state++)
        out->kv_blocks[state] = kv_pool_state_count(m->kv, (enum kv_state)state);
    const uint64_t block_bytes = kv_arena_rows(&m->arena) * m->arena.block_bytes;
    out->kv_kinds = layer_groups_kinds(&m->arena.groups);
    for (int kind = 0; kind < LAYER_KIND_COUNT; kind++)
        out->kv_bytes[kind] = block_bytes * kv_pool_kind_count(m->kv, (enum layer_kind)kind);
    struct message_load loads[LIMIT_STAGE_PROCESSES];
    const uint32_t load_count = m->executor->ops->process_loads(m->executor, loads);
    for (uint32_t i = 0; i < load_count; i++)
        process_add(out, &loads[i].process);
    message_stats_add(out, &m->stats);
    machine_tiers_stats_add(m, out);
    prompt_pool_stats_add(m->prompt_pool, out);
    token_pool_stats_add(m->token_pool, out);
}

static void send_stats(struct machine *m)
{
    if (!m->stats_changed || m->now_us < m->stats_due_us)
        return;
    m->stats_changed = false;
    m->stats_due_us = m->now_us + STATS_INTERVAL_US;
    if (m->gateway_count == 0)
        return;
    struct message_stats stats;
    stats_make(m, &stats);
    m->energy_due_us = energy_known(&m->energy) ? m->now_us + ENERGY_INTERVAL_US : INT64_MAX;
    machine_gateways_report(m, &stats);
    machine_prefixes_report(m);
}

/* Returns true when the round caused something that the next round has to handle. */
static bool turn_round(struct machine *m)
{
    m->event_count = 0;
    m->sends_queued = false;
    m->now_us = clock_now_us(m->options.clock);
    transport_progress(m->transport);
    machine_held_turn(m);
    machine_batch_abandon_unwanted(m);
    m->executor_due_us = m->executor->ops->progress(m->executor, m->now_us);
    machine_draft_progress(m);
    machine_batch_start(m);
    if (m->executor->queues_messages && m->sends_queued)
        transport_progress(m->transport); /* the first stage must not idle, either */
    prompt_pool_results_send(m->prompt_pool, m->now_us);
    token_pool_tokens_send(m->token_pool);
    machine_peers_drop(m);
    return m->event_count > 0 || m->sends_queued;
}

static int timeout_ms(const struct machine *m, int64_t at_us)
{
    if (at_us == INT64_MAX)
        return -1;
    int64_t left_ms = (at_us - m->now_us + 999) / 1000;
    return left_ms < 0 ? 0 : left_ms > INT_MAX ? INT_MAX : (int)left_ms;
}

static int64_t min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

int machine_turn(struct machine *m)
{
    uint32_t rounds = 0;
    bool more = true;
    m->now_us = clock_now_us(m->options.clock);
    uint32_t known = token_pool_count(m->token_pool);
    int64_t next_us = min_i64(prompt_links_turn(m->links, m->now_us),
                              token_pool_leases_check(m->token_pool, m->now_us));
    m->stats_changed |= token_pool_count(m->token_pool) != known; /* reservations have expired */
    while (more && rounds++ < ROUNDS_MAX)
        more = turn_round(m);
    machine_leave_turn(m);
    m->stats_changed |= m->now_us >= m->energy_due_us;
    send_stats(m);
    if (m->stats_changed && m->gateway_count > 0)
        next_us = min_i64(next_us, m->stats_due_us);
    if (m->gateway_count > 0)
        next_us = min_i64(next_us, m->energy_due_us);
    next_us = min_i64(next_us, min_i64(m->executor_due_us, machine_tiers_due_us(m)));
    if (m->stopping)
        next_us = min_i64(next_us, m->stop_by_us);
    else if (m->leaving)
        next_us = min_i64(next_us, m->leave_by_us);
    /* sends what is queued; messages that arrive meanwhile need another iteration */
    if (m->sends_queued) {
        m->event_count = 0;
        transport_progress(m->transport);
        more |= m->event_count > 0;
    }
    return more ? 0 : timeout_ms(m, next_us);
}

void machine_stop(struct machine *m)
{
    if (m->stopping)
        return;
    m->stopping = true;
    m->stop_by_us = m->now_us + STOP_US;
    token_pool_gateway_gone(m->token_pool, NULL, m->now_us);
    prompt_pool_gateway_gone(m->prompt_pool, NULL);
}

void machine_log_level_send(struct machine *m, int level)
{
    if (m->executor->ops->log_level_send != NULL)
        m->executor->ops->log_level_send(m->executor, level);
}

enum status machine_keys_set(struct machine *m, const struct secret_keys *keys, struct error *error)
{
    enum status status = transport_keys_set(m->transport, keys, error);
    if (status == ST_OK && m->executor->ops->keys_set != NULL)
        m->executor->ops->keys_set(m->executor, keys);
    return status;
}

bool machine_stopped(const struct machine *m)
{
    if (!m->stopping || machine_batch_in_flight(m))
        return false;
    return prompt_pool_count(m->prompt_pool) == 0 || m->now_us >= m->stop_by_us;
}

bool machine_ready(const struct machine *m)
{
    return m->executor->ops->is_ready(m->executor);
}

enum status machine_failure(const struct machine *m, struct error *error)
{
    return m->executor->ops->failure(m->executor, error);
}

bool machine_kv_check(const struct machine *m, struct error *error)
{
    return kv_pool_check(m->kv, error) && (m->prefix == NULL || kv_prefix_check(m->prefix, error));
}

const struct digest *machine_model_hash(const struct machine *m)
{
    return &m->shape.model_hash;
}

uint64_t machine_metadata_hash(const struct machine *m)
{
    return m->shape.metadata_hash;
}
