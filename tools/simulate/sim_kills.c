/* sim_kills: see the header. */
#include "tools/simulate/sim_kills.h"

#include "tools/report/csv.h"

#include <stdlib.h>
#include <string.h>

struct list {
    struct sim_kill *items;
    uint32_t count;
    uint32_t capacity;
};

static enum status machine_find(const struct csv *csv, const char *name,
                                const struct sim_machines *machines, uint32_t *out,
                                struct error *error)
{
    for (uint32_t i = 0; i < machines->count; i++)
        if (strcmp(machines->machines[i].name, name) == 0) {
            *out = i;
            return ST_OK;
        }
    return error_set(error, ST_NOT_FOUND,
                     "%.200s:%llu: machine = \"%.60s\": want the name of a machine, such as %s",
                     csv->path, (unsigned long long)csv->line, name,
                     machines->count > 0 ? machines->machines[0].name : "prompt-0");
}

static enum status kill_add(struct list *list, const struct sim_kill *kill, struct error *error)
{
    if (list->count == list->capacity) {
        uint32_t capacity = list->capacity > 0 ? 2 * list->capacity : 64;
        struct sim_kill *items = realloc(list->items, capacity * sizeof(items[0]));
        if (items == NULL)
            return error_set(error, ST_NO_MEMORY, "out of memory");
        list->items = items;
        list->capacity = capacity;
    }
    list->items[list->count++] = *kill;
    return ST_OK;
}

static enum status rows_read(struct csv *csv, const struct sim_machines *machines,
                             struct list *list, struct error *error)
{
    uint32_t time_column, machine_column;
    enum status status = csv_column_find(csv, "time_s", &time_column, error);
    if (status == ST_OK)
        status = csv_column_find(csv, "machine", &machine_column, error);
    while (status == ST_OK && csv_next(csv, &status, error)) {
        struct sim_kill kill = {.at_s = 0};
        status = csv_number_read(csv, time_column, &kill.at_s, error);
        if (status == ST_OK && kill.at_s < 0)
            status = error_set(error, ST_INVALID,
                               "%.200s:%llu: time_s = \"%.60s\": want seconds from 0 on", csv->path,
                               (unsigned long long)csv->line, csv_text_at(csv, time_column));
        if (status == ST_OK)
            status =
                machine_find(csv, csv_text_at(csv, machine_column), machines, &kill.machine, error);
        if (status == ST_OK)
            status = kill_add(list, &kill, error);
    }
    return status;
}

static int kill_compare(const void *left, const void *right)
{
    const struct sim_kill *a = left;
    const struct sim_kill *b = right;
    if (a->at_s != b->at_s)
        return a->at_s < b->at_s ? -1 : 1;
    return (a->machine > b->machine) - (a->machine < b->machine);
}

enum status sim_kills_read(const char *path, const struct sim_machines *machines,
                           struct sim_kill **out, uint32_t *count_out, struct error *error)
{
    struct csv csv;
    struct list list = {.count = 0};
    enum status status = csv_open(&csv, path, error);
    if (status != ST_OK)
        return status;
    status = rows_read(&csv, machines, &list, error);
    csv_close(&csv);
    if (status != ST_OK) {
        free(list.items);
        return status;
    }
    if (list.count > 1)
        qsort(list.items, list.count, sizeof(list.items[0]), kill_compare);
    *out = list.items;
    *count_out = list.count;
    return ST_OK;
}
