/* replay_log: see the header. There is a scheduler for each version of the model, as in the
 * gateway. Decisions are compared as text, so every field of the log is compared. */
#include "tools/simulate/replay_log.h"

#include "events/event_text.h"
#include "tools/report/lines.h"

#include <stdlib.h>
#include <string.h>

#define VERSIONS_MAX 8 /* More versions than one gateway has at a time; old ones are replaced. */

struct version {
    uint32_t number; /* 0 = unused. */
    struct sched_cluster *sc;
    struct sched_cluster_options options;
    bool known[LIMIT_CLUSTER_REQUESTS]; /* Requests that the scheduler knows. */
};

struct log_reader {
    const struct replay_log_calls *calls;
    struct replay_log_totals totals;
    struct version versions[VERSIONS_MAX];
    uint32_t next; /* Version to replace when none is unused. */
    bool whole;    /* True if the log has everything that the schedulers were ever given. */
    struct text logged;
    struct text decided;
    struct event_line line;
    struct sched_actions actions;
};

static void version_close(struct version *version)
{
    if (version == NULL)
        return;
    sched_cluster_close(version->sc);
    *version = (struct version){0};
}

static void versions_close(struct log_reader *r)
{
    for (uint32_t i = 0; i < VERSIONS_MAX; i++)
        version_close(&r->versions[i]);
}

static struct version *version_find(struct log_reader *r, uint32_t number)
{
    for (uint32_t i = 0; i < VERSIONS_MAX; i++)
        if (r->versions[i].number == number)
            return &r->versions[i];
    return NULL;
}

static enum status version_open(struct log_reader *r, uint32_t number, struct error *error)
{
    const struct sched_cluster_options *options = &r->line.options;
    struct version *version = version_find(r, number);
    if (options->request_count > LIMIT_CLUSTER_REQUESTS)
        return error_set(error, ST_INVALID, "request_count %u: want at most %u",
                         options->request_count, LIMIT_CLUSTER_REQUESTS);
    if (version == NULL)
        version = version_find(r, 0);
    if (version == NULL)
        version = &r->versions[r->next++ % VERSIONS_MAX];
    sched_cluster_close(version->sc);
    *version = (struct version){.number = number, .options = *options};
    enum status status = sched_cluster_open(options, &version->sc);
    if (status != ST_OK)
        version->number = 0;
    return status == ST_OK ? status
                           : error_set(error, status, "options that every scheduler refuses");
}

/* Checks what the scheduler itself does not check, because it trusts its gateway. */
static enum status event_check(const struct sched_event *event,
                               const struct sched_cluster_options *options, struct error *error)
{
    if (event->request >= options->request_count)
        return error_set(error, ST_INVALID, "request %u: want less than %u", event->request,
                         options->request_count);
    if (event->machine >= options->machine_count)
        return error_set(error, ST_INVALID, "machine %u: want less than %u", event->machine,
                         options->machine_count);
    if (event->peer >= options->machine_count)
        return error_set(error, ST_INVALID, "peer %u: want less than %u", event->peer,
                         options->machine_count);
    bool link = event->kind == SCHED_LINK_UP || event->kind == SCHED_LINK_DOWN ||
                event->kind == SCHED_LINK_SPEED;
    if (link && event->peer == event->machine)
        return error_set(error, ST_INVALID, "machine %u: a link to itself", event->machine);
    if (event->holder_plus_1 > options->machine_count)
        return error_set(error, ST_INVALID, "held %u: want at most %u", event->holder_plus_1,
                         options->machine_count);
    if (event->pool >= POOL_COUNT)
        return error_set(error, ST_INVALID, "pool %d: want less than %d", (int)event->pool,
                         (int)POOL_COUNT);
    if (event->kind == SCHED_ARRIVED && event->prompt_tokens == 0)
        return error_set(error, ST_INVALID, "prompt_tokens 0: want at least 1");
    return ST_OK;
}

static const char *actions_text(struct text *out, const struct sched_actions *actions)
{
    text_clear(out);
    event_text_event(out, EVENT_VERSION_FIRST, 0, NULL, actions);
    text_add(out, "", 1);
    return out->broken ? "(no memory)" : out->data;
}

/* Handles a request that arrives again while this scheduler still has it. That is an error unless
 * the scheduler has decided something else than the log before. */
static enum status arrive(struct log_reader *r, struct version *version, struct error *error)
{
    const struct sched_event *event = &r->line.event;
    if (!version->known[event->request])
        return ST_OK;
    if (r->totals.differing == 0)
        return error_set(error, ST_INVALID, "request %u arrives again before it has ended",
                         event->request);
    struct sched_event ended = {
        .kind = SCHED_ENDED, .now_us = event->now_us, .request = event->request};
    sched_cluster_event(version->sc, &ended, &r->actions);
    r->actions.count = 0;
    return ST_OK;
}

