/* metrics_render: the page of /metrics: metric families in a fixed order, each with its HELP and
 * TYPE. vLLM's names are used where the meaning is the same, so that its dashboards and benchmark
 * tools work; other names begin with cleave_. */
#include "server/api_keys.h"
#include "server/metrics_internal.h"
#include "server/text.h"

#include <assert.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#define LINKS_SHOWN_MACHINES 64

/* ---- the format ---- */

void metrics_family(struct text *out, const char *name, const char *type, const char *help)
{
    text_addf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* The value of a label: backslash, quotation mark and line feed are escaped. */
static void label_value_add(struct text *out, const char *value)
{
    for (; *value != 0; value++) {
        if (*value == '\n')
            text_adds(out, "\\n");
        else if (*value == '\\' || *value == '"')
            text_addf(out, "\\%c", *value);
        else
            text_add(out, value, 1);
    }
}

void metrics_label_add(struct text *out, const char *before, const char *name, const char *value)
{
    text_addf(out, "%s%s=\"", before, name);
    label_value_add(out, value);
    text_adds(out, "\"");
}

/* A sample's value and the end of its line. */
void metrics_value_add(struct text *out, double value)
{
    if (isnan(value))
        text_adds(out, " NaN\n");
    else if (value == floor(value) && fabs(value) < 0x1p53)
        text_addf(out, " %.0f\n", value);
    else
        text_addf(out, " %.15g\n", value);
}

static void model_labels_add(struct text *out, const struct metrics *m)
{
    metrics_label_add(out, "", "model_name", m->model_name);
    metrics_label_add(out, ",", "engine", "0");
}

static void vllm_sample(struct text *out, const struct metrics *m, const char *name, double value)
{
    text_addf(out, "%s{", name);
    model_labels_add(out, m);
    text_adds(out, "}");
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
    text_addf(out, "%s{", name);
    metrics_machine_labels(out, m, machine);
    text_adds(out, "}");
    metrics_value_add(out, value);
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
     "From arrival until the prompt's batch began, less the wait for KV memory."},
    {METRICS_RESERVE, false, "cleave_request_reserve_seconds",
     "Wait for KV memory of the token machine."},
    {METRICS_PROMPT, false, "cleave_request_prompt_seconds",
     "From the begin of the prompt's first batch until its first token was sampled."},
    {METRICS_EXPOSED, false, "cleave_request_exposed_transfer_seconds",
     "From the first token until all KV was at the token machine: what compute did not hide."},
    {METRICS_TRANSFER, false, "cleave_request_transfer_seconds",
     "From the first KV write until all KV was at the token machine."},
    {METRICS_FIRST_DECODE, false, "cleave_request_first_decode_seconds",
     "From the KV's arrival until the second token was sampled."},
    {METRICS_TTFT, true, "vllm:time_to_first_token_seconds", "From arrival until the first token."},
    {METRICS_INTER_TOKEN, true, "vllm:inter_token_latency_seconds",
     "Between two consecutive tokens of a request."},
    /* vLLM's name of this figure changed with version 0.10; dashboards use either. */
    {METRICS_INTER_TOKEN, true, "vllm:time_per_output_token_seconds",
     "Between two consecutive tokens of a request (vllm:inter_token_latency_seconds by its older "
     "name)."},
    {METRICS_PER_TOKEN, true, "vllm:request_time_per_output_token_seconds",
     "Time per token after the first one, over each request."},
    {METRICS_E2E, true, "vllm:e2e_request_latency_seconds", "From arrival until the end."},
    {METRICS_WAIT, true, "vllm:request_queue_time_seconds",
     "From arrival until the prompt's batch began."},
    {METRICS_PROMPT, true, "vllm:request_prefill_time_seconds",
     "From the begin of the prompt's first batch until its first token was sampled."},
    {METRICS_DECODE, true, "vllm:request_decode_time_seconds",
     "From the first token until the last one."},
};

