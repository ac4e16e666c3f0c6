/* plan_setup: see the header. */
#include "tools/plan/setup.h"

#include "common/random.h"
#include "tools/plan/profile.h"
#include "tools/plan/splits.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define ISO_MACHINES 40 /* The paper's budgets are those of 40 DGX-H100. */

/* The paper's clusters (section VI). */
static const struct {
    const char *name;
    const char *kinds; /* Kind for prompts and kind for tokens; one kind alone is a baseline. */
} paper[] = {
    {"Baseline-A100", "a100"},     {"Baseline-H100", "h100"},
    {"Splitwise-AA", "a100+a100"}, {"Splitwise-HH", "h100+h100"},
    {"Splitwise-HA", "h100+a100"}, {"Splitwise-HHcap", "h100+h100-capped"},
};
#define PAPER_COUNT (sizeof(paper) / sizeof(paper[0]))

/* ---- hardware ---- */

/* Takes the times of a kind from the table. */
static enum status kind_by_table(const struct plan_options *options, const char *path,
                                 const struct plan_inputs *inputs, struct plan_kind *kind,
                                 struct error *error)
{
    const struct hardware *hardware = &kind->hardware;
    if (hardware->table_hardware[0] == 0)
        return error_set(error, ST_INVALID,
                         "%s: its times are in a profile: want --profile instead of --table", path);
    if (hardware->memory_bytes <= inputs->model->weights_bytes)
        return error_set(error, ST_TOO_LARGE, "%s: %s does not fit its memory", path,
                         inputs->model->name);
    return cost_table_read(options->perf_model, inputs->model->name, hardware->table_hardware,
                           hardware->tensor_parallel, &kind->curve, error);
}

static enum status kind_add(const struct plan_options *options, const char *path,
                            struct plan_inputs *inputs, struct error *error)
{
    struct plan_kind *kind = &inputs->kinds[inputs->kind_count];
    const struct profile_device *device = NULL;
    hardware_find(path, kind->path);
    path = kind->path;
    enum status status = hardware_read(path, &kind->hardware, error);
    if (status != ST_OK)
        return status;
    for (uint32_t i = 0; i < inputs->kind_count; i++)
        if (strcmp(inputs->kinds[i].hardware.name, kind->hardware.name) == 0)
            return error_set(error, ST_INVALID, "%s: a second hardware named %s", path,
                             kind->hardware.name);
    inputs->kind_count++;
    if (inputs->profile == NULL)
        return kind_by_table(options, path, inputs, kind, error);
    if (kind->hardware.has_devices) {
        status = plan_splits_devices(inputs, kind, error);
        device = kind->cluster.kinds[0].device;
    } else {
        status = plan_profile_device(inputs->profile, &kind->hardware, &device, error);
        if (status == ST_OK && inputs->cores > 0 && device->ranks > 1)
            return error_set(error, ST_USAGE, "--cores: %s: machines with ranks cannot share cores",
                             path);
    }
    if (status == ST_OK && kind->hardware.power == 0)
        kind->hardware.power = fmax(device->prompt_w, device->token_w);
    if (status == ST_OK)
        plan_profile_curve(inputs->profile, device, &kind->curve);
    return status;
}

