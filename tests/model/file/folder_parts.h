/* folder_parts: the files of a small model in memory, in the form of a Hugging Face folder, for
 * tests of wrong files and fuzz seeds. The model has one layer and 8 tokens of a SentencePiece
 * vocabulary. The test's main thread makes and changes the files and owns them. Nothing is written
 * to disk: folder_writer.h writes real folders. */
#ifndef TESTS_MODEL_FILE_FOLDER_PARTS_H
#define TESTS_MODEL_FILE_FOLDER_PARTS_H

#include "model/file/folder.h"

#define FOLDER_PARTS_MAX 8

struct folder_parts {
    /* The data of each part is allocated with malloc. */
    struct folder_part parts[FOLDER_PARTS_MAX];
    size_t count;
};

/* Makes the model with its weights in two files and an index, or in one file. */
void folder_parts_make(bool sharded, struct folder_parts *out);
/* Makes the model in one file with the layer's matrices as E4M3 with a scale per row. */
void folder_parts_make_f8(struct folder_parts *out);
/* Makes the model with one matrix of packed integers instead of its weights: it opens, but is not
 * whole. */
void folder_parts_make_packed(struct folder_parts *out);
/* Frees the parts. */
void folder_parts_done(struct folder_parts *p);
/* Returns the part with this name; aborts if there is none. */
struct folder_part *folder_parts_find(struct folder_parts *p, const char *name);
/* Changes byte `at` of a tensor's data in model.safetensors; a negative `at` counts from the end.
 */
void folder_parts_poke(struct folder_parts *p, const char *tensor, long at, uint8_t byte);
/* Replaces the first `find` in the part (in a safetensors file: in its header) by `put`; aborts if
 * `find` does not occur. */
void folder_parts_replace(struct folder_parts *p, const char *name, const char *find,
                          const char *put);

#endif
