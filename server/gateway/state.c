/* gateway_state: the state of the cluster, as the gateway sees it, as JSON for an operator. */
#include "scheduler/layerwise.h"
#include "scheduler/options.h"
#include "server/gateway/internal.h"
#include "transport/message_tier.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

static void name_add(struct text *out, const char *before, const char *name)
{
    text_string_add(out, before);
    text_add_json_string(out, name, strlen(name));
}

static const char *connection_name(enum connection_state state)
{
    static const char *const names[] = {[CONNECTION_NONE] = "no address",
                                        [CONNECTION_WAITING] = "waiting",
                                        [CONNECTION_TRYING] = "connecting",
                                        [CONNECTION_UP] = "up"};
    return names[state];
}

#define STATE_ADD(bits, name, kind, ...) STATE_ADD_##kind(name)
#define STATE_ADD_STATE(name)                                                                      \
    text_format_add(out, ",\"" #name "\":%llu", (unsigned long long)stats->name);
#define STATE_ADD_GAUGE(name)
#define STATE_ADD_COUNTER(name)

/* The KV of each kind of layers that the model has. */
static void kinds_add(struct text *out, const struct message_stats *stats)
{
    const char *before = "";
    for (int kind = 0; kind < LAYER_KIND_COUNT; kind++) {
        if ((stats->kv_kinds >> kind & 1) == 0)
            continue;
        text_format_add(out, "%s\"%s\":{\"bytes\":%llu,\"sent_bytes\":%llu", before,
                        layer_kind_name((enum layer_kind)kind),
                        (unsigned long long)stats->kv_bytes[kind],
                        (unsigned long long)stats->transfer_bytes[kind]);
        if (kind == LAYER_WINDOW)
            text_format_add(out, ",\"freed_blocks\":%llu",
                            (unsigned long long)stats->window_freed_blocks);
        text_string_add(out, "}");
        before = ",";
    }
}

/* The machine's tiers for KV below its memory. */
static void tiers_add(struct text *out, const struct message_stats *stats)
{
    const char *before = ",\"kv_tiers\":{", *end = "";
    for (int kind = 0; kind < TIER_KIND_COUNT; kind++) {
        const struct message_tier tier = message_stats_tier(stats, (enum tier_kind)kind);
        if (tier.state == MESSAGE_TIER_NONE)
            continue;
        text_format_add(out, "%s\"%s\":{\"works\":%s", before, tier_kind_name((enum tier_kind)kind),
                        tier.state == MESSAGE_TIER_WORKS ? "true" : "false");
#define TIER_ADD(name, kind, factor, family, help)                                                 \
    text_format_add(out, ",\"" #name "\":%llu", (unsigned long long)tier.name);
        TIER_COUNTERS(TIER_ADD)
#undef TIER_ADD
        text_string_add(out, "}");
        before = ",";
        end = "}";
    }
    text_string_add(out, end);
}

static void stats_add(struct text *out, const struct message_stats *stats)
{
    static const char *const states[] = {"free", "reserved", "filling",
                                         "live", "cached",   "quarantined"};
    MACHINE_COUNTERS(STATE_ADD)
    text_string_add(out, ",\"kv_blocks\":{");
    for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++)
        text_format_add(out, "%s\"%s\":%u", i > 0 ? "," : "", states[i], stats->kv_blocks[i]);
    text_string_add(out, "},\"kv_kinds\":{");
    kinds_add(out, stats);
    text_string_add(out, "}");
    tiers_add(out, stats);
}

/* The speed by which the gateway decides; 0 = not measured yet. The decode rate is that of a full
 * batch, which follows from the time of each further row: before this time is measured, it is 0. */
static void speed_add(struct text *out, const struct gateway *g, const struct fleet_machine *m)
{
    const struct sched_event speed = sched_rates_event(g->options.config, &m->rates);
    text_format_add(out,
                    ",\"measured\":{\"prompt_tokens_per_s\":%u,\"output_tokens_per_s\":%u"
                    ",\"step_us\":%u,\"step_us_per_answer\":%u}",
                    speed.prompt_tokens_per_s,
                    speed.step.row_ns > 0 ? speed.output_tokens_per_s : 0,
                    speed.step.fixed_ns / 1000, speed.step.row_ns / 1000);
}

/* The values in effect of the keys that are "auto". */
static void automatic_add(struct text *out, const struct gateway *g)
{
    struct sched_cluster_options options = gateway_sched_options(g, g->current);
    text_format_add(
        out,
        ",\"automatic\":{\"placement\":\"%s\",\"prompt_queue_threshold_tokens\":%" PRIu64
        ",\"prompt_queue_threshold_ms\":%lld"
        ",\"machine_pending_ms\":%lld}",
        g->options.config->scheduler.placement, options.prompt_queue_threshold_tokens,
        (long long)options.prompt_queue_threshold_us / 1000,
        (long long)options.machine_us_max / 1000);
}

static void machine_add(struct text *out, const struct gateway *g, const struct fleet_machine *m)
{
    struct sched_machine_view view;
    sched_cluster_view(m->version->scheduler, m->index, &view);
    name_add(out, "{\"name\":", m->config.name);
    text_format_add(out, ",\"version\":%u,\"home\":\"%s\",\"pool\":\"%s\"", m->version->number,
                    pool_name(m->home), pool_name(view.up ? view.pool : m->home));
    text_format_add(out, ",\"local\":%s,\"connection\":\"%s\",\"draining\":%s",
                    m->config.local ? "true" : "false", connection_name(m->connection.state),
                    fleet_machine_draining(m) ? "true" : "false");
    name_add(out, ",\"address\":", m->connection.address);
    if (m->connection.state == CONNECTION_UP)
        text_format_add(out, ",\"protocol\":%u", transport_peer_version(m->connection.peer));
    else
        name_add(out, ",\"why\":", m->connection.down_reason);
    name_add(out, ",\"device\":", m->about.device);
    name_add(out, ",\"host\":", m->about.host);
    name_add(out, ",\"build\":", m->about.build);
    if (m->about.fell_back)
        name_add(out, ",\"warning\":", "it computes on the CPU instead of its device");
    text_format_add(out,
                    ",\"kv_tokens\":%llu,\"routed_prompts\":%u,\"routed_decodes\":%u"
                    ",\"routed_prompt_tokens\":%llu,\"routed_kv_tokens\":%llu",
                    (unsigned long long)m->kv_tokens, view.prompts, view.decodes,
                    (unsigned long long)view.prompt_tokens_pending,
                    (unsigned long long)view.kv_tokens_scheduled);
    if (m->crashes > 0) {
        text_format_add(out, ",\"crashes\":%u", m->crashes);
        name_add(out, ",\"latest_crash\":", m->crash_reason);
    }
    if (m->connection.state == CONNECTION_UP) {
        stats_add(out, &m->stats);
        speed_add(out, g, m);
    }
    if (m->others.gateways > 0)
        text_format_add(out,
                        ",\"gateways\":%u,\"others\":{\"prompts\":%u,\"prompt_tokens\":%llu"
                        ",\"decodes\":%u,\"kv_tokens\":%llu,\"mixed\":%s}",
                        m->others.gateways, m->others.prompts,
                        (unsigned long long)m->others.prompt_tokens, m->others.decodes,
                        (unsigned long long)m->others.kv_tokens,
                        m->others.is_in_mixed_pool ? "true" : "false");
    text_string_add(out, "}");
}

/* The prompt length from which on the machine sends KV layer by layer, by the gateway's figures. */
static void layerwise_add(struct text *out, const struct gateway *g, const struct fleet_machine *m,
                          const struct sched_link_speed *link)
{
    const struct config *config = g->options.config;
    const uint32_t rate =
        sched_rates_prompt_tokens_per_s(&m->rates, config->scheduler.prompt_batch_tokens / 2);
    const struct sched_layerwise speeds = {
        .send_token_us = 1e6 / link->tokens_per_s,
        .prompt_token_us = rate > 0 ? 1e6 / rate : 0,
        .layer_count = transport_peer_identity(m->connection.peer)->layer_count};
    uint32_t tokens = config->kv.layerwise_threshold_tokens;
    if (strcmp(config->kv.transfer, "auto") == 0)
        text_format_add(out, ",\"layerwise_tokens\":%u",
                        tokens == CONFIG_AUTO ? sched_layerwise_tokens(&speeds) : tokens);
}

/* The speed by which the gateway estimates how long KV travels, if it was measured. */
static void link_speed_add(struct text *out, const struct gateway *g, const struct fleet_machine *m,
                           uint32_t to)
{
    struct sched_link_speed speed;
    sched_cluster_link_view(m->version->scheduler, m->index, to, &speed);
    if (speed.tokens_per_s > 0 && m->connection.peer != NULL) {
        text_format_add(out, ",\"latency_us\":%u,\"kv_tokens_per_s\":%u,\"error_percent\":%u",
                        speed.latency_us, speed.tokens_per_s, speed.error_percent);
        layerwise_add(out, g, m, &speed);
    }
    text_string_add(out, "}");
}

static void links_add(struct text *out, const struct gateway *g)
{
    const char *before = "";
    text_string_add(out, "],\"links\":[");
    for (const struct fleet_machine *m = fleet_next(g->fleet, NULL); m != NULL;
         m = fleet_next(g->fleet, m)) {
        for (uint32_t to = 0; to < g->fleet->count; to++) {
            if (!machine_bits_has(&m->links, to))
                continue;
            text_format_add(out, "%s{\"from\":\"%s\",\"to\":\"%s\",\"up\":true", before,
                            m->config.name, fleet_name(g->fleet, to));
            link_speed_add(out, g, m, to);
            before = ",";
        }
        if (m->link_down_reason[0] == 0)
            continue;
        text_format_add(out, "%s{\"from\":\"%s\",\"up\":false", before, m->config.name);
        name_add(out, ",\"why\":", m->link_down_reason);
        text_string_add(out, "}");
        before = ",";
    }
}

/* Returns the tokens of a running answer that are in no checkpoint; 0 = the answer is not
 * copied. */
static uint32_t checkpoint_missing_tokens(const struct gateway_request *r)
{
    const uint32_t had = r->checkpoint.resumable_tokens > r->prompt_count
                             ? r->checkpoint.resumable_tokens
                             : r->prompt_count;
    const uint32_t tokens = r->prompt_count + r->delivered;
    return r->copy_due.machine != NULL && tokens > had ? tokens - had : 0;
}

static void requests_add(struct text *out, const struct gateway *g)
{
    uint32_t counts[REQUEST_STATE_COUNT] = {0}, suspects = 0;
    uint64_t checkpoint_tokens = 0, missing_tokens = 0;
    struct requests_counts total = requests_counts(g->requests);
    for (const struct gateway_request *r = requests_next(g->requests, NULL); r != NULL;
         r = requests_next(g->requests, r)) {
        counts[r->life.state]++;
        suspects += blame_is_suspect(&r->blame) ? 1 : 0;
        checkpoint_tokens += r->checkpoint.resumable_tokens;
        missing_tokens += checkpoint_missing_tokens(r);
    }
    text_string_add(out, "],\"requests\":{");
    for (int state = 0; state < REQUEST_STATE_COUNT; state++)
        text_format_add(out, "%s\"%s\":%u", state > 0 ? "," : "",
                        request_state_name((enum request_state)state), counts[state]);
    text_format_add(out, "},\"requests_suspected\":%u,\"checkpoint_tokens\":%llu", suspects,
                    (unsigned long long)checkpoint_tokens);
    text_format_add(out, ",\"checkpoint_missing_tokens\":%llu", (unsigned long long)missing_tokens);
    text_format_add(out, ",\"requests_open\":%u,\"requests_unrouted\":%u,\"requests_resumed\":%llu",
                    total.open, gateway_waiting_count(g), (unsigned long long)total.resumed);
}

void gateway_state_write(const struct gateway *g, struct text *out)
{
    char health[1024];
    const char *before = "";
    gateway_health_text(g, health, sizeof(health));
    text_format_add(out, "\"gateway\":\"%s\",\"leads\":%s,\"ready\":%s", g->name,
                    gateway_leads(g) ? "true" : "false", gateway_ready(g) ? "true" : "false");
    name_add(out, ",\"detail\":", health);
    automatic_add(out, g);
    text_string_add(out, ",\"headroom\":");
    gateway_headroom_write(g, out);
    text_string_add(out, ",\"machines\":[");
    for (const struct fleet_machine *m = fleet_next(g->fleet, NULL); m != NULL;
         m = fleet_next(g->fleet, m)) {
        text_string_add(out, before);
        machine_add(out, g, m);
        before = ",";
    }
    links_add(out, g);
    requests_add(out, g);
}

void gateway_requests_list(const struct gateway *g, const struct history_query *query,
                           struct text *out)
{
    history_write(g->history, query, gateway_now(g), out);
}

void gateway_requests_write(const struct gateway *g, const struct history_query *query,
                            struct text *out)
{
    struct timespec unix_now;
    clock_gettime(CLOCK_REALTIME, &unix_now);
    text_format_add(out, "\"gateway\":\"%s\",\"now_us\":%lld,\"now_unix_ms\":%lld,\"requests\":[",
                    g->name, (long long)gateway_now(g),
                    (long long)unix_now.tv_sec * 1000 + unix_now.tv_nsec / 1000000);
    gateway_requests_list(g, query, out);
    text_string_add(out, "]");
}

void gateway_decisions_lines(const struct gateway *g, struct text *out)
{
    line_ring_write(g->event_ring, "\n", out);
}

void gateway_decisions_write(const struct gateway *g, struct text *out)
{
    const char *before = "";
    text_string_add(out, "\"machines\":[");
    for (const struct fleet_machine *m = fleet_next(g->fleet, NULL); m != NULL;
         m = fleet_next(g->fleet, m)) {
        text_string_add(out, before);
        event_text_machine(out, m->index, m->config.name);
        before = ",";
    }
    text_string_add(out, "],\"events\":[");
    line_ring_write(g->event_ring, ",\n", out);
    text_string_add(out, "]");
}