/* Loads the model or the profile, then the hardware files. */
static enum status hardware_all(const struct plan_options *options, struct plan_inputs *inputs,
                                struct error *error)
{
    static const char *const by_table[] = {"deploy/hardware/a100.json", "deploy/hardware/h100.json",
                                           "deploy/hardware/h100-capped.json"};
    static const char *const by_profile[] = {"deploy/hardware/cpu.json"};
    bool table = options->perf_model != NULL;
    uint32_t said = options->hardware.count;
    const char *const *paths = said > 0 ? options->hardware.texts : table ? by_table : by_profile;
    uint32_t count = said > 0 ? said : table ? 3 : 1;
    inputs->cores = (uint32_t)options->cores;
    inputs->draft_right = options->acceptance;
    inputs->draft_tokens = options->acceptance > 0 ? (uint32_t)options->draft_tokens : 0;
    enum status status = sim_tier_kinds_read(&options->tiers, inputs->tiers, error);
    if (status != ST_OK)
        return status;
    if (table) {
        inputs->model = splitwise_model_find(options->model);
        if (inputs->model == NULL)
            return error_set(error, ST_USAGE, "--model \"%.60s\": want bloom-176b or llama2-70b",
                             options->model);
        inputs->model_name = inputs->model->name;
    } else {
        status = profile_load(options->profile, &inputs->profile, error);
        if (status == ST_OK)
            inputs->model_name = inputs->profile->model.name;
    }
    for (uint32_t i = 0; i < count && status == ST_OK; i++)
        status = kind_add(options, paths[i], inputs, error);
    if (status == ST_OK && table)
        status = cost_table_read(options->perf_model, inputs->model->name, SPLITWISE_SLO_HARDWARE,
                                 SPLITWISE_TENSOR_PARALLEL, &inputs->slo_curve, error);
    else if (status == ST_OK)
        inputs->slo_curve = inputs->kinds[0].curve;
    return status;
}

/* ---- the SLO ---- */

static enum status slo_read(const char *text, struct plan_inputs *inputs, struct error *error)
{
    memcpy(inputs->limits, slo_limits, sizeof(inputs->limits));
    const char *at = text;
    for (int i = 0; i < SLO_MEASURES * SLO_QUANTILES && text != NULL; i++) {
        char *end;
        int quantile = i % SLO_QUANTILES;
        char wanted = i + 1 == SLO_MEASURES * SLO_QUANTILES ? 0
                      : quantile + 1 == SLO_QUANTILES       ? ','
                                                            : '/';
        double limit = strtod(at, &end);
        if (end == at || !(limit > 0 && limit <= 1e6) || *end != wanted)
            return error_set(error, ST_USAGE,
                             "--slo \"%.60s\": want nine numbers above 0, as "
                             "2/3/6,1.25/1.5/5,1.25/1.5/5",
                             text);
        inputs->limits[i / SLO_QUANTILES][quantile] = limit;
        at = end + 1;
    }
    return ST_OK;
}

/* ---- cells ---- */

static uint32_t kind_find(const struct plan_inputs *inputs, const char *name, size_t bytes)
{
    uint32_t i = 0;
    while (i < inputs->kind_count && (strlen(inputs->kinds[i].hardware.name) != bytes ||
                                      strncmp(inputs->kinds[i].hardware.name, name, bytes) != 0))
        i++;
    return i;
}

static enum status measure_read(const char *option, const char *text, size_t bytes,
                                enum plan_measure last, enum plan_measure *out, struct error *error)
{
    for (enum plan_measure measure = PLAN_COST; measure <= last; measure++)
        if (strlen(plan_measure_name(measure)) == bytes &&
            strncmp(plan_measure_name(measure), text, bytes) == 0) {
            *out = measure;
            return ST_OK;
        }
    return error_set(error, ST_USAGE, "--%s \"%.60s\": want cost%s, power%s%s", option, text,
                     last == PLAN_RATE ? "=X" : "", last == PLAN_RATE ? "=X" : "",
                     last == PLAN_RATE ? ", machines=N, rate=X, iso-power or iso-cost"
                                       : " or machines");
}

static enum status fixed_read(const struct plan_setup *setup, const char *text,
                              struct plan_cell *cell, struct error *error)
{
    cell->fixed_text = text;
    bool power = strcmp(text, "iso-power") == 0;
    if (power || strcmp(text, "iso-cost") == 0) {
        uint32_t kind = kind_find(&setup->inputs, "h100", 4);
        if (kind == setup->inputs.kind_count)
            return error_set(error, ST_USAGE, "--fixed %s: wants the hardware h100", text);
        const struct plan_mix mix = {
            .prompt_kind = kind, .token_kind = kind, .prompt_count = ISO_MACHINES};
        cell->fixed = power ? PLAN_POWER : PLAN_COST;
        cell->amount = plan_mix_amount(&setup->inputs, &mix, cell->fixed);
        return ST_OK;
    }
    size_t bytes = strcspn(text, "=");
    char *end = NULL;
    enum status status = measure_read("fixed", text, bytes, PLAN_RATE, &cell->fixed, error);
    if (status != ST_OK)
        return status;
    const char *number = text[bytes] == '=' ? text + bytes + 1 : "";
    cell->amount = strtod(number, &end);
    if (end == number || *end != 0 || !(cell->amount > 0 && cell->amount <= 1e9))
        return error_set(error, ST_USAGE, "--fixed \"%.60s\": want %s=X, X above 0, at most 1e9",
                         text, plan_measure_name(cell->fixed));
    return ST_OK;
}

