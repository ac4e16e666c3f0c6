/* gguf_vocabulary: writes a small vocabulary into a GGUF image, for fuzz targets: byte-level BPE
 * with all bytes and a few merges, or SentencePiece with scores; both have two control tokens: an
 * end token and a marker. Fuzz targets call it on their main thread. It aborts when out of memory,
 * and writes no weights. */
#ifndef TESTS_MODEL_FILE_GGUF_VOCABULARY_H
#define TESTS_MODEL_FILE_GGUF_VOCABULARY_H

#include "model/file/model_file.h"
#include "tests/model/file/gguf_writer.h"

#define GGUF_VOCABULARY_TOKENS 261
#define GGUF_VOCABULARY_END    259 /* "<|endoftext|>" */
#define GGUF_VOCABULARY_MARKER 260 /* "<|im_start|>" */

/* pre: the name of a pre-tokenizer; NULL = SentencePiece. */
void gguf_vocabulary_write(struct gguf_writer *w, const char *pre);

/* Returns the opened image of a file with nothing but this vocabulary and the chat template; NULL =
 * no template. The caller closes the file, and then frees *image_out. */
struct model_file *gguf_vocabulary_open(const char *pre, const char *chat, uint8_t **image_out);

#endif
