/* doctor_json: the report as JSON; docs/operation.md describes its keys. */
#include "tools/doctor/report.h"

#include <jansson.h>
#include <math.h>

/* null = no limit, or not known. */
static json_t *limit(uint64_t value)
{
    return value == 0 || value > INT64_MAX ? json_null() : json_integer((json_int_t)value);
}

static json_t *text(const char *value)
{
    return value[0] != 0 ? json_string(value) : json_null();
}

static json_t *host_json(const struct doctor_host *host)
{
    return json_pack("{so so so so si si sI sI so so so so so so so}", "processor",
                     text(host->processor), "features", text(host->features), "compute",
                     text(host->compute), "compute_error", text(host->compute_why), "cores",
                     (int)host->cores_online, "cores_usable", (int)host->cores_usable,
                     "memory_bytes", (json_int_t)host->memory_bytes, "available_bytes",
                     (json_int_t)host->available_bytes, "huge_pages", text(host->huge_pages),
                     "huge_pages_shared", text(host->huge_pages_shared), "shmmax_bytes",
                     limit(host->shmmax_bytes), "shmall_bytes", limit(host->shmall_bytes), "shmmni",
                     limit(host->shmmni), "dev_shm_bytes", limit(host->dev_shm_bytes),
                     "memlock_bytes", limit(host->memlock_bytes));
}

static json_t *gpu_list_json(const struct doctor_gpus *gpus)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < gpus->count; i++) {
        const struct doctor_gpu *gpu = &gpus->gpus[i];
        json_array_append_new(list,
                              json_pack("{ss ss sI sI ss so}", "device", gpu->device, "text",
                                        gpu->description, "free_bytes", (json_int_t)gpu->free_bytes,
                                        "total_bytes", (json_int_t)gpu->total_bytes, "kv_transfer",
                                        transport_memory_way_name(gpu->way), "kv_transfer_why",
                                        text(gpu->way_note)));
    }
    return list;
}

static json_t *copies_json(const struct doctor_report *report)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < report->copy_count; i++) {
        const struct doctor_copy *copy = &report->copies[i];
        json_array_append_new(list, json_pack("{ss ss so so sf sI sf so}", "from", copy->from, "to",
                                              copy->to, "path", text(copy->path), "not_ipc_why",
                                              text(copy->note), "bandwidth_bytes_per_s",
                                              copy->bandwidth_bytes_per_s, "layer_bytes",
                                              (json_int_t)copy->layer_bytes, "layer_us",
                                              copy->layer_write_us, "error", text(copy->failure)));
    }
    return list;
}

static json_t *gpus_json(const struct doctor_report *report)
{
    return json_pack("{so so so}", "list", gpu_list_json(&report->gpus), "copies",
                     copies_json(report), "error", text(report->gpus.end_why));
}

static json_t *ucx_json(const struct doctor_report *report)
{
    json_t *resources = json_array();
    for (uint32_t i = 0; i < report->ucx.resource_count; i++)
        json_array_append_new(resources, json_string(report->ucx.resources[i]));
    return json_pack("{so so so sb so}", "version", text(report->ucx.version), "resources",
                     resources, "memory_types", text(report->ucx.memory_types), "cuda",
                     (int)report->ucx.cuda, "error", text(report->ucx_why));
}

static json_t *paths_json(const struct doctor_report *report)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < report->paths.count; i++) {
        const struct doctor_path *path = &report->paths.paths[i];
        json_array_append_new(list,
                              json_pack("{ss ss sI si sf sf}", "transport", path->transport, "path",
                                        path->path, "bandwidth_bytes_per_s",
                                        (json_int_t)llround(path->bandwidth_bytes_per_s),
                                        "layer_bytes", (int)path->layer_bytes, "layer_us",
                                        path->layer_write_us, "latency_us", path->latency_us));
    }
    return json_pack("{so so so}", "list", list, "error", text(report->paths_why), "note",
                     text(report->region_why));
}

bool doctor_json_write(const struct doctor_report *report, FILE *out)
{
    json_t *root = json_pack("{so so so so sb so sf}", "host", host_json(&report->host), "gpus",
                             gpus_json(report), "ucx", ucx_json(report), "paths",
                             paths_json(report), "can_serve", (int)report->can_serve, "why_not",
                             text(report->why_not), "took_s", report->checks_s);
    bool good = root != NULL && json_dumpf(root, out, JSON_INDENT(2) | JSON_REAL_PRECISION(6)) == 0;
    json_decref(root);
    fprintf(out, "\n");
    return good;
}