/* Checks that the fixed number of machines may be tried, and that the trace has enough requests for
 * the fixed rate, or for at least one step. */
static enum status fixed_check(const struct plan_options *options, const struct plan_setup *setup,
                               const struct plan_cell *cell, struct error *error)
{
    const struct plan_requests *requests = &setup->inputs.requests;
    bool fixed = cell->fixed == PLAN_RATE;
    if (cell->fixed == PLAN_MACHINES && cell->amount != floor(cell->amount))
        return error_set(error, ST_USAGE, "--fixed \"%.60s\": want a whole number",
                         cell->fixed_text);
    if (cell->fixed == PLAN_MACHINES && cell->amount > (double)options->machines_max)
        return error_set(error, ST_USAGE, "--fixed \"%.60s\": more than --machines-most %llu",
                         cell->fixed_text, (unsigned long long)options->machines_max);
    if ((fixed ? cell->amount : options->step_per_s) <= requests->rate_max)
        return ST_OK;
    if (options->lengths_trace != NULL)
        return error_set(error, ST_USAGE, "--fixed \"%.60s\": more than --rate-most %g",
                         cell->fixed_text, options->rate_max_per_s);
    return error_set(error, ST_USAGE,
                     "--fixed \"%.60s\": %llu requests of %s last %g s at %.4g a second at most: "
                     "want more of them, a shorter --duration or a smaller %s",
                     cell->fixed_text, (unsigned long long)requests->count, requests->name,
                     requests->duration_s, requests->rate_max, fixed ? "rate" : "--step");
}

static enum status cell_append(struct plan_setup *setup, struct plan_cell *cell, const char *name,
                               const char *more, struct error *error)
{
    if (setup->cell_count == PLAN_CELLS_MAX)
        return error_set(error, ST_TOO_LARGE,
                         "more than %d clusters: each cluster counts once for each --fixed",
                         PLAN_CELLS_MAX);
    char *text = setup->names[setup->cell_count];
    snprintf(text, sizeof(setup->names[0]), "%.60s%s", name, more);
    cell->name = text;
    setup->cells[setup->cell_count++] = *cell;
    return ST_OK;
}

/* Adds a cell. If its machines have several devices and do both phases, adds two cells: one with
 * the layer split of token machines and one with that of prompt machines. */
static enum status cell_add(struct plan_setup *setup, const struct plan_cell *like,
                            const char *name, const char *kinds, struct error *error)
{
    const struct plan_inputs *inputs = &setup->inputs;
    size_t bytes = strcspn(kinds, "+");
    struct plan_cell cell = *like;
    cell.split = kinds[bytes] == '+';
    const char *tokens = cell.split ? kinds + bytes + 1 : kinds;
    cell.prompt_kind = kind_find(inputs, kinds, bytes);
    cell.token_kind = cell.split ? kind_find(inputs, tokens, strlen(tokens)) : cell.prompt_kind;
    if (cell.prompt_kind == inputs->kind_count || cell.token_kind == inputs->kind_count)
        return error_set(error, ST_USAGE,
                         "--clusters \"%.60s\": want PROMPT+TOKEN or KIND, names of --hardware "
                         "files; or paper, or a name of the paper's",
                         name);
    const struct plan_kind *kind = &inputs->kinds[cell.prompt_kind];
    if (cell.split || kind->prompt_split == NULL ||
        machine_split_equals(kind->prompt_split, kind->token_split))
        return cell_append(setup, &cell, name, "", error);
    enum status status = cell_append(setup, &cell, name, " (tokens)", error);
    cell.prompt_layer_split = true;
    return status == ST_OK ? cell_append(setup, &cell, name, " (prompts)", error) : status;
}

