/* folder_parts: the files of a small model in memory, as Hugging Face's folders have them, for
 * tests of wrong files and fuzz seeds: one layer, 8 tokens of SentencePiece's kind. */
#ifndef TESTS_MODEL_FOLDER_PARTS_H
#define TESTS_MODEL_FOLDER_PARTS_H

#include "model/folder.h"

#define FOLDER_PARTS_MAX 8

struct folder_parts {
    struct folder_part parts[FOLDER_PARTS_MAX]; /* data is malloc'ed */
    size_t count;
};

/* In two files with an index, or in one. */
void folder_parts_make(bool sharded, struct folder_parts *out);
/* In one file, the layer's matrices as E4M3 with a scale a row. */
void folder_parts_make_f8(struct folder_parts *out);
void folder_parts_done(struct folder_parts *p);
/* The part of that name; aborts if there is none. */
struct folder_part *folder_parts_find(struct folder_parts *p, const char *name);
/* The `at`-th byte of a tensor's data in model.safetensors, from the end if negative. */
void folder_parts_poke(struct folder_parts *p, const char *tensor, long at, uint8_t byte);
/* Replaces the first `find` in the part (of a safetensors file: in its header) by `put`; aborts if
 * it is not there. */
void folder_parts_replace(struct folder_parts *p, const char *name, const char *find,
                          const char *put);

#endif
