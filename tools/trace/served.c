/* trace_served: see the header. A request is a row of a table, which the slot of the gateway's
 * request table finds until the slot has another request. Rows are written when all files were
 * read, because the end of a request may be in a later file than its arrival. */
#include "tools/trace/served.h"

#include "common/random.h"
#include "events/event_text.h"
#include "tools/report/lines.h"
#include "tools/trace/trace.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS        SCHED_REQUESTS_MAX
#define VERSIONS_MAX 8 /* More versions of the model than one gateway has at a time. */
/* The gateway reads the clock once for several lines, so a line may be a little earlier than the
 * line above it. */
#define BACK_US_MAX 1000000

enum row_state { ROW_OPEN, ROW_ENDED, ROW_REFUSED };

struct served_row {
    int64_t at_us;
    uint64_t first_id; /* Index in reader.ids. */
    uint32_t id_count;
    uint32_t block_tokens;
    uint32_t prompt_tokens;
    uint32_t output_tokens; /* Tokens of the generations that have ended. */
    uint32_t tenant;
    bool computed; /* The prompt was computed. */
    enum row_state state;
};

/* A map from a number to the order in which it was first seen, from 0. */
struct order {
    uint64_t *keys;   /* [room] */
    uint32_t *values; /* [room]: order + 1; 0 = unused. */
    uint32_t room;    /* A power of two, or 0. */
    uint32_t count;
};

struct served_reader {
    struct served_totals totals;
    struct served_row *rows;
    uint64_t row_count, row_room;
    int64_t *ids;
    uint64_t id_count, id_room;
    uint64_t slots[SLOTS]; /* Row of each slot's request + 1; 0 = none. */
    struct {
        uint32_t version;
        uint32_t block_tokens; /* Tokens from one prefix hash to the next. */
    } steps[VERSIONS_MAX];
    uint32_t step_next;
    struct order tenants;
    struct order prefixes;
    int64_t last_us;
    bool started;    /* A line with a time was read. */
    bool first_read; /* The first line of all files was read. */
    struct event_line line;
};

/* ---- tables that grow ---- */

/* Makes room for `more` items of `bytes` bytes behind `count`. */
static enum status grow(void **items, uint64_t *room, uint64_t count, uint64_t more, size_t bytes)
{
    if (count + more <= *room)
        return ST_OK;
    uint64_t larger = 2 * *room + more + 1024;
    void *grown = realloc(*items, larger * bytes);
    if (grown == NULL)
        return ST_NO_MEMORY;
    *items = grown;
    *room = larger;
    return ST_OK;
}

/* Returns the place of the key, or the unused place for it. Requires an unused place. */
static uint32_t order_place(const struct order *order, uint64_t key)
{
    uint32_t at = (uint32_t)random_mix(key) & (order->room - 1);
    while (order->values[at] != 0 && order->keys[at] != key)
        at = (at + 1) & (order->room - 1);
    return at;
}

static void order_done(struct order *order)
{
    free(order->keys);
    free(order->values);
}

static enum status order_grow(struct order *order)
{
    struct order larger = {.room = order->room > 0 ? 2 * order->room : 1024, .count = order->count};
    larger.keys = calloc(larger.room, sizeof(larger.keys[0]));
    larger.values = calloc(larger.room, sizeof(larger.values[0]));
    if (larger.keys == NULL || larger.values == NULL || larger.room > UINT32_MAX / 4) {
        order_done(&larger);
        return ST_NO_MEMORY;
    }
    for (uint32_t i = 0; i < order->room; i++) {
        if (order->values[i] == 0)
            continue;
        uint32_t at = order_place(&larger, order->keys[i]);
        larger.keys[at] = order->keys[i];
        larger.values[at] = order->values[i];
    }
    order_done(order);
    *order = larger;
    return ST_OK;
}

