/* Goal: the page follows Prometheus' text format 0.0.4, and its figures are those that were set.
 * Method: a small strict parser: each line is HELP, then TYPE, then samples of that family only;
 * each family occurs once; names, labels, escapes and values follow the grammar; histograms are
 * cumulative, end with +Inf, and agree with their _count. Label values try to break the format.
 * `test_metrics --reference` prints docs/metrics.md, which must match the page. */
#include "server/api/keys.h"
#include "server/metrics/metrics.h"
#include "tests/check.h"
#include "tests/page.h"
#include "transport/message_tier.h"
#include "transport/transport.h"

#include <ctype.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define FAMILIES_MAX 160
#define SAMPLES_MAX  4096

struct sample {
    char name[128];
    char labels[512]; /* as they stand, without le */
    char le[32];
    double value;
};

struct page {
    char families[FAMILIES_MAX][128];
    char types[FAMILIES_MAX][16];
    int family_count;
    struct sample samples[SAMPLES_MAX];
    int sample_count;
};

static const char *name_end(const char *at, bool label)
{
    CHECKF(isalpha((unsigned char)*at) || *at == '_' || (!label && *at == ':'), "name: %.20s", at);
    while (isalnum((unsigned char)*at) || *at == '_' || (!label && *at == ':'))
        at++;
    return at;
}

/* "name":"value" pairs up to the brace; le goes to its own field. */
static const char *labels_parse(const char *at, struct sample *s)
{
    size_t used = 0;
    for (at++; *at != '}';) {
        const char *from = at;
        at = name_end(at, true);
        bool is_le = at - from == 2 && memcmp(from, "le", 2) == 0;
        CHECK(at[0] == '=' && at[1] == '"');
        const char *value = at += 2;
        for (; *at != '"'; at++) {
            CHECK(*at != 0 && *at != '\n');
            if (*at == '\\') {
                at++;
                CHECK(*at == '\\' || *at == '"' || *at == 'n');
            }
        }
        if (is_le) {
            CHECK((size_t)(at - value) < sizeof(s->le));
            memcpy(s->le, value, (size_t)(at - value));
        } else {
            size_t bytes = (size_t)(at + 1 - from);
            CHECK(used + bytes + 2 < sizeof(s->labels));
            memcpy(s->labels + used, from, bytes);
            used += bytes;
            s->labels[used++] = ',';
        }
        at++;
        CHECK(*at == ',' || *at == '}');
        if (*at == ',')
            at++;
    }
    return at + 1;
}

static bool belongs(const struct page *page, const char *name)
{
    const char *family = page->families[page->family_count - 1];
    size_t length = strlen(family);
    if (strncmp(name, family, length) != 0)
        return false;
    const char *rest = name + length;
    if (strcmp(page->types[page->family_count - 1], "histogram") == 0)
        return strcmp(rest, "_bucket") == 0 || strcmp(rest, "_sum") == 0 ||
               strcmp(rest, "_count") == 0;
    return *rest == 0;
}

static void sample_parse(struct page *page, const char *line)
{
    CHECK(page->sample_count < SAMPLES_MAX && page->family_count > 0);
    struct sample *s = &page->samples[page->sample_count++];
    memset(s, 0, sizeof(*s));
    const char *at = name_end(line, false);
    memcpy(s->name, line, (size_t)(at - line));
    CHECKF(belongs(page, s->name), "%s under %s", s->name, page->families[page->family_count - 1]);
    if (*at == '{')
        at = labels_parse(at, s);
    CHECKF(*at == ' ', "%s", line);
    char *end;
    s->value = strcmp(at + 1, "NaN") == 0 ? NAN : strtod(at + 1, &end);
    CHECKF(isnan(s->value) || (*end == 0 && end != at + 1), "%s", line);
    for (int i = 0; i < page->sample_count - 1; i++)
        CHECKF(strcmp(page->samples[i].name, s->name) != 0 ||
                   strcmp(page->samples[i].labels, s->labels) != 0 ||
                   strcmp(page->samples[i].le, s->le) != 0,
               "twice: %s", line);
}

