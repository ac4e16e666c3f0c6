/* admin_requests: `cleave requests`: the latest requests of running gateways, or the life of
 * one. */
#include "tools/admin/admin.h"
#include "tools/admin/client.h"
#include "tools/admin/view.h"

#include "common/text.h"
#include "tools/report/table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct requests_options {
    struct admin_target target;
    const char *id; /* NULL = the latest ones. */
    uint64_t count;
    bool json;
};

#define FIELD(member) offsetof(struct requests_options, member)

/* The table is read by columns. */
/* clang-format off */
static const struct option_entry entries[] = {
    ADMIN_OPTIONS(requests_options, target),
    {"count", "N", OPTION_WHOLE, FIELD(count), 1, 90, {NULL}, "20", "requests to list"},
    {"json", NULL, OPTION_FLAG, FIELD(json), 0, 0, {NULL}, NULL, "print a JSON list with an object per gateway"},
};
/* clang-format on */

static const struct option_table table = {
    .command = "requests",
    .usage = "[ID] [--option value]…",
    .about = "Lists the latest requests of running gateways, or shows the life of one: machines, "
             "phases, tokens,\nresumptions. ID: the client's x-request-id, the answer's id, or a "
             "machine's number of the request. Exit\nstatus: 1 = no gateway knows it.\n",
    .entries = entries,
    .count = sizeof(entries) / sizeof(entries[0]),
    .operands = {{"ID", FIELD(id), false}}};

static const char *clock_write(const json_t *request, char out[32])
{
    json_int_t ms = json_integer_value(json_object_get(request, "arrived_unix_ms"));
    time_t seconds = (time_t)(ms / 1000);
    struct tm utc;
    gmtime_r(&seconds, &utc);
    snprintf(out, 32, "%02d:%02d:%02d.%03d", utc.tm_hour, utc.tm_min, utc.tm_sec, (int)(ms % 1000));
    return out;
}

static double seconds_of(const json_t *object, const char *name)
{
    return (double)view_whole(object, name) * 1e-6;
}

static void text_cell(struct table *out, const json_t *object, const char *name)
{
    char text[TABLE_CELL_BYTES];
    const char *found = view_printable(view_text(object, name), text, sizeof(text));
    table_cell_add(out, "%s", found[0] != 0 ? found : "-");
}

static void list_print(const json_t *requests)
{
    static const char *const heads[] = {"ARRIVED",   "REQUEST",   "KEY",    "STATE",
                                        "PROMPT ON", "ANSWER ON", "PROMPT", "CACHED",
                                        "ANSWER",    "RESUMED",   "TTFT S", "TOTAL S"};
    struct table *rows = calloc(1, sizeof(*rows));
    const json_t *request;
    char at[32];
    size_t i;
    if (rows == NULL)
        return;
    table_init(rows, sizeof(heads) / sizeof(heads[0]));
    for (i = 0; i < sizeof(heads) / sizeof(heads[0]); i++)
        table_cell_add(rows, "%s", heads[i]);
    json_array_foreach(requests, i, request)
    {
        static const char *const numbers[] = {"prompt_tokens", "cached_tokens", "answer_tokens",
                                              "resumed"};
        table_cell_add(rows, "%s", clock_write(request, at));
        text_cell(rows, request, "request");
        text_cell(rows, request, "key");
        text_cell(rows, request, "state");
        text_cell(rows, request, "prompt_machine");
        text_cell(rows, request, "token_machine");
        for (size_t n = 0; n < sizeof(numbers) / sizeof(numbers[0]); n++)
            table_cell_add(rows, "%llu", (unsigned long long)view_whole(request, numbers[n]));
        table_cell_add(rows, view_whole(request, "first_token_us") > 0 ? "%.3f" : "-",
                       seconds_of(request, "first_token_us"));
        table_cell_add(rows, "%.3f", seconds_of(request, "total_us"));
    }
    table_print_plain(rows, stdout);
    free(rows);
}

