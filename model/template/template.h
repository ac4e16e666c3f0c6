/* template: executes chat templates in the language of Python's jinja2, with the settings, filters
 * and functions that Hugging Face's transformers gives them (trim_blocks, lstrip_blocks, break and
 * continue, generation, tojson, raise_exception, strftime_now). A template is hostile input: steps,
 * depth, output and memory are bounded, and it reaches nothing but its variables. A compiled
 * template never changes: any number of threads may render it at a time. It reads no files. */
#ifndef MODEL_TEMPLATE_TEMPLATE_H
#define MODEL_TEMPLATE_TEMPLATE_H

#include "common/status.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

struct template;

struct template_limits {
    uint64_t steps;      /* Nodes evaluated and items visited. */
    uint32_t depth;      /* Nested evaluations; one takes up to 500 bytes of the C stack. */
    size_t memory_bytes; /* Memory of one rendering, with all texts that it builds. */
    size_t output_bytes;
};

extern const struct template_limits template_limits_default;

/* Bytes begin to end - 1 of the output come from the input values, not from the template. */
struct template_range {
    size_t begin;
    size_t end;
};

struct template_output {
    char *text; /* Ends with a NUL that `bytes` does not count. */
    size_t bytes;
    struct template_range *inputs; /* In ascending order, without overlap. */
    size_t input_count;
};

/* Compiles the text, of which nothing is kept. ST_INVALID: the error names the line. */
enum status template_compile(const char *text, size_t bytes, struct template **out,
                             struct error *error);
void template_close(struct template *t); /* NULL is fine. */

/* Renders with two objects of variables. Text of `inputs` is marked in the output's ranges, except
 * usual values of the key "role"; text of `settings` (such as bos_token) counts as the template's;
 * NULL = none. `now` is the time of
 * strftime_now. The caller releases the output with template_output_done. ST_INVALID: the template
 * failed or raised an exception; ST_TOO_LARGE: a limit was exceeded. */
enum status template_render(const struct template *t, const json_t *inputs, const json_t *settings,
                            time_t now, const struct template_limits *limits,
                            struct template_output *out, struct error *error);
void template_output_done(struct template_output *out);

#endif
