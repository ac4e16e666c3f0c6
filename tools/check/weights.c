/* check_weights: whether the machines of this host can load their parts of the model's files. The
 * functions that plan and load at a machine's start do it here, too, with a device that keeps no
 * weights. */
#include "tools/check/check.h"

#include "compute/compute.h"
#include "machine/executor/shape.h"
#include "model/file/model_file.h"

#include <string.h>

/* The waiting backend keeps no weights. A model may need the operations `latent` and `low_rank`,
 * which it does not have: model_open looks only whether they are there, and nothing is computed. */
static enum status device_open_empty(struct compute_ops *ops_out, struct compute **out,
                                     struct error *error)
{
    const struct compute_options options = {.threads = 1};
    *ops_out = compute_wait;
    ops_out->latent = compute_cpu.latent;
    ops_out->low_rank = compute_cpu.low_rank;
    return ops_out->open(&options, out, error);
}

/* part: the layers and the rank; NULL = all layers. */
static enum status load_try(const struct model_file *file, const struct stage_plan_process *part,
                            bool draft_layer, struct error *error)
{
    struct compute_ops ops;
    struct model_options options = {.ops = &ops, .draft_layer = draft_layer};
    struct model *model = NULL;
    enum status status = device_open_empty(&ops, &options.compute, error);
    if (status != ST_OK)
        return status;
    if (part != NULL) {
        options.first_layer = part->first_layer;
        options.end_layer = part->end_layer;
        options.rank = part->shard.rank;
        options.rank_count = part->shard.rank_count;
    }
    status = model_open(file, &options, &model, error);
    model_close(model);
    ops.close(options.compute);
    return status;
}

static enum status machine_try(const struct model_file *file, const struct stage_plan *plan,
                               struct error *error)
{
    enum status status = ST_OK;
    if (plan->process_count == 0)
        return load_try(file, NULL, false, error);
    for (uint32_t i = 0; i < plan->process_count && status == ST_OK; i++)
        status = load_try(file, &plan->processes[i], false, error);
    return status;
}

/* If the draft model cannot be opened, serve_check has reported the reason. */
static void draft_check(const struct check_machines_options *options,
                        const struct check_report *report)
{
    const char *key = config_draft_key(options->config);
    struct model_file *file;
    struct error error;
    if (draft_shape_file_open(options->config, NULL, &file, &error) != ST_OK)
        return;
    if (load_try(file, NULL, options->config->scheduler.draft_layer, &error) != ST_OK)
        check_say(report, CHECK_ERROR, key, "%s", error.text);
    model_file_close(file);
}

/* Returns true if a machine before this one has the same stages, and so loads the same tensors. */
static bool is_repeated(const struct check_machines_options *options, uint32_t index)
{
    const struct config_machine *machines = options->config->machines, *own = &machines[index];
    for (uint32_t i = 0; i < index; i++)
        if (check_machine_is_here(options, i) && strcmp(machines[i].stages, own->stages) == 0 &&
            machines[i].tensor_parallel == own->tensor_parallel)
            return true;
    return false;
}

static void machine_check(const struct check_machines_options *options, uint32_t index,
                          const struct model_file *file, const struct model_hyper *hyper,
                          const struct check_report *report)
{
    const struct config_machine *machine = &options->config->machines[index];
    struct stage_plan plan;
    struct error error;
    if (stage_plan_make(options->config, machine, hyper, model_file_metadata_hash(file), &plan,
                        &error) != ST_OK)
        check_say(report, CHECK_ERROR, "", "%s", error.text);
    else if (!options->is_deep || is_repeated(options, index))
        return;
    else if (machine_try(file, &plan, &error) != ST_OK)
        check_say(report, CHECK_ERROR, "model", "machine %s: %s", machine->name, error.text);
    else
        check_say(report, CHECK_GOOD, "model", "machine %s finds all its tensors", machine->name);
}

void check_weights(const struct check_machines_options *options, const struct check_report *report)
{
    const struct config *config = options->config;
    struct model_file *file;
    struct model_hyper hyper;
    struct error error;
    bool drafts = false;
    if (options->files.model == 0) /* The reason has been reported. */
        return;
    if (machine_shape_file_open(config, &file, &error) != ST_OK) {
        check_say(report, CHECK_ERROR, "model", "%s", error.text);
        return;
    }
    if (model_hyper_read(file, &hyper, &error) != ST_OK)
        check_say(report, CHECK_ERROR, "model", "%s", error.text);
    else
        for (uint32_t i = 0; i < config->machine_count; i++)
            if (check_machine_is_here(options, i)) {
                machine_check(options, i, file, &hyper, report);
                drafts = drafts || config_machine_drafts(config, &config->machines[i]);
            }
    model_file_close(file);
    if (drafts && options->is_deep)
        draft_check(options, report);
}
