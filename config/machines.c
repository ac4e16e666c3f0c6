/* config_machines: the list of machines. Pools name the machines, `machines` gives their settings.
 * A pool given as a number has local machines prompt-0, prompt-1, … */
#include "config/table.h"

#include "common/json.h"

#include <stdlib.h>
#include <string.h>

int config_machine_find(const struct config *config, const char *name)
{
    for (uint32_t i = 0; i < config->machine_count; i++) {
        if (config_machine_present(config, i) && strcmp(config->machines[i].name, name) == 0)
            return (int)i;
    }
    return -1;
}

static bool name_good(const char *name)
{
    size_t good = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_");
    return good > 0 && name[good] == 0 && good < LIMIT_NAME_BYTES;
}

static struct config_machine machine_default(const struct config *config, const char *name,
                                             enum pool pool)
{
    struct config_machine machine = {.pool = pool,
                                     .local = true,
                                     .device = "cpu",
                                     .f8_activations = true,
                                     .tensor_parallel = 1,
                                     .threads = config->threads,
                                     .kv_memory_bytes = config->kv.memory_bytes,
                                     .nice = pool == POOL_TOKEN ? 1 : 0};
    snprintf(machine.name, sizeof(machine.name), "%s", name);
    return machine;
}

/* Adds `name` to the pool. If the machine was in the same pool of `before`, it keeps its
 * settings. */
static bool machine_add(struct config *config, const struct config *before, enum pool pool,
                        const char *path, const char *name, struct config_fault *fault)
{
    if (!name_good(name))
        return config_fault_set(
            fault, path, " = \"%.64s\": want a name of at most %d letters, digits, dots, dashes",
            name, LIMIT_NAME_BYTES - 1);
    int known = config_machine_find(config, name);
    if (known >= 0)
        return config_fault_set(fault, path, " = \"%s\": it is in pool %s already", name,
                                pool_name(config->machines[known].pool));
    if (config->machine_count == LIMIT_MACHINES)
        return config_fault_set(fault, path, ": more than %d machines in all", LIMIT_MACHINES);
    struct config_machine *machine = &config->machines[config->machine_count++];
    known = config_machine_find(before, name);
    if (known >= 0 && before->machines[known].pool == pool) {
        *machine = before->machines[known];
        return true;
    }
    *machine = machine_default(config, name, pool);
    return true;
}

static bool pool_add(struct config *config, const struct config *before, enum pool pool,
                     const json_t *value, struct config_fault *fault)
{
    char path[CONFIG_KEY_BYTES];
    char name[LIMIT_NAME_BYTES];
    snprintf(path, sizeof(path), "pools/%s", pool_name(pool));
    if (json_is_integer(value) && json_integer_value(value) >= 0 &&
        json_integer_value(value) <= LIMIT_MACHINES) {
        for (int i = 0; i < (int)json_integer_value(value); i++) {
            snprintf(name, sizeof(name), "%s-%d", pool_name(pool), i);
            if (!machine_add(config, before, pool, path, name, fault))
                return false;
        }
        return true;
    }
    if (!json_is_array(value))
        return config_fault_value(fault, path, value,
                                  "want a whole number from 0 to %d, or a list of names",
                                  LIMIT_MACHINES);
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *item = json_array_get(value, i);
        snprintf(path, sizeof(path), "pools/%s/%zu", pool_name(pool), i);
        if (!json_is_string(item))
            return config_fault_value(fault, path, item, "want a machine's name");
        if (!machine_add(config, before, pool, path, json_string_value(item), fault))
            return false;
    }
    return true;
}

/* Sorts the machines: prompt machines, then token machines, then mixed ones. So the indices do not
 * depend on the order in which the pools were set, and do not change when a config is written and
 * read again. */
static void machines_sort(struct config *config, struct config *scratch)
{
    *scratch = *config;
    config->machine_count = 0;
    for (int pool = 0; pool < POOL_COUNT; pool++) {
        for (uint32_t i = 0; i < scratch->machine_count; i++) {
            if (scratch->machines[i].pool == (enum pool)pool)
                config->machines[config->machine_count++] = scratch->machines[i];
        }
    }
}

bool config_pool_set(struct config *config, enum pool pool, const json_t *value,
                     struct config_fault *fault)
{
    struct config *before = malloc(sizeof(*before));
    if (before == NULL)
        return config_fault_no_memory(fault, "pools");
    *before = *config;
    config->machine_count = 0;
    for (uint32_t i = 0; i < before->machine_count; i++) {
        if (before->machines[i].pool != pool)
            config->machines[config->machine_count++] = before->machines[i];
    }
    bool good = pool_add(config, before, pool, value, fault);
    if (good)
        machines_sort(config, before);
    free(before);
    return good;
}