static enum status order_of(struct order *order, uint64_t key, uint32_t *out)
{
    if (2 * order->count >= order->room && order_grow(order) != ST_OK)
        return ST_NO_MEMORY;
    uint32_t at = order_place(order, key);
    if (order->values[at] == 0) {
        order->keys[at] = key;
        order->values[at] = ++order->count;
    }
    *out = order->values[at] - 1;
    return ST_OK;
}

/* ---- requests ---- */

static struct served_row *row_of(struct served_reader *r, uint32_t slot)
{
    return r->slots[slot] > 0 ? &r->rows[r->slots[slot] - 1] : NULL;
}

/* Forgets which request is in which slot: lines are missing. Ended requests stay in the trace. */
static void slots_forget(struct served_reader *r)
{
    memset(r->slots, 0, sizeof(r->slots));
}

static uint32_t step_of(const struct served_reader *r, uint32_t version)
{
    for (uint32_t i = 0; i < VERSIONS_MAX; i++)
        if (r->steps[i].version == version)
            return r->steps[i].block_tokens;
    return 0;
}

static void step_set(struct served_reader *r, uint32_t version, uint32_t block_tokens)
{
    uint32_t i = 0;
    while (i < VERSIONS_MAX && r->steps[i].version != version)
        i++;
    if (i == VERSIONS_MAX)
        i = r->step_next++ % VERSIONS_MAX;
    r->steps[i].version = version;
    r->steps[i].block_tokens = block_tokens;
}

static enum status prefix_take(struct served_reader *r, struct served_row *row)
{
    const struct sched_prefix *prefix = &r->line.event.prefix;
    row->first_id = r->id_count;
    row->block_tokens = step_of(r, r->line.version);
    if (row->block_tokens == 0 || row->block_tokens > TRACE_TOKENS_MAX)
        return ST_OK; /* Lines before the log's begin had the step. */
    enum status status =
        grow((void **)&r->ids, &r->id_room, r->id_count, prefix->count, sizeof(r->ids[0]));
    uint32_t most = row->prompt_tokens / row->block_tokens;
    for (uint32_t i = 0; status == ST_OK && i < prefix->count && i < most; i++) {
        uint32_t id;
        status = order_of(&r->prefixes, prefix->hashes[i], &id);
        r->ids[r->id_count] = id;
        if (status == ST_OK) {
            r->id_count++;
            row->id_count++;
        }
    }
    return status;
}

static enum status arrived(struct served_reader *r, struct error *error)
{
    const struct sched_event *event = &r->line.event;
    struct served_row *known = row_of(r, event->request);
    if (event->prompt_tokens < 1 || event->prompt_tokens > TRACE_TOKENS_MAX)
        return error_set(error, ST_INVALID, "prompt_tokens %u: want 1 to %d", event->prompt_tokens,
                         TRACE_TOKENS_MAX);
    if (event->resumed) { /* Its prompt now includes what the client has received. */
        if (known == NULL)
            return ST_OK;
        if (event->prompt_tokens < known->prompt_tokens)
            return error_set(error, ST_INVALID,
                             "prompt_tokens %u of a resumed request: want at least %u, the tokens "
                             "of its prompt",
                             event->prompt_tokens, known->prompt_tokens);
        known->output_tokens = event->prompt_tokens - known->prompt_tokens;
        known->state = ROW_OPEN;
        return ST_OK;
    }
    if (grow((void **)&r->rows, &r->row_room, r->row_count, 1, sizeof(r->rows[0])) != ST_OK)
        return error_set(error, ST_NO_MEMORY, "out of memory");
    struct served_row *row = &r->rows[r->row_count];
    *row = (struct served_row){.at_us = r->last_us, .prompt_tokens = event->prompt_tokens};
    if (prefix_take(r, row) != ST_OK)
        return error_set(error, ST_NO_MEMORY, "out of memory");
    if (event->key_index != UINT32_MAX) {
        if (order_of(&r->tenants, event->key_index, &row->tenant) != ST_OK)
            return error_set(error, ST_NO_MEMORY, "out of memory");
        row->tenant++;
    }
    r->slots[event->request] = ++r->row_count;
    return ST_OK;
}

