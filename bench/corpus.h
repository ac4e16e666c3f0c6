/* corpus: texts to tokenise: files, and generated ones of the kinds that tokenizers differ in. The
 * same seed gives the same bytes everywhere. Owns its text; no I/O but the files it is asked for.
 */
#ifndef BENCH_CORPUS_H
#define BENCH_CORPUS_H

#include "common/status.h"

#include <stddef.h>
#include <stdint.h>

struct corpus {
    char name[64];
    char *text; /* valid UTF-8, not terminated */
    size_t bytes;
};

enum corpus_kind {
    CORPUS_WORDS,     /* common English words as sentences and paragraphs */
    CORPUS_LANGUAGES, /* sentences of a dozen languages and scripts, and emoji */
    CORPUS_UNBROKEN,  /* English words without a blank between: one long word */
    CORPUS_ONE_LETTER,
    CORPUS_TWO_LETTERS,
    CORPUS_DIGITS,
    CORPUS_BLANKS,
    CORPUS_MARKS,  /* punctuation without end */
    CORPUS_RANDOM, /* code points of every plane */
    CORPUS_KIND_COUNT
};

/* ST_NO_MEMORY. Up to 3 bytes less than asked for. */
enum status corpus_make(enum corpus_kind kind, size_t bytes, uint64_t seed, struct corpus *out);

/* The files that match a shell pattern, one after the other, as often as it takes to make `bytes`
 * (at most bytes + one file). ST_NOT_FOUND where none does. */
enum status corpus_read(const char *name, const char *pattern, size_t bytes, struct corpus *out);

void corpus_done(struct corpus *c);

#endif