static void page_parse(char *text, struct page *page)
{
    memset(page, 0, sizeof(*page));
    size_t bytes = strlen(text);
    CHECK(bytes > 0 && text[bytes - 1] == '\n');
    char help[128] = "";
    char *save;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        if (strncmp(line, "# HELP ", 7) == 0) {
            const char *end = name_end(line + 7, false);
            CHECK(*end == ' ' && end[1] != 0 && help[0] == 0);
            snprintf(help, sizeof(help), "%.*s", (int)(end - line - 7), line + 7);
        } else if (strncmp(line, "# TYPE ", 7) == 0) {
            CHECK(page->family_count < FAMILIES_MAX);
            int f = page->family_count++;
            CHECK(sscanf(line + 7, "%127s %15s", page->families[f], page->types[f]) == 2);
            CHECK(strcmp(page->families[f], help) == 0);
            help[0] = 0;
            const char *type = page->types[f];
            CHECK(strcmp(type, "counter") == 0 || strcmp(type, "gauge") == 0 ||
                  strcmp(type, "histogram") == 0);
            for (int i = 0; i < f; i++)
                CHECKF(strcmp(page->families[i], page->families[f]) != 0, "%s twice", help);
            size_t length = strlen(page->families[f]);
            CHECK((strcmp(type, "counter") == 0) ==
                  (length > 6 && strcmp(page->families[f] + length - 6, "_total") == 0));
        } else {
            CHECK(help[0] == 0);
            sample_parse(page, line);
        }
    }
}

static double value_of(const struct page *page, const char *name, const char *labels,
                       const char *le)
{
    for (int i = 0; i < page->sample_count; i++) {
        const struct sample *s = &page->samples[i];
        if (strcmp(s->name, name) == 0 && strstr(s->labels, labels) != NULL &&
            strcmp(s->le, le) == 0)
            return s->value;
    }
    CHECKF(false, "no sample %s{%s} %s", name, labels, le);
    return 0;
}

static int samples_of(const struct page *page, const char *name)
{
    int count = 0;
    for (int i = 0; i < page->sample_count; i++)
        count += strcmp(page->samples[i].name, name) == 0;
    return count;
}

static void histograms_check(const struct page *page)
{
    for (int f = 0; f < page->family_count; f++) {
        if (strcmp(page->types[f], "histogram") != 0)
            continue;
        char bucket[160], count[160];
        snprintf(bucket, sizeof(bucket), "%s_bucket", page->families[f]);
        snprintf(count, sizeof(count), "%s_count", page->families[f]);
        double bound = -1;
        double below = 0;
        for (int i = 0; i < page->sample_count; i++) {
            const struct sample *s = &page->samples[i];
            if (strcmp(s->name, bucket) != 0)
                continue;
            double next = strtod(s->le, NULL); /* "+Inf" is infinity */
            CHECK(next > bound && s->value >= below);
            bound = next;
            below = s->value;
        }
        CHECK(isinf(bound) && below == value_of(page, count, "", ""));
    }
}

static void config_make(struct config *config)
{
    memset(config, 0, sizeof(*config));
    config->machine_count = 3;
    snprintf(config->machines[0].name, LIMIT_NAME_BYTES, "p\"0\\");
    config->machines[0].pool = POOL_PROMPT;
    config->machines[0].local = true;
    snprintf(config->machines[1].name, LIMIT_NAME_BYTES, "t0");
    config->machines[1].pool = POOL_TOKEN;
    snprintf(config->machines[2].name, LIMIT_NAME_BYTES, "silent");
    config->machines[2].pool = POOL_MIXED;
}

static struct page page;

static void render(struct metrics *m)
{
    size_t bytes;
    char *text = metrics_render(m, &bytes);
    CHECK(text != NULL && strlen(text) == bytes);
    page_parse(text, &page);
    histograms_check(&page);
    free(text);
}

