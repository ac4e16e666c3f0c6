/* fuzz_text: what fuzz_gguf and fuzz_folder do with a model's files that could be opened: encode
 * and decode with the tokenizer, render the chat template, and read the hyper-parameters. Called on
 * the main thread, for one file at a time. It computes no model. */
#ifndef TESTS_MODEL_FILE_FUZZ_TEXT_H
#define TESTS_MODEL_FILE_FUZZ_TEXT_H

#include "model/file/model_file.h"

/* Does all of that. Aborts on an error without text. */
void fuzz_text_use(struct model_file *file);

#endif
