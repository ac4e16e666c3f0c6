/* reference: see the header. A case's arguments are the command line of the reference simulator. */
#include "tools/simulate/splitwise/reference.h"

#include "common/clock.h"
#include "common/json.h"
#include "tools/report/slo.h"
#include "tools/simulate/splitwise/models.h"
#include "tools/simulate/splitwise/reference_expected.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PATH_BYTES 2048

struct reference {
    const char *directory;
    struct error *error;
    char cases_path[PATH_BYTES];
    char table_path[PATH_BYTES];
};

/* A case of cases.json, and its result. */
struct one_case {
    const char *name;
    const char *trace;
    json_t *arguments;
    struct cost_curve curves[2]; /* Times of servers.0 and servers.1. */
    struct splitwise_machine_kind hosts[SCHED_MACHINES_MAX];
    struct splitwise_setup setup;
    struct cost_curve slo_curve;
    struct slo slo;
    struct reference_expected expected;
    struct reference_result result;
};

/* ---- arguments ---- */

static const char *argument(const struct one_case *c, const char *key, const char *fallback)
{
    const char *text = json_string_value(json_object_get(c->arguments, key));
    return text != NULL ? text : fallback;
}

static enum status argument_wrong(const struct reference *r, const struct one_case *c,
                                  const char *key, const char *wanted)
{
    return error_set(r->error, ST_INVALID, "%s: %s: %s = \"%.60s\": want %s", r->cases_path,
                     c->name, key, argument(c, key, ""), wanted);
}

static enum status argument_count(const struct reference *r, const struct one_case *c,
                                  const char *key, uint32_t fallback, uint32_t *out)
{
    const char *text = argument(c, key, NULL);
    *out = fallback;
    if (text == NULL)
        return ST_OK;
    char *end;
    unsigned long value = strtoul(text, &end, 10);
    if (end == text || *end != 0 || value > SCHED_MACHINES_MAX)
        return argument_wrong(r, c, key, "a number of machines");
    *out = (uint32_t)value;
    return ST_OK;
}

/* Records the first argument that has no meaning here in the result. If it mattered, the comparison
 * shows a difference. */
static enum status arguments_check(const struct reference *r, struct one_case *c)
{
    static const char *const known[] = {
        "applications.0.scheduler",
        "applications.0.model_architecture",
        "applications.0.model_size",
        "cluster",
        "cluster.servers.0.count",
        "cluster.servers.1.count",
        "start_state",
        "start_state.split_type",
        "start_state.prompt.num_instances",
        "start_state.token.num_instances",
        "performance_model",
        "trace.filename",
        "seed",
        "debug",
    };
    const char *key;
    json_t *value;
    json_object_foreach(c->arguments, key, value)
    {
        bool found = false;
        for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
            found |= strcmp(known[i], key) == 0;
        if (!found && c->result.unsupported_argument == NULL)
            c->result.unsupported_argument = key;
        if (found && !json_is_string(value))
            return error_set(r->error, ST_INVALID, "%s: %s: %s: want a text, as \"25\"",
                             r->cases_path, c->name, key);
    }
    if (strcmp(argument(c, "performance_model", "db"), "db") != 0)
        return argument_wrong(r, c, "performance_model", "db");
    return ST_OK;
}

static void host_add(struct one_case *c, uint32_t kind, enum pool home)
{
    c->hosts[c->setup.host_count++] = (struct splitwise_machine_kind){
        .home = home, .curve = &c->curves[kind], .memory_bytes = SPLITWISE_MACHINE_BYTES};
}

