/* machine_main: the subcommand `cleave machine`: command line, config and signals.
 *
 * A local machine is a child of `cleave serve` and never outlives it: the kernel sends SIGTERM when
 * the parent dies. If the parent died before the child asked the kernel for that, writing the ready
 * line fails. */
#include "machine/machine_process.h"

#include "common/log.h"
#include "common/secret.h"
#include "machine/machine.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define CONFIG_BYTES_MAX (1u << 20)

struct arguments {
    const char *config;
    const char *name;
    const char *listen;
    int ready_fd;
    int config_fd;
    int key_fd;
    int turns_fd;
    int stage; /* Index of the stage process; -1 = the machine itself. */
    enum log_level log_level;
    const char *log_level_text; /* NULL = not given. */
};

static int usage(FILE *out)
{
    fprintf(
        out,
        "usage: cleave machine CONFIG NAME [--listen ADDR:PORT] [--set KEY=VALUE]…\n"
        "                      [--ready-fd N] [--config-fd N] [--cluster-key-fd N]\n"
        "                      [--turns-fd N] [--stage N] [--log-level LEVEL]\n\n"
        "Runs the machine NAME of a cluster. CONFIG is a file, or \"embedded\".\n"
        "  --listen ADDR:PORT  listen here instead of the config's address\n"
        "  --set KEY=VALUE     set one key of the config (cleave serve --help lists them)\n"
        "  --ready-fd N        write \"ready ADDRESS\" to this descriptor once it serves\n"
        "  --config-fd N       read the config as JSON from this descriptor\n"
        "  --cluster-key-fd N  read the cluster's key (32 bytes) from this descriptor, instead\n"
        "                      of cluster/key_file\n"
        "  --stage N           run stage N of it, from 0: of a machine whose config says that "
        "this\n"
        "                      stage is on this computer (host)\n"
        "  --turns-fd N        take turns on the cores with those that have this memory too\n"
        "  --log-level LEVEL   debug, info (the default), warn or error\n");
    return out == stdout ? 0 : 2;
}

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

static enum status load_config(const struct arguments *arguments, struct config *out,
                               struct error *error)
{
    if (arguments->config_fd >= 0)
        return read_config_fd(arguments->config_fd, out, error);
    if (strcmp(arguments->config, "embedded") != 0)
        return config_load(arguments->config, out, error);
    config_default(out);
    return ST_OK;
}

enum {
    OPTION_LISTEN = 256,
    OPTION_READY,
    OPTION_CONFIG,
    OPTION_KEY,
    OPTION_TURNS,
    OPTION_STAGE,
    OPTION_SET,
    OPTION_LOG_LEVEL,
    OPTION_HELP
};

static const struct option long_options[] = {
    {"listen", required_argument, NULL, OPTION_LISTEN},
    {"ready-fd", required_argument, NULL, OPTION_READY},
    {"config-fd", required_argument, NULL, OPTION_CONFIG},
    {"cluster-key-fd", required_argument, NULL, OPTION_KEY},
    {"turns-fd", required_argument, NULL, OPTION_TURNS},
    {"stage", required_argument, NULL, OPTION_STAGE},
    {"set", required_argument, NULL, OPTION_SET},
    {"log-level", required_argument, NULL, OPTION_LOG_LEVEL},
    {"help", no_argument, NULL, OPTION_HELP},
    {NULL, 0, NULL, 0},
};

static bool parse_log_level(const char *text, enum log_level *out)
{
    if (log_level_parse(text, out))
        return true;
    fprintf(stderr, "cleave machine: --log-level = \"%s\": want debug, info, warn or error\n",
            text);
    return false;
}

static bool parse_fd(const char *option, const char *text, int *out)
{
    char *end;
    long value = strtol(text, &end, 10);
    if (*text == 0 || *end != 0 || value < 0 || value > 1 << 20) {
        fprintf(stderr, "cleave machine: %s = \"%s\": want a descriptor's number\n", option, text);
        return false;
    }
    *out = (int)value;
    return true;
}

static bool parse_stage(const char *text, int *out)
{
    char *end;
    long value = strtol(text, &end, 10);
    if (*text != 0 && *end == 0 && value >= 0 && value < LIMIT_STAGES) {
        *out = (int)value;
        return true;
    }
    fprintf(stderr, "cleave machine: --stage = \"%s\": want a number from 0 to %d\n", text,
            LIMIT_STAGES - 1);
    return false;
}

/* Returns -1 to continue, else the exit status. */
static int parse_arguments(int argc, char **argv, struct arguments *out)
{
    *out = (struct arguments){.ready_fd = -1,
                              .config_fd = -1,
                              .key_fd = -1,
                              .turns_fd = -1,
                              .stage = -1,
                              .log_level = LOG_INFO};
    optind = 1;
    for (int option; (option = getopt_long(argc, argv, "", long_options, NULL)) != -1;) {
        bool good = option != '?';
        if (option == OPTION_HELP)
            return usage(stdout);
        if (option == OPTION_LISTEN)
            out->listen = optarg;
        else if (option == OPTION_READY)
            good = parse_fd("--ready-fd", optarg, &out->ready_fd);
        else if (option == OPTION_CONFIG)
            good = parse_fd("--config-fd", optarg, &out->config_fd);
        else if (option == OPTION_KEY)
            good = parse_fd("--cluster-key-fd", optarg, &out->key_fd);
        else if (option == OPTION_TURNS)
            good = parse_fd("--turns-fd", optarg, &out->turns_fd);
        else if (option == OPTION_STAGE)
            good = parse_stage(optarg, &out->stage);
        else if (option == OPTION_LOG_LEVEL)
            good = parse_log_level(out->log_level_text = optarg, &out->log_level);
        if (!good)
            return 2;
    }
    int left = argc - optind;
    if (left < 1 || left > 2 || (left == 1 && out->config_fd < 0))
        return usage(stderr);
    out->config = left == 2 ? argv[optind] : "config";
    out->name = argv[argc - 1]; /* getopt has moved the options to the front */
    return -1;
}

