/* partition: checks a problem and allocates the memory for it. */
#include "tools/partition/solver/state.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* of one layer, end or workspace: sums of LIMIT_LAYERS of them do not overflow */
#define BYTES_MAX (1ull << 50)

static enum status check_counts(const struct partition_problem *q, struct error *error)
{
    if (q->layer_count == 0 || q->layer_count > LIMIT_LAYERS)
        return error_set(error, ST_INVALID, "%u layers: want 1 to %u", q->layer_count,
                         LIMIT_LAYERS);
    if (q->kind_count == 0 || q->kind_count > PARTITION_KINDS_MAX)
        return error_set(error, ST_TOO_LARGE, "%u kinds of devices: want 1 to %u", q->kind_count,
                         PARTITION_KINDS_MAX);
    if (q->host_count == 0 || q->host_count > PARTITION_HOSTS_MAX)
        return error_set(error, ST_TOO_LARGE, "%u kinds of hosts: want 1 to %u", q->host_count,
                         PARTITION_HOSTS_MAX);
    uint64_t devices = 0;
    for (uint32_t t = 0; t < q->host_count; t++)
        for (uint32_t k = 0; k < q->kind_count; k++) {
            if (q->hosts[t].count > PARTITION_DEVICES_MAX ||
                q->hosts[t].devices[k] > PARTITION_DEVICES_MAX)
                return error_set(error, ST_TOO_LARGE,
                                 "%u hosts with %u devices of kind %s: want at most %u devices",
                                 q->hosts[t].count, q->hosts[t].devices[k], q->kinds[k].name,
                                 PARTITION_DEVICES_MAX);
            devices += (uint64_t)q->hosts[t].count * q->hosts[t].devices[k];
        }
    if (devices == 0 || devices > PARTITION_DEVICES_MAX)
        return error_set(error, ST_TOO_LARGE, "%" PRIu64 " devices: want 1 to %u", devices,
                         PARTITION_DEVICES_MAX);
    if (q->stage_count > q->layer_count || q->stage_count > devices)
        return error_set(error, ST_INVALID, "%u stages for %u layers and %" PRIu64 " devices",
                         q->stage_count, q->layer_count, devices);
    return ST_OK;
}

static enum status check_time(uint64_t ns, const char *what, const char *of, struct error *error)
{
    if (ns <= PARTITION_TIME_MAX)
        return ST_OK;
    return error_set(error, ST_TOO_LARGE, "%s %s takes %" PRIu64 " ns: want at most %llu", what, of,
                     ns, PARTITION_TIME_MAX);
}

static enum status check_times(const struct partition_problem *q, struct error *error)
{
    enum status status = ST_OK;
    for (uint32_t k = 0; k < q->kind_count && status == ST_OK; k++) {
        const struct partition_kind *kind = &q->kinds[k];
        status = check_time(kind->stage_ns, "a stage on", kind->name, error);
        if (status == ST_OK)
            status =
                check_time(kind->first_ns, "the work before the first layer on", kind->name, error);
        if (status == ST_OK)
            status =
                check_time(kind->last_ns, "the work after the last layer on", kind->name, error);
        for (uint32_t i = 0; i < q->layer_count && status == ST_OK; i++) {
            status = check_time(kind->layer_ns[i], "a layer on", kind->name, error);
            if (kind->layer_ns[i] == 0)
                status = error_set(error, ST_INVALID, "a layer takes no time on %s", kind->name);
            if (status != ST_OK)
                error_prefix(error, "layer %u", i);
        }
    }
    const uint64_t links[6] = {q->inside_host.busy_ns,    q->inside_host.delay_ns,
                               q->return_inside_host_ns,  q->between_hosts.busy_ns,
                               q->between_hosts.delay_ns, q->return_between_hosts_ns};
    for (int i = 0; i < 6 && status == ST_OK; i++)
        status = check_time(links[i], "a link", i < 3 ? "inside a host" : "between hosts", error);
    if (status == ST_OK && q->return_inside_host_ns > q->return_between_hosts_ns)
        return error_set(error, ST_INVALID,
                         "the way of a token back to the first stage takes %" PRIu64
                         " ns inside a host, %" PRIu64 " between hosts: want no more inside",
                         q->return_inside_host_ns, q->return_between_hosts_ns);
    return status;
}

