/* machine_main: the subcommand `cleave machine`: command line, config and signals.
 *
 * A local machine is a child of `cleave serve` and never outlives it: the kernel sends SIGTERM when
 * the parent dies. If the parent has died before the child asks the kernel for that, the child ends
 * by itself. */
#include "machine/process.h"

#include "common/log.h"
#include "common/options.h"
#include "common/parent.h"
#include "common/secret.h"
#include "host/child.h"
#include "host/power_limit.h"
#include "host/sandbox.h"
#include "machine/join.h"
#include "machine/machine.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define CONFIG_BYTES_MAX (1u << 20)

struct arguments {
    const char *config;
    const char *name;
    const char *listen;
    int ready_fd;
    int config_fd;
    int keys_fd;
    int turns_fd;
    int batches_fd;
    int stage; /* Index of the stage process; -1 = the machine itself. */
    struct option_texts sets;
    const char *join; /* NULL = there is a config. */
    const char *pool;
    char joined_name[LIMIT_NAME_BYTES];
    const char *log_level; /* NULL = not given. */
};

#define FIELD(member)  offsetof(struct arguments, member)
#define DESCRIPTOR_MAX (1 << 20)

/* The table is read by columns. */
/* clang-format off */
static const struct option_entry entries[] = {
    /* name, value, type, field, lowest, highest (of texts: most of them), choices, default, help */
    {"listen", "ADDR:PORT", OPTION_TEXT, FIELD(listen), 0, 0, {NULL}, NULL, "listen on this address instead of the config's address"},
    {"set", "KEY=VALUE", OPTION_TEXTS, FIELD(sets), 0, OPTION_TEXTS_MAX, {NULL}, NULL, "set a key of the config (cleave serve --help lists the keys); may be repeated"},
    {"join", "etcd://HOST:PORT", OPTION_TEXT, FIELD(join), 0, 0, {NULL}, NULL, "run without a config file: register in this etcd (etcds:// = over TLS; several HOST:PORT with commas between), listen on port 7400 of the address that faces it, and take all other keys from --set"},
    {"pool", "POOL", OPTION_TEXT, FIELD(pool), 0, 0, {"prompt", "token", "mixed", NULL}, NULL, "with --join: the machine's pool"},
    {"stage", "N", OPTION_INT, FIELD(stage), 0, LIMIT_STAGE_PROCESSES - 1, {NULL}, NULL, "run stage process N of the machine, from 0; for a stage that the config places on this computer (host)"},
    {"ready-fd", "N", OPTION_INT, FIELD(ready_fd), 0, DESCRIPTOR_MAX, {NULL}, NULL, "write \"ready ADDRESS\" to file descriptor N when the machine serves"},
    {"config-fd", "N", OPTION_INT, FIELD(config_fd), 0, DESCRIPTOR_MAX, {NULL}, NULL, "read the config as JSON from file descriptor N"},
    {"cluster-keys-fd", "N", OPTION_INT, FIELD(keys_fd), 0, DESCRIPTOR_MAX, {NULL}, NULL, "take the cluster's keys from the process that started this one, on file descriptor N, instead of cluster/key_file"},
    {"turns-fd", "N", OPTION_INT, FIELD(turns_fd), 0, DESCRIPTOR_MAX, {NULL}, NULL, "take turns on the cores with the other processes that share the memory of file descriptor N"},
    {"batches-fd", "N", OPTION_INT, FIELD(batches_fd), 0, DESCRIPTOR_MAX, {NULL}, NULL, "keep the ids of the requests in running batches in the memory of file descriptor N"},
    {"log-level", "LEVEL", OPTION_TEXT, FIELD(log_level), 0, 0, {LOG_LEVEL_NAMES}, NULL, "least level of log lines, info if not given"},
};
/* clang-format on */

static enum status check(void *out, struct error *error)
{
    struct arguments *arguments = out;
    if ((arguments->join != NULL) != (arguments->pool != NULL))
        return error_set(error, ST_USAGE, "want --join and --pool, or neither");
    if (arguments->join != NULL) { /* The only operand is the name. */
        if (arguments->name != NULL || arguments->config_fd >= 0 || arguments->stage >= 0)
            return error_set(error, ST_USAGE,
                             "--join: CONFIG, --config-fd and --stage are for machines of a file");
        arguments->name = arguments->config;
        arguments->config = "embedded";
        return ST_OK;
    }
    if (arguments->config == NULL)
        return error_set(error, ST_USAGE,
                         "CONFIG is missing: cleave machine CONFIG NAME [--option value]…");
    if (arguments->name != NULL)
        return ST_OK;
    if (arguments->config_fd < 0)
        return error_set(error, ST_USAGE, "NAME is missing: want CONFIG and NAME");
    arguments->name = arguments->config;
    arguments->config = "config";
    return ST_OK;
}