/* Applies the --set options to the config. */
static enum status apply_sets(int argc, char **argv, struct config *config, struct error *error)
{
    enum status status = ST_OK;
    optind = 1;
    for (int option;
         status == ST_OK && (option = getopt_long(argc, argv, "", long_options, NULL)) != -1;) {
        if (option != OPTION_SET)
            continue;
        char key[256];
        const char *equals = strchr(optarg, '=');
        if (equals == NULL || (size_t)(equals - optarg) >= sizeof(key))
            return error_set(error, ST_INVALID, "--set: \"%s\": want KEY=VALUE", optarg);
        memcpy(key, optarg, (size_t)(equals - optarg));
        key[equals - optarg] = 0;
        status = config_set(config, "--set", key, equals + 1, error);
    }
    return status;
}

/* Reads the cluster's key into `room`. *key_out is `room`; NULL = this cluster has no key. */
static enum status load_key(const struct arguments *arguments, const struct config *config,
                            uint8_t room[TRANSPORT_KEY_BYTES], const uint8_t **key_out,
                            struct error *error)
{
    char path[LIMIT_PATH_BYTES];
    *key_out = room;
    if (arguments->key_fd >= 0) {
        ssize_t got = read(arguments->key_fd, room, TRANSPORT_KEY_BYTES);
        close(arguments->key_fd);
        return got == TRANSPORT_KEY_BYTES
                   ? ST_OK
                   : error_set(error, ST_IO, "--cluster-key-fd %d: no key", arguments->key_fd);
    }
    if (config->cluster.key_file[0] == 0) {
        *key_out = NULL;
        return ST_OK;
    }
    enum status status = config_file_path(config, config->cluster.key_file, path, error);
    return status == ST_OK ? secret_key_read(path, room, error) : status;
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
    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
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

static enum status run(int argc, char **argv, const struct arguments *arguments,
                       struct config *config, struct error *error)
{
    uint8_t room[TRANSPORT_KEY_BYTES];
    struct machine_process process = {
        .config = config,
        .stage = arguments->stage,
        .ready_fd = arguments->ready_fd,
        .turns_fd = arguments->turns_fd,
        .log_level = arguments->log_level_text,
    };
    enum status status = load_config(arguments, config, error);
    if (status == ST_OK)
        status = apply_sets(argc, argv, config, error);
    if (status == ST_OK)
        status = config_check(config, config->source, error);
    if (status != ST_OK)
        return status;
    int entry = config_machine_find(config, arguments->name);
    if (entry < 0)
        return error_set(error, ST_NOT_FOUND, "%s: machines: \"%s\" is not one of them",
                         config->source, arguments->name);
    process.entry = &config->machines[entry];
    bool child = arguments->ready_fd >= 0;
    if (child && (process.entry->local || arguments->stage >= 0))
        prctl(PR_SET_PDEATHSIG, SIGTERM);
    /* a stage process started by its machine inherits the niceness */
    if (arguments->stage < 0 || !child)
        step_back(process.entry->nice);
    process.signals = open_signals();
    listen_address(arguments, config, process.address);
    status = load_key(arguments, config, room, &process.key, error);
    if (status == ST_OK && process.key == NULL && !config->cluster.allow_insecure &&
        !config_address_is_loopback(process.address))
        status = error_set(error, ST_INVALID,
                           "listen on %s: other computers reach it: want cluster/key_file, or "
                           "cluster/allow_insecure: true",
                           process.address);
    if (status == ST_OK)
        status = machine_process_turns(&process, error);
    if (status == ST_OK)
        status = arguments->stage >= 0 ? machine_process_run_stage(&process, error)
                                       : machine_process_run_machine(&process, error);
    secret_wipe(room, sizeof(room));
    turns_close(process.turns);
    close(process.signals);
    return status;
}

int machine_main(int argc, char **argv)
{
    struct arguments arguments;
    struct error error;
    char log_name[LIMIT_NAME_BYTES + 8];
    int exit_code = parse_arguments(argc, argv, &arguments);
    if (exit_code >= 0)
        return exit_code;
    struct config *config = calloc(1, sizeof(*config));
    if (config == NULL)
        return 1;
    if (arguments.stage >= 0)
        snprintf(log_name, sizeof(log_name), "%s/%d", arguments.name, arguments.stage);
    else
        snprintf(log_name, sizeof(log_name), "%s", arguments.name);
    log_open(log_name, arguments.log_level);
    enum status status = run(argc, argv, &arguments, config, &error);
    if (status != ST_OK)
        fprintf(stderr, "cleave machine: %s\n", error.text);
    free(config);
    return status == ST_OK ? 0 : 1;
}