static void time_sample(struct text *out, const struct metrics *m, const struct time_family *f,
                        const char *suffix, const char *bound, double value)
{
    text_addf(out, "%s%s", f->name, suffix);
    if (f->vllm || bound != NULL)
        text_adds(out, "{");
    if (f->vllm)
        model_labels_add(out, m);
    if (bound != NULL)
        metrics_label_add(out, f->vllm ? "," : "", "le", bound);
    if (f->vllm || bound != NULL)
        text_adds(out, "}");
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
            snprintf(bound, sizeof(bound), "%.4g", h->bounds[bucket]);
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
        text_addf(out, "%s_bucket{", name);
        model_labels_add(out, m);
        metrics_label_add(out, ",", "le", last ? "+Inf" : bound);
        text_adds(out, "}");
        metrics_value_add(out, (double)(last ? h->total : below));
    }
    char sum[96], count[96];
    snprintf(sum, sizeof(sum), "%s_sum", name);
    snprintf(count, sizeof(count), "%s_count", name);
    vllm_sample(out, m, sum, h->sum);
    vllm_sample(out, m, count, (double)h->total);
}

/* ---- requests ---- */

static void requests_render(struct text *out, const struct metrics *m)
{
    metrics_family(out, "vllm:num_requests_running", "gauge", "Requests that a machine has begun.");
    vllm_sample(out, m, "vllm:num_requests_running", m->open - m->waiting);
    metrics_family(out, "vllm:num_requests_waiting", "gauge",
                   "Requests that no machine has begun.");
    vllm_sample(out, m, "vllm:num_requests_waiting", m->waiting);
    metrics_family(out, "vllm:prompt_tokens_total", "counter",
                   "Tokens of prompts, computed or cached.");
    vllm_sample(out, m, "vllm:prompt_tokens_total", (double)m->prompt_tokens);
    metrics_family(out, "vllm:generation_tokens_total", "counter", "Tokens that were generated.");
    vllm_sample(out, m, "vllm:generation_tokens_total", (double)m->generated_tokens);

    sizes_render(out, m, "vllm:request_prompt_tokens", "Prompt tokens of requests that ended well.",
                 &m->prompt_sizes);
    sizes_render(out, m, "vllm:request_generation_tokens",
                 "Answer tokens of requests that ended well.", &m->answer_sizes);

    static const char *const reasons[METRICS_REASON_COUNT] = {"stop", "length", "abort", "error"};
    metrics_family(out, "vllm:request_success_total", "counter", "Requests that ended, by reason.");
    for (int reason = 0; reason < METRICS_REASON_COUNT; reason++) {
        text_adds(out, "vllm:request_success_total{");
        model_labels_add(out, m);
        metrics_label_add(out, ",", "finished_reason", reasons[reason]);
        text_adds(out, "}");
        metrics_value_add(out, (double)m->ended[reason]);
    }
    metrics_family(out, "cleave_requests_unrouted", "gauge",
                   "Requests in the cluster scheduler's queue, without a machine yet.");
    text_addf(out, "cleave_requests_unrouted %u\n", m->unrouted);
    metrics_family(out, "cleave_requests_refused_total", "counter",
                   "Requests that were refused: a queue was full, or they can never fit.");
    text_addf(out, "cleave_requests_refused_total %llu\n", (unsigned long long)m->refused);
    metrics_family(out, "cleave_requests_resumed_total", "counter",
                   "Times that a request lost its machines and went on elsewhere.");
    text_addf(out, "cleave_requests_resumed_total %llu\n", (unsigned long long)m->resumed);
    metrics_family(out, "cleave_requests_handed_over_total", "counter",
                   "Times that an answer left a machine that drained, with its KV.");
    text_addf(out, "cleave_requests_handed_over_total %llu\n", (unsigned long long)m->handed_over);
    metrics_family(out, "cleave_http_requests_total", "counter", "HTTP responses, by status code.");
    for (int code = 0; code < METRICS_HTTP_CODES; code++)
        if (m->http_codes[code] > 0)
            text_addf(out, "cleave_http_requests_total{code=\"%d\"} %llu\n", code,
                      (unsigned long long)m->http_codes[code]);
}

/* ---- API keys ---- */

struct key_family {
    const char *name;
    const char *type;
    const char *help;
    size_t offset; /* in struct api_key_counts */
    bool narrow;   /* uint32_t; otherwise uint64_t */
};

#define KEY_FIELD(name) offsetof(struct api_key_counts, name)

