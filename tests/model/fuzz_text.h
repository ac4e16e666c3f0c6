/* fuzz_text: what fuzz targets do with a model's files that could be opened: tokenizer (which then
 * encodes and decodes), chat template (which renders) and hyper-parameters. Aborts on a failure
 * without text. */
#ifndef TESTS_MODEL_FUZZ_TEXT_H
#define TESTS_MODEL_FUZZ_TEXT_H

#include "model/model_file.h"

void fuzz_text_use(struct model_file *file);

#endif
