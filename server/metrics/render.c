/* metrics_render: the page of /metrics: metric families in a fixed order, each with its HELP and
 * TYPE. vLLM's names are used where the meaning is the same, so that its dashboards and benchmark
 * tools work; other names begin with cleave_. */
#include "common/build_info.h"
#include "common/text.h"
#include "server/api/keys.h"
#include "server/metrics/internal.h"
#include "transport/message_tier.h"

#include <assert.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#define LINKS_SHOWN_MACHINES 64

/* ---- the format ---- */

void metrics_family(struct text *out, const char *name, const char *type, const char *help)
{
    text_format_add(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* The value of a label: backslash, quotation mark and line feed are escaped. */
static void label_value_add(struct text *out, const char *value)
{
    for (; *value != 0; value++) {
        if (*value == '\n')
            text_string_add(out, "\\n");
        else if (*value == '\\' || *value == '"')
            text_format_add(out, "\\%c", *value);
        else
            text_add(out, value, 1);
    }
}

void metrics_label_add(struct text *out, const char *before, const char *name, const char *value)
{
    text_format_add(out, "%s%s=\"", before, name);
    label_value_add(out, value);
    text_string_add(out, "\"");
}

/* A sample's value and the end of its line. */
void metrics_value_add(struct text *out, double value)
{
    if (isnan(value))
        text_string_add(out, " NaN\n");
    else if (value == floor(value) && fabs(value) < 0x1p53)
        text_format_add(out, " %.0f\n", value);
    else
        text_format_add(out, " %.15g\n", value);
}

static void model_labels_add(struct text *out, const struct metrics *m)
{
    metrics_label_add(out, "", "model_name", m->model_name);
    metrics_label_add(out, ",", "engine", "0");
}

void metrics_vllm_sample(struct text *out, const struct metrics *m, const char *name, double value)
{
    text_format_add(out, "%s{", name);
    model_labels_add(out, m);
    text_string_add(out, "}");
    metrics_value_add(out, value);
}

void metrics_machine_labels(struct text *out, const struct metrics *m, uint32_t machine)
{
    metrics_label_add(out, "", "machine", m->fleet->machines[machine].config.name);
    metrics_label_add(out, ",", "pool", pool_name(m->fleet->machines[machine].config.pool));
}

void metrics_machine_sample(struct text *out, const struct metrics *m, const char *name,
                            uint32_t machine, double value)
{
    text_format_add(out, "%s{", name);
    metrics_machine_labels(out, m, machine);
    text_string_add(out, "}");
    metrics_value_add(out, value);
}

double metrics_row_value(const struct metrics_row *row, const void *values)
{
    const char *at = (const char *)values + row->offset;
    uint32_t narrow = 0;
    uint64_t wide = 0;
    if (row->bits == 32)
        memcpy(&narrow, at, sizeof(narrow));
    else
        memcpy(&wide, at, sizeof(wide));
    return (row->bits == 32 ? (double)narrow : (double)wide) * row->factor;
}

/* ---- times ---- */

struct time_family {
    enum metrics_time which;
    bool vllm;
    const char *name;
    const char *help;
};

static const struct time_family time_families[] = {
    {METRICS_QUEUE, false, "cleave_request_queue_seconds",
     "From arrival until the prompt's first batch, without the wait for KV memory."},
    {METRICS_RESERVE, false, "cleave_request_reserve_seconds",
     "Wait for KV memory on the token machine."},
    {METRICS_PROMPT, false, "cleave_request_prompt_seconds",
     "From the prompt's first batch until the first token."},
    {METRICS_EXPOSED, false, "cleave_request_exposed_transfer_seconds",
     "From the first token until all KV was at the token machine."},
    {METRICS_TRANSFER, false, "cleave_request_transfer_seconds",
     "From the first KV write until all KV was at the token machine."},
    {METRICS_FIRST_DECODE, false, "cleave_request_first_decode_seconds",
     "From the KV's arrival until the second token."},
    {METRICS_TTFT, true, "vllm:time_to_first_token_seconds", "From arrival until the first token."},
    {METRICS_INTER_TOKEN, true, "vllm:inter_token_latency_seconds",
     "Between two consecutive tokens of a request."},
    /* vLLM's name of this figure changed with version 0.10; dashboards use either. */
    {METRICS_INTER_TOKEN, true, "vllm:time_per_output_token_seconds",
     "Older name of vllm:inter_token_latency_seconds."},
    {METRICS_PER_TOKEN, true, "vllm:request_time_per_output_token_seconds",
     "Mean time per token of a request after its first token."},
    {METRICS_E2E, true, "vllm:e2e_request_latency_seconds",
     "From arrival until the end of the answer."},
    {METRICS_WAIT, true, "vllm:request_queue_time_seconds",
     "From arrival until the prompt's first batch."},
    {METRICS_PROMPT, true, "vllm:request_prefill_time_seconds",
     "From the prompt's first batch until the first token."},
    {METRICS_DECODE, true, "vllm:request_decode_time_seconds",
     "From the first token until the last one."},
};

/* A limit of the SLO is a whole number of milliseconds, and is written exactly. */
void metrics_bound_write(double bound, char out[32])
{
    double ms = round(bound * 1e3);
    bool exact = fabs(ms * 1e-3 - bound) < 1e-9 * bound;
    snprintf(out, 32, exact ? "%.8g" : "%.4g", bound);
}

static void time_sample(struct text *out, const struct metrics *m, const struct time_family *f,
                        const char *suffix, const char *bound, double value)
{
    text_format_add(out, "%s%s", f->name, suffix);
    if (f->vllm || bound != NULL)
        text_string_add(out, "{");
    if (f->vllm)
        model_labels_add(out, m);
    if (bound != NULL)
        metrics_label_add(out, f->vllm ? "," : "", "le", bound);
    if (f->vllm || bound != NULL)
        text_string_add(out, "}");
    metrics_value_add(out, value);
}

static void times_render(struct text *out, const struct metrics *m)
{
    for (size_t i = 0; i < sizeof(time_families) / sizeof(time_families[0]); i++) {
        const struct time_family *f = &time_families[i];
        const struct histogram *h = &m->times[f->which];
        metrics_family(out, f->name, "histogram", f->help);
        uint64_t below = 0;
        for (uint32_t bucket = 0; bucket < h->bound_count; bucket++) {
            char bound[32];
            metrics_bound_write(h->bounds[bucket], bound);
            below += h->counts[bucket];
            time_sample(out, m, f, "_bucket", bound, (double)below);
        }
        time_sample(out, m, f, "_bucket", "+Inf", (double)h->total);
        time_sample(out, m, f, "_sum", NULL, h->sum);
        time_sample(out, m, f, "_count", NULL, (double)h->total);
    }
}

static void sizes_render(struct text *out, const struct metrics *m, const char *name,
                         const char *help, const struct histogram *h)
{
    uint64_t below = 0;
    metrics_family(out, name, "histogram", help);
    for (uint32_t bucket = 0; bucket <= h->bound_count; bucket++) {
        bool last = bucket == h->bound_count;
        char bound[32];
        snprintf(bound, sizeof(bound), "%.0f", last ? 0 : h->bounds[bucket]);
        below += last ? 0 : h->counts[bucket];
        text_format_add(out, "%s_bucket{", name);
        model_labels_add(out, m);
        metrics_label_add(out, ",", "le", last ? "+Inf" : bound);
        text_string_add(out, "}");
        metrics_value_add(out, (double)(last ? h->total : below));
    }
    char sum[96], count[96];
    snprintf(sum, sizeof(sum), "%s_sum", name);
    snprintf(count, sizeof(count), "%s_count", name);
    metrics_vllm_sample(out, m, sum, h->sum);
    metrics_vllm_sample(out, m, count, (double)h->total);
}

/* ---- the gateway's own values ---- */

#define GATEWAY_ROW(name, kind, group, family, help)                                               \
    METRICS_ROW(64, METRICS_##name * sizeof(uint64_t), kind, group, 1, family, help)
static const struct metrics_row gateway_rows[] = {GATEWAY_COUNTERS(GATEWAY_ROW)};
#undef GATEWAY_ROW

static void group_render(struct text *out, const struct metrics *m, enum metrics_group group)
{
    for (size_t i = 0; i < sizeof(gateway_rows) / sizeof(gateway_rows[0]); i++) {
        const struct metrics_row *row = &gateway_rows[i];
        if (row->group != group)
            continue;
        double value = metrics_row_value(row, m->values);
        metrics_family(out, row->family, row->type, row->help);
        if (group == METRICS_GROUP_REQUESTS) {
            metrics_vllm_sample(out, m, row->family, value);
            continue;
        }
        text_string_add(out, row->family);
        metrics_value_add(out, value);
    }
}

/* ---- requests ---- */

const char *metrics_refusal_name(enum metrics_refusal refusal)
{
    static const char *const reasons[METRICS_REFUSAL_COUNT] = {
        "queue_full", "too_many_open", "too_late", "too_long", "too_large", "long_wait"};
    return reasons[refusal];
}

static void refusals_render(struct text *out, const struct metrics *m)
{
    metrics_family(
        out, "cleave_requests_refused_total", "counter",
        "Refused requests. queue_full: scheduler/queue_requests_max; long_wait: "
        "scheduler/queue_ms; too_late: slo/ttft_ms; too_long: slo/ttft_ms, even on idle machines; "
        "too_large: needs more KV memory than any machine has; too_many_open: 8192 are open.");
    for (int reason = 0; reason < METRICS_REFUSAL_COUNT; reason++) {
        text_format_add(out, "cleave_requests_refused_total{reason=\"%s\"}",
                        metrics_refusal_name((enum metrics_refusal)reason));
        metrics_value_add(out, (double)m->refused[reason]);
    }
}

static void requests_render(struct text *out, const struct metrics *m)
{
    group_render(out, m, METRICS_GROUP_REQUESTS);
    sizes_render(out, m, "vllm:request_prompt_tokens",
                 "Prompt tokens of each request that ended without an error.", &m->prompt_sizes);
    sizes_render(out, m, "vllm:request_generation_tokens",
                 "Answer tokens of each request that ended without an error.", &m->answer_sizes);

    static const char *const reasons[METRICS_REASON_COUNT] = {"stop", "length", "abort", "error"};
    metrics_family(out, "vllm:request_success_total", "counter", "Requests that ended, by reason.");
    for (int reason = 0; reason < METRICS_REASON_COUNT; reason++) {
        text_string_add(out, "vllm:request_success_total{");
        model_labels_add(out, m);
        metrics_label_add(out, ",", "finished_reason", reasons[reason]);
        text_string_add(out, "}");
        metrics_value_add(out, (double)m->ended[reason]);
    }
    refusals_render(out, m);
    group_render(out, m, METRICS_GROUP_ROUTING);
    metrics_family(out, "cleave_http_requests_total", "counter", "HTTP responses, by status code.");
    for (int code = 0; code < METRICS_HTTP_CODES; code++)
        if (m->http_codes[code] > 0)
            text_format_add(out, "cleave_http_requests_total{code=\"%d\"} %llu\n", code,
                            (unsigned long long)m->http_codes[code]);
}

/* ---- API keys ---- */

#define KEY_ROW(name, kind, family, help)                                                          \
    METRICS_ROW(64, offsetof(struct api_key_counts, name), kind, HIDDEN, 1, family, help)
static const struct metrics_row key_rows[] = {KEY_COUNTERS(KEY_ROW)};
#undef KEY_ROW

static void keys_render(struct text *out, const struct metrics *m)
{
    size_t families = m->keys != NULL ? sizeof(key_rows) / sizeof(key_rows[0]) : 0;
    for (size_t f = 0; f < families; f++) {
        const struct metrics_row *row = &key_rows[f];
        bool begun = false;
        for (uint32_t key = 0; key < api_keys_index_count(m->keys); key++) {
            const struct api_key_settings *settings = api_keys_settings(m->keys, key);
            if (settings == NULL)
                continue;
            if (!begun)
                metrics_family(out, row->family, row->type, row->help);
            begun = true;
            text_format_add(out, "%s{", row->family);
            metrics_label_add(out, "", "key", settings->name);
            text_string_add(out, "}");
            metrics_value_add(out, metrics_row_value(row, api_keys_counts(m->keys, key)));
        }
    }
}

/* Only of keys that expire. */
static void keys_expiry_render(struct text *out, const struct metrics *m)
{
    static const char family[] = "cleave_key_expiry_timestamp_seconds";
    bool begun = false;
    for (uint32_t key = 0; key < api_keys_index_count(m->keys); key++) {
        const struct api_key_settings *settings = api_keys_settings(m->keys, key);
        if (settings == NULL || settings->expires == 0 || !api_keys_present(m->keys, key))
            continue;
        if (!begun)
            metrics_family(out, family, "gauge", "Expiry of an API key, in Unix time.");
        begun = true;
        text_format_add(out, "%s", family);
        metrics_label_add(out, "{", "key", settings->name);
        text_format_add(out, "} %lld\n", (long long)settings->expires);
    }
}

/* ---- machines ---- */

/* Where and with what the machines compute. */
static void about_render(struct text *out, const struct metrics *m)
{
    metrics_family(
        out, "cleave_machine_info", "gauge",
        "Always 1. fallback=\"true\": the machine computes on the CPU instead of its GPU.");
    for (uint32_t i = 0; i < m->fleet->count; i++) {
        const struct message_about *about = &m->machines[i].about;
        if (!m->machines[i].up || about->build[0] == 0)
            continue;
        text_string_add(out, "cleave_machine_info{");
        metrics_machine_labels(out, m, i);
        metrics_label_add(out, ",", "host", about->host);
        metrics_label_add(out, ",", "device", about->device);
        metrics_label_add(out, ",", "build", about->build);
        metrics_label_add(out, ",", "fallback", about->fell_back ? "true" : "false");
        text_string_add(out, "}");
        metrics_value_add(out, 1);
    }
}

#define CLUSTER_ROW(name, family, help)                                                            \
    METRICS_ROW(64, offsetof(struct message_stats, name), COUNTER, HIDDEN, 1, family, help)
static const struct metrics_row cluster_rows[] = {CLUSTER_COUNTERS(CLUSTER_ROW)};
#undef CLUSTER_ROW

static void cluster_render(struct text *out, const struct metrics *m)
{
    struct message_stats sum = m->removed_counters;
    for (uint32_t i = 0; i < m->fleet->count; i++) {
        struct message_stats stats = metrics_counters(m, i);
        message_stats_add(&sum, &stats);
    }
    for (size_t i = 0; i < sizeof(cluster_rows) / sizeof(cluster_rows[0]); i++) {
        const struct metrics_row *row = &cluster_rows[i];
        metrics_family(out, row->family, row->type, row->help);
        metrics_vllm_sample(out, m, row->family, metrics_row_value(row, &sum));
    }
}

#define MACHINE_ROW(bits, name, ...)                                                               \
    METRICS_ROW(bits, offsetof(struct message_stats, name), __VA_ARGS__)
#define COPY_ROW(bits, name, ...)                                                                  \
    METRICS_ROW(bits, offsetof(struct message_stats, device_copies.name), __VA_ARGS__)
static const struct metrics_row machine_rows[] = {MACHINE_COUNTERS(MACHINE_ROW)
                                                      COPY_COUNTERS(COPY_ROW)};
#undef MACHINE_ROW
#undef COPY_ROW

bool metrics_value_known(const struct metrics_machine *machine, const char *type)
{
    return strcmp(type, "gauge") == 0 ? machine->gauges_known : machine->counters_known;
}

static void machine_group_render(struct text *out, const struct metrics *m,
                                 enum metrics_group group)
{
    for (size_t r = 0; r < sizeof(machine_rows) / sizeof(machine_rows[0]); r++) {
        const struct metrics_row *row = &machine_rows[r];
        if (row->group != group)
            continue;
        metrics_family(out, row->family, row->type, row->help);
        for (uint32_t i = 0; i < m->fleet->count; i++) {
            if (!metrics_value_known(&m->machines[i], row->type))
                continue;
            struct message_stats stats = metrics_counters(m, i);
            const double value = metrics_row_value(row, &stats);
            if (value != 0 || group != METRICS_GROUP_METERS)
                metrics_machine_sample(out, m, row->family, i, value);
        }
    }
}

/* A machine is the bottleneck of its pool when it computes all the time. */
static void busy_render(struct text *out, const struct metrics *m)
{
    metrics_family(
        out, "cleave_machine_busy_seconds_total", "counter",
        "Time in which a machine computed batches. phase: prompt = with prompts, token = "
        "only decodes.");
    for (uint32_t i = 0; i < m->fleet->count; i++) {
        if (!m->machines[i].counters_known)
            continue;
        struct message_stats stats = metrics_counters(m, i);
        for (int token = 0; token < 2; token++) {
            text_string_add(out, "cleave_machine_busy_seconds_total{");
            metrics_machine_labels(out, m, i);
            metrics_label_add(out, ",", "phase", token ? "token" : "prompt");
            text_string_add(out, "}");
            metrics_value_add(out, (double)(token ? stats.token_batch_us : stats.prompt_batch_us) *
                                       1e-6);
        }
    }
}

/* Machines that come and go, and those that are not used. */
static void lives_render(struct text *out, const struct metrics *m)
{
    metrics_family(out, "cleave_machine_losses_total", "counter",
                   "Times that the gateway lost its connection to the machine.");
    for (uint32_t i = 0; i < m->fleet->count; i++)
        if (fleet_machine_present(&m->fleet->machines[i]))
            metrics_machine_sample(out, m, "cleave_machine_losses_total", i,
                                   (double)m->machines[i].losses);
    metrics_family(out, "cleave_machine_starts_total", "counter",
                   "Processes that the gateway has started for a local machine.");
    for (uint32_t i = 0; i < m->fleet->count; i++)
        if (fleet_machine_present(&m->fleet->machines[i]) && m->fleet->machines[i].config.local)
            metrics_machine_sample(out, m, "cleave_machine_starts_total", i,
                                   (double)m->fleet->machines[i].process.starts);
    metrics_family(out, "cleave_machine_mismatch", "gauge",
                   "1 while a machine is not used because model, KV settings or protocol differ.");
    for (uint32_t i = 0; i < m->fleet->count; i++)
        if (fleet_machine_present(&m->fleet->machines[i]))
            metrics_machine_sample(out, m, "cleave_machine_mismatch", i,
                                   m->fleet->machines[i].connection.mismatch);
}

static void machines_render(struct text *out, const struct metrics *m)
{
    metrics_family(out, "cleave_machine_up", "gauge",
                   "1 while the gateway is connected to the machine.");
    for (uint32_t i = 0; i < m->fleet->count; i++)
        if (fleet_machine_present(&m->fleet->machines[i]))
            metrics_machine_sample(out, m, "cleave_machine_up", i, m->machines[i].up);
    metrics_family(out, "cleave_machine_in_pool", "gauge",
                   "Current pool of the machine: 0 = prompt, 1 = token, 2 = mixed.");
    for (uint32_t i = 0; i < m->fleet->count; i++)
        if (m->machines[i].pool_known)
            metrics_machine_sample(out, m, "cleave_machine_in_pool", i, m->machines[i].pool);
    metrics_family(out, "cleave_pool_moves_total", "counter",
                   "Moves of a machine from pool to pool.");
    for (uint32_t i = 0; i < m->fleet->count; i++)
        if (fleet_machine_present(&m->fleet->machines[i]))
            metrics_machine_sample(out, m, "cleave_pool_moves_total", i,
                                   (double)m->machines[i].moves);
    lives_render(out, m);
    for (int group = METRICS_GROUP_LOAD; group <= METRICS_GROUP_METERS; group++)
        machine_group_render(out, m, (enum metrics_group)group);
    busy_render(out, m);
}

static void transfers_render(struct text *out, const struct metrics *m)
{
    metrics_family(out, "cleave_transfers_total", "counter",
                   "KV transfers that arrived. path: layerwise or one_piece.");
    uint64_t transfer_us = 0;
    uint64_t exposed_us = 0;
    for (uint32_t i = 0; i < m->fleet->count; i++) {
        if (!m->machines[i].counters_known)
            continue;
        struct message_stats stats = metrics_counters(m, i);
        transfer_us += stats.transfer_us;
        exposed_us += stats.transfer_exposed_us;
        for (int layerwise = 1; layerwise >= 0; layerwise--) {
            text_string_add(out, "cleave_transfers_total{");
            metrics_machine_labels(out, m, i);
            metrics_label_add(out, ",", "path", layerwise ? "layerwise" : "one_piece");
            text_string_add(out, "}");
            metrics_value_add(
                out, (double)(layerwise ? stats.transfers_layerwise : stats.transfers_one_piece));
        }
    }
    metrics_family(
        out, "cleave_transfer_hidden_ratio", "gauge",
        "Part of cleave_transfer_seconds_total that compute hid (NaN before the first transfer).");
    text_string_add(out, "cleave_transfer_hidden_ratio");
    metrics_value_add(out, transfer_us > 0 ? 1 - (double)exposed_us / (double)transfer_us : NAN);
}

/* Shows the first position, and the others up to the last one that was ever right. */
static void drafts_render(struct text *out, const struct metrics *m)
{
    const char *family = "cleave_spec_decode_num_accepted_tokens_per_pos_total";
    metrics_family(out, family, "counter",
                   "Drafted tokens that the model accepted, by position in the draft (0 = first).");
    for (uint32_t i = 0; i < m->fleet->count; i++) {
        const struct message_stats stats = metrics_counters(m, i);
        uint64_t accepted[LIMIT_DRAFT_TOKENS];
        uint32_t count = 1;
        for (uint32_t at = 0; at < LIMIT_DRAFT_TOKENS; at++) {
            memcpy(&accepted[at], (const char *)&stats + message_stats_draft_accepted(at),
                   sizeof(accepted[at]));
            count = accepted[at] > 0 ? at + 1 : count;
        }
        for (uint32_t at = 0; at < count && m->machines[i].counters_known; at++) {
            text_format_add(out, "%s{", family);
            metrics_machine_labels(out, m, i);
            text_format_add(out, ",position=\"%u\"}", at);
            metrics_value_add(out, (double)accepted[at]);
        }
    }
}

/* A counter or gauge of tiers. */
struct tier_row {
    size_t at; /* Offset in struct message_tier. */
    const char *type;
    double factor;
    const char *family;
    const char *help;
};

/* Requires that the machine has the tier. */
static double tier_value(const struct message_tier *tier, const struct tier_row *row)
{
    uint64_t value;
    memcpy(&value, (const char *)tier + row->at, sizeof(value));
    if (row->at == offsetof(struct message_tier, state))
        return value == MESSAGE_TIER_WORKS;
    return (double)value * row->factor;
}

static void tier_samples(struct text *out, const struct metrics *m, uint32_t machine,
                         const struct tier_row *row)
{
    const struct message_stats stats = metrics_counters(m, machine);
    for (int kind = 0; kind < TIER_KIND_COUNT; kind++) {
        const struct message_tier tier = message_stats_tier(&stats, (enum tier_kind)kind);
        if (tier.state == MESSAGE_TIER_NONE)
            continue;
        text_format_add(out, "%s{", row->family);
        metrics_machine_labels(out, m, machine);
        metrics_label_add(out, ",", "tier", tier_kind_name((enum tier_kind)kind));
        text_string_add(out, "}");
        metrics_value_add(out, tier_value(&tier, row));
    }
}

static void tiers_render(struct text *out, const struct metrics *m)
{
#define TYPE_COUNTER "counter"
#define TYPE_GAUGE   "gauge"
#define TIER_ROW(name, kind, factor, family, help)                                                 \
    {offsetof(struct message_tier, name), TYPE_##kind, factor, family, help},
    static const struct tier_row rows[] = {
        TIER_ROW(state, GAUGE, 1, "cleave_kv_tier_up", "1 while a machine can use the tier.")
            TIER_COUNTERS(TIER_ROW)};
#undef TIER_ROW
#undef TYPE_COUNTER
#undef TYPE_GAUGE
    for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++) {
        metrics_family(out, rows[r].family, rows[r].type, rows[r].help);
        for (uint32_t i = 0; i < m->fleet->count; i++)
            if (metrics_value_known(&m->machines[i], rows[r].type))
                tier_samples(out, m, i, &rows[r]);
    }
}

/* A page with each pair of machines of a large cluster would be megabytes: large clusters show only
 * the links that are down. */
static void links_render(struct text *out, const struct metrics *m)
{
    uint32_t count = m->fleet->count;
    metrics_family(out, "cleave_link_up", "gauge",
                   "1 while a prompt machine can write into a token machine's memory. path: how. "
                   "With more than 64 machines, only links that are down.");
    for (uint32_t from = 0; from < count; from++) {
        for (uint32_t to = 0; to < count; to++) {
            uint8_t link = m->links[from][to];
            bool up = link >= METRICS_LINK_UP;
            if (link == METRICS_LINK_UNKNOWN || (up && count > LINKS_SHOWN_MACHINES))
                continue;
            text_string_add(out, "cleave_link_up{");
            metrics_label_add(out, "", "prompt", m->fleet->machines[from].config.name);
            metrics_label_add(out, ",", "token", m->fleet->machines[to].config.name);
            metrics_label_add(out, ",", "path", up ? m->paths[link - METRICS_LINK_UP] : "");
            text_string_add(out, "}");
            metrics_value_add(out, up);
        }
    }
    metrics_family(out, "cleave_links_up", "gauge",
                   "Token machines into whose memory a machine can write.");
    for (uint32_t from = 0; from < count; from++) {
        uint32_t up = 0;
        for (uint32_t to = 0; to < count; to++)
            up += m->links[from][to] >= METRICS_LINK_UP;
        if (fleet_machine_present(&m->fleet->machines[from]))
            metrics_machine_sample(out, m, "cleave_links_up", from, up);
    }
}

static void link_speeds_render(struct text *out, const struct metrics *m)
{
    uint32_t count = m->fleet->count;
    metrics_family(out, "cleave_link_bytes_per_second", "gauge",
                   "Measured bandwidth of a prompt machine's writes into a token machine's memory. "
                   "Only with up to 64 machines.");
    for (uint32_t from = 0; from < count && count <= LINKS_SHOWN_MACHINES; from++) {
        for (uint32_t to = 0; to < count; to++) {
            if (m->link_bytes_per_s[from][to] <= 0)
                continue;
            text_string_add(out, "cleave_link_bytes_per_second{");
            metrics_label_add(out, "", "prompt", m->fleet->machines[from].config.name);
            metrics_label_add(out, ",", "token", m->fleet->machines[to].config.name);
            text_string_add(out, "}");
            metrics_value_add(out, m->link_bytes_per_s[from][to]);
        }
    }
}

static void build_render(struct text *out)
{
    metrics_family(out, "cleave_build_info", "gauge",
                   "Always 1. The labels name the gateway's build.");
    text_string_add(out, "cleave_build_info{");
    metrics_label_add(out, "", "version", build_info_release());
    metrics_label_add(out, ",", "commit", build_info_commit());
    metrics_label_add(out, ",", "build", build_info_options());
    text_string_add(out, "}");
    metrics_value_add(out, 1);
}

char *metrics_render(const struct metrics *m, size_t *bytes_out)
{
    struct text out = {0};
    build_render(&out);
    metrics_process_render(&out, m);
    group_render(&out, m, METRICS_GROUP_RELOAD);
    times_render(&out, m);
    metrics_slo_render(&out, m);
    requests_render(&out, m);
    keys_render(&out, m);
    keys_expiry_render(&out, m);
    if (m->has_events)
        group_render(&out, m, METRICS_GROUP_EVENTS);
    if (m->values[METRICS_CERTIFICATE_EXPIRES] != 0)
        group_render(&out, m, METRICS_GROUP_CERTIFICATE);
    if (m->has_etcd)
        group_render(&out, m, METRICS_GROUP_ETCD);
    metrics_versions_render(&out, m);
    metrics_kv_render(&out, m);
    cluster_render(&out, m);
    about_render(&out, m);
    machines_render(&out, m);
    metrics_stages_render(&out, m);
    metrics_others_render(&out, m);
    transfers_render(&out, m);
    drafts_render(&out, m);
    tiers_render(&out, m);
    links_render(&out, m);
    link_speeds_render(&out, m);
    text_add(&out, "", 1); /* the terminating NUL */
    if (out.broken) {
        text_done(&out);
        return NULL;
    }
    *bytes_out = out.bytes - 1;
    return out.data; /* the caller's free() replaces text_done */
}