static void test_figures(struct metrics *m)
{
    metrics_http_done(m, 200);
    metrics_http_done(m, 200);
    metrics_http_done(m, 429);
    metrics_http_done(m, 123456);
    for (int which = 0; which < METRICS_TIME_COUNT; which++) {
        metrics_time_add(m, which, 250000);
        metrics_time_add(m, which, 400000000); /* over the last bound */
        metrics_time_add(m, which, -5);        /* two clocks that disagree: counts as 0 */
    }
    metrics_request_ended(m, METRICS_LENGTH);
    metrics_counter_add(m, METRICS_REQUESTS_RESUMED, 1);
    metrics_value_set(m, METRICS_REQUESTS_RUNNING, 5);
    metrics_value_set(m, METRICS_REQUESTS_WAITING, 4);
    metrics_value_set(m, METRICS_REQUESTS_UNROUTED, 3);
    metrics_machine_up_set(m, 0, true);
    metrics_machine_up_set(m, 1, true);
    metrics_link_set(m, 0, 1, true, "ucx \"put\" over\nposix\\");
    metrics_link_speed_set(m, 0, 1, 1250000000);
    struct message_stats prompt = {
        .prefix_query_tokens = 100,
        .prefix_hit_tokens = 64,
        .kv_kinds = 1u << LAYER_FULL | 1u << LAYER_WINDOW,
        .transfer_bytes = {[LAYER_FULL] = 1ull << 40, [LAYER_WINDOW] = 77},
        .transfer_layers = 30,
        .transfers_layerwise = 3,
        .transfers_one_piece = 2,
        .transfer_us = 4000000,
        .transfer_exposed_us = 1000000,
        .tier_file_state = MESSAGE_TIER_BROKEN,
        .tier_file_damaged = 4};
    prompt.device_copies.way = TRANSPORT_WAY_STAGED;
    prompt.device_copies.out_bytes = 1000;
    prompt.device_copies.out_us = 2500000;
    prompt.device_copies.peer_bytes = 3000;
    prompt.device_copies.peer_us = 500000;
    struct message_stats token = {.kv_blocks = {60, 10, 10, 10, 5, 5},
                                  .resident_bytes = 12345,
                                  .kv_kinds = 1u << LAYER_LATENT,
                                  .kv_bytes = {[LAYER_LATENT] = 4096}};
    metrics_stats_set(m, 0, &prompt);
    metrics_stats_set(m, 1, &token);
    const struct message_load load = {.process.resident_bytes = 777};
    metrics_loads_set(m, 0, &(struct message_loads){.count = 1, .loads = &load});
    const struct metrics_version versions[METRICS_VERSIONS] = {
        {.number = 7, .name = "new \"x\"", .state = "serving", .open = 3, .total = 9},
        {.number = 6, .name = "old", .state = "draining", .open = 2, .total = 11}};
    metrics_versions_set(m, versions);
    render(m);
    CHECK(value_of(&page, "cleave_model_version",
                   "version=\"7\",model=\"new \\\"x\\\"\",state=\"serving\"", "") == 1);
    CHECK(value_of(&page, "cleave_model_version", "state=\"draining\"", "") == 1);
    CHECK(value_of(&page, "cleave_model_requests_open", "version=\"6\",model=\"old\"", "") == 2);
    CHECK(value_of(&page, "cleave_model_requests_total", "version=\"7\"", "") == 9);

    CHECK(value_of(&page, "cleave_http_requests_total", "code=\"200\"", "") == 2);
    CHECK(value_of(&page, "cleave_http_requests_total", "code=\"0\"", "") == 1);
    CHECK(value_of(&page, "cleave_request_queue_seconds_count", "", "") == 3);
    CHECK(value_of(&page, "cleave_request_queue_seconds_bucket", "", "0.3162") == 2);
    CHECK(value_of(&page, "cleave_request_queue_seconds_bucket", "", "0.1778") == 1);
    CHECK(fabs(value_of(&page, "vllm:time_to_first_token_seconds_sum", "model_name", "") - 400.25) <
          1e-9);
    CHECK(value_of(&page, "vllm:request_success_total", "finished_reason=\"length\"", "") == 1);
    CHECK(value_of(&page, "vllm:request_success_total", "finished_reason=\"abort\"", "") == 0);
    CHECK(value_of(&page, "vllm:num_requests_running", "", "") == 5);
    CHECK(value_of(&page, "vllm:num_requests_waiting", "", "") == 4);
    CHECK(value_of(&page, "cleave_requests_unrouted", "", "") == 3);
    CHECK(fabs(value_of(&page, "vllm:kv_cache_usage_perc", "", "") - 0.35) < 1e-12);
    /* A machine counts while its current pool generates answers, whatever pool its config names. */
    prompt.kv_blocks[0] = 100;
    metrics_stats_set(m, 0, &prompt);
    metrics_machine_pool_set(m, 0, POOL_MIXED);
    metrics_machine_pool_set(m, 1, POOL_TOKEN);
    render(m);
    CHECK(fabs(value_of(&page, "vllm:kv_cache_usage_perc", "", "") - 0.175) < 1e-12);
    metrics_machine_pool_set(m, 0, POOL_PROMPT);
    metrics_machine_pool_set(m, 1, POOL_PROMPT);
    render(m);
    CHECK(value_of(&page, "vllm:kv_cache_usage_perc", "", "") == 0);
    CHECK(value_of(&page, "cleave_kv_blocks", "machine=\"t0\",pool=\"token\",state=\"free\"", "") ==
          60);
    CHECK(value_of(&page, "cleave_transfer_bytes_total", "pool=\"prompt\",kind=\"full\"", "") ==
          1099511627776.0);
    CHECK(value_of(&page, "cleave_transfer_bytes_total", "kind=\"window\"", "") == 77);
    CHECK(value_of(&page, "cleave_kv_bytes", "machine=\"t0\",pool=\"token\",kind=\"latent\"", "") ==
          4096);
    CHECK(samples_of(&page, "cleave_kv_bytes") == 3);
    CHECK(samples_of(&page, "cleave_transfer_bytes_total") == 3);
    CHECK(value_of(&page, "cleave_transfers_total", "path=\"one_piece\"", "") == 2);
    CHECK(value_of(&page, "cleave_kv_way", "p\\\"0", "") == 2);
    CHECK(value_of(&page, "cleave_kv_way", "t0", "") == 0);
    CHECK(value_of(&page, "cleave_kv_staged_out_bytes_total", "p\\\"0", "") == 1000);
    CHECK(value_of(&page, "cleave_kv_staged_out_seconds_total", "p\\\"0", "") == 2.5);
    CHECK(value_of(&page, "cleave_kv_staged_in_bytes_total", "p\\\"0", "") == 0);
    CHECK(value_of(&page, "cleave_kv_ipc_bytes_total", "p\\\"0", "") == 3000);
    CHECK(value_of(&page, "cleave_kv_ipc_seconds_total", "p\\\"0", "") == 0.5);
    CHECK(value_of(&page, "cleave_transfer_hidden_ratio", "", "") == 0.75);
    CHECK(value_of(&page, "cleave_kv_tier_up", "p\\\"0", "") == 0);
    CHECK(value_of(&page, "cleave_machine_up", "silent", "") == 0);
    CHECK(value_of(&page, "cleave_link_up", "over\\nposix\\\\", "") == 1);
    CHECK(value_of(&page, "cleave_links_up", "p\\\"0", "") == 1);
    CHECK(value_of(&page, "cleave_links_up", "t0", "") == 0);
    CHECK(value_of(&page, "cleave_link_bytes_per_second", "p\\\"0", "") == 1250000000);
}

