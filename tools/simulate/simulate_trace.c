/* simulate_trace: see the header. */
#include "tools/simulate/simulate_trace.h"

#include "tools/simulate/sim_kills.h"
#include "tools/simulate/sim_run.h"
#include "tools/simulate/sim_usage_show.h"
#include "tools/simulate/simulate_html.h"
#include "tools/simulate/splitwise/splitwise.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct simulation {
    const struct simulate_options *options;
    struct error error;
    struct config *config;
    struct sim_machines *hosts;
    struct sim_trace trace;
    struct sim_report *report;
    struct sim_run_totals *totals;
    struct splitwise_totals splitwise;
    struct sim_usage usage; /* Open only if a picture is wanted. */
    struct sim_kill *kills; /* NULL = none. */
    bool compat;
};

static bool is_drawn(const struct simulation *s)
{
    return s->options->html != NULL || s->options->plot != NULL;
}

/* ---- inputs ---- */

static enum status config_read(struct simulation *s)
{
    const struct simulate_options *options = s->options;
    config_default(s->config);
    if (options->config != NULL) {
        enum status status = config_load(options->config, s->config, &s->error);
        if (status != ST_OK)
            return status;
    }
    const char *policy = options->policy != NULL ? options->policy : s->config->scheduler.policy;
    s->compat = strcmp(policy, "splitwise-compat") == 0;
    if (s->compat && (options->events != NULL || options->cores > 0 || options->failure_s > 0 ||
                      options->kills != NULL || options->context > 0))
        return error_set(
            &s->error, ST_USAGE,
            "--policy splitwise-compat: --events, --cores, --mtbf, --kills and --context "
            "work only with the gateway's policies");
    if (!s->compat && options->policy != NULL)
        snprintf(s->config->scheduler.policy, sizeof(s->config->scheduler.policy), "%s", policy);
    return ST_OK;
}

/* Stages and ranks take no turns, so ranks must have cores of their own. */
static enum status cores_check(struct simulation *s)
{
    uint64_t threads = 0;
    for (uint32_t i = 0; i < s->hosts->count; i++)
        threads += s->hosts->machines[i].threads;
    for (uint32_t i = 0; i < s->hosts->count; i++) {
        const struct sim_machine_facts *host = &s->hosts->machines[i];
        const bool ranks = host->cost.devices[0] != NULL && host->cost.devices[0]->ranks > 1;
        if (host->cost.stage_count > 1)
            return error_set(&s->error, ST_USAGE,
                             "--cores: machine %s has stages, which cannot share cores",
                             host->name);
        if (ranks && threads > s->options->cores)
            return error_set(&s->error, ST_USAGE,
                             "--cores: machine %s has ranks, which cannot share cores, and all "
                             "machines have %llu threads",
                             host->name, (unsigned long long)threads);
    }
    return ST_OK;
}

static enum status hosts_read(struct simulation *s)
{
    const struct simulate_options *options = s->options;
    char path[LIMIT_PATH_BYTES];
    enum status status = ST_OK;
    if (options->profile != NULL)
        status = profile_load(options->profile, &s->hosts->profile, &s->error);
    else if (s->config->profile[0] != 0) {
        status = config_file_path(s->config, s->config->profile, path, &s->error);
        if (status == ST_OK)
            status = profile_load(path, &s->hosts->profile, &s->error);
    }
    for (uint32_t i = 0; i < options->machines.count && status == ST_OK; i++)
        status = sim_machines_add(s->hosts, options->machines.texts[i], options->perf_model,
                                  options->model, s->config, &s->error);
    if (status == ST_OK && options->machines.count == 0)
        status = sim_machines_of_config(s->hosts, s->config, &s->error);
    if (status != ST_OK)
        return status;
    if (options->cores > 0 && (status = cores_check(s)) != ST_OK)
        return status;
    s->hosts->context_tokens = options->context > 0
                                   ? (uint32_t)options->context
                                   : sim_machines_context_tokens(s->hosts, s->config);
    return ST_OK;
}

static enum status requests_open(struct simulation *s)
{
    const struct simulate_options *options = s->options;
    bool skip = options->on_bad_row == SIMULATE_BAD_ROW_SKIP;
    return sim_trace_open(&s->trace, options->trace, skip, options->seed, &s->error);
}

/* ---- policy splitwise-compat ---- */

static void compat_done(void *self, const struct splitwise_result *result)
{
    sim_report_add(self, &(struct sim_result){.arrival = result->arrival,
                                              .ttft_s = result->ttft_s,
                                              .tbt_s = result->tbt_s,
                                              .e2e_s = result->e2e_s,
                                              .prompt_machine = result->prompt_machine,
                                              .token_machine = result->token_machine});
}