static const struct key_family key_families[] = {
    {"cleave_key_requests_total", "counter", "Answers that an API key began.", KEY_FIELD(requests),
     false},
    {"cleave_key_refused_total", "counter",
     "Requests refused because their API key was at a limit.", KEY_FIELD(refused), false},
    {"cleave_key_prompt_tokens_total", "counter", "Prompt tokens of an API key.",
     KEY_FIELD(prompt_tokens), false},
    {"cleave_key_generated_tokens_total", "counter", "Tokens generated for an API key.",
     KEY_FIELD(generated_tokens), false},
    {"cleave_key_requests_in_flight", "gauge", "Answers of an API key that are not done yet.",
     KEY_FIELD(in_flight), true},
};

static void keys_render(struct text *out, const struct metrics *m)
{
    size_t families = m->keys != NULL ? sizeof(key_families) / sizeof(key_families[0]) : 0;
    for (size_t f = 0; f < families; f++) {
        const struct key_family *fam = &key_families[f];
        bool begun = false;
        for (uint32_t key = 0; key < API_KEY_PLACES; key++) {
            const struct api_key_rules *rules = api_keys_rules(m->keys, key);
            if (rules == NULL)
                continue;
            if (!begun)
                metrics_family(out, fam->name, fam->type, fam->help);
            begun = true;
            const char *at = (const char *)api_keys_counts(m->keys, key) + fam->offset;
            uint32_t narrow = 0;
            uint64_t wide = 0;
            memcpy(fam->narrow ? (void *)&narrow : (void *)&wide, at,
                   fam->narrow ? sizeof(narrow) : sizeof(wide));
            text_addf(out, "%s{", fam->name);
            metrics_label_add(out, "", "key", rules->name);
            text_adds(out, "}");
            metrics_value_add(out, (double)(fam->narrow ? narrow : wide));
        }
    }
}

/* ---- the gateway itself ---- */

static void gateway_render(struct text *out, const struct metrics *m)
{
    if (m->has_events) {
        metrics_family(out, "cleave_events_written_total", "counter", "Lines of log/events_file.");
        text_addf(out, "cleave_events_written_total %llu\n", (unsigned long long)m->events_written);
        metrics_family(out, "cleave_events_dropped_total", "counter",
                       "Lines that log/events_file did not take: its disk is full, or too slow.");
        text_addf(out, "cleave_events_dropped_total %llu\n", (unsigned long long)m->events_dropped);
    }
    if (m->certificate_expires != 0) {
        metrics_family(out, "cleave_certificate_expires_seconds", "gauge",
                       "When the TLS certificate ends to be valid, since 1970.");
        text_addf(out, "cleave_certificate_expires_seconds %lld\n",
                  (long long)m->certificate_expires);
    }
}

/* ---- machines ---- */

static const char *const kv_states[] = {"free", "reserved", "filling",
                                        "live", "cached",   "quarantined"};
static_assert(sizeof(kv_states) / sizeof(kv_states[0]) ==
                  sizeof(((struct message_stats *)0)->kv_blocks) / sizeof(uint32_t),
              "a name per state");

static double kv_usage(const struct metrics *m)
{
    uint64_t total = 0;
    uint64_t used = 0;
    for (uint32_t i = 0; i < m->fleet->count; i++) {
        const struct metrics_machine *machine = &m->machines[i];
        if (!machine->gauges_known || m->fleet->machines[i].config.pool == POOL_PROMPT)
            continue;
        for (int state = 0; state < 6; state++)
            total += machine->last.kv_blocks[state];
        used += machine->last.kv_blocks[1] + machine->last.kv_blocks[2] +
                machine->last.kv_blocks[3] + machine->last.kv_blocks[5];
    }
    return total > 0 ? (double)used / (double)total : 0;
}

static void prefix_render(struct text *out, const struct metrics *m)
{
    uint64_t queries = m->forgotten.prefix_query_tokens;
    uint64_t hits = m->forgotten.prefix_hit_tokens;
    for (uint32_t i = 0; i < m->fleet->count; i++) {
        struct message_stats stats = metrics_counters(m, i);
        queries += stats.prefix_query_tokens;
        hits += stats.prefix_hit_tokens;
    }
    metrics_family(out, "vllm:prefix_cache_queries_total", "counter",
                   "Tokens of prompts that were looked up in prefix caches.");
    vllm_sample(out, m, "vllm:prefix_cache_queries_total", (double)queries);
    metrics_family(out, "vllm:prefix_cache_hits_total", "counter",
                   "Of these, tokens that were found.");
    vllm_sample(out, m, "vllm:prefix_cache_hits_total", (double)hits);
}