bool config_machine_set(struct config_machine *machine, const struct config_key *key,
                        const char *path, const json_t *value, struct config_fault *fault)
{
    if (!config_value_set(key, machine, path, value, fault))
        return false;
    /* Unless `local`, which is read later, says otherwise. */
    if (key->offset == offsetof(struct config_machine, address))
        machine->local = false;
    return true;
}

bool config_machines_check(const struct config *config, struct config_fault *fault)
{
    bool has[POOL_COUNT] = {false};
    char path[CONFIG_KEY_BYTES];
    for (uint32_t i = 0; i < config->machine_count; i++) {
        const struct config_machine *machine = &config->machines[i];
        if (!config_machine_present(config, i))
            continue;
        has[machine->pool] = true;
        snprintf(path, sizeof(path), "machines/%s", machine->name);
        if (!machine->local && machine->address[0] == 0)
            return config_fault_set(fault, path, ": it is not local: want its address, HOST:PORT");
        if (!config_stages_check(machine, fault))
            return false;
        for (uint32_t j = 0; j < i && machine->address[0] != 0; j++) {
            if (strcmp(config->machines[j].address, machine->address) == 0)
                return config_fault_set(fault, path, "/address = \"%s\": machine %s has it as well",
                                        machine->address, config->machines[j].name);
        }
    }
    if (config_has_etcd(config))
        return true;
    if (!has[POOL_MIXED] && !(has[POOL_PROMPT] && has[POOL_TOKEN]))
        return config_fault_set(
            fault, "pools",
            ": no machine can serve requests: want a prompt and a token machine, or a mixed one");
    return true;
}

bool config_is_loopback(const struct config *config)
{
    bool loopback = true;
    for (uint32_t i = 0; i < config->machine_count; i++) {
        const struct config_machine *machine = &config->machines[i];
        if (config_machine_present(config, i))
            loopback = loopback && machine->local && config_stages_loopback(machine) &&
                       (machine->address[0] == 0 || config_address_is_loopback(machine->address));
    }
    return loopback;
}

/* ---- one machine, added by an operator ---- */

static bool pool_read(const json_t *value, enum pool *out, struct config_fault *fault)
{
    if (pool_by_name(json_string_value(value), out))
        return true;
    if (value == NULL)
        return config_fault_set(fault, "pool", ": want \"prompt\", \"token\" or \"mixed\"");
    return config_fault_value(fault, "pool", value, "want \"prompt\", \"token\" or \"mixed\"");
}

static bool machine_key_read(const char *name, const json_t *value, struct config_machine *out,
                             struct config_fault *fault)
{
    char path[CONFIG_KEY_BYTES];
    snprintf(path, sizeof(path), "machines/%.32s/%.64s", out->name, name);
    const struct config_key *key = strchr(name, '/') == NULL ? config_key_find(path) : NULL;
    if (key == NULL)
        return config_fault_set(
            fault, name,
            ": want name, pool, local, address, device, fallback, "
            "f8_activations, stages, tensor_parallel, threads, kv_memory, ucx_devices, "
            "nice or power_limit_w");
    return config_machine_set(out, key, name, value, fault);
}

static bool machine_read(json_t *root, const struct config *config, struct config_machine *out,
                         struct config_fault *fault)
{
    const char *name = json_string_value(json_object_get(root, "name"));
    const char *key;
    json_t *value;
    if (name == NULL || !name_good(name))
        return config_fault_set(fault, "name",
                                ": want a name of at most %d letters, digits, dots, "
                                "dashes",
                                LIMIT_NAME_BYTES - 1);
    enum pool pool;
    if (!pool_read(json_object_get(root, "pool"), &pool, fault))
        return false;
    *out = machine_default(config, name, pool);
    json_object_foreach(root, key, value)
    {
        bool done =
            strcmp(key, "name") == 0 || strcmp(key, "pool") == 0 || strcmp(key, "local") == 0;
        if (!done && !machine_key_read(key, value, out, fault))
            return false;
    }
    /* A machine with an address is not local, unless the key `local` is true. */
    value = json_object_get(root, "local");
    return value == NULL || machine_key_read("local", value, out, fault);
}

enum status config_machine_parse(const char *text, size_t text_bytes, const char *source,
                                 const struct config *config, struct config_machine *out,
                                 struct error *error)
{
    struct config_fault fault;
    json_error_t json_error;
    json_t *root;
    enum status status =
        json_text_load(text, text_bytes, JSON_REJECT_DUPLICATES, &root, &json_error);
    if (status == ST_NO_MEMORY)
        return error_set(error, status, "%s: out of memory", source);
    if (status != ST_OK)
        return error_set(error, status, "%s: not JSON: %s", source, json_error.text);
    struct config_machine machine;
    bool good = machine_read(root, config, &machine, &fault);
    json_decref(root);
    if (!good)
        return config_fault_error(&fault, source, 0, error);
    *out = machine;
    return ST_OK;
}
