/* draft_file: opens the files of a draft model, which drafts tokens for another model (the main
 * model), and compares the vocabularies of the two models. Machines and the gateway call
 * draft_file_open, on the thread that then uses the struct model_file. This part has no state and
 * loads no weights. */
#ifndef MODEL_FILE_DRAFT_FILE_H
#define MODEL_FILE_DRAFT_FILE_H

#include "model/file/model_file.h"

/* Opens the draft model at `path`. The caller closes *out with model_file_close. main_model: NULL =
 * the vocabularies are not compared. Each id must stand for the same text in both models, but one
 * vocabulary may have up to 1,024 more tokens at its end. Returns ST_INVALID if the vocabularies
 * differ, or an error of model_file_open or model_file_vocabulary. */
enum status draft_file_open(const char *path, struct model_file *main_model,
                            struct model_file **out, struct error *error);

#endif
