/* sandbox: which files the processes of cleave need. See the header. */
#include "host/sandbox.h"

#include "common/device_name.h"
#include "host/sandbox_internal.h"

#include <dirent.h>
#include <libgen.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Files that libraries open late: modules, names of hosts, certificates, information of the kernel.
 */
static const char *const system_reads[] = {"/usr",
                                           "/lib",
                                           "/lib32",
                                           "/lib64",
                                           "/proc",
                                           "/sys",
                                           "/etc/ld.so.cache",
                                           "/etc/resolv.conf",
                                           "/etc/hosts",
                                           "/etc/host.conf",
                                           "/etc/nsswitch.conf",
                                           "/etc/gai.conf",
                                           "/etc/services",
                                           "/etc/protocols",
                                           "/etc/passwd",
                                           "/etc/group",
                                           "/etc/localtime",
                                           "/etc/timezone",
                                           "/etc/ssl/certs",
                                           "/etc/ssl/openssl.cnf",
                                           "/etc/pki/tls/certs",
                                           "/etc/pki/ca-trust",
                                           "/etc/ca-certificates",
                                           "/etc/gnutls",
                                           "/etc/crypto-policies",
                                           "/etc/ucx",
                                           "/etc/libibverbs.d",
                                           "/run/systemd/resolve",
                                           "/run/resolvconf",
                                           "/run/NetworkManager"};
/* Devices that any process may need, shared memory, and the devices of RDMA. */
static const char *const system_writes[] = {
    "/dev/null", "/dev/zero", "/dev/full", "/dev/random",    "/dev/urandom",
    "/dev/tty",  "/dev/pts",  "/dev/shm",  "/dev/hugepages", "/dev/infiniband"};

#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

static void add_all(struct sandbox_paths *paths, const char *const *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        sandbox_path_add(paths, list[i]);
}

static void add_once(struct sandbox_paths *paths, const char *path)
{
    for (uint32_t i = 0; i < paths->count; i++)
        if (strcmp(paths->paths[i], path) == 0)
            return;
    sandbox_path_add(paths, path);
}

/* Adds the folder of a file, because the file may not exist yet, or be replaced. Of "/" and "/etc"
 * only the file is added. */
static void add_folder(struct sandbox_paths *paths, const char *file)
{
    char copy[PATH_MAX], real[PATH_MAX];
    snprintf(copy, sizeof(copy), "%s", file);
    if (realpath(dirname(copy), real) == NULL)
        return;
    bool shared = strcmp(real, "/") == 0 || strcmp(real, "/etc") == 0;
    add_once(paths, shared ? file : real);
}

/* Adds the folder of a file. If the file is a link, also adds the folder of the link's target. */
static void add_folder_of(struct sandbox_paths *paths, const char *file)
{
    char real[PATH_MAX];
    add_folder(paths, file);
    if (realpath(file, real) != NULL)
        add_folder(paths, real);
}

/* Adds a file that the config names. */
static void add_named(struct sandbox_paths *paths, const struct config *config, const char *file)
{
    char path[LIMIT_PATH_BYTES];
    struct error error;
    if (file[0] != 0 && config_file_path(config, file, path, &error) == ST_OK)
        add_folder_of(paths, path);
}

/* Adds the folder of the files with stored KV. */
static void add_tiers(struct sandbox_paths *writes, const struct config *config)
{
    char file[LIMIT_PATH_BYTES + 8];
    snprintf(file, sizeof(file), "%s/NAME.kv", config->kv.tiers.file.path);
    if (config->kv.tiers.file.path[0] != 0)
        add_named(writes, config, file);
}

/* Returns true for the name of the first of a model's several files: NAME-00001-of-NNNNN.gguf. */
static bool is_first_part(const char *path)
{
    static const char begin[] = "-00001-of-", end[] = ".gguf";
    const size_t bytes = strlen(path), ending = strlen(begin) + 5 + strlen(end);
    return bytes > ending && strncmp(path + bytes - ending, begin, strlen(begin)) == 0 &&
           strcmp(path + bytes - strlen(end), end) == 0;
}

/* Adds a model. The files of a model's folder may be links to files of another one. */
static void add_model(struct sandbox_paths *paths, const char *path)
{
    char file[LIMIT_PATH_BYTES + NAME_MAX + 2];
    if (is_first_part(path))
        add_folder_of(paths, path); /* The other parts are beside it. */
    else
        sandbox_path_add(paths, path);
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        snprintf(file, sizeof(file), "%s/%s", path, entry->d_name);
        if (entry->d_type == DT_LNK)
            add_folder_of(paths, file);
    }
    if (folder != NULL)
        closedir(folder);
}

static void add_models(struct sandbox_paths *paths, const struct config *config)
{
    char path[LIMIT_PATH_BYTES];
    struct error error;
    if (config_model_path(config, path, &error) == ST_OK)
        add_model(paths, path);
    if (config_draft_key(config) != NULL && config_draft_path(config, path, &error) == ST_OK)
        add_model(paths, path);
}

/* Adds the folders of the libraries that are not in those of the system, for their modules. */
static int library_add(struct dl_phdr_info *info, size_t size, void *paths)
{
    (void)size;
    const char *name = info->dlpi_name;
    if (name[0] == '/' && strncmp(name, "/usr/", 5) != 0 && strncmp(name, "/lib", 4) != 0)
        add_folder_of(paths, name);
    return 0;
}

