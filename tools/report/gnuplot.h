/* gnuplot: draws pictures with the program gnuplot, which reads a script from a pipe. A picture
 * goes to a file, or is returned as SVG text for a report. `cleave trace`, `simulate` and `plan`
 * call it on the main thread; a call blocks until gnuplot has ended, and ignores SIGPIPE for that
 * time. The caller writes the script. Errors of drawing name neither the option nor the file; the
 * caller adds both. */
#ifndef TOOLS_REPORT_GNUPLOT_H
#define TOOLS_REPORT_GNUPLOT_H

#include "common/status.h"

#include <stdint.h>
#include <stdio.h>

struct gnuplot_picture {
    uint32_t width; /* Pixels. */
    uint32_t height;
    /* Writes the commands that draw the picture; size and output are set already. A status other
     * than ST_OK is returned as the picture's error. Put data into named blocks, because gnuplot
     * reads inline data only once. */
    enum status (*draw)(const void *self, FILE *script, struct error *error);
    const void *self; /* First argument of `draw`. */
};

/* Checks the value of the option --plot; path NULL = not given. ST_USAGE: the name does not end in
 * .svg or .png; the error names the option. */
enum status gnuplot_option_check(const char *path, struct error *error);
/* Draws the picture into a file, which is removed if the drawing fails. ST_UNSUPPORTED: gnuplot is
 * not installed, or the name does not end in .svg or .png. ST_IO: the file cannot be written, or
 * gnuplot failed. Errors of `draw` are returned unchanged. */
enum status gnuplot_file_draw(const struct gnuplot_picture *picture, const char *path,
                              struct error *error);
/* Draws the picture and returns it as text from "<svg" on, by way of a file in /tmp. The caller
 * frees *svg_out. Errors are those of gnuplot_file_draw. */
enum status gnuplot_svg_draw(const struct gnuplot_picture *picture, char **svg_out,
                             struct error *error);

/* Writes `text` in single quotes. Quotes are doubled, control characters become "?". */
void gnuplot_quoted_write(const char *text, FILE *script);

#endif
