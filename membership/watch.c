/* watch: reads a list of all entries at one revision, then watches from the next revision on. When
 * the watch ends, for any reason (a dead endpoint, a compaction that was faster than the watch), a
 * new list is read. While the watch continues, a new list is read every minute, because a
 * connection may be dead without notice.
 *
 * Entries are stored by name with the revision of their last change, so a list that is older than
 * what the watch has reported changes nothing. */
#include "membership/watch.h"

#include "membership/etcd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RETRY_FIRST_US 200000
#define RETRY_MAX_US   5000000
#define LIST_AGAIN_US  60000000
/* Size of an entry's name. Machines' names are shorter; invalid names may be longer. */
#define NAME_BYTES  64
#define ENTRIES_MAX 4096 /* Further entries are ignored. */

struct entry {
    char name[NAME_BYTES];
    int64_t revision; /* Revision of its last change. */
    bool good;        /* `joined` was called. */
    bool listed;      /* Contained in the list that is being read. */
};

struct watch {
    struct watch_options options;
    struct etcd *etcd;
    struct etcd_call *list;
    struct etcd_call *stream;
    int64_t revision; /* All changes up to this revision are known; 0 = none. */
    int64_t at_us;    /* Time of the next list. */
    int64_t retry_us;
    char prefix[MEMBER_KEY_BYTES];
    uint32_t count;
    struct entry entries[ENTRIES_MAX];
    bool reported;
    bool connected;
    char text[512];
};

static void state_report(struct watch *w, bool connected, const char *text)
{
    if (w->reported && w->connected == connected && (connected || strcmp(w->text, text) == 0))
        return;
    w->reported = true;
    w->connected = connected;
    snprintf(w->text, sizeof(w->text), "%s", text);
    w->options.events.connection_changed(w->options.self, connected, w->text);
}

/* ---- entries ---- */

static struct entry *entry_find(struct watch *w, const char *name)
{
    for (uint32_t i = 0; i < w->count; i++)
        if (strncmp(w->entries[i].name, name, NAME_BYTES - 1) == 0)
            return &w->entries[i];
    return NULL;
}

static void entry_remove(struct watch *w, struct entry *entry)
{
    struct entry gone = *entry;
    *entry = w->entries[--w->count];
    if (gone.good)
        w->options.events.left(w->options.self, gone.name);
}

static void entry_bad(struct watch *w, const char *name, const char *value, const char *why)
{
    char text[600];
    snprintf(text, sizeof(text), "etcd: key %.200s%.100s = %.100s: %.100s", w->prefix, name, value,
             why);
    w->options.events.unusable(w->options.self, text);
}

static void entry_change(struct watch *w, const char *name, const char *value, int64_t revision)
{
    struct member member;
    struct error error;
    struct entry *entry = entry_find(w, name);
    /* While a watch runs, it may have reported a newer change than the list; then the entry stays.
     * Without a watch, a lower revision means that etcd was set up again. */
    if (entry != NULL &&
        (revision == entry->revision || (w->stream != NULL && revision < entry->revision))) {
        entry->listed = true;
        return;
    }
    if (entry == NULL && w->count == ENTRIES_MAX)
        return;
    if (entry == NULL) {
        entry = &w->entries[w->count++];
        *entry = (struct entry){0}; /* An earlier entry may have been there. */
    }
    bool was_good = entry->good;
    *entry = (struct entry){.revision = revision, .listed = true};
    snprintf(entry->name, sizeof(entry->name), "%s", name);
    entry->good = member_decode(name, value, &member, &error) == ST_OK;
    if (entry->good) {
        w->options.events.joined(w->options.self, &member);
        return;
    }
    entry_bad(w, name, value, error.text);
    if (was_good)
        w->options.events.left(w->options.self, entry->name);
}

/* Handles one key and value. A deleted key has no value. */
static void kv_take(struct watch *w, const json_t *kv, bool deleted)
{
    size_t prefix = strlen(w->prefix);
    int64_t revision = etcd_number_read(kv, "mod_revision");
    char *key = etcd_text_decode(json_object_get(kv, "key"));
    char *value = etcd_text_decode(json_object_get(kv, "value"));
    if (key != NULL && strncmp(key, w->prefix, prefix) == 0) {
        struct entry *entry = entry_find(w, key + prefix);
        if (!deleted)
            entry_change(w, key + prefix, value != NULL ? value : "", revision);
        else if (entry != NULL && revision > entry->revision)
            entry_remove(w, entry);
    }
    free(key);
    free(value);
}

/* ---- the calls ---- */

static void watch_begin(struct watch *w);

/* Reads everything again later, with growing pauses. */
static void failed(struct watch *w, const char *why)
{
    etcd_call_cancel(w->list);
    etcd_call_cancel(w->stream);
    w->list = w->stream = NULL;
    w->at_us = clock_now_us(w->options.clock) + w->retry_us;
    w->retry_us = 2 * w->retry_us < RETRY_MAX_US ? 2 * w->retry_us : RETRY_MAX_US;
    state_report(w, false, why);
}