static enum status ended(struct served_reader *r, struct error *error)
{
    const struct sched_event *event = &r->line.event;
    struct served_row *row = row_of(r, event->request);
    if (row == NULL || row->state != ROW_OPEN)
        return ST_OK;
    if (event->output_tokens > TRACE_TOKENS_MAX - row->output_tokens)
        return error_set(error, ST_INVALID, "output_tokens %u: want at most %d",
                         event->output_tokens, TRACE_TOKENS_MAX);
    row->output_tokens += event->output_tokens;
    row->state = ROW_ENDED;
    return ST_OK;
}

static enum status actions_take(struct served_reader *r, struct error *error)
{
    for (uint32_t i = 0; i < r->line.actions.count; i++) {
        const struct sched_action *action = &r->line.actions.items[i];
        if (action->kind != SCHED_REFUSE && action->kind != SCHED_EXPIRED)
            continue;
        if (action->request >= SLOTS)
            return error_set(error, ST_INVALID, "request %u: want less than %u", action->request,
                             SLOTS);
        struct served_row *row = row_of(r, action->request);
        if (row != NULL && row->state == ROW_OPEN)
            row->state = row->output_tokens > 0 ? ROW_ENDED : ROW_REFUSED;
    }
    return ST_OK;
}

static enum status event_take(struct served_reader *r, struct error *error)
{
    const struct sched_event *event = &r->line.event;
    if (r->started && r->line.now_us < r->last_us - BACK_US_MAX)
        return error_set(error, ST_INVALID,
                         "t %" PRId64
                         " is %.1f s before the line above: the host was restarted, or "
                         "the files are in another order; want files of one start, oldest first",
                         r->line.now_us, (double)(r->last_us - r->line.now_us) / 1e6);
    if (!r->started || r->line.now_us > r->last_us)
        r->last_us = r->line.now_us;
    r->started = true;
    enum status status = ST_OK;
    if (r->line.kind == EVENT_LINE_EVENT) {
        if (event->request >= SLOTS)
            return error_set(error, ST_INVALID, "request %u: want less than %u", event->request,
                             SLOTS);
        struct served_row *row = row_of(r, event->request);
        if (event->kind == SCHED_ARRIVED)
            status = arrived(r, error);
        else if (event->kind == SCHED_ENDED)
            status = ended(r, error);
        else if ((event->kind == SCHED_COMPUTED || event->kind == SCHED_PREFILLED) && row != NULL)
            row->computed = true;
    }
    return status == ST_OK ? actions_take(r, error) : status;
}

/* ---- files ---- */

/* Notes whether the log begins with the gateway's start. is_line: the first line of all files is a
 * line of an event log, which is in r->line. */
static void first_take(struct served_reader *r, bool is_line)
{
    r->first_read = true;
    r->totals.begins_after_start = !(is_line && r->line.kind == EVENT_LINE_BEGIN && r->line.whole);
}

static enum status line_take(struct served_reader *r, struct error *error)
{
    const struct event_line *line = &r->line;
    switch (line->kind) {
    case EVENT_LINE_BEGIN:
        if (line->whole)
            slots_forget(r); /* The gateway has restarted. */
        step_set(r, EVENT_VERSION_FIRST, line->options.prefix_step_tokens);
        return ST_OK;
    case EVENT_LINE_VERSION:
        step_set(r, line->version, line->options.prefix_step_tokens);
        return ST_OK;
    case EVENT_LINE_DROPPED:
        r->totals.lines_lost += line->dropped;
        slots_forget(r);
        return ST_OK;
    case EVENT_LINE_EVENT:
    case EVENT_LINE_CONFIGURE:
    case EVENT_LINE_MORE:
        return event_take(r, error);
    case EVENT_LINE_MACHINE:
    case EVENT_LINE_REQUEST:
    case EVENT_LINE_OUTCOME:
    case EVENT_LINE_VERSION_GONE:
        break;
    }
    return ST_OK;
}