static void preemptions_render(struct text *out, const struct metrics *m)
{
    uint64_t all = m->forgotten.preemptions;
    for (uint32_t i = 0; i < m->fleet->count; i++)
        all += metrics_counters(m, i).preemptions;
    metrics_family(out, "vllm:num_preemptions_total", "counter",
                   "Answers that gave up their KV memory for others and were computed again.");
    vllm_sample(out, m, "vllm:num_preemptions_total", (double)all);
}

static void kv_render(struct text *out, const struct metrics *m)
{
    metrics_family(out, "vllm:kv_cache_usage_perc", "gauge",
                   "Part of the token machines' KV blocks in use (1 is all).");
    vllm_sample(out, m, "vllm:kv_cache_usage_perc", kv_usage(m));
    metrics_family(out, "vllm:gpu_cache_usage_perc", "gauge",
                   "The same (vllm:kv_cache_usage_perc by its older name).");
    vllm_sample(out, m, "vllm:gpu_cache_usage_perc", kv_usage(m));
    metrics_family(out, "cleave_kv_blocks", "gauge", "KV blocks of a machine, by state.");
    for (uint32_t i = 0; i < m->fleet->count; i++) {
        for (int state = 0; m->machines[i].gauges_known && state < 6; state++) {
            text_adds(out, "cleave_kv_blocks{");
            metrics_machine_labels(out, m, i);
            metrics_label_add(out, ",", "state", kv_states[state]);
            text_adds(out, "}");
            metrics_value_add(out, m->machines[i].last.kv_blocks[state]);
        }
    }
}

enum field_width { WIDTH_32, WIDTH_64 };

struct machine_family {
    const char *name;
    const char *type;
    const char *help;
    size_t offset; /* in struct message_stats */
    enum field_width width;
    double scale;
};

#define FIELD(name) offsetof(struct message_stats, name)