static const struct option_table table = {
    .command = "machine",
    .usage = "CONFIG NAME [--option value]…",
    .about = "Runs the machine NAME of a cluster. CONFIG is a file, or \"embedded\" for the "
             "default config. With\n--config-fd, CONFIG is left out. With --join, CONFIG is left "
             "out, and NAME may be.\n",
    .entries = entries,
    .count = sizeof(entries) / sizeof(entries[0]),
    .operands = {{"CONFIG", FIELD(config), false}, {"NAME", FIELD(name), false}},
    .check = check};

static enum status read_config_fd(int fd, struct config *out, struct error *error)
{
    char *text = malloc(CONFIG_BYTES_MAX);
    if (text == NULL)
        return error_set(error, ST_NO_MEMORY, "config: out of memory");
    size_t bytes = 0;
    ssize_t got = 1;
    while (got > 0 && bytes < CONFIG_BYTES_MAX) {
        got = read(fd, text + bytes, CONFIG_BYTES_MAX - bytes);
        if (got < 0 && errno == EINTR)
            got = 1;
        else if (got > 0)
            bytes += (size_t)got;
    }
    enum status status = ST_OK;
    if (got < 0)
        status = error_set(error, ST_IO, "config: --config-fd %d: %s", fd, strerror(errno));
    else if (bytes == CONFIG_BYTES_MAX)
        status = error_set(error, ST_TOO_LARGE, "config: more than %u bytes", CONFIG_BYTES_MAX);
    if (status == ST_OK)
        status = config_parse(text, bytes, "config", out, error);
    free(text);
    close(fd);
    return status;
}

static enum status load_config(struct arguments *arguments, struct config *out, struct error *error)
{
    if (arguments->config_fd >= 0)
        return read_config_fd(arguments->config_fd, out, error);
    if (strcmp(arguments->config, "embedded") != 0)
        return config_load(arguments->config, out, error);
    config_default(out);
    if (arguments->join == NULL)
        return ST_OK;
    const struct machine_join join = {.endpoints = arguments->join,
                                      .pool = arguments->pool,
                                      .name = arguments->name,
                                      .listen = arguments->listen};
    enum status status = machine_join_config(&join, arguments->joined_name, out, error);
    arguments->name = arguments->joined_name;
    return status;
}

/* The address to listen on: --listen, else that of the config, else any port on the loopback
 * address. */
static void listen_address(const struct arguments *arguments, const struct config *config,
                           char out[LIMIT_ADDRESS_BYTES])
{
    const struct config_machine *entry =
        &config->machines[config_machine_find(config, arguments->name)];
    const char *address = entry->address;
    struct config_stages stages;
    if (arguments->stage >= 0) {
        config_stages(entry, &stages);
        address = (uint32_t)arguments->stage < stages.count
                      ? stages.stages[arguments->stage].address
                      : "";
    }
    if (arguments->listen != NULL)
        address = arguments->listen;
    snprintf(out, LIMIT_ADDRESS_BYTES, "%s", address[0] != 0 ? address : "127.0.0.1:0");
}

/* Returns a descriptor on which signals become readable. The signals are blocked in this thread and
 * in every thread that it starts later. */
static int open_signals(void)
{
    sigset_t signals;
    signal(SIGUSR1, SIG_IGN); /* For gateways: `pkill -USR1 cleave` must end no machine. */
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGHUP);
    sigaddset(&signals, SIGUSR2);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    return signalfd(-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC);
}

/* Raises the niceness of this thread and of all threads that it starts later. */
static void step_back(uint32_t by)
{
    errno = 0;
    if (nice((int)by) == -1 && errno != 0)
        log_warn("nice %u: %s", by, strerror(errno));
}

/* Limits the power of the CPUs, or of the GPU, as the config says. A machine serves without the
 * limit, too. */
static void power_limit_begin(const struct config_machine *entry, struct power_limit *out)
{
    struct error error;
    if (entry->power_limit_w == 0)
        return;
    const bool cpu = strcmp(entry->device, "cpu") == 0;
    enum status status;
    if (cpu)
        status = power_limit_set(ENERGY_FOLDER, entry->power_limit_w, out, &error);
    else if (config_has_stages(entry))
        status = error_set(&error, ST_UNSUPPORTED, "GPUs of stages and ranks have no limit yet");
    else
        status = power_limit_set_gpu(entry->device, entry->power_limit_w, out, &error);
    if (status == ST_OK)
        log_info("%s limited to %u W", cpu ? "the CPUs of this computer are" : entry->device,
                 entry->power_limit_w);
    else
        log_warn("machines/%s/power_limit_w = %u: the power is not limited: %s", entry->name,
                 entry->power_limit_w, error.text);
}

static void log_begin(const struct arguments *arguments)
{
    enum log_level level = LOG_INFO;
    char name[LIMIT_NAME_BYTES + 8];
    if (arguments->stage >= 0)
        snprintf(name, sizeof(name), "%s/%d", arguments->name, arguments->stage);
    else
        snprintf(name, sizeof(name), "%s", arguments->name != NULL ? arguments->name : "machine");
    if (arguments->log_level != NULL)
        log_level_parse(arguments->log_level, &level);
    log_open(name, level);
}

