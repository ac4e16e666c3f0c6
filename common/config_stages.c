/* config_stages: the stages of a machine whose layers are split over devices. The config keeps them
 * as text, "3" or a JSON list, which is checked when it is read; who needs them has them read
 * again.
 */
#include "common/config_table.h"
#include "common/device_name.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Where a stage on another computer listens, if the config does not say: this plus its place in the
 * list. */
#define STAGE_PORT 7410

static bool layers_read(const char *path, const json_t *value, struct config_stage *out,
                        struct config_fault *fault)
{
    const char *text = json_string_value(value);
    unsigned first = 0;
    unsigned last = 0;
    int end = 0;
    bool good = text != NULL && strspn(text, "0123456789-") == strlen(text) && strlen(text) < 10 &&
                sscanf(text, "%u-%u%n", &first, &last, &end) == 2 && text[end] == 0;
    if (!good || last < first || last >= LIMIT_LAYERS)
        return config_fault_value(fault, path, value,
                                  "want the first and the last layer, such as \"0-14\"");
    out->first_layer = first;
    out->last_layer = last + 1;
    return true;
}

static bool host_read(const char *path, const json_t *value, uint32_t index,
                      struct config_stage *out, struct config_fault *fault)
{
    static const struct config_key address = {
        .path = "host", .type = CONFIG_ADDRESS, .offset = offsetof(struct config_stage, address)};
    const char *text = json_string_value(value);
    char whole[2 * LIMIT_ADDRESS_BYTES];
    if (text == NULL || strlen(text) >= LIMIT_ADDRESS_BYTES)
        return config_fault_value(fault, path, value, "want HOST or HOST:PORT");
    const char *colon = text[0] == '[' ? strstr(text, "]:") : strchr(text, ':');
    if (colon != NULL)
        snprintf(whole, sizeof(whole), "%s", text);
    else
        snprintf(whole, sizeof(whole), "%s:%u", text, STAGE_PORT + index);
    json_t *json = json_string(whole);
    bool good = json != NULL && config_value_set(&address, out, path, json, fault);
    json_decref(json);
    return good;
}

static bool number_read(const char *path, const json_t *value, uint32_t minimum, uint32_t maximum,
                        uint32_t *out, struct config_fault *fault)
{
    if (!json_is_integer(value) || json_integer_value(value) < minimum ||
        json_integer_value(value) > maximum)
        return config_fault_value(fault, path, value, "want a whole number from %u to %u", minimum,
                                  maximum);
    *out = (uint32_t)json_integer_value(value);
    return true;
}

static bool stage_key_read(const char *section, const char *name, const json_t *value,
                           uint32_t index, struct config_stage *out, struct config_fault *fault)
{
    static const struct config_key device = {
        .path = "device", .type = CONFIG_DEVICE, .offset = offsetof(struct config_stage, device)};
    char path[CONFIG_KEY_BYTES];
    snprintf(path, sizeof(path), "%.150s/%.32s", section, name);
    if (strcmp(name, "device") == 0)
        return config_value_set(&device, out, path, value, fault);
    if (strcmp(name, "layers") == 0)
        return layers_read(path, value, out, fault);
    if (strcmp(name, "host") == 0)
        return host_read(path, value, index, out, fault);
    if (strcmp(name, "threads") == 0)
        return number_read(path, value, 0, 1024, &out->threads, fault);
    if (strcmp(name, "speed") == 0)
        return number_read(path, value, 1, 1000, &out->speed, fault);
    return config_fault_set(fault, path, ": want device, layers, host, threads or speed");
}

/* A stage with the layers of the one before is another replica of it; any other begins where that
 * one ended. */
static bool layers_follow(const char *section, const struct config_stages *stages,
                          struct config_fault *fault)
{
    const struct config_stage *all = stages->stages;
    uint32_t named = 0;
    for (uint32_t i = 0; i < stages->count; i++)
        named += all[i].last_layer > 0 ? 1 : 0;
    if (named == 0)
        return true;
    if (named < stages->count)
        return config_fault_set(fault, section, ": want `layers` of each stage, or of none");
    for (uint32_t i = 0; i < stages->count; i++) {
        uint32_t begin = i == 0 ? 0 : all[i - 1].last_layer;
        bool replica = i > 0 && all[i].first_layer == all[i - 1].first_layer &&
                       all[i].last_layer == all[i - 1].last_layer;
        if (replica || all[i].first_layer == begin)
            continue;
        char path[CONFIG_KEY_BYTES];
        snprintf(path, sizeof(path), "%.150s/%u/layers", section, i);
        return config_fault_set(
            fault, path, " = \"%u-%u\": want layers from %u on, or those of the stage before",
            all[i].first_layer, all[i].last_layer - 1, begin);
    }
    return true;
}

