/* Goal: no chat template crashes or hangs the interpreter, or makes it leak. Seeds: the templates
 * of template_cases.jsonl, rendered with the variables of that file and small limits. */
#include "model/template/template.h"
#include "tests/check.h"
#include "tests/fuzz.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static const struct template_limits limits = {
    .steps = 20000, .depth = 400, .memory_bytes = 4 << 20, .output_bytes = 1 << 16};
static json_t *lines; /* The first has the variables, each other a template. */

static void lines_read(void)
{
    FILE *file = fopen(test_data_path("template_cases.jsonl"), "r");
    char *text = NULL;
    size_t capacity = 0;
    lines = json_array();
    CHECK(file != NULL && lines != NULL);
    while (getline(&text, &capacity, file) > 0)
        CHECK(json_array_append_new(lines, json_loads(text, JSON_ALLOW_NUL, NULL)) == 0);
    free(text);
    fclose(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct template *t = NULL;
    struct template_output out = {0};
    struct error error = {""};
    if (lines == NULL)
        lines_read();
    const json_t *variables = json_object_get(json_array_get(lines, 0), "variables");
    if (template_compile((const char *)data, size, &t, &error) == ST_OK) {
        if (template_render(t, variables, NULL, 0, &limits, &out, &error) == ST_OK)
            template_output_done(&out);
        else
            CHECK(error.text[0] != 0);
        template_close(t);
    } else {
        CHECK(error.text[0] != 0);
    }
    return 0;
}

size_t fuzz_seed(unsigned index, uint8_t *buffer, size_t capacity)
{
    if (lines == NULL)
        lines_read();
    const json_t *template = json_object_get(json_array_get(lines, index + 1), "template");
    size_t bytes = json_string_length(template);
    if (template == NULL || bytes > capacity)
        return 0;
    memcpy(buffer, json_string_value(template), bytes);
    return bytes;
}