/* *exit_status_out: see machine_process.exit_status. */
static enum status run(struct arguments *arguments, struct config *config, int *exit_status_out,
                       struct error *error)
{
    struct machine_keys keys = {.pipe_fd = -1};
    struct machine_process process = {
        .config = config,
        .stage = arguments->stage,
        .parent = arguments->ready_fd >= 0 ? getppid() : 0,
        .keys = &keys,
        .ready_fd = &arguments->ready_fd,
        .turns_fd = arguments->turns_fd,
        .batches_fd = arguments->batches_fd,
        .log_level = arguments->log_level,
        .notify = {.fd = -1},
    };
    enum status status = load_config(arguments, config, error);
    if (arguments->join != NULL)
        log_begin(arguments); /* Now the name is known. */
    for (uint32_t i = 0; i < arguments->sets.count && status == ST_OK; i++)
        if (config_set_pair(config, arguments->sets.texts[i], error) != ST_OK)
            status = ST_USAGE;
    if (status == ST_OK)
        status = config_check(config, config->source, error);
    if (status != ST_OK)
        return status;
    machine_process_log_configure(&process);
    if (!config->cluster.core_dumps && secret_core_dumps_stop(error) != ST_OK)
        log_warn("%s", error->text);
    if (config->renamed_warning[0] != 0)
        log_warn("%s: %s", config->source, config->renamed_warning);
    if (transport_ucx_exposes(config->transport.ucx_transports))
        log_warn("transport/ucx_transports = \"%s\": UCX may open a port on which anyone who "
                 "reaches it can read and write this process's memory, without the cluster key%s",
                 config->transport.ucx_transports,
                 config_is_loopback(config) ? " (every user of this computer reaches it)" : "");
    int entry = config_machine_find(config, arguments->name);
    if (entry < 0)
        return error_set(error, ST_NOT_FOUND, "%s: machines: \"%s\" is not one of them",
                         config->source, arguments->name);
    process.config_entry = &config->machines[entry];
    bool child = arguments->ready_fd >= 0;
    if (child && (process.config_entry->local || arguments->stage >= 0) &&
        !parent_end_signal_set_by_pipe(SIGTERM, arguments->ready_fd))
        return error_set(error, ST_CANCELLED, "the process that started this one has ended");
    /* a stage process started by its machine inherits the niceness */
    if (arguments->stage < 0 || !child)
        step_back(process.config_entry->nice);
    notify_open(&process.notify);
    struct power_limit power_limit = {.package_count = 0};
    if (arguments->stage < 0)
        power_limit_begin(process.config_entry, &power_limit);
    char said[SANDBOX_TEXT_BYTES];
    sandbox_machine_enter(config, process.config_entry, arguments->stage >= 0, said);
    log_info("%s", said);
    process.signal_fd = open_signals();
    listen_address(arguments, config, process.address);
    status = machine_keys_open(&keys, config, arguments->keys_fd, error);
    if (status == ST_OK && keys.keys.count == 0 && !config->cluster.allow_insecure &&
        !config_address_is_loopback(process.address))
        status = error_set(error, ST_INVALID,
                           "listen on %s: other computers reach it: want cluster/key_file, or "
                           "cluster/allow_insecure: true",
                           process.address);
    if (status == ST_OK)
        status = machine_process_turns_open(&process, error);
    if (status == ST_OK)
        status = arguments->stage >= 0 ? machine_process_run_stage(&process, error)
                                       : machine_process_run_machine(&process, error);
    *exit_status_out = process.exit_status;
    power_limit_restore(&power_limit);
    machine_keys_done(&keys);
    turns_close(process.turns);
    notify_close(&process.notify);
    close(process.signal_fd);
    return status;
}

int machine_main(int argc, char **argv)
{
    struct arguments arguments = {.ready_fd = -1,
                                  .config_fd = -1,
                                  .keys_fd = -1,
                                  .turns_fd = -1,
                                  .batches_fd = -1,
                                  .stage = -1};
    struct error error = {""};
    /* A parent that has ended reads neither the ready pipe nor, often, standard error. */
    signal(SIGPIPE, SIG_IGN);
    int exit_status = options_start(&table, argc, argv, &arguments);
    if (exit_status >= 0)
        return exit_status;
    struct config *config = calloc(1, sizeof(*config));
    if (config == NULL)
        return options_fail(&table, ST_NO_MEMORY, &error);
    log_begin(&arguments);
    int why = 0;
    enum status status = run(&arguments, config, &why, &error);
    if (status != ST_OK && arguments.ready_fd >= 0)
        child_failure_report(arguments.ready_fd, &error);
    free(config);
    exit_status = status == ST_OK ? 0 : options_fail(&table, status, &error);
    return why != 0 ? why : exit_status;
}
