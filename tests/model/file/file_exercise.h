/* file_exercise: uses a model's file in the ways that a gateway does. The fuzz targets of model
 * files call it on their one thread, with a file that could be opened. It owns nothing and computes
 * no model. Programs with it are linked with --wrap=template_compile, which replaces the file's chat
 * template by one of a few. */
#ifndef TESTS_MODEL_FILE_FILE_EXERCISE_H
#define TESTS_MODEL_FILE_FILE_EXERCISE_H

#include "model/file/model_file.h"

/* Encodes and decodes a text with the file's tokenizer, renders a chat with its chat template, and
 * reads its hyper-parameters. Each may fail. Aborts if an error has no text, or if the tokenizer
 * returns an unknown id or decodes a token to more bytes than its header promises. */
void file_exercise(struct model_file *file);

#endif
