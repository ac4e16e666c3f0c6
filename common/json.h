/* json: reads JSON text with jansson, and says why a text could not be read; copies JSON values.
 * Any folder may call the functions, on any thread, unless a comment says otherwise. They write no
 * logs. `flags` are those of jansson, such as JSON_REJECT_DUPLICATES. Text that the program itself
 * makes is written with common/text.h or jansson.
 *
 * A function of jansson that adds a value to an object or a list returns -1 if memory runs out. It
 * also returns -1 if the value is NULL, because there was no memory for the value. The caller must
 * look at the result, because an object without a member, or a list without an element, has another
 * meaning (tests/architecture/architecture_test.py). Exception: in tools/, if main.c has called
 * json_exit_without_memory. */
#ifndef COMMON_JSON_H
#define COMMON_JSON_H

#include "common/status.h"

#include <jansson.h>
#include <stddef.h>
#include <stdio.h>

/* These functions read the JSON in a memory (`text` NULL = no bytes), in a file, or in an open file
 * from its position on. The caller releases *out with json_decref. Return
 *   ST_OK         *out is the document.
 *   ST_INVALID    The text is not JSON: why_out->text says why, and line, column and position say
 *                 where. json_error_code(why_out) says, for example, that a number is too large.
 *   ST_IO         The file cannot be opened or read: why_out->text says why.
 *   ST_NO_MEMORY  why_out->text is "out of memory".
 * Except with ST_OK, *out is NULL. why_out->line is 0 or less if no line is to blame. */
enum status json_text_load(const char *text, size_t bytes, size_t flags, json_t **out,
                           json_error_t *why_out);
enum status json_file_load(const char *path, size_t flags, json_t **out, json_error_t *why_out);
enum status json_stream_load(FILE *file, size_t flags, json_t **out, json_error_t *why_out);

/* Returns a copy of `value`, a new reference. The copy of an object or a list shares the members or
 * elements with `value`. NULL = `value` is NULL, or memory ran out. (If memory runs out, jansson's
 * json_copy returns an incomplete copy.) */
json_t *json_value_copy(const json_t *value);

/* From now on, the process prints a line on stderr and exits with status 1 if jansson finds no
 * memory. Call this function before the first JSON value is made and before there are other
 * threads. */
void json_exit_without_memory(void);

#endif