static const struct machine_family machine_families[] = {
    {"cleave_prompts_waiting", "gauge", "Prompts that wait for a batch.", FIELD(prompts_waiting),
     WIDTH_32, 1},
    {"cleave_prompts_running", "gauge", "Prompts of which a part is computed.",
     FIELD(prompts_running), WIDTH_32, 1},
    {"cleave_prompt_tokens_pending", "gauge", "Prompt tokens that are not computed yet.",
     FIELD(prompt_tokens_pending), WIDTH_64, 1},
    {"cleave_reservations_waiting", "gauge", "Requests that wait for KV memory.",
     FIELD(reservations_waiting), WIDTH_32, 1},
    {"cleave_transfers_awaited", "gauge", "Requests whose KV is not there yet.",
     FIELD(transfers_awaited), WIDTH_32, 1},
    {"cleave_decodes_running", "gauge", "Requests in the token batch.", FIELD(decodes_running),
     WIDTH_32, 1},
    {"cleave_decode_tokens_pending", "gauge", "Tokens that running requests may still generate.",
     FIELD(decode_tokens_pending), WIDTH_64, 1},
    {"cleave_machine_resident_bytes", "gauge", "Resident memory of a machine's process.",
     FIELD(resident_bytes), WIDTH_64, 1},
    {"cleave_machine_prompt_tokens_total", "counter", "Prompt tokens that a machine computed.",
     FIELD(prompt_tokens_done), WIDTH_64, 1},
    {"cleave_prefix_cache_queries_tokens_total", "counter",
     "Tokens of prompts that were looked up in a machine's prefix cache.",
     FIELD(prefix_query_tokens), WIDTH_64, 1},
    {"cleave_prefix_cache_hits_tokens_total", "counter",
     "Of these, tokens whose KV was found there.", FIELD(prefix_hit_tokens), WIDTH_64, 1},
    {"cleave_machine_generated_tokens_total", "counter", "Tokens that a machine generated.",
     FIELD(generated_tokens_done), WIDTH_64, 1},
    {"cleave_preemptions_total", "counter",
     "Answers that gave up their KV memory for others and were computed again.", FIELD(preemptions),
     WIDTH_64, 1},
    {"cleave_prompt_batches_total", "counter", "Batches with prompt tokens.", FIELD(prompt_batches),
     WIDTH_64, 1},
    {"cleave_token_batches_total", "counter", "Batches with decode steps.", FIELD(token_batches),
     WIDTH_64, 1},
    {"cleave_transfer_bytes_total", "counter", "KV bytes that were written to token machines.",
     FIELD(transfer_bytes), WIDTH_64, 1},
    {"cleave_transfer_held_bytes_total", "counter",
     "KV bytes that were not written: the token machine had them.", FIELD(transfer_held_bytes),
     WIDTH_64, 1},
    {"cleave_transfer_layers_total", "counter", "Layers of KV that were written to token machines.",
     FIELD(transfer_layers), WIDTH_64, 1},
    {"cleave_transfers_failed_total", "counter", "KV transfers that failed.",
     FIELD(transfers_failed), WIDTH_64, 1},
    {"cleave_transfer_seconds_total", "counter",
     "Time of transfers, each from its first write until all was there.", FIELD(transfer_us),
     WIDTH_64, 1e-6},
    {"cleave_transfer_exposed_seconds_total", "counter",
     "The part of cleave_transfer_seconds_total that no compute hid.", FIELD(transfer_exposed_us),
     WIDTH_64, 1e-6},
    {"cleave_kv_way", "gauge",
     "Where a machine's KV is and how it travels: 0 the host's memory, 1 a GPU's, straight from "
     "and "
     "into it where its peers can, 2 a GPU's, staged through the host's, 3 likewise, but straight "
     "into the GPUs of other machines of its computer (CUDA IPC).",
     FIELD(staged.way), WIDTH_32, 1},
    {"cleave_kv_staged_out_bytes_total", "counter",
     "KV bytes that were copied out of a GPU's memory to be sent.", FIELD(staged.out_bytes),
     WIDTH_64, 1},
    {"cleave_kv_staged_out_seconds_total", "counter", "Time in which such copies were under way.",
     FIELD(staged.out_us), WIDTH_64, 1e-6},
    {"cleave_kv_staged_in_bytes_total", "counter",
     "KV bytes that came and were copied into a GPU's memory.", FIELD(staged.in_bytes), WIDTH_64,
     1},
    {"cleave_kv_staged_in_seconds_total", "counter", "Time in which such copies were under way.",
     FIELD(staged.in_us), WIDTH_64, 1e-6},
    {"cleave_kv_ipc_bytes_total", "counter",
     "KV and activations that were copied from a GPU's memory into another machine's or stage's.",
     FIELD(staged.peer_bytes), WIDTH_64, 1},
    {"cleave_kv_ipc_seconds_total", "counter", "Time in which such copies were under way.",
     FIELD(staged.peer_us), WIDTH_64, 1e-6},
};

static double field_of(const struct message_stats *stats, const struct machine_family *f)
{
    const char *at = (const char *)stats + f->offset;
    uint32_t narrow = 0;
    uint64_t wide = 0;
    if (f->width == WIDTH_32)
        memcpy(&narrow, at, sizeof(narrow));
    else
        memcpy(&wide, at, sizeof(wide));
    return (f->width == WIDTH_32 ? (double)narrow : (double)wide) * f->scale;
}