static void known_update(struct log_reader *r, struct version *version)
{
    const struct sched_event *event = &r->line.event;
    if (r->line.kind == EVENT_LINE_EVENT && event->kind == SCHED_ARRIVED)
        version->known[event->request] = true;
    if (r->line.kind == EVENT_LINE_EVENT && event->kind == SCHED_ENDED)
        version->known[event->request] = false;
    for (uint32_t i = 0; i < r->actions.count; i++) {
        const struct sched_action *action = &r->actions.items[i];
        if (action->kind == SCHED_REFUSE || action->kind == SCHED_EXPIRED ||
            action->kind == SCHED_LOST)
            version->known[action->request] = false;
    }
}

static void compare(struct log_reader *r)
{
    const struct sched_actions *logged = &r->line.actions;
    for (uint32_t i = 0; i < logged->count; i++) {
        enum sched_action_kind kind = logged->items[i].kind;
        r->totals.routes += kind == SCHED_ROUTE;
        r->totals.refusals += kind == SCHED_REFUSE;
        r->totals.moves += kind == SCHED_MOVED;
        r->totals.lost += kind == SCHED_LOST;
    }
    r->totals.actions += logged->count;
    const char *logged_text = actions_text(&r->logged, logged);
    const char *decided_text = actions_text(&r->decided, &r->actions);
    if (strcmp(logged_text, decided_text) == 0)
        return;
    r->totals.differing++;
    if (r->calls != NULL && r->calls->differs != NULL)
        r->calls->differs(r->calls->self, r->totals.lines, logged_text, decided_text);
}

static enum status line_apply(struct log_reader *r, struct version *version, struct error *error)
{
    const struct event_line *line = &r->line;
    enum status status = ST_OK;
    memset(&r->actions, 0, sizeof(r->actions));
    if (line->kind == EVENT_LINE_EVENT) {
        status = event_check(&line->event, &version->options, error);
        if (status == ST_OK && line->event.kind == SCHED_ARRIVED)
            status = arrive(r, version, error);
        if (status == ST_OK)
            sched_cluster_event(version->sc, &line->event, &r->actions);
    } else if (line->kind == EVENT_LINE_MORE) {
        sched_cluster_more_actions(version->sc, line->now_us, &r->actions);
    } else {
        status = sched_cluster_configure(version->sc, &line->options, line->now_us, &r->actions);
        if (status != ST_OK)
            error_set(error, status, "options that its scheduler refuses");
    }
    if (status != ST_OK)
        return status;
    if (r->totals.events++ == 0)
        r->totals.first_us = line->now_us;
    r->totals.last_us = line->now_us;
    known_update(r, version);
    compare(r);
    return ST_OK;
}

static enum status line_take(struct log_reader *r, struct error *error)
{
    const struct event_line *line = &r->line;
    switch (line->kind) {
    case EVENT_LINE_BEGIN:
        versions_close(r);
        r->totals.starts++;
        r->whole = line->whole;
        return version_open(r, EVENT_VERSION_FIRST, error);
    case EVENT_LINE_VERSION:
        return version_open(r, line->version, error);
    case EVENT_LINE_VERSION_GONE:
        version_close(version_find(r, line->version));
        return ST_OK;
    case EVENT_LINE_DROPPED:
        r->whole = false;
        return ST_OK;
    case EVENT_LINE_MACHINE:
    case EVENT_LINE_REQUEST:
    case EVENT_LINE_OUTCOME:
        return ST_OK;
    default:
        break;
    }
    struct version *version = version_find(r, line->version);
    if (!r->whole) {
        r->totals.skipped++;
        return ST_OK;
    }
    if (version == NULL)
        return error_set(error, ST_INVALID, "version %u: no line before has its options",
                         line->version);
    return line_apply(r, version, error);
}

enum status replay_log(FILE *file, const char *name, const struct replay_log_calls *calls,
                       struct replay_log_totals *out, struct error *error)
{
    struct log_reader *r = calloc(1, sizeof(*r));
    char *text = NULL;
    size_t room = 0;
    if (r == NULL)
        return error_set(error, ST_NO_MEMORY, "%s: out of memory", name);
    r->calls = calls;
    enum status status = ST_OK;
    struct error what = {""};
    ssize_t bytes;
    while (status == ST_OK && (bytes = getline(&text, &room, file)) >= 0) {
        r->totals.lines++;
        /* The last line of a gateway that died while writing it has no end. */
        bool cut = text[bytes - 1] != '\n';
        status = event_text_read(text, (size_t)bytes, &r->line, &what);
        if (status == ST_INVALID && cut && feof(file)) {
            status = ST_OK;
            break;
        }
        if (status == ST_OK)
            status = line_take(r, &what);
    }
    if (status != ST_OK)
        error_set(error, status, "%s:%llu: %.300s", name, (unsigned long long)r->totals.lines,
                  what.text);
    else
        status = lines_end_check(file, name, error);
    *out = r->totals;
    versions_close(r);
    text_done(&r->logged);
    text_done(&r->decided);
    free(text);
    free(r);
    return status;
}