/* Adds the machines in the order servers.0, servers.1, with their pools. */
static enum status hosts_read(const struct reference *r, struct one_case *c)
{
    uint32_t counts[2];
    uint32_t prompts;
    uint32_t tokens;
    const char *type = argument(c, "start_state.split_type", "homogeneous");
    bool by_kind = strcmp(type, "heterogeneous") == 0;
    enum status status = argument_count(r, c, "cluster.servers.0.count", 1, &counts[0]);
    if (status == ST_OK)
        status = argument_count(r, c, "cluster.servers.1.count", 1, &counts[1]);
    if (status == ST_OK)
        status = argument_count(r, c, "start_state.prompt.num_instances", 1, &prompts);
    if (status == ST_OK)
        status = argument_count(r, c, "start_state.token.num_instances", 1, &tokens);
    if (status != ST_OK)
        return status;
    if (!by_kind && strcmp(type, "homogeneous") != 0)
        return argument_wrong(r, c, "start_state.split_type", "homogeneous or heterogeneous");
    if (counts[0] + counts[1] < 1 || counts[0] + counts[1] > SCHED_MACHINES_MAX)
        return argument_wrong(r, c, "cluster.servers.1.count", "from 1 to 1024 machines in all");
    for (uint32_t i = 0; i < counts[0] + counts[1]; i++) {
        uint32_t kind = i < counts[0] ? 0 : 1;
        if (!c->setup.split)
            host_add(c, kind, POOL_MIXED);
        else if (by_kind)
            host_add(c, kind, kind == 1 ? POOL_PROMPT : POOL_TOKEN);
        else if (i < prompts + tokens)
            host_add(c, kind, i < prompts ? POOL_PROMPT : POOL_TOKEN);
    }
    return ST_OK;
}

static enum status curves_read(const struct reference *r, struct one_case *c, const char *model)
{
    static const char *const hardware[2][2] = {{"a100-80gb", "h100-80gb"},
                                               {"h100-80gb-pcap", "h100-80gb"}};
    const char *cluster = argument(c, "cluster", "half_half");
    int capped = strcmp(cluster, "hhcap_half_half") == 0;
    if (!capped && strcmp(cluster, "half_half") != 0)
        return argument_wrong(r, c, "cluster", "half_half or hhcap_half_half");
    enum status status = ST_OK;
    for (int i = 0; i < 2 && status == ST_OK; i++)
        status = cost_table_read(r->table_path, model, hardware[capped][i],
                                 SPLITWISE_TENSOR_PARALLEL, &c->curves[i], r->error);
    if (cost_table_read(r->table_path, model, SPLITWISE_SLO_HARDWARE, SPLITWISE_TENSOR_PARALLEL,
                        &c->slo_curve, NULL) == ST_OK)
        c->slo.reference = &c->slo_curve;
    return status;
}

static enum status setup_read(const struct reference *r, struct one_case *c)
{
    const char *name = argument(c, "applications.0.model_architecture", "bloom-176b");
    const struct splitwise_model *model = splitwise_model_find(name);
    const char *scheduler = argument(c, "applications.0.scheduler", "");
    enum status status = arguments_check(r, c);
    if (status != ST_OK)
        return status;
    if (model == NULL)
        return argument_wrong(r, c, "applications.0.model_architecture",
                              "bloom-176b or llama2-70b");
    splitwise_setup_default(&c->setup);
    c->setup.hosts = c->hosts;
    c->setup.weights_bytes = model->weights_bytes;
    c->setup.kv_bytes_per_token = splitwise_kv_bytes_per_token(model);
    c->setup.split = strcmp(scheduler, "mixed_pool") == 0;
    if (!c->setup.split && strcmp(scheduler, "token_jsq") != 0)
        return argument_wrong(r, c, "applications.0.scheduler", "mixed_pool or token_jsq");
    status = hosts_read(r, c);
    return status == ST_OK ? curves_read(r, c, name) : status;
}

/* ---- one case ---- */

static void widen(double *most, double difference)
{
    /* Keep NaN, which must not pass as small. */
    if (!(fabs(difference) <= *most))
        *most = fabs(difference);
}

static void request_done(void *self, const struct splitwise_result *got)
{
    struct one_case *c = self;
    const struct sim_arrival *arrival = got->arrival;
    slo_request_add(&c->slo, arrival->prompt_tokens, arrival->output_tokens, got->ttft_s,
                    got->tbt_s, got->e2e_s);
    struct expected_row *want = reference_expected_take(&c->expected, arrival->id);
    if (want == NULL) {
        c->result.missing++;
        return;
    }
    widen(&c->result.ttft_difference_s, got->ttft_s - want->ttft_s);
    widen(&c->result.tbt_difference_s, got->tbt_s - want->tbt_s);
    widen(&c->result.e2e_difference_s, got->e2e_s - want->e2e_s);
}

