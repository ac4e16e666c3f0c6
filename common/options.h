/* options: a command line by a table: what an option is called, what it takes, where its value goes
 * and what it is good for. The table feeds the parser and --help, and what is wrong is said alike
 * for every subcommand. An option is `--name value`, `--name=value`, or `--name` alone for a flag;
 * where it comes again the last one counts, but for a list. Texts are those of the arguments. */
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
    OPTION_TEXT,   /* const char * */
    OPTION_TEXTS,  /* struct option_texts: it may be given again */
    OPTION_REAL,   /* double */
    OPTION_WHOLE,  /* uint64_t, up to 2^53 */
    OPTION_CHOICE, /* an enum's value, or unsigned: the place among `choices` */
    OPTION_FLAG,   /* bool */
};

struct option_texts {
    uint32_t count;
    const char *texts[OPTION_TEXTS_MAX];
};

struct option_entry {
    const char *name; /* without -- */
    enum option_type type;
    size_t offset;    /* of its field */
    double low, high; /* of a number; high of texts: how many at most */
    const char *choices[OPTION_CHOICES_MAX + 1];
    const char *default_value; /* NULL: what the field has before */
    const char *help;
};

struct option_table {
    const struct option_entry *entries;
    size_t count;
    const char *operand;   /* what the one argument is called that is no option; NULL: none is */
    size_t operand_offset; /* of its field, a const char * */
};

/* Sets the fields of *out from argv[1] on. ST_INVALID, ST_TOO_LARGE: the error names the option,
 * its value and what was wanted; some fields are set. */
enum status options_read(const struct option_table *table, int argc, char **argv, void *out,
                         struct error *error);

/* A line for each option. */
void options_help(const struct option_table *table, FILE *out);

#endif
