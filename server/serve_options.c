/* serve_options: the command line of `cleave serve`. Every option that changes the config goes
 * through the config's table, so that its errors are as good as a file's. Options override the
 * file, and later options override earlier ones. */
#include "server/serve.h"

#include "common/options.h"

#include <stdio.h>
#include <string.h>

struct arguments {
    const char *config;           /* NULL = the default config. */
    struct option_texts settings; /* Options that change the config, in their order. */
    const char *log_level;        /* NULL = not given. */
    bool check_only;
    bool quiet;
};

#define FIELD(member) offsetof(struct arguments, member)
#define SETTING       OPTION_TEXTS, FIELD(settings), 0, OPTION_TEXTS_MAX, {NULL}, NULL

/* The table is read by columns. */
/* clang-format off */
static const struct option_entry entries[] = {
    /* name, value, type, field, lowest, highest, choices, default, help */
    {"listen", "ADDR:PORT", SETTING, "address of the HTTP server; port 0: any free port"},
    {"model", "PATH", SETTING, "the model: a GGUF file, or a folder with safetensors files"},
    {"pools", "P,T[,M]", SETTING, "run P prompt, T token and M mixed machines on this computer"},
    {"threads", "N", SETTING, "threads of each machine; 0: one thread per core"},
    {"set", "KEY=VALUE", SETTING, "set a key of the config; may be repeated"},
    {"check", NULL, OPTION_FLAG, FIELD(check_only), 0, 0, {NULL}, NULL,
     "check the config and the files that it names, print what would run, and exit"},
    {"quiet", NULL, OPTION_FLAG, FIELD(quiet), 0, 0, {NULL}, NULL,
     "print only the line that says that the server is ready; log warnings, errors and audit lines"},
    {"log-level", "LEVEL", OPTION_TEXT, FIELD(log_level), 0, 0, {LOG_LEVEL_NAMES}, NULL,
     "least level of log lines, info if not given"},
};
/* clang-format on */

static void keys_help(FILE *file)
{
    fprintf(file, "\nKeys of the config:\n");
    config_print_help(file);
}

static const struct option_table table = {
    .command = "serve",
    .usage = "[CONFIG] [--option value]…",
    .about =
        "Starts the gateway, and the machines that the config places on this computer. Without "
        "CONFIG: one\nprompt machine and one token machine, and HTTP on 127.0.0.1:8080.\n",
    .entries = entries,
    .count = sizeof(entries) / sizeof(entries[0]),
    .operands = {{"CONFIG", FIELD(config), false}},
    .help_more = keys_help};

static enum status pools_wrong(const char *text, struct error *error)
{
    return error_set(error, ST_INVALID,
                     "--pools = \"%.60s\": want two or three numbers, such as 2,1", text);
}

/* "2,1" or "2,1,0": prompt, token and mixed machines. */
static enum status pools_set(struct config *config, const char *text, struct error *error)
{
    static const char *const keys[] = {"pools/prompt", "pools/token", "pools/mixed"};
    char counts[3][16] = {"0", "0", "0"};
    size_t count = 0;
    for (const char *at = text;; at++) {
        size_t length = strcspn(at, ",");
        if (count == 3 || length == 0 || length >= sizeof(counts[0]) ||
            strspn(at, "0123456789") < length)
            return pools_wrong(text, error);
        memcpy(counts[count], at, length);
        counts[count++][length] = 0;
        at += length;
        if (*at == 0)
            break;
    }
    if (count < 2)
        return pools_wrong(text, error);
    enum status status = ST_OK;
    for (size_t i = 0; i < 3 && status == ST_OK; i++)
        status = config_set(config, "--pools", keys[i], counts[i], error);
    return status;
}

static enum status setting_apply(struct config *config, const char *name, const char *text,
                                 struct error *error)
{
    if (strcmp(name, "set") == 0)
        return config_set_pair(config, text, error);
    if (strcmp(name, "pools") == 0)
        return pools_set(config, text, error);
    if (strcmp(name, "listen") == 0)
        return config_set(config, "--listen", "http/listen", text, error);
    if (strcmp(name, "model") == 0)
        return config_set(config, "--model", "model", text, error);
    return config_set(config, "--threads", "threads", text, error);
}