static struct sandbox_paths *reads_of(const struct config *config)
{
    struct sandbox_paths *reads = calloc(1, sizeof(*reads));
    if (reads == NULL)
        return NULL;
    add_all(reads, system_reads, COUNT(system_reads));
    dl_iterate_phdr(library_add, reads);
    add_models(reads, config);
    add_named(reads, config, config->chat_template_file);
    struct config_adapter adapter;
    for (uint32_t i = 0; config_adapter_at(config, i, &adapter); i++)
        sandbox_path_add(reads, adapter.path);
    add_named(reads, config, config->profile);
    add_named(reads, config, config->cluster.key_file);
    add_named(reads, config, config->cluster.etcd_password_file);
    add_named(reads, config, config->cluster.etcd_ca_file);
    add_named(reads, config, config->cluster.etcd_certificate_file);
    add_named(reads, config, config->cluster.etcd_key_file);
    add_named(reads, config, config->kv.tiers.key_file);
    add_named(reads, config, config->kv.tiers.store.password_file);
    add_named(reads, config, config->kv.tiers.store.ca_file);
    return reads;
}

/* Adds the devices of NVIDIA's driver. */
static void add_gpus(struct sandbox_paths *paths)
{
    char path[LIMIT_PATH_BYTES];
    DIR *folder = opendir("/dev");
    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        snprintf(path, sizeof(path), "/dev/%s", entry->d_name);
        if (strncmp(entry->d_name, "nvidia", 6) == 0)
            sandbox_path_add(paths, path);
    }
    if (folder != NULL)
        closedir(folder);
}

static bool uses_gpu(const struct config_machine *machine)
{
    struct config_stages stages;
    bool gpu = device_name_gpu(machine->device, NULL);
    config_stages(machine, &stages);
    for (uint32_t i = 0; i < stages.count; i++)
        gpu = gpu || device_name_gpu(stages.stages[i].device, NULL);
    return gpu;
}

static bool has_ranks(const struct config_stages *stages)
{
    for (uint32_t i = 0; i < stages->count; i++)
        if (stages->stages[i].ranks > 1)
            return true;
    return false;
}

/* Limits this process. files: NULL = files are not limited, for the reason `why`. */
static void enter(const struct sandbox_files *files, const char *why, bool starts_processes,
                  char text_out[SANDBOX_TEXT_BYTES])
{
    struct error error = {0};
    char files_text[128], calls_text[96] = "system calls are limited";
    if (files == NULL)
        snprintf(files_text, sizeof(files_text), "files are not, because %s", why);
    else if (sandbox_files_limit(files, &error) == ST_OK)
        snprintf(files_text, sizeof(files_text), "so are files (Landlock %d)",
                 sandbox_landlock_version());
    else
        snprintf(files_text, sizeof(files_text), "files are not: %.90s", error.text);
    if (sandbox_syscalls_limit(starts_processes, &error) != ST_OK)
        snprintf(calls_text, sizeof(calls_text), "system calls are not limited: %.60s", error.text);
    snprintf(text_out, SANDBOX_TEXT_BYTES, "sandbox: %s, %s", calls_text, files_text);
}

static bool is_off(const struct config *config, bool gpu, char text_out[SANDBOX_TEXT_BYTES])
{
    if (config->cluster.sandbox && !gpu)
        return false;
    snprintf(text_out, SANDBOX_TEXT_BYTES, "sandbox: none: %s",
             gpu ? "a GPU's driver needs more rights" : "cluster/sandbox is false");
    return true;
}

void sandbox_gateway_enter(const struct config *config, char text_out[SANDBOX_TEXT_BYTES])
{
    bool gpu = false;
    for (uint32_t i = 0; i < config->machine_count; i++)
        gpu = gpu || (config->machines[i].local && uses_gpu(&config->machines[i]));
    if (is_off(config, gpu, text_out))
        return;
    struct sandbox_paths *writes = calloc(1, sizeof(*writes));
    if (writes != NULL) {
        add_all(writes, system_writes, COUNT(system_writes));
        add_gpus(writes); /* a reload may add a machine with a GPU */
        add_named(writes, config, config->log.events_file);
        add_named(writes, config, config->log.ledger_file);
        if (strcmp(config->log.access_file, "-") != 0)
            add_named(writes, config, config->log.access_file);
        add_named(writes, config, config->http.admin_socket);
        add_tiers(writes, config); /* machines are started within the gateway's limits */
    }
    struct sandbox_files files = {.writable = writes, .may_start_self = true};
    enter(writes != NULL ? &files : NULL, "memory is short", true, text_out);
    free(writes);
}

void sandbox_machine_enter(const struct config *config, const struct config_machine *machine,
                           bool is_stage, char text_out[SANDBOX_TEXT_BYTES])
{
    struct config_stages stages;
    config_stages(machine, &stages);
    bool is_head = !is_stage && stages.count > 0;
    if (is_off(config, uses_gpu(machine), text_out))
        return;
    /* Landlock refuses to read another process's memory, which some transports of UCX do. */
    if (config->transport.ucx_transports[0] != 0) {
        enter(NULL, "transport/ucx_transports is set", is_head, text_out);
        return;
    }
    /* A rank opens the memory of its group in another rank's /proc/PID/fd. Landlock permits that
     * between processes with equal limits only: ranks keep those of the machine that started
     * them. */
    if (is_stage && has_ranks(&stages)) {
        enter(NULL, "ranks share memory", is_head, text_out);
        return;
    }
    struct sandbox_paths *reads = reads_of(config);
    struct sandbox_paths *writes = calloc(1, sizeof(*writes));
    if (writes != NULL)
        add_all(writes, system_writes, COUNT(system_writes));
    if (writes != NULL)
        add_tiers(writes, config);
    struct sandbox_files files = {.readable = reads, .writable = writes, .may_start_self = is_head};
    bool good = reads != NULL && writes != NULL;
    enter(good ? &files : NULL, "memory is short", is_head, text_out);
    free(writes);
    free(reads);
}
