/* check: the command line and the report of `cleave check`. */
#include "tools/check/check.h"

#include "common/options.h"
#include "server/api/keys.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct check_options {
    const char *config;  /* A file. */
    const char *machine; /* NULL = what `cleave serve` starts. */
    struct option_texts sets;
    bool deep;
    bool json;
    bool schema;
    bool keys_schema;
};

#define FIELD(member) offsetof(struct check_options, member)

/* The table is read by columns. */
/* clang-format off */
static const struct option_entry entries[] = {
    {"machine", "NAME", OPTION_TEXT, FIELD(machine), 0, 0, {NULL}, NULL, "check what `cleave machine CONFIG NAME` needs on this host, instead of what `cleave serve` needs"},
    {"set", "KEY=VALUE", OPTION_TEXTS, FIELD(sets), 0, OPTION_TEXTS_MAX, {NULL}, NULL, "set a key of the config; may be repeated"},
    {"deep", NULL, OPTION_FLAG, FIELD(deep), 0, 0, {NULL}, NULL, "also read the tokenizer, compare the model's tensors with those that machines load, open the devices, and connect to other machines and to etcd"},
    {"schema", NULL, OPTION_FLAG, FIELD(schema), 0, 0, {NULL}, NULL, "print a JSON Schema of config files, for editors, instead of checking one"},
    {"keys-schema", NULL, OPTION_FLAG, FIELD(keys_schema), 0, 0, {NULL}, NULL, "print a JSON Schema of files of API keys (server/api_keys_file), for editors"},
    {"json", NULL, OPTION_FLAG, FIELD(json), 0, 0, {NULL}, NULL, "print the results as JSON"},
};
/* clang-format on */

/* --schema and --keys-schema need no file. */
static enum status operand_check(void *out, struct error *error)
{
    const struct check_options *options = out;
    if (options->config != NULL || options->schema || options->keys_schema)
        return ST_OK;
    return error_set(error, ST_USAGE, "CONFIG is missing: cleave check CONFIG [--option value]…");
}

static const struct option_table table = {
    .command = "check",
    .usage = "CONFIG [--option value]…",
    .about = "Finds what will fail with a config on this host, all at once: mistakes in the file, "
             "files, keys,\nmodel, memory, devices, addresses. Run it as the user of the service. "
             "Exit status: 0 = no error, 1 = errors.\n",
    .entries = entries,
    .count = sizeof(entries) / sizeof(entries[0]),
    .operands = {{"CONFIG", FIELD(config), false}},
    .check = operand_check};

/* The report: lines at once, or JSON at the end. */
struct results {
    json_t *list; /* NULL = print lines. */
    unsigned counts[CHECK_ERROR + 1];
};

static void result_say(void *self, enum check_level level, const char *key, const char *text)
{
    static const char *const names[] = {"ok", "warning", "error"};
    struct results *results = self;
    results->counts[level]++;
    if (results->list == NULL)
        printf("%-8s %s%s%s\n", names[level], key, key[0] != 0 ? ": " : "", text);
    else
        json_array_append_new(results->list, json_pack("{s:s, s:s, s:s}", "result", names[level],
                                                       "key", key, "text", text));
}

static void mistake_say(void *self, const char *text)
{
    result_say(self, CHECK_ERROR, "", text);
}

/* Reads the file and the options, and reports every mistake. Returns whether there is a config. */
static bool config_make(const struct check_options *options, struct config *config,
                        struct results *results)
{
    struct error error;
    bool good = config_load_all(options->config, mistake_say, results, config);
    for (uint32_t i = 0; good && i < options->sets.count; i++)
        if (config_set_pair(config, options->sets.texts[i], &error) != ST_OK) {
            mistake_say(results, error.text);
            good = false;
        }
    if (good && options->sets.count > 0 && config_check(config, "--set", &error) != ST_OK) {
        mistake_say(results, error.text);
        good = false;
    }
    if (good && config->renamed_warning[0] != 0)
        result_say(results, CHECK_WARNING, "", config->renamed_warning);
    if (good && results->counts[CHECK_ERROR] == 0)
        result_say(results, CHECK_GOOD, "", options->config);
    return good;
}

static enum status all_check(const struct check_options *options, struct config *config,
                             struct results *results, struct error *error)
{
    const struct check_report report = {result_say, results};
    struct check_machines_options machines = {
        .config = config, .machine_index = -1, .is_deep = options->deep};
    if (!config_make(options, config, results))
        return ST_OK;
    if (options->machine != NULL) {
        machines.machine_index = config_machine_find(config, options->machine);
        if (machines.machine_index < 0)
            return error_set(error, ST_USAGE, "--machine = \"%.60s\": %s has no such machine",
                             options->machine, options->config);
        serve_check_machine_files(config, machines.machine_index, options->deep, &report,
                                  &machines.files);
    } else {
        serve_check(config, options->deep, &report, &machines.files);
    }
    check_weights(&machines, &report);
    check_machines(&machines, &report);
    return ST_OK;
}

int check_main(int argc, char **argv)
{
    struct check_options options = {.config = NULL};
    struct error error = {""};
    struct results results = {.list = NULL};
    int exit_status = options_start(&table, argc, argv, &options);
    if (exit_status >= 0)
        return exit_status;
    if (options.schema)
        return config_print_schema(stdout) ? 0 : 1;
    if (options.keys_schema)
        return api_keys_print_schema(stdout) ? 0 : 1;
    struct config *config = calloc(1, sizeof(*config));
    if (config == NULL)
        return options_fail(&table, ST_NO_MEMORY, &error);
    if (options.json)
        results.list = json_array();
    enum status status = all_check(&options, config, &results, &error);
    free(config);
    if (status != ST_OK) {
        json_decref(results.list);
        return options_fail(&table, status, &error);
    }
    if (options.json) {
        json_t *root = json_pack("{s:s, s:b, s:o}", "config", options.config, "good",
                                 results.counts[CHECK_ERROR] == 0, "results", results.list);
        json_dumpf(root, stdout, JSON_INDENT(1));
        printf("\n");
        json_decref(root);
    } else {
        printf("%u error%s, %u warning%s\n", results.counts[CHECK_ERROR],
               results.counts[CHECK_ERROR] == 1 ? "" : "s", results.counts[CHECK_WARNING],
               results.counts[CHECK_WARNING] == 1 ? "" : "s");
    }
    return results.counts[CHECK_ERROR] > 0 ? 1 : 0;
}
