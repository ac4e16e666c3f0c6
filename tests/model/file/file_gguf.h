/* file_gguf: the GGUF file of an open model. Tests compute with the weights of the file, without
 * the code under test, or write the weights in another form. They call it on the thread that uses
 * the struct model_file. It opens and closes nothing. */
#ifndef TESTS_MODEL_FILE_FILE_GGUF_H
#define TESTS_MODEL_FILE_FILE_GGUF_H

#include "model/file/model_file_internal.h"

/* Returns the GGUF file, which `file` owns; NULL = the model is a folder. */
static inline struct gguf *file_gguf(const struct model_file *file)
{
    return file->gguf;
}

#endif