static bool has_family(const struct page *p, const char *name)
{
    for (int i = 0; i < p->family_count; i++)
        if (strcmp(p->families[i], name) == 0)
            return true;
    return false;
}

/* The limits of the SLO are bounds, and answers are compared with them. A changed limit moves its
 * bound and empties the histogram; other histograms stay. */
static void test_slo(const struct fleet *fleet)
{
    struct metrics *m;
    CHECK(metrics_open(fleet, "model", NULL, &m) == ST_OK);
    metrics_slo_set(m, 500, 1000); /* 1000 ms is a bound already */
    metrics_time_add(m, METRICS_TTFT, 500000);
    metrics_time_add(m, METRICS_TTFT, 500001);
    metrics_time_add(m, METRICS_E2E, 500000);
    metrics_slo_answer_add(m, false, 500000, 1000001);
    metrics_slo_answer_add(m, false, 500001, 1000000);
    metrics_slo_answer_add(m, false, 1, 0);
    metrics_slo_answer_add(m, true, 1, 1);
    render(m);
    CHECK(!has_family(&page, "cleave_headroom_ratio")); /* Unknown, and not 0. */
    metrics_headroom_set(m, (const double[]){2.5, 1.25, 1.125});
    render(m);
    CHECK(value_of(&page, "cleave_headroom_ratio", "slo=\"tbt\"", "") == 1.25);
    CHECK(value_of(&page, "cleave_headroom_ratio", "slo=\"all\"", "") == 1.125);
    metrics_headroom_set(m, NULL);
    render(m);
    CHECK(!has_family(&page, "cleave_headroom_ratio"));
    CHECK(value_of(&page, "vllm:time_to_first_token_seconds_bucket", "", "0.5") == 1);
    CHECK(value_of(&page, "vllm:inter_token_latency_seconds_bucket", "", "1") == 0);
    CHECK(value_of(&page, "cleave_slo_limit_seconds", "ttft", "") == 0.5);
    CHECK(value_of(&page, "cleave_slo_limit_seconds", "tbt", "") == 1);
    CHECK(value_of(&page, "cleave_slo_answers_total", "slo=\"ttft\",met=\"true\"", "") == 2);
    CHECK(value_of(&page, "cleave_slo_answers_total", "slo=\"ttft\",met=\"false\"", "") == 2);
    CHECK(value_of(&page, "cleave_slo_answers_total", "slo=\"tbt\",met=\"true\"", "") == 2);
    CHECK(value_of(&page, "cleave_slo_answers_total", "slo=\"all\",met=\"true\"", "") == 1);
    CHECK(value_of(&page, "cleave_slo_answers_total", "slo=\"all\",met=\"false\"", "") == 3);
    metrics_slo_set(m, 500, 70);
    metrics_slo_set(m, 500, 70);
    render(m);
    CHECK(value_of(&page, "vllm:time_to_first_token_seconds_bucket", "", "0.5") == 1);
    CHECK(value_of(&page, "vllm:inter_token_latency_seconds_bucket", "", "0.07") == 0);
    metrics_slo_set(m, 3600000, 562); /* above all bounds; 562.3 ms is a bound */
    render(m);
    CHECK(value_of(&page, "vllm:time_to_first_token_seconds_bucket", "", "3600") == 0);
    CHECK(value_of(&page, "vllm:inter_token_latency_seconds_bucket", "", "0.562") == 0);
    CHECK(value_of(&page, "vllm:e2e_request_latency_seconds_count", "", "") == 1);
    metrics_close(m);
}

