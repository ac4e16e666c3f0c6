/* draft_file: opens the files of a draft model, which drafts tokens for another model (the target),
 * and compares the vocabularies of the two models. It has no state. Machines
 * (machine/executor/draft_shape.c) call it at start; the gateway and `cleave check`
 * (server/serve_model.c) call it to check the draft model. They call it on the thread that then
 * uses the struct model_file. It does not load weights. */
#ifndef MODEL_FILE_DRAFT_FILE_H
#define MODEL_FILE_DRAFT_FILE_H

#include "model/file/model_file.h"

/* Opens the draft model at `path`. The caller closes *out with model_file_close. Drafts are token
 * ids, so each id must stand for the same text in both models. One vocabulary may have up to 1,024
 * more tokens at its end. target: NULL = the vocabularies are not compared. Returns ST_INVALID if
 * the vocabularies differ, or an error of model_file_open or model_file_vocabulary. */
enum status draft_file_open(const char *path, struct model_file *target, struct model_file **out,
                            struct error *error);

#endif
