/* options: parses a command line by a table of options (name, type, field, help). The same table
 * prints --help, and errors have the same form in every subcommand. An option is `--name value`,
 * `--name=value`, or `--name` for a flag. If an option is repeated, the last one counts, except for
 * OPTION_TEXTS. Text values point into argv. No state: any thread. */
#ifndef COMMON_OPTIONS_H
#define COMMON_OPTIONS_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define OPTION_CHOICES_MAX 5
#define OPTION_TEXTS_MAX   32

enum option_type {
    OPTION_TEXT,   /* const char *. */
    OPTION_TEXTS,  /* struct option_texts. May be repeated. */
    OPTION_REAL,   /* double. */
    OPTION_WHOLE,  /* uint64_t, up to 2^53. */
    OPTION_CHOICE, /* An enum, or unsigned: the index in `choices`. */
    OPTION_FLAG,   /* bool. */
};

struct option_texts {
    uint32_t count;
    const char *texts[OPTION_TEXTS_MAX];
};

struct option_entry {
    const char *name; /* Without "--". */
    enum option_type type;
    size_t offset;    /* Offset of the field in the caller's struct. */
    double low, high; /* Range of a number. OPTION_TEXTS: `high` is the largest number of texts. */
    const char *choices[OPTION_CHOICES_MAX + 1];
    const char *default_value; /* NULL = the field keeps its value. */
    const char *help;
};

struct option_table {
    const struct option_entry *entries;
    size_t count;
    const char *operand; /* Name of the one argument that is not an option; NULL = there is none. */
    size_t operand_offset; /* Offset of its field, a const char *. */
};

/* Sets the fields of *out from argv[1] on. On ST_INVALID and ST_TOO_LARGE the error names the
 * option, its value and what was wanted; some fields may have been set. */
enum status options_read(const struct option_table *table, int argc, char **argv, void *out,
                         struct error *error);

/* Prints one line per option. */
void options_help(const struct option_table *table, FILE *out);

#endif