static enum status simulate(const struct reference *r, struct one_case *c)
{
    char path[PATH_BYTES];
    struct sim_trace trace;
    snprintf(path, sizeof(path), "%s/traces/%s", r->directory, c->trace);
    int64_t begun_us = clock_now_us(&clock_system);
    enum status status = sim_trace_open(&trace, path, false, 0, r->error);
    if (status != ST_OK)
        return status;
    status = splitwise_run(&c->setup, &trace, request_done, c, &c->result.totals, r->error);
    c->result.wall_s = (double)(clock_now_us(&clock_system) - begun_us) / 1e6;
    sim_trace_close(&trace);
    return status;
}

static enum status case_run(const struct reference *r, struct one_case *c)
{
    char path[PATH_BYTES];
    c->result.name = c->name;
    enum status status = setup_read(r, c);
    if (status != ST_OK)
        return status;
    snprintf(path, sizeof(path), "%s/%s.csv", r->directory, c->name);
    status = reference_expected_read(&c->expected, path, r->error);
    if (status != ST_OK)
        return status;
    c->result.requests = c->expected.count;
    status = simulate(r, c);
    c->result.missing += reference_expected_untaken(&c->expected);
    struct slo_result slo;
    slo_result(&c->slo, &slo);
    c->result.slo_met = slo.met;
    c->result.slo_known &= c->slo.reference != NULL;
    c->result.same = c->result.missing == 0 &&
                     c->result.ttft_difference_s <= REFERENCE_TOLERANCE_S &&
                     c->result.tbt_difference_s <= REFERENCE_TOLERANCE_S &&
                     c->result.e2e_difference_s <= REFERENCE_TOLERANCE_S;
    reference_expected_done(&c->expected);
    return status;
}

/* ---- all of them ---- */

static enum status case_at(const struct reference *r, json_t *cases, size_t index,
                           struct one_case *c)
{
    json_t *item = json_array_get(cases, index);
    c->name = json_string_value(json_object_get(item, "case"));
    c->trace = json_string_value(json_object_get(item, "trace"));
    c->arguments = json_object_get(item, "arguments");
    const char *slo_ok = json_string_value(json_object_get(item, "slo_ok"));
    c->result.slo_known = slo_ok != NULL;
    c->result.reference_slo_met = slo_ok != NULL && strcmp(slo_ok, "True") == 0;
    if (c->name == NULL || c->trace == NULL || !json_is_object(c->arguments) ||
        strchr(c->name, '/') != NULL || strchr(c->trace, '/') != NULL)
        return error_set(r->error, ST_INVALID,
                         "%s: item %zu: want \"case\", \"trace\" and \"arguments\"", r->cases_path,
                         index);
    return ST_OK;
}

enum status reference_run(const char *directory, reference_case_call each, void *self,
                          struct error *error)
{
    struct reference r = {.directory = directory, .error = error};
    json_error_t why;
    snprintf(r.cases_path, sizeof(r.cases_path), "%s/cases.json", directory);
    snprintf(r.table_path, sizeof(r.table_path), "%s/perf_model.csv", directory);
    json_t *cases;
    enum status status = json_file_load(r.cases_path, 0, &cases, &why);
    if (status == ST_INVALID)
        return error_set(error, status, "%s:%d: %s", r.cases_path, why.line, why.text);
    if (status != ST_OK)
        return error_set(error, status, "%s: %s", r.cases_path, why.text);
    if (!json_is_array(cases)) {
        json_decref(cases);
        return error_set(error, ST_INVALID, "%s:1: want an array of cases", r.cases_path);
    }
    for (size_t i = 0; i < json_array_size(cases) && status == ST_OK; i++) {
        struct one_case *c = calloc(1, sizeof(*c));
        status =
            c == NULL ? error_set(error, ST_NO_MEMORY, "out of memory") : case_at(&r, cases, i, c);
        if (status == ST_OK)
            status = case_run(&r, c);
        if (status == ST_OK)
            each(self, &c->result);
        free(c);
    }
    json_decref(cases);
    return status;
}
