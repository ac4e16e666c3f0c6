/* fuzz_text: what fuzz targets do with a model's files that could be opened: encode and decode with
 * the tokenizer, render the chat template, and read the hyper-parameters. Aborts on an error
 * without text. */
#ifndef TESTS_MODEL_FUZZ_TEXT_H
#define TESTS_MODEL_FUZZ_TEXT_H

#include "model/file/model_file.h"

void fuzz_text_use(struct model_file *file);

#endif
