/* draft_file: opens the files of a draft model, which drafts tokens for another model. It has no
 * state. Machines and the gateway call it when they open their models, on the thread that then uses
 * the files. It does not load weights. */
#ifndef MODEL_FILE_DRAFT_FILE_H
#define MODEL_FILE_DRAFT_FILE_H

#include "model/file/model_file.h"

/* Opens the draft model at `path`. The caller closes *out with model_file_close. target: the model
 * for which tokens are drafted; NULL = the vocabularies are not compared. Drafts are token ids, so
 * each id must stand for the same token in both models. One vocabulary may have up to 1,024 more
 * tokens at its end. Returns ST_INVALID if the vocabularies differ, or an error of model_file_open
 * or model_file_vocabulary. */
enum status draft_file_open(const char *path, struct model_file *target, struct model_file **out,
                            struct error *error);

#endif