static bool list_read(const struct config_machine *machine, const char *path, const json_t *list,
                      struct config_stages *out, struct config_fault *fault)
{
    size_t count = json_array_size(list);
    out->count = (uint32_t)count;
    for (uint32_t i = 0; i < count; i++) {
        const json_t *item = json_array_get(list, i);
        struct config_stage *stage = &out->stages[i];
        char section[CONFIG_KEY_BYTES];
        const char *name;
        json_t *value;
        snprintf(section, sizeof(section), "%.150s/%u", path, i);
        *stage = (struct config_stage){.speed = 100};
        snprintf(stage->device, sizeof(stage->device), "%s", machine->device);
        if (!json_is_object(item))
            return config_fault_value(fault, section, item, "want an object");
        json_object_foreach((json_t *)item, name, value)
        {
            if (!stage_key_read(section, name, value, i, stage, fault))
                return false;
        }
    }
    return layers_follow(path, out, fault);
}

/* Threads that no stage names are shared by those that do not: each has one at least. */
static void share_threads(const struct config_machine *machine, struct config_stages *stages)
{
    for (uint32_t i = 0; i < stages->count; i++) {
        struct config_stage *stage = &stages->stages[i];
        if (stage->threads == 0 && stage->address[0] == 0 && machine->threads > 0)
            stage->threads =
                machine->threads > stages->count ? machine->threads / stages->count : 1;
    }
}

static bool stages_read(const struct config_machine *machine, const char *path, const json_t *value,
                        struct config_stages *out, struct config_fault *fault)
{
    *out = (struct config_stages){.count = 0};
    bool number = json_is_integer(value) && json_integer_value(value) >= 1 &&
                  json_integer_value(value) <= LIMIT_STAGES;
    bool list = json_is_array(value) && json_array_size(value) >= 1 &&
                json_array_size(value) <= LIMIT_STAGES;
    if (!number && !list)
        return config_fault_value(fault, path, value,
                                  "want a whole number from 1 to %u, or a list of so many stages",
                                  LIMIT_STAGES);
    if (list && !list_read(machine, path, value, out, fault))
        return false;
    if (number) {
        out->count = (uint32_t)json_integer_value(value);
        for (uint32_t i = 0; i < out->count; i++) {
            out->stages[i] = (struct config_stage){.speed = 100};
            snprintf(out->stages[i].device, sizeof(out->stages[i].device), "%s", machine->device);
        }
    }
    share_threads(machine, out);
    return true;
}

bool config_stages_set(struct config_machine *machine, const char *path, const json_t *value,
                       struct config_fault *fault)
{
    struct config_stages stages;
    if (!stages_read(machine, path, value, &stages, fault))
        return false;
    char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    bool fits = text != NULL && strlen(text) < sizeof(machine->stages);
    if (fits) /* a list of one is a stage process of its own, which says where it runs */
        snprintf(machine->stages, sizeof(machine->stages), "%s",
                 strcmp(text, "1") == 0 ? "" : text);
    else
        config_fault_set(fault, path, ": want less than %zu characters", sizeof(machine->stages));
    free(text);
    return fits;
}

json_t *config_stages_json(const struct config_machine *machine)
{
    return machine->stages[0] == 0 ? NULL : json_loads(machine->stages, JSON_DECODE_ANY, NULL);
}

void config_stages(const struct config_machine *machine, struct config_stages *out)
{
    struct config_fault fault;
    json_t *value = config_stages_json(machine);
    *out = (struct config_stages){.count = 0};
    if (value == NULL)
        return;
    bool good = stages_read(machine, "stages", value, out, &fault);
    assert(good); /* it was checked when it was set; its defaults are of this machine */
    json_decref(value);
}

void config_machine_share(const struct config_machine *machine, struct config_share *out)
{
    struct config_stages stages;
    config_stages(machine, &stages);
    *out = (struct config_share){.processes = 1, .copies = stages.count == 0 ? 1 : 0};
    for (uint32_t i = 0; i < stages.count; i++) {
        const struct config_stage *stage = &stages.stages[i];
        uint32_t layers = stages.stages[stages.count - 1].last_layer;
        if (stage->address[0] != 0)
            continue;
        out->processes++;
        out->copies += layers > 0 ? (double)(stage->last_layer - stage->first_layer) / layers
                                  : 1.0 / stages.count;
    }
}

bool config_stages_loopback(const struct config_machine *machine)
{
    struct config_stages stages;
    config_stages(machine, &stages);
    for (uint32_t i = 0; i < stages.count; i++) {
        const char *address = stages.stages[i].address;
        if (address[0] != 0 && !config_address_is_loopback(address))
            return false;
    }
    return true;
}

static bool machine_is_gpu(const struct config_machine *machine)
{
    struct config_stages stages;
    config_stages(machine, &stages);
    bool gpu = stages.count > 0 || device_name_gpu(machine->device, NULL);
    for (uint32_t i = 0; i < stages.count; i++)
        gpu = gpu && device_name_gpu(stages.stages[i].device, NULL);
    return gpu;
}

const char *config_kv_dtype(const struct config *config)
{
    bool gpus = true;
    if (strcmp(config->kv.dtype, "auto") != 0)
        return config->kv.dtype;
    for (uint32_t i = 0; i < config->machine_count; i++)
        gpus = gpus && (!config_machine_present(config, i) || machine_is_gpu(&config->machines[i]));
    return gpus && config->machine_count > 0 ? "f16" : "i16";
}