/* The figures of the gateway itself, its reloads and refusals, and of machines that come and go. */
static void test_operation(const struct fleet *fleet)
{
    struct metrics *m;
    double now = (double)time(NULL);
    CHECK(metrics_open(fleet, "model", NULL, &m) == ST_OK);
    metrics_reload_set(m, true, 1000);
    metrics_reload_set(m, false, 2000);
    metrics_request_refused(m, METRICS_REFUSED_LATE);
    metrics_iteration_add(m, 2000000);
    for (int i = 0; i < 3; i++) {
        metrics_machine_up_set(m, 1, true);
        metrics_machine_up_set(m, 1, false);
        metrics_machine_up_set(m, 1, false);
    }
    struct message_stats stats = {.prompt_batch_us = 1500000, .token_batch_us = 250000};
    metrics_stats_set(m, 1, &stats);
    render(m);
    CHECK(samples_of(&page, "cleave_machine_energy_joules_total") == 0); /* Unknown. */
    stats.energy_uj = 2500000;
    metrics_stats_set(m, 1, &stats);
    render(m);
    CHECK(value_of(&page, "cleave_config_last_reload_successful", "", "") == 0);
    CHECK(value_of(&page, "cleave_config_last_reload_success_timestamp_seconds", "", "") == 1000);
    CHECK(value_of(&page, "cleave_requests_refused_total", "too_late", "") == 1);
    CHECK(value_of(&page, "cleave_requests_refused_total", "queue_full", "") == 0);
    CHECK(value_of(&page, "cleave_event_loop_seconds_bucket", "", "1") == 0);
    CHECK(value_of(&page, "cleave_event_loop_seconds_count", "", "") == 1);
    CHECK(value_of(&page, "cleave_machine_losses_total", "t0", "") == 3);
    CHECK(value_of(&page, "cleave_machine_losses_total", "silent", "") == 0);
    CHECK(value_of(&page, "cleave_machine_mismatch", "t0", "") == 0);
    CHECK(value_of(&page, "cleave_machine_busy_seconds_total", "phase=\"prompt\"", "") == 1.5);
    CHECK(value_of(&page, "cleave_machine_energy_joules_total", "t0", "") == 2.5);
    CHECK(value_of(&page, "cleave_machine_busy_seconds_total", "phase=\"token\"", "") == 0.25);
    double start = value_of(&page, "process_start_time_seconds", "", "");
    CHECKF(start > 1e9 && start <= now + 2, "%f %f", start, now);
    CHECK(value_of(&page, "process_cpu_seconds_total", "", "") >= 0);
    CHECK(value_of(&page, "process_resident_memory_bytes", "", "") > 65536);
    double files = value_of(&page, "process_open_fds", "", "");
    CHECK(files >= 3 && files <= value_of(&page, "process_max_fds", "", ""));
    int extra = dup(0);
    render(m);
    CHECK(value_of(&page, "process_open_fds", "", "") == files + 1);
    close(extra);
    metrics_close(m);
}

