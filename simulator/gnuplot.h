/* gnuplot: pictures by the program of that name, which reads a script from a pipe: into a file, or
 * as text for a report. Errors do not say whose option it was. */
#ifndef SIMULATOR_GNUPLOT_H
#define SIMULATOR_GNUPLOT_H

#include "common/status.h"

#include <stdint.h>
#include <stdio.h>

struct gnuplot_picture {
    uint32_t width; /* pixels */
    uint32_t height;
    /* Writes the script; what it returns that is not ST_OK is the picture's error. Data is best in
     * named blocks, for gnuplot reads inline data once only. */
    enum status (*draw)(const void *self, FILE *script, struct error *error);
    const void *self;
};

/* ST_UNSUPPORTED: the name does not end in .svg or .png. */
enum status gnuplot_path_check(const char *path, struct error *error);
/* Into that file, which is gone if it fails. ST_UNSUPPORTED: there is no gnuplot, or the name's
 * end; ST_IO: the rest. */
enum status gnuplot_file(const struct gnuplot_picture *picture, const char *path,
                         struct error *error);
/* *svg_out: the picture, from "<svg" on, to be freed. */
enum status gnuplot_svg(const struct gnuplot_picture *picture, char **svg_out, struct error *error);

/* In single quotes; what gnuplot could take for more is left out. */
void gnuplot_quoted(const char *text, FILE *script);

#endif
