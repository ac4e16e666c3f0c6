/* render_lines: for template_hub_test.py. Reads lines of JSON, {"template", "inputs", "settings",
 * "now"}, and writes for each a line {"text"} or {"error"}. */
#include "model/template/template.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static json_t *render(const json_t *line)
{
    const json_t *text = json_object_get(line, "template");
    struct template *t = NULL;
    struct template_output out = {0};
    struct error error = {""};
    enum status status =
        template_compile(json_string_value(text), json_string_length(text), &t, &error);
    if (status == ST_OK)
        status =
            template_render(t, json_object_get(line, "inputs"), json_object_get(line, "settings"),
                            (time_t)json_integer_value(json_object_get(line, "now")),
                            &template_limits_default, &out, &error);
    json_t *result = json_object();
    if (status == ST_OK)
        json_object_set_new(result, "text", json_stringn(out.text, out.bytes));
    else
        json_object_set_new(result, "error", json_string(error.text));
    template_output_done(&out);
    template_close(t);
    return result;
}

int main(void)
{
    char *text = NULL;
    size_t capacity = 0;
    while (getline(&text, &capacity, stdin) > 0) {
        json_t *line = json_loads(text, JSON_ALLOW_NUL, NULL);
        json_t *result = render(line);
        if (json_dumpf(result, stdout, JSON_ENSURE_ASCII) != 0 || putchar('\n') == EOF)
            return 1;
        json_decref(result);
        json_decref(line);
    }
    free(text);
    return 0;
}