/* A machine dies and a new process takes its place: counters never fall, gauges are of the new one.
 */
static void test_restart(struct metrics *m)
{
    metrics_machine_up_set(m, 0, false);
    metrics_link_set(m, 0, 1, false, "");
    render(m);
    CHECK(value_of(&page, "cleave_transfer_layers_total", "p\\\"0", "") == 30);
    CHECK(value_of(&page, "cleave_machine_up", "p\\\"0", "") == 0);
    CHECK(value_of(&page, "cleave_link_up", "", "") == 0);
    CHECK(value_of(&page, "cleave_kv_tier_damaged_total", "p\\\"0", "") == 4);
    CHECK(samples_of(&page, "cleave_kv_tier_up") == 0);
    CHECK(samples_of(&page, "cleave_stage_resident_bytes") == 0);
    CHECK(samples_of(&page, "cleave_stage_busy_seconds_total") == 1);
    for (int i = 0; i < page.sample_count; i++)
        CHECK(strcmp(page.samples[i].name, "cleave_prompts_waiting") != 0 ||
              strstr(page.samples[i].labels, "p\\\"0") == NULL);
    struct message_stats fresh = {.transfer_layers = 5,
                                  .kv_kinds = 1u << LAYER_FULL | 1u << LAYER_WINDOW,
                                  .transfer_bytes = {10, 7},
                                  .prefix_query_tokens = 30,
                                  .preemptions = 3,
                                  .prompts_waiting = 2};
    fresh.device_copies.out_bytes = 7;
    fresh.device_copies.peer_bytes = 11;
    metrics_machine_up_set(m, 0, true);
    metrics_stats_set(m, 0, &fresh);
    render(m);
    CHECK(value_of(&page, "cleave_transfer_layers_total", "p\\\"0", "") == 35);
    CHECK(value_of(&page, "cleave_transfer_bytes_total", "kind=\"window\"", "") == 84);
    CHECK(value_of(&page, "cleave_kv_staged_out_bytes_total", "p\\\"0", "") == 1007);
    CHECK(value_of(&page, "cleave_kv_ipc_bytes_total", "p\\\"0", "") == 3011);
    CHECK(value_of(&page, "cleave_prefix_cache_hits_tokens_total", "p\\\"0", "") == 64);
    CHECK(value_of(&page, "vllm:prefix_cache_queries_total", "", "") == 130);
    CHECK(value_of(&page, "vllm:prefix_cache_hits_total", "", "") == 64);
    CHECK(value_of(&page, "cleave_prompts_waiting", "p\\\"0", "") == 2);
    CHECK(value_of(&page, "cleave_transfer_hidden_ratio", "", "") == 0.75);
}

