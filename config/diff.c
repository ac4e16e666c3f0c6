/* config_diff: finds how two configs differ, and takes over the differences that a running process
 * can adopt. Values are compared as the JSON that config_write would write. */
#include "config/table.h"

#include <stdlib.h>
#include <string.h>

static void value_format(const json_t *value, char out[80])
{
    char *text = value != NULL ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    bool cut = text != NULL && strlen(text) >= 76;
    snprintf(out, 80, "%.*s%s", cut ? 72 : 79, text != NULL ? text : "none", cut ? "…" : "");
    free(text);
}

static void key_diff(const struct config_key *key, const char *path, const void *now,
                     const void *next, config_change_call on_change, void *self)
{
    json_t *from = config_value_get(key, now);
    json_t *to = config_value_get(key, next);
    bool same = from == NULL || to == NULL ? from == to : json_equal(from, to) != 0;
    if (!same) {
        struct config_change change = {.reload = key->reload};
        snprintf(change.path, sizeof(change.path), "%s", path);
        value_format(from, change.old_value);
        value_format(to, change.new_value);
        on_change(self, &change);
    }
    json_decref(from);
    json_decref(to);
}

/* All keys except pools, machines and the config's origin. */
static bool key_plain(const struct config_key *key)
{
    return key->type != CONFIG_POOL && !config_key_of_machine(key) &&
           strcmp(key->path, "source") != 0;
}

void config_diff(const struct config *now, const struct config *next, config_change_call on_change,
                 void *self)
{
    for (size_t i = 0; i < config_key_count; i++)
        if (key_plain(&config_keys[i]))
            key_diff(&config_keys[i], config_keys[i].path, now, next, on_change, self);
}

void config_machine_diff(const struct config_machine *now, const struct config_machine *next,
                         config_change_call on_change, void *self)
{
    for (size_t i = 0; i < config_key_count; i++) {
        const struct config_key *key = &config_keys[i];
        char path[CONFIG_KEY_BYTES];
        if (!config_key_of_machine(key))
            continue;
        snprintf(path, sizeof(path), "machines/%s/%s", now->name, strrchr(key->path, '/') + 1);
        key_diff(key, path, now, next, on_change, self);
    }
}

void config_reload_copy(struct config *now, const struct config *next)
{
    for (size_t i = 0; i < config_key_count; i++) {
        const struct config_key *key = &config_keys[i];
        if (!key_plain(key) || key->reload == CONFIG_RELOAD_NEVER)
            continue;
        struct config_fault ignored; /* Cannot fail: the value comes from a checked config. */
        json_t *value = config_value_get(key, next);
        if (value != NULL)
            (void)config_value_set(key, now, key->path, value, &ignored);
        json_decref(value);
    }
}
