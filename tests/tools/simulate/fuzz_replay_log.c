/* Goal: no event log crashes the replay. Seeds: a short log of a gateway, with a second version of
 * the model. */
#include "tools/simulate/replay_log.h"

#include "tests/fuzz.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct replay_log_totals totals;
    struct error error;
    FILE *file = size > 0 ? fmemopen((void *)data, size, "r") : NULL;
    if (file == NULL)
        return 0;
    replay_log(file, "log", NULL, &totals, &error);
    fclose(file);
    return 0;
}

size_t fuzz_seed(unsigned index, uint8_t *buffer, size_t capacity)
{
    static const char seed[] =
        "{\"events\":1,\"whole\":true,\"options\":{\"request_count\":8,\"machine_count\":3,"
        "\"prefix_count\":16,\"prefix_step_tokens\":4,\"queue_requests_max\":4,\"adaptive\":1,"
        "\"ttft_us_max\":9000,\"repurpose_window_us\":800}}\n"
        "{\"machine\":0,\"name\":\"p\"}\n"
        "{\"t\":1,\"event\":\"machine_up\",\"kv_tokens\":512,\"actions\":[]}\n"
        "{\"t\":2,\"event\":\"machine_up\",\"machine\":1,\"pool\":1,\"kv_tokens\":512,"
        "\"actions\":[]}\n"
        "{\"t\":3,\"event\":\"link_up\",\"peer\":1,\"actions\":[]}\n"
        "{\"t\":4,\"event\":\"arrived\",\"request\":1,\"prompt_tokens\":20,\"output_tokens\":9,"
        "\"weight\":2,\"prefix\":[5,-6],\"actions\":[{\"do\":\"route\",\"request\":1,\"peer\":1}]}"
        "\n"
        "{\"version\":2,\"options\":{\"request_count\":4,\"machine_count\":2}}\n"
        "{\"t\":5,\"event\":\"arrived\",\"version\":2,\"prompt_tokens\":3,\"actions\":[]}\n"
        "{\"t\":6,\"event\":\"computed\",\"request\":1,\"actions\":[]}\n"
        "{\"t\":7,\"event\":\"machine_rates\",\"prompt_tokens_per_s\":100,\"actions\":[]}\n"
        "{\"t\":8,\"event\":\"configure\",\"options\":{\"request_count\":8,\"machine_count\":3},"
        "\"actions\":[]}\n"
        "{\"t\":9,\"event\":\"machine_load\",\"others.decodes\":3,\"actions\":[]}\n"
        "{\"t\":9,\"event\":\"more\",\"actions\":[]}\n"
        "{\"t\":99999,\"event\":\"tick\",\"actions\":[]}\n"
        "{\"t\":100000,\"event\":\"machine_down\",\"actions\":[]}\n";
    if (index > 0 || sizeof(seed) - 1 > capacity)
        return 0;
    memcpy(buffer, seed, sizeof(seed) - 1);
    return sizeof(seed) - 1;
}
