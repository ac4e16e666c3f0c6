/* draft_file: opens the files of a draft model, which drafts tokens for another model. Machines
 * call it when they start, and the gateway when it checks a config. It keeps no state. */
#ifndef MODEL_FILE_DRAFT_FILE_H
#define MODEL_FILE_DRAFT_FILE_H

#include "model/file/model_file.h"

/* Opens the files; the caller closes *out (model_file_close). Drafts are token ids, so both models
 * must give each id to the same token. target: the model for which tokens are drafted; NULL = the
 * vocabularies were compared before. Returns ST_INVALID if the vocabularies differ (except for at
 * most 1,024 padding tokens at their ends), or an error of the files. */
enum status draft_file_open(const char *path, struct model_file *target, struct model_file **out,
                            struct error *error);

#endif