/* Reads the file first, then the options that override it. ST_USAGE: an option is wrong. */
static enum status config_make(const struct arguments *arguments, struct config *config,
                               struct error *error)
{
    enum status status = ST_OK;
    const char *place = arguments->config != NULL ? arguments->config : "options";
    if (arguments->config != NULL)
        status = config_load(arguments->config, config, error);
    else
        config_default(config);
    if (status != ST_OK)
        return status;
    for (uint32_t i = 0; i < arguments->settings.count; i++)
        if (setting_apply(config, arguments->settings.names[i], arguments->settings.texts[i],
                          error) != ST_OK)
            return ST_USAGE;
    if (config_check(config, place, error) != ST_OK)
        return arguments->config != NULL ? ST_INVALID : ST_USAGE;
    const char *dtype = config_kv_dtype(config); /* Fixes the default for all later machines. */
    memmove(config->kv.dtype, dtype, strlen(dtype) + 1);
    return ST_OK;
}

static enum status options_make(const struct arguments *arguments, struct serve_options *out,
                                struct error *error)
{
    out->check_only = arguments->check_only;
    out->quiet = arguments->quiet;
    out->log_level_name = arguments->log_level;
    if (arguments->log_level == NULL && arguments->quiet)
        out->log_level_name = "warn";
    out->log_level = LOG_INFO;
    if (out->log_level_name != NULL)
        log_level_parse(out->log_level_name, &out->log_level);
    return config_make(arguments, out->config, error);
}

int serve_options_parse(int argc, char **argv, struct serve_options *out)
{
    struct arguments arguments = {.config = NULL};
    struct error error = {""};
    int exit_status = options_start(&table, argc, argv, &arguments);
    if (exit_status >= 0)
        return exit_status;
    enum status status = options_make(&arguments, out, &error);
    return status == ST_OK ? -1 : options_fail(&table, status, &error);
}

enum status serve_options_reparse(int argc, char **argv, struct serve_options *out,
                                  struct error *error)
{
    struct arguments arguments = {.config = NULL};
    enum status status = options_read(&table, argc, argv, &arguments, error);
    return status == ST_OK ? options_make(&arguments, out, error) : status;
}

/* "cpu, threads 2, " or "stages cuda:0 cuda:1, ". */
static void devices_print(const struct config_machine *machine)
{
    struct config_stages stages;
    config_stages(machine, &stages);
    for (uint32_t i = 0; i < stages.count; i++)
        printf("%s %s", i == 0 ? "stages" : "", stages.stages[i].device);
    if (stages.count == 0)
        printf("%s", machine->device);
    printf(", ");
    if (stages.count > 0)
        return;
    if (machine->threads > 0)
        printf("threads %u, ", machine->threads);
    else if (strcmp(machine->device, "cpu") == 0)
        printf("a thread per core, ");
}

void serve_options_print(const struct config *config, const char *model_path)
{
    printf("config  %s\nmodel   %s\nhttp    %s\n", config->source, model_path, config->http.listen);
    for (uint32_t i = 0; i < config->machine_count; i++) {
        const struct config_machine *m = &config->machines[i];
        printf("machine %s: %s, %s%s, ", m->name, pool_name(m->pool),
               m->local ? "on this computer" : "at ", m->local ? "" : m->address);
        devices_print(m);
        printf("kv memory %llu MiB\n", (unsigned long long)(m->kv_memory_bytes >> 20));
    }
    printf("kv      %s, blocks of %u tokens, transfer %s", config->kv.dtype,
           config->kv.block_tokens, config->kv.transfer);
    if (strcmp(config->kv.transfer, "auto") == 0) {
        if (config->kv.layerwise_threshold_tokens == CONFIG_AUTO)
            printf(" (layer by layer from the measured number of tokens)");
        else
            printf(" (layer by layer from %u tokens)", config->kv.layerwise_threshold_tokens);
    }
    printf("\n");
}
