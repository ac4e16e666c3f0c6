/* serve_options: the command line of `cleave serve`. Every option that changes the config goes
 * through the config's table, so that its errors are as good as a file's. Options override the
 * file, and later options override earlier ones. */
#include "server/serve.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    OPTION_LISTEN = 256,
    OPTION_MODEL,
    OPTION_POOLS,
    OPTION_THREADS,
    OPTION_SET,
    OPTION_CHECK,
    OPTION_QUIET,
    OPTION_LOG_LEVEL,
    OPTION_HELP,
};

static const struct option long_options[] = {
    {"listen", required_argument, NULL, OPTION_LISTEN},
    {"model", required_argument, NULL, OPTION_MODEL},
    {"pools", required_argument, NULL, OPTION_POOLS},
    {"threads", required_argument, NULL, OPTION_THREADS},
    {"set", required_argument, NULL, OPTION_SET},
    {"check", no_argument, NULL, OPTION_CHECK},
    {"quiet", no_argument, NULL, OPTION_QUIET},
    {"log-level", required_argument, NULL, OPTION_LOG_LEVEL},
    {"help", no_argument, NULL, OPTION_HELP},
    {NULL, 0, NULL, 0},
};

static int help(void)
{
    printf("usage: cleave serve [CONFIG] [option]…\n\n"
           "Starts the gateway, and the machines that the config says are on this computer. "
           "Without CONFIG:\n"
           "one prompt machine and one token machine on this computer, HTTP on 127.0.0.1:8080.\n\n"
           "  --listen ADDR:PORT   where HTTP listens (port 0: any free one)\n"
           "  --model FILE         the model, a GGUF file\n"
           "  --pools P,T[,M]      so many prompt, token and mixed machines on this computer\n"
           "  --threads N          threads of each machine (0: as many as there are cores)\n"
           "  --set KEY=VALUE      set any key of the config; may be repeated\n"
           "  --check              read and check everything, print what would run, and end\n"
           "  --quiet              print the ready line only; log warnings and errors\n"
           "  --log-level LEVEL    debug, info (the default), warn or error\n\n"
           "Keys of the config:\n");
    config_print_help(stdout);
    return 0;
}

static bool set_pair(struct config *config, const char *text, struct error *error)
{
    const char *equals = strchr(text, '=');
    char key[128];
    if (equals == NULL || equals == text || (size_t)(equals - text) >= sizeof(key)) {
        error_set(error, ST_INVALID, "--set: \"%s\": want KEY=VALUE", text);
        return false;
    }
    snprintf(key, sizeof(key), "%.*s", (int)(equals - text), text);
    return config_set(config, "--set", key, equals + 1, error) == ST_OK;
}

/* "2,1" or "2,1,0": prompt, token and mixed machines. */
static bool set_pools(struct config *config, const char *text, struct error *error)
{
    static const char *const keys[] = {"pools/prompt", "pools/token", "pools/mixed"};
    char counts[3][16] = {"0", "0", "0"};
    size_t count = 0;
    const char *at = text;
    for (;; at++) {
        size_t length = strcspn(at, ",");
        if (count == 3 || length == 0 || length >= sizeof(counts[0]) ||
            strspn(at, "0123456789") < length) {
            error_set(error, ST_INVALID, "--pools: \"%s\": want two or three numbers, such as 2,1",
                      text);
            return false;
        }
        memcpy(counts[count], at, length);
        counts[count++][length] = 0;
        at += length;
        if (*at == 0)
            break;
    }
    if (count < 2) {
        error_set(error, ST_INVALID, "--pools: \"%s\": want two or three numbers, such as 2,1",
                  text);
        return false;
    }
    for (size_t i = 0; i < 3; i++)
        if (config_set(config, "--pools", keys[i], counts[i], error) != ST_OK)
            return false;
    return true;
}

static bool set_log_level(struct serve_options *out, const char *text, struct error *error)
{
    out->log_level_name = text;
    if (log_level_parse(text, &out->log_level))
        return true;
    error_set(error, ST_INVALID, "--log-level: \"%s\": want debug, info, warn or error", text);
    return false;
}

