/* html: the parts of a report that is one HTML file and refers to no other. */
#ifndef SIMULATOR_HTML_H
#define SIMULATOR_HTML_H

#include "simulator/gnuplot.h"

/* The file of an option --html. ST_IO: it cannot be written. */
enum status html_open(const char *path, FILE **out, struct error *error);
/* Closes it. Returns `status`, whose error names the file from now on; if that is ST_OK, ST_IO
 * where something was not written. */
enum status html_close(FILE *out, const char *path, enum status status, struct error *error);

void html_escaped(const char *text, FILE *out);
/* Up to a heading and the command line: "cleave" and the arguments, of which the first one is the
 * subcommand. */
void html_begin(const char *title, int argc, char *const *argv, FILE *out);
void html_heading(const char *text, FILE *out);
/* What `print` writes, as it stands. ST_NO_MEMORY. */
enum status html_printed(void (*print)(const void *self, FILE *out), const void *self, FILE *out,
                         struct error *error);
/* Without gnuplot, words in its place, and on standard error behind `who`. */
enum status html_picture(const struct gnuplot_picture *picture, const char *who, FILE *out,
                         struct error *error);
/* The data, to be unfolded, and the end of the file. */
void html_data(const char *text, FILE *out);

#endif