/* Adds a baseline of every kind and every pair of kinds. */
static enum status cells_all(struct plan_setup *setup, const struct plan_cell *like,
                             struct error *error)
{
    const struct plan_inputs *inputs = &setup->inputs;
    enum status status = ST_OK;
    for (uint32_t i = 0; i < inputs->kind_count && status == ST_OK; i++) {
        const char *prompts = inputs->kinds[i].hardware.name;
        status = cell_add(setup, like, prompts, prompts, error);
        for (uint32_t j = 0; j < inputs->kind_count && status == ST_OK; j++) {
            char name[72];
            snprintf(name, sizeof(name), "%s+%s", prompts, inputs->kinds[j].hardware.name);
            status = cell_add(setup, like, name, name, error);
        }
    }
    return status;
}

static enum status cells_named(struct plan_setup *setup, const struct plan_cell *like,
                               const char *text, struct error *error)
{
    bool all = strcmp(text, "paper") == 0;
    bool known = false;
    enum status status = ST_OK;
    for (size_t i = 0; i < PAPER_COUNT && status == ST_OK; i++)
        if (all || strcasecmp(text, paper[i].name) == 0) {
            known = true;
            status = cell_add(setup, like, paper[i].name, paper[i].kinds, error);
        }
    return known ? status : cell_add(setup, like, text, text, error);
}

static enum status cells_read(const struct plan_options *options, struct plan_setup *setup,
                              struct error *error)
{
    struct plan_cell cell = {.name = NULL};
    enum status status = measure_read("least", options->minimize, strlen(options->minimize),
                                      PLAN_MACHINES, &cell.minimize, error);
    for (uint32_t i = 0; i < options->budgets.count && status == ST_OK; i++) {
        status = fixed_read(setup, options->budgets.texts[i], &cell, error);
        if (status == ST_OK)
            status = fixed_check(options, setup, &cell, error);
        if (status == ST_OK && options->clusters.count == 0)
            status = cells_all(setup, &cell, error);
        for (uint32_t j = 0; j < options->clusters.count && status == ST_OK; j++)
            status = cells_named(setup, &cell, options->clusters.texts[j], error);
    }
    return status;
}

/* ---- the parts together ---- */

static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t count)
{
    const unsigned char *at = bytes;
    for (size_t i = 0; i < count; i++)
        hash = random_at(hash, at[i]);
    return hash;
}

static uint64_t hash_split(uint64_t hash, const struct machine_split *split)
{
    if (split == NULL)
        return hash;
    hash = hash_bytes(hash, &split->device_link.bandwidth_bytes_per_s, sizeof(double));
    hash = hash_bytes(hash, &split->device_link.latency_us, sizeof(double));
    for (uint32_t i = 0; i < split->plan.stage_count; i++) {
        const struct partition_stage *stage = &split->plan.stages[i];
        const char *device = split->cluster.kinds[stage->kind].device->name;
        const uint32_t numbers[] = {stage->first, stage->end, stage->replicas};
        hash = hash_bytes(hash, numbers, sizeof(numbers));
        hash = hash_bytes(hash, device, strlen(device));
    }
    return hash;
}