/* A machine is removed: none of its values is shown, and the sums over all machines do not fall. */
static void test_forgotten(struct metrics *m)
{
    metrics_machine_forget(m, 0);
    render(m);
    for (int i = 0; i < page.sample_count; i++)
        CHECK(strcmp(page.samples[i].name, "cleave_transfer_layers_total") != 0 ||
              strstr(page.samples[i].labels, "p\\\"0") == NULL);
    CHECK(value_of(&page, "vllm:prefix_cache_queries_total", "", "") == 130);
    CHECK(value_of(&page, "vllm:prefix_cache_hits_total", "", "") == 64);
    CHECK(value_of(&page, "vllm:num_preemptions_total", "", "") == 3);
    struct message_stats next = {.prefix_query_tokens = 1};
    metrics_stats_set(m, 0, &next); /* another one with its index */
    render(m);
    CHECK(value_of(&page, "vllm:prefix_cache_queries_total", "", "") == 131);
}

static void line_check(const char *family, uint32_t after, bool counter, double factor)
{
    double want = (counter ? 1000.0 + 2 * after : after) * factor;
    if (family[0] != 0)
        CHECKF(fabs(value_of(&page, family, "t0", "") - want) < 1e-9, "%s", family);
}

/* Each line of MACHINE_COUNTERS and COPY_COUNTERS: a process reports 1001, 1002, …, its
 * successor 1, 2, …. The page shows the sum of a counter and the latest value of a gauge. */