static bool option_apply(struct serve_options *out, int option, struct error *error)
{
    struct config *config = out->config;
    switch (option) {
    case OPTION_LISTEN:
        return config_set(config, "--listen", "http/listen", optarg, error) == ST_OK;
    case OPTION_MODEL:
        return config_set(config, "--model", "model", optarg, error) == ST_OK;
    case OPTION_POOLS:
        return set_pools(config, optarg, error);
    case OPTION_THREADS:
        return config_set(config, "--threads", "threads", optarg, error) == ST_OK;
    case OPTION_SET:
        return set_pair(config, optarg, error);
    case OPTION_CHECK:
        out->check_only = true;
        return true;
    case OPTION_QUIET:
        out->quiet = true;
        return out->log_level_name != NULL || set_log_level(out, "warn", error);
    default:
        return set_log_level(out, optarg, error);
    }
}

static int option_wrong(const char *text, int how)
{
    fprintf(stderr, "cleave serve: %s: %s (cleave serve --help lists the options)\n", text,
            how == ':' ? "wants a value" : "unknown option");
    return 2;
}

/* Finds the config file at any position on the command line; NULL = none. Returns -1 to continue,
 * else the exit status. */
static int path_find(int argc, char **argv, const char **path_out)
{
    opterr = 0;
    optind = 1;
    for (int option; (option = getopt_long(argc, argv, ":h", long_options, NULL)) != -1;) {
        if (option == 'h' || option == OPTION_HELP)
            return help();
        if (option == '?' || option == ':')
            return option_wrong(argv[optind - 1], option);
    }
    if (argc - optind > 1) {
        fprintf(stderr, "cleave serve: \"%s\": want one config file at most\n", argv[optind + 1]);
        return 2;
    }
    *path_out = optind < argc ? argv[optind] : NULL;
    return -1;
}

/* Reads the file first, then the options that override it. */
static enum status read_config(int argc, char **argv, const char *path, struct serve_options *out,
                               struct error *error)
{
    enum status status = ST_OK;
    out->log_level = LOG_INFO;
    if (path != NULL)
        status = config_load(path, out->config, error);
    else
        config_default(out->config);
    if (status != ST_OK)
        return status;
    optind = 1;
    for (int option; (option = getopt_long(argc, argv, ":h", long_options, NULL)) != -1;)
        if (!option_apply(out, option, error))
            return ST_INVALID;
    status = config_check(out->config, path != NULL ? path : "options", error);
    if (status == ST_OK) { /* fixes the default for present and later machines */
        const char *dtype = config_kv_dtype(out->config);
        memmove(out->config->kv.dtype, dtype, strlen(dtype) + 1);
    }
    return status;
}

int serve_options_parse(int argc, char **argv, struct serve_options *out)
{
    struct error error = {""};
    const char *path = NULL;
    int result = path_find(argc, argv, &path);
    if (result >= 0)
        return result;
    if (read_config(argc, argv, path, out, &error) == ST_OK)
        return -1;
    fprintf(stderr, "cleave serve: %s\n", error.text);
    return 2;
}

enum status serve_options_again(int argc, char **argv, struct serve_options *out,
                                struct error *error)
{
    const char *path = NULL;
    int result = path_find(argc, argv, &path);
    if (result >= 0) /* they were valid at the start */
        return error_set(error, ST_INVALID, "the command line cannot be read again");
    return read_config(argc, argv, path, out, error);
}

void serve_options_print(const struct config *config, const char *model_path)
{
    printf("config  %s\nmodel   %s\nhttp    %s\n", config->source, model_path, config->http.listen);
    for (uint32_t i = 0; i < config->machine_count; i++) {
        const struct config_machine *m = &config->machines[i];
        printf("machine %s: %s, %s%s, %s, ", m->name, pool_name(m->pool),
               m->local ? "on this computer" : "at ", m->local ? "" : m->address, m->device);
        if (m->threads > 0)
            printf("threads %u, ", m->threads);
        else
            printf("a thread per core, ");
        printf("kv memory %llu MiB\n", (unsigned long long)(m->kv_memory_bytes >> 20));
    }
    printf("kv      %s, blocks of %u tokens, transfer %s", config->kv.dtype,
           config->kv.block_tokens, config->kv.transfer);
    if (strcmp(config->kv.transfer, "auto") == 0)
        printf(" (layer by layer from %u tokens)", config->kv.layerwise_threshold_tokens);
    printf("\n");
}