static void on_list(void *self, json_t *reply, const char *why)
{
    struct watch *w = self;
    char text[300];
    w->list = NULL;
    if (reply == NULL) {
        failed(w, why);
        return;
    }
    int64_t revision = etcd_number_read(json_object_get(reply, "header"), "revision");
    if (revision <= 0) {
        snprintf(text, sizeof(text), "etcd at %s: its list has no revision",
                 etcd_endpoint(w->etcd));
        failed(w, text);
        return;
    }
    /* The watch has already reported later changes. */
    if (w->stream != NULL && revision < w->revision) {
        w->at_us = clock_now_us(w->options.clock) + w->retry_us;
        return;
    }
    w->at_us = clock_now_us(w->options.clock) + LIST_AGAIN_US;
    for (uint32_t k = 0; k < w->count; k++)
        w->entries[k].listed = false;
    const json_t *kvs = json_object_get(reply, "kvs");
    for (size_t i = 0; i < json_array_size(kvs); i++)
        kv_take(w, json_array_get(kvs, i), false);
    for (uint32_t k = w->count; k-- > 0;)
        if (!w->entries[k].listed)
            entry_remove(w, &w->entries[k]);
    w->revision = revision;
    w->retry_us = RETRY_FIRST_US;
    snprintf(text, sizeof(text), "etcd at %s, %u machines", etcd_endpoint(w->etcd), w->count);
    state_report(w, true, text);
    if (w->stream == NULL)
        watch_begin(w);
}

static void on_line(void *self, json_t *line)
{
    struct watch *w = self;
    const json_t *result = json_object_get(line, "result");
    const json_t *events = json_object_get(result, "events");
    if (result == NULL || json_is_true(json_object_get(result, "canceled"))) {
        etcd_call_cancel(
            w->stream); /* Compacted, or not an event: the changes are in a new list. */
        w->stream = NULL;
        w->at_us = clock_now_us(w->options.clock) + w->retry_us;
        w->retry_us = 2 * w->retry_us < RETRY_MAX_US ? 2 * w->retry_us : RETRY_MAX_US;
        return;
    }
    int64_t revision = etcd_number_read(json_object_get(result, "header"), "revision");
    w->revision = revision > w->revision ? revision : w->revision;
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *event = json_array_get(events, i);
        const char *type = json_string_value(json_object_get(event, "type"));
        kv_take(w, json_object_get(event, "kv"), type != NULL && strcmp(type, "DELETE") == 0);
    }
}

static void on_watch_over(void *self, json_t *reply, const char *why)
{
    struct watch *w = self;
    (void)reply; /* A watch never ends successfully. */
    w->stream = NULL;
    failed(w, why);
}

/* The range of all keys that begin with the prefix. */
static json_t *range_json(const struct watch *w)
{
    char end[MEMBER_KEY_BYTES];
    size_t bytes = strlen(w->prefix);
    memcpy(end, w->prefix, bytes);
    end[bytes - 1]++;
    return json_pack("{s:o, s:o}", "key", etcd_text_encode(w->prefix, bytes), "range_end",
                     etcd_text_encode(end, bytes));
}

static void watch_begin(struct watch *w)
{
    char from[24];
    json_t *create = range_json(w);
    snprintf(from, sizeof(from), "%llu", (unsigned long long)w->revision + 1);
    if (json_object_set_new(create, "start_revision", json_string(from)) != 0) {
        json_decref(create);
        create = NULL;
    }
    w->stream = etcd_call_begin(w->etcd, "/v3/watch", json_pack("{s:o}", "create_request", create),
                                on_line, on_watch_over, w);
    if (w->stream == NULL)
        failed(w, "etcd: out of memory");
}

/* ---- life ---- */

enum status watch_open(const struct watch_options *options, struct watch **out, struct error *error)
{
    struct watch *w = calloc(1, sizeof(*w));
    if (w == NULL)
        return error_set(error, ST_NO_MEMORY, "etcd: out of memory");
    w->options = *options;
    w->retry_us = RETRY_FIRST_US;
    member_key(options->prefix, "", w->prefix);
    enum status status = etcd_open(options->config, options->clock, &w->etcd, error);
    if (status != ST_OK) {
        free(w);
        return status;
    }
    *out = w;
    return ST_OK;
}

void watch_close(struct watch *w)
{
    if (w == NULL)
        return;
    etcd_close(w->etcd);
    free(w);
}

void watch_report_again(struct watch *w)
{
    for (uint32_t i = 0; i < w->count; i++)
        w->entries[i].revision = 0;
    w->at_us = 0;
}

int watch_fd(const struct watch *w)
{
    return etcd_fd(w->etcd);
}

int watch_turn(struct watch *w)
{
    int timeout_ms = etcd_turn(w->etcd);
    if (w->list != NULL)
        return timeout_ms;
    int64_t left_us = w->at_us - clock_now_us(w->options.clock);
    if (left_us > 0) {
        int left_ms = (int)((left_us + 999) / 1000);
        return timeout_ms >= 0 && timeout_ms < left_ms ? timeout_ms : left_ms;
    }
    w->list = etcd_call_begin(w->etcd, "/v3/kv/range", range_json(w), NULL, on_list, w);
    if (w->list == NULL)
        failed(w, "etcd: out of memory");
    return etcd_turn(w->etcd);
}
