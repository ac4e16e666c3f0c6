/* check_machines: machines on this host (device, threads, memory, address), and whether the others
 * can be found. */
#include "tools/check/check.h"

#include "common/cores.h"
#include "common/device_name.h"
#include "common/memory.h"
#include "compute/compute.h"
#include "transport/address.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CONNECT_MS 3000

bool check_machine_is_here(const struct check_machines_options *options, uint32_t index)
{
    return options->machine_index >= 0 ? (int)index == options->machine_index
                                       : options->config->machines[index].local;
}

/* ---- devices ---- */

/* Checks that there is such a device; `deep`: that it can be opened. A missing GPU is a warning if
 * the machine then computes on the CPU. */
static void device_check(const char *key, const char *device, bool fallback, bool deep,
                         const struct check_report *report)
{
    const struct compute_ops *ops;
    struct compute_options options = {.threads = 1};
    struct compute *compute = NULL;
    struct error error;
    enum status status = compute_device_find(device, &ops, &options, &error);
    if (status == ST_OK && deep)
        status = ops->open(&options, &compute, &error);
    if (status != ST_OK && device_name_gpu(device, NULL) && fallback)
        check_say(report, CHECK_WARNING, key, "%s: the machine will compute on the CPU",
                  error.text);
    else if (status != ST_OK)
        check_say(report, CHECK_ERROR, key, "%s", error.text);
    else
        check_say(report, CHECK_GOOD, key, "%s",
                  compute != NULL && device_name_gpu(device, NULL) ? ops->describe(compute)
                                                                   : device);
    if (compute != NULL)
        ops->close(compute);
}

static void devices_check(const struct check_machines_options *options,
                          const struct config_machine *machine, const struct check_report *report)
{
    char key[LIMIT_NAME_BYTES + 40];
    struct config_stages stages;
    config_stages(machine, &stages);
    snprintf(key, sizeof(key), "machines/%s/%s", machine->name,
             stages.count > 0 ? "stages" : "device");
    if (stages.count == 0)
        device_check(key, machine->device, machine->cpu_fallback, options->is_deep, report);
    for (uint32_t i = 0; i < stages.count; i++) {
        const struct config_stage *stage = &stages.stages[i];
        bool again = i > 0 && strcmp(stage->device, stages.stages[i - 1].device) == 0;
        if (stage->address[0] == 0 && !again)
            device_check(key, stage->device, machine->cpu_fallback, options->is_deep, report);
    }
    snprintf(key, sizeof(key), "machines/%s/threads", machine->name);
    if (machine->threads > cores_usable() && strcmp(machine->device, "cpu") == 0)
        check_say(report, CHECK_WARNING, key, "%u threads, and this process has %u cores",
                  machine->threads, cores_usable());
}

/* ---- memory ---- */

static void memory_check(const struct check_machines_options *options,
                         const struct check_report *report)
{
    struct config_host_memory need = {0};
    uint64_t available, tiers_bytes = 0;
    uint32_t count = 0;
    for (uint32_t i = 0; i < options->config->machine_count; i++) {
        const struct config_machine *machine = &options->config->machines[i];
        if (!check_machine_is_here(options, i) || device_name_gpu(machine->device, NULL))
            continue;
        config_machine_memory_add(options->config, machine, &options->files, &need);
        /* A token machine stores nothing there (machine/tiers.c). */
        tiers_bytes += machine->pool != POOL_TOKEN ? options->config->kv.tiers.memory.bytes : 0;
        count++;
    }
    if (count == 0 || options->files.model == 0 || memory_available("", &available) != ST_OK)
        return;
    const uint64_t bytes = need.weights_and_process_bytes + need.kv_bytes + tiers_bytes;
    check_say(
        report, bytes > available ? CHECK_ERROR : CHECK_GOOD, "kv/memory",
        "%u machine%s on CPUs of this host: %llu MiB (weights %llu, KV %llu, tier memory %llu); "
        "%llu MiB are available%s",
        count, count == 1 ? "" : "s", (unsigned long long)(bytes >> 20),
        (unsigned long long)(need.weights_and_process_bytes >> 20),
        (unsigned long long)(need.kv_bytes >> 20), (unsigned long long)(tiers_bytes >> 20),
        (unsigned long long)(available >> 20),
        bytes > available ? ": smaller pools, kv/memory or kv/tiers/memory/size" : "");
}

/* ---- addresses ---- */