static enum status file_read(struct served_reader *r, FILE *file, const char *name, bool skip,
                             struct error *error)
{
    char *text = NULL;
    size_t room = 0;
    ssize_t bytes;
    uint64_t number = 0;
    enum status status = ST_OK;
    while (status == ST_OK && (bytes = getline(&text, &room, file)) >= 0) {
        struct error what = {""};
        number++;
        bool whole = text[bytes - 1] == '\n';
        status = event_text_read(text, (size_t)bytes, &r->line, &what);
        if (status == ST_INVALID && !whole && feof(file)) {
            /* The gateway died while it wrote the line, or writes it now. */
            r->totals.files_incomplete++;
            status = ST_OK;
            break;
        }
        if (!r->first_read)
            first_take(r, status == ST_OK);
        if (status == ST_OK)
            status = line_take(r, &what);
        if (status == ST_OK)
            continue;
        error_set(error, status, "%s:%" PRIu64 ": %.200s", name, number, what.text);
        if (status != ST_INVALID || !skip)
            continue;
        if (r->totals.lines_wrong++ == 0)
            snprintf(r->totals.first_wrong, sizeof(r->totals.first_wrong), "%.299s", error->text);
        slots_forget(r);
        status = ST_OK;
    }
    if (status == ST_OK)
        status = lines_end_check(file, name, error);
    free(text);
    return status;
}

static enum status files_read(struct served_reader *r, const char *const *paths,
                              uint32_t path_count, bool skip, struct error *error)
{
    enum status status = ST_OK;
    for (uint32_t i = 0; status == ST_OK && i < path_count; i++) {
        bool input = strcmp(paths[i], "-") == 0;
        FILE *file = input ? stdin : fopen(paths[i], "re");
        if (file == NULL)
            return error_set(error, errno == ENOENT ? ST_NOT_FOUND : ST_IO, "%s: %s", paths[i],
                             strerror(errno));
        status = file_read(r, file, input ? "standard input" : paths[i], skip, error);
        if (!input)
            fclose(file);
    }
    return status;
}

static void rows_write(struct served_reader *r, FILE *out)
{
    struct served_totals *totals = &r->totals;
    for (uint64_t i = 0; i < r->row_count; i++) {
        struct served_row *row = &r->rows[i];
        bool promptly = row->state == ROW_ENDED && row->output_tokens == 0 && row->computed;
        if (promptly)
            row->output_tokens = 1;
        totals->refused += row->state == ROW_REFUSED;
        totals->requests_unended += row->state == ROW_OPEN;
        totals->tokenless += row->state == ROW_ENDED && row->output_tokens == 0;
        if (row->state != ROW_ENDED || row->output_tokens == 0)
            continue;
        const struct trace_row served = {
            .id = totals->requests,
            .at_s = (double)(row->at_us - r->rows[0].at_us) / 1e6,
            .prompt_tokens = row->prompt_tokens,
            .output_tokens = row->output_tokens,
            .blocks = r->ids + row->first_id,
            .block_count = row->id_count,
            .block_tokens = row->block_tokens,
            .tenant = row->tenant,
        };
        trace_row_write(out, &served);
        totals->requests++;
    }
}

enum status trace_served_write(const char *const *paths, uint32_t path_count, bool skip, FILE *out,
                               struct served_totals *totals_out, struct error *error)
{
    struct served_reader *r = calloc(1, sizeof(*r));
    if (r == NULL)
        return error_set(error, ST_NO_MEMORY, "out of memory");
    enum status status = files_read(r, paths, path_count, skip, error);
    if (status == ST_OK) {
        rows_write(r, out);
        *totals_out = r->totals;
        if (r->totals.requests == 0)
            status = error_set(error, ST_NOT_FOUND, "%s: no request was served", paths[0]);
    }
    order_done(&r->tenants);
    order_done(&r->prefixes);
    free(r->rows);
    free(r->ids);
    free(r);
    return status;
}