static void test_lines(const struct fleet *fleet)
{
#define BOTH(first, second, field) (first.field = 1000 + ++count, second.field = count)
#define SET(bits, name, ...)       (void)BOTH(before, after, name);
#define SET_COPY(bits, name, ...)  (void)BOTH(before.device_copies, after.device_copies, name);
    struct message_stats before = {0};
    struct message_stats after = {0};
    uint32_t count = 0;
    MACHINE_COUNTERS(SET)
    COPY_COUNTERS(SET_COPY)
    struct metrics *m;
    CHECK(metrics_open(fleet, "model", NULL, &m) == ST_OK);
    metrics_stats_set(m, 1, &before);
    metrics_stats_set(m, 1, &after);
    render(m);
    metrics_close(m);
    count = 0;
#define TYPE_COUNTER true
#define TYPE_GAUGE   false
#define TYPE_STATE   false
#define SHOWN(bits, name, kind, group, factor, family, help)                                       \
    line_check(family, ++count, TYPE_##kind, factor);
    MACHINE_COUNTERS(SHOWN)
    COPY_COUNTERS(SHOWN)
#undef BOTH
#undef SET
#undef SET_COPY
#undef SHOWN
}

/* ---- the reference page ---- */

static struct api_keys *keys_make(void)
{
    static const char text[] = "{\"keys\":[{\"name\":\"a\",\"key\":\"0123456789abcdef\","
                               "\"expires\":\"2027-01-31T18:00:00Z\"}]}";
    char path[] = "/tmp/cleave-keys-XXXXXX";
    struct api_keys *keys;
    struct api_key_set *set;
    struct error error;
    int fd = mkstemp(path);
    CHECK(fd >= 0 && write(fd, text, sizeof(text) - 1) == sizeof(text) - 1 && close(fd) == 0);
    CHECK(api_keys_open(&keys) == ST_OK);
    CHECKF(api_key_set_read(path, &set, &error) == ST_OK, "%s", error.text);
    api_keys_apply(keys, set);
    unlink(path);
    return keys;
}

/* Renders a page on which each family has a sample. */
static char *page_with_all(struct fleet *fleet)
{
    struct metrics *m;
    size_t bytes;
    struct api_keys *keys = keys_make();
    const struct message_stats stats = {
        .kv_kinds = 1u << LAYER_FULL, .energy_uj = 1, .tier_file_state = MESSAGE_TIER_WORKS};
    const struct message_about about = {
        .device = "cpu, 4 threads", .host = "node7", .build = "0.1.0"};
    const struct message_load load = {0};
    const struct metrics_version versions[METRICS_VERSIONS] = {{.number = 1, .state = "serving"}};
    CHECK(metrics_open(fleet, "model", keys, &m) == ST_OK);
    metrics_http_done(m, 200);
    metrics_machine_up_set(m, 0, true);
    metrics_about_set(m, 0, &about);
    metrics_stats_set(m, 0, &stats);
    metrics_machine_pool_set(m, 0, 0);
    metrics_link_set(m, 0, 1, true, "");
    metrics_link_speed_set(m, 0, 1, 1);
    metrics_loads_set(m, 0, &(struct message_loads){.count = 1, .loads = &load});
    fleet->machines[0].others.gateways = 1;
    metrics_versions_set(m, versions);
    metrics_events_set(m, true, 0, 0);
    metrics_value_set(m, METRICS_CERTIFICATE_EXPIRES, 1);
    metrics_etcd_set(m, true);
    metrics_headroom_set(m, (const double[]){1, 1, 1});
    char *text = metrics_render(m, &bytes);
    CHECK(text != NULL);
    metrics_close(m);
    api_keys_close(keys);
    return text;
}

/* Returns whether the page's head names the label, for all families that have it. */
static bool label_common(const char *name, size_t bytes)
{
    static const char *const common[] = {"le", "model_name", "engine", "pool"};
    for (size_t i = 0; i < sizeof(common) / sizeof(common[0]); i++)
        if (strlen(common[i]) == bytes && strncmp(name, common[i], bytes) == 0)
            return true;
    return false;
}

/* Prints the names of a sample's labels, except those of label_common. Each follows a comma. */
static void labels_print(FILE *out, const char *line)
{
    const char *at = strchr(line, '{');
    for (; at != NULL && *at != '}'; at++) {
        const char *name = at + 1;
        at = strchr(name, '=');
        if (!label_common(name, (size_t)(at - name)))
            fprintf(out, ", `%.*s`", (int)(at - name), name);
        at = strchr(at + 2, '"');
    }
}

static void print_reference(FILE *out)
{
    static struct config config;
    struct fleet *fleet;
    config_make(&config);
    snprintf(config.machines[0].name, LIMIT_NAME_BYTES, "p0");
    CHECK(fleet_open(&config, &fleet) == ST_OK);
    char *text = page_with_all(fleet);
    char help[1024] = "";
    char type[16];
    bool sampled = true;
    fprintf(out, "# The metrics\n\n"
                 "A gateway shows these metrics at `GET /metrics`, in this order "
                 "([access](operation.md#seeing-what-it-does)).\n"
                 "Labels that the table leaves out: `vllm:` metrics also have `model_name` and "
                 "`engine`, metrics with `machine` also\n`pool` (the pool of the machine's config; "
                 "its current pool is `cleave_machine_in_pool`), histograms `le`.\n\n"
                 "`build/tests/server/metrics/test_metrics --reference` prints this page.\n\n"
                 "| name | type, labels | meaning |\n|---|---|---|\n");
    char *save;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        if (strncmp(line, "# HELP ", 7) == 0) {
            CHECKF(sampled, "no sample before %s", line);
            snprintf(help, sizeof(help), "%s", line + 7);
            sampled = false;
        } else if (strncmp(line, "# TYPE ", 7) == 0) {
            CHECK(sscanf(line + 7, "%*s %15s", type) == 1);
        } else if (!sampled) {
            char *meaning = strchr(help, ' ');
            fprintf(out, "| `%.*s` | %s", (int)(meaning - help), help, type);
            labels_print(out, line);
            fprintf(out, " | %s |\n", meaning + 1);
            sampled = true;
        }
    }
    CHECK(sampled);
    free(text);
    fleet_close(fleet);
}

static void test_reference(void)
{
    page_check("docs/metrics.md", "build/tests/server/metrics/test_metrics --reference",
               print_reference);
}

int main(int argc, char **argv)
{
    static struct config config;
    struct fleet *fleet;
    if (argc > 1 && strcmp(argv[1], "--reference") == 0) {
        print_reference(stdout);
        return 0;
    }
    test_reference();
    config_make(&config);
    CHECK(fleet_open(&config, &fleet) == ST_OK);
    struct metrics *m;
    CHECK(metrics_open(fleet, "a \"model\"\n", NULL, &m) == ST_OK);
    render(m); /* empty */
    CHECK(isnan(value_of(&page, "cleave_transfer_hidden_ratio", "", "")));
    test_figures(m);
    test_restart(m);
    test_forgotten(m);
    metrics_close(m);
    test_lines(fleet);
    test_slo(fleet);
    test_operation(fleet);
    fleet_close(fleet);
    return 0;
}