/* Connects to a host that is up within CONNECT_MS. */
static enum status connect_try(const struct address_found *found, const char *text,
                               struct error *error)
{
    int failed = ETIMEDOUT;
    for (uint32_t i = 0; i < found->count && failed != 0; i++) {
        int fd =
            socket(found->list[i].address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (fd < 0)
            return error_set(error, ST_IO, "%s: %s", text, strerror(errno));
        socklen_t bytes = sizeof(failed);
        struct pollfd wait = {.fd = fd, .events = POLLOUT};
        failed =
            connect(fd, (const struct sockaddr *)&found->list[i].address, found->list[i].bytes) == 0
                ? 0
                : errno;
        if (failed == EINPROGRESS) {
            failed = ETIMEDOUT;
            if (poll(&wait, 1, CONNECT_MS) > 0)
                getsockopt(fd, SOL_SOCKET, SO_ERROR, &failed, &bytes);
        }
        close(fd);
    }
    return failed == 0
               ? ST_OK
               : error_set(error, ST_UNREACHABLE, "%s: cannot connect: %s", text, strerror(failed));
}

static void peer_check(const char *key, const char *text, bool deep,
                       const struct check_report *report)
{
    struct address address;
    struct address_found found;
    struct error error;
    enum status status = address_parse(text, &address, &error);
    if (status == ST_OK)
        status = address_resolve(&address, false, &found, &error);
    if (status == ST_OK && deep) {
        status = connect_try(&found, text, &error);
        if (status != ST_OK) { /* It may start later. */
            check_say(report, CHECK_WARNING, key, "%s", error.text);
            return;
        }
    }
    if (status != ST_OK)
        check_say(report, CHECK_ERROR, key, "%s", error.text);
    else
        check_say(report, CHECK_GOOD, key, "%s %s", text,
                  deep ? "accepts connections" : "is known");
}

/* An address of this host, at which a machine can listen. */
static void own_address_check(const char *key, const char *text, const struct check_report *report)
{
    char bound[LIMIT_ADDRESS_BYTES];
    struct error error;
    int fd;
    errno = 0;
    if (text[0] == 0)
        return;
    if (address_listen(text, &fd, bound, &error) == ST_OK) {
        close(fd);
        check_say(report, CHECK_GOOD, key, "%s is free", text);
    } else if (errno == EADDRINUSE) {
        check_say(report, CHECK_WARNING, key, "%s (if that is the running machine, all is well)",
                  error.text);
    } else {
        check_say(report, CHECK_ERROR, key, "%s", error.text);
    }
}

static void stages_check(const struct check_machines_options *options,
                         const struct config_machine *machine, const struct check_report *report)
{
    char key[LIMIT_NAME_BYTES + 40];
    struct config_stages stages;
    config_stages(machine, &stages);
    snprintf(key, sizeof(key), "machines/%s/stages", machine->name);
    for (uint32_t i = 0; i < stages.count; i++)
        if (stages.stages[i].address[0] != 0)
            peer_check(key, stages.stages[i].address, options->is_deep, report);
}

/* The endpoints are http://HOST:PORT or https://HOST:PORT, separated by commas (config_check). */
static void etcd_check(const struct check_machines_options *options,
                       const struct check_report *report)
{
    const char *at = options->config->cluster.etcd_endpoints;
    char address[LIMIT_ADDRESS_BYTES];
    while (config_has_etcd(options->config) && *at != 0) {
        at = strstr(at, "://");
        if (at == NULL)
            return;
        at += 3;
        snprintf(address, sizeof(address), "%.*s", (int)strcspn(at, ",/ "), at);
        peer_check("cluster/etcd_endpoints", address, options->is_deep, report);
        at += strcspn(at, ",");
    }
}

void check_machines(const struct check_machines_options *options, const struct check_report *report)
{
    char key[LIMIT_NAME_BYTES + 40];
    for (uint32_t i = 0; i < options->config->machine_count; i++) {
        const struct config_machine *machine = &options->config->machines[i];
        snprintf(key, sizeof(key), "machines/%s/address", machine->name);
        if (check_machine_is_here(options, i)) {
            devices_check(options, machine, report);
            own_address_check(key, machine->address, report);
            stages_check(options, machine, report);
        } else if (machine->address[0] != 0) {
            peer_check(key, machine->address, options->is_deep, report);
        }
    }
    memory_check(options, report);
    etcd_check(options, report);
}
