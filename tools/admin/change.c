/* admin_change: `cleave drain`, `undrain` and `reload`: changes at each gateway that is named. */
#include "tools/admin/admin.h"
#include "tools/admin/client.h"
#include "tools/admin/view.h"

#include "common/clock.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define POLL_MS 200

struct change_options {
    struct admin_target target;
    const char *machine; /* NULL = reload. */
    bool wait;           /* Until the machine is idle. */
    double wait_s;
    bool json;
    bool dry_run;
};

#define FIELD(member) offsetof(struct change_options, member)

/* The tables are read by columns. */
/* clang-format off */
#define JSON_ENTRY {"json", NULL, OPTION_FLAG, FIELD(json), 0, 0, {NULL}, NULL, "print a JSON list with the answer of each gateway"}
static const struct option_entry drain_entries[] = {
    ADMIN_OPTIONS(change_options, target),
    {"wait", NULL, OPTION_FLAG, FIELD(wait), 0, 0, {NULL}, NULL, "wait until the machine has no request of these gateways"},
    {"wait-s", "S", OPTION_REAL, FIELD(wait_s), 1, 86400, {NULL}, "600", "most seconds that --wait waits; then the exit status is 1"},
    JSON_ENTRY,
};
static const struct option_entry entries[] = {
    ADMIN_OPTIONS(change_options, target),
    JSON_ENTRY,
};
static const struct option_entry reload_entries[] = {
    ADMIN_OPTIONS(change_options, target),
    {"dry-run", NULL, OPTION_FLAG, FIELD(dry_run), 0, 0, {NULL}, NULL, "change nothing, and print what a reload would change"},
    JSON_ENTRY,
};
/* clang-format on */

static const struct option_table drain_table = {
    .command = "drain",
    .usage = "MACHINE [--option value]…",
    .about = "Makes gateways give a machine no new requests. The machine hands its answers over, "
             "and finishes the\nrest. The drain counts only for the gateways that are asked.\n",
    .entries = drain_entries,
    .count = sizeof(drain_entries) / sizeof(drain_entries[0]),
    .operands = {{"MACHINE", FIELD(machine), true}}};
static const struct option_table undrain_table = {
    .command = "undrain",
    .usage = "MACHINE [--option value]…",
    .about = "Makes gateways use a drained machine again.\n",
    .entries = entries,
    .count = sizeof(entries) / sizeof(entries[0]),
    .operands = {{"MACHINE", FIELD(machine), true}}};
static const struct option_table reload_table = {
    .command = "reload",
    .usage = "[--option value]…",
    .about = "Makes gateways read their config and its files again, and prints what changed. A "
             "mistake changes\nnothing: it is printed, and the exit status is 1.\n",
    .entries = reload_entries,
    .count = sizeof(reload_entries) / sizeof(reload_entries[0])};

static void list_print(const json_t *answer, const char *name, const char *title)
{
    const json_t *line;
    char text[600];
    size_t i;
    json_array_foreach(json_object_get(answer, name), i, line)
    {
        const char *said = json_string_value(line);
        printf("  %s%s\n", title, view_printable(said != NULL ? said : "", text, sizeof(text)));
    }
}

static void answer_print(const char *gateway, const json_t *answer)
{
    char state[32];
    if (json_object_get(answer, "machine") != NULL) {
        printf("%s: machine %s is %s%s\n", gateway, view_text(answer, "machine"),
               view_printable(view_text(answer, "state"), state, sizeof(state)),
               view_true(answer, "idle") ? ", idle" : "");
        return;
    }
    size_t count = json_array_size(json_object_get(answer, "changed")) +
                   json_array_size(json_object_get(answer, "for_machines_that_start")) +
                   json_array_size(json_object_get(answer, "needs_restart"));
    printf("%s: %s\n", gateway,
           view_true(answer, "dry_run")
               ? (count > 0 ? "nothing is changed; a reload would change:"
                            : "nothing is changed; a reload would change nothing")
           : count > 0 ? "read again"
                       : "read again, nothing has changed");
    list_print(answer, "changed", "");
    list_print(answer, "for_machines_that_start", "for machines that start: ");
    list_print(answer, "needs_restart", "needs a restart: ");
}

/* Repeats the request until the machine is idle. */
static enum status idle_wait(struct admin_client *client, unsigned gateway, const char *path,
                             const struct change_options *options, json_t **root,
                             struct error *error)
{
    const int64_t until_us = clock_now_us(&clock_system) + (int64_t)(options->wait_s * 1e6);
    const struct timespec pause = {.tv_nsec = POLL_MS * 1000000L};
    enum status status = ST_OK;
    while (status == ST_OK && !view_true(*root, "idle")) {
        if (clock_now_us(&clock_system) >= until_us)
            return error_set(error, ST_CANCELLED, "%s: machine %s is not idle after %.0f s",
                             admin_client_name(client, gateway), options->machine, options->wait_s);
        nanosleep(&pause, NULL);
        json_decref(*root);
        *root = NULL;
        status = admin_client_json(client, gateway, "POST", path, NULL, root, error);
    }
    return status;
}

static int run(const struct option_table *table, int argc, char **argv)
{
    struct change_options options = {.machine = NULL};
    struct admin_client *client = NULL;
    struct error error = {""};
    char path[LIMIT_NAME_BYTES + 32] = "/admin/reload", folder[24];
    int result = options_start(table, argc, argv, &options);
    if (result >= 0)
        return result;
    if (options.dry_run)
        snprintf(path, sizeof(path), "/admin/reload/dry-run");
    snprintf(folder, sizeof(folder), "/admin/%s/", table->command);
    if (options.machine != NULL && !admin_machine_path(folder, options.machine, path, &error))
        return options_fail(table, ST_USAGE, &error);
    enum status status = admin_client_open(&options.target, &client, &error);
    if (status != ST_OK)
        return options_fail(table, status, &error);
    json_t *answers = json_array();
    result = 0;
    /* All gateways first, then the waiting: otherwise the later ones would go on sending requests.
     */
    json_t *roots[ADMIN_GATEWAYS_MAX] = {NULL};
    for (unsigned i = 0; i < admin_client_count(client); i++) {
        status = admin_client_json(client, i, "POST", path, NULL, &roots[i], &error);
        if (status != ST_OK)
            result = options_fail(table, status, &error);
    }
    for (unsigned i = 0; i < admin_client_count(client); i++) {
        status = ST_OK;
        if (roots[i] != NULL && options.wait)
            status = idle_wait(client, i, path, &options, &roots[i], &error);
        if (status != ST_OK)
            result = options_fail(table, status, &error);
        if (roots[i] == NULL)
            continue;
        if (!options.json)
            answer_print(admin_client_name(client, i), roots[i]);
        json_object_set_new(roots[i], "asked", json_string(admin_client_name(client, i)));
        json_array_append_new(answers, roots[i]);
    }
    if (options.json && json_dumpf(answers, stdout, JSON_INDENT(1)) == 0)
        printf("\n");
    json_decref(answers);
    admin_client_close(client);
    return result;
}

int drain_main(int argc, char **argv)
{
    return run(&drain_table, argc, argv);
}

int undrain_main(int argc, char **argv)
{
    return run(&undrain_table, argc, argv);
}

int reload_main(int argc, char **argv)
{
    return run(&reload_table, argc, argv);
}
