/* admin_view: see the header. */
#include "tools/admin/view.h"

#include "common/layer_groups.h"
#include "tools/report/table.h"

#include <stdlib.h>
#include <string.h>

#define BAR_COLUMNS 10

const char *view_text(const json_t *object, const char *member)
{
    const char *text = json_string_value(json_object_get(object, member));
    return text != NULL ? text : "";
}

uint64_t view_whole(const json_t *object, const char *member)
{
    json_int_t number = json_integer_value(json_object_get(object, member));
    return number > 0 ? (uint64_t)number : 0;
}

bool view_true(const json_t *object, const char *member)
{
    return json_is_true(json_object_get(object, member));
}

const char *view_printable(const char *text, char *out, size_t capacity)
{
    const unsigned char *at = (const unsigned char *)text;
    size_t used = 0;
    for (; *at != 0 && used + 1 < capacity; at++) {
        /* U+0080 to U+009F are control characters, too: U+009B begins a terminal's command. */
        const bool long_control = at[0] == 0xc2 && at[1] >= 0x80 && at[1] < 0xa0;
        out[used++] = *at < ' ' || *at == 127 || long_control ? '?' : (char)*at;
        at += long_control ? 1 : 0;
    }
    out[used] = 0;
    return out;
}

/* Writes "12.3 GiB". Returns `out`. */
static const char *bytes_write(double bytes, char out[16])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    unsigned unit = 0;
    while (bytes >= 1024 && unit + 1 < sizeof(units) / sizeof(units[0])) {
        bytes /= 1024;
        unit++;
    }
    snprintf(out, 16, bytes < 10 && unit > 0 ? "%.1f %s" : "%.0f %s", bytes, units[unit]);
    return out;
}

/* Writes "3 h 12 min". Returns `out`. */
static const char *duration_write(double seconds, char out[24])
{
    unsigned long whole = seconds > 0 && seconds < 1e12 ? (unsigned long)seconds : 0;
    if (whole < 60)
        snprintf(out, 24, "%lu s", whole);
    else if (whole < 3600)
        snprintf(out, 24, "%lu min", whole / 60);
    else if (whole < 48 * 3600)
        snprintf(out, 24, "%lu h %lu min", whole / 3600, whole / 60 % 60);
    else
        snprintf(out, 24, "%lu days", whole / 86400);
    return out;
}

static void headroom_write(const json_t *headroom, FILE *out)
{
    static const char *const names[] = {"all", "prompt", "token"};
    char text[3][24];
    if (headroom == NULL)
        return; /* An older gateway. */
    if (!json_is_object(headroom)) {
        fprintf(out, "  head-room: unknown, too little traffic\n");
        return;
    }
    for (int i = 0; i < 3; i++) {
        double factor = json_number_value(json_object_get(headroom, names[i]));
        snprintf(text[i], sizeof(text[i]), factor >= 100 ? "more than %.0f ×" : "%.2f ×", factor);
    }
    fprintf(out, "  head-room: %s%s (prompts %s, tokens %s)\n",
            view_true(headroom, "at_least") ? "at least " : "", text[0], text[1], text[2]);
}

void view_gateway(const json_t *state, const char *gateway_name, FILE *out)
{
    char model[128], detail[400], id[64], version[96], uptime[24];
    view_printable(view_text(state, "model"), model, sizeof(model));
    view_printable(view_text(state, "detail"), detail, sizeof(detail));
    view_printable(view_text(state, "gateway"), id, sizeof(id));
    view_printable(view_text(state, "version"), version, sizeof(version));
    duration_write(json_number_value(json_object_get(state, "uptime_s")), uptime);
    fprintf(out, "gateway %s at %s: %s%s, serves %s, up %s%s%s\n", id, gateway_name,
            view_true(state, "ready") ? "ready" : "not ready",
            view_true(state, "stopping") ? ", stopping" : "", model, uptime,
            version[0] != 0 ? ", cleave " : "", version);
    if (detail[0] != 0 && strcmp(detail, "ready") != 0 && strcmp(detail, "ok") != 0)
        fprintf(out, "  %s\n", detail);
    headroom_write(json_object_get(state, "headroom"), out);
    const json_t *update = json_object_get(state, "update");
    const char *what = view_text(update, "state");
    if (what[0] != 0 && strcmp(what, "none") != 0)
        fprintf(out, "  model update: %s\n", view_printable(what, detail, sizeof(detail)));
}

/* ---- machines ---- */

static const char *machine_state(const json_t *machine)
{
    if (strcmp(view_text(machine, "connection"), "up") != 0)
        return view_text(machine, "connection");
    return view_true(machine, "draining") ? "draining" : "up";
}