static void event_print(const json_t *event)
{
    char name[40], prompt[64], token[64], reason[40];
    view_printable(view_text(event, "event"), name, sizeof(name));
    view_printable(view_text(event, "prompt_machine"), prompt, sizeof(prompt));
    view_printable(view_text(event, "token_machine"), token, sizeof(token));
    printf("  %10.3f s  %s", seconds_of(event, "after_us"), name);
    if (strcmp(name, "queued") != 0 && strcmp(name, "prefilling") != 0)
        printf("%*s", 12 - (int)strlen(name), "");
    if (strcmp(name, "routed") == 0)
        printf("prompt on %s, answer on %s", prompt, token[0] != 0 ? token : "no other machine");
    else if (strcmp(name, "first_token") == 0)
        printf("%s: waited %.3f s, computed %.3f s, %llu tokens were cached", prompt,
               seconds_of(event, "wait_us"), seconds_of(event, "run_us"),
               (unsigned long long)view_whole(event, "cached_tokens"));
    else if (strcmp(name, "transferred") == 0)
        printf("%llu bytes of KV to %s in %.3f s, %.3f s of it after the first token",
               (unsigned long long)view_whole(event, "bytes"), token,
               seconds_of(event, "transfer_us"), seconds_of(event, "exposed_us"));
    else if (strcmp(name, "resuming") == 0)
        printf("%s after %llu tokens",
               view_printable(view_text(event, "reason"), reason, sizeof(reason)),
               (unsigned long long)view_whole(event, "tokens"));
    printf("\n");
}

static void life_print(const json_t *request)
{
    static const char *const members[] = {"answer", "machine_request", "key", "model", "why"};
    char text[300], at[32];
    const json_t *event;
    size_t i;
    printf("request %s, arrived at %s UTC: %s\n",
           view_printable(view_text(request, "request"), text, sizeof(text)),
           clock_write(request, at), view_text(request, "state"));
    for (i = 0; i < sizeof(members) / sizeof(members[0]); i++)
        if (view_text(request, members[i])[0] != 0)
            printf("  %s: %s\n",
                   strcmp(members[i], "machine_request") == 0 ? "number at machines" : members[i],
                   view_printable(view_text(request, members[i]), text, sizeof(text)));
    printf("  prompt tokens: %llu (%llu cached), answer tokens: %llu, resumed: %llu times\n",
           (unsigned long long)view_whole(request, "prompt_tokens"),
           (unsigned long long)view_whole(request, "cached_tokens"),
           (unsigned long long)view_whole(request, "answer_tokens"),
           (unsigned long long)view_whole(request, "resumed"));
    json_array_foreach(json_object_get(request, "events"), i, event) event_print(event);
    if (view_whole(request, "events_left_out") > 0)
        printf("  (%llu events in the middle are not kept)\n",
               (unsigned long long)view_whole(request, "events_left_out"));
    printf("  %10.3f s  %s\n", seconds_of(request, "total_us"),
           view_true(request, "open") ? "now" : "end");
}

/* Writes the path with the id as a part of a URL. */
static void path_write(const struct requests_options *options, struct text *out)
{
    text_format_add(out, "/admin/requests?count=%llu", (unsigned long long)options->count);
    if (options->id == NULL)
        return;
    text_string_add(out, "&id=");
    for (const char *at = options->id; *at != 0; at++)
        text_format_add(out, "%%%02X", (unsigned char)*at);
}

int requests_main(int argc, char **argv)
{
    struct requests_options options = {.id = NULL};
    struct admin_client *client = NULL;
    struct error error = {""};
    struct text path = {0};
    int result = options_start(&table, argc, argv, &options);
    if (result >= 0)
        return result;
    if (options.id != NULL && strlen(options.id) > 200) {
        error_set(&error, ST_USAGE, "ID: want at most 200 bytes");
        return options_fail(&table, ST_USAGE, &error);
    }
    enum status status = admin_client_open(&options.target, &client, &error);
    if (status != ST_OK)
        return options_fail(&table, status, &error);
    path_write(&options, &path);
    text_add(&path, "", 1);
    json_t *all = json_array();
    size_t found = 0;
    result = path.broken ? 1 : 0;
    for (unsigned i = 0; i < admin_client_count(client) && !path.broken; i++) {
        json_t *root = NULL;
        status = admin_client_json(client, i, "GET", path.data, NULL, &root, &error);
        if (status != ST_OK) {
            result = options_fail(&table, status, &error);
            continue;
        }
        const json_t *requests = json_object_get(root, "requests"), *request;
        size_t k;
        found += json_array_size(requests);
        if (!options.json && options.id == NULL) {
            printf("gateway at %s\n", admin_client_name(client, i));
            list_print(requests);
        }
        if (!options.json && options.id != NULL)
            json_array_foreach(requests, k, request) life_print(request);
        json_object_set_new(root, "asked", json_string(admin_client_name(client, i)));
        json_array_append_new(all, root);
    }
    if (options.json && json_dumpf(all, stdout, JSON_INDENT(1)) == 0)
        printf("\n");
    if (options.id != NULL && found == 0 && result == 0) {
        error_set(&error, ST_NOT_FOUND, "no gateway has the request %.200s among its latest ones",
                  options.id);
        result = options_fail(&table, ST_NOT_FOUND, &error);
    }
    text_done(&path);
    json_decref(all);
    admin_client_close(client);
    return result;
}
