/* template: compiles and renders chat templates, which are written in the language of Python's
 * jinja2, with the settings, filters and functions that Hugging Face's transformers adds. Templates
 * are hostile input: steps, depth, output and memory are limited, and a template can read only its
 * variables.
 *
 * model/text/chat.c calls the functions. A compiled template does not change, so several threads
 * may render one template at once. This part reads no files, and knows no messages or tokens. */
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
    uint64_t steps;      /* Most evaluated nodes and visited items; long texts count as several. */
    uint32_t depth;      /* Most nested evaluations, which use the C stack of the calling thread. */
    size_t memory_bytes; /* Most memory, including all texts that the rendering builds. */
    size_t output_bytes; /* Most bytes of the output, or of the text of one macro or block. */
};

/* Limits for templates of models and of clients. */
extern const struct template_limits template_limits_default;

/* A range [begin, end) of the output's bytes (see template_render). */
struct template_range {
    size_t begin;
    size_t end;
};

struct template_output {
    char *text;                    /* The rendered text, followed by a NUL. */
    size_t bytes;                  /* Bytes of `text` without the NUL. */
    struct template_range *inputs; /* [input_count] in ascending order, without overlap. */
    size_t input_count;
};

/* Compiles the template `text` of `bytes` bytes. The text is used only during the call. The caller
 * closes *out with template_close. Returns ST_INVALID for a wrong template, with the line in the
 * error's text; ST_TOO_LARGE for a text of more than 4 MiB, or a text that needs too much
 * memory, depth or time; ST_NO_MEMORY. */
enum status template_compile(const char *text, size_t bytes, struct template **out,
                             struct error *error);
/* Frees the template. NULL is fine. Requires that no rendering of the template is running. */
void template_close(struct template *t);

/* Renders the template. Its variables are the members of the JSON objects `inputs` and `settings`
 * (NULL = no variables); a member of `inputs` hides the member of `settings` with the same name.
 * `now` is the time that strftime_now formats. out->inputs lists two kinds of bytes: bytes from
 * strings in `inputs`, except the usual values of a key "role", such as "user"; and bytes that
 * escaping, tojson or `%` has added. The caller frees *out with template_output_done. Returns
 * ST_INVALID if the template fails or raises an exception, with the line in the error's text;
 * ST_TOO_LARGE if a limit is exceeded; ST_NO_MEMORY. *out is set only if the status is ST_OK. */
enum status template_render(const struct template *t, const json_t *inputs, const json_t *settings,
                            time_t now, const struct template_limits *limits,
                            struct template_output *out, struct error *error);
void template_output_done(struct template_output *out); /* Frees the text and the ranges. */

#endif
