/* adapters: the key `adapters`, a list "NAME=PATH, NAME=PATH". */
#include "config/table.h"

#include <stdio.h>
#include <string.h>

/* Takes the next entry from *at, without blanks around it. Returns false at the end. */
static bool entry_next(const char **at, const char **begin, size_t *bytes)
{
    if (**at == 0)
        return false;
    const char *end = strchrnul(*at, ',');
    const char *first = *at, *last = end;
    while (first < last && *first == ' ')
        first++;
    while (last > first && last[-1] == ' ')
        last--;
    *begin = first;
    *bytes = (size_t)(last - first);
    *at = *end == ',' ? end + 1 : end;
    return true;
}

/* Divides an entry at its "=". Returns false if a part is missing or too long. */
static bool entry_read(const struct config *config, const char *begin, size_t bytes,
                       struct config_adapter *out)
{
    char path[LIMIT_PATH_BYTES];
    struct error error;
    const char *equals = memchr(begin, '=', bytes);
    const size_t name = equals != NULL ? (size_t)(equals - begin) : 0;
    if (name == 0 || name >= sizeof(out->name) || name + 1 >= bytes ||
        bytes - name - 1 >= sizeof(path))
        return false;
    snprintf(out->name, sizeof(out->name), "%.*s", (int)name, begin);
    snprintf(path, sizeof(path), "%.*s", (int)(bytes - name - 1), equals + 1);
    return config_file_path(config, path, out->path, &error) == ST_OK;
}

bool config_adapter_at(const struct config *config, uint32_t index, struct config_adapter *out)
{
    const char *at = config->adapters, *begin = NULL;
    size_t bytes = 0;
    for (uint32_t i = 0; entry_next(&at, &begin, &bytes); i++)
        if (i == index)
            return entry_read(config, begin, bytes, out);
    return false;
}

bool config_adapters_check(const struct config *config, struct config_fault *fault)
{
    struct config_adapter adapter, other;
    const char *at = config->adapters, *begin = NULL;
    size_t bytes = 0;
    for (uint32_t i = 0; entry_next(&at, &begin, &bytes); i++) {
        if (!entry_read(config, begin, bytes, &adapter))
            return config_fault_set(
                fault, "adapters", " has '%.*s': want NAME=PATH, with a name of up to %d bytes",
                (int)(bytes < 100 ? bytes : 100), begin, (int)sizeof(adapter.name) - 1);
        if (i == LIMIT_ADAPTERS)
            return config_fault_set(fault, "adapters", ": want at most %d", LIMIT_ADAPTERS);
        for (uint32_t j = 0; j < i; j++)
            if (config_adapter_at(config, j, &other) && strcmp(other.name, adapter.name) == 0)
                return config_fault_set(fault, "adapters", " has the name '%s' twice",
                                        adapter.name);
    }
    return true;
}
