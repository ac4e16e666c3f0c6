/* corpus: texts for the tokenizer benchmark: files, and generated texts of the kinds on which
 * tokenizers differ. The same seed gives the same bytes on every computer. Each corpus owns its
 * text. */
#ifndef BENCH_CORPUS_H
#define BENCH_CORPUS_H

#include "common/status.h"

#include <stddef.h>
#include <stdint.h>

struct corpus {
    char name[64];
    char *text; /* Valid UTF-8 if generated; not terminated by NUL. */
    size_t bytes;
};

enum corpus_kind {
    CORPUS_WORDS,     /* Common English words as sentences and paragraphs. */
    CORPUS_LANGUAGES, /* Sentences of a dozen languages and scripts, and emoji. */
    CORPUS_UNBROKEN,  /* English words without spaces in between: one long word. */
    CORPUS_ONE_LETTER,
    CORPUS_TWO_LETTERS,
    CORPUS_DIGITS,
    CORPUS_BLANKS,
    CORPUS_MARKS,  /* Punctuation only. */
    CORPUS_RANDOM, /* Random code points of all planes. */
    CORPUS_KIND_COUNT
};

/* Generates a text. Its size can be below `bytes`, because a character, word or sentence that does
 * not fit is left out. ST_NO_MEMORY. */
enum status corpus_make(enum corpus_kind kind, size_t bytes, uint64_t seed, struct corpus *out);

/* Reads the files that match a shell pattern, one after the other, repeated until there are `bytes`
 * bytes; the last file is read whole. ST_NOT_FOUND: no file matches. */
enum status corpus_read(const char *name, const char *pattern, size_t bytes, struct corpus *out);

void corpus_done(struct corpus *c);

#endif
