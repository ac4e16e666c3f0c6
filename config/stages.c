/* config_stages: the stages of a machine whose layers are split over devices. The config stores
 * them as text, "3" or a JSON list, which is checked when it is read. config_stages parses the text
 * again when they are needed. */
#include "common/device_name.h"
#include "common/json.h"
#include "config/table.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Default port of a stage on another host: this number plus the index of its first process in the
 * list. */
#define STAGE_PORT 7410
/* Memory of a process besides KV and weights (tests/cluster/test_memory.py). */
#define PROCESS_BYTES (30ull << 20)
/* Room for "/63" after a machine's name, which names its last stage process, and the NUL. */
#define STAGE_NAME_ROOM 4

/* One entry of the config's list. */
struct entry {
    struct config_stage stage; /* Values that all ranks of the stage share; ranks 0 = not given. */
    bool device_said;
    uint32_t device_count; /* 0 = rank 0 has stage.device, the other ranks the devices after it. */
    char devices[LIMIT_RANKS][sizeof(((struct config_stage *)NULL)->device)];
};

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
    out->end_layer = last + 1;
    return true;
}

static bool host_read(const char *path, const json_t *value, uint32_t place,
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
        snprintf(whole, sizeof(whole), "%s:%u", text, STAGE_PORT + place);
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

static bool devices_read(const char *path, const json_t *list, struct entry *out,
                         struct config_fault *fault)
{
    static const struct config_key device = {.path = "devices", .type = CONFIG_DEVICE};
    size_t count = json_array_size(list);
    if (!json_is_array(list) || count == 0 || count > LIMIT_RANKS)
        return config_fault_value(fault, path, list, "want a list of 1 to %d devices", LIMIT_RANKS);
    for (size_t i = 0; i < count; i++) {
        char item[CONFIG_KEY_BYTES];
        snprintf(item, sizeof(item), "%.180s/%zu", path, i);
        if (!config_value_set(&device, out->devices[i], item, json_array_get(list, i), fault))
            return false;
        if (strcspn(out->devices[i], ":") != strcspn(out->devices[0], ":") ||
            strncmp(out->devices[i], out->devices[0], strcspn(out->devices[0], ":")) != 0)
            return config_fault_value(fault, path, list, "want devices of one kind");
    }
    out->device_count = (uint32_t)count;
    return true;
}

static bool stage_key_read(const char *section, const char *name, const json_t *value,
                           uint32_t place, struct entry *out, struct config_fault *fault)
{
    static const struct config_key device = {
        .path = "device", .type = CONFIG_DEVICE, .offset = offsetof(struct config_stage, device)};
    struct config_stage *stage = &out->stage;
    char path[CONFIG_KEY_BYTES];
    snprintf(path, sizeof(path), "%.150s/%.32s", section, name);
    if (strcmp(name, "device") == 0)
        return out->device_said = config_value_set(&device, stage, path, value, fault);
    if (strcmp(name, "devices") == 0)
        return devices_read(path, value, out, fault);
    if (strcmp(name, "layers") == 0)
        return layers_read(path, value, stage, fault);
    if (strcmp(name, "host") == 0)
        return host_read(path, value, place, stage, fault);
    if (strcmp(name, "threads") == 0)
        return number_read(path, value, 0, 1024, &stage->threads, fault);
    if (strcmp(name, "speed") == 0)
        return number_read(path, value, 1, 1000, &stage->speed, fault);
    if (strcmp(name, "tensor_parallel") == 0)
        return number_read(path, value, 1, LIMIT_RANKS, &stage->ranks, fault);
    return config_fault_set(
        fault, path, ": want device, devices, layers, host, threads, speed or tensor_parallel");
}

/* Checks that each stage begins where the one before ended, or has the same layers as the one
 * before (a replica or a rank). */
static bool layers_follow(const char *section, const struct config_stages *stages,
                          struct config_fault *fault)
{
    const struct config_stage *all = stages->stages;
    uint32_t named = 0;
    for (uint32_t i = 0; i < stages->count; i++)
        named += all[i].end_layer > 0 ? 1 : 0;
    if (named == 0)
        return true;
    if (named < stages->count)
        return config_fault_set(fault, section, ": want `layers` of each stage, or of none");
    for (uint32_t i = 0; i < stages->count; i++) {
        uint32_t begin = i == 0 ? 0 : all[i - 1].end_layer;
        bool replica = i > 0 && all[i].first_layer == all[i - 1].first_layer &&
                       all[i].end_layer == all[i - 1].end_layer;
        if (replica || all[i].first_layer == begin)
            continue;
        char path[CONFIG_KEY_BYTES];
        snprintf(path, sizeof(path), "%.150s/%u/layers", section, all[i].list_index);
        return config_fault_set(
            fault, path, " = \"%u-%u\": want layers from %u on, or those of the stage before",
            all[i].first_layer, all[i].end_layer - 1, begin);
    }
    return true;
}

/* Changes *address from rank 0's to rank `rank`'s: the ranks have consecutive ports. */
static bool address_shift(char address[LIMIT_ADDRESS_BYTES], uint32_t rank)
{
    char *port = strrchr(address, ':');
    if (port == NULL || rank == 0)
        return true;
    unsigned long number = strtoul(port + 1, NULL, 10) + rank;
    size_t room = LIMIT_ADDRESS_BYTES - (size_t)(port + 1 - address);
    return number <= 65535 && snprintf(port + 1, room, "%lu", number) < (int)room;
}

/* Sets the device of rank `rank`: its own entry of `devices`, or the device `rank` numbers after
 * rank 0's. */
static bool device_shift(const struct entry *entry, struct config_stage *stage)
{
    uint32_t number;
    if (entry->device_count > 0)
        memcpy(stage->device, entry->devices[stage->rank], sizeof(stage->device));
    else if (stage->ranks > 1 && device_name_gpu(stage->device, &number))
        snprintf(stage->device, sizeof(stage->device), "cuda:%u", number + stage->rank);
    return strncmp(stage->device, "cuda", 4) != 0 || device_name_gpu(stage->device, NULL);
}

/* Adds the entry's processes, one per rank. `strict`: all keys of the machine have been read. */
static bool entry_add(const struct config_machine *machine, const char *section,
                      struct entry *entry, bool strict, struct config_stages *out,
                      struct config_fault *fault)
{
    struct config_stage *stage = &entry->stage;
    if (stage->ranks == 0)
        stage->ranks = machine->tensor_parallel > 1 ? machine->tensor_parallel : 1;
    if (entry->device_count > 0 && entry->device_said)
        return config_fault_set(fault, section, ": want device or devices, not both");
    if (entry->device_count > 0 && !strict)
        stage->ranks = entry->device_count;
    if (entry->device_count > 0 && entry->device_count != stage->ranks)
        return config_fault_set(fault, section,
                                "/devices: %u of them, tensor_parallel is %u: want one for each "
                                "rank",
                                entry->device_count, stage->ranks);
    if (out->count + stage->ranks > LIMIT_STAGE_PROCESSES)
        return config_fault_set(fault, section,
                                ": %u ranks behind %u processes: want at most %d in all",
                                stage->ranks, out->count, LIMIT_STAGE_PROCESSES);
    if (stage->threads > 0 && stage->ranks > 1)
        stage->threads = stage->threads > stage->ranks ? stage->threads / stage->ranks : 1;
    for (uint32_t rank = 0; rank < stage->ranks; rank++) {
        struct config_stage *to = &out->stages[out->count++];
        *to = *stage;
        to->rank = rank;
        if (!address_shift(to->address, rank))
            return config_fault_set(
                fault, section,
                "/host = \"%s\": its %u ranks use consecutive ports: there is none for rank %u",
                stage->address, stage->ranks, rank);
        if (!device_shift(entry, to))
            return config_fault_set(
                fault, section,
                "/device = \"%s\": its %u ranks use consecutive devices: there is none for rank %u",
                stage->device, stage->ranks, rank);
    }
    return true;
}

static void entry_init(const struct config_machine *machine, uint32_t index, struct entry *out)
{
    *out = (struct entry){.stage = {.list_index = index, .speed = 100}};
    snprintf(out->stage.device, sizeof(out->stage.device), "%s", machine->device);
}

static bool list_read(const struct config_machine *machine, const char *path, const json_t *list,
                      bool strict, struct config_stages *out, struct config_fault *fault)
{
    for (uint32_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        struct entry entry;
        char section[CONFIG_KEY_BYTES];
        const char *name;
        json_t *value;
        entry_init(machine, i, &entry);
        snprintf(section, sizeof(section), "%.150s/%u", path, i);
        if (!json_is_object(item))
            return config_fault_value(fault, section, item, "want an object");
        json_object_foreach((json_t *)item, name, value)
        {
            if (!stage_key_read(section, name, value, out->count, &entry, fault))
                return false;
        }
        if (!entry_add(machine, section, &entry, strict, out, fault))
            return false;
    }
    return layers_follow(path, out, fault);
}

/* Divides the machine's threads that no stage claims among the stages without a number. Each stage
 * gets at least one. */
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
                        bool strict, struct config_stages *out, struct config_fault *fault)
{
    *out = (struct config_stages){.count = 0};
    bool number = json_is_integer(value) && json_integer_value(value) >= 1 &&
                  json_integer_value(value) <= LIMIT_STAGE_PROCESSES;
    bool list = json_is_array(value) && json_array_size(value) >= 1 &&
                json_array_size(value) <= LIMIT_STAGE_PROCESSES;
    if (!number && !list)
        return config_fault_value(
            fault, path, value,
            "want a whole number from 1 to %u, or a list of at most as many stages",
            LIMIT_STAGE_PROCESSES);
    if (list && !list_read(machine, path, value, strict, out, fault))
        return false;
    for (uint32_t i = 0; number && i < json_integer_value(value); i++) {
        struct entry entry;
        entry_init(machine, i, &entry);
        if (!entry_add(machine, path, &entry, strict, out, fault))
            return false;
    }
    share_threads(machine, out);
    return true;
}

