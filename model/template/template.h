/* template: executes chat templates in the language of Python's jinja2, with the settings, filters
 * and functions that Hugging Face's transformers gives them (trim_blocks, lstrip_blocks, break and
 * continue, generation, tojson, raise_exception, strftime_now). A template is treated as hostile
 * input: steps, depth, output and memory are limited, and a template can read only its variables.
 * model/text/chat.c compiles a template when a model is opened, or when a request brings its own,
 * and renders it for each chat on the gateway's text threads. A compiled template never changes, so
 * any number of threads may render it at the same time. This part reads no files, and does not know
 * chats or tokens. */
#ifndef MODEL_TEMPLATE_TEMPLATE_H
#define MODEL_TEMPLATE_TEMPLATE_H

#include "common/status.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

struct template;

/* Limits of one rendering. */
struct template_limits {
    uint64_t steps;      /* Nodes evaluated and items visited. */
    uint32_t depth;      /* Nested evaluations; one takes up to 500 bytes of the C stack. */
    size_t memory_bytes; /* Memory, including all texts that the rendering builds. */
    size_t output_bytes; /* Bytes of the output. */
};

extern const struct template_limits template_limits_default;

/* A range [begin, end) of the output's bytes that comes from the input values, not from the
 * template. */
struct template_range {
    size_t begin;
    size_t end;
};

struct template_output {
    char *text;                    /* The rendered text, followed by a NUL. */
    size_t bytes;                  /* Bytes of `text` without the NUL. */
    struct template_range *inputs; /* [input_count], in ascending order, without overlap. */
    size_t input_count;
};

/* Compiles the text, which is used only during the call. The caller closes *out with
 * template_close. Returns ST_INVALID, with the line, for a wrong template; ST_TOO_LARGE for a text
 * of more than 4 MiB or one that needs too much memory or depth; ST_NO_MEMORY. */
enum status template_compile(const char *text, size_t bytes, struct template **out,
                             struct error *error);
void template_close(struct template *t); /* NULL is fine. */

/* Renders with the variables of two JSON objects; NULL = no variables. Text from `inputs` is listed
 * in out->inputs, except the usual values of a key "role", such as "user". Text from `settings`
 * (such as bos_token) counts as the template's. If both objects have a name, `inputs` wins. `now`
 * is the time that strftime_now formats. The caller releases *out with template_output_done.
 * Returns ST_INVALID if the template fails or raises an exception, ST_TOO_LARGE if a limit is
 * exceeded, ST_NO_MEMORY; the error names the line. */
enum status template_render(const struct template *t, const json_t *inputs, const json_t *settings,
                            time_t now, const struct template_limits *limits,
                            struct template_output *out, struct error *error);
void template_output_done(struct template_output *out); /* Frees the text and the ranges. */

#endif