/* Simulates with the policy splitwise-compat: split machines, or the baseline if all are mixed. */
static enum status compat_run(struct simulation *s)
{
    struct splitwise_setup setup;
    uint32_t mixed = 0;
    double slowest = 0; /* Slowest link of the hardware files; 0 = none is given. */
    splitwise_setup_default(&setup);
    struct splitwise_machine_kind *hosts = calloc(s->hosts->count, sizeof(hosts[0]));
    if (hosts == NULL)
        return error_set(&s->error, ST_NO_MEMORY, "out of memory");
    setup.hosts = hosts;
    setup.host_count = s->hosts->count;
    setup.weights_bytes = s->hosts->weights_bytes;
    setup.kv_bytes_per_token = s->hosts->kv_bytes_per_token;
    enum status status = ST_OK;
    for (uint32_t i = 0; i < setup.host_count && status == ST_OK; i++) {
        const struct sim_machine_facts *host = &s->hosts->machines[i];
        if (host->hardware == NULL || host->cost.curve == NULL)
            status = error_set(&s->error, ST_USAGE,
                               "--policy splitwise-compat: wants --machines and --table");
        else
            hosts[i] =
                (struct splitwise_machine_kind){.home = host->home,
                                                .curve = host->cost.curve,
                                                .memory_bytes = host->hardware->memory_bytes};
        double link = status == ST_OK ? host->hardware->link_bytes_per_s : 0;
        if (link > 0 && (slowest == 0 || link < slowest))
            slowest = link;
        mixed += host->home == POOL_MIXED;
        if (is_drawn(s))
            memcpy(s->usage.names[i], host->name, sizeof(host->name));
    }
    if (slowest > 0)
        setup.link_bytes_per_s = slowest;
    setup.split = mixed == 0;
    setup.usage = is_drawn(s) ? &s->usage : NULL;
    if (status == ST_OK && mixed > 0 && mixed < setup.host_count)
        status = error_set(&s->error, ST_USAGE,
                           "--policy splitwise-compat: all machines are mixed (the baseline), or "
                           "none is");
    if (status == ST_OK)
        status = splitwise_run(&setup, &s->trace, compat_done, s->report, &s->splitwise, &s->error);
    free(hosts);
    return status;
}

/* ---- the gateway's policies ---- */

static enum status gateway_run(struct simulation *s)
{
    const struct simulate_options *options = s->options;
    struct sim_run_options run = {
        .machines = s->hosts,
        .config = s->config,
        .message_s = options->message_us / 1e6,
        .cores = (uint32_t)options->cores,
        .failure_s = options->failure_s,
        .repair_s = options->repair_s,
        .seed = options->seed,
        .draft_right = options->acceptance,
        .usage = is_drawn(s) ? &s->usage : NULL,
    };
    enum status tiers = sim_tier_kinds_read(&options->tiers, run.tiers, &s->error);
    if (tiers != ST_OK)
        return tiers;
    if (options->kills != NULL) {
        enum status status =
            sim_kills_read(options->kills, s->hosts, &s->kills, &run.kill_count, &s->error);
        if (status != ST_OK)
            return status;
        run.kills = s->kills;
    }
    if (options->events != NULL) {
        run.events = fopen(options->events, "w");
        if (run.events == NULL)
            return error_set(&s->error, ST_IO, "%s: %s", options->events, strerror(errno));
    }
    enum status status = sim_run(&run, &s->trace, s->report, s->totals, &s->error);
    if (run.events != NULL && fclose(run.events) != 0 && status == ST_OK)
        status = error_set(&s->error, ST_IO, "%s: cannot be written", options->events);
    return status;
}

/* ---- results ---- */

static double hit_percent(const struct simulation *s)
{
    double all = (double)s->totals->prefix_query_tokens;
    return all > 0 ? 100 * (double)s->totals->prefix_hit_tokens / all : 0;
}