/* Share of the blocks that requests have; -1 = unknown. */
static double kv_used(const json_t *machine)
{
    static const char *const states[] = {"free",    "cached", "reserved",
                                         "filling", "live",   "quarantined"};
    const json_t *blocks = json_object_get(machine, "kv_blocks");
    double used = 0, total = 0;
    for (unsigned i = 0; i < sizeof(states) / sizeof(states[0]); i++) {
        double count = (double)view_whole(blocks, states[i]);
        total += count;
        used += i >= 2 ? count : 0;
    }
    return total > 0 ? used / total : -1;
}

static void kv_cell(struct table *table, const json_t *machine, bool bars)
{
    char bar[BAR_COLUMNS * 3 + 1] = "";
    double used = kv_used(machine);
    int filled = (int)(used * BAR_COLUMNS + 0.5);
    for (int i = 0; bars && i < BAR_COLUMNS; i++)
        strcat(bar, i < filled ? "█" : "░");
    if (used < 0)
        table_cell_add(table, "-");
    else
        table_cell_add(table, "%s%s%3.0f %%", bar, bars ? " " : "", used * 100);
}

/* Writes a measured speed; - = not known. */
static const char *speed_write(const json_t *measured, const char *member, char out[24])
{
    unsigned long long speed = view_whole(measured, member);
    snprintf(out, 24, speed > 0 ? "%llu" : "-", speed);
    return out;
}

static void machine_row(struct table *table, const json_t *machine, bool bars)
{
    char text[TABLE_CELL_BYTES], memory[16], prompts[24], outputs[24];
    bool up = strcmp(view_text(machine, "connection"), "up") == 0;
    const json_t *measured = json_object_get(machine, "measured");
    const char *pool = view_text(machine, "pool"), *home = view_text(machine, "home");
    table_cell_add(table, "%s", view_printable(view_text(machine, "name"), text, sizeof(text)));
    view_printable(pool, text, sizeof(text));
    table_cell_add(table, strcmp(pool, home) != 0 ? "%s (lent)" : "%s", text);
    table_cell_add(table, "%s", view_printable(machine_state(machine), text, sizeof(text)));
    kv_cell(table, machine, bars);
    table_cell_add(table, up ? "%llu + %llu" : "-",
                   (unsigned long long)view_whole(machine, "prompts_running"),
                   (unsigned long long)view_whole(machine, "prompts_waiting"));
    table_cell_add(table, up ? "%llu + %llu" : "-",
                   (unsigned long long)view_whole(machine, "decodes_running"),
                   (unsigned long long)view_whole(machine, "reservations_waiting"));
    table_cell_add(table, up ? "%s / %s" : "-",
                   speed_write(measured, "prompt_tokens_per_s", prompts),
                   speed_write(measured, "output_tokens_per_s", outputs));
    bytes_write((double)view_whole(machine, "resident_bytes"), memory);
    table_cell_add(table, up ? "%s" : "-", memory);
    /* The last ones: these are long, and a narrow terminal cuts them. */
    const char *host = view_text(machine, "host"), *device = view_text(machine, "device");
    table_cell_add(table, "%s", host[0] != 0 ? view_printable(host, text, sizeof(text)) : "-");
    table_cell_add(table, "%s", device[0] != 0 ? view_printable(device, text, sizeof(text)) : "-");
}

void view_machines(const json_t *state, bool with_bars, FILE *out)
{
    static const char *const heads[] = {"MACHINE", "POOL",         "STATE",  "KV USED", "PROMPTS",
                                        "DECODES", "TOKENS/S P/D", "MEMORY", "HOST",    "DEVICE"};
    struct table *table = calloc(1, sizeof(*table));
    const json_t *machines = json_object_get(state, "machines"), *machine;
    char why[400], name[64];
    size_t i;
    if (table == NULL)
        return;
    table_init(table, sizeof(heads) / sizeof(heads[0]));
    for (i = 0; i < sizeof(heads) / sizeof(heads[0]); i++)
        table_cell_add(table, "%s", heads[i]);
    json_array_foreach(machines, i, machine) machine_row(table, machine, with_bars);
    table_print_plain(table, out);
    free(table);
    if (json_array_size(machines) >= TABLE_ROWS_MAX)
        fprintf(out, "  … %zu machines in all (--json has every one)\n", json_array_size(machines));
    json_array_foreach(machines, i, machine)
    {
        view_printable(view_text(machine, "name"), name, sizeof(name));
        if (view_text(machine, "why")[0] != 0)
            fprintf(out, "  %s: %s\n", name,
                    view_printable(view_text(machine, "why"), why, sizeof(why)));
        if (view_text(machine, "warning")[0] != 0)
            fprintf(out, "  %s: %s\n", name,
                    view_printable(view_text(machine, "warning"), why, sizeof(why)));
        if (view_whole(machine, "crashes") > 0)
            fprintf(out, "  %s: %llu crashes, the latest: %s\n", name,
                    (unsigned long long)view_whole(machine, "crashes"),
                    view_printable(view_text(machine, "latest_crash"), why, sizeof(why)));
    }
}

