/* gnuplot: draws pictures with the program gnuplot, into a file or as SVG text for a report. The
 * caller writes the script. `cleave trace`, `simulate` and `plan` call the functions on the main
 * thread. The functions have no state. While gnuplot runs, the call blocks, and the process ignores
 * SIGPIPE. */
#ifndef TOOLS_REPORT_GNUPLOT_H
#define TOOLS_REPORT_GNUPLOT_H

#include "common/status.h"

#include <stdint.h>
#include <stdio.h>

struct gnuplot_picture {
    uint32_t width;  /* Pixels. */
    uint32_t height; /* Pixels. */
    /* Writes the commands that draw the picture; the script already sets the picture's size and
     * file. Data must be in named blocks, because gnuplot reads inline data only once. */
    enum status (*draw)(const void *self, FILE *script, struct error *error);
    const void *self; /* First argument of `draw`. */
};

/* Checks the option --plot. path: the option's value; NULL = not given. ST_USAGE: the name does not
 * end in .svg or .png; the error names the option. */
enum status gnuplot_option_check(const char *path, struct error *error);
/* Draws the picture into a file, which is removed if the drawing fails. ST_UNSUPPORTED: gnuplot is
 * not installed, or the name does not end in .svg or .png. ST_IO: the file cannot be written, or
 * gnuplot failed. Errors of `draw` are returned unchanged. Errors do not name the file. */
enum status gnuplot_file_draw(const struct gnuplot_picture *picture, const char *path,
                              struct error *error);
/* Draws the picture and stores its SVG text from "<svg" on; the caller frees the text.
 * ST_UNSUPPORTED: gnuplot is not installed. Errors of `draw` are returned unchanged. ST_IO: another
 * failure, such as of the temporary file in /tmp. */
enum status gnuplot_svg_draw(const struct gnuplot_picture *picture, char **svg_out,
                             struct error *error);

/* Writes `text` in single quotes. Doubles the single quotes of the text, and writes "?" for each
 * byte below 32. */
void gnuplot_quoted_write(const char *text, FILE *script);

#endif
