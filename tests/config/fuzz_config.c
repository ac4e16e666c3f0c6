/* Goal: no text crashes the config reader, and an accepted config can be written and read again.
 * Method: see tests/fuzz.h. */
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
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct config config; /* 20 KiB each */
    static struct config again;
    struct error error = {{0}};
    enum status status = config_parse((const char *)data, size, "fuzz.json", &config, &error);
    if (status != ST_OK) {
        if (strncmp(error.text, "fuzz.json:", 10) != 0 || strchr(error.text, '\n') != NULL)
            abort(); /* one line that names the place */
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