static enum status check_bytes(const struct partition_problem *q, struct error *error)
{
    uint64_t most = q->first_bytes > q->last_bytes ? q->first_bytes : q->last_bytes;
    most = q->workspace_bytes > most ? q->workspace_bytes : most;
    for (uint32_t i = 0; i < q->layer_count; i++)
        most = q->layer_bytes[i] > most ? q->layer_bytes[i] : most;
    if (most > BYTES_MAX)
        return error_set(error, ST_TOO_LARGE, "%" PRIu64 " bytes of a layer, an end or workspace",
                         most);
    if (q->shared_bytes > q->last_bytes)
        return error_set(error, ST_INVALID,
                         "the ends share %" PRIu64 " bytes: the last one has %" PRIu64,
                         q->shared_bytes, q->last_bytes);
    return ST_OK;
}

/* True if the least common multiple of all replica counts up to the largest is within paths_max, so
 * that paths_max excludes nothing. */
static bool paths_free(const struct partition *p)
{
    uint64_t paths = 1;
    for (uint32_t k = 0; k < p->kinds; k++)
        for (uint32_t r = 1; r <= p->replicas_max[k] && paths <= p->paths_max; r++)
            for (uint64_t once = paths; paths % r != 0;)
                paths += once;
    return paths <= p->paths_max;
}

static void copy(const struct partition_problem *q, struct partition *p)
{
    p->layers = q->layer_count;
    p->kinds = q->kind_count;
    p->host_kinds = q->host_count;
    p->stages = q->stage_count;
    p->paths_max = q->paths_max;
    p->shared_bytes = q->shared_bytes;
    p->workspace_bytes = q->workspace_bytes;
    p->inside_host = q->inside_host;
    p->between_hosts = q->between_hosts;
    p->return_inside_host_ns = q->return_inside_host_ns;
    p->return_between_hosts_ns = q->return_between_hosts_ns;
    memcpy(p->hosts, q->hosts, q->host_count * sizeof(p->hosts[0]));
    for (uint32_t i = 0; i < p->layers; i++) {
        bool last = i + 1 == p->layers;
        p->bytes[i + 1] = p->bytes[i] + q->layer_bytes[i] + (i == 0 ? q->first_bytes : 0) +
                          (last ? q->last_bytes : 0);
        for (uint32_t k = 0; k < p->kinds; k++)
            p->time_ns[k][i + 1] = p->time_ns[k][i] + q->kinds[k].layer_ns[i] +
                                   (i == 0 ? q->kinds[k].first_ns : 0) +
                                   (last ? q->kinds[k].last_ns : 0);
    }
    for (uint32_t k = 0; k < p->kinds; k++) {
        p->stage_ns[k] = q->kinds[k].stage_ns;
        p->memory_bytes_of[k] = q->kinds[k].memory_bytes;
        for (uint32_t t = 0; t < p->host_kinds; t++) {
            uint32_t devices = q->replicas ? p->hosts[t].count * p->hosts[t].devices[k]
                                           : p->hosts[t].count > 0 && p->hosts[t].devices[k] > 0;
            if (devices > p->replicas_max[k])
                p->replicas_max[k] = devices;
        }
    }
    if (paths_free(p))
        p->paths_max = 0;
}

