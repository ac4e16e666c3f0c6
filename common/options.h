/* options: parses the command line of a subcommand by a table of options (name, type, field, help),
 * and prints the help from the same table. Each subcommand, and each benchmark with options, calls
 * it on the main thread; `cleave serve` reads its command line again when it reloads its config. It
 * keeps no state. It does not know the keys of the config: the texts of `--set` are ordinary
 * options, which the subcommand passes to config/config.h.
 *
 * An option is `--name value`, `--name=value`, or `--name` for a flag. A value that begins with
 * "--" needs the form with "=". An argument "-" is an operand. `--` ends the options. If an option
 * is repeated, the last value counts, except for OPTION_TEXTS and OPTION_WHOLES, which keep all
 * values. Texts are not copied: they point into argv or to the table's default values. */
#ifndef COMMON_OPTIONS_H
#define COMMON_OPTIONS_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define OPTION_CHOICES_MAX  5   /* Choices of one option. */
#define OPTION_OPERANDS_MAX 2   /* Operands of one subcommand. */
#define OPTION_TEXTS_MAX    128 /* Texts in one field of type OPTION_TEXTS. */
#define OPTION_WHOLES_MAX   8   /* Numbers in one field of type OPTION_WHOLES. */

/* The C type of the field that an option sets. */
enum option_type {
    OPTION_TEXT,   /* const char *. If the entry has `choices`, the text is one of the choices. */
    OPTION_TEXTS,  /* struct option_texts. Repeatable; several options may have the same field. */
    OPTION_REAL,   /* double. */
    OPTION_WHOLE,  /* uint64_t, up to 2^53. */
    OPTION_WHOLES, /* struct option_wholes. Repeatable. */
    OPTION_INT,    /* int. */
    OPTION_CHOICE, /* An enum, or unsigned: the index in `choices`. */
    OPTION_FLAG,   /* bool. */
};

/* Texts in the order of the command line. */
struct option_texts {
    uint32_t count;
    const char *names[OPTION_TEXTS_MAX]; /* Name of the option that gave the text. */
    const char *texts[OPTION_TEXTS_MAX];
};

/* Whole numbers in the order of the command line. */
struct option_wholes {
    uint32_t count;
    uint64_t numbers[OPTION_WHOLES_MAX];
};

/* One option of a subcommand. */
struct option_entry {
    const char *name;       /* Without "--". */
    const char *value_name; /* Shown in the help, such as "FILE"; NULL = a flag. */
    enum option_type type;
    size_t offset;    /* Offset of the field in the caller's struct. */
    double low, high; /* Range of a number. OPTION_TEXTS: `high` is the largest number of texts. */
    const char *choices[OPTION_CHOICES_MAX + 1]; /* Allowed texts, ended by NULL; none = any. */
    const char *default_value;                   /* NULL = the field keeps its value. */
    const char *help; /* Text of the help, which adds the choices and the default value. */
};

/* An argument that is not an option. Its field is a const char *. */
struct option_operand {
    const char *name; /* NULL = there is no such operand. */
    size_t offset;    /* Offset of the field in the caller's struct. */
    bool required;
};

/* The command line of one subcommand. In the functions below, `out` is the subcommand's own struct:
 * the offsets of the entries and operands are offsets in that struct. */
struct option_table {
    const char *command; /* The subcommand, such as "serve". */
    const char *usage;   /* What follows "usage: cleave COMMAND " in the help. */
    const char *about;   /* Paragraphs of the help; each ends with a newline. */
    const struct option_entry *entries;
    size_t count;                                        /* Number of entries. */
    struct option_operand operands[OPTION_OPERANDS_MAX]; /* In the order of the command line. */
    /* Checks options against each other, and sets fields that follow from others. Returns ST_USAGE
     * if the options are wrong. NULL = there is nothing to check. */
    enum status (*check)(void *out, struct error *error);
    void (*help_more)(FILE *out); /* Prints the end of the help; NULL = nothing more. */
};

/* Prints the help or the release on standard output if -h, --help or --version is given, and for
 * --help=json the table itself, from which man pages and completions are made. Otherwise
 * calls options_read, and options_fail after an error. Returns -1 to continue, or the exit status
 * of the process. */
int options_start(const struct option_table *table, int argc, char **argv, void *out);

/* Sets the fields of *out to the default values, then to the values of argv[1] and the arguments
 * after it, then calls the table's check. Requires that the fields of operands are NULL and that
 * the counts of OPTION_TEXTS and OPTION_WHOLES are 0. Returns ST_USAGE if an argument is wrong or a
 * required operand is missing; the error names the option, its value and what was wanted, and some
 * fields may have been set. */
enum status options_read(const struct option_table *table, int argc, char **argv, void *out,
                         struct error *error);

/* Prints the error of a subcommand as one line on standard error. Returns the exit status: 2 for
 * ST_USAGE, with a hint to --help, and 1 for every other failure. */
int options_fail(const struct option_table *table, enum status status, const struct error *error);

/* Prints the help. */
void options_help(const struct option_table *table, FILE *out);

#endif
