/* corpus: the texts that bench-tokenizer (tokenizer.c) tokenizes: the contents of files, or
 * generated text. The same seed gives the same generated text on every computer. The functions keep
 * no state, and any thread may call them. A struct corpus owns its text. This part does not
 * tokenize, and corpus_read does not check that a file is UTF-8. */
#ifndef BENCH_CORPUS_H
#define BENCH_CORPUS_H

#include "common/status.h"

#include <stddef.h>
#include <stdint.h>

struct corpus {
    /* Name in the printed table: the kind of text, or the argument `name` of corpus_read. */
    char name[64];
    char *text; /* [bytes]: valid UTF-8 if generated; not terminated by NUL. */
    size_t bytes;
};

enum corpus_kind {
    CORPUS_WORDS,       /* Common English words as sentences and paragraphs. */
    CORPUS_LANGUAGES,   /* Sentences of 13 languages, and emoji. */
    CORPUS_UNBROKEN,    /* English words without spaces in between: one long word. */
    CORPUS_ONE_LETTER,  /* "aaaa…" */
    CORPUS_TWO_LETTERS, /* "abab…" */
    CORPUS_DIGITS,      /* Random digits. */
    CORPUS_BLANKS,      /* Mostly spaces, with tabs and line ends. */
    CORPUS_MARKS,       /* Punctuation only. */
    CORPUS_RANDOM,      /* Random code points of all planes. */
    CORPUS_KIND_COUNT
};

/* Generates a text of at most `bytes` bytes. The text ends with a whole character, a whole word
 * (CORPUS_WORDS, CORPUS_UNBROKEN) or a whole sentence (CORPUS_LANGUAGES). The caller frees *out
 * with corpus_done. Returns ST_NO_MEMORY on failure. */
enum status corpus_make(enum corpus_kind kind, size_t bytes, uint64_t seed, struct corpus *out);

/* Reads the files that match the shell pattern `pattern`, each file whole, until the text has at
 * least `bytes` bytes. After the last file, begins again with the first file. Skips files that
 * cannot be opened. The caller frees *out with corpus_done. Returns ST_NOT_FOUND if no file that
 * matches can be opened or all files are empty, or ST_NO_MEMORY. */
enum status corpus_read(const char *name, const char *pattern, size_t bytes, struct corpus *out);

/* Frees the text and sets *c to 0. */
void corpus_done(struct corpus *c);

#endif
