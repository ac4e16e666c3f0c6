/* cost_table: how long an iteration takes by the measurements of Splitwise's authors: of each
 * (model, hardware, tensor parallel) the medians of prompt and token times over the number of
 * tokens in a batch, straight lines between them and beyond. The context does not count. Formula:
 * README of the reference, "Time"; its numbers to the last bit but one. Read once, then constant.
 */
#ifndef SIMULATOR_COST_TABLE_H
#define SIMULATOR_COST_TABLE_H

#include "common/status.h"

#include <stdint.h>

#define COST_TABLE_POINTS 64 /* numbers of tokens that were measured, of one curve */

struct cost_curve {
    uint32_t count;
    double tokens[COST_TABLE_POINTS]; /* ascending */
    double prompt_s[COST_TABLE_POINTS];
    double token_s[COST_TABLE_POINTS];
};

/* Reads a CSV file with the columns model, hardware, tensor_parallel, prompt_size, batch_size,
 * prompt_time and token_time (milliseconds), of which the rows of this model and hardware count.
 * ST_NOT_FOUND: fewer than two points. Errors name file and line. */
enum status cost_table_read(const char *path, const char *model, const char *hardware,
                            uint32_t tensor_parallel, struct cost_curve *out, struct error *error);

/* Of a batch with so many tokens, seconds: prompts only; one iteration of decodes only. At least a
 * microsecond. */
double cost_curve_prompts_s(const struct cost_curve *curve, double tokens);
double cost_curve_decodes_s(const struct cost_curve *curve, double tokens);

#endif
