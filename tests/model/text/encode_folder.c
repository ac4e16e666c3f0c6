/* encode_folder MODEL [plain]: for tokenizer_hub_test.py and tokenizer_ggml_test.py. Reads JSON
 * texts line by line and writes a line of their ids, with special tokens recognised and BOS as the
 * files want it, or with neither (plain); then the time to open the model, in ms. */
#include "tests/check.h"

#include "common/clock.h"
#include "model/text/tokenizer.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static void encode_line(const struct tokenizer *t, const char *line, bool plain)
{
    const struct tokenizer_encode_options options = {.parse_special = !plain, .add_bos = !plain};
    struct error error = {""};
    uint32_t *ids = NULL;
    size_t capacity = 0, count = 0;
    json_t *text = json_loads(line, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    CHECKF(json_is_string(text), "%s", line);
    CHECKF(tokenizer_encode(t, json_string_value(text), json_string_length(text), &options, &ids,
                            &capacity, &count, &error) == ST_OK,
           "%s", error.text);
    for (size_t i = 0; i < count; i++)
        printf("%u ", ids[i]);
    printf("\n");
    json_decref(text);
    free(ids);
}

int main(int argc, char **argv)
{
    struct model_file *file;
    struct tokenizer *t;
    struct error error = {""};
    char *line = NULL;
    size_t room = 0;
    CHECKF(argc == 2 || argc == 3, "usage: encode_folder MODEL [plain] < texts");
    int64_t begin_us = clock_now_us(&clock_system);
    if (model_file_open(argv[1], &file, &error) != ST_OK) {
        printf("%s\n", error.text);
        return 2;
    }
    if (tokenizer_open(file, &t, &error) != ST_OK) {
        printf("%s\n", error.text);
        model_file_close(file);
        return 2;
    }
    model_file_close(file);
    int64_t end_us = clock_now_us(&clock_system);
    while (getline(&line, &room, stdin) > 0)
        encode_line(t, line, argc == 3);
    printf("%.1f\n", (double)(end_us - begin_us) / 1e3);
    free(line);
    tokenizer_close(t);
    return 0;
}