bool config_stages_set(struct config_machine *machine, const char *path, const json_t *value,
                       struct config_fault *fault)
{
    struct config_stages stages;
    if (!stages_read(machine, path, value, false, &stages, fault))
        return false;
    char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    if (text == NULL)
        return config_fault_no_memory(fault, path);
    bool fits = strlen(text) < sizeof(machine->stages);
    if (fits) /* A list of one entry is a stage process of its own, with its own device or host. */
        snprintf(machine->stages, sizeof(machine->stages), "%s",
                 strcmp(text, "1") == 0 ? "" : text);
    else
        config_fault_set(fault, path, ": want less than %zu characters", sizeof(machine->stages));
    free(text);
    return fits;
}

json_t *config_stages_json(const struct config_machine *machine)
{
    json_error_t why;
    json_t *value = NULL;
    if (machine->stages[0] != 0)
        json_text_load(machine->stages, strlen(machine->stages), JSON_DECODE_ANY, &value, &why);
    return value;
}

static bool stages_of(const struct config_machine *machine, const char *path,
                      struct config_stages *out, struct config_fault *fault)
{
    json_t *value = config_stages_json(machine);
    *out = (struct config_stages){.count = 0};
    if (value == NULL && machine->stages[0] != 0)
        return config_fault_no_memory(fault, path);
    /* One stage of several ranks. */
    if (value == NULL && machine->tensor_parallel > 1)
        value = json_integer(1);
    bool good = value == NULL || stages_read(machine, path, value, true, out, fault);
    json_decref(value);
    return good;
}