/* Returns the sum over all machines of a field of their KV of layers of this kind. */
static uint64_t kind_sum(const json_t *state, const char *kind, const char *field)
{
    const json_t *machine;
    size_t i;
    uint64_t sum = 0;
    json_array_foreach(json_object_get(state, "machines"), i, machine) sum +=
        view_whole(json_object_get(json_object_get(machine, "kv_kinds"), kind), field);
    return sum;
}

/* Writes a field's sum for each kind of layers that some machine has: "1.2 MiB full, 310 KiB
 * window". */
static void kinds_write(const json_t *state, const char *field, FILE *out)
{
    const json_t *machine;
    size_t i;
    const char *before = " ";
    for (int kind = 0; kind < LAYER_KIND_COUNT; kind++) {
        const char *name = layer_kind_name((enum layer_kind)kind);
        bool known = false;
        char text[16];
        json_array_foreach(json_object_get(state, "machines"), i, machine) known |=
            json_object_get(json_object_get(machine, "kv_kinds"), name) != NULL;
        if (!known)
            continue;
        fprintf(out, "%s%s %s", before, bytes_write((double)kind_sum(state, name, field), text),
                name);
        before = ", ";
    }
}

void view_kv(const json_t *state, FILE *out)
{
    const uint64_t freed = kind_sum(state, layer_kind_name(LAYER_WINDOW), "freed_blocks");
    fputs("kv        held:", out);
    kinds_write(state, "bytes", out);
    fputs("; sent:", out);
    kinds_write(state, "sent_bytes", out);
    if (freed > 0)
        fprintf(out, "; %llu blocks freed before windows", (unsigned long long)freed);
    fputs("\n", out);
}

void view_links(const json_t *state, FILE *out)
{
    const json_t *link;
    char from[64], why[300];
    size_t i, up = 0, down = 0;
    json_array_foreach(json_object_get(state, "links"), i, link)
    {
        up += view_true(link, "up");
        down += !view_true(link, "up");
    }
    fprintf(out, "links     %zu up%s\n", up, down > 0 ? ", down:" : "");
    json_array_foreach(json_object_get(state, "links"), i, link) if (!view_true(link, "up"))
        fprintf(out, "  from %s: %s\n", view_printable(view_text(link, "from"), from, sizeof(from)),
                view_printable(view_text(link, "why"), why, sizeof(why)));
}

json_t *view_silent_state(const char *error_text)
{
    return json_pack("{s:s, s:[{s:s, s:s, s:s, s:s, s:s, s:s}]}", "error", error_text, "problems",
                     "name", "CleaveGatewayDown", "severity", "critical", "where", "gateway",
                     "what", "it does not answer: its process is gone, or its event loop hangs",
                     "what_to_do", "restart the gateway; other gateways serve on", "page",
                     "docs/operation.md#at-three-oclock, CleaveGatewayDown");
}

void view_problems(const json_t *state, size_t problems_max, FILE *out)
{
    const json_t *problems = json_object_get(state, "problems"), *problem;
    char text[500], where[64], duration[24];
    size_t i;
    fprintf(out, json_array_size(problems) > 0 ? "problems  %zu\n" : "problems  none\n",
            json_array_size(problems));
    json_array_foreach(problems, i, problem)
    {
        const json_t *since_s = json_object_get(problem, "since_s"); /* Missing = not known. */
        if (i == problems_max) {
            fprintf(out, "  … and %zu more: see cleave status\n",
                    json_array_size(problems) - problems_max);
            break;
        }
        duration_write(json_number_value(since_s), duration);
        fprintf(out, "  %s: ", view_printable(view_text(problem, "severity"), text, sizeof(text)));
        fprintf(out, "%s, ", view_printable(view_text(problem, "name"), text, sizeof(text)));
        fprintf(out, "%s%s%s: ", view_printable(view_text(problem, "where"), where, sizeof(where)),
                since_s != NULL ? ", for " : "", since_s != NULL ? duration : "");
        fprintf(out, "%s\n", view_printable(view_text(problem, "what"), text, sizeof(text)));
        fprintf(out, "    to do: %s",
                view_printable(view_text(problem, "what_to_do"), text, sizeof(text)));
        fprintf(out, " (%s)\n", view_printable(view_text(problem, "page"), text, sizeof(text)));
    }
}

void view_requests(const json_t *state, FILE *out)
{
    const char *name;
    json_t *count;
    const char *before = ": ";
    char text[32];
    fprintf(out, "requests  %llu open", (unsigned long long)view_whole(state, "requests_open"));
    json_object_foreach(json_object_get(state, "requests"), name, count)
    {
        if (json_integer_value(count) <= 0)
            continue;
        fprintf(out, "%s%lld %s", before, (long long)json_integer_value(count),
                view_printable(name, text, sizeof(text)));
        before = ", ";
    }
    fprintf(out, "; %llu resumed so far\n",
            (unsigned long long)view_whole(state, "requests_resumed"));
}