static uint64_t hash_of(const struct plan_inputs *inputs)
{
    uint64_t hash = inputs->requests.hash;
    hash = hash_bytes(hash, &inputs->requests.duration_s, sizeof(double));
    hash = hash_bytes(hash, inputs->model_name, strlen(inputs->model_name));
    hash = hash_bytes(hash, inputs->limits, sizeof(inputs->limits));
    hash = hash_bytes(hash, &inputs->cores, sizeof(inputs->cores));
    for (int kind = 0; kind < TIER_KIND_COUNT; kind++)
        if (inputs->tiers[kind].bytes > 0)
            hash = random_at(hash_bytes(hash, &inputs->tiers[kind], sizeof(inputs->tiers[kind])),
                             (uint64_t)kind);
    if (inputs->draft_tokens > 0)
        hash = random_at(hash_bytes(hash, &inputs->draft_right, sizeof(inputs->draft_right)),
                         inputs->draft_tokens);
    for (uint32_t i = 0; i <= inputs->kind_count; i++) {
        const struct cost_curve *curve =
            i < inputs->kind_count ? &inputs->kinds[i].curve : &inputs->slo_curve;
        hash = hash_bytes(hash, curve->tokens, curve->count * sizeof(double));
        hash = hash_bytes(hash, curve->prompt_s, curve->count * sizeof(double));
        hash = hash_bytes(hash, curve->token_s, curve->count * sizeof(double));
        if (i == inputs->kind_count)
            break;
        const struct hardware *hardware = &inputs->kinds[i].hardware;
        hash = hash_bytes(hash, &hardware->memory_bytes, sizeof(hardware->memory_bytes));
        hash = hash_bytes(hash, &hardware->kv_memory_bytes, sizeof(hardware->kv_memory_bytes));
        hash = hash_bytes(hash, hardware->device, strlen(hardware->device));
        hash = hash_bytes(hash, &hardware->threads, sizeof(hardware->threads));
        hash = hash_bytes(hash, hardware->host, strlen(hardware->host));
        hash = hash_bytes(hash, &hardware->link_bytes_per_s, sizeof(hardware->link_bytes_per_s));
        hash = hash_split(hash, inputs->kinds[i].prompt_split);
        hash = hash_split(hash, inputs->kinds[i].token_split);
    }
    return hash;
}

/* Adds the whole profile, in its written form, to the hash. */
static enum status profile_hash(const struct profile *profile, uint64_t *hash, struct error *error)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    if (file == NULL)
        return error_set(error, ST_NO_MEMORY, "out of memory");
    enum status status = profile_write(profile, file, error);
    if (fclose(file) != 0 && status == ST_OK)
        status = error_set(error, ST_NO_MEMORY, "out of memory");
    if (status == ST_OK)
        *hash = hash_bytes(*hash, text, bytes);
    free(text);
    return status;
}

/* Rates for which a trace does not have enough requests are not tried. */
static enum status requests_make(const struct plan_options *o, struct plan_setup *setup,
                                 struct error *error)
{
    struct plan_requests *requests = &setup->inputs.requests;
    enum status status = o->trace != NULL
                             ? plan_requests_read(requests, o->trace, o->seed, o->duration_s, error)
                             : plan_requests_draw(requests, o->lengths_trace, o->lengths_paired,
                                                  o->seed, o->duration_s, o->rate_max_per_s, error);
    setup->rate_max = fmin(o->rate_max_per_s, requests->rate_max);
    return status;
}

enum status plan_setup_read(const struct plan_options *options, struct plan_setup *setup,
                            struct error *error)
{
    *setup = (struct plan_setup){.cell_count = 0};
    struct plan_inputs *inputs = &setup->inputs;
    enum status status = hardware_all(options, inputs, error);
    if (status == ST_OK)
        status = slo_read(options->slo, inputs, error);
    if (status == ST_OK)
        status = requests_make(options, setup, error);
    if (status == ST_OK && inputs->profile != NULL)
        status = plan_splits_find(inputs, error);
    if (status == ST_OK)
        status = cells_read(options, setup, error);
    if (status == ST_OK)
        setup->inputs_hash = hash_of(inputs);
    if (status == ST_OK && inputs->profile != NULL)
        status = profile_hash(inputs->profile, &setup->inputs_hash, error);
    return status;
}

void plan_setup_done(struct plan_setup *setup)
{
    plan_requests_done(&setup->inputs.requests);
    plan_splits_done(&setup->inputs);
    profile_close(setup->inputs.profile);
    setup->inputs.profile = NULL;
}