bool config_stages_check(const struct config_machine *machine, struct config_fault *fault)
{
    struct config_stages stages;
    char path[CONFIG_KEY_BYTES];
    snprintf(path, sizeof(path), "machines/%s/stages", machine->name);
    if (!stages_of(machine, path, &stages, fault))
        return false;
    if (stages.count > 0 && strlen(machine->name) > LIMIT_NAME_BYTES - STAGE_NAME_ROOM)
        return config_fault_set(fault, path,
                                ": a machine with stages has a name of at most %d characters",
                                LIMIT_NAME_BYTES - STAGE_NAME_ROOM);
    return true;
}

void config_stages(const struct config_machine *machine, struct config_stages *out)
{
    struct config_fault fault;
    bool good = stages_of(machine, "stages", out, &fault);
    assert(good); /* config_stages_check has accepted the text; memory for it is a few bytes. */
    (void)good;
}

void config_machine_share(const struct config_machine *machine, struct config_host_share *out)
{
    struct config_stages stages;
    config_stages(machine, &stages);
    *out = (struct config_host_share){.processes = 1, .model_copies = stages.count == 0 ? 1 : 0};
    for (uint32_t i = 0; i < stages.count; i++) {
        const struct config_stage *stage = &stages.stages[i];
        const struct config_stage *last = &stages.stages[stages.count - 1];
        uint32_t layers = last->end_layer;
        if (stage->address[0] != 0)
            continue;
        out->processes++;
        out->model_copies += (layers > 0 ? (double)(stage->end_layer - stage->first_layer) / layers
                                         : 1.0 / (last->list_index + 1)) /
                             stage->ranks;
    }
}

bool config_machine_drafts(const struct config *config, const struct config_machine *machine)
{
    struct config_stages stages;
    config_stages(machine, &stages);
    return config_draft_key(config) != NULL && config->scheduler.speculative_tokens > 0 &&
           machine->pool != POOL_PROMPT && stages.count == 0 &&
           !(config->scheduler.draft_layer && device_name_gpu(machine->device, NULL));
}

void config_machine_memory_add(const struct config *config, const struct config_machine *machine,
                               const struct config_model_bytes *files,
                               struct config_host_memory *sum)
{
    struct config_host_share share;
    config_machine_share(machine, &share);
    sum->weights_and_process_bytes += (uint64_t)(share.model_copies * (double)files->model + 0.5);
    sum->weights_and_process_bytes += config_machine_drafts(config, machine) ? files->draft : 0;
    sum->weights_and_process_bytes += share.processes * PROCESS_BYTES;
    sum->kv_bytes += (uint64_t)(share.model_copies * (double)machine->kv_memory_bytes + 0.5);
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
    bool gpus = true, any = false;
    if (strcmp(config->kv.dtype, "auto") != 0)
        return config->kv.dtype;
    for (uint32_t i = 0; i < config->machine_count && gpus; i++) {
        if (config_machine_present(config, i)) {
            any = true;
            gpus = machine_is_gpu(&config->machines[i]);
        }
    }
    return gpus && any ? "f16" : "i16";
}
