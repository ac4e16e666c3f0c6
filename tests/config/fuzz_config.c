/* Goal: no text crashes the config reader, and an accepted config can be written and read again.
 * Method: see tests/fuzz.h. Each text is read as a config and as one machine (the body of a request
 * to /admin/machines); an accepted config is compared with the default, as a reload does. */
#include "config/config.h"
#include "tests/fuzz.h"

#include <stdlib.h>
#include <string.h>

static const char *const texts[] = {
    "{\"model\": \"m.gguf\", \"threads\": 2, \"http\": {\"listen\": \"127.0.0.1:8080\", "
    "\"body_bytes_max\": \"8MiB\", \"connections_max\": 4096}}",
    "{\"pools\": {\"prompt\": 2, \"token\": [\"t0\", \"t1\"], \"mixed\": 0},\n \"machines\": "
    "{\"t0\": "
    "{\"local\": true, \"threads\": 1, \"kv_memory\": \"1GiB\", \"device\": \"cpu\"}, \"t1\": "
    "{\"address\": "
    "\"[::1]:7400\"}}}",
    "{\"scheduler\": {\"prompt_batch_tokens\": 2048, \"mixed_prompt_tokens\": 512}, \"kv\": "
    "{\"block_tokens\": 16, \"memory\": 1048576, \"dtype\": \"f32\", \"transfer\": \"auto\"}}",
    "{\"transport\": {\"tls\": \"tcp\", \"heartbeat_ms\": 10, \"silence_ms\": 20}, \"slo\": "
    "{\"ttft_ms\": 1}}",
    "{\n\"kv\": {\n\"block_token\": [[{\"a\": [1, 2.5e3, null, true, \"\\u00e9\\\\\"]}]]}}",
    "{\"name\": \"t9\", \"pool\": \"token\", \"address\": \"10.0.0.1:7400\", \"stages\": 2}",
    "{\"pools\": {\"prompt\": [\"p0\"], \"token\": [\"t0\"]}, \"machines\": {\"p0\": {\"stages\": "
    "[{\"layers\": \"0-14\", \"threads\": 8}, {\"layers\": \"15-29\", \"speed\": 3}, {\"layers\": "
    "\"15-29\", \"host\": \"127.0.0.1:7101\", \"device\": \"cpu\"}]}, \"t0\": {\"stages\": "
    "[{\"tensor_parallel\": 2, \"devices\": [\"cuda:4\", \"cuda:6\"]}, {\"threads\": 1}]}}}",
};

static void on_change(void *self, const struct config_change *change)
{
    (void)self;
    if (change->path[0] == 0 || strcmp(change->old_value, change->new_value) == 0)
        abort();
}

/* Uses a valid config as the gateway does. */
static void use(const struct config *config)
{
    static struct config now;
    static struct config_stages stages;
    struct config_host_share share;
    for (uint32_t i = 0; i < config->machine_count; i++) {
        config_stages(&config->machines[i], &stages);
        config_machine_share(&config->machines[i], &share);
        if (stages.count > LIMIT_STAGE_PROCESSES || share.processes > 1 + LIMIT_STAGE_PROCESSES ||
            share.model_copies < 0)
            abort();
    }
    config_default(&now);
    config_diff(&now, config, on_change, NULL);
    config_reload_copy(&now, config);
}

static void use_machine(const char *text, size_t bytes)
{
    static struct config config;
    struct config_machine machine, plain = {.name = "x"};
    struct error error = {{0}};
    config_default(&config);
    if (config_machine_parse(text, bytes, "body", &config, &machine, &error) != ST_OK) {
        if (strncmp(error.text, "body", 4) != 0)
            abort();
        return;
    }
    if (machine.name[0] == 0 || memchr(machine.name, 0, sizeof(machine.name)) == NULL)
        abort();
    config_machine_diff(&plain, &machine, on_change, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct config config; /* 20 KiB each. */
    static struct config again;
    struct error error = {{0}};
    use_machine((const char *)data, size);
    enum status status = config_parse((const char *)data, size, "fuzz.json", &config, &error);
    if (status != ST_OK) {
        if (strncmp(error.text, "fuzz.json:", 10) != 0 || strchr(error.text, '\n') != NULL)
            abort(); /* The error must be one line that names the place. */
        return 0;
    }
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    if (file == NULL || config_write(&config, file) != ST_OK)
        abort();
    fclose(file);
    if (config_parse(text, bytes, "again.json", &again, &error) != ST_OK)
        abort();
    if (again.machine_count != config.machine_count || strcmp(again.model, config.model) != 0)
        abort();
    use(&config);
    free(text);
    return 0;
}

size_t fuzz_seed(unsigned index, uint8_t *buffer, size_t capacity)
{
    if (index >= sizeof(texts) / sizeof(texts[0]))
        return 0;
    size_t bytes = strlen(texts[index]);
    if (bytes > capacity)
        return 0;
    memcpy(buffer, texts[index], bytes);
    return bytes;
}