static void machines_print(const struct simulation *s, FILE *out)
{
    if (s->totals->moves > 0)
        fprintf(out, "%llu moves between pools\n", (unsigned long long)s->totals->moves);
    if (s->totals->copies > 0)
        fprintf(out, "%llu checkpoints written, %.1f GB\n", (unsigned long long)s->totals->copies,
                (double)s->totals->copied_bytes / 1e9);
    if (s->totals->prefixes)
        fprintf(out, "%.1f %% of %.4g prompt tokens found in prefix caches\n", hit_percent(s),
                (double)s->totals->prefix_query_tokens);
    if (s->totals->draft_tokens > 0)
        fprintf(out, "%.4g drafted tokens, %.1f %% of them right\n",
                (double)s->totals->draft_tokens,
                100 * (double)s->totals->draft_tokens_accepted / (double)s->totals->draft_tokens);
    for (int kind = 0; kind < TIER_KIND_COUNT; kind++)
        if (s->totals->tier_tokens[kind] > 0)
            fprintf(out, "%.1f %% of these tokens loaded from tier %s\n",
                    100 * (double)s->totals->tier_tokens[kind] /
                        (double)s->totals->prefix_query_tokens,
                    tier_kind_name((enum tier_kind)kind));
    if (s->hosts->count > 16)
        return;
    fprintf(out, "%-20s %-7s %6s %14s %14s %9s\n", "machine", "pool", "busy", "prompt tokens",
            "output tokens", "failures");
    for (uint32_t i = 0; i < s->hosts->count; i++) {
        const struct sim_machine_totals *t = &s->totals->machines[i];
        double span_s = s->totals->last_s > 0 ? s->totals->last_s : 1;
        fprintf(out, "%-20s %-7s %5.1f%% %14llu %14llu %9u\n", s->hosts->machines[i].name,
                pool_name(t->home), 100 * t->busy_s / span_s, (unsigned long long)t->prompt_tokens,
                (unsigned long long)t->output_tokens, t->failures);
    }
}

static void costs_print(const struct sim_machines *hosts, FILE *out, const char *format)
{
    double cost = 0;
    double power = 0;
    for (uint32_t i = 0; i < hosts->count; i++) {
        if (hosts->machines[i].hardware == NULL)
            return;
        cost += hosts->machines[i].hardware->cost_per_hour;
        power += hosts->machines[i].hardware->power;
    }
    if (cost > 0)
        fprintf(out, format, hosts->count, cost, power);
}

/* Machines that share cores share the power that was measured, too. */
static bool energy_find(const struct simulation *s, double *out_j)
{
    return !s->compat && s->options->cores == 0 && sim_energy_j(s->hosts, s->totals, out_j);
}

static uint64_t output_tokens(const struct simulation *s)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < s->hosts->count; i++)
        sum += s->totals->machines[i].output_tokens;
    return sum;
}

static void json_print(const void *self, FILE *file)
{
    const struct simulation *s = self;
    sim_report_json(s->report, file);
    fprintf(file, ",\"skipped_rows\":%llu", (unsigned long long)sim_trace_skipped(&s->trace));
    costs_print(s->hosts, file, ",\"machine_count\":%u,\"cost_per_hour\":%.9g,\"power\":%.9g");
    double energy_j;
    if (energy_find(s, &energy_j))
        fprintf(file, ",\"energy_j\":%.9g", energy_j);
    if (!s->compat) {
        fprintf(file, ",\"moves\":%llu,\"copies\":%llu,\"copied_bytes\":%llu",
                (unsigned long long)s->totals->moves, (unsigned long long)s->totals->copies,
                (unsigned long long)s->totals->copied_bytes);
        if (s->totals->prefixes)
            fprintf(file, ",\"prefix_query_tokens\":%llu,\"prefix_hit_tokens\":%llu",
                    (unsigned long long)s->totals->prefix_query_tokens,
                    (unsigned long long)s->totals->prefix_hit_tokens);
        if (s->options->acceptance > 0)
            fprintf(file, ",\"draft_tokens\":%llu,\"draft_tokens_accepted\":%llu",
                    (unsigned long long)s->totals->draft_tokens,
                    (unsigned long long)s->totals->draft_tokens_accepted);
        for (int kind = 0; kind < TIER_KIND_COUNT && s->options->tiers.count > 0; kind++)
            fprintf(file, ",\"tier_%s_tokens\":%llu", tier_kind_name((enum tier_kind)kind),
                    (unsigned long long)s->totals->tier_tokens[kind]);
        fputs(",\"machines\":[", file);
        for (uint32_t i = 0; i < s->hosts->count; i++) {
            const struct sim_machine_totals *t = &s->totals->machines[i];
            fprintf(file,
                    "%s{\"name\":\"%s\",\"home\":\"%s\",\"busy_s\":%.9g,\"prompt_tokens\":%llu,"
                    "\"output_tokens\":%llu,\"failures\":%u}",
                    i > 0 ? "," : "", s->hosts->machines[i].name, pool_name(t->home), t->busy_s,
                    (unsigned long long)t->prompt_tokens, (unsigned long long)t->output_tokens,
                    t->failures);
        }
        fputc(']', file);
    }
    fputc('}', file);
}