static enum status take_memory(struct partition *p, struct error *error)
{
    bool counted = partition_states_count(p);
    p->width = (p->layers + 1 + 7) / 8 * 8;
    uint64_t rows = counted ? p->states - (p->slots - 1) : 0;
    uint64_t reach = (uint64_t)p->kinds * (PARTITION_DEVICES_MAX + 1) * p->width;
    uint64_t labels = rows * p->width;
    p->memory_bytes = sizeof(*p) + 2 * reach * sizeof(p->reach[0]) +
                      labels * (sizeof(p->best_score[0]) + sizeof(p->label[0])) +
                      (counted ? 3 * p->states * sizeof(p->furthest_end[0]) : 0);
    if (!counted || p->memory_bytes > PARTITION_MEMORY_MAX)
        return error_set(error, ST_TOO_LARGE,
                         "too many ways to use the devices: their table would take more than "
                         "%llu MiB%s",
                         PARTITION_MEMORY_MAX >> 20,
                         p->stages > 0 ? " (it is smaller without a number of stages)" : "");
    p->reach = calloc(reach, sizeof(p->reach[0]));
    p->reach_back = calloc(reach, sizeof(p->reach_back[0]));
    p->furthest_end = calloc(p->states, sizeof(p->furthest_end[0]));
    p->earliest_first = calloc(p->states, sizeof(p->earliest_first[0]));
    p->rest_first = calloc(p->states, sizeof(p->rest_first[0]));
    p->best_score = malloc(labels * sizeof(p->best_score[0]));
    p->label = malloc(labels * sizeof(p->label[0]));
    if (p->reach == NULL || p->reach_back == NULL || p->furthest_end == NULL ||
        p->earliest_first == NULL || p->rest_first == NULL || p->best_score == NULL ||
        p->label == NULL)
        return error_set(error, ST_NO_MEMORY, "no memory for %" PRIu64 " bytes", p->memory_bytes);
    return ST_OK;
}

/* Sets an error that says which layer no device holds, or how many layers the devices hold. */
static enum status unfit(const struct partition *p, const struct partition_problem *q, uint32_t end,
                         struct error *error)
{
    uint32_t largest = 0;
    for (uint32_t k = 0; k < p->kinds; k++)
        if (p->replicas_max[k] > 0 &&
            (p->replicas_max[largest] == 0 || p->memory_bytes_of[k] > p->memory_bytes_of[largest]))
            largest = k;
    for (uint32_t i = 0; i < p->layers; i++) {
        uint64_t bytes = partition_run_bytes(p, i, i + 1);
        const char *besides = i == 0               ? " with the embedding"
                              : i + 1 == p->layers ? " with the vocabulary"
                                                   : "";
        if (bytes > p->memory_bytes_of[largest])
            return error_set(error, ST_INVALID,
                             "no device holds layer %u%s: it needs %" PRIu64
                             " bytes, the largest (%s) has %" PRIu64,
                             i, besides, bytes, q->kinds[largest].name,
                             p->memory_bytes_of[largest]);
    }
    return error_set(error, ST_INVALID,
                     "the devices' memory holds %u of %u layers (which need %" PRIu64
                     " bytes in all)",
                     end, p->layers, p->bytes[p->layers]);
}

/* Checks that some plan exists. */
static enum status check_fit(struct partition *p, const struct partition_problem *q,
                             struct error *error)
{
    const struct partition_bound any = {.interval = PARTITION_INTERVAL_ANY,
                                        .pace_ns = PARTITION_PACE_ANY};
    uint32_t end = partition_reach(p, &any);
    struct partition_plan plan;
    if (end < p->layers)
        return unfit(p, q, end, error);
    if (p->stages > 0 && !partition_shortest_find(p, &any, UINT64_MAX, &plan))
        return error_set(error, ST_INVALID,
                         "%u layers do not fit into the devices' memory as %u stages", p->layers,
                         p->stages);
    return ST_OK;
}

enum status partition_open(const struct partition_problem *problem, struct partition **out,
                           struct error *error)
{
    enum status status = check_counts(problem, error);
    if (status == ST_OK)
        status = check_times(problem, error);
    if (status == ST_OK)
        status = check_bytes(problem, error);
    if (status != ST_OK)
        return status;
    struct partition *p = calloc(1, sizeof(*p));
    if (p == NULL)
        return error_set(error, ST_NO_MEMORY, "no memory");
    copy(problem, p);
    status = take_memory(p, error);
    if (status == ST_OK)
        status = check_fit(p, problem, error);
    if (status != ST_OK) {
        partition_close(p);
        return status;
    }
    *out = p;
    return ST_OK;
}

void partition_close(struct partition *p)
{
    if (p == NULL)
        return;
    free(p->reach);
    free(p->reach_back);
    free(p->furthest_end);
    free(p->earliest_first);
    free(p->rest_first);
    free(p->best_score);
    free(p->label);
    free(p);
}
