/* admin_status: `cleave status` and `cleave machines`: the state of gateways and machines, once. */
#include "tools/admin/admin.h"
#include "tools/admin/client.h"
#include "tools/admin/view.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct status_options {
    struct admin_target target;
    const char *add;    /* A machine as JSON; NULL = none. */
    const char *remove; /* A machine's name; NULL = none. */
    bool json;
};

#define FIELD(member) offsetof(struct status_options, member)

/* The tables are read by columns. */
/* clang-format off */
static const struct option_entry status_entries[] = {
    ADMIN_OPTIONS(status_options, target),
    {"json", NULL, OPTION_FLAG, FIELD(json), 0, 0, {NULL}, NULL, "print a JSON list with the whole state of each gateway"},
};
static const struct option_entry machines_entries[] = {
    ADMIN_OPTIONS(status_options, target),
    {"add", "JSON", OPTION_TEXT, FIELD(add), 0, 0, {NULL}, NULL, "add a machine, such as {\"name\": \"token-7\", \"pool\": \"token\"}, with keys of the config's machines; the config file does not change"},
    {"remove", "NAME", OPTION_TEXT, FIELD(remove), 0, 0, {NULL}, NULL, "drain a machine, then end it (local) or forget it"},
    {"json", NULL, OPTION_FLAG, FIELD(json), 0, 0, {NULL}, NULL, "print a JSON list with an object per gateway"},
};
/* clang-format on */

static enum status check(void *out, struct error *error)
{
    const struct status_options *options = out;
    if (options->add != NULL && options->remove != NULL)
        return error_set(error, ST_USAGE, "--add and --remove: want one of them");
    return ST_OK;
}

static const struct option_table status_table = {
    .command = "status",
    .usage = "[--option value]…",
    .about =
        "Shows the state of running gateways: machines, links, requests. Exit status: 0 = every "
        "gateway is\nready, 1 = one is not, or does not answer.\n",
    .entries = status_entries,
    .count = sizeof(status_entries) / sizeof(status_entries[0])};
static const struct option_table machines_table = {
    .command = "machines",
    .usage = "[--option value]…",
    .about = "Lists the machines of running gateways, or adds or removes one at each of these "
             "gateways.\n",
    .entries = machines_entries,
    .count = sizeof(machines_entries) / sizeof(machines_entries[0]),
    .check = check};

/* What one gateway answered: its state, or with --add and --remove the answer to this. */
static enum status ask(struct admin_client *client, unsigned gateway,
                       const struct status_options *options, json_t **root_out, struct error *error)
{
    char path[LIMIT_NAME_BYTES + 32];
    if (options->add != NULL)
        return admin_client_json(client, gateway, "POST", "/admin/machines", options->add, root_out,
                                 error);
    if (options->remove == NULL)
        return admin_client_json(client, gateway, "GET", "/admin/state", NULL, root_out, error);
    if (!admin_machine_path("/admin/machines/", options->remove, path, error))
        return ST_USAGE;
    return admin_client_json(client, gateway, "DELETE", path, NULL, root_out, error);
}

static void print(const json_t *root, const char *name, const struct status_options *options,
                  bool only_machines)
{
    if (options->add != NULL || options->remove != NULL) {
        printf("%s: machine %s is %s\n", name, view_text(root, "machine"),
               view_text(root, "state"));
        return;
    }
    if (!only_machines)
        view_gateway(root, name, stdout);
    if (!only_machines)
        view_problems(root, SIZE_MAX, stdout);
    view_machines(root, false, stdout);
    if (only_machines)
        return;
    view_kv(root, stdout);
    view_links(root, stdout);
    view_requests(root, stdout);
}

static int run(const struct option_table *table, int argc, char **argv)
{
    struct status_options options = {.add = NULL};
    struct admin_client *client = NULL;
    struct error error = {""};
    int result = options_start(table, argc, argv, &options);
    if (result >= 0)
        return result;
    enum status status = admin_client_open(&options.target, &client, &error);
    if (status != ST_OK)
        return options_fail(table, status, &error);
    json_t *all = json_array();
    result = 0;
    for (unsigned i = 0; i < admin_client_count(client); i++) {
        const char *name = admin_client_name(client, i);
        json_t *root = NULL;
        status = ask(client, i, &options, &root, &error);
        if (status != ST_OK) {
            result = options_fail(table, status, &error);
            if (status != ST_UNREACHABLE || table != &status_table)
                continue;
            root = view_silent_state(error.text);
            if (!options.json)
                view_problems(root, SIZE_MAX, stdout);
            json_object_set_new(root, "asked", json_string(name));
            json_array_append_new(all, root);
            continue;
        }
        if (table == &status_table && !view_true(root, "ready"))
            result = 1;
        if (!options.json)
            print(root, name, &options, table == &machines_table);
        if (table == &machines_table && options.add == NULL && options.remove == NULL) {
            json_t *machines = json_incref(json_object_get(root, "machines"));
            json_decref(root);
            root = json_pack("{s:o?}", "machines", machines);
        }
        json_object_set_new(root, "asked", json_string(name));
        json_array_append_new(all, root);
    }
    if (options.json && json_dumpf(all, stdout, JSON_INDENT(1)) == 0)
        printf("\n");
    json_decref(all);
    admin_client_close(client);
    return result;
}

int status_main(int argc, char **argv)
{
    return run(&status_table, argc, argv);
}

int machines_main(int argc, char **argv)
{
    return run(&machines_table, argc, argv);
}