static void results_print(const void *self, FILE *out)
{
    const struct simulation *s = self;
    sim_report_print(s->report, out);
    if (s->compat && s->splitwise.unended_requests > 0)
        fprintf(out, "%u requests never end: they wait for KV memory that is never freed\n",
                s->splitwise.unended_requests);
    if (!s->compat)
        machines_print(s, out);
    if (config_has_tiers(s->config) && s->options->tiers.count == 0)
        fprintf(out, "the tiers of the config (kv/tiers) were not simulated: give each as --tier, "
                     "with its measured times\n");
    costs_print(s->hosts, out, "%u machines: %.2f per hour, power %.1f\n");
    double energy_j;
    if (energy_find(s, &energy_j) && output_tokens(s) > 0)
        fprintf(out, "computing takes %.4g kJ, %.3g J per output token\n", energy_j / 1e3,
                energy_j / (double)output_tokens(s));
    if (sim_trace_skipped(&s->trace) > 0)
        fprintf(out, "%llu rows left out, the first: %s\n",
                (unsigned long long)sim_trace_skipped(&s->trace),
                sim_trace_first_skipped(&s->trace));
}

static enum status results_write(struct simulation *s)
{
    results_print(s, s->options->json ? stderr : stdout);
    if (s->options->json) {
        json_print(s, stdout);
        fputc('\n', stdout);
    }
    return fflush(stdout) == 0 && !ferror(stdout)
               ? ST_OK
               : error_set(&s->error, ST_IO, "standard output: %s", strerror(errno));
}

static enum status pictures_write(struct simulation *s)
{
    const struct simulate_options *options = s->options;
    const struct gnuplot_picture usage = sim_usage_picture(&s->usage);
    const struct simulate_html html = {.options = options,
                                       .report = s->report,
                                       .usage = &s->usage,
                                       .text = results_print,
                                       .json = json_print,
                                       .self = s};
    enum status status =
        options->html != NULL ? simulate_html_write(&html, options->html, &s->error) : ST_OK;
    if (status != ST_OK || options->plot == NULL)
        return status;
    status = gnuplot_file_draw(&usage, options->plot, &s->error);
    if (status != ST_OK)
        error_prefix(&s->error, "--plot %s", options->plot);
    return status;
}

/* ---- the parts together ---- */

static enum status trace_run(struct simulation *s)
{
    if (is_drawn(s) && sim_usage_open(&s->usage, s->hosts->count) != ST_OK)
        return error_set(&s->error, ST_NO_MEMORY, "out of memory");
    enum status status = requests_open(s);
    if (status != ST_OK)
        return status;
    status = sim_report_open(s->report, s->options->rows_path, s->compat, &s->error);
    if (s->hosts->has_reference)
        s->report->slo.reference = &s->hosts->reference;
    if (status == ST_OK) {
        struct error closing = {""};
        status = s->compat ? compat_run(s) : gateway_run(s);
        enum status closed = sim_report_close(s->report, s->options->rows_path, &closing);
        if (status == ST_OK && closed != ST_OK) {
            status = closed;
            s->error = closing;
        }
    }
    if (status == ST_OK)
        status = results_write(s);
    if (status == ST_OK && is_drawn(s))
        status = pictures_write(s);
    sim_trace_close(&s->trace);
    return status;
}

int simulate_trace(const struct simulate_options *options)
{
    struct simulation s = {.options = options};
    s.config = calloc(1, sizeof(*s.config));
    s.hosts = calloc(1, sizeof(*s.hosts));
    s.report = calloc(1, sizeof(*s.report));
    s.totals = calloc(1, sizeof(*s.totals));
    enum status status = ST_NO_MEMORY;
    if (s.config == NULL || s.hosts == NULL || s.report == NULL || s.totals == NULL)
        error_set(&s.error, status, "out of memory");
    else
        status = config_read(&s);
    if (status == ST_OK)
        status = hosts_read(&s);
    if (status == ST_OK)
        status = trace_run(&s);
    int exit_status = status == ST_OK ? 0 : options_fail(&simulate_options_table, status, &s.error);
    if (s.hosts != NULL)
        sim_machines_done(s.hosts);
    sim_usage_close(&s.usage);
    free(s.kills);
    free(s.config);
    free(s.hosts);
    free(s.report);
    free(s.totals);
    return exit_status;
}
