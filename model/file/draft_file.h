/* draft_file: opens the files of a draft model, which drafts tokens for another model. Machines call it
 * when they start, and the gateway when it checks a config. It keeps no state. */
#ifndef MODEL_FILE_DRAFT_FILE_H
#define MODEL_FILE_DRAFT_FILE_H

#include "model/file/model_file.h"

/* Opens the files. Drafts are token ids, so both models must give each id to the same token; only at
 * the ends, which are padding, one vocabulary may have more tokens. target: the model for which tokens
 * are drafted; NULL = the vocabularies were compared before. Returns ST_INVALID if they differ, or an
 * error of the files. */
enum status draft_file_open(const char *path, struct model_file *target, struct model_file **out,
                            struct error *error);

#endif