static void machines_render(struct text *out, const struct metrics *m)
{
    metrics_family(out, "cleave_machine_up", "gauge", "1 while the gateway has its connection.");
    for (uint32_t i = 0; i < m->fleet->count; i++)
        if (fleet_machine_present(&m->fleet->machines[i]))
            metrics_machine_sample(out, m, "cleave_machine_up", i, m->machines[i].up);
    metrics_family(
        out, "cleave_machine_in_pool", "gauge",
        "Where the machine is now: 0 the prompt pool, 1 the token pool, 2 the mixed pool.");
    for (uint32_t i = 0; i < m->fleet->count; i++)
        if (m->machines[i].pool_known)
            metrics_machine_sample(out, m, "cleave_machine_in_pool", i, m->machines[i].pool);
    metrics_family(out, "cleave_pool_moves_total", "counter",
                   "Moves of a machine from pool to pool.");
    for (uint32_t i = 0; i < m->fleet->count; i++)
        if (fleet_machine_present(&m->fleet->machines[i]))
            metrics_machine_sample(out, m, "cleave_pool_moves_total", i,
                                   (double)m->machines[i].moves);
    for (size_t f = 0; f < sizeof(machine_families) / sizeof(machine_families[0]); f++) {
        const struct machine_family *fam = &machine_families[f];
        bool gauge = strcmp(fam->type, "gauge") == 0;
        metrics_family(out, fam->name, fam->type, fam->help);
        for (uint32_t i = 0; i < m->fleet->count; i++) {
            if (gauge ? !m->machines[i].gauges_known : !m->machines[i].counters_known)
                continue;
            struct message_stats stats = metrics_counters(m, i);
            metrics_machine_sample(out, m, fam->name, i, field_of(&stats, fam));
        }
    }
}

static void transfers_render(struct text *out, const struct metrics *m)
{
    metrics_family(out, "cleave_transfers_total", "counter",
                   "KV transfers that arrived, by how: layer by layer, or in one piece.");
    uint64_t transfer_us = 0;
    uint64_t exposed_us = 0;
    for (uint32_t i = 0; i < m->fleet->count; i++) {
        if (!m->machines[i].counters_known)
            continue;
        struct message_stats stats = metrics_counters(m, i);
        transfer_us += stats.transfer_us;
        exposed_us += stats.transfer_exposed_us;
        for (int layerwise = 1; layerwise >= 0; layerwise--) {
            text_adds(out, "cleave_transfers_total{");
            metrics_machine_labels(out, m, i);
            metrics_label_add(out, ",", "path", layerwise ? "layerwise" : "one_piece");
            text_adds(out, "}");
            metrics_value_add(
                out, (double)(layerwise ? stats.transfers_layerwise : stats.transfers_one_piece));
        }
    }
    metrics_family(
        out, "cleave_transfer_hidden_ratio", "gauge",
        "Part of the time from a request's first KV write to its last that compute hid (NaN "
        "before the first transfer).");
    text_adds(out, "cleave_transfer_hidden_ratio");
    metrics_value_add(out, transfer_us > 0 ? 1 - (double)exposed_us / (double)transfer_us : NAN);
}

/* A page with each pair of machines of a large cluster would be megabytes: large clusters show only
 * the links that are down. */
static void links_render(struct text *out, const struct metrics *m)
{
    uint32_t count = m->fleet->count;
    metrics_family(out, "cleave_link_up", "gauge",
                   "1 while a prompt machine can write into a token machine's memory; path says "
                   "how. With more "
                   "than 64 machines, only links that are down.");
    for (uint32_t from = 0; from < count; from++) {
        for (uint32_t to = 0; to < count; to++) {
            uint8_t link = m->links[from][to];
            bool up = link >= METRICS_LINK_UP;
            if (link == METRICS_LINK_UNKNOWN || (up && count > LINKS_SHOWN_MACHINES))
                continue;
            text_adds(out, "cleave_link_up{");
            metrics_label_add(out, "", "prompt", m->fleet->machines[from].config.name);
            metrics_label_add(out, ",", "token", m->fleet->machines[to].config.name);
            metrics_label_add(out, ",", "path", up ? m->paths[link - METRICS_LINK_UP] : "");
            text_adds(out, "}");
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

char *metrics_render(const struct metrics *m, size_t *bytes_out)
{
    struct text out = {0};
    times_render(&out, m);
    requests_render(&out, m);
    keys_render(&out, m);
    gateway_render(&out, m);
    metrics_versions_render(&out, m);
    kv_render(&out, m);
    prefix_render(&out, m);
    preemptions_render(&out, m);
    machines_render(&out, m);
    metrics_stages_render(&out, m);
    metrics_others_render(&out, m);
    transfers_render(&out, m);
    links_render(&out, m);
    text_add(&out, "", 1); /* the terminating NUL */
    if (out.broken) {
        text_done(&out);
        return NULL;
    }
    *bytes_out = out.bytes - 1;
    return out.data; /* the caller's free() replaces text_done */
}
